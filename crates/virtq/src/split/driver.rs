//! The driver's side of a split ring.
//!
//! The device is not trusted: what is in flight is remembered here and not in the shared memory, and
//! a used entry that names no buffer in flight is counted ([`DriverQueue::strays`]) and skipped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use guestmem::GuestMemory;

use super::event::Wish;
use super::ring::Ring;
use crate::driver::{Segment, Used};
use crate::ring::{Addresses, Descriptor, Features, SetupError};

/// A guest's own end of a ring.
#[derive(Debug)]
pub struct DriverQueue {
    ring: Ring,
    addresses: Addresses,
    event_idx: bool,
    /// Descriptors in no chain.
    free: Vec<u16>,
    /// How many descriptors the chain of each head has; zero if it is no head in flight.
    lengths: Vec<u16>,
    /// The link of each descriptor in a chain: the table's own is the device's to overwrite.
    links: Vec<u16>,
    strays: u64,
    next_avail: u16,
    published: u16,
    next_used: u16,
    memory: Arc<GuestMemory>,
}

impl DriverQueue {
    /// Bytes that a ring of `size` entries takes, up to the next page.
    pub fn bytes(size: u16) -> u64 {
        let entries = u64::from(size);
        let (desc, avail, used) = (16 * entries, 6 + 2 * entries, 6 + 8 * entries);
        (desc + avail.next_multiple_of(64) + used).next_multiple_of(4096)
    }

    /// A new ring of `size` entries at the front-end's address `at`; the memory there must be
    /// zeros or an old ring that nobody uses any more.
    pub fn new(
        memory: Arc<GuestMemory>,
        at: u64,
        size: u16,
        features: Features,
    ) -> Result<DriverQueue, SetupError> {
        let entries = u64::from(size);
        let avail = at + 16 * entries;
        let used = avail + (6 + 2 * entries).next_multiple_of(64);
        let addresses = Addresses { desc: at, avail, used };
        let ring = Ring::new(&memory, &addresses, size)?;
        for word in [ring.avail_idx(), ring.used_idx(), ring.avail_flags(), ring.used_flags()] {
            word.store(0, Ordering::Relaxed);
        }
        let event_idx = features.contains(Features::EVENT_IDX);
        let queue = DriverQueue {
            ring,
            addresses,
            event_idx,
            free: (0..size).rev().collect(),
            lengths: vec![0; usize::from(size)],
            links: vec![0; usize::from(size)],
            strays: 0,
            next_avail: 0,
            published: 0,
            next_used: 0,
            memory,
        };
        queue.wish().disarm(0);
        Ok(queue)
    }

    /// Where the ring is: what the device must be told.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.ring.size()
    }

    /// The memory that the ring and its buffers are in.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Descriptors that are free.
    #[inline]
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Makes a buffer of one piece available, at the next [`publish`](Self::publish); `None` when
    /// the ring is full.
    #[inline]
    pub fn post(&mut self, piece: Segment) -> Option<u16> {
        let head = self.free.pop()?;
        let flags = if piece.writable { Descriptor::WRITE } else { 0 };
        let descriptor = Descriptor { addr: piece.addr, len: piece.len, flags, next: 0 };
        self.ring.set_descriptor(head, descriptor);
        self.lengths[usize::from(head)] = 1;
        self.offer(head);
        Some(head)
    }

    /// Makes a buffer of several pieces available as a chain; `None` when the ring is too full, or
    /// there are no pieces.
    pub fn post_chain(&mut self, pieces: &[Segment]) -> Option<u16> {
        if pieces.is_empty() || pieces.len() > self.free.len() {
            return None;
        }
        let heads = self.free.split_off(self.free.len() - pieces.len());
        for (i, (piece, &index)) in pieces.iter().zip(&heads).enumerate() {
            let next = heads.get(i + 1).copied();
            let more = if next.is_some() { Descriptor::NEXT } else { 0 };
            let flags = more | if piece.writable { Descriptor::WRITE } else { 0 };
            let next = next.unwrap_or(0);
            self.links[usize::from(index)] = next;
            self.ring.set_descriptor(
                index,
                Descriptor { addr: piece.addr, len: piece.len, flags, next },
            );
        }
        self.lengths[usize::from(heads[0])] = pieces.len() as u16;
        self.offer(heads[0]);
        Some(heads[0])
    }

    /// Makes a buffer of several pieces available as an indirect table, which is written to the
    /// guest's memory at `table` (16 bytes a piece); `None` when the ring is full, there are no
    /// pieces, or the table does not fit there.
    pub fn post_indirect(&mut self, pieces: &[Segment], table: u64) -> Option<u16> {
        let bytes = (pieces.len() * Descriptor::SIZE) as u32;
        let place = self.memory.slice(table, bytes).filter(|_| !pieces.is_empty())?;
        let head = self.free.pop()?;
        for (i, piece) in pieces.iter().enumerate() {
            let more = if i + 1 < pieces.len() { Descriptor::NEXT } else { 0 };
            let flags = more | if piece.writable { Descriptor::WRITE } else { 0 };
            let next = (i + 1) as u16;
            let words = Descriptor { addr: piece.addr, len: piece.len, flags, next }.to_words();
            place.write((i * Descriptor::SIZE) as u32, words[0].to_le_bytes());
            place.write((i * Descriptor::SIZE + 8) as u32, words[1].to_le_bytes());
        }
        let flags = Descriptor::INDIRECT;
        self.ring.set_descriptor(head, Descriptor { addr: table, len: bytes, flags, next: 0 });
        self.lengths[usize::from(head)] = 1;
        self.offer(head);
        Some(head)
    }

    #[inline]
    fn offer(&mut self, head: u16) {
        self.ring.set_avail_entry(self.next_avail, head);
        self.next_avail = self.next_avail.wrapping_add(1);
    }

    /// Shows what was posted to the device; says whether it wants a kick for it.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_avail);
        if old == new {
            return false;
        }
        self.ring.avail_idx().store(new, Ordering::Release);
        self.published = new;
        let wish = Wish {
            flags: self.ring.used_flags(),
            event: self.ring.avail_event(),
            event_idx: self.event_idx,
        };
        wish.must_notify(old, new)
    }

    /// How many buffers wait to be reaped.
    #[inline]
    pub fn used_len(&self) -> u16 {
        self.ring.used_idx().load(Ordering::Acquire).wrapping_sub(self.next_used)
    }

    /// Takes back up to `out.len()` buffers; says how many.
    #[inline]
    pub fn reap(&mut self, out: &mut [Used]) -> usize {
        let mut n = 0;
        for _ in 0..self.used_len() {
            if n == out.len() {
                break;
            }
            let (id, len) = self.ring.used_entry(self.next_used);
            self.next_used = self.next_used.wrapping_add(1);
            if self.release(id) {
                let id = id as u16;
                out[n] = Used { id, len };
                n += 1;
            } else {
                self.strays += 1;
            }
        }
        n
    }

    /// Gives every used buffer back to the device as it is; says how many. The cheapest guest there
    /// is: for the measurement of rings.
    #[inline]
    pub fn recycle(&mut self) -> u16 {
        let mut n = 0;
        for _ in 0..self.used_len() {
            let (id, _) = self.ring.used_entry(self.next_used);
            self.next_used = self.next_used.wrapping_add(1);
            if self.lengths.get(id as usize).is_some_and(|n| *n > 0) {
                self.offer(id as u16);
                n += 1;
            } else {
                self.strays += 1;
            }
        }
        n
    }

    /// Frees the chain at `head`; says whether there is one in flight.
    #[inline]
    fn release(&mut self, head: u32) -> bool {
        let Some(length) = self.lengths.get_mut(head as usize) else {
            return false;
        };
        let length = std::mem::take(length);
        let mut index = head as u16;
        for _ in 0..length {
            self.free.push(index);
            index = self.links[usize::from(index)];
        }
        length > 0
    }

    /// Used entries that named no buffer in flight, and were skipped: the device is broken.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Asks the device for an interrupt at the next used buffer; says whether one is there already.
    pub fn arm(&mut self) -> bool {
        self.wish().arm(self.next_used, self.ring.used_idx())
    }

    /// Asks the device not to interrupt: the ring is polled.
    pub fn disarm(&mut self) {
        self.wish().disarm(self.next_used);
    }

    fn wish(&self) -> Wish<'_, std::sync::atomic::AtomicU16> {
        Wish {
            flags: self.ring.avail_flags(),
            event: self.ring.used_event(),
            event_idx: self.event_idx,
        }
    }
}
