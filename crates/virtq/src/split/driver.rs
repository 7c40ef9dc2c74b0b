//! The driver's side of a split ring.

use std::sync::atomic::{AtomicU16, Ordering};

use guestmem::GuestMemory;

use super::SplitRing;
use super::event::EventSuppression;
use crate::pool::{DescriptorPool, Segment, Used};
use crate::ring::{Addresses, Descriptor, Features, SetupError};

/// State of the driver in a split ring.
#[derive(Debug)]
pub(crate) struct SplitDriver {
    ring: SplitRing,
    event_idx: bool,
    next_avail: u16,
    published: u16,
    next_used: u16,
}

impl SplitDriver {
    pub(crate) fn new(
        memory: &GuestMemory,
        addresses: &Addresses,
        size: u16,
        features: Features,
    ) -> Result<SplitDriver, SetupError> {
        let ring = SplitRing::new(memory, addresses, size)?;
        for word in [ring.avail_idx(), ring.used_idx(), ring.avail_flags(), ring.used_flags()] {
            word.store(0, Ordering::Relaxed);
        }
        let event_idx = features.contains(Features::EVENT_IDX);
        Ok(SplitDriver { ring, event_idx, next_avail: 0, published: 0, next_used: 0 })
    }

    /// Makes the buffer of one descriptor available.
    #[inline]
    pub(crate) fn offer(&mut self, head: u16, descriptor: Descriptor) {
        self.ring.set_descriptor(head, descriptor);
        self.offer_head(head);
    }

    pub(crate) fn offer_chain(&mut self, heads: &[u16], pieces: &[Segment]) {
        for (i, (piece, &index)) in pieces.iter().zip(heads).enumerate() {
            let mut descriptor = piece.descriptor();
            if let Some(next) = heads.get(i + 1) {
                descriptor.flags |= Descriptor::NEXT;
                descriptor.next = *next;
            }
            self.ring.set_descriptor(index, descriptor);
        }
        self.offer_head(heads[0]);
    }

    #[inline]
    fn offer_head(&mut self, head: u16) {
        self.ring.set_avail_entry(self.next_avail, head);
        self.next_avail = self.next_avail.wrapping_add(1);
    }

    /// Words of an indirect table entry.
    pub(crate) fn entry(&self, piece: Descriptor, next: u16, is_last: bool) -> [u64; 2] {
        let more = if is_last { 0 } else { Descriptor::NEXT };
        Descriptor { flags: piece.flags | more, next, ..piece }.to_words()
    }

    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_avail);
        if old == new {
            return false;
        }
        self.ring.avail_idx().store(new, Ordering::Release);
        self.published = new;
        let suppression = EventSuppression {
            flags: self.ring.used_flags(),
            event: self.ring.avail_event(),
            event_idx: self.event_idx,
        };
        suppression.needs_notification(old, new)
    }

    #[inline]
    pub(crate) fn used_len(&self, _: &DescriptorPool) -> u16 {
        self.used()
    }

    #[inline]
    fn used(&self) -> u16 {
        self.ring.used_idx().load(Ordering::Acquire).wrapping_sub(self.next_used)
    }

    #[inline]
    pub(crate) fn reap(&mut self, pool: &mut DescriptorPool, out: &mut [Used]) -> usize {
        let mut n = 0;
        for _ in 0..self.used() {
            if n == out.len() {
                break;
            }
            let (id, len) = self.ring.used_entry(self.next_used);
            self.next_used = self.next_used.wrapping_add(1);
            if pool.release(id) > 0 {
                let id = id as u16;
                out[n] = Used { id, len };
                n += 1;
            } else {
                pool.strays += 1;
            }
        }
        n
    }

    #[inline]
    pub(crate) fn recycle(&mut self, pool: &mut DescriptorPool) -> u16 {
        let mut n = 0;
        for _ in 0..self.used() {
            let (id, _) = self.ring.used_entry(self.next_used);
            self.next_used = self.next_used.wrapping_add(1);
            if pool.length(id) > 0 {
                self.offer_head(id as u16);
                n += 1;
            } else {
                pool.strays += 1;
            }
        }
        n
    }

    pub(crate) fn enable_notification(&mut self) -> bool {
        self.event_suppression()
            .enable_notification(self.next_used, || self.ring.used_idx().load(Ordering::Acquire))
    }

    pub(crate) fn disable_notification(&mut self) {
        self.event_suppression().disable_notification(self.next_used);
    }

    fn event_suppression(&self) -> EventSuppression<'_, AtomicU16> {
        EventSuppression {
            flags: self.ring.avail_flags(),
            event: self.ring.used_event(),
            event_idx: self.event_idx,
        }
    }
}
