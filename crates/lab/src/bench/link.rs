//! What only rtnetlink can do to the interfaces of a namespace: bridges, pairs, addresses.
//!
//! Model: a request is a message with nested attributes, which the kernel acknowledges with an
//! error number. Everything is written here, as only five requests are needed; see rtnetlink(7),
//! netlink(7), and `include/uapi/linux/{netlink,rtnetlink,if_link,if_addr,veth}.h`. The rest is in
//! [`host::interface`].

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
/// NLM_F_REQUEST and NLM_F_ACK.
const REQUEST: u16 = 0x5;
/// The same with NLM_F_EXCL and NLM_F_CREATE.
const CREATE: u16 = REQUEST | 0x600;
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
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// A connection to the kernel's table of interfaces.
#[derive(Debug)]
pub struct Links {
    socket: OwnedFd,
}

impl Links {
    /// Connects to that of this thread's namespace.
    ///
    /// # Errors
    /// The kernel refuses a netlink socket.
    pub fn open() -> Result<Links> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        // No protocol is number 0, which is NETLINK_ROUTE.
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, None);
        Ok(Links { socket: socket.context("cannot open a netlink socket")? })
    }

    /// Makes a bridge that is up. It floods multicast: one that snoops would report its own
    /// membership (IGMP), and there are to be no frames but the guests'.
    ///
    /// # Errors
    /// The kernel's: it has no bridges, or one of that name.
    pub fn add_bridge(&mut self, name: &str) -> Result<()> {
        let data = attribute(IFLA_INFO_DATA, &attribute(IFLA_BR_MCAST_SNOOPING, &[0]));
        let kind = [attribute(IFLA_INFO_KIND, b"bridge"), data].concat();
        let body = [interface(0, IFF_UP), text(IFLA_IFNAME, name), attribute(IFLA_LINKINFO, &kind)];
        self.ask(RTM_NEWLINK, CREATE, &body.concat())
            .with_context(|| format!("cannot make bridge {name}"))
    }

    /// Makes a pair of interfaces, what enters one leaves the other: `name` here, up, and `peer` in
    /// the namespace of a process.
    ///
    /// # Errors
    /// The kernel's: it has no veth, or interfaces of these names.
    pub fn add_pair(&mut self, name: &str, peer: &str, pid: u32) -> Result<()> {
        let there = attribute(IFLA_NET_NS_PID, &pid.to_ne_bytes());
        let peer = [interface(0, 0), text(IFLA_IFNAME, peer), there].concat();
        let data = attribute(VETH_INFO_PEER, &peer);
        let kind = [attribute(IFLA_INFO_KIND, b"veth"), attribute(IFLA_INFO_DATA, &data)].concat();
        let body = [interface(0, IFF_UP), text(IFLA_IFNAME, name), attribute(IFLA_LINKINFO, &kind)];
        self.ask(RTM_NEWLINK, CREATE, &body.concat())
            .with_context(|| format!("cannot make the pair of interfaces {name}"))
    }

    /// Makes an interface a port of a bridge, and sets it up.
    ///
    /// # Errors
    /// One of them does not exist, or cannot be.
    pub fn join(&mut self, name: &str, bridge: &str) -> Result<()> {
        let master = attribute(IFLA_MASTER, &self.index(bridge)?.to_ne_bytes());
        let body = [interface(self.index(name)?, IFF_UP), master].concat();
        self.ask(RTM_SETLINK, REQUEST, &body)
            .with_context(|| format!("{name} cannot join {bridge}"))
    }

    /// Takes an interface away, and with it the other end of a pair.
    ///
    /// # Errors
    /// There is none of that name, or it cannot be.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        let body = interface(self.index(name)?, 0);
        self.ask(RTM_DELLINK, REQUEST, &body).with_context(|| format!("cannot remove {name}"))
    }

    /// Adds an IPv4 address with its network.
    ///
    /// # Errors
    /// There is no interface of that name, or it has the address.
    pub fn add_address(&mut self, name: &str, ip: Ipv4Addr, prefix: u8) -> Result<()> {
        // struct ifaddrmsg: family, prefix, flags, scope, interface
        let mut body = vec![AddressFamily::INET.as_raw() as u8, prefix, 0, 0];
        body.extend_from_slice(&self.index(name)?.to_ne_bytes());
        for kind in [IFA_LOCAL, IFA_ADDRESS] {
            body.extend(attribute(kind, &ip.octets()));
        }
        self.ask(RTM_NEWADDR, CREATE, &body).with_context(|| format!("{name} cannot have {ip}"))
    }

    fn index(&self, name: &str) -> Result<u32> {
        name_to_index(&self.socket, name).with_context(|| format!("there is no interface {name}"))
    }

    /// Sends a request, and waits for the kernel's word on it.
    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<()> {
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&flags.to_ne_bytes());
        message.extend_from_slice(&[0; 8]); // sequence and port: one request at a time needs none
        message.extend_from_slice(body);
        rustix::net::send(&self.socket, &message, SendFlags::empty())?;
        let mut answer = [0; 4096];
        let (_, n) = rustix::net::recv(&self.socket, &mut answer, RecvFlags::empty())?;
        Ok(acknowledged(&answer[..n.min(answer.len())])??)
    }
}

/// What an answer says of the request: done, or the kernel's refusal.
fn acknowledged(answer: &[u8]) -> Result<Result<(), Errno>> {
    let kind = answer.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    let code = answer.get(HEADER..).and_then(|body| body.first_chunk::<4>());
    match (kind, code.map(|code| i32::from_ne_bytes(*code))) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(Ok(())),
        (Some(NLMSG_ERROR), Some(code)) => Ok(Err(Errno::from_raw_os_error(-code))),
        _ => bail!("the kernel's answer over netlink is none"),
    }
}

/// `struct ifinfomsg`: family, type, index, flags, and which of the flags to change.
fn interface(index: u32, flags: u32) -> Vec<u8> {
    [0, index, flags, flags].into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// An attribute: its length, its kind, what it holds, and zeros up to the next multiple of four.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = 4 + value.len();
    let mut bytes = (len as u16).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(len.next_multiple_of(4), 0);
    bytes
}

/// An attribute that holds text, which ends with a zero.
fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_but_their_length_does_not_say_so() {
        assert_eq!(text(IFLA_IFNAME, "br0"), [&[8, 0, 3, 0][..], b"br0\0"].concat());
        assert_eq!(attribute(7, &[1, 2, 3, 4, 5]), [9, 0, 7, 0, 1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(interface(3, 1).len(), 16);
    }

    #[test]
    fn an_answer_is_an_error_number_or_none() {
        let answer = |kind: u16, code: i32| {
            let mut bytes = [0; HEADER + 4];
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[HEADER..].copy_from_slice(&code.to_ne_bytes());
            bytes
        };
        assert_eq!(acknowledged(&answer(NLMSG_ERROR, 0)).unwrap(), Ok(()));
        assert_eq!(acknowledged(&answer(NLMSG_ERROR, -17)).unwrap(), Err(Errno::EXIST));
        assert!(acknowledged(&answer(RTM_NEWLINK, 0)).is_err());
        assert!(acknowledged(&[0; 7]).is_err());
    }

    #[test]
    fn the_kernel_answers_for_what_is_not_there() {
        let mut links = Links::open().unwrap();
        let error = links.join("no-such-if0", "lo").unwrap_err();
        assert!(format!("{error:#}").contains("no interface no-such-if0"), "{error:#}");
    }
}
