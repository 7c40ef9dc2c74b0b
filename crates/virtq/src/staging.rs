//! Staged buffers between the guest's ring and the owner of the queue, for both kinds of ring.

use std::mem::transmute;
use std::sync::Arc;

use guestmem::{Buffer, GuestMemory, GuestSlice, LastHit, Ticket, Translator};

use crate::chain::{CHAIN_BYTES_MAX, CHAIN_MAX, Chain, ChainFormat, ChainHeader, HEADER_MAX};
use crate::fault::Fault;

/// Most buffers handled together.
pub const BURST: usize = 64;

/// Slices beyond the first of all staged chains: room for a burst of usual ones, and always for
/// one of the longest.
const ARENA: usize = 2 * CHAIN_MAX;

/// Direction and headers of a ring's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The device reads them. Each begins with a header, which staging cuts off.
    Readable {
        /// Bytes.
        header: u32,
        /// The header is kept for
        /// [`DeviceQueue::virtio_headers`](crate::DeviceQueue::virtio_headers); else it is not
        /// read.
        keep: bool,
    },
    /// The device writes to them.
    Writable,
}

/// Buffers taken and not yet used, and the state of their checks.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(crate) format: ChainFormat,
    /// Headers are kept.
    pub(crate) keep: bool,
    pub(crate) fault: Option<Fault>,
    truncations: u32,
    /// `staged[position..end]`, with their `headers` if those are kept, are taken and not yet used.
    pub(crate) position: usize,
    pub(crate) end: usize,
    pub(crate) staged: Box<[Buffer<'static>; BURST]>,
    pub(crate) headers: Box<[ChainHeader; BURST]>,
    arena: Vec<GuestSlice<'static>>,
    pub(crate) translator: Translator,
}

impl Staging {
    pub(crate) fn new(memory: Arc<GuestMemory>, content: Content, indirect: bool) -> Staging {
        let (writable, prefix, keep) = match content {
            Content::Readable { header, keep } => (false, header, keep),
            Content::Writable => (true, 0, false),
        };
        Staging {
            format: ChainFormat { writable, prefix, indirect },
            keep,
            fault: None,
            truncations: guestmem::guard::truncations().wrapping_sub(1),
            position: 0,
            end: 0,
            staged: Box::new([Buffer::EMPTY; BURST]),
            headers: Box::new([[0; _]; BURST]),
            arena: Vec::with_capacity(ARENA),
            translator: Translator::new(memory),
        }
    }

    /// Staged and not used.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.end - self.position
    }

    /// Returns `true` if another chain may be taken: no fault, and room for its slices.
    #[inline(always)]
    pub(crate) fn takes_more(&self) -> bool {
        self.fault.is_none() && self.arena.len() <= ARENA - CHAIN_MAX
    }

    /// Writes a chain of one descriptor, the range (`addr`, `len`), and its header to a free place.
    /// Returns `false` if it is not the usual case. The caller counts it.
    #[inline(always)]
    pub(crate) fn put_simple<const WRITABLE: bool, const KEEP: bool>(
        (format, window): (ChainFormat, LastHit<'_>),
        (place, header): (&mut Buffer<'static>, &mut ChainHeader),
        (addr, len, id): (u64, u32, u16),
    ) -> bool {
        let prefix = if WRITABLE { 0 } else { format.prefix };
        if len <= prefix || len > CHAIN_BYTES_MAX {
            return false;
        }
        let Some(slice) = window.slice(addr, len) else { return false };
        if KEEP {
            *header = header_of(&slice, prefix);
        }
        // SAFETY: the translator keeps the memory, and `buffers` lends staged buffers only while
        // the queue is borrowed.
        let slice = unsafe { slice.skip(prefix).forget_lifetime() };
        *place = Buffer::single(slice, id);
        // Of a frame to send, the lines of its first 65 bytes. Of a receive buffer, two lines,
        // since the frame's length is unknown. The hardware prefetches longer runs by itself.
        if WRITABLE {
            slice.prefetch_write(0);
            slice.prefetch_write(64);
        } else {
            slice.prefetch_read(0);
            slice.prefetch_read((slice.len() - 1).min(64));
        }
        true
    }

    /// Stages the chain that `follow` walks, or records its fault; returns the chain's ticket.
    #[cold]
    pub(crate) fn put_chain(
        &mut self,
        follow: impl FnOnce(&mut Chain<'_>) -> Result<Ticket, Fault>,
    ) -> Option<Ticket> {
        let mut chain = Chain::new(&mut self.arena, &mut self.translator, self.format);
        match follow(&mut chain) {
            Ok(ticket) => {
                let at = self.end & (BURST - 1);
                let header = self.keep.then_some(&mut self.headers[at]);
                self.staged[at] = chain.finish(header, ticket);
                self.end += 1;
                Some(ticket)
            }
            Err(fault) => {
                self.fault = Some(fault);
                None
            }
        }
    }

    /// Moves the staged buffers to the front, so that a whole burst fits behind them.
    #[inline]
    pub(crate) fn make_room(&mut self) {
        if self.position == 0 && self.arena.is_empty() {
            return;
        }
        self.staged.copy_within(self.position..self.end, 0);
        if self.keep {
            self.headers.copy_within(self.position..self.end, 0);
        }
        self.end -= self.position;
        self.position = 0;
        if !self.arena.is_empty() {
            self.make_room_in_arena();
        }
    }

    /// Drops the slices of used buffers. Without it, a ring that always has a buffer left over
    /// would fill the arena with them and never stage again.
    #[cold]
    fn make_room_in_arena(&mut self) {
        let staged = &mut self.staged[..self.end];
        let first = staged.iter().find(|buffer| buffer.rest_len > 0);
        let unused = first.map_or(self.arena.len(), |buffer| usize::from(buffer.rest_start));
        self.arena.drain(..unused);
        for buffer in staged {
            buffer.rest_start = buffer.rest_start.saturating_sub(unused as u16);
        }
    }

    /// Returns `true` if some memory was truncated since the last
    /// [`notice_truncation`](Self::notice_truncation).
    #[inline(always)]
    pub(crate) fn may_be_truncated(&self) -> bool {
        guestmem::guard::truncations() != self.truncations
    }

    /// Stops the ring if its memory was truncated since the last check.
    #[inline]
    pub(crate) fn notice_truncation(&mut self) {
        if self.may_be_truncated() {
            self.truncations = guestmem::guard::truncations();
            if self.translator.memory().is_truncated() {
                self.fault = Some(Fault::Truncated);
            }
        }
    }

    /// The staged buffers in order, and the arena of their further slices.
    #[inline]
    pub(crate) fn buffers(&self) -> (&[Buffer<'_>], &[GuestSlice<'_>]) {
        let staged = &self.staged[self.position..self.end];
        // SAFETY: only lifetimes change: from `'static`, which is for storage only, to that of this
        // borrow, during which the memory can be neither dropped nor replaced.
        unsafe {
            (
                transmute::<&[Buffer<'static>], &[Buffer<'_>]>(staged),
                transmute::<&[GuestSlice<'static>], &[GuestSlice<'_>]>(self.arena.as_slice()),
            )
        }
    }
}

/// Reads the header of `prefix` bytes at the front of a slice, once.
#[inline(always)]
fn header_of(slice: &GuestSlice<'_>, prefix: u32) -> ChainHeader {
    if prefix == HEADER_MAX && slice.len() >= HEADER_MAX {
        return slice.read(0);
    }
    let mut header = [0; _];
    slice.first(prefix).read_bytes(&mut header);
    header
}

// Buffers must stay small: they are read for every frame.
const _: () = assert!(size_of::<Buffer<'_>>() <= 32);
