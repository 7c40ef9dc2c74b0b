//! The device's side of a split ring.

use std::mem::transmute;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use guestmem::{Buffer, GuestMemory, GuestSlice, Translator};

use crate::chain::{self, CHAIN_BYTES_MAX, CHAIN_MAX, Fault, Walk};
use crate::event::Wish;
use crate::ring::{Addresses, Descriptor, Features, Ring, SetupError};

/// Most buffers handled together.
pub const BURST: usize = 64;

/// Slices beyond the first of all staged chains: room for a burst of usual ones, and always for
/// one of the longest.
const ARENA: usize = 2 * CHAIN_MAX;

/// What a ring's buffers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The device reads them; each begins with a header of so many bytes, which staging cuts off.
    Readable {
        /// Bytes.
        header: u32,
        /// Whether the header is kept, for [`DeviceQueue::headers`]; else it is not even read.
        keep: bool,
    },
    /// The device writes to them.
    Writable,
}

/// Room for what is staged. A queue has its own; a lane that serves many lends them its one, which
/// stays in its nearest cache where theirs would not: see [`DeviceQueue::swap_stage`].
#[derive(Debug)]
pub struct Stage(Box<[Buffer<'static>; BURST]>, Box<[Header; BURST]>);

/// The first bytes of a readable buffer, as far as the ring's header goes; the rest is zeros.
pub type Header = [u8; HEADER_MAX as usize];
/// The longest header that can be kept, bytes: that of virtio-net.
const HEADER_MAX: u32 = 12;

impl Default for Stage {
    fn default() -> Stage {
        Stage(Box::new([Buffer::EMPTY; BURST]), Box::new([[0; _]; BURST]))
    }
}

/// A guest's ring, as the daemon holds it. See the crate's documentation for the life of a buffer.
#[derive(Debug)]
pub struct DeviceQueue {
    ring: Ring,
    walk: Walk,
    event_idx: bool,
    /// Whether headers are kept.
    keep: bool,
    /// The next available entry to stage.
    next_avail: u16,
    /// The available index as last read: what is before it need not be asked for again.
    seen_avail: u16,
    /// The next used entry to write.
    next_used: u16,
    /// The used index as the guest sees it.
    published: u16,
    fault: Option<Fault>,
    truncations: u32,
    /// `staged[position..end]` are taken and not yet used.
    position: usize,
    end: usize,
    stage: Stage,
    arena: Vec<GuestSlice<'static>>,
    translator: Translator,
}

impl DeviceQueue {
    /// Takes over a ring. It goes on after the last used entry: everything before it is done, and
    /// nothing after it was begun, for buffers are used in order.
    pub fn new(
        memory: Arc<GuestMemory>,
        addresses: &Addresses,
        size: u16,
        features: Features,
        content: Content,
    ) -> Result<DeviceQueue, SetupError> {
        let ring = Ring::new(&memory, addresses, size)?;
        let next = ring.used_idx().load(Ordering::Acquire);
        let (writable, prefix, keep) = match content {
            Content::Readable { header, keep } => (false, header, keep),
            Content::Writable => (true, 0, false),
        };
        let mut queue = DeviceQueue {
            ring,
            walk: Walk { writable, prefix, indirect: features.contains(Features::INDIRECT) },
            event_idx: features.contains(Features::EVENT_IDX),
            keep,
            next_avail: next,
            seen_avail: next,
            next_used: next,
            published: next,
            fault: None,
            truncations: guestmem::guard::truncations().wrapping_sub(1),
            position: 0,
            end: 0,
            stage: Stage::default(),
            arena: Vec::with_capacity(ARENA),
            translator: Translator::new(memory),
        };
        queue.disarm();
        Ok(queue)
    }

    /// Takes buffers until `want` are staged or the guest has no more; says how many are staged.
    /// At most [`BURST`]. Stops before a chain that breaks the rules; see [`fault`](Self::fault).
    #[inline]
    pub fn stage(&mut self, want: usize) -> usize {
        let have = self.end - self.position;
        if have >= want || self.fault.is_some() {
            return have;
        }
        self.take(want.min(BURST))
    }

    /// Asks the cache for what the next [`stage`](Self::stage) of `n` will read.
    pub fn prefetch(&self, n: usize) {
        for i in 0..n.min(BURST) {
            let head = self.ring.avail_entry(self.next_avail.wrapping_add(i as u16));
            self.ring.prefetch_descriptor(head);
        }
    }

    /// Exchanges the room for staged buffers. What is staged is no more: the guest's buffers are
    /// taken again by the next [`stage`](Self::stage).
    #[inline]
    pub fn swap_stage(&mut self, stage: &mut Stage) {
        let left = self.end - self.position;
        self.next_avail = self.next_avail.wrapping_sub(left as u16);
        self.position = 0;
        self.end = 0;
        std::mem::swap(&mut self.stage, stage);
    }

    fn take(&mut self, want: usize) -> usize {
        self.make_room();
        let wanted = want - self.end;
        let mut ready = usize::from(self.seen_avail.wrapping_sub(self.next_avail));
        if ready < wanted {
            let seen = self.ring.avail_idx().load(Ordering::Acquire);
            ready = usize::from(seen.wrapping_sub(self.next_avail));
            if ready > usize::from(self.ring.size()) {
                // A ring that was truncated away reads as zeros: name the cause, not the effect.
                self.notice_truncation();
                self.fault.get_or_insert(Fault::IndexJump);
                return self.end;
            }
            self.seen_avail = seen;
        }
        let n = ready.min(wanted);
        if n == 0 {
            return self.end;
        }
        self.notice_truncation();
        let mut heads = [0u16; BURST];
        let ring = self.ring;
        for (i, head) in heads[..n].iter_mut().enumerate() {
            *head = ring.avail_entry(self.next_avail.wrapping_add(i as u16));
            ring.prefetch_descriptor(*head);
        }
        let mut heads = &heads[..n];
        while let [next, rest @ ..] = heads {
            if self.fault.is_some() || self.arena.len() > ARENA - CHAIN_MAX {
                break;
            }
            let simple = match self.keep {
                false => self.take_simple::<false>(heads),
                true => self.take_simple::<true>(heads),
            };
            match simple {
                0 => {
                    self.take_chain(*next);
                    heads = rest;
                }
                taken => heads = &heads[taken..],
            }
        }
        self.end
    }

    /// Stages the chains at the front of `heads` that nearly all are: one descriptor, in the region
    /// that was hit last. Says how many. Everything it needs is in locals, and so in registers.
    fn take_simple<const KEEP: bool>(&mut self, heads: &[u16]) -> usize {
        let (ring, walk, window) = (self.ring, self.walk, self.translator.last_hit());
        let (wanted, prefix, mask) = (walk.wanted_flags(), walk.prefix, ring.mask());
        let mut taken = 0;
        let headers = &mut self.stage.1[self.end..];
        for (i, (&head, place)) in heads.iter().zip(&mut self.stage.0[self.end..]).enumerate() {
            let piece = ring.descriptor(head);
            let simple = (piece.flags == wanted)
                & (head <= mask)
                & (piece.len > prefix)
                & (piece.len <= CHAIN_BYTES_MAX);
            let slice = window.slice(piece.addr, piece.len).filter(|_| simple);
            let Some(slice) = slice else { break };
            if KEEP {
                headers[i] = header_of(&slice, prefix);
            }
            // SAFETY: the translator keeps the memory, and `buffers` lends what is staged only
            // while the queue is borrowed.
            let slice = unsafe { slice.skip(prefix).forget_lifetime() };
            *place = Buffer::single(slice, head);
            // Of a frame to send, the lines of its first 65 bytes; of a buffer to receive into, two
            // lines, for what will come is not known. The hardware sees longer runs by itself.
            if walk.writable {
                slice.prefetch_write(0);
                slice.prefetch_write(64);
            } else {
                slice.prefetch_read(0);
                slice.prefetch_read((slice.len() - 1).min(64));
            }
            taken += 1;
        }
        self.end += taken;
        self.next_avail = self.next_avail.wrapping_add(taken as u16);
        taken
    }

    /// Stages any chain, or finds the fault in it. Nothing that [`take_simple`](Self::take_simple)
    /// read of it counts: it is judged by what is read here, once.
    #[cold]
    fn take_chain(&mut self, head: u16) {
        let buffer = if head > self.ring.mask() {
            Err(Fault::BadIndex)
        } else {
            let first = (head, self.ring.descriptor(head));
            let header = &mut self.stage.1[self.end & (BURST - 1)];
            let header = self.keep.then_some(header);
            let walk = (self.walk, header);
            chain::walk(&self.ring, &mut self.translator, &mut self.arena, first, walk)
        };
        match buffer {
            Ok(buffer) => {
                self.stage.0[self.end & (BURST - 1)] = buffer;
                self.end += 1;
                self.next_avail = self.next_avail.wrapping_add(1);
            }
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// Moves what is staged to the front, so that a whole burst fits behind it.
    fn make_room(&mut self) {
        self.stage.0.copy_within(self.position..self.end, 0);
        if self.keep {
            self.stage.1.copy_within(self.position..self.end, 0);
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
        let staged = &mut self.stage.0[..self.end];
        let first = staged.iter().find(|buffer| buffer.rest_len > 0);
        let unused = first.map_or(self.arena.len(), |buffer| usize::from(buffer.rest_start));
        self.arena.drain(..unused);
        for buffer in staged {
            buffer.rest_start = buffer.rest_start.saturating_sub(unused as u16);
        }
    }

    #[inline]
    fn notice_truncation(&mut self) {
        let truncations = guestmem::guard::truncations();
        if truncations != self.truncations {
            self.truncations = truncations;
            if self.translator.memory().is_truncated() {
                self.fault = Some(Fault::Truncated);
            }
        }
    }

    /// The staged buffers in order, and the arena of their further slices.
    #[inline]
    pub fn buffers(&self) -> (&[Buffer<'_>], &[GuestSlice<'_>]) {
        let staged = &self.stage.0[self.position..self.end];
        // SAFETY: only lifetimes change: from "for ever", which was a lie for storage, to that of
        // this borrow, during which the memory can be neither dropped nor replaced.
        unsafe {
            (
                transmute::<&[Buffer<'static>], &[Buffer<'_>]>(staged),
                transmute::<&[GuestSlice<'static>], &[GuestSlice<'_>]>(self.arena.as_slice()),
            )
        }
    }

    /// The headers that were cut off the staged buffers, in order, if they are kept.
    #[inline]
    pub fn headers(&self) -> &[Header] {
        if self.keep { &self.stage.1[self.position..self.end] } else { &[] }
    }

    /// Uses the next staged buffer, into which `len` bytes were written. The guest does not see it
    /// before [`publish`](Self::publish).
    ///
    /// # Panics
    /// If nothing is staged.
    #[inline]
    pub fn use_next(&mut self, len: u32) {
        assert!(self.position < self.end);
        let head = self.stage.0[self.position & (BURST - 1)].id;
        self.ring.set_used_entry(self.next_used, head, len);
        self.next_used = self.next_used.wrapping_add(1);
        self.position += 1;
    }

    /// Uses as many staged buffers as there are `lens`, each with so many bytes written into it.
    ///
    /// # Panics
    /// If fewer are staged.
    #[inline]
    pub fn use_each(&mut self, lens: &[u32]) {
        let (ring, next) = (self.ring, self.next_used);
        let staged = &self.stage.0[self.position..self.end][..lens.len()];
        for (i, (buffer, len)) in staged.iter().zip(lens).enumerate() {
            ring.set_used_entry(next.wrapping_add(i as u16), buffer.id, *len);
        }
        self.next_used = next.wrapping_add(lens.len() as u16);
        self.position += lens.len();
    }

    /// Takes the first `n` staged buffers off the stage unused, for an owner who has more of them in
    /// hand than are staged at a time. It must [use](Self::use_set_aside) them in this order, before
    /// any that are staged. They stay the guest's: a later owner of the ring takes them again.
    ///
    /// # Panics
    /// If fewer are staged.
    #[inline]
    pub fn set_aside(&mut self, n: usize) {
        assert!(n <= self.end - self.position);
        self.position += n;
    }

    /// Uses the oldest buffer that was set aside, by its [id](Buffer::id), with `len` bytes written.
    #[inline]
    pub fn use_set_aside(&mut self, id: u16, len: u32) {
        self.ring.set_used_entry(self.next_used, id, len);
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Uses all staged buffers, with nothing written into them.
    #[inline]
    pub fn use_all(&mut self) {
        self.use_each(&[0; BURST][..self.end - self.position]);
    }

    /// Shows what was used to the guest; says whether it wants to be notified of it.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_used);
        if old == new {
            return false;
        }
        self.ring.used_idx().store(new, Ordering::Release);
        self.published = new;
        let wish = Wish {
            flags: self.ring.avail_flags(),
            event: self.ring.used_event(),
            event_idx: self.event_idx,
        };
        wish.must_notify(old, new)
    }

    /// Asks the guest to kick when it makes the next buffer available; says whether one is there
    /// already (and the caller must not sleep).
    ///
    /// A ring that broke the rules never has one: it must not keep a lane awake.
    pub fn arm(&mut self) -> bool {
        if self.fault.is_some() {
            return false;
        }
        self.end > self.position || self.wish().arm(self.next_avail, self.ring.avail_idx())
    }

    /// Asks the guest not to kick: the ring is polled.
    pub fn disarm(&mut self) {
        self.wish().disarm(self.next_avail);
    }

    fn wish(&self) -> Wish<'_, std::sync::atomic::AtomicU16> {
        Wish {
            flags: self.ring.used_flags(),
            event: self.ring.avail_event(),
            event_idx: self.event_idx,
        }
    }

    /// The rule that was broken, if any: from then on nothing more is taken from the ring.
    #[inline]
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Where a later owner goes on: after the last used entry. Staged buffers stay the guest's.
    pub fn next_index(&self) -> u16 {
        self.published
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.ring.size()
    }

    /// Whether more buffers are available than were taken. Where the last look saw no more, it looks
    /// again: a guest that keeps its ring full has posted others meanwhile.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.seen_avail != self.next_avail
            || self.ring.avail_idx().load(Ordering::Relaxed) != self.next_avail
    }
}

/// Reads the header of `prefix` bytes at the front of a slice, once.
#[inline(always)]
fn header_of(slice: &GuestSlice<'_>, prefix: u32) -> Header {
    if prefix == HEADER_MAX && slice.len() >= HEADER_MAX {
        return slice.read(0);
    }
    let mut header = [0; _];
    slice.first(prefix).read_bytes(&mut header);
    header
}

// The pieces that single descriptors are made of must stay small: they are read for every frame.
const _: () = assert!(Descriptor::SIZE == 16 && size_of::<Buffer<'_>>() <= 32);
