//! Requests of the kernel to a device, and the answers: the data read from and written to
//! `/dev/vduse/NAME`.
//!
//! Follows `linux/vduse.h` (`struct vduse_dev_request`, `struct vduse_dev_response`). Fields are in
//! native byte order. Cannot panic on any input.

/// Bytes of a request.
pub const REQUEST_LEN: usize = 152;
/// Bytes of an answer.
pub const RESPONSE_LEN: usize = 152;

const GET_VQ_STATE: u32 = 0;
const SET_STATUS: u32 = 1;
const UPDATE_IOTLB: u32 = 2;

const FAILED: u32 = 1;

/// Offset of the part that depends on the request type.
const BODY: usize = 24;

/// Type of a request, with its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Queries the device's position in a ring.
    Position {
        /// The ring.
        ring: u32,
    },
    /// The driver sets the device's status (virtio 1.2, section 2.1).
    Status(u8),
    /// Memory was mapped or unmapped in this inclusive address range.
    Memory {
        /// First address.
        start: u64,
        /// Last address.
        last: u64,
    },
    /// A request of a later interface version.
    Unknown(u32),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number that the answer repeats.
    pub id: u32,
    /// Type and fields.
    pub kind: RequestKind,
}

impl Request {
    /// Parses a request.
    pub fn from_bytes(bytes: &[u8; REQUEST_LEN]) -> Request {
        let kind = match u32_at(bytes, 0) {
            GET_VQ_STATE => RequestKind::Position { ring: u32_at(bytes, BODY) },
            SET_STATUS => RequestKind::Status(bytes[BODY]),
            UPDATE_IOTLB => {
                RequestKind::Memory { start: u64_at(bytes, BODY), last: u64_at(bytes, BODY + 8) }
            }
            kind => RequestKind::Unknown(kind),
        };
        Request { id: u32_at(bytes, 4), kind }
    }
}

/// Response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// Success.
    Done,
    /// Failure.
    Failed,
    /// Position in a ring: see [`Position`].
    At {
        /// The ring.
        ring: u32,
        /// The position in it.
        position: Position,
    },
}

/// Index of the next descriptor that the device reads in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position(pub [u16; 4]);

impl Position {
    /// Of a split ring: the index in the available ring.
    pub fn split(available: u16) -> Position {
        Position([available, 0, 0, 0])
    }

    /// Of a packed ring, from vhost-user's form: index and wrap counter of the next available
    /// descriptor in the lower half, of the next used one in the upper half.
    pub fn packed(base: u32) -> Position {
        let half = |half: u16| [half >> 15, half & 0x7fff];
        let ([wrap, available], [used_wrap, used]) = (half(base as u16), half((base >> 16) as u16));
        Position([wrap, available, used_wrap, used])
    }

    /// The position in vhost-user's form; `packed` for a packed ring.
    pub fn base(self, packed: bool) -> u32 {
        let Position([first, available, used_wrap, used]) = self;
        let half = |wrap: u16, index: u16| u32::from((wrap & 1) << 15 | index & 0x7fff);
        match packed {
            true => half(first, available) | half(used_wrap, used) << 16,
            false => first.into(),
        }
    }
}

impl Response {
    /// The answer to request `id`.
    pub fn to_bytes(self, id: u32) -> [u8; RESPONSE_LEN] {
        let mut bytes = [0; RESPONSE_LEN];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &id.to_ne_bytes());
        match self {
            Response::Done => {}
            Response::Failed => put(4, &FAILED.to_ne_bytes()),
            Response::At { ring, position: Position(words) } => {
                put(BODY, &ring.to_ne_bytes());
                for (i, word) in words.iter().enumerate() {
                    put(BODY + 4 + 2 * i, &word.to_ne_bytes());
                }
            }
        }
        bytes
    }
}

fn u32_at(bytes: &[u8; REQUEST_LEN], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

fn u64_at(bytes: &[u8; REQUEST_LEN], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}
