//! Walking a descriptor chain that a hostile guest may have written.
//!
//! virtio 1.2, sections 2.7.4 and 2.7.5.3. Every walk is bounded by a counter, whatever the links
//! say; every descriptor is read once; every range is translated whole.

use guestmem::{Buffer, GuestSlice, Translator};

use crate::device::Header;
use crate::ring::{Descriptor, Ring};

/// Most descriptors in a chain. Linux uses at most 19, DPDK's back-end takes 256.
pub const CHAIN_MAX: usize = 256;

/// Most bytes in a chain: sixteen times the largest frame of virtio-net.
pub const CHAIN_BYTES_MAX: u32 = 1 << 20;

/// A rule of the ring that the guest broke, or its front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The available index moved by more than the ring's size.
    #[error("the available index jumped by more than the ring's size")]
    IndexJump,
    /// A head or a link names no descriptor.
    #[error("a descriptor index is outside the table")]
    BadIndex,
    /// A chain does not end within [`CHAIN_MAX`] descriptors or the table's size: a loop.
    #[error("a descriptor chain does not end")]
    ChainTooLong,
    /// More than [`CHAIN_BYTES_MAX`] bytes.
    #[error("a descriptor chain holds more than {CHAIN_BYTES_MAX} bytes")]
    ChainTooLarge,
    /// A range is outside the guest's memory, or crosses regions.
    #[error("a buffer is outside the guest's memory")]
    OutsideMemory,
    /// A buffer to read from is marked writable, or the other way round.
    #[error("a buffer has the wrong direction")]
    WrongDirection,
    /// An indirect table of a bad size, inside another, with a link behind, or not negotiated.
    #[error("an indirect descriptor table is malformed")]
    BadIndirect,
    /// The front-end shrank the file behind the guest's memory.
    #[error("the front-end truncated the guest's memory")]
    Truncated,
}

impl Fault {
    /// All of them, for counters and documentation.
    pub const ALL: [Fault; 8] = [
        Fault::IndexJump,
        Fault::BadIndex,
        Fault::ChainTooLong,
        Fault::ChainTooLarge,
        Fault::OutsideMemory,
        Fault::WrongDirection,
        Fault::BadIndirect,
        Fault::Truncated,
    ];

    /// A short name, for counters.
    pub fn name(self) -> &'static str {
        match self {
            Fault::IndexJump => "index_jump",
            Fault::BadIndex => "bad_index",
            Fault::ChainTooLong => "chain_too_long",
            Fault::ChainTooLarge => "chain_too_large",
            Fault::OutsideMemory => "outside_memory",
            Fault::WrongDirection => "wrong_direction",
            Fault::BadIndirect => "bad_indirect",
            Fault::Truncated => "truncated",
        }
    }
}

/// Walks the chain at `head`, whose first descriptor was read already; appends its slices after the
/// first to `arena`, which has room for [`CHAIN_MAX`] more, and reads the header that is cut off.
#[cold]
pub(crate) fn walk(
    ring: &Ring,
    translator: &mut Translator,
    arena: &mut Vec<GuestSlice<'static>>,
    (head, first): (u16, Descriptor),
    (walk, header): (Walk, Option<&mut Header>),
) -> Result<Buffer<'static>, Fault> {
    let start = arena.len();
    let mut chain = Chain { arena, start, bytes: 0, walk };
    chain.follow(ring, translator, first)?;
    let bytes = chain.bytes;
    if let Some(header) = header {
        *header = [0; _];
        let room = walk.prefix().min(header.len() as u32) as usize;
        let mut room = &mut header[..room];
        for slice in &arena[start..] {
            let n = slice.read_bytes(room) as usize;
            room = &mut room[n..];
        }
    }
    Ok(take_prefix(arena, start, bytes, walk.prefix(), head))
}

/// How a ring's chains are to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// Whether the device writes to these buffers.
    pub(crate) writable: bool,
    /// Whether indirect tables were negotiated.
    pub(crate) indirect: bool,
    /// Bytes of the device's header, which are cut off a readable chain.
    pub(crate) prefix: u32,
}

impl Walk {
    /// The direction bit that every descriptor must have.
    #[inline(always)]
    pub(crate) fn wanted_flags(self) -> u16 {
        if self.writable { Descriptor::WRITE } else { 0 }
    }

    fn prefix(self) -> u32 {
        if self.writable { 0 } else { self.prefix }
    }
}

struct Chain<'a> {
    arena: &'a mut Vec<GuestSlice<'static>>,
    start: usize,
    bytes: u32,
    walk: Walk,
}

impl Chain<'_> {
    /// Appends `descriptor` and what its links lead to: in the ring's table, and at the end in one
    /// indirect table. "The device MUST handle the case of zero or more normal chained descriptors
    /// followed by a single descriptor with flags&VIRTQ_DESC_F_INDIRECT" (2.7.5.3.2).
    fn follow(
        &mut self,
        ring: &Ring,
        translator: &mut Translator,
        mut descriptor: Descriptor,
    ) -> Result<(), Fault> {
        let mut table: Option<Table> = None;
        let mut entries = ring.size();
        let mut longest = CHAIN_MAX.min(usize::from(entries));
        loop {
            if descriptor.flags & Descriptor::INDIRECT != 0 {
                if table.is_some() {
                    return Err(Fault::BadIndirect); // a table inside a table
                }
                let inner = Table::new(translator, descriptor, self.walk)?;
                entries = inner.entries;
                longest = CHAIN_MAX.min(self.len() + usize::from(entries));
                descriptor = inner.descriptor(0);
                table = Some(inner);
                continue;
            }
            self.append(translator, descriptor)?;
            if descriptor.flags & Descriptor::NEXT == 0 {
                return Ok(());
            }
            if descriptor.next >= entries {
                return Err(Fault::BadIndex);
            }
            if self.len() >= longest {
                return Err(Fault::ChainTooLong);
            }
            descriptor = match &table {
                Some(table) => table.descriptor(descriptor.next),
                None => ring.descriptor(descriptor.next),
            };
        }
    }

    /// Descriptors so far.
    fn len(&self) -> usize {
        self.arena.len() - self.start
    }

    fn append(&mut self, translator: &mut Translator, piece: Descriptor) -> Result<(), Fault> {
        if piece.flags & Descriptor::WRITE != self.walk.wanted_flags() {
            return Err(Fault::WrongDirection);
        }
        let bytes = self.bytes.checked_add(piece.len).filter(|bytes| *bytes <= CHAIN_BYTES_MAX);
        self.bytes = bytes.ok_or(Fault::ChainTooLarge)?;
        let slice = translator.slice(piece.addr, piece.len).ok_or(Fault::OutsideMemory)?;
        // SAFETY: the queue that owns the arena owns the translator, and lends slices of the arena
        // only while it is borrowed.
        self.arena.push(unsafe { slice.forget_lifetime() });
        Ok(())
    }
}

/// An indirect table (section 2.7.5.3), inside the guest's memory as a whole.
struct Table {
    /// Valid for one walk, during which the walk's translator keeps the memory.
    slice: GuestSlice<'static>,
    entries: u16,
}

impl Table {
    /// The table that `outer` names.
    fn new(translator: &mut Translator, outer: Descriptor, walk: Walk) -> Result<Table, Fault> {
        let entries = outer.len as usize / Descriptor::SIZE;
        let whole = (outer.len as usize).is_multiple_of(Descriptor::SIZE);
        if !walk.indirect || !whole || entries == 0 || entries > usize::from(crate::RING_SIZE_MAX) {
            return Err(Fault::BadIndirect);
        }
        // "A driver MUST NOT set both VIRTQ_DESC_F_INDIRECT and VIRTQ_DESC_F_NEXT" (2.7.5.3.1).
        if outer.flags & Descriptor::NEXT != 0 {
            return Err(Fault::BadIndirect);
        }
        let slice = translator.slice(outer.addr, outer.len).ok_or(Fault::OutsideMemory)?;
        // SAFETY: a table is dropped within `Chain::follow`, whose translator keeps the memory.
        let slice = unsafe { slice.forget_lifetime() };
        let entries = entries as u16;
        Ok(Table { slice, entries })
    }

    /// A snapshot of the descriptor at `index`, which is below `entries`.
    fn descriptor(&self, index: u16) -> Descriptor {
        let at = u32::from(index) * Descriptor::SIZE as u32;
        let word = |offset| u64::from_le_bytes(self.slice.read(at + offset));
        Descriptor::from_words(word(0), word(8))
    }
}

/// Makes a buffer of `arena[start..]` without its first `prefix` bytes, wherever they are.
fn take_prefix(
    arena: &mut [GuestSlice<'static>],
    start: usize,
    bytes: u32,
    prefix: u32,
    id: u16,
) -> Buffer<'static> {
    let mut left = prefix;
    let mut at = start;
    while at + 1 < arena.len() && (left >= arena[at].len()) {
        left -= arena[at].len();
        at += 1;
    }
    let rest_start = (at + 1) as u16;
    let rest_len = (arena.len() - at - 1) as u16;
    let first = arena[at].skip(left);
    Buffer { first, len: bytes.saturating_sub(prefix), rest_start, rest_len, id }
}
