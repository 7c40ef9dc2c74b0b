//! Distance of two CPUs: the round trip of a cache line between them.
//!
//! All work of a switch and its guests goes through lines that one writes and the other reads, so
//! cycles per frame follow this distance: some 100 cycles between CPUs of one core, some 300
//! between cores that share a cache, over 1000 between others. A hypervisor moves the CPUs of a
//! virtual machine from one second to the next; only figures at the same distance can be compared.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use host::tsc;

/// Round trips timed together.
const BATCH: u32 = 100;
/// Number of batches; their median counts: together some milliseconds at most.
const BATCHES: usize = 15;

/// A word with a cache line of its own, and the next, which hardware may prefetch with it.
#[repr(align(128))]
struct Line(AtomicU32);

/// Repetitions of a measurement in which the CPUs moved.
const RETRIES: usize = 4;

/// Measures at one distance: repeats if the CPUs moved meanwhile. Returns the round trip as well,
/// in cycles; if the CPUs keep moving, the last measurement and the longer round trip.
///
/// # Errors
/// Those of `measure`, and of [`round_trip_cycles`].
pub fn steadily<T>(
    (here, there): (usize, usize),
    mut measure: impl FnMut() -> Result<T>,
) -> Result<(T, f64)> {
    let mut before = round_trip_cycles(here, there)?;
    for _ in 0..RETRIES {
        let measured = measure()?;
        let after = round_trip_cycles(here, there)?;
        if report::statistics::bands::are_near(before, after) {
            return Ok((measured, before.max(after)));
        }
        before = after;
    }
    Ok((measure()?, before.max(round_trip_cycles(here, there)?)))
}

/// As [`steadily`] with two CPUs; with one, measures once and without a round trip.
///
/// # Errors
/// Those of [`steadily`].
pub fn steadily_if<T>(
    both: Option<(usize, usize)>,
    mut measure: impl FnMut() -> Result<T>,
) -> Result<(T, Option<f64>)> {
    match both {
        None => Ok((measure()?, None)),
        Some(both) => steadily(both, measure).map(|(measured, cycles)| (measured, Some(cycles))),
    }
}

/// Round trip of a cache line between two CPUs, in time-stamp cycles.
///
/// # Errors
/// A thread cannot be pinned to one of them.
pub fn round_trip_cycles(here: usize, there: usize) -> Result<f64> {
    let line = Line(AtomicU32::new(0));
    let last = 2 * BATCH * BATCHES as u32;
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| {
            let pinned = host::cpu::pin_this_thread(there);
            // An unpinned thread answers as well: the other one waits for it.
            for turn in (1..last).step_by(2) {
                wait(&line.0, turn);
                line.0.store(turn + 1, Ordering::Release);
            }
            pinned
        });
        let ask = scope.spawn(|| {
            let pinned = host::cpu::pin_this_thread(here);
            let mut batches = Vec::with_capacity(BATCHES);
            let mut turn = 0;
            for _ in 0..BATCHES {
                let begin = tsc::now();
                for _ in 0..BATCH {
                    line.0.store(turn + 1, Ordering::Release);
                    turn += 2;
                    wait(&line.0, turn);
                }
                batches.push(tsc::now().wrapping_sub(begin) as f64 / f64::from(BATCH));
            }
            batches.sort_by(f64::total_cmp);
            pinned.map(|()| batches[BATCHES / 2])
        });
        answer.join().expect("the answering thread does not panic")?;
        Ok(ask.join().expect("the asking thread does not panic")?)
    })
}

fn wait(line: &AtomicU32, turn: u32) {
    let mut spins = 0u32;
    while line.load(Ordering::Acquire) != turn {
        spins += 1;
        // Both may be on one CPU, or another process has the other one.
        if spins.is_multiple_of(100_000) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back_even_to_the_same_cpu() {
        let cpus = host::cpu::allowed();
        let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
        assert!(round_trip_cycles(first, last).unwrap() > 0.0);
    }

    #[test]
    fn a_measurement_is_taken_and_its_error_passed_on() {
        let cpus = host::cpu::allowed();
        let both = (cpus[0], cpus[cpus.len() - 1]);
        let (value, cycles) = steadily(both, || Ok(7)).unwrap();
        assert!(value == 7 && cycles > 0.0);
        assert!(steadily::<()>(both, || anyhow::bail!("no")).is_err());
    }

    #[test]
    fn no_such_cpu() {
        assert!(round_trip_cycles(host::cpu::allowed()[0], 100_000).is_err());
    }
}
