//! Descriptor chains, possibly hostile: code that both kinds of ring share.
//!
//! virtio 1.2, sections 2.7.4, 2.7.5.3, 2.8.6 and 2.8.7. A counter bounds every walk, regardless of
//! the links. Every descriptor is read once; every range is translated whole.

use guestmem::{Buffer, GuestSlice, Ticket, Translator};

use crate::fault::Fault;
use crate::ring::{Descriptor, RING_SIZE_MAX};

/// Most descriptors in a chain. Linux uses at most 19, DPDK's back-end takes 256.
pub const CHAIN_MAX: usize = 256;

/// Most descriptors in a chain to write to: others wait while a receiver's buffers are filled. A
/// frame of 64 KiB in pages takes 17, Linux's largest buffer 19.
pub const WRITABLE_CHAIN_MAX: usize = 32;

/// Most bytes in a chain: sixteen times the largest frame of virtio-net.
pub const CHAIN_BYTES_MAX: u32 = 1 << 20;

/// First bytes of a readable buffer, as far as the ring's header goes; zeros beyond.
pub type ChainHeader = [u8; HEADER_MAX as usize];
/// Longest header that can be kept, bytes: the virtio-net header.
pub(crate) const HEADER_MAX: u32 = 12;

/// Rules for the chains of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainFormat {
    /// The device writes to these buffers.
    pub(crate) writable: bool,
    /// Indirect tables were negotiated.
    pub(crate) indirect: bool,
    /// Length of the device's header, bytes, which is cut off a readable chain.
    pub(crate) prefix: u32,
}

impl ChainFormat {
    /// Direction bit that every descriptor must have.
    #[inline(always)]
    pub(crate) fn wanted_flags(self) -> u16 {
        if self.writable { Descriptor::WRITE } else { 0 }
    }

    /// Most descriptors in a chain.
    pub(crate) fn longest(self) -> usize {
        if self.writable { WRITABLE_CHAIN_MAX } else { CHAIN_MAX }
    }

    fn prefix(self) -> u32 {
        if self.writable { 0 } else { self.prefix }
    }
}

/// A chain that is being walked.
pub(crate) struct Chain<'a> {
    arena: &'a mut Vec<GuestSlice<'static>>,
    start: usize,
    bytes: u32,
    pub(crate) translator: &'a mut Translator,
    pub(crate) format: ChainFormat,
}

impl<'a> Chain<'a> {
    /// An empty chain. Its slices are appended to `arena`, which has room for [`CHAIN_MAX`] more.
    pub(crate) fn new(
        arena: &'a mut Vec<GuestSlice<'static>>,
        translator: &'a mut Translator,
        format: ChainFormat,
    ) -> Chain<'a> {
        let start = arena.len();
        Chain { arena, start, bytes: 0, translator, format }
    }

    /// Descriptors so far.
    pub(crate) fn len(&self) -> usize {
        self.arena.len() - self.start
    }

    /// Appends the range of a descriptor. The caller checked that there are fewer than
    /// the [longest](ChainFormat::longest) has.
    pub(crate) fn append(&mut self, piece: Descriptor) -> Result<(), Fault> {
        if piece.flags & Descriptor::WRITE != self.format.wanted_flags() {
            return Err(Fault::WrongDirection);
        }
        let bytes = self.bytes.checked_add(piece.len).filter(|bytes| *bytes <= CHAIN_BYTES_MAX);
        self.bytes = bytes.ok_or(Fault::ChainTooLarge)?;
        let slice = self.translator.slice(piece.addr, piece.len).ok_or(Fault::OutsideMemory)?;
        // SAFETY: the queue that owns the arena owns the translator, and lends slices of the arena
        // only while it is borrowed.
        self.arena.push(unsafe { slice.forget_lifetime() });
        Ok(())
    }

    /// Makes the buffer of the chain, without the header; copies the header out if `header` is
    /// given. The chain has at least one descriptor.
    pub(crate) fn finish(
        self,
        header: Option<&mut ChainHeader>,
        ticket: Ticket,
    ) -> Buffer<'static> {
        let prefix = self.format.prefix();
        if let Some(header) = header {
            *header = [0; _];
            let room = prefix.min(header.len() as u32) as usize;
            let mut room = &mut header[..room];
            for slice in &self.arena[self.start..] {
                let n = slice.read_bytes(room) as usize;
                room = &mut room[n..];
            }
        }
        let mut left = prefix;
        let mut at = self.start;
        while at + 1 < self.arena.len() && left >= self.arena[at].len() {
            left -= self.arena[at].len();
            at += 1;
        }
        let rest_start = (at + 1) as u16;
        let rest_len = (self.arena.len() - at - 1) as u16;
        let (first, len) = (self.arena[at].skip(left), self.bytes.saturating_sub(prefix));
        Buffer { first, len, rest_start, rest_len, ticket }
    }
}

/// An indirect table (sections 2.7.5.3 and 2.8.7), inside the guest's memory as a whole.
pub(crate) struct Table {
    /// Valid for one walk, during which the chain's translator keeps the memory.
    slice: GuestSlice<'static>,
    pub(crate) entries: u16,
}

impl Table {
    /// The table that `outer` names, if indirect tables were negotiated.
    pub(crate) fn new(chain: &mut Chain<'_>, outer: Descriptor) -> Result<Table, Fault> {
        let entries = outer.len as usize / Descriptor::SIZE;
        let whole = (outer.len as usize).is_multiple_of(Descriptor::SIZE);
        let possible = whole && entries > 0 && entries <= usize::from(RING_SIZE_MAX);
        if !chain.format.indirect || !possible {
            return Err(Fault::BadIndirect);
        }
        // "A driver MUST NOT set both VIRTQ_DESC_F_INDIRECT and VIRTQ_DESC_F_NEXT" (2.7.5.3.1).
        if outer.flags & Descriptor::NEXT != 0 {
            return Err(Fault::BadIndirect);
        }
        let slice = chain.translator.slice(outer.addr, outer.len).ok_or(Fault::OutsideMemory)?;
        // SAFETY: a table is dropped within the walk that made it. The chain of that walk borrows
        // the translator, which keeps the memory.
        let slice = unsafe { slice.forget_lifetime() };
        Ok(Table { slice, entries: entries as u16 })
    }

    /// The two 64-bit words of the descriptor at `index`, below `entries`. Each is read once.
    pub(crate) fn words(&self, index: u16) -> [u64; 2] {
        let at = u32::from(index) * Descriptor::SIZE as u32;
        let word = |offset| u64::from_le_bytes(self.slice.read(at + offset));
        [word(0), word(8)]
    }
}
