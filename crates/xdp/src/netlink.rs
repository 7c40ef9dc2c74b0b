//! One rtnetlink request: the kernel's record of an interface.
//!
//! Follows rtnetlink(7): a `RTM_GETLINK` message by name, and its answer's attributes.

use host::links::{IFF_UP, IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, INTERFACE_HEADER, RTM_GETLINK};
use host::netlink::{Netlink, NetlinkMessage, attributes, u32_at};
use rustix::io::Errno;

/// A program attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachedProgram {
    /// Its id, for `bpftool prog show id N`.
    pub id: u32,
    /// Mode of attachment, as shown by `ip link`: `xdp`, `xdpgeneric`, `xdpoffload`.
    pub mode: &'static str,
}

/// Contents of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) up: bool,
    pub(crate) mtu: u32,
    pub(crate) mac: [u8; 6],
    /// Receive queues that the device was created with; it may use fewer.
    pub(crate) rx_queues_max: u32,
    pub(crate) attached: Option<AttachedProgram>,
}

const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
/// Queries the interface `name`; `ENODEV` if there is none.
pub(crate) fn link(netlink: &Netlink, name: &str) -> Result<Link, Errno> {
    let request =
        NetlinkMessage::new(RTM_GETLINK, &[0; INTERFACE_HEADER]).with_text(IFLA_IFNAME, name);
    parse(&netlink.exchange(request)?).ok_or(Errno::BADMSG)
}

/// Reads an answer: `struct ifinfomsg` and attributes.
fn parse(answer: &[u8]) -> Option<Link> {
    let mut link =
        Link { index: u32_at(answer, 4)?, up: u32_at(answer, 8)? & IFF_UP != 0, ..Link::default() };
    for (kind, value) in attributes(answer.get(INTERFACE_HEADER..)?) {
        match kind {
            IFLA_MTU => link.mtu = u32_at(value, 0)?,
            // Interfaces other than Ethernet have other lengths.
            IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
            IFLA_NUM_RX_QUEUES => link.rx_queues_max = u32_at(value, 0)?,
            IFLA_XDP => link.attached = attached(value),
            _ => {}
        }
    }
    Some(link)
}

/// Reads `IFLA_XDP`. If programs are attached in several modes, the first is reported.
fn attached(nested: &[u8]) -> Option<AttachedProgram> {
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
    modes.into_iter().find_map(|(kind, mode)| Some(AttachedProgram { id: number(kind)?, mode }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(attributes: impl IntoIterator<Item = (u16, Vec<u8>)>) -> Vec<u8> {
        let words = [0, 7, 0x1043, u32::MAX]; // family and type, index, flags, change
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        for (kind, value) in attributes {
            bytes.extend(((4 + value.len()) as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn an_answer_is_read() {
        let mac = [2, 0, 0, 0, 0, 9];
        let xdp = answer([(IFLA_XDP_ATTACHED, vec![2]), (6, 41u32.to_ne_bytes().to_vec())]);
        let answer = answer([
            (IFLA_IFNAME, b"eth1\0".to_vec()),
            (IFLA_MTU, 9000u32.to_ne_bytes().to_vec()),
            (IFLA_ADDRESS, mac.to_vec()),
            (IFLA_NUM_RX_QUEUES, 2u32.to_ne_bytes().to_vec()),
            (IFLA_XDP | 0x8000, xdp[INTERFACE_HEADER..].to_vec()),
        ]);
        let attached = Some(AttachedProgram { id: 41, mode: "xdpgeneric" });
        let want = Link { index: 7, up: true, mtu: 9000, mac, rx_queues_max: 2, attached };
        assert_eq!(parse(&answer), Some(want));
    }

    #[test]
    fn no_program_is_no_program() {
        let none = answer([(IFLA_XDP_ATTACHED, vec![0])]);
        let answer = answer([(IFLA_XDP, none[INTERFACE_HEADER..].to_vec())]);
        assert_eq!(parse(&answer).unwrap().attached, None);
    }

    #[test]
    fn broken_answers_are_refused() {
        let head = answer([]);
        for len in 0..head.len() {
            assert_eq!(parse(&head[..len]), None, "{len} bytes");
        }
        assert_eq!(parse(&answer([(IFLA_MTU, vec![1, 2])])), None);
    }

    #[test]
    fn the_loopback_interface_is_known() {
        let netlink = Netlink::route().unwrap();
        let lo = link(&netlink, "lo").unwrap();
        assert_eq!((lo.index, lo.mac), (1, [0; 6]));
        assert_eq!(link(&netlink, "no-such-if").unwrap_err(), Errno::NODEV);
    }
}
