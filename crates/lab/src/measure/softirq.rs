//! What the machine spends in soft interrupts, from `/proc/stat` (proc_stat(5)).
//!
//! Limits: where the kernel does not account interrupts exactly (CONFIG_IRQ_TIME_ACCOUNTING), these are
//! samples of a clock tick, 1 to 10 ms, and also contained in the time of whoever was interrupted.

use std::fs;

use anyhow::{Context, Result};

/// Seconds in soft interrupts since the machine started, of all CPUs.
pub fn seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let ticks = ticks(&text).context("/proc/stat has no line of all CPUs")?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// The seventh number of the line `cpu`: user, nice, system, idle, iowait, irq, softirq.
fn ticks(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    line.split_ascii_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_seventh_number_of_all_cpus() {
        let text = "cpu  10 20 30 40 50 60 70 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nctxt 9\n";
        assert_eq!(ticks(text), Some(70));
        assert_eq!(ticks("cpu0 1 2 3 4 5 6 7\n"), None);
        assert_eq!(ticks("cpu  1 2 3\n"), None);
        assert!(seconds().unwrap() >= 0.0);
    }
}
