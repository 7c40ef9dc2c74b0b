//! What an adapter's guest was promised, carried along when it moves (vhost-user `DEVICE_STATE`).
//!
//! Where its rings are, and what is in them, the front-end carries itself. But it does not know
//! whether the adapter that it arrives at is the right one: that has the guest's own MAC, and takes
//! frames as long as the guest may send. So that is what is carried, and a guest that arrives at
//! the wrong adapter is refused before it runs there.

use model::state::MacText;
use serde::{Deserialize, Serialize};
use vhost_user::Refused;
use wire::Mac;

/// The form of what is carried; another one is refused.
const VERSION: u32 = 1;

/// What is carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Carried {
    version: u32,
    /// The guest's own address, if it has one.
    mac: Option<MacText>,
    /// The longest frames that it sends and takes, bytes without Ethernet's header.
    mtu: u16,
}

impl Carried {
    pub(super) fn new(mac: Option<Mac>, mtu: u16) -> Carried {
        Carried { version: VERSION, mac: mac.map(MacText), mtu }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it has only names and numbers")
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Carried, Refused> {
        let carried: Carried = serde_json::from_slice(bytes)
            .map_err(|error| Refused::new(format!("what came is no adapter's state: {error}")))?;
        match carried.version {
            VERSION => Ok(carried),
            other => Err(Refused::new(format!(
                "the state that came has form {other}, and this daemon reads {VERSION}: move the \
                 guest to a daemon of the same age"
            ))),
        }
    }

    /// Whether a guest that was promised this can arrive at an adapter that promises `here`.
    pub(super) fn suits(&self, here: &Carried) -> Result<(), Refused> {
        if let (Some(MacText(comes)), Some(MacText(is))) = (&self.mac, &here.mac)
            && comes != is
        {
            return Err(Refused::new(format!(
                "the guest that comes has MAC {comes}, and this adapter {is}: it is another's socket"
            )));
        }
        match self.mtu <= here.mtu {
            true => Ok(()),
            false => Err(Refused::new(format!(
                "the guest that comes has MTU {}, and this adapter at most {}: raise its mtu",
                self.mtu, here.mtu
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_arrives_only_where_it_is_at_home() {
        let mac = |last| Some(Mac([2, 0, 0, 0, 0, last]));
        let comes = Carried::new(mac(1), 1500);
        let read = Carried::from_bytes(&comes.to_bytes()).unwrap();
        assert_eq!(read, comes);
        for (here, why) in [
            (Carried::new(mac(1), 1500), None),
            (Carried::new(mac(1), 9000), None),
            (Carried::new(None, 1500), None),
            (Carried::new(mac(2), 1500), Some("another's socket")),
            (Carried::new(mac(1), 1400), Some("raise its mtu")),
        ] {
            let suits = read.suits(&here).map_err(|refused| refused.to_string());
            match why {
                None => assert_eq!(suits, Ok(())),
                Some(why) => assert!(suits.unwrap_err().ends_with(why)),
            }
        }
    }

    #[test]
    fn what_is_no_state_is_refused() {
        for bytes in [&b""[..], b"{}", b"\0\0\0\0", b"{\"version\":1}"] {
            assert!(Carried::from_bytes(bytes).is_err());
        }
        let later = br#"{"version":2,"mac":null,"mtu":1500}"#;
        let why = Carried::from_bytes(later).unwrap_err().to_string();
        assert!(why.contains("form 2"), "{why}");
    }
}
