//! The time-stamp counter: the cheapest clock there is, for counting a lane's cycles.
//!
//! Model: [`now`] reads the counter, [`hz`] returns its rate. On x86-64 it is the TSC, which on
//! current CPUs runs at a constant rate ("constant_tsc"); these are cycles of a reference clock,
//! not of the core. On other architectures `now` is nanoseconds of `Instant`, and `hz` is 1e9.
//!
//! Limits: the read is not ordered against other instructions; a difference of a few dozen cycles
//! means nothing. Without synchronised TSCs, values of two CPUs must not be compared: lanes are
//! pinned.

// This crate needs `unsafe` here: `_rdtsc` is an `unsafe fn` (Rust 1.95), and the alternative is a
// vDSO call of 20-30 ns per reading, more than a lane spends on a whole frame.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::time::Duration;

/// Duration of the calibration, which is part of each start. Readings are paired to some 50 ns, so
/// the rate is exact to 0.01 %.
const CALIBRATION: Duration = Duration::from_millis(2);

/// Readings at each end of the calibration; the tightest is used.
#[cfg(target_arch = "x86_64")]
const TRIES: usize = 16;

/// The counter now, in cycles of [`hz`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: RDTSC only reads a register. It exists on every x86-64; only CR4.TSD could forbid it
    // in user mode, which Linux sets solely on a task's own request (PR_SET_TSC).
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The counter now, in nanoseconds since its first use.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn now() -> u64 {
    static BASE: OnceLock<std::time::Instant> = OnceLock::new();
    let elapsed = BASE.get_or_init(std::time::Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// Cycles per second. The first call takes about 2 ms: make it at start-up.
pub fn hz() -> f64 {
    static HZ: OnceLock<f64> = OnceLock::new();
    *HZ.get_or_init(|| calibrate(CALIBRATION))
}

/// Converts cycles to nanoseconds.
pub fn cycles_to_ns(cycles: u64) -> f64 {
    cycles as f64 * 1e9 / hz()
}

/// Converts a duration to cycles, for deadlines that are compared with [`now`].
pub fn duration_to_cycles(duration: Duration) -> u64 {
    (duration.as_secs_f64() * hz()) as u64
}

#[cfg(target_arch = "x86_64")]
fn calibrate(wait: Duration) -> f64 {
    let (start_cycles, start_ns) = paired_reading();
    std::thread::sleep(wait);
    let (end_cycles, end_ns) = paired_reading();
    let elapsed_ns = end_ns.saturating_sub(start_ns).max(1) as f64;
    end_cycles.wrapping_sub(start_cycles) as f64 * 1e9 / elapsed_ns
}

#[cfg(not(target_arch = "x86_64"))]
fn calibrate(_wait: Duration) -> f64 {
    1e9
}

/// The counter and CLOCK_MONOTONIC_RAW (ns) at one moment. A preemption between the two reads would
/// spoil the pair, so the clock is read between two counter reads, and the attempt with the
/// smallest gap is used.
#[cfg(target_arch = "x86_64")]
fn paired_reading() -> (u64, u64) {
    let mut best = (0, 0);
    let mut best_gap = u64::MAX;
    for _ in 0..TRIES {
        let before = now();
        let clock_ns = monotonic_raw_ns();
        let gap = now().wrapping_sub(before);
        if gap < best_gap {
            best_gap = gap;
            best = (before.wrapping_add(gap / 2), clock_ns);
        }
    }
    best
}

/// A clock without adjustment: NTP slews CLOCK_MONOTONIC, but not the TSC.
#[cfg(target_arch = "x86_64")]
fn monotonic_raw_ns() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::MonotonicRaw);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_counter_moves_forward_at_the_stated_rate() {
        let rate = hz();
        assert!(rate > 1e8 && rate < 1e11, "{rate} Hz");
        // A busy machine may preempt the test between the two readings, so one good attempt of
        // several suffices.
        let good = (0..10).any(|_| {
            let (clock, start) = (Instant::now(), now());
            std::thread::sleep(Duration::from_millis(20));
            let (cycles, elapsed) = (now() - start, clock.elapsed());
            (cycles_to_ns(cycles) / elapsed.as_nanos() as f64 - 1.0).abs() < 0.01
        });
        assert!(good, "ten tries, none within 1 % of the clock");
    }

    #[test]
    fn conversions_are_inverse() {
        let cycles = duration_to_cycles(Duration::from_millis(5));
        assert!((cycles_to_ns(cycles) - 5e6).abs() < 100.0);
    }
}
