//! CPU time of other processes during a measurement, from `/proc/stat` and `/proc/self/stat`
//! (proc(5)).
//!
//! Limits: for other processes only user time is counted, as kernel time may be on our behalf; our
//! children count once they were waited for.

use std::fs;
use std::time::Instant;

use super::softirq::column;
use report::results::OTHERS_MUCH;

/// Clock ticks since the machine started.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    /// User time of other processes.
    others: u64,
    /// Time that the hypervisor gave to other machines.
    stolen: u64,
}

/// Start of the count, and CPUs.
#[derive(Debug)]
pub struct OtherProcesses<'a> {
    cpus: &'a [usize],
    began: Instant,
    before: Option<Ticks>,
}

impl<'a> OtherProcesses<'a> {
    /// Counts on these CPUs from now on.
    pub fn on(cpus: &'a [usize]) -> OtherProcesses<'a> {
        OtherProcesses { cpus, began: Instant::now(), before: now(cpus) }
    }

    /// Shares of the CPUs' time since the start; `None` if the kernel does not report them.
    pub fn shares(&self) -> Option<Shares> {
        let (before, after) = (self.before?, now(self.cpus)?);
        let hz = rustix::param::clock_ticks_per_second().max(1) as f64;
        let all = self.began.elapsed().as_secs_f64() * hz * self.cpus.len() as f64;
        Some(shares(before, after, all))
    }
}

/// Shares (0 to 1) of the CPUs' time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// User time of other processes.
    processes: f64,
    /// Time of other virtual machines.
    machines: f64,
}

impl Shares {
    /// The larger one.
    pub fn most(&self) -> f64 {
        self.processes.max(self.machines)
    }

    /// Note for the report; `None` below [`OTHERS_MUCH`].
    pub fn note(&self) -> Option<String> {
        (self.most() >= OTHERS_MUCH).then(|| {
            format!(
                "Others used the CPUs meanwhile: processes {:.0} %, other virtual machines {:.0} % \
                 of their time. Rates are lower and cycles higher than on an idle machine; measure \
                 again when it is.",
                self.processes * 100.0,
                self.machines * 100.0
            )
        })
    }
}

/// Shares; `all` is the total of ticks.
fn shares(before: Ticks, after: Ticks, all: f64) -> Shares {
    let share = |before: u64, after: u64| after.saturating_sub(before) as f64 / all.max(1.0);
    let processes = share(before.others, after.others);
    Shares { processes, machines: share(before.stolen, after.stolen) }
}

fn now(cpus: &[usize]) -> Option<Ticks> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    ticks(&stat, &fs::read_to_string("/proc/self/stat").ok()?, cpus)
}

fn ticks(stat: &str, own: &str, cpus: &[usize]) -> Option<Ticks> {
    let sum = |at| cpus.iter().map(|cpu| column(stat, &format!("cpu{cpu} "), at)).sum();
    let (user, nice, stolen): (Option<u64>, Option<u64>, Option<u64>) = (sum(0), sum(1), sum(7));
    // Behind the name, which may contain any character: utime is the 12th field, cutime the 14th.
    let (_, fields) = own.rsplit_once(") ")?;
    let field = |at| fields.split_ascii_whitespace().nth(at)?.parse::<u64>().ok();
    let ours = field(11)? + field(13)?;
    Some(Ticks { others: (user? + nice?).saturating_sub(ours), stolen: stolen? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_of_others() {
        let stat = "cpu  1 2\ncpu0 100 20 30 40 50 60 70 8 0 0\ncpu1 200 1 2 3 4 5 6 7 0 0\n";
        let own = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 30 99 12 99 0 0";
        assert_eq!(ticks(stat, own, &[0]), Some(Ticks { others: 120 - 42, stolen: 8 }));
        assert_eq!(ticks(stat, own, &[0, 1]), Some(Ticks { others: 321 - 42, stolen: 15 }));
        assert_eq!(ticks(stat, own, &[2]), None);
        assert!(now(host::cpu::allowed()).is_some(), "of this machine");
    }

    #[test]
    fn a_reader_is_told_of_much() {
        let before = Ticks { others: 10, stolen: 0 };
        let note = |others, stolen| shares(before, Ticks { others, stolen }, 1000.0).note();
        assert_eq!(note(58, 20), None);
        let told = note(420, 20).unwrap();
        assert!(told.contains("processes 41 %, other virtual machines 2 %"), "{told}");
        assert!(note(10, 60).is_some());
    }
}
