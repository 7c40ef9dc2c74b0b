//! Turn counter in a page that two processes map: one limits its rate by the other's turns.
//!
//! A turn of the honest guests ends when all frames in their receive rings are consumed and all
//! buffers are posted again. A sender that stops, and then sees two turns end, knows that all its
//! frames were consumed.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use guestmem::Mapping;

/// Bytes of the file.
const SIZE: u64 = 4096;

/// The shared counter.
#[derive(Debug)]
pub struct TurnCounter {
    mapping: Mapping,
}

impl TurnCounter {
    /// Maps the file at `path`; makes it if it is missing.
    pub fn open(path: &Path) -> Result<TurnCounter> {
        let shown = || format!("cannot open {}", path.display());
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.with_context(shown)?;
        file.set_len(SIZE).with_context(shown)?;
        let mapping = Mapping::new(file.as_fd(), SIZE, 0).with_context(shown)?;
        Ok(TurnCounter { mapping })
    }

    /// Number of ended turns.
    pub fn turns(&self) -> u64 {
        self.with(|count| count.load(Ordering::Acquire))
    }

    /// Ends a turn.
    pub fn end_turn(&self) {
        self.with(|count| count.fetch_add(1, Ordering::Release));
    }

    fn with(&self, what: impl FnOnce(&AtomicU64) -> u64) -> u64 {
        let words = self.mapping.slice(0, 8).and_then(|slice| slice.atomics_u64());
        what(&words.expect("a page begins with an aligned word")[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_see_the_same_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pace");
        let (one, other) = (TurnCounter::open(&path).unwrap(), TurnCounter::open(&path).unwrap());
        one.end_turn();
        one.end_turn();
        assert_eq!((one.turns(), other.turns()), (2, 2));
    }
}
