//! Huge pages of 2 MiB, reserved for a run.

use std::fs;

use anyhow::{Context, Result, bail};

const PATH: &str = "/proc/sys/vm/nr_hugepages";

/// Reserved huge pages; dropping it restores the previous number.
#[derive(Debug)]
pub struct Hugepages {
    before: u64,
}

impl Hugepages {
    /// Reserves `count` additional pages of 2 MiB.
    ///
    /// # Errors
    /// The user lacks permission, or the kernel has no contiguous memory.
    pub fn reserve(count: u64) -> Result<Hugepages> {
        let before = read()?;
        let reserved = Hugepages { before };
        let denied = || format!("cannot write {PATH}; run as root, or use --no-hugepages");
        fs::write(PATH, (before + count).to_string()).with_context(denied)?;
        let got = read()?.saturating_sub(before);
        if got < count {
            bail!(
                "the kernel gives {got} of {count} huge pages; free some memory, \
                 or use --no-hugepages"
            );
        }
        Ok(reserved)
    }
}

fn read() -> Result<u64> {
    let text = fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}"))?;
    text.trim().parse().with_context(|| format!("{PATH} holds {text:?}"))
}

impl Drop for Hugepages {
    fn drop(&mut self) {
        // The kernel frees pages in use when their process ends.
        let _ = fs::write(PATH, self.before.to_string());
    }
}
