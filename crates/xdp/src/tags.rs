//! VLAN tags of received frames, which a card removes (rx-vlan-offload).
//!
//! A program does not see a removed tag: frames of each VLAN would be untagged frames. So a card
//! leaves the tags in the frames while they are redirected.
//!
//! Limits: a killed process leaves the offload off. A veth has the flag too, but no such offload:
//! its peer's txvlan decides.

use std::os::fd::BorrowedFd;

use host::launcher::{self, Answer, ask};
use host::socket::{SocketKind, check};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::interface::{ETH_FLAG_RXVLAN, ETHTOOL_GFLAGS, Interface, Interfaces, Value, ethtool};

const ETHTOOL_SFLAGS: u32 = 0x26;

/// Tags that a card leaves in received frames, for the life of this value.
#[derive(Debug)]
pub struct KeptTags {
    interfaces: Interfaces,
    interface: String,
}

impl KeptTags {
    /// Has a card leave the tags, on an interface of the calling thread's network namespace.
    /// `None` if it does so already, is no card, or cannot.
    pub fn on(interface: &Interface) -> Option<KeptTags> {
        let name = &interface.name;
        let is_card = || {
            let driver = host::interface::Interfaces::of(None).ok()?.driver(name).ok()?;
            Some(!driver.bus_info.is_empty())
        };
        if !interface.strips_vlan || is_card() != Some(true) {
            return None;
        }
        let kept = KeptTags { interfaces: Interfaces::here().ok()?, interface: name.clone() };
        kept.change(true).ok()?;
        let now = kept.interfaces.find(name).ok()?;
        (!now.strips_vlan).then_some(kept)
    }

    fn change(&self, keep: bool) -> Result<(), Errno> {
        let request = KeepTags { interface: self.interface.clone(), keep };
        ask(request, &[self.interfaces.socket()]).map(drop)
    }
}

impl Drop for KeptTags {
    fn drop(&mut self) {
        // Fails if the interface is gone.
        let _ = self.change(false);
    }
}

/// Has a card leave VLAN tags in received frames, or remove them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeepTags {
    interface: String,
    keep: bool,
}

impl launcher::Request for KeepTags {
    const NAME: &'static str = "keep-tags";
    const DOES: &'static str = "has an interface in the socket's namespace leave VLAN tags in received frames, or remove them";
    type Reply = ();

    fn check(&self, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let [socket] = fds else { return Err(Errno::INVAL) };
        check(*socket, SocketKind::Interfaces)?;
        launcher::check_named(&["xdp"], &self.interface)
    }

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<()> {
        let [socket] = fds else { return Err(Errno::INVAL) };
        let mut flags = Value { cmd: ETHTOOL_GFLAGS, data: 0 };
        ethtool(*socket, &self.interface, &mut flags)?;
        let others = flags.data & !ETH_FLAG_RXVLAN;
        let data = if self.keep { others } else { others | ETH_FLAG_RXVLAN };
        ethtool(*socket, &self.interface, &mut Value { cmd: ETHTOOL_SFLAGS, data })?;
        Ok(((), Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use launcher::Request;

    use super::*;

    #[test]
    fn an_interface_that_is_no_card_keeps_its_settings() {
        let lo = Interface::find("lo").unwrap();
        assert!(KeptTags::on(&lo).is_none());
        assert!(KeptTags::on(&Interface { strips_vlan: true, ..lo }).is_none());
    }

    #[test]
    fn a_launcher_wants_a_socket_for_interfaces() {
        let request = KeepTags { interface: "lo".to_owned(), keep: true };
        let interfaces = Interfaces::here().unwrap();
        assert_eq!(request.check(&[interfaces.socket()]), Ok(()));
        let (other, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(request.check(&[other.as_fd()]), Err(Errno::INVAL));
        assert_eq!(request.check(&[]), Err(Errno::INVAL));
    }
}
