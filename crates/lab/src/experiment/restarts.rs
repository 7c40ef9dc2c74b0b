//! Daemon restarts while numbered frames flow: hot restarts, or kills.
//!
//! Two guests send numbered frames to each other at a given rate. The daemon is repeatedly replaced
//! by another process ([`RestartKind::Upgrade`]), or killed with SIGKILL and started again
//! ([`RestartKind::Kill`]); after a kill the guests reattach, with their rings unchanged.
//! [`traffic::numbered`] accounts for each number and buffer.
//!
//! Frames that a killed daemon had delivered but not yet returned to their sender arrive again: at
//! most a burst in each direction per kill.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use model::state::Lanes;
use report::RingKind;
use serde::Serialize;
use traffic::protocol::numbered::{Direction, Mark, NumberedResult, NumberedSpec};
use traffic::{Event, Task};

use crate::bench::{Bench, GuestProcess, NicPlan, VfPlan, mac_text, plan};

/// Kind of restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartKind {
    /// Hot restart: the new process takes over.
    Upgrade,
    /// Kill and start.
    Kill,
}

/// Settings of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RestartRun {
    /// Kind of restart.
    pub how: RestartKind,
    /// Number of restarts.
    pub count: u64,
    /// Frames a second in each direction; 0: unlimited.
    pub rate_pps: u32,
    /// Rings of the guests' adapters.
    pub ring: RingKind,
    /// Inflight records for the next daemon.
    pub inflight: bool,
    /// VFs whose frames are mirrored to files, 0 to [`MIRRORS_MAX`]: those of the guests first.
    pub mirrors: usize,
    /// Longest allowed gap, ms, if limited.
    pub gap_max_ms: Option<f64>,
}

/// Distribution of a value over the restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let rank = (part * values.len() as f64).ceil() as usize;
            values.get(rank.max(1) - 1).copied().unwrap_or_default()
        };
        Spread { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
    }
}

/// Result, printed by `shunt lab upgrade --json` and `shunt lab kill --json`.
#[derive(Clone, Debug, Serialize)]
pub struct RestartResult {
    /// Kind of restart.
    pub how: RestartKind,
    /// Number of restarts.
    pub count: u64,
    /// Rings of the guests' adapters.
    pub ring: RingKind,
    /// `true` with inflight records.
    pub inflight: bool,
    /// VFs whose frames were mirrored to files.
    pub mirrors: usize,
    /// Requested frames a second in each direction; 0: unlimited.
    pub rate_pps: u32,
    /// Frames that never arrived, in both directions, as all of the following.
    pub lost: u64,
    /// Duplicated frames.
    pub duplicated: u64,
    /// Maximum duplicates after one kill.
    pub duplicated_at_once_max: u64,
    /// Frames that arrived after a later one.
    pub reordered: u64,
    /// Frames with changed bytes.
    pub corrupted: u64,
    /// Used entries that repeat another, or name no posted buffer.
    pub used_repeated: u64,
    /// Buffers returned before others that were posted earlier.
    pub used_out_of_order: u64,
    /// Transmit buffers that were not returned.
    pub used_missing: u64,
    /// Frames sent.
    pub frames: u64,
    /// Seconds of traffic.
    pub seconds: f64,
    /// Longest time between two arrivals in one direction, around each restart, in milliseconds.
    pub gap_ms: Spread,
    /// Longest allowed gap, if limited, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_max_ms: Option<f64>,
    /// Longest time that the guests' process had no CPU, around each restart, in milliseconds.
    pub absence_ms: Spread,
    /// Upgrade: time without a serving daemon. Kill: time from the kill to a ready daemon. In
    /// milliseconds.
    pub silent_ms: Spread,
    /// Kill: time from a listening daemon to started rings, in milliseconds.
    pub reattach_ms: Spread,
    /// From the first guest to the second, and back.
    pub directions: [Direction; 2],
    /// Pinned CPUs: switch, guests.
    pub pinned: Vec<usize>,
}

impl RestartResult {
    /// `true` if every frame arrived, intact and in order, and every buffer was returned once.
    /// After an upgrade also no duplicates, and no gap above the limit.
    pub fn passed(&self) -> bool {
        let doubled = match self.how {
            RestartKind::Upgrade => self.duplicated,
            RestartKind::Kill => {
                self.duplicated_at_once_max.saturating_sub(2 * virtq::BURST as u64)
            }
        };
        let frames = self.lost + doubled + self.reordered + self.corrupted;
        let used = self.used_repeated + self.used_out_of_order + self.used_missing;
        let is_in_time = self.gap_max_ms.is_none_or(|most| self.gap_ms.max <= most);
        frames + used == 0 && self.frames > 0 && is_in_time
    }
}

/// Maximum mirrors: each takes 32 MiB of memory, twice during an upgrade, and up to 1 GiB of disk.
pub const MIRRORS_MAX: usize = 16;

/// Traffic before and after each restart.
const AROUND: Duration = Duration::from_millis(60);

/// The daemon waits 0.5 s for guests of unattached VFs, and is not restarted earlier.
const SETTLED: Duration = Duration::from_secs(1);

/// Runs it; `program` is the shunt binary, `cpus` the allowed CPUs. Passes restarts so far to
/// `done`.
///
/// # Errors
/// A daemon or the guests do not start, or end unexpectedly.
pub fn run(
    program: &Path,
    cpus: &[usize],
    run: RestartRun,
    mut done: impl FnMut(u64),
) -> Result<RestartResult> {
    let placement = plan(cpus, 1);
    let vf = |i| VfPlan { macs: vec![mac_text(i, 0)], ..VfPlan::default() };
    let vfs = (0..run.mirrors.max(2)).map(vf).collect();
    let nic = NicPlan {
        lanes: Lanes { cpus: placement.switch.into_iter().collect(), ..Lanes::default() },
        uplink: false,
        vfs,
    };
    let mut bench = Bench::start(program, &nic)?;
    bench.mirror(run.mirrors)?;
    let guest = |i: usize| (bench.vf_socket(i), mac_text(i, 0).to_string());
    let spec = NumberedSpec {
        cpu: placement.guests[0].0,
        guests: [guest(0), guest(1)],
        rate_pps: run.rate_pps,
        ring: run.ring,
        inflight: run.inflight,
        reattach: run.how == RestartKind::Kill,
        pace: None,
    };
    let mut guests = GuestProcess::start_task(program, &Task::Numbered(spec))?;
    guests.go()?;
    std::thread::sleep(if run.mirrors > 2 { SETTLED } else { AROUND });
    guests.end_span()?; // that before the first restart
    let (mut silent_ms, mut marks) = (Vec::new(), Vec::new());
    for turn in 1..=run.count {
        std::thread::sleep(AROUND);
        silent_ms.push(match run.how {
            RestartKind::Upgrade => bench.upgrade()?.silent_us as f64 / 1e3,
            RestartKind::Kill => bench.kill_and_restart()? * 1e3,
        });
        std::thread::sleep(AROUND);
        marks.push(guests.end_span()?);
        done(turn);
    }
    std::thread::sleep(AROUND);
    guests.go()?; // any other line ends it
    let result = match guests.hear()? {
        Event::Numbered(result) => result,
        other => bail!("the guests said {other:?} and no result"),
    };
    bench.check_alive()?;
    let pinned = placement.switch.into_iter().chain(placement.guests[0].0).collect();
    Ok(RestartResult { pinned, ..conclude(&result, run, silent_ms, &marks) })
}

fn conclude(
    result: &NumberedResult,
    run: RestartRun,
    silent_ms: Vec<f64>,
    marks: &[Mark],
) -> RestartResult {
    let ways = &result.directions;
    let sum = |what: fn(&Direction) -> u64| ways.iter().map(what).sum::<u64>();
    let spread =
        |what: fn(&Mark) -> f64| Spread::of(marks.iter().map(|mark| what(mark) / 1e3).collect());
    RestartResult {
        how: run.how,
        count: silent_ms.len() as u64,
        ring: run.ring,
        inflight: run.inflight,
        mirrors: run.mirrors,
        rate_pps: run.rate_pps,
        lost: sum(|way| way.lost),
        duplicated: sum(|way| way.duplicated),
        duplicated_at_once_max: marks.iter().map(|mark| mark.duplicated).max().unwrap_or_default(),
        reordered: sum(|way| way.reordered),
        corrupted: sum(|way| way.corrupted),
        used_repeated: result.used_repeated,
        used_out_of_order: result.used_out_of_order,
        used_missing: result.used_missing,
        frames: sum(|way| way.sent),
        seconds: result.seconds,
        gap_ms: spread(|mark| mark.gap_us),
        gap_max_ms: run.gap_max_ms,
        absence_ms: spread(|mark| mark.absence_us),
        silent_ms: Spread::of(silent_ms),
        reattach_ms: spread(|mark| mark.reattach_us),
        directions: result.directions,
        pinned: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(how: RestartKind, change: fn(&mut NumberedResult, &mut [Mark])) -> RestartResult {
        let way = Direction { sent: 9, received: 9, ..Direction::default() };
        let mark = |gap_us| Mark { gap_us, ..Mark::default() };
        let mut result =
            NumberedResult { seconds: 2.0, directions: [way; 2], ..NumberedResult::default() };
        let mut marks = [mark(3000.0), mark(1000.0)];
        change(&mut result, &mut marks);
        let ring = RingKind::Split;
        let (inflight, mirrors) = (false, 0);
        let run =
            RestartRun { how, count: 2, rate_pps: 5, ring, inflight, mirrors, gap_max_ms: None };
        conclude(&result, run, vec![2.0, 1.0], &marks)
    }

    #[test]
    fn gaps_are_those_of_the_spans() {
        let told = told(RestartKind::Upgrade, |_, _| {});
        assert!(told.passed());
        assert_eq!((told.count, told.frames), (2, 18));
        assert_eq!(told.gap_ms, Spread { p50: 1.0, p90: 3.0, p99: 3.0, max: 3.0 });
        assert_eq!(told.silent_ms.p50, 1.0);
        assert_eq!(Spread::of(Vec::new()), Spread::default());
        let within = |most| RestartResult { gap_max_ms: Some(most), ..told.clone() }.passed();
        assert!(within(3.0) && !within(2.9));
    }

    #[test]
    fn whatever_is_wrong_once_is_enough_to_fail() {
        let fails = |how, change| !told(how, change).passed();
        assert!(fails(RestartKind::Upgrade, |result, _| result.directions[1].lost = 1));
        assert!(fails(RestartKind::Kill, |result, _| result.directions[0].reordered = 1));
        assert!(fails(RestartKind::Kill, |result, _| result.directions[0].corrupted = 1));
        assert!(fails(RestartKind::Kill, |result, _| result.used_repeated = 1));
        assert!(fails(RestartKind::Kill, |result, _| result.used_out_of_order = 1));
        assert!(fails(RestartKind::Upgrade, |result, _| result.used_missing = 1));
    }

    #[test]
    fn a_burst_may_come_twice_after_a_kill_and_not_after_an_upgrade() {
        let burst = |result: &mut NumberedResult, marks: &mut [Mark]| {
            result.directions[0].duplicated = 64;
            marks[0].duplicated = 64;
        };
        assert!(told(RestartKind::Kill, burst).passed());
        assert!(!told(RestartKind::Upgrade, burst).passed());
        let more = |_: &mut NumberedResult, marks: &mut [Mark]| marks[0].duplicated = 129;
        assert!(!told(RestartKind::Kill, more).passed());
    }
}
