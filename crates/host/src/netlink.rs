//! Netlink: requests to the kernel, and their answers.
//!
//! Model: a [`NetlinkMessage`] is a header and attributes. [`Netlink::exchange`] sends it and
//! returns the body of the first message of the answer, or the kernel's error number. Follows
//! netlink(7) and `include/uapi/linux/netlink.h`.
//!
//! Limits: one request at a time, so there are no sequence numbers; only the first message of an
//! answer is read.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SOCK_DIAG};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{Protocol, recv, send, socket_with};

use crate::socket::{self, SocketKind};

const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Flags in an attribute's type.
const TYPE_MASK: u16 = 0x3fff;
/// Longest answer in bytes; the longest is that of an interface with many queues.
const ANSWER_MAX: usize = 32 << 10;

/// A netlink socket. It stays in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink {
    /// Also usable for ioctls on interfaces.
    pub(crate) socket: OwnedFd,
}

impl From<OwnedFd> for Netlink {
    fn from(socket: OwnedFd) -> Netlink {
        Netlink { socket }
    }
}

impl Netlink {
    /// A socket for interfaces and addresses (rtnetlink(7)).
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub fn route() -> Result<Netlink, Errno> {
        socket::open(SocketKind::Route).map(Netlink::from)
    }

    /// A socket for generic netlink families (`linux/genetlink.h`).
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub fn generic() -> Result<Netlink, Errno> {
        Netlink::open(GENERIC)
    }

    /// A socket for questions about other sockets (sock_diag(7)).
    pub(crate) fn sockets() -> Result<Netlink, Errno> {
        Netlink::open(SOCK_DIAG)
    }

    fn open(protocol: Protocol) -> Result<Netlink, Errno> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        socket_with(AddressFamily::NETLINK, kind, flags, Some(protocol)).map(Netlink::from)
    }

    /// Sends a request and returns the first message of the answer without its header; empty for a
    /// bare acknowledgement.
    ///
    /// # Errors
    /// The kernel's error; `EBADMSG` for a malformed answer.
    pub fn exchange(&self, request: NetlinkMessage) -> Result<Vec<u8>, Errno> {
        send(&self.socket, &request.into_bytes(), SendFlags::empty())?;
        let mut answer = vec![0; ANSWER_MAX];
        let (_, len) = recv(&self.socket, answer.as_mut_slice(), RecvFlags::empty())?;
        Ok(message(&answer[..len.min(ANSWER_MAX)])?.to_vec())
    }
}

/// A message to the kernel, or the contents of a nested attribute.
#[derive(Clone, Debug, Default)]
pub struct NetlinkMessage {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl NetlinkMessage {
    /// A request of this type, with the header of its family.
    pub fn new(kind: u16, header: &[u8]) -> NetlinkMessage {
        NetlinkMessage { kind, flags: 0, body: header.to_vec() }
    }

    /// An empty set of nested attributes.
    pub fn nest() -> NetlinkMessage {
        NetlinkMessage::default()
    }

    /// Asks for an acknowledgement: an error number, 0 on success.
    #[must_use]
    pub fn acknowledged(mut self) -> NetlinkMessage {
        self.flags |= NLM_F_ACK;
        self
    }

    /// Asks to create the object, which must not exist yet.
    #[must_use]
    pub fn creating(mut self) -> NetlinkMessage {
        self.flags |= NLM_F_CREATE | NLM_F_EXCL;
        self.acknowledged()
    }

    /// Asks to add the object behind others like it.
    #[must_use]
    pub fn appending(mut self) -> NetlinkMessage {
        self.flags |= NLM_F_CREATE | NLM_F_APPEND;
        self.acknowledged()
    }

    /// Adds an attribute: length, type, value, and zeros up to the next multiple of four.
    #[must_use]
    pub fn with(mut self, kind: u16, value: &[u8]) -> NetlinkMessage {
        self.body.extend(((4 + value.len()) as u16).to_ne_bytes());
        self.body.extend(kind.to_ne_bytes());
        self.body.extend(value);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
        self
    }

    /// Adds a text attribute, zero-terminated.
    #[must_use]
    pub fn with_text(self, kind: u16, value: &str) -> NetlinkMessage {
        self.with(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Adds a nested attribute.
    #[must_use]
    pub fn with_nest(self, kind: u16, nest: &NetlinkMessage) -> NetlinkMessage {
        self.with(kind, &nest.body)
    }

    /// The message as sent.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.body.len());
        bytes.extend(((HEADER + self.body.len()) as u32).to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | self.flags).to_ne_bytes());
        bytes.extend([0; 8]); // sequence, port
        bytes.extend(self.body);
        bytes
    }
}

/// The first message of an answer, without its header; empty for an acknowledgement.
fn message(answer: &[u8]) -> Result<&[u8], Errno> {
    let whole = u32_at(answer, 0).and_then(|len| answer.get(..len as usize));
    let body = whole.and_then(|whole| whole.get(HEADER..)).ok_or(Errno::BADMSG)?;
    if u16_at(answer, 4) != Some(NLMSG_ERROR) {
        return Ok(body);
    }
    match u32_at(body, 0).ok_or(Errno::BADMSG)? as i32 {
        0 => Ok(&[]),
        code => Err(Errno::from_raw_os_error(code.wrapping_neg())),
    }
}

/// The attributes of a message or of a nested attribute, as type and value, up to the first
/// malformed one.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// The 16-bit number at this byte.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The 32-bit number at this byte.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_but_their_length_does_not_say_so() {
        let nest = NetlinkMessage::nest().with_text(3, "br0").with(7, &[1, 2, 3, 4, 5]);
        let want = [&[8, 0, 3, 0][..], b"br0\0", &[9, 0, 7, 0, 1, 2, 3, 4, 5, 0, 0, 0]].concat();
        assert_eq!(nest.body, want);
        let read: Vec<(u16, &[u8])> = attributes(&nest.body).collect();
        assert_eq!(read, [(3, &b"br0\0"[..]), (7, &[1, 2, 3, 4, 5])]);
        let request =
            NetlinkMessage::new(16, &[0xaa; 4]).creating().with_nest(18, &nest).into_bytes();
        let head = [44, 0, 0, 0, 16, 0, 0x05, 0x06, 0, 0, 0, 0, 0, 0, 0, 0, 0xaa, 0xaa, 0xaa, 0xaa];
        assert_eq!(request, [&head[..], &[24, 0, 18, 0], &want].concat());
    }

    #[test]
    fn an_answer_is_an_error_number_or_a_body() {
        let answer = |kind: u16, code: i32| {
            let mut bytes = [0; HEADER + 4];
            bytes[0] = 20;
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes[HEADER..].copy_from_slice(&code.to_ne_bytes());
            bytes
        };
        assert_eq!(message(&answer(NLMSG_ERROR, 0)), Ok(&[][..]));
        assert_eq!(message(&answer(NLMSG_ERROR, -17)), Err(Errno::EXIST));
        assert_eq!(message(&answer(16, 7)), Ok(&[7, 0, 0, 0][..]));
        for len in 0..20 {
            assert_eq!(message(&answer(16, 7)[..len]), Err(Errno::BADMSG), "{len} bytes");
        }
        // An attribute with a length beyond the message ends the iteration.
        assert_eq!(attributes(&[200, 0, 4, 0, 1, 2, 3, 4]).count(), 0);
    }
}
