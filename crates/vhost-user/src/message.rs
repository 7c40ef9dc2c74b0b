//! One vhost-user message: header, payload, descriptors, and their limits.
//!
//! Specification: vhost-user.rst, "Message Specification". All numbers are in native byte order.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::foreign::ForeignFd;
pub use crate::request::{BackendRequest, Request, RequestName};

/// Bytes of a message header.
pub const HEADER_SIZE: usize = 12;
/// Longest payload accepted, in bytes. The longest that the protocol needs are a memory table of 8
/// regions (264) and the configuration space (268).
pub const PAYLOAD_SIZE_MAX: usize = 4096;
/// Most file descriptors one message carries.
pub const FDS_MAX: usize = 8;
/// Most regions in one `SET_MEM_TABLE`, since each has a file descriptor.
pub const TABLE_REGIONS_MAX: usize = FDS_MAX;
/// Most memory slots a back-end may offer with `CONFIGURE_MEM_SLOTS`.
pub const MEM_SLOTS_MAX: u64 = 512;
/// Largest ring, in descriptors (virtio 1.2, 2.7).
pub const RING_SIZE_MAX: u32 = 32768;
/// Most queue pairs: a ring's index has 8 bits in `SET_VRING_KICK`, and a pair has two rings.
pub const QUEUE_PAIRS_MAX: u16 = 128;
/// End of the device configuration space that `GET_CONFIG` reads, in bytes.
pub const CONFIG_SIZE_MAX: u32 = 256;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 0x3;

bitflags! {
    /// Flags of a header, without the version.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// The message answers a request.
        const REPLY = 1 << 2;
        /// The sender asks for an acknowledgement (`REPLY_ACK`).
        const NEED_REPLY = 1 << 3;
    }
}

/// A header in wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawHeader {
    pub(crate) request: u32,
    pub(crate) flags: u32,
    pub(crate) size: u32,
}

/// A validated header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageHeader {
    pub(crate) request: u32,
    pub(crate) flags: Flags,
    pub(crate) size: usize,
}

/// Errors of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageHeaderError {
    /// Not version 1.
    #[error("header of {request} has protocol version {version}, only version 1 exists")]
    Version {
        /// The request, as named in logs.
        request: RequestName,
        /// The version found.
        version: u32,
    },
    /// Undefined flag bits are set.
    #[error("header of {request} has reserved flag bits {bits:#x} set, they must be zero")]
    ReservedFlags {
        /// The request, as named in logs.
        request: RequestName,
        /// The bits found.
        bits: u32,
    },
    /// A payload beyond the limit.
    #[error(
        "header of {request} announces a payload of {size} bytes, at most {PAYLOAD_SIZE_MAX} are allowed"
    )]
    PayloadTooLong {
        /// The request, as named in logs.
        request: RequestName,
        /// The size found, in bytes.
        size: u32,
    },
}

impl MessageHeader {
    /// Reads and checks a header.
    pub(crate) fn parse(bytes: &[u8; HEADER_SIZE]) -> Result<Self, MessageHeaderError> {
        let raw: RawHeader = zerocopy::transmute!(*bytes);
        let request = RequestName(raw.request);
        let version = raw.flags & VERSION_MASK;
        if version != VERSION {
            return Err(MessageHeaderError::Version { request, version });
        }
        let bits = raw.flags & !VERSION_MASK;
        let Some(flags) = Flags::from_bits(bits) else {
            let bits = bits & !Flags::all().bits();
            return Err(MessageHeaderError::ReservedFlags { request, bits });
        };
        let size = raw.size as usize;
        if size > PAYLOAD_SIZE_MAX {
            let size = raw.size;
            return Err(MessageHeaderError::PayloadTooLong { request, size });
        }
        Ok(Self { request: raw.request, flags, size })
    }
}

/// One message with its file descriptors.
///
/// Dropping a message closes its descriptors, so none can leak.
#[derive(Debug)]
pub struct Message {
    /// The request's code; a reply has the code of its request.
    pub request: u32,
    /// Reply and need-reply.
    pub flags: Flags,
    /// At most [`PAYLOAD_SIZE_MAX`] bytes.
    pub payload: Vec<u8>,
    /// At most [`FDS_MAX`] descriptors.
    pub fds: Vec<ForeignFd>,
}

impl Message {
    /// A request with a payload and no descriptors.
    pub fn request(request: Request, payload: &(impl IntoBytes + Immutable + ?Sized)) -> Self {
        Self {
            request: request.code(),
            flags: Flags::empty(),
            payload: payload.as_bytes().to_vec(),
            fds: Vec::new(),
        }
    }

    /// A back-end's request without a payload and without an answer.
    pub fn of_backend(request: BackendRequest) -> Self {
        Self {
            request: request.code(),
            flags: Flags::empty(),
            payload: Vec::new(),
            fds: Vec::new(),
        }
    }

    /// The reply to the request with this code.
    pub fn reply(request: u32, payload: Vec<u8>) -> Self {
        Self { request, flags: Flags::REPLY, payload, fds: Vec::new() }
    }

    /// The request, as named in logs.
    pub fn name(&self) -> RequestName {
        RequestName(self.request)
    }

    /// Header and payload in wire format.
    pub fn to_bytes(&self) -> Vec<u8> {
        debug_assert!(self.payload.len() <= PAYLOAD_SIZE_MAX);
        let header = RawHeader {
            request: self.request,
            flags: VERSION | self.flags.bits(),
            size: self.payload.len() as u32,
        };
        [header.as_bytes(), &self.payload].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(request: u32, flags: u32, size: u32) -> [u8; HEADER_SIZE] {
        zerocopy::transmute!(RawHeader { request, flags, size })
    }

    #[test]
    fn a_header_is_checked() {
        let good = MessageHeader::parse(&header(2, 0x9, 8)).unwrap();
        assert_eq!(good, MessageHeader { request: 2, flags: Flags::NEED_REPLY, size: 8 });
        let request = RequestName(2);
        assert_eq!(
            MessageHeader::parse(&header(2, 0x2, 8)),
            Err(MessageHeaderError::Version { request, version: 2 })
        );
        assert_eq!(
            MessageHeader::parse(&header(2, 0x31, 8)),
            Err(MessageHeaderError::ReservedFlags { request, bits: 0x30 })
        );
        assert_eq!(
            MessageHeader::parse(&header(2, 0x1, 4097)),
            Err(MessageHeaderError::PayloadTooLong { request, size: 4097 })
        );
        assert!(MessageHeader::parse(&header(2, 0x1, 4096)).is_ok());
    }

    #[test]
    fn bytes_of_a_message() {
        let mut message = Message::request(Request::SetFeatures, &0x1122u64);
        message.flags = Flags::NEED_REPLY;
        let bytes = message.to_bytes();
        assert_eq!(bytes[..4], 2u32.to_ne_bytes());
        assert_eq!(bytes[4..8], 9u32.to_ne_bytes());
        assert_eq!(bytes[8..12], 8u32.to_ne_bytes());
        assert_eq!(bytes[12..], 0x1122u64.to_ne_bytes());
    }
}
