//! Pause of all transmit rings.

use std::sync::atomic::{AtomicU32, Ordering};

/// State of the pause: odd while lanes are paused. It grows with each change, so a lane that has
/// seen the current number has seen the last change.
#[derive(Debug, Default)]
pub(crate) struct TxPause(AtomicU32);

impl TxPause {
    pub(crate) fn set(&self, held: bool) {
        let change = |now: u32| (now % 2 == 1) != held;
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            change(now).then_some(now.wrapping_add(1))
        });
    }

    /// The number, and `true` if lanes are paused.
    #[inline]
    pub(crate) fn get(&self) -> (u32, bool) {
        let now = self.0.load(Ordering::Relaxed);
        (now, now % 2 == 1)
    }

    pub(crate) fn is_acknowledged(&self, acknowledged: &AtomicU32) -> bool {
        acknowledged.load(Ordering::Acquire) == self.0.load(Ordering::Acquire)
    }
}
