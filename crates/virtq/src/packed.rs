//! Packed rings: virtio 1.2, section 2.8.
//!
//! [`PackedRing`] is the ring in memory, for both sides; [`PackedDevice`] is the device's side.

mod chain;
mod driver;
pub(crate) mod event;
mod recover;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use guestmem::{Buffer, CacheLine, GuestMemory, Ticket};

use self::chain::follow;
use self::event::EventSuppression;
use crate::crash;
use crate::device::Staging;
use crate::inflight::{InflightRecord, Publication};
use crate::log::WriteLog;
use crate::ring::{Addresses, Descriptor, RING_SIZE_MAX, SetupError, part};
use crate::start::Position;

pub(crate) use self::driver::PackedDriver;
pub(crate) use self::recover::recover;

/// Position in a ring: the index in bits 0 to 14, the wrap counter in bit 15, as in the event areas
/// and in vhost-user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedPosition(pub(crate) u16);

impl PackedPosition {
    const WRAP: u16 = 1 << 15;
    /// "Each of the driver and the device maintains ... a single-bit ring wrap counter initialized
    /// to 1" (section 2.8.1).
    pub(crate) const FIRST: PackedPosition = PackedPosition(PackedPosition::WRAP);

    #[inline(always)]
    pub(crate) fn index(self) -> u16 {
        self.0 & !PackedPosition::WRAP
    }

    #[inline(always)]
    pub(crate) fn wrap(self) -> bool {
        self.0 & PackedPosition::WRAP != 0
    }

    /// `n` descriptors further, at most `size`; its own index is below `size`.
    #[inline(always)]
    pub(crate) fn advance(self, n: u16, size: u16) -> PackedPosition {
        let next = u32::from(self.index()) + u32::from(n);
        match next < u32::from(size) {
            true => PackedPosition(self.0 + n),
            false => {
                PackedPosition((next - u32::from(size)) as u16 | !self.0 & PackedPosition::WRAP)
            }
        }
    }

    /// Descriptors from `self` to `to`, which is at most a ring ahead.
    #[inline(always)]
    pub(crate) fn distance(self, to: PackedPosition, size: u16) -> u16 {
        match self.wrap() == to.wrap() {
            true => to.index().wrapping_sub(self.index()),
            false => (size - self.index()).wrapping_add(to.index()),
        }
    }

    /// Start of a ring of `size` for the front-end's `base`: the next descriptor to use, since
    /// those taken and not used are taken again. DPDK's front-end and back-end give the lower half
    /// only. `None` if it is outside the ring.
    pub(crate) fn of(base: Position, size: u16) -> Option<PackedPosition> {
        let (avail, used) = (PackedPosition(base as u16), PackedPosition((base >> 16) as u16));
        let place = if used.0 == 0 { avail } else { used };
        (place.index() < size).then_some(place)
    }

    /// Both halves of a position.
    pub(crate) fn position(self) -> Position {
        Position::from(self.0) | Position::from(self.0) << 16
    }
}

/// Flags of a descriptor that depend on the wrap counter (section 2.8.1).
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// Second word of a descriptor: length, id and flags. Written last and whole, since it passes the
/// descriptor to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    #[inline(always)]
    pub(crate) fn new(len: u32, id: u16, flags: u16) -> Word {
        Word(u64::from(len) | u64::from(id) << 32 | u64::from(flags) << 48)
    }

    /// A descriptor that the driver makes available at `place`.
    #[inline(always)]
    pub(crate) fn available(len: u32, id: u16, flags: u16, place: PackedPosition) -> Word {
        Word::new(len, id, flags | Word::available_flags(place))
    }

    /// A used descriptor at `place`, with `len` bytes written into its buffer: "the device ... sets
    /// the VIRTQ_DESC_F_WRITE flag" if there are any, else `len` has no meaning (2.8.5).
    #[inline(always)]
    pub(crate) fn used(len: u32, id: u16, place: PackedPosition) -> Word {
        let write = if len > 0 { Descriptor::WRITE } else { 0 };
        Word::new(len, id, write | Word::used_flags(place))
    }

    /// AVAIL and USED flags of a descriptor that is available at `place`.
    #[inline(always)]
    pub(crate) fn available_flags(place: PackedPosition) -> u16 {
        if place.wrap() { AVAIL } else { USED }
    }

    #[inline(always)]
    fn used_flags(place: PackedPosition) -> u16 {
        if place.wrap() { AVAIL | USED } else { 0 }
    }

    #[inline(always)]
    pub(crate) fn len(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) fn id(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline(always)]
    pub(crate) fn flags(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Flags that the device must check.
    #[inline(always)]
    pub(crate) fn telling_flags(self) -> u16 {
        const DIRECT: u16 = Descriptor::NEXT | Descriptor::WRITE | Descriptor::INDIRECT;
        self.flags() & (AVAIL | USED | DIRECT)
    }

    #[inline(always)]
    pub(crate) fn is_available(self, place: PackedPosition) -> bool {
        self.flags() & (AVAIL | USED) == Word::available_flags(place)
    }

    #[inline(always)]
    pub(crate) fn is_used(self, place: PackedPosition) -> bool {
        self.flags() & (AVAIL | USED) == Word::used_flags(place)
    }

    /// Bytes written, as the device claims.
    #[inline(always)]
    pub(crate) fn written(self) -> u32 {
        if self.flags() & Descriptor::WRITE != 0 { self.len() } else { 0 }
    }
}

/// A descriptor in a ring's memory, inside the ring.
#[derive(Clone, Copy)]
struct Slot(*mut u64);

impl Slot {
    /// The second word, with acquire order: read the first word after it.
    #[inline(always)]
    fn word(&self) -> Word {
        Word(self.shared().load(Ordering::Acquire))
    }

    /// The first word: the address of the buffer.
    #[inline(always)]
    fn addr(&self) -> u64 {
        // SAFETY: inside the descriptor; aligned.
        unsafe { self.0.read_volatile() }
    }

    #[inline(always)]
    fn shared(&self) -> &AtomicU64 {
        // SAFETY: the second word is inside the descriptor, and aligned.
        unsafe { AtomicU64::from_ptr(self.0.add(1)) }
    }
}

/// The three parts of a packed ring in memory (sections 2.8.10, 2.8.13 and 2.8.14): pointers, every
/// access within bounds, since callers' indices are below the size.
///
/// The memory behind must outlive it: its owner keeps the memory beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedRing {
    size: u16,
    desc: *mut [u64; 2],
    /// Event suppression areas of the driver and of the device.
    driver: *mut u32,
    device: *mut u32,
}

// SAFETY: shared memory, accessed by volatile and atomic accesses only.
unsafe impl Send for PackedRing {}

impl PackedRing {
    /// Checks size, ranges and alignment.
    pub(crate) fn new(
        memory: &GuestMemory,
        addresses: &Addresses,
        size: u16,
    ) -> Result<PackedRing, SetupError> {
        if size == 0 || size > RING_SIZE_MAX {
            return Err(SetupError::PackedSize(size));
        }
        let bytes = Descriptor::SIZE * usize::from(size);
        let part = |name, addr, bytes, align| part(memory, (name, addr), (bytes, align));
        Ok(PackedRing {
            size,
            desc: part("descriptor ring", addresses.desc, bytes, 16)?.cast(),
            driver: part("driver event area", addresses.avail, 4, 4)?.cast(),
            device: part("device event area", addresses.used, 4, 4)?.cast(),
        })
    }

    /// Entries.
    #[inline(always)]
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// The descriptor at `index`.
    #[inline(always)]
    fn slot(&self, index: u16) -> Slot {
        assert!(index < self.size);
        // SAFETY: inside the ring that `new` checked.
        Slot(unsafe { self.desc.add(usize::from(index)).cast() })
    }

    /// The descriptors from `index` on that follow without a wrap, at most `n`.
    #[inline(always)]
    fn run(&self, index: u16, n: usize) -> impl Iterator<Item = Slot> {
        let n = n.min(usize::from(self.size.saturating_sub(index)));
        let first = self.desc.wrapping_add(usize::from(index));
        // SAFETY: the run ends at the latest with the last descriptor.
        (0..n).map(move |i| Slot(unsafe { first.add(i).cast() }))
    }

    /// As [`Slot::word`], of the descriptor at `index`.
    #[inline(always)]
    pub(crate) fn word(&self, index: u16) -> Word {
        self.slot(index).word()
    }

    /// Passes the descriptor at `index`, and all earlier stores, to the other side (release order).
    #[inline(always)]
    pub(crate) fn hand_over(&self, index: u16, word: Word) {
        self.slot(index).shared().store(word.0, Ordering::Release);
    }

    /// Writes the second word of a descriptor that the other side does not read before a later
    /// [`hand_over`](Self::hand_over).
    #[inline(always)]
    pub(crate) fn set_word(&self, index: u16, word: Word) {
        self.slot(index).shared().store(word.0, Ordering::Relaxed);
    }

    /// The address in the descriptor at `index`.
    #[inline(always)]
    pub(crate) fn addr(&self, index: u16) -> u64 {
        self.slot(index).addr()
    }

    #[inline(always)]
    pub(crate) fn set_addr(&self, index: u16, addr: u64) {
        // SAFETY: inside the descriptor; aligned.
        unsafe { self.slot(index).0.write_volatile(addr) }
    }

    /// Event suppression area of the driver.
    #[inline(always)]
    pub(crate) fn driver_events(&self) -> &AtomicU32 {
        // SAFETY: `new` checked size and alignment.
        unsafe { AtomicU32::from_ptr(self.driver) }
    }

    /// Event suppression area of the device.
    #[inline(always)]
    pub(crate) fn device_events(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.device) }
    }
}

/// Size of the device's event area, bytes (section 2.8.14).
const EVENT_AREA: u64 = 4;

/// State of the device in a packed ring.
#[derive(Debug)]
pub(crate) struct PackedDevice {
    ring: PackedRing,
    event_idx: bool,
    /// One used descriptor a publication, with the id of its last buffer: `VIRTIO_F_IN_ORDER`, for
    /// buffers with no written length (section 2.8.8).
    in_one: bool,
    /// Next descriptor to take, next to use, and next as published to the guest.
    next_avail: PackedPosition,
    next_used: PackedPosition,
    published: PackedPosition,
    /// Used descriptors that are not yet published. A used descriptor overwrites an available one,
    /// which the next owner needs after a crash. So they are written only at publication.
    pending: Vec<Pending>,
}

/// Used descriptor that is not yet written: length, id and position, laid out as in a [`Word`].
#[derive(Clone, Copy, Debug)]
struct Pending(u64);

impl Pending {
    #[inline(always)]
    fn new(len: u32, id: u16, place: PackedPosition) -> Pending {
        Pending(Word::new(len, id, place.0).0)
    }

    #[inline(always)]
    fn place(self) -> PackedPosition {
        PackedPosition(Word(self.0).flags())
    }

    #[inline(always)]
    fn word(self) -> Word {
        let Pending(word) = self;
        Word::used(Word(word).len(), Word(word).id(), self.place())
    }
}

impl PackedDevice {
    /// Continues at `place`, whose index is in the ring.
    pub(crate) fn new(
        ring: PackedRing,
        place: PackedPosition,
        event_idx: bool,
        in_one: bool,
    ) -> PackedDevice {
        PackedDevice {
            ring,
            event_idx,
            in_one,
            next_avail: place,
            next_used: place,
            published: place,
            // Maximum: each used descriptor takes a descriptor.
            pending: Vec::with_capacity(ring.size().into()),
        }
    }

    /// Descriptors that the guest can have made available: those taken and not yet published are
    /// not among them.
    #[inline(always)]
    fn room(&self) -> u16 {
        self.ring.size() - self.published.distance(self.next_avail, self.ring.size())
    }

    /// Lines of the next descriptor, and of those behind it.
    #[inline]
    pub(crate) fn next_lines(&self) -> [CacheLine; 2] {
        let next = self.ring.desc.wrapping_add(usize::from(self.next_avail.index()));
        [CacheLine::of(next), CacheLine::of(next).plus(1)]
    }

    /// Stages up to `wanted` buffers behind those that are staged.
    pub(crate) fn take(&mut self, staging: &mut Staging, wanted: usize) {
        let end = staging.end + wanted;
        while staging.end < end && staging.takes_more() {
            let n = (end - staging.end).min(self.room().into());
            let n = n.min(usize::from(self.ring.size() - self.next_avail.index()));
            if n == 0 {
                break;
            }
            let taken = match (staging.format.writable, staging.keep) {
                (true, _) => self.take_simple::<true, false>(staging, n),
                (false, false) => self.take_simple::<false, false>(staging, n),
                (false, true) => self.take_simple::<false, true>(staging, n),
            };
            // The next buffer is not available, or not simple.
            if taken < n && !self.take_chain(staging) {
                break;
            }
        }
    }

    /// Stages up to `n` of the next buffers, without a wrap, while they are the usual case: one
    /// descriptor, in the region of the last hit. Returns their number. Its state is in locals, and
    /// so in registers.
    #[inline(always)]
    fn take_simple<const WRITABLE: bool, const KEEP: bool>(
        &mut self,
        staging: &mut Staging,
        n: usize,
    ) -> usize {
        let (ring, format, window) = (self.ring, staging.format, staging.translator.last_hit());
        let at = self.next_avail;
        let wanted = format.wanted_flags() | Word::available_flags(at);
        let mut taken = 0;
        let places =
            staging.staged[staging.end..].iter_mut().zip(&mut staging.headers[staging.end..]);
        for (slot, place) in ring.run(at.index(), n).zip(places) {
            let word = slot.word();
            if word.telling_flags() != wanted {
                break;
            }
            let range = (slot.addr(), word.len(), word.id());
            if !Staging::put_simple::<WRITABLE, KEEP>((format, window), place, range) {
                break;
            }
            taken += 1;
        }
        self.next_avail = at.advance(taken as u16, ring.size());
        staging.end += taken;
        taken
    }

    /// Stages the next buffer of any form, or records its fault; returns `true` if one was taken.
    /// Reads it again: values read by [`take_simple`](Self::take_simple) do not count.
    fn take_chain(&mut self, staging: &mut Staging) -> bool {
        let (ring, at, room) = (self.ring, self.next_avail, self.room());
        if room == 0 {
            return false;
        }
        let first = ring.word(at.index());
        if !first.is_available(at) {
            return false;
        }
        let ticket = staging.put_chain(|chain| follow(&ring, chain, (at, first), room));
        if let Some(Ticket { descriptors, .. }) = ticket {
            self.next_avail = at.advance(descriptors, ring.size());
        }
        ticket.is_some()
    }

    #[inline(always)]
    pub(crate) fn add_used(&mut self, ticket: Ticket, len: u32) {
        let at = self.next_used;
        self.next_used = at.advance(ticket.descriptors, self.ring.size());
        match self.pending.first_mut() {
            Some(pending) if self.in_one => *pending = Pending::new(0, ticket.id, pending.place()),
            _ => self.pending.push(Pending::new(len, ticket.id, at)),
        }
    }

    #[inline(always)]
    pub(crate) fn add_used_batch(&mut self, staged: &[Buffer<'static>], lens: &[u32]) {
        let (mut at, size) = (self.next_used, self.ring.size());
        if self.in_one {
            // As one buffer of all their descriptors, with the id of the last.
            if let (Some(last), [len, more @ ..]) = (staged.last(), lens) {
                let descriptors = staged.iter().map(|buffer| buffer.ticket.descriptors).sum();
                let len = if more.is_empty() { *len } else { 0 };
                self.add_used(Ticket { id: last.ticket.id, descriptors }, len);
            }
            return;
        }
        // The place is in a local, and the list's room is checked once a batch.
        let mut left = i32::from(size) - i32::from(at.index());
        self.pending.extend(staged.iter().zip(lens).map(|(buffer, len)| {
            let Ticket { id, descriptors } = buffer.ticket;
            let pending = Pending::new(*len, id, at);
            left -= i32::from(descriptors);
            at = match left > 0 {
                true => PackedPosition(at.0 + descriptors),
                false => {
                    left += i32::from(size);
                    at.advance(descriptors, size)
                }
            };
            pending
        }));
        self.next_used = at;
    }

    /// Writes the used descriptors: all but the first, then the first, on which the guest waits.
    /// Returns `true` if the guest wants a notification.
    #[inline(always)]
    pub(crate) fn publish(&mut self, inflight: Option<&InflightRecord>) -> bool {
        let (old, new) = (self.published, self.next_used);
        if self.pending.is_empty() {
            return false;
        }
        if let Some(inflight) = inflight {
            for (entry, pending) in inflight.entries().iter().zip(&self.pending) {
                crash::point();
                entry.store(pending.0, Ordering::Relaxed);
            }
            let count = self.pending.len() as u16;
            inflight.begin(Publication { old: old.0, new: new.0, count });
        }
        show(&self.ring, &self.pending);
        self.pending.clear();
        self.published = new;
        let suppression =
            EventSuppression { area: self.ring.driver_events(), event_idx: self.event_idx };
        suppression.needs_notification(old, new, self.ring.size())
    }

    pub(crate) fn enable_notification(&mut self) -> bool {
        self.event_suppression().enable_notification(self.next_avail, || self.has_backlog())
    }

    pub(crate) fn disable_notification(&mut self) {
        self.event_suppression().disable_notification();
    }

    /// Logs the descriptors that [`publish`](Self::publish) wrote since `from`.
    pub(crate) fn log_published(&self, log: &WriteLog, from: Position) {
        let (from, size) = (PackedPosition(from as u16), self.ring.size());
        let count = from.distance(self.published, size).min(size);
        let run = count.min(size - from.index());
        let bytes = |descriptors: u16| (Descriptor::SIZE as u64) * u64::from(descriptors);
        log.descriptors(bytes(from.index()), bytes(run));
        log.descriptors(0, bytes(count - run));
    }

    /// Logs all descriptors: [`recover`], or a former owner that died, may have written them.
    pub(crate) fn log_shown(&self, log: &WriteLog) {
        log.descriptors(0, Descriptor::SIZE as u64 * u64::from(self.ring.size()));
    }

    /// Logs the event area, which [`enable_notification`](Self::enable_notification) and
    /// [`disable_notification`](Self::disable_notification) write.
    pub(crate) fn log_event_suppression(&self, log: &WriteLog) {
        log.used(0, EVENT_AREA);
    }

    fn event_suppression(&self) -> EventSuppression<'_, AtomicU32> {
        EventSuppression { area: self.ring.device_events(), event_idx: self.event_idx }
    }

    pub(crate) fn position(&self) -> Position {
        self.published.position()
    }

    pub(crate) fn size(&self) -> u16 {
        self.ring.size()
    }

    #[inline(always)]
    pub(crate) fn has_backlog(&self) -> bool {
        let at = self.next_avail;
        self.room() > 0 && self.ring.word(at.index()).is_available(at)
    }
}

/// Writes used descriptors, the first one last.
#[inline(always)]
fn show(ring: &PackedRing, pending: &[Pending]) {
    let [first, rest @ ..] = pending else { return };
    for pending in rest {
        crash::point();
        ring.set_word(pending.place().index(), pending.word());
    }
    crash::point();
    ring.hand_over(first.place().index(), first.word());
}
