//! Netlink: requests to the kernel, and their answers.
//!
//! Model: a [`NetlinkMessage`] is a header and attributes. [`Netlink::exchange`] sends it and
//! returns the body of the answer's message, [`Netlink::dump`] those of all its messages. An answer
//! has the sequence number of its request; others are dropped. A [`KernelError`] has the driver's
//! own message (extended acknowledgement), if there is one. Follows netlink(7) and
//! `include/uapi/linux/netlink.h`.
//!
//! Limits: one request at a time.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, send, socket_with};
use serde::{Deserialize, Serialize};

use crate::socket::{self, SocketKind};

const NLMSG_NOOP: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_MULTI: u16 = 2;
const NLM_F_ACK: u16 = 4;
/// The dump is inconsistent: the objects changed meanwhile.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// The error has only the header of the request.
const NLM_F_CAPPED: u16 = 0x100;
/// Attributes follow the error.
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_APPEND: u16 = 0x800;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Flags in an attribute's type.
const TYPE_MASK: u16 = 0x3fff;
/// Longest packet of an answer in bytes; the longest is that of an interface with 255 VFs.
const ANSWER_MAX: usize = 128 << 10;
/// Bytes of `struct genlmsghdr`, which precedes the attributes of generic netlink.
pub const GENL_HEADER: usize = 4;
/// Family of generic netlink that knows the others.
const CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Times that an inconsistent dump is repeated.
const DUMPS_MAX: usize = 10;

/// An error of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelError {
    code: i32,
    /// Message of the driver, or of the kernel's check of the request.
    pub message: Option<String>,
}

impl KernelError {
    /// Its error number.
    pub fn errno(&self) -> Errno {
        Errno::from_raw_os_error(self.code)
    }
}

impl From<Errno> for KernelError {
    fn from(errno: Errno) -> KernelError {
        KernelError { code: errno.raw_os_error(), message: None }
    }
}

impl From<KernelError> for Errno {
    fn from(error: KernelError) -> Errno {
        error.errno()
    }
}

impl std::fmt::Display for KernelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.errno().fmt(f)?;
        self.message.iter().try_for_each(|message| write!(f, ": {message}"))
    }
}

impl std::error::Error for KernelError {}

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
        socket::open(SocketKind::Generic).map(Netlink::from)
    }

    /// A socket for questions about other sockets (sock_diag(7)).
    pub(crate) fn sockets() -> Result<Netlink, Errno> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        socket_with(AddressFamily::NETLINK, kind, flags, Some(SOCK_DIAG)).map(Netlink::from)
    }

    /// Sends a request and returns the message of the answer without its header; empty for a bare
    /// acknowledgement.
    ///
    /// # Errors
    /// The kernel's error; `EBADMSG` for a malformed answer.
    pub fn exchange(&self, request: NetlinkMessage) -> Result<Vec<u8>, KernelError> {
        Ok(self.answer(request)?.unwrap_or_default().pop().unwrap_or_default())
    }

    /// Sends a request for all objects of a kind, and returns the messages of the answer without
    /// their headers.
    ///
    /// # Errors
    /// The kernel's error; `EBADMSG` for a malformed answer, `EAGAIN` if the objects change all the
    /// time.
    pub fn dump(&self, mut request: NetlinkMessage) -> Result<Vec<Vec<u8>>, KernelError> {
        request.flags |= NLM_F_DUMP;
        for _ in 0..DUMPS_MAX {
            if let Some(all) = self.answer(request.clone())? {
                return Ok(all);
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// The number of a family of generic netlink.
    ///
    /// # Errors
    /// `ENOENT`: the kernel does not have it.
    pub fn family(&self, name: &str) -> Result<u16, KernelError> {
        let request = NetlinkMessage::generic(CTRL, CTRL_CMD_GETFAMILY);
        let answer = self.exchange(request.with_text(CTRL_ATTR_FAMILY_NAME, name))?;
        let attributes = answer.get(GENL_HEADER..).unwrap_or_default();
        let number = attribute(attributes, CTRL_ATTR_FAMILY_ID).and_then(|value| u16_at(value, 0));
        Ok(number.ok_or(Errno::BADMSG)?)
    }

    /// Sends a request and receives its answer; `None` if that is inconsistent.
    fn answer(&self, request: NetlinkMessage) -> Result<Option<Vec<Vec<u8>>>, KernelError> {
        /// Number of the next request, besides the process.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // The launcher uses sockets of the daemon.
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let sequence = std::process::id() << 16 | next & 0xffff;
        send(&self.socket, &request.into_bytes(sequence), SendFlags::empty())?;
        let mut packet = vec![0; ANSWER_MAX];
        let (mut all, mut is_consistent) = (Vec::new(), true);
        loop {
            let (_, len) = recv(&self.socket, packet.as_mut_slice(), RecvFlags::TRUNC)?;
            let mut rest =
                packet.get(..len).filter(|rest| !rest.is_empty()).ok_or(Errno::BADMSG)?;
            while !rest.is_empty() {
                let (message, next) = Received::split(rest)?;
                rest = next;
                if message.sequence != sequence {
                    continue;
                }
                is_consistent &= message.flags & NLM_F_DUMP_INTR == 0;
                let is_last = match message.kind {
                    NLMSG_NOOP => false,
                    NLMSG_ERROR | NLMSG_DONE => {
                        message.error()?;
                        true
                    }
                    _ => {
                        all.push(message.body.to_vec());
                        message.flags & NLM_F_MULTI == 0
                    }
                };
                if is_last {
                    return Ok(is_consistent.then_some(all));
                }
            }
        }
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

    /// A request of a generic netlink family, which begins with `struct genlmsghdr`: command,
    /// version 1, reserved.
    pub fn generic(family: u16, command: u8) -> NetlinkMessage {
        NetlinkMessage::new(family, &[command, 1, 0, 0])
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

    /// The message as sent, with this sequence number.
    pub fn into_bytes(self, sequence: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.body.len());
        bytes.extend(((HEADER + self.body.len()) as u32).to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | self.flags).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]); // port: the kernel
        bytes.extend(self.body);
        bytes
    }
}

/// A message of an answer.
struct Received<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

impl Received<'_> {
    /// The first message of a packet, and the rest.
    fn split(packet: &[u8]) -> Result<(Received<'_>, &[u8]), Errno> {
        let message = || {
            let len = u32_at(packet, 0)? as usize;
            let (kind, flags) = (u16_at(packet, 4)?, u16_at(packet, 6)?);
            let body = packet.get(HEADER..len)?;
            let rest = packet.get(len.next_multiple_of(4)..).unwrap_or(&[]);
            Some((Received { kind, flags, sequence: u32_at(packet, 8)?, body }, rest))
        };
        message().ok_or(Errno::BADMSG)
    }

    /// Error of an acknowledgement or of the end of a dump: the number, and the driver's message
    /// among the attributes that follow. An acknowledgement has the request between the two.
    fn error(&self) -> Result<(), KernelError> {
        let code = match u32_at(self.body, 0).ok_or(Errno::BADMSG)? as i32 {
            0 => return Ok(()),
            code => code.wrapping_neg(),
        };
        let request = match self.kind {
            NLMSG_DONE => 0,
            _ if self.flags & NLM_F_CAPPED != 0 => HEADER,
            _ => (u32_at(self.body, 4).unwrap_or(0) as usize).next_multiple_of(4),
        };
        let more = match self.flags & NLM_F_ACK_TLVS {
            0 => &[],
            _ => self.body.get(4 + request..).unwrap_or_default(),
        };
        let message = attribute(more, NLMSGERR_ATTR_MSG).map(text);
        Err(KernelError { code, message })
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

/// Value of the first attribute of this type.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(of, _)| *of == kind).map(|(_, value)| value)
}

/// Text of an attribute, up to its terminating zero.
pub fn text(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
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
            NetlinkMessage::new(16, &[0xaa; 4]).creating().with_nest(18, &nest).into_bytes(7);
        let head = [44, 0, 0, 0, 16, 0, 0x05, 0x06, 7, 0, 0, 0, 0, 0, 0, 0, 0xaa, 0xaa, 0xaa, 0xaa];
        assert_eq!(request, [&head[..], &[24, 0, 18, 0], &want].concat());
    }

    /// A message of an answer with the sequence number of `request`.
    fn answer(request: &[u8], kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = NetlinkMessage { kind, flags, body: body.to_vec() }
            .into_bytes(u32_at(request, 8).unwrap());
        bytes[6] &= !(NLM_F_REQUEST as u8);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// Packets that answer a request.
    type Answer = fn(&[u8]) -> Vec<Vec<u8>>;

    /// Has `ask` make its requests of a kernel that answers each with the next packets.
    fn with_kernel<T>(answers: Vec<Answer>, ask: impl FnOnce(&Netlink) -> T) -> T {
        let (flags, family) = (SocketFlags::CLOEXEC, AddressFamily::UNIX);
        let (ours, kernel) =
            rustix::net::socketpair(family, SocketType::SEQPACKET, flags, None).unwrap();
        let kernel = std::thread::spawn(move || {
            for answer in answers {
                let mut request = vec![0; 4096];
                let (_, len) = recv(&kernel, &mut request[..], RecvFlags::empty()).unwrap();
                for packet in answer(&request[..len]) {
                    send(&kernel, &packet, SendFlags::empty()).unwrap();
                }
            }
        });
        let result = ask(&Netlink::from(ours));
        kernel.join().unwrap();
        result
    }

    #[test]
    fn a_dump_has_the_messages_of_all_packets_and_is_repeated_if_it_is_inconsistent() {
        let inconsistent = |request: &[u8]| {
            let first = answer(request, 16, NLM_F_MULTI | NLM_F_DUMP_INTR, b"old!");
            vec![first, answer(request, NLMSG_DONE, NLM_F_MULTI, &[0; 4])]
        };
        let whole = |request: &[u8]| {
            let mut first = answer(&[0xff; 16], 16, 0, b"of an earlier request");
            first.extend(answer(request, 16, NLM_F_MULTI, b"a"));
            first.extend(answer(request, NLMSG_NOOP, 0, b""));
            first.extend(answer(request, 16, NLM_F_MULTI, b"bcdef"));
            let mut second = answer(request, 16, NLM_F_MULTI, b"g");
            second.extend(answer(request, NLMSG_DONE, NLM_F_MULTI, &[0; 4]));
            vec![first, second]
        };
        let all = with_kernel(vec![inconsistent, whole], |netlink| {
            netlink.dump(NetlinkMessage::new(18, &[0; 16]))
        });
        assert_eq!(all.unwrap(), [&b"a"[..], b"bcdef", b"g"]);
        let never = with_kernel(vec![inconsistent; DUMPS_MAX], |netlink| {
            netlink.dump(NetlinkMessage::new(18, &[0; 16]))
        });
        assert_eq!(never.unwrap_err().errno(), Errno::AGAIN);
    }

    #[test]
    fn an_error_has_the_message_of_the_driver() {
        const MESSAGE: &[u8] = b"Rate is too high\0";
        let whole = |request: &[u8]| {
            let more = NetlinkMessage::nest().with(2, &[0; 4]).with(NLMSGERR_ATTR_MSG, MESSAGE);
            let body = [&(-22i32).to_ne_bytes()[..], request, &more.body].concat();
            vec![answer(request, NLMSG_ERROR, NLM_F_ACK_TLVS, &body)]
        };
        let capped = |request: &[u8]| {
            let more = NetlinkMessage::nest().with(NLMSGERR_ATTR_MSG, MESSAGE);
            let body = [&(-22i32).to_ne_bytes()[..], &request[..HEADER], &more.body].concat();
            vec![answer(request, NLMSG_ERROR, NLM_F_ACK_TLVS | NLM_F_CAPPED, &body)]
        };
        let dumped = |request: &[u8]| {
            let more = NetlinkMessage::nest().with(NLMSGERR_ATTR_MSG, MESSAGE);
            let body = [&(-22i32).to_ne_bytes()[..], &more.body].concat();
            vec![answer(request, NLMSG_DONE, NLM_F_ACK_TLVS, &body)]
        };
        for kernel in [whole, capped, dumped] {
            let request = NetlinkMessage::new(19, &[0xbb; 20]).acknowledged();
            let error = with_kernel(vec![kernel], |netlink| netlink.exchange(request)).unwrap_err();
            assert_eq!(
                (error.errno(), &*error.to_string()),
                (Errno::INVAL, "Invalid argument (os error 22): Rate is too high")
            );
        }
        let bare = |request: &[u8]| {
            vec![answer(request, NLMSG_ERROR, 0, &[&(-17i32).to_ne_bytes()[..], request].concat())]
        };
        let request = || NetlinkMessage::new(19, &[]).acknowledged();
        let error = with_kernel(vec![bare], |netlink| netlink.exchange(request())).unwrap_err();
        assert_eq!(error, Errno::EXIST.into());
        let done = |request: &[u8]| vec![answer(request, NLMSG_ERROR, 0, &[0; 20])];
        assert_eq!(with_kernel(vec![done], |netlink| netlink.exchange(request())), Ok(vec![]));
        let body = |request: &[u8]| vec![answer(request, 16, 0, b"body")];
        assert_eq!(
            with_kernel(vec![body], |netlink| netlink.exchange(request())),
            Ok(b"body".to_vec())
        );
    }

    #[test]
    fn the_number_of_a_family_is_found() {
        // CTRL_CMD_NEWFAMILY: a name, and the number.
        let known = |request: &[u8]| {
            assert_eq!(
                &request[HEADER..],
                [&[3, 1, 0, 0, 9, 0, 2, 0][..], b"vdpa\0\0\0\0"].concat()
            );
            let family = NetlinkMessage::generic(CTRL, 1).with_text(CTRL_ATTR_FAMILY_NAME, "vdpa");
            let family = family.with(CTRL_ATTR_FAMILY_ID, &[0x1d, 0]);
            vec![answer(request, CTRL, 0, &family.body)]
        };
        assert_eq!(with_kernel(vec![known], |netlink| netlink.family("vdpa")), Ok(0x1d));
        let odd = |request: &[u8]| vec![answer(request, CTRL, 0, &[1, 2])];
        let error = with_kernel(vec![odd], |netlink| netlink.family("vdpa")).unwrap_err();
        assert_eq!(error.errno(), Errno::BADMSG);
    }

    #[test]
    fn a_malformed_answer_is_an_error() {
        let whole = answer(&[0; 16], NLMSG_ERROR, 0, &[0; 4]);
        for len in 0..whole.len() {
            let read = Received::split(&whole[..len]).map(drop);
            assert_eq!(read, Err(Errno::BADMSG), "{len} bytes");
        }
        let no_code = |request: &[u8]| vec![answer(request, NLMSG_ERROR, 0, &[0; 3])];
        let request = NetlinkMessage::new(16, &[]);
        let error = with_kernel(vec![no_code], |netlink| netlink.exchange(request)).unwrap_err();
        assert_eq!(error.errno(), Errno::BADMSG);
        // An attribute with a length beyond the message ends the iteration.
        assert_eq!(attributes(&[200, 0, 4, 0, 1, 2, 3, 4]).count(), 0);
    }
}
