//! How one process paces itself by another: a count of turns in a page that both map.
//!
//! A turn of the honest guests ends when everything that was in their receive rings has been taken
//! out and all buffers are posted again. Who has stopped sending, and then sees two turns end,
//! knows that whatever it sent them has been taken in.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use guestmem::Mapping;

/// Bytes of the file.
const SIZE: u64 = 4096;

/// The shared count.
#[derive(Debug)]
pub struct Pace {
    mapping: Mapping,
}

impl Pace {
    /// Makes the file at `path` if it is not there, and maps it.
    pub fn open(path: &Path) -> Result<Pace> {
        let shown = || format!("cannot open {}", path.display());
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.with_context(shown)?;
        file.set_len(SIZE).with_context(shown)?;
        let mapping = Mapping::new(file.as_fd(), SIZE, 0).with_context(shown)?;
        Ok(Pace { mapping })
    }

    /// Turns that have ended.
    pub fn turns(&self) -> u64 {
        self.with(|count| count.load(Ordering::Acquire))
    }

    /// A turn ends.
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
        let (one, other) = (Pace::open(&path).unwrap(), Pace::open(&path).unwrap());
        one.end_turn();
        one.end_turn();
        assert_eq!((one.turns(), other.turns()), (2, 2));
    }
}
