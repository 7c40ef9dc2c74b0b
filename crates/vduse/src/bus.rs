//! The vDPA bus, by generic netlink: `vdpa dev add name NAME mgmtdev vduse`, and
//! `vdpa dev del NAME`.
//!
//! The kernel's answer comes when the driver of the device has begun or ended, and that asks the
//! device for its status on the way. So whoever serves the device must not be the one who calls
//! this.
//!
//! Follows `linux/genetlink.h` and `linux/vdpa.h`.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::VduseError;

const NLMSG_HEADER: usize = 16;
const GENL_HEADER: usize = 4;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;

const CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const VDPA_CMD_DEV_NEW: u8 = 3;
const VDPA_CMD_DEV_DEL: u8 = 4;
const VDPA_ATTR_MGMTDEV_DEV_NAME: u16 = 2;
const VDPA_ATTR_DEV_NAME: u16 = 4;

/// Flags in an attribute's type.
const TYPE_MASK: u16 = 0x3fff;

/// Puts a device on the bus, where drivers find it; returns once one has begun, if one was there.
/// One that stands there stays.
///
/// # Errors
/// The kernel's word, and what to do.
pub fn add_to_bus(name: &str) -> Result<(), VduseError> {
    let attributes = [(VDPA_ATTR_DEV_NAME, name), (VDPA_ATTR_MGMTDEV_DEV_NAME, "vduse")];
    match ask(VDPA_CMD_DEV_NEW, &attributes) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(source) => Err(error(name, "put on", source)),
    }
}

/// Takes a device off the bus; returns once its driver has let it go. One that is not there is off
/// it.
///
/// # Errors
/// The kernel's word, and what to do.
pub fn remove_from_bus(name: &str) -> Result<(), VduseError> {
    match ask(VDPA_CMD_DEV_DEL, &[(VDPA_ATTR_DEV_NAME, name)]) {
        Ok(()) | Err(Errno::NODEV | Errno::NOENT) => Ok(()),
        Err(source) => Err(error(name, "taken off", source)),
    }
}

fn error(name: &str, what: &'static str, source: Errno) -> VduseError {
    let remedy = match source {
        Errno::PERM | Errno::ACCESS => {
            "the daemon needs CAP_NET_ADMIN in the host's own namespaces"
        }
        Errno::NOENT => "load the module: modprobe vdpa",
        _ => "see the kernel's log",
    };
    VduseError::Bus { name: name.to_owned(), what, remedy, source }
}

/// Makes a request of the family `vdpa`, and waits for the answer.
fn ask(command: u8, attributes: &[(u16, &str)]) -> Result<(), Errno> {
    let protocol = Some(netlink::GENERIC);
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    let family = exchange(
        &socket,
        &request(CTRL, CTRL_CMD_GETFAMILY, 0, &[(CTRL_ATTR_FAMILY_NAME, "vdpa")]),
    )?;
    let family = family.ok_or(Errno::BADMSG)?;
    exchange(&socket, &request(family, command, NLM_F_ACK, attributes)).map(|_| ())
}

/// Sends a request; returns the number of a family, if the answer has one.
fn exchange(socket: &OwnedFd, request: &[u8]) -> Result<Option<u16>, Errno> {
    send(socket, request, SendFlags::empty())?;
    let mut answer = vec![0; 16 * 1024];
    let (_, len) = recv(socket, answer.as_mut_slice(), RecvFlags::empty())?;
    parse(&answer[..len.min(answer.len())])
}

/// The bytes of a request.
pub(crate) fn request(family: u16, command: u8, flags: u16, attributes: &[(u16, &str)]) -> Vec<u8> {
    let mut body = vec![command, 1, 0, 0];
    for (kind, value) in attributes {
        let len = 4 + value.len() + 1; // with its zero
        body.extend((len as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value.as_bytes());
        body.push(0);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut message = Vec::with_capacity(NLMSG_HEADER + body.len());
    message.extend(((NLMSG_HEADER + body.len()) as u32).to_ne_bytes());
    message.extend(family.to_ne_bytes());
    message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    message.extend([0; 8]); // sequence, port
    message.extend(body);
    message
}

/// Reads the first message of an answer: an error's number, or a family's.
pub(crate) fn parse(answer: &[u8]) -> Result<Option<u16>, Errno> {
    let broken = Errno::BADMSG;
    let u16_at = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let len = (u32_at(0).ok_or(broken)? as usize).min(answer.len());
    if u16_at(4).ok_or(broken)? == NLMSG_ERROR {
        let code = u32_at(NLMSG_HEADER).ok_or(broken)? as i32;
        return match code {
            0 => Ok(None),
            code => Err(Errno::from_raw_os_error(code.wrapping_neg())),
        };
    }
    let mut at = NLMSG_HEADER + GENL_HEADER;
    while at + 4 <= len {
        let (size, kind) = (u16_at(at).ok_or(broken)?, u16_at(at + 2).ok_or(broken)?);
        if kind & TYPE_MASK == CTRL_ATTR_FAMILY_ID {
            return Ok(Some(u16_at(at + 4).ok_or(broken)?));
        }
        at += usize::from(size.max(4)).next_multiple_of(4);
    }
    Ok(None)
}
