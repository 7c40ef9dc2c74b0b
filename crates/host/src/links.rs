//! Requests on interfaces that only rtnetlink has: bridges, veth pairs, addresses.
//!
//! Follows rtnetlink(7) and `include/uapi/linux/{rtnetlink,if_link,if_addr,veth}.h`. Other requests
//! are in [`crate::interface`].

use std::net::Ipv4Addr;

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::netdevice::name_to_index;

use crate::netlink::{Netlink, NetlinkMessage};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_PID: u16 = 19;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;

/// A netlink request that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct LinkError {
    /// The request that failed, e.g. `cannot make bridge lab0`.
    pub what: String,
    /// The kernel's error number.
    pub source: Errno,
}

/// An rtnetlink socket.
#[derive(Debug)]
pub struct Links(Netlink);

impl Links {
    /// Connects to the interfaces of this thread's namespace.
    ///
    /// # Errors
    /// The kernel refuses a netlink socket.
    pub fn open() -> Result<Links, LinkError> {
        Netlink::route().map(Links).map_err(error("cannot open a netlink socket"))
    }

    /// Makes a bridge that is up. It floods multicast: with snooping it would send membership
    /// reports (IGMP), and only the guests' frames may pass.
    ///
    /// # Errors
    /// The kernel's: it does not support bridges, or the name is taken.
    pub fn add_bridge(&mut self, name: &str) -> Result<(), LinkError> {
        let data = NetlinkMessage::nest().with(IFLA_BR_MCAST_SNOOPING, &[0]);
        let kind =
            NetlinkMessage::nest().with(IFLA_INFO_KIND, b"bridge").with_nest(IFLA_INFO_DATA, &data);
        self.add(name, &kind).map_err(error(format!("cannot make bridge {name}")))
    }

    /// Makes a veth pair: `name` here, up, and `peer` in the namespace of a process.
    ///
    /// # Errors
    /// The kernel's: it does not support veth, or a name is taken.
    pub fn add_pair(&mut self, name: &str, peer: &str, pid: u32) -> Result<(), LinkError> {
        let peer = NetlinkMessage::new(0, &interface(0, 0)).with_text(IFLA_IFNAME, peer);
        let peer = peer.with(IFLA_NET_NS_PID, &pid.to_ne_bytes());
        let data = NetlinkMessage::nest().with_nest(VETH_INFO_PEER, &peer);
        let kind =
            NetlinkMessage::nest().with(IFLA_INFO_KIND, b"veth").with_nest(IFLA_INFO_DATA, &data);
        self.add(name, &kind).map_err(error(format!("cannot make the pair of interfaces {name}")))
    }

    /// Makes an interface that is up.
    fn add(&self, name: &str, kind: &NetlinkMessage) -> Result<(), Errno> {
        let request = NetlinkMessage::new(RTM_NEWLINK, &interface(0, IFF_UP)).creating();
        self.done(request.with_text(IFLA_IFNAME, name).with_nest(IFLA_LINKINFO, kind))
    }

    /// Makes an interface a port of a bridge, and sets it up.
    ///
    /// # Errors
    /// An interface is missing, or the kernel refuses.
    pub fn join(&mut self, name: &str, bridge: &str) -> Result<(), LinkError> {
        let master = self.index(bridge)?.to_ne_bytes();
        let request = NetlinkMessage::new(RTM_SETLINK, &interface(self.index(name)?, IFF_UP));
        self.done(request.acknowledged().with(IFLA_MASTER, &master))
            .map_err(error(format!("{name} cannot join {bridge}")))
    }

    /// Deletes an interface, and with it the other end of a veth pair.
    ///
    /// # Errors
    /// The interface is missing, or the kernel refuses.
    pub fn remove(&mut self, name: &str) -> Result<(), LinkError> {
        let request =
            NetlinkMessage::new(RTM_DELLINK, &interface(self.index(name)?, 0)).acknowledged();
        self.done(request).map_err(error(format!("cannot remove {name}")))
    }

    /// Adds an IPv4 address with its network.
    ///
    /// # Errors
    /// The interface is missing, or has the address already.
    pub fn add_address(&mut self, name: &str, ip: Ipv4Addr, prefix: u8) -> Result<(), LinkError> {
        // struct ifaddrmsg: family, prefix, flags, scope, interface
        let mut header = vec![AddressFamily::INET.as_raw() as u8, prefix, 0, 0];
        header.extend_from_slice(&self.index(name)?.to_ne_bytes());
        let request = NetlinkMessage::new(RTM_NEWADDR, &header).creating();
        let request = request.with(IFA_LOCAL, &ip.octets()).with(IFA_ADDRESS, &ip.octets());
        self.done(request).map_err(error(format!("{name} cannot have {ip}")))
    }

    fn index(&self, name: &str) -> Result<u32, LinkError> {
        name_to_index(&self.0.socket, name).map_err(error(format!("there is no interface {name}")))
    }

    fn done(&self, request: NetlinkMessage) -> Result<(), Errno> {
        self.0.exchange(request).map(drop)
    }
}

fn error(what: impl Into<String>) -> impl FnOnce(Errno) -> LinkError {
    |source| LinkError { what: what.into(), source }
}

/// `struct ifinfomsg`: family, type, index, flags, and the mask of flags to change.
fn interface(index: u32, flags: u32) -> Vec<u8> {
    [0, index, flags, flags].into_iter().flat_map(u32::to_ne_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_for_an_interface_that_is_not_there() {
        let mut links = Links::open().unwrap();
        let error = links.join("no-such-if0", "lo").unwrap_err();
        assert!(error.to_string().contains("no interface no-such-if0"), "{error}");
    }
}
