//! Adapter configuration promised to a guest, carried along in a live migration (vhost-user
//! `DEVICE_STATE`).
//!
//! The front-end migrates the rings itself. But it does not know whether the target adapter fits:
//! its MAC address must be the guest's, and it must accept frames as long as the guest sends. So
//! both are carried along, and a guest at the wrong adapter is rejected before it runs.

use model::state::MacText;
use serde::{Deserialize, Serialize};
use vhost_user::Refused;
use wire::Mac;

/// Format version; others are rejected.
const VERSION: u32 = 1;

/// Adapter configuration promised to a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MigratedConfig {
    version: u32,
    /// MAC address of the guest, if it has one.
    mac: Option<MacText>,
    /// Longest frame in both directions, in bytes without the Ethernet header.
    mtu: u16,
}

impl MigratedConfig {
    pub(super) fn new(mac: Option<Mac>, mtu: u16) -> MigratedConfig {
        MigratedConfig { version: VERSION, mac: mac.map(MacText), mtu }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it has only names and numbers")
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<MigratedConfig, Refused> {
        let config: MigratedConfig = serde_json::from_slice(bytes)
            .map_err(|error| Refused::new(format!("invalid adapter state: {error}")))?;
        match config.version {
            VERSION => Ok(config),
            other => Err(Refused::new(format!(
                "adapter state has format {other}, and this daemon supports {VERSION}: migrate the \
                 guest to a daemon of the same version"
            ))),
        }
    }

    /// Checks that a guest with this configuration can move to an adapter that offers `here`.
    pub(super) fn check_target(&self, here: &MigratedConfig) -> Result<(), Refused> {
        if let (Some(MacText(arriving)), Some(MacText(is))) = (&self.mac, &here.mac)
            && arriving != is
        {
            return Err(Refused::new(format!(
                "the arriving guest has MAC {arriving}, and this adapter {is}: it is another guest's socket"
            )));
        }
        match self.mtu <= here.mtu {
            true => Ok(()),
            false => Err(Refused::new(format!(
                "the arriving guest has MTU {}, and this adapter at most {}: raise its mtu",
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
        let arriving = MigratedConfig::new(mac(1), 1500);
        let read = MigratedConfig::from_bytes(&arriving.to_bytes()).unwrap();
        assert_eq!(read, arriving);
        for (here, why) in [
            (MigratedConfig::new(mac(1), 1500), None),
            (MigratedConfig::new(mac(1), 9000), None),
            (MigratedConfig::new(None, 1500), None),
            (MigratedConfig::new(mac(2), 1500), Some("another guest's socket")),
            (MigratedConfig::new(mac(1), 1400), Some("raise its mtu")),
        ] {
            let check_target = read.check_target(&here).map_err(|refused| refused.to_string());
            match why {
                None => assert_eq!(check_target, Ok(())),
                Some(why) => assert!(check_target.unwrap_err().ends_with(why)),
            }
        }
    }

    /// CVE-2013-4149, CVE-2013-4150 (QEMU): sizes in a migrated state were trusted.
    #[test]
    fn malformed_migrated_state() {
        for bytes in [&b""[..], b"{}", b"\0\0\0\0", b"{\"version\":1}"] {
            assert!(MigratedConfig::from_bytes(bytes).is_err());
        }
        let later = br#"{"version":2,"mac":null,"mtu":1500}"#;
        let why = MigratedConfig::from_bytes(later).unwrap_err().to_string();
        assert!(why.contains("format 2"), "{why}");
    }
}
