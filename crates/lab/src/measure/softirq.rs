//! Time in soft interrupts, and in the kernel, from `/proc/stat` (proc_stat(5)).
//!
//! Limits: without exact interrupt accounting (CONFIG_IRQ_TIME_ACCOUNTING) these are samples of a
//! clock tick, 1 to 10 ms, and are also part of the interrupted process's time.

use std::fs;

use anyhow::{Context, Result};
use host::tsc;

/// Seconds in soft interrupts since the machine started, of all CPUs.
pub fn seconds() -> Result<f64> {
    seconds_of(ticks)
}

/// Kernel time of a CPU since the machine started, in time-stamp cycles: system calls, interrupts
/// and soft interrupts, of all processes.
///
/// # Errors
/// There is no such CPU.
pub fn kernel_cycles(cpu: usize) -> Result<u64> {
    let seconds = seconds_of(|text| kernel_ticks(text, cpu));
    Ok((seconds.with_context(|| format!("CPU {cpu}"))? * tsc::hz()) as u64)
}

fn seconds_of(ticks: impl Fn(&str) -> Option<u64>) -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let ticks = ticks(&text).context("/proc/stat has no such line")?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

/// The seventh number of the line `cpu`: user, nice, system, idle, iowait, irq, softirq.
fn ticks(text: &str) -> Option<u64> {
    column(text, "cpu ", 6)
}

fn kernel_ticks(text: &str, cpu: usize) -> Option<u64> {
    [2, 5, 6].into_iter().map(|at| column(text, &format!("cpu{cpu} "), at)).sum()
}

pub(super) fn column(text: &str, line: &str, at: usize) -> Option<u64> {
    let line = text.lines().find_map(|found| found.strip_prefix(line))?;
    line.split_ascii_whitespace().nth(at)?.parse().ok()
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

    #[test]
    fn the_kernel_s_time_is_system_irq_and_softirq_of_one_cpu() {
        let text =
            "cpu  10 20 30 40 50 60 70 80 0 0\ncpu0 9 9 9 9 9 9 9 9\ncpu1 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(kernel_ticks(text, 1), Some(3 + 6 + 7));
        assert_eq!(kernel_ticks(text, 2), None);
        let cpu = host::cpu::allowed()[0];
        assert!(kernel_cycles(cpu).unwrap() <= kernel_cycles(cpu).unwrap());
    }
}
