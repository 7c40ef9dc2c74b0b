//! The driver's side of a packed ring.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use guestmem::GuestMemory;

use super::event::EventSuppression;
use super::{PackedPosition, PackedRing, Word};
use crate::pool::{DescriptorPool, Segment, Used};
use crate::ring::{Addresses, Descriptor, Features, SetupError};

/// State of the driver in a packed ring. A buffer's id is its first descriptor in the pool, which
/// is not its position in the ring.
#[derive(Debug)]
pub(crate) struct PackedDriver {
    ring: PackedRing,
    event_idx: bool,
    next_avail: PackedPosition,
    published: PackedPosition,
    /// Second word of the first unpublished descriptor: it is written last.
    unpublished: Word,
    next_used: PackedPosition,
    /// Contents of each descriptor in the pool: the device may overwrite those in the ring.
    contents: Vec<Descriptor>,
    /// With `VIRTIO_F_IN_ORDER`: the buffers in flight, in order.
    in_order: Option<VecDeque<u16>>,
    /// Last buffer and bytes of a batch that the device used by one descriptor, until it is reaped.
    batch: Option<Used>,
}

impl PackedDriver {
    pub(crate) fn new(
        memory: &GuestMemory,
        addresses: &Addresses,
        size: u16,
        features: Features,
    ) -> Result<PackedDriver, SetupError> {
        let ring = PackedRing::new(memory, addresses, size)?;
        for index in 0..size {
            ring.set_word(index, Word(0));
        }
        ring.device_events().store(0, Ordering::Relaxed);
        let empty = Descriptor { addr: 0, len: 0, flags: 0, next: 0 };
        let in_order = features.contains(Features::IN_ORDER);
        Ok(PackedDriver {
            ring,
            event_idx: features.contains(Features::EVENT_IDX),
            next_avail: PackedPosition::FIRST,
            published: PackedPosition::FIRST,
            unpublished: Word(0),
            next_used: PackedPosition::FIRST,
            contents: vec![empty; usize::from(size)],
            in_order: in_order.then(|| VecDeque::with_capacity(size.into())),
            batch: None,
        })
    }

    /// Makes the buffer of one descriptor available.
    #[inline]
    pub(crate) fn offer(&mut self, head: u16, descriptor: Descriptor) {
        self.contents[usize::from(head)] = descriptor;
        self.write(head, descriptor);
        self.note(head);
    }

    pub(crate) fn offer_chain(&mut self, heads: &[u16], pieces: &[Segment]) {
        for (i, (piece, &index)) in pieces.iter().zip(heads).enumerate() {
            let mut descriptor = piece.descriptor();
            if i + 1 < heads.len() {
                descriptor.flags |= Descriptor::NEXT;
            }
            self.contents[usize::from(index)] = descriptor;
            self.write(heads[0], descriptor);
        }
        self.note(heads[0]);
    }

    /// Writes the next descriptor of buffer `id`. The device waits for the first unpublished one,
    /// so the others may be visible early.
    #[inline]
    fn write(&mut self, id: u16, Descriptor { addr, len, flags, .. }: Descriptor) {
        let at = self.next_avail;
        let word = Word::available(len, id, flags, at);
        self.ring.set_addr(at.index(), addr);
        if at == self.published {
            self.unpublished = word;
        } else {
            self.ring.set_word(at.index(), word);
        }
        self.next_avail = at.advance(1, self.ring.size());
    }

    #[inline]
    fn note(&mut self, head: u16) {
        if let Some(in_order) = &mut self.in_order {
            in_order.push_back(head);
        }
    }

    /// Words of an indirect table entry.
    pub(crate) fn entry(&self, piece: Descriptor, _next: u16, _is_last: bool) -> [u64; 2] {
        [piece.addr, Word::new(piece.len, 0, piece.flags).0]
    }

    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_avail);
        if old == new {
            return false;
        }
        self.ring.hand_over(old.index(), self.unpublished);
        self.published = new;
        let suppression =
            EventSuppression { area: self.ring.device_events(), event_idx: self.event_idx };
        suppression.needs_notification(old, new, self.ring.size())
    }

    /// The used descriptor at `place`, if the device has written one.
    #[inline]
    fn used_at(&self, place: PackedPosition) -> Option<Word> {
        Some(self.ring.word(place.index())).filter(|word| word.is_used(place))
    }

    pub(crate) fn used_len(&self, pool: &DescriptorPool) -> u16 {
        let size = self.ring.size();
        let mut order = self.in_order.iter().flatten().copied();
        // Number of buffers up to `last`, which is in flight, and of their descriptors.
        let mut batch = |last: u16| -> (u16, u16) {
            let length = pool.length(last.into());
            let before = order.by_ref().take_while(|id| *id != last);
            before.fold((1, length), |(n, sum), id| (n + 1, sum + pool.length(id.into())))
        };
        let (mut n, mut place) = (0, self.next_used);
        if let Some(Used { id, .. }) = self.batch {
            let (buffers, descriptors) = batch(id);
            (n, place) = (buffers, place.advance(descriptors, size));
        }
        for _ in 0..size {
            let Some(word) = self.used_at(place) else { break };
            let (buffers, descriptors) = match pool.length(word.id().into()) {
                0 => (0, 1),
                _ if self.in_order.is_some() => batch(word.id()),
                length => (1, length),
            };
            (n, place) = (n.saturating_add(buffers), place.advance(descriptors, size));
        }
        n
    }

    #[inline]
    pub(crate) fn reap(&mut self, pool: &mut DescriptorPool, out: &mut [Used]) -> usize {
        let mut n = 0;
        // Bounded, even if the device writes meanwhile.
        for _ in 0..self.ring.size() {
            if n == out.len() {
                break;
            }
            if let Some(used) = self.next(pool) {
                let length = pool.release(used.id.into());
                self.next_used = self.next_used.advance(length, self.ring.size());
                out[n] = used;
                n += 1;
            } else if !self.skip_stray(pool) {
                break;
            }
        }
        n
    }

    #[inline]
    pub(crate) fn recycle(&mut self, pool: &mut DescriptorPool) -> u16 {
        let size = self.ring.size();
        let mut n = 0;
        for _ in 0..size {
            if let Some(Used { id, .. }) = self.next(pool) {
                self.next_used = self.next_used.advance(pool.length(id.into()), size);
                for index in pool.chain(id) {
                    self.write(id, self.contents[usize::from(index)]);
                }
                self.note(id);
                n += 1;
            } else if !self.skip_stray(pool) {
                break;
            }
        }
        n
    }

    /// The next used buffer, if it is one in flight.
    #[inline]
    fn next(&mut self, pool: &DescriptorPool) -> Option<Used> {
        let Some(in_order) = &mut self.in_order else {
            let word = self.used_at(self.next_used)?;
            let is_ours = pool.length(word.id().into()) > 0;
            return is_ours.then_some(Used { id: word.id(), len: word.written() });
        };
        // "The driver needs to look up the used Buffer ID and calculate the batch size" (2.8.8).
        let batch = match self.batch {
            Some(batch) => batch,
            None => {
                let place = self.next_used;
                let word = self.ring.word(place.index());
                if !word.is_used(place) || pool.length(word.id().into()) == 0 {
                    return None;
                }
                Used { id: word.id(), len: word.written() }
            }
        };
        let id = in_order.pop_front()?;
        self.batch = Some(batch).filter(|batch| batch.id != id);
        Some(if id == batch.id { batch } else { Used { id, len: 0 } })
    }

    /// Skips one used descriptor that names no buffer in flight. Returns `true` if the caller must
    /// look again: also if a valid one came meanwhile.
    #[cold]
    fn skip_stray(&mut self, pool: &mut DescriptorPool) -> bool {
        let Some(word) = self.used_at(self.next_used) else { return false };
        if pool.length(word.id().into()) == 0 {
            pool.strays += 1;
            self.next_used = self.next_used.advance(1, self.ring.size());
        }
        true
    }

    pub(crate) fn enable_notification(&mut self) -> bool {
        let place = self.next_used;
        let batch = self.batch.is_some();
        self.event_suppression()
            .enable_notification(place, || batch || self.used_at(place).is_some())
    }

    pub(crate) fn disable_notification(&mut self) {
        self.event_suppression().disable_notification();
    }

    fn event_suppression(&self) -> EventSuppression<'_, AtomicU32> {
        EventSuppression { area: self.ring.driver_events(), event_idx: self.event_idx }
    }
}
