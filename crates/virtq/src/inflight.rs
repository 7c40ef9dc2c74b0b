//! What survives the owner of a ring: where it was, in memory that its successor finds.
//!
//! # Model
//! Buffers are used strictly in order, and none is in anybody's hands between two publications but
//! such as a successor may take again. So all that must be known after a death is whether the last
//! publication was done. In a split ring it is one store, and the guest's own used index tells: it
//! has no record. In a packed ring it is one store a buffer: before the first of them the whole
//! publication is written down here, and a successor that finds it begun and not shown does it
//! again from the beginning.
//!
//! The record is in memory that the front-end shares and may write to: it is checked as all else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use guestmem::{GuestSlice, Mapping};

use crate::crash;

/// One ring's record, in shared memory that zeros mean nothing in.
#[derive(Clone, Debug)]
pub struct Inflight {
    /// The record's word, and the words of what is published, from [`Inflight::LOG`] on.
    words: GuestSlice<'static>,
    /// Keeps them mapped.
    _mapping: Arc<Mapping>,
}

/// The last publication that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Where the ring was before, and after it: half of a [`Position`](crate::Position).
    pub(crate) old: u16,
    pub(crate) new: u16,
    /// How many stores it takes, as far as they are written down.
    pub(crate) count: u16,
}

impl Record {
    const VALID: u64 = 1 << 63;

    fn to_word(self) -> u64 {
        let Record { old, new, count } = self;
        Record::VALID | u64::from(old) | u64::from(new) << 16 | u64::from(count) << 32
    }

    fn from_word(word: u64) -> Option<Record> {
        let half = |shift| (word >> shift) as u16;
        let record = Record { old: half(0), new: half(16), count: half(32) };
        (record.to_word() == word).then_some(record)
    }
}

impl Inflight {
    /// Words before what is published: the record has a cache line for itself.
    const LOG: usize = 8;

    /// Bytes that the record of a ring of `size` entries takes: a multiple of 64.
    pub fn bytes(size: u16) -> u64 {
        (Inflight::LOG as u64 * 8 + u64::from(size) * 8).next_multiple_of(64)
    }

    /// The record of a ring of `size` entries at `offset`; `None` if it is not inside, or not
    /// aligned to 8 bytes.
    pub fn new(mapping: Arc<Mapping>, offset: u64, size: u16) -> Option<Inflight> {
        let words = mapping.slice(offset, Inflight::bytes(size) as usize)?;
        words.atomics_u64()?;
        // SAFETY: the mapping is kept beside it.
        let words = unsafe { words.forget_lifetime() };
        Some(Inflight { words, _mapping: mapping })
    }

    /// Forgets everything: the front-end was told where the ring is, and will say where it goes on.
    pub fn clear(&self) {
        self.word(0).store(0, Ordering::Release);
    }

    /// Writes down that a publication begins, and what it stores; nothing of it was stored yet.
    #[inline]
    pub(crate) fn begin(&self, old: u16, new: u16, log: impl Iterator<Item = u64>) {
        let words = self.words();
        let mut count = 0;
        for (word, entry) in words[Inflight::LOG..].iter().zip(log) {
            crash::point();
            word.store(entry, Ordering::Relaxed);
            count += 1;
        }
        crash::point();
        let record = Record { old, new, count };
        words[0].store(record.to_word(), Ordering::Release);
        // What follows must not be stored before it.
        fence(Ordering::Release);
    }

    /// The last publication that was begun, if there was one.
    pub(crate) fn last(&self) -> Option<Record> {
        Record::from_word(self.word(0).load(Ordering::Acquire))
    }

    /// An entry of what the last publication stores; zero where there is none.
    pub(crate) fn entry(&self, index: u16) -> u64 {
        let at = Inflight::LOG + usize::from(index);
        self.words().get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.words()[index]
    }

    fn words(&self) -> &[AtomicU64] {
        self.words.atomics_u64().expect("aligned, as `new` saw")
    }
}
