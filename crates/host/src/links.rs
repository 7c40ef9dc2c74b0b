//! Requests on interfaces that only rtnetlink has: bridges, veth pairs, namespaces, addresses,
//! default routes, and marks (the alias of an interface, which `ip link` shows).
//!
//! Follows rtnetlink(7) and `include/uapi/linux/{rtnetlink,if_link,if_addr,veth}.h`. Other requests
//! are in [`crate::interface`].

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::netdevice::{index_to_name, name_to_index};
use serde::{Deserialize, Serialize};

use crate::interface::check_tap;
use crate::launcher::{self, Answer, Request, check_named};
use crate::netlink::{Netlink, NetlinkMessage, attribute, u32_at};
use crate::socket::{self, SocketKind};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
/// Request to read an interface, or all.
pub const RTM_GETLINK: u16 = 18;
/// Request to change an interface.
pub const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
/// Attribute of an interface: MAC address.
pub const IFLA_ADDRESS: u16 = 1;
/// Attribute of an interface: name.
pub const IFLA_IFNAME: u16 = 3;
/// Attribute of an interface: MTU in bytes.
pub const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_PID: u16 = 19;
const IFLA_IFALIAS: u16 = 20;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_TUN_MULTI_QUEUE: u16 = 7;
const VETH_INFO_PEER: u16 = 1;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// No duplicate address detection: the address works at once.
const IFA_F_NODAD: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RTN_UNICAST: u8 = 1;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
/// Flag of an interface that is up.
pub const IFF_UP: u32 = 1;
/// Bytes of `struct ifinfomsg`, which precedes the attributes of an interface.
pub const INTERFACE_HEADER: usize = 16;

/// An address of an interface, and the length of its network's prefix in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkAddress {
    /// The address.
    pub ip: IpAddr,
    /// Length of the prefix: up to 32 for IPv4, and 128 for IPv6.
    pub prefix_len: u8,
}

impl std::fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix_len)
    }
}

/// A netlink request that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct LinkError {
    /// The request that failed, e.g. `cannot make bridge lab0`.
    pub what: String,
    /// The kernel's error number.
    pub source: Errno,
}

/// Settings of an interface to change together; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkSettings<'a> {
    /// Namespace to move it to, before all else.
    pub netns: Option<BorrowedFd<'a>>,
    /// Name; an interface that is up keeps its name.
    pub name: Option<&'a str>,
    /// MAC address.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// `true` to set it up.
    pub up: Option<bool>,
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

    /// Moves the interface with this index to another network namespace, where it is down and has
    /// this name.
    ///
    /// # Errors
    /// The interface is missing, or the kernel refuses: the name is taken there.
    pub fn move_to(
        &self,
        namespace: BorrowedFd<'_>,
        index: u32,
        name: &str,
    ) -> Result<(), LinkError> {
        let to =
            LinkSettings { netns: Some(namespace), name: Some(name), ..LinkSettings::default() };
        self.set(name, index, &to)
    }

    /// Changes the interface `name` with this index, in one request of this process's rights.
    ///
    /// # Errors
    /// The kernel's; after one the interface may have some of the settings.
    pub fn set(&self, name: &str, index: u32, to: &LinkSettings<'_>) -> Result<(), LinkError> {
        let flag = |up: bool| (u32::from(up) * IFF_UP, IFF_UP);
        let (flags, mask) = to.up.map_or((0, 0), flag);
        let header: Vec<u8> =
            [0, index, flags, mask].into_iter().flat_map(u32::to_ne_bytes).collect();
        let mut request = NetlinkMessage::new(RTM_SETLINK, &header).acknowledged();
        if let Some(netns) = to.netns {
            request = request.with(IFLA_NET_NS_FD, &netns.as_raw_fd().to_ne_bytes());
        }
        if let Some(name) = to.name {
            request = request.with_text(IFLA_IFNAME, name);
        }
        if let Some(mac) = to.mac {
            request = request.with(IFLA_ADDRESS, &mac);
        }
        if let Some(mtu) = to.mtu {
            request = request.with(IFLA_MTU, &mtu.to_ne_bytes());
        }
        self.done(request).map_err(error(format!("cannot change {name}")))
    }

    /// Deletes an interface, and with it the other end of a veth pair.
    ///
    /// # Errors
    /// The interface is missing, or the kernel refuses.
    pub fn remove(&mut self, name: &str) -> Result<(), LinkError> {
        let removed = self.change(self.index(name)?, LinkChange::Remove);
        removed.map_err(error(format!("cannot remove {name}")))
    }

    /// Adds an address with its network; returns `false` if the interface has it already.
    ///
    /// # Errors
    /// The interface is missing, or the kernel refuses (IPv6 may be disabled).
    pub fn add_address(&mut self, name: &str, address: LinkAddress) -> Result<bool, LinkError> {
        let done = self.change(self.index(name)?, LinkChange::AddAddress(address));
        added(done).map_err(error(format!("{name} cannot have {address}")))
    }

    /// Removes an address; an interface without it is no error.
    ///
    /// # Errors
    /// The interface is missing, or the kernel refuses.
    pub fn remove_address(&mut self, name: &str, address: LinkAddress) -> Result<(), LinkError> {
        let done = self.change(self.index(name)?, LinkChange::RemoveAddress(address));
        removed(done).map_err(error(format!("cannot remove {address} of {name}")))
    }

    /// Adds the default route of the gateway's family; returns `false` if it is there already.
    ///
    /// # Errors
    /// `EEXIST` if another default route precedes it; else the kernel's: the interface is down or
    /// has no address in the gateway's network.
    pub fn add_gateway(&mut self, name: &str, gateway: IpAddr) -> Result<bool, LinkError> {
        let refused = || error(format!("{name} cannot have gateway {gateway}"));
        let index = self.index(name)?;
        match self.change(index, LinkChange::AddGateway(gateway)) {
            Err(Errno::EXIST) => {}
            result => return result.map(|()| true).map_err(refused()),
        }
        // The kernel appends a route behind others, unless it is the same as one of them.
        let appended = self.change(index, LinkChange::AppendGateway(gateway));
        if !added(appended).map_err(refused())? {
            return Ok(false);
        }
        removed(self.change(index, LinkChange::RemoveGateway(gateway))).map_err(refused())?;
        Err(refused()(Errno::EXIST))
    }

    /// Removes a default route; an interface without it is no error.
    ///
    /// # Errors
    /// The interface is missing, or the kernel refuses.
    pub fn remove_gateway(&mut self, name: &str, gateway: IpAddr) -> Result<(), LinkError> {
        let done = self.change(self.index(name)?, LinkChange::RemoveGateway(gateway));
        removed(done).map_err(error(format!("cannot remove gateway {gateway} of {name}")))
    }

    /// Adds a route by way of a gateway, or to the interface's own network; returns `false` if it
    /// is there already. The process needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The interface is missing, or the kernel refuses.
    pub fn add_route(
        &self,
        name: &str,
        destination: LinkAddress,
        gateway: Option<IpAddr>,
    ) -> Result<bool, LinkError> {
        let request = route_request(RTM_NEWROUTE, self.index(name)?, Some(destination), gateway);
        let done = self.done(request.creating());
        added(done).map_err(error(format!("{name} cannot have a route to {destination}")))
    }

    /// Marks an interface with an alias of at most 255 bytes.
    ///
    /// # Errors
    /// The interface is missing, or the kernel refuses.
    pub fn set_mark(&mut self, name: &str, mark: &str) -> Result<(), LinkError> {
        let done = self.change(self.index(name)?, LinkChange::SetMark(mark.to_owned()));
        done.map_err(error(format!("cannot mark {name}")))
    }

    /// `true` if there is an interface of this name with this mark.
    pub fn has_mark(&self, name: &str, mark: &str) -> bool {
        self.marked(name, mark).is_some()
    }

    /// Deletes the interface if it has this mark; returns `true` if it had.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn remove_marked(&mut self, name: &str, mark: &str) -> Result<bool, LinkError> {
        let Some(index) = self.marked(name, mark) else { return Ok(false) };
        removed(self.change(index, LinkChange::Remove))
            .map_err(error(format!("cannot remove {name}")))?;
        Ok(true)
    }

    /// Index of the interface, if it has this mark.
    fn marked(&self, name: &str, mark: &str) -> Option<u32> {
        let found = self.get(name)?;
        let alias = attribute(found.get(INTERFACE_HEADER..)?, IFLA_IFALIAS)?;
        let alias = alias.strip_suffix(&[0]).unwrap_or(alias);
        (alias == mark.as_bytes()).then(|| u32_at(&found, 4))?
    }

    /// `true` if a tap was made for several queues; `None` if the kernel does not tell (Linux
    /// before 4.20), or there is no such tap.
    pub(crate) fn has_several_queues(&self, name: &str) -> Option<bool> {
        let found = self.get(name)?;
        let info = attribute(found.get(INTERFACE_HEADER..)?, IFLA_LINKINFO)?;
        let several = attribute(attribute(info, IFLA_INFO_DATA)?, IFLA_TUN_MULTI_QUEUE)?;
        Some(several.first().is_some_and(|several| *several != 0))
    }

    /// The kernel's message about an interface, if there is one.
    fn get(&self, name: &str) -> Option<Vec<u8>> {
        let request = NetlinkMessage::new(RTM_GETLINK, &interface(0, 0));
        self.0.exchange(request.with_text(IFLA_IFNAME, name)).ok()
    }

    /// Index of an interface.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn index(&self, name: &str) -> Result<u32, LinkError> {
        name_to_index(&self.0.socket, name).map_err(error(format!("there is no interface {name}")))
    }

    fn done(&self, request: NetlinkMessage) -> Result<(), Errno> {
        self.0.exchange(request)?;
        Ok(())
    }

    /// Changes an interface, or has the launcher do it.
    fn change(&self, index: u32, change: LinkChange) -> Result<(), Errno> {
        launcher::ask(ChangeLink { index, change }, &[self.0.socket.as_fd()]).map(drop)
    }
}

/// A change of an interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum LinkChange {
    AddAddress(LinkAddress),
    RemoveAddress(LinkAddress),
    /// Adds a default route, which must not exist.
    AddGateway(IpAddr),
    /// Adds a default route behind others.
    AppendGateway(IpAddr),
    RemoveGateway(IpAddr),
    SetMark(String),
    /// Deletes the interface.
    Remove,
}

/// Changes an interface by its index.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeLink {
    index: u32,
    change: LinkChange,
}

impl Request for ChangeLink {
    const NAME: &'static str = "change-link";
    const DOES: &'static str =
        "sets addresses, default routes or mark of a tap in the socket's namespace, or deletes it";
    type Reply = ();

    fn check(&self, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let [socket] = fds else { return Err(Errno::INVAL) };
        socket::check(*socket, SocketKind::Route)?;
        let name = index_to_name(*socket, self.index)?;
        check_named(&["tap"], &name)?;
        check_tap(*socket, &name)
    }

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<()> {
        let [socket] = fds else { return Err(Errno::INVAL) };
        let socket: OwnedFd = rustix::io::fcntl_dupfd_cloexec(socket, 0)?;
        let index = self.index;
        let link = |kind| NetlinkMessage::new(kind, &interface(index, 0)).acknowledged();
        let request = match self.change {
            LinkChange::AddAddress(address) => {
                address_request(RTM_NEWADDR, index, address).creating()
            }
            LinkChange::RemoveAddress(address) => {
                address_request(RTM_DELADDR, index, address).acknowledged()
            }
            LinkChange::AddGateway(gateway) => {
                route_request(RTM_NEWROUTE, index, None, Some(gateway)).creating()
            }
            LinkChange::AppendGateway(gateway) => {
                route_request(RTM_NEWROUTE, index, None, Some(gateway)).appending()
            }
            LinkChange::RemoveGateway(gateway) => {
                route_request(RTM_DELROUTE, index, None, Some(gateway)).acknowledged()
            }
            LinkChange::SetMark(mark) => link(RTM_SETLINK).with(IFLA_IFALIAS, mark.as_bytes()),
            LinkChange::Remove => link(RTM_DELLINK),
        };
        Netlink::from(socket).exchange(request)?;
        Ok(((), Vec::new()))
    }
}

fn error(what: impl Into<String>) -> impl FnOnce(Errno) -> LinkError {
    |source| LinkError { what: what.into(), source }
}

/// `true` if a request created its object, `false` if that exists.
fn added(result: Result<(), Errno>) -> Result<bool, Errno> {
    match result {
        Err(Errno::EXIST) => Ok(false),
        result => result.map(|()| true),
    }
}

/// Success also if the object to remove does not exist.
fn removed(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::ADDRNOTAVAIL | Errno::SRCH | Errno::NODEV) => Ok(()),
        result => result,
    }
}

fn octets(ip: IpAddr) -> (AddressFamily, Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => (AddressFamily::INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AddressFamily::INET6, ip.octets().to_vec()),
    }
}

/// `struct ifaddrmsg`: family, prefix, flags, scope, interface; and the address.
fn address_request(kind: u16, index: u32, address: LinkAddress) -> NetlinkMessage {
    let (family, octets) = octets(address.ip);
    let flags = if address.ip.is_ipv6() { IFA_F_NODAD } else { 0 };
    let mut header = vec![family.as_raw() as u8, address.prefix_len, flags, 0];
    header.extend_from_slice(&index.to_ne_bytes());
    NetlinkMessage::new(kind, &header).with(IFA_LOCAL, &octets).with(IFA_ADDRESS, &octets)
}

/// `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type and
/// flags; and the gateway with its interface.
fn route_request(
    kind: u16,
    index: u32,
    destination: Option<LinkAddress>,
    gateway: Option<IpAddr>,
) -> NetlinkMessage {
    let (to, via) = (destination.map(|to| octets(to.ip)), gateway.map(octets));
    let family = to.as_ref().or(via.as_ref()).map_or(0, |(family, _)| family.as_raw() as u8);
    let prefix_len = destination.map_or(0, |to| to.prefix_len);
    let scope = if gateway.is_some() { RT_SCOPE_UNIVERSE } else { RT_SCOPE_LINK };
    let [table, protocol, kind_of] = [RT_TABLE_MAIN, RTPROT_STATIC, RTN_UNICAST];
    let header = [family, prefix_len, 0, 0, table, protocol, scope, kind_of, 0, 0, 0, 0];
    let request = NetlinkMessage::new(kind, &header).with(RTA_OIF, &index.to_ne_bytes());
    let request = to.into_iter().fold(request, |request, (_, to)| request.with(RTA_DST, &to));
    via.into_iter().fold(request, |request, (_, via)| request.with(RTA_GATEWAY, &via))
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
        assert!(!links.has_mark("no-such-if0", "a"));
        assert_eq!(links.remove_marked("no-such-if0", "a"), Ok(false));
    }

    #[test]
    fn a_launcher_changes_only_taps() {
        let links = Links::open().unwrap();
        let index = links.index("lo").unwrap();
        let change =
            LinkChange::RemoveAddress(LinkAddress { ip: [127, 0, 0, 1].into(), prefix_len: 8 });
        let check =
            |index, fds: &[BorrowedFd<'_>]| ChangeLink { index, change: change.clone() }.check(fds);
        let socket = links.0.socket.as_fd();
        assert_eq!(check(index, &[socket]), Err(Errno::PERM));
        assert_eq!(check(u32::MAX, &[socket]), Err(Errno::NODEV));
        assert_eq!(check(index, &[]), Err(Errno::INVAL));
        let other = Netlink::generic().unwrap();
        assert_eq!(check(index, &[other.socket.as_fd()]), Err(Errno::INVAL), "another socket");
    }

    #[test]
    fn an_interface_with_another_mark_or_none_is_not_removed() {
        let mut links = Links::open().unwrap();
        assert!(!links.has_mark("lo", "a mark that it has not"));
        assert_eq!(links.remove_marked("lo", "a mark that it has not"), Ok(false));
        assert!(links.index("lo").is_ok());
    }

    #[test]
    fn addresses_and_gateways_are_those_of_their_family() {
        let bytes = |message: NetlinkMessage| message.into_bytes(0).split_off(16);
        let v4 = LinkAddress { ip: [10, 0, 0, 2].into(), prefix_len: 24 };
        let head = [2, 24, 0, 0, 7, 0, 0, 0];
        let address = [&head[..], &[8, 0, 2, 0, 10, 0, 0, 2], &[8, 0, 1, 0, 10, 0, 0, 2]];
        assert_eq!(bytes(address_request(RTM_NEWADDR, 7, v4)), address.concat());
        let v6 = LinkAddress { ip: "fd00::2".parse().unwrap(), prefix_len: 64 };
        assert_eq!(bytes(address_request(RTM_NEWADDR, 7, v6))[..4], [10, 64, IFA_F_NODAD, 0]);
        let route = bytes(route_request(RTM_NEWROUTE, 7, None, Some([10, 0, 0, 1].into())));
        let head = [2, 0, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
        let attributes = [8, 0, 4, 0, 7, 0, 0, 0, 8, 0, 5, 0, 10, 0, 0, 1];
        assert_eq!(route, [&head[..], &attributes].concat());
        let to = LinkAddress { ip: [10, 96, 0, 0].into(), prefix_len: 12 };
        let route = bytes(route_request(RTM_NEWROUTE, 7, Some(to), None));
        let head = [2, 12, 0, 0, 254, 4, RT_SCOPE_LINK, 1, 0, 0, 0, 0];
        let attributes = [8, 0, 4, 0, 7, 0, 0, 0, 8, 0, 1, 0, 10, 96, 0, 0];
        assert_eq!(route, [&head[..], &attributes].concat());
    }
}
