//! One request of rtnetlink: what the kernel knows of an interface.
//!
//! Follows rtnetlink(7): a `RTM_GETLINK` message by name, and its answer's attributes.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// A program that is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its number, for `bpftool prog show id N`.
    pub id: u32,
    /// How it is attached, as `ip link` says it: `xdp`, `xdpgeneric`, `xdpoffload`.
    pub mode: &'static str,
}

/// What the answer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) up: bool,
    pub(crate) mtu: u32,
    pub(crate) mac: [u8; 6],
    /// Receive queues the device was made with; it may use fewer.
    pub(crate) rx_queues_max: u32,
    pub(crate) attached: Option<Attached>,
}

const NLMSG_HEADER: usize = 16;
const IFINFO: usize = 16;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const IFF_UP: u32 = 1;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
/// Flags in an attribute's type.
const TYPE_MASK: u16 = 0x3fff;

/// A socket for requests, of the calling thread's network namespace for ever.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    // No protocol is 0, which is NETLINK_ROUTE.
    socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
}

/// Asks for the interface `name`; `ENODEV` if there is none.
pub(crate) fn link(socket: BorrowedFd<'_>, name: &str) -> Result<Link, Errno> {
    send(socket, &request(name), SendFlags::empty())?;
    let mut answer = vec![0; 32 * 1024];
    let (_, len) = recv(socket, answer.as_mut_slice(), RecvFlags::empty())?;
    parse(&answer[..len.min(answer.len())])
}

/// The request's bytes.
fn request(name: &str) -> Vec<u8> {
    let value = name.len() + 1; // with its zero
    let attribute = 4 + value;
    let len = NLMSG_HEADER + IFINFO + attribute.next_multiple_of(4);
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(RTM_GETLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]); // sequence, port
    message.extend([0; IFINFO]);
    message.extend((attribute as u16).to_ne_bytes());
    message.extend(IFLA_IFNAME.to_ne_bytes());
    message.extend(name.as_bytes());
    message.resize(len, 0);
    message
}

/// Reads the first message of an answer.
fn parse(answer: &[u8]) -> Result<Link, Errno> {
    let broken = Errno::BADMSG;
    let len = u32_at(answer, 0).ok_or(broken)? as usize;
    let message = answer.get(..len).ok_or(broken)?;
    let kind = u16_at(message, 4).ok_or(broken)?;
    if kind == NLMSG_ERROR {
        let code = u32_at(message, NLMSG_HEADER).ok_or(broken)? as i32;
        return Err(Errno::from_raw_os_error(code.wrapping_neg()));
    }
    let body = message.get(NLMSG_HEADER + IFINFO..).ok_or(broken)?;
    if kind != RTM_NEWLINK {
        return Err(broken);
    }
    let mut link = Link {
        index: u32_at(message, NLMSG_HEADER + 4).ok_or(broken)?,
        up: u32_at(message, NLMSG_HEADER + 8).ok_or(broken)? & IFF_UP != 0,
        ..Link::default()
    };
    for (kind, value) in attributes(body) {
        match kind {
            IFLA_MTU => link.mtu = u32_at(value, 0).ok_or(broken)?,
            // Of other lengths on interfaces that are not Ethernet.
            IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
            IFLA_NUM_RX_QUEUES => link.rx_queues_max = u32_at(value, 0).ok_or(broken)?,
            IFLA_XDP => link.attached = attached(value),
            _ => {}
        }
    }
    Ok(link)
}

/// Reads `IFLA_XDP`. Where programs are attached in several modes, the first is named.
fn attached(nested: &[u8]) -> Option<Attached> {
    let number = |wanted| {
        let mut found = attributes(nested).filter(|(kind, _)| *kind == wanted);
        found.find_map(|(_, value)| u32_at(value, 0)).filter(|id| *id != 0)
    };
    let how = attributes(nested).find(|(kind, _)| *kind == IFLA_XDP_ATTACHED)?.1;
    if how.first() == Some(&0) {
        return None;
    }
    let modes = [
        (IFLA_XDP_DRV_PROG_ID, "xdp"),
        (IFLA_XDP_SKB_PROG_ID, "xdpgeneric"),
        (IFLA_XDP_HW_PROG_ID, "xdpoffload"),
        (IFLA_XDP_PROG_ID, "xdp"),
    ];
    modes.into_iter().find_map(|(kind, mode)| Some(Attached { id: number(kind)?, mode }))
}

/// The attributes of a message or of a nested attribute, up to the first that is broken.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::from(((4 + value.len()) as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn answer(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
        let body = attributes.concat();
        let len = NLMSG_HEADER + IFINFO + body.len();
        let mut bytes = Vec::from((len as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([0, 0, 1, 0]); // family, padding, type
        bytes.extend(7u32.to_ne_bytes()); // index
        bytes.extend(0x1043u32.to_ne_bytes()); // flags
        bytes.extend([0xff; 4]); // change
        bytes.extend(body);
        bytes
    }

    #[test]
    fn an_answer_is_read() {
        let mac = [2, 0, 0, 0, 0, 9];
        let xdp = [attribute(IFLA_XDP_ATTACHED, &[2]), attribute(6, &41u32.to_ne_bytes())].concat();
        let answer = answer(
            RTM_NEWLINK,
            &[
                attribute(IFLA_IFNAME, b"eth1\0"),
                attribute(IFLA_MTU, &9000u32.to_ne_bytes()),
                attribute(IFLA_ADDRESS, &mac),
                attribute(IFLA_NUM_RX_QUEUES, &2u32.to_ne_bytes()),
                attribute(IFLA_XDP | 0x8000, &xdp),
            ],
        );
        let attached = Some(Attached { id: 41, mode: "xdpgeneric" });
        let want = Link { index: 7, up: true, mtu: 9000, mac, rx_queues_max: 2, attached };
        assert_eq!(parse(&answer), Ok(want));
    }

    #[test]
    fn no_program_is_no_program() {
        let xdp = attribute(IFLA_XDP, &attribute(IFLA_XDP_ATTACHED, &[0]));
        assert_eq!(parse(&answer(RTM_NEWLINK, &[xdp])).unwrap().attached, None);
    }

    #[test]
    fn broken_answers_are_refused() {
        let whole = answer(RTM_NEWLINK, &[attribute(IFLA_MTU, &1500u32.to_ne_bytes())]);
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), Err(Errno::BADMSG), "{len} bytes");
        }
        let mut error = answer(NLMSG_ERROR, &[]);
        error[NLMSG_HEADER..NLMSG_HEADER + 4].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        assert_eq!(parse(&error), Err(Errno::NODEV));
        // An attribute that says it is longer than the message ends the reading.
        let mut long = attribute(IFLA_MTU, &1500u32.to_ne_bytes());
        long[0] = 200;
        assert_eq!(parse(&answer(RTM_NEWLINK, &[long])).unwrap().mtu, 0);
    }

    #[test]
    fn the_loopback_interface_is_known() {
        let socket = open().unwrap();
        let lo = link(socket.as_fd(), "lo").unwrap();
        assert_eq!((lo.index, lo.mac), (1, [0; 6]));
        assert_eq!(link(socket.as_fd(), "no-such-if").unwrap_err(), Errno::NODEV);
    }
}
