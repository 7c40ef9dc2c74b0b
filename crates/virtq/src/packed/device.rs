//! The device's side of a packed ring.

use std::sync::atomic::{AtomicU32, Ordering};

use guestmem::{Buffer, Ticket};

use super::event::EventSuppression;
use super::position::PackedPosition;
use super::ring::{PackedRing, Word};
use crate::chain::{CHAIN_MAX, Chain, Table};
use crate::crash;
use crate::fault::Fault;
use crate::inflight::{InflightRecord, Publication};
use crate::log::WriteLog;
use crate::ring::Descriptor;
use crate::staging::Staging;
use crate::start::Position;

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

    /// Stages up to `wanted` buffers behind those that are staged.
    pub(crate) fn take(&mut self, staging: &mut Staging, wanted: usize) {
        // A truncated ring reads as zeros, and so as empty: only this check detects it.
        staging.notice_truncation();
        let end = staging.end + wanted;
        while staging.end < end && staging.takes_more() {
            let n = (end - staging.end).min(self.room().into());
            let taken = match (staging.format.writable, staging.keep) {
                (true, _) => self.take_simple::<true, false>(staging, n),
                (false, false) => self.take_simple::<false, false>(staging, n),
                (false, true) => self.take_simple::<false, true>(staging, n),
            };
            // The next buffer is not available, or not simple.
            if taken == n || !self.take_chain(staging) {
                break;
            }
        }
    }

    /// Stages up to `n` of the next buffers while they are the usual case: one descriptor, in the
    /// region of the last hit. Returns their number. Its state is in locals, and so in registers.
    #[inline(always)]
    fn take_simple<const WRITABLE: bool, const KEEP: bool>(
        &mut self,
        staging: &mut Staging,
        n: usize,
    ) -> usize {
        let (ring, format, window) = (self.ring, staging.format, staging.translator.last_hit());
        let (wanted, size) = (format.wanted_flags(), ring.size());
        let mut at = self.next_avail;
        let mut taken = 0;
        let places =
            staging.staged[staging.end..].iter_mut().zip(&mut staging.headers[staging.end..]);
        for place in places.take(n) {
            let word = ring.word(at.index());
            if word.telling_flags() != wanted | Word::available_flags(at) {
                break;
            }
            let range = (ring.addr(at.index()), word.len(), word.id());
            if !Staging::put_simple::<WRITABLE, KEEP>((format, window), place, range) {
                break;
            }
            taken += 1;
            at = at.advance(1, size);
        }
        self.next_avail = at;
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
        self.pending.extend(staged.iter().zip(lens).map(|(buffer, len)| {
            let Ticket { id, descriptors } = buffer.ticket;
            let pending = Pending::new(*len, id, at);
            at = at.advance(descriptors, size);
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
            inflight.begin(old.0, new.0, self.pending.iter().map(|pending| pending.0));
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

/// Position of a ring from the record of its last owner; completes a publication that was cut
/// short. `None` without a record of this ring: a driver may have set it up again since.
pub(crate) fn recover(ring: &PackedRing, inflight: &InflightRecord) -> Option<PackedPosition> {
    let size = ring.size();
    // A device writes the event area first; a driver that sets up a ring zeroes it.
    if ring.device_events().load(Ordering::Relaxed) == 0 {
        return None;
    }
    let Publication { old, new, count } = inflight.last()?;
    let (old, new) = (PackedPosition(old), PackedPosition(new));
    if old.index() >= size || new.index() >= size {
        return None;
    }
    if count == 0 || !ring.word(old.index()).is_available(old) {
        return Some(new); // complete: its first descriptor is written last
    }
    let pending: Vec<_> = (0..count).map(|i| Pending(inflight.entry(i))).collect();
    // Positions must ascend from `old` and stay below `new`: else the record is not valid.
    let mut free = 0;
    for (i, pending) in pending.iter().enumerate() {
        let place = pending.place();
        let at = old.distance(place, size);
        let is_next = if i == 0 { at == 0 } else { at >= free };
        if place.index() >= size || !is_next || at >= old.distance(new, size) {
            return Some(old);
        }
        free = at + 1;
    }
    show(ring, &pending);
    Some(new)
}

/// Appends the buffer whose first descriptor is `first`: a list of at most `room` descriptors, or
/// one indirect table. "Buffer ID ... is included in the last descriptor in the list" (section
/// 2.8.6).
fn follow(
    ring: &PackedRing,
    chain: &mut Chain<'_>,
    (mut at, mut word): (PackedPosition, Word),
    room: u16,
) -> Result<Ticket, Fault> {
    let longest = CHAIN_MAX.min(room.into());
    let mut descriptors = 0;
    loop {
        let (addr, len, flags) = (ring.addr(at.index()), word.len(), word.flags());
        descriptors += 1;
        let piece = Descriptor { addr, len, flags, next: 0 };
        if flags & Descriptor::INDIRECT != 0 {
            // "A driver MUST NOT write direct descriptors with VIRTQ_DESC_F_INDIRECT set in a
            // scatter-gather list linked by VIRTQ_DESC_F_NEXT" (section 2.8.17).
            if descriptors > 1 {
                return Err(Fault::BadIndirect);
            }
            follow_table(chain, piece)?;
        } else {
            chain.append(piece)?;
        }
        if flags & Descriptor::NEXT == 0 {
            return Ok(Ticket { id: word.id(), descriptors });
        }
        if usize::from(descriptors) >= longest {
            return Err(Fault::ChainTooLong);
        }
        at = at.advance(1, ring.size());
        word = ring.word(at.index());
    }
}

/// Appends all entries of a table, in their order: there are no links in it, and of their flags
/// only that of the direction has a meaning (section 2.8.7).
fn follow_table(chain: &mut Chain<'_>, outer: Descriptor) -> Result<(), Fault> {
    let table = Table::new(chain, outer)?;
    if usize::from(table.entries) > CHAIN_MAX {
        return Err(Fault::ChainTooLong);
    }
    for index in 0..table.entries {
        let [addr, word] = table.words(index);
        let (len, flags) = (Word(word).len(), Word(word).flags());
        if flags & Descriptor::INDIRECT != 0 {
            return Err(Fault::BadIndirect); // a table inside a table
        }
        chain.append(Descriptor { addr, len, flags, next: 0 })?;
    }
    Ok(())
}
