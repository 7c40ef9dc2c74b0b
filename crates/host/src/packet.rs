//! Packet sockets: frames of an existing interface (packet(7)).
//!
//! Model: a socket bound to one interface receives its incoming frames, and sends frames through
//! it. [`open`] receives all, in promiscuous mode; [`open_member`] those for the interface's
//! addresses and for a multicast group. Each frame has a virtio-net header of 10 bytes
//! (PACKET_VNET_HDR). Frames that this host sends there, including our own, are not received
//! (PACKET_IGNORE_OUTGOING). The kernel removes VLAN tags first and passes them as control data
//! ([`tag_of`]).
//!
//! Limits: the host's own network stack receives the frames as well, and may answer them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use crate::interface::{InterfaceError, Interfaces};
use crate::netns;
use crate::socket::{self, SocketKind};
use crate::sys;

/// Bytes of the header before each frame: `struct virtio_net_hdr`.
pub const HEADER_LEN: u32 = 10;
/// Socket buffer in either direction: the frames of a fast interface while a lane is elsewhere.
const BUFFER_BYTES: usize = 8 << 20;

// linux/if_packet.h
const SOL_PACKET: i32 = 263;
const PACKET_AUXDATA: i32 = 8;
const PACKET_VNET_HDR: i32 = 15;
const PACKET_QDISC_BYPASS: i32 = 20;
const PACKET_IGNORE_OUTGOING: i32 = 23;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

/// Reasons that a packet socket could not be opened; each text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The namespace or the interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The process lacks CAP_NET_RAW.
    #[error(
        "interface {name:?}: no permission to receive its frames; the daemon needs CAP_NET_RAW there"
    )]
    Permission {
        /// The interface.
        name: String,
    },
    /// The kernel lacks a feature that is needed.
    #[error("interface {name:?}: cannot {what}; Linux 4.20 or later is needed")]
    Failed {
        /// The interface.
        name: String,
        /// Operation that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Opens a packet socket for the interface, in the named namespace or in this thread's. With
/// `bypass`, sent frames skip the interface's queueing discipline: faster, but a slow interface
/// then drops frames.
///
/// # Errors
/// [`PacketError`].
pub fn open(netns: Option<&str>, name: &str, bypass: bool) -> Result<OwnedFd, PacketError> {
    open_for(netns, name, bypass, None)
}

/// Opens a packet socket as [`open`], without promiscuous mode, as a member of a multicast group.
///
/// # Errors
/// [`PacketError`].
pub fn open_member(
    netns: Option<&str>,
    name: &str,
    group: [u8; 6],
) -> Result<OwnedFd, PacketError> {
    open_for(netns, name, false, Some(group))
}

/// Has an interface of this thread's network namespace receive frames to all addresses, until the
/// socket is closed. The socket receives none.
///
/// # Errors
/// The kernel's; `EPERM` without CAP_NET_RAW.
pub fn open_promiscuous(interface: u32) -> Result<OwnedFd, Errno> {
    let socket = socket::open(SocketKind::Packet)?;
    sys::join(socket.as_fd(), interface, None)?;
    Ok(socket)
}

fn open_for(
    netns: Option<&str>,
    name: &str,
    bypass: bool,
    group: Option<[u8; 6]>,
) -> Result<OwnedFd, PacketError> {
    let state = Interfaces::of(netns)?.state(name)?;
    let open = || socket::open(SocketKind::Packet);
    let opened = netns::within(netns, open).map_err(InterfaceError::from)?;
    let failed = |what, errno: Errno| match errno {
        Errno::PERM => PacketError::Permission { name: name.to_owned() },
        _ => PacketError::Failed { name: name.to_owned(), what, source: errno.into() },
    };
    let socket = opened.map_err(|errno| failed("open a packet socket", errno))?;
    let fd = socket.as_fd();
    for (what, option, value) in [
        ("have checksums and segments left to be done", PACKET_VNET_HDR, 1),
        ("overlook what this host sends", PACKET_IGNORE_OUTGOING, 1),
        ("be told VLAN tags", PACKET_AUXDATA, 1),
        ("pass by its queueing discipline", PACKET_QDISC_BYPASS, i32::from(bypass)),
    ] {
        sys::set_packet_option(fd, option, value).map_err(|errno| failed(what, errno))?;
    }
    socket::set_buffers(fd, Some(BUFFER_BYTES), Some(BUFFER_BYTES));
    let what = if group.is_some() { "join a group" } else { "take all its frames" };
    sys::join(fd, state.index, group).map_err(|errno| failed(what, errno))?;
    sys::bind_packet(fd, state.index).map_err(|errno| failed("be bound to it", errno))?;
    Ok(socket)
}

/// The VLAN tag that the kernel removed from a frame, from the frame's control data.
#[inline]
pub fn tag_of(control: &[u8]) -> Option<[u8; 4]> {
    // struct cmsghdr: a length in the machine's word size, a level and a type; then struct
    // tpacket_auxdata.
    const WORD: usize = size_of::<usize>();
    let u32_at = |at: usize| Some(u32::from_ne_bytes(*control.get(at..)?.first_chunk()?));
    let u16_at = |at: usize| Some(u16::from_ne_bytes(*control.get(at..)?.first_chunk()?));
    let (level, kind) = (u32_at(WORD)?, u32_at(WORD + 4)?);
    if level != SOL_PACKET as u32 || kind != PACKET_AUXDATA as u32 {
        return None;
    }
    let data = WORD + 8;
    let status = u32_at(data)?;
    if status & TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let (tci, tpid) = (u16_at(data + 16)?, u16_at(data + 18)?);
    let tpid =
        if status & TP_STATUS_VLAN_TPID_VALID != 0 { tpid } else { libc::ETH_P_8021Q as u16 };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), tci.to_be_bytes());
    Some([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Control data as the kernel writes it.
    fn control(level: i32, status: u32, tci: u16, tpid: u16) -> Vec<u8> {
        let mut bytes = 36usize.to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(PACKET_AUXDATA.to_ne_bytes());
        for word in [status, 60, 60] {
            bytes.extend(word.to_ne_bytes());
        }
        for half in [0u16, 14, tci, tpid] {
            bytes.extend(half.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_tag_is_found_where_there_is_one() {
        let both = TP_STATUS_VLAN_VALID | TP_STATUS_VLAN_TPID_VALID;
        let found = |bytes: &[u8]| tag_of(bytes);
        assert_eq!(
            found(&control(SOL_PACKET, both, 0x2064, 0x88a8)),
            Some([0x88, 0xa8, 0x20, 0x64])
        );
        let old = control(SOL_PACKET, TP_STATUS_VLAN_VALID, 0, 0);
        assert_eq!(found(&old), Some([0x81, 0, 0, 0]), "priority tags are tags");
        assert_eq!(found(&control(SOL_PACKET, 1, 0x2064, 0x8100)), None);
        assert_eq!(found(&control(1, both, 0x2064, 0x8100)), None, "of another level");
        for len in 0..old.len() {
            assert_eq!(found(&old[..len]), None, "cut to {len}");
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let error = open(None, "nosuchthing0", false).unwrap_err();
        assert!(error.to_string().starts_with("interface \"nosuchthing0\": no such"), "{error}");
    }
}
