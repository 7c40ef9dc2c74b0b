//! In-flight records: the position of a ring, in memory that outlives the daemon.
//!
//! # Model
//! Buffers are used strictly in order. Buffers taken since the last publication may be taken again
//! by the next owner. So only one fact must survive a crash: whether the last publication was
//! complete.
//!
//! In a split ring a publication is one store, and the guest's used index tells: there is no
//! record. In a packed ring it is up to one store a buffer, the first descriptor last. Before the
//! first store the whole publication is recorded here. The next owner repeats a publication that
//! was begun and not completed.
//!
//! The front-end shares the memory of the record and may write to it: it is checked like any input.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use guestmem::{GuestSlice, Mapping};

use crate::crash;

/// Record of one ring, in shared memory. Zeros mean an empty record.
#[derive(Clone, Debug)]
pub struct InflightRecord {
    /// Header word, then the entries of the publication from [`InflightRecord::LOG`] on.
    words: GuestSlice<'static>,
    /// Keeps them mapped.
    _mapping: Arc<Mapping>,
}

/// The last publication that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    /// Position before and after the publication: half of a [`Position`](crate::Position).
    pub(crate) old: u16,
    pub(crate) new: u16,
    /// Recorded stores of the publication.
    pub(crate) count: u16,
}

impl Publication {
    const VALID: u64 = 1 << 63;

    fn to_word(self) -> u64 {
        let Publication { old, new, count } = self;
        Publication::VALID | u64::from(old) | u64::from(new) << 16 | u64::from(count) << 32
    }

    fn from_word(word: u64) -> Option<Publication> {
        let half = |shift| (word >> shift) as u16;
        let publication = Publication { old: half(0), new: half(16), count: half(32) };
        (publication.to_word() == word).then_some(publication)
    }
}

impl InflightRecord {
    /// Index of the first entry: the header word has a cache line for itself.
    const LOG: usize = 8;

    /// Bytes that the record of a ring of `size` entries takes: a multiple of 64.
    pub fn bytes(size: u16) -> u64 {
        (InflightRecord::LOG as u64 * 8 + u64::from(size) * 8).next_multiple_of(64)
    }

    /// The record of a ring of `size` entries at `offset`; `None` if it is not inside, or not
    /// aligned to 8 bytes.
    pub fn new(mapping: Arc<Mapping>, offset: u64, size: u16) -> Option<InflightRecord> {
        let words = mapping.slice(offset, InflightRecord::bytes(size) as usize)?;
        words.atomics_u64()?;
        // SAFETY: the mapping is kept beside the slice.
        let words = unsafe { words.forget_lifetime() };
        Some(InflightRecord { words, _mapping: mapping })
    }

    /// Clears the record: the front-end was told the position of the ring, and will set the next
    /// one.
    pub fn clear(&self) {
        self.word(0).store(0, Ordering::Release);
    }

    /// Entries for the stores of the next publication.
    #[inline]
    pub(crate) fn entries(&self) -> &[AtomicU64] {
        &self.words()[InflightRecord::LOG..]
    }

    /// Records a publication, whose stores are in the [entries](Self::entries), before the first of
    /// them.
    #[inline]
    pub(crate) fn begin(&self, publication: Publication) {
        crash::point();
        self.word(0).store(publication.to_word(), Ordering::Release);
        // Later stores must not become visible before the record.
        fence(Ordering::Release);
    }

    /// The last publication that was begun, if there was one.
    pub(crate) fn last(&self) -> Option<Publication> {
        Publication::from_word(self.word(0).load(Ordering::Acquire))
    }

    /// Entry `index` of the last publication; zero beyond its end.
    pub(crate) fn entry(&self, index: u16) -> u64 {
        self.entries().get(usize::from(index)).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.words()[index]
    }

    fn words(&self) -> &[AtomicU64] {
        self.words.atomics_u64().expect("`new` checked the alignment")
    }
}
