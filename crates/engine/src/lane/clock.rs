//! The time that lanes go by: one for all, since they share meters and budgets.

use std::sync::OnceLock;

use host::tsc;

/// Conversion of cycles to time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: u64,
    ns_per_cycle: f64,
}

impl Clock {
    /// The clock of this process. The first call takes as long as [`tsc::hz`].
    pub(crate) fn get() -> Clock {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        *CLOCK.get_or_init(|| Clock { start: tsc::now(), ns_per_cycle: 1e9 / tsc::hz() })
    }

    /// Time at a counter value, ns; 0 before the start.
    #[inline]
    pub(crate) fn at(self, cycles: u64) -> u64 {
        (cycles.saturating_sub(self.start) as f64 * self.ns_per_cycle) as u64
    }
}

/// The time now, in ns.
pub(crate) fn now_ns() -> u64 {
    Clock::get().at(tsc::now())
}
