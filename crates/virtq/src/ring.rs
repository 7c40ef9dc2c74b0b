//! Parts that rings of both kinds share: virtio 1.2, sections 2.7.5, 2.8.1 and 6.

use guestmem::GuestMemory;

/// Most entries of a ring (virtio 1.2, sections 2.7 and 2.8.10.1).
pub const RING_SIZE_MAX: u16 = 32768;

bitflags::bitflags! {
    /// Ring features of virtio (section 6) that this crate implements.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Features: u8 {
        /// `VIRTIO_F_INDIRECT_DESC`: a descriptor may name a table of descriptors.
        const INDIRECT = 1;
        /// `VIRTIO_F_EVENT_IDX`: each side names the index at which it wants a notification.
        const EVENT_IDX = 2;
        /// `VIRTIO_F_RING_PACKED`: one ring of descriptors that both sides write to.
        const PACKED = 4;
        /// `VIRTIO_F_IN_ORDER`: the driver relies on the order in which buffers are used.
        const IN_ORDER = 8;
    }
}

/// Addresses of the parts of a ring, in the front-end's address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Descriptor table, or packed ring; 16-byte aligned.
    pub desc: u64,
    /// Available ring, or driver event area of a packed ring; 2-byte aligned, or 4.
    pub avail: u64,
    /// Used ring, or device event area of a packed ring; 4-byte aligned.
    pub used: u64,
}

/// Errors of the setup of a ring.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SetupError {
    /// Size of a split ring: not a power of two, or out of range.
    #[error("invalid ring size {0}; expected a power of two up to {RING_SIZE_MAX}")]
    Size(u16),
    /// Size of a packed ring: out of range.
    #[error("invalid packed ring size {0}; expected 1 to {RING_SIZE_MAX}")]
    PackedSize(u16),
    /// Start position from the front-end: outside the packed ring.
    #[error(
        "invalid base {base:#x} of a packed ring of {size} entries; bits 0-14 and 16-30 are an index"
    )]
    Base {
        /// Entries.
        size: u16,
        /// Base from the front-end.
        base: u32,
    },
    /// A part lies outside the guest's memory.
    #[error("the {part} at {addr:#x} is not inside one region of guest memory")]
    Outside {
        /// Part of the ring.
        part: &'static str,
        /// Its address in the front-end.
        addr: u64,
    },
    /// A part is not aligned as the specification demands.
    #[error("the {part} at {addr:#x} is not aligned to {align} bytes")]
    Alignment {
        /// Part of the ring.
        part: &'static str,
        /// Its address in the front-end.
        addr: u64,
        /// Bytes.
        align: usize,
    },
}

/// One descriptor, as read: a snapshot that the guest cannot change any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

impl Descriptor {
    pub(crate) const SIZE: usize = 16;
    /// The chain continues at `next`.
    pub(crate) const NEXT: u16 = 1;
    /// The device may write here (else it may read).
    pub(crate) const WRITE: u16 = 2;
    /// `addr` and `len` name a table of descriptors.
    pub(crate) const INDIRECT: u16 = 4;

    /// From a split ring's two little-endian words.
    #[inline(always)]
    pub(crate) fn from_words([addr, word]: [u64; 2]) -> Descriptor {
        let (len, flags, next) = (word as u32, (word >> 32) as u16, (word >> 48) as u16);
        Descriptor { addr, len, flags, next }
    }

    #[inline(always)]
    pub(crate) fn to_words(self) -> [u64; 2] {
        let word = u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.next) << 48;
        [self.addr, word]
    }
}

/// Address of a part of a ring: `bytes` in one region, aligned.
pub(crate) fn part(
    memory: &GuestMemory,
    (part, addr): (&'static str, u64),
    (bytes, align): (usize, usize),
) -> Result<*mut u8, SetupError> {
    let slice = memory.user_slice(addr, bytes as u32).ok_or(SetupError::Outside { part, addr })?;
    let aligned = slice.aligned_array::<u8>(0).filter(|at| at.addr().is_multiple_of(align));
    aligned.ok_or(SetupError::Alignment { part, addr, align })
}
