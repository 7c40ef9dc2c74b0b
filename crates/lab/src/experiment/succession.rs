//! Daemons that follow one another while numbered frames flow: by hot restart, or after a kill.
//!
//! Two guests send numbered frames to each other at a stated rate. Again and again the daemon is
//! replaced by another process ([`How::Upgrade`]), or killed with SIGKILL and started again
//! ([`How::Kill`]); the guests attach anew by themselves then, with their rings as they are. What
//! became of each number, and of each buffer, is told by [`traffic::numbered`].
//!
//! What a daemon that was killed had shown to a receiver, and not yet given back to its sender,
//! arrives again: at most a burst in each direction a kill.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use report::RingKind;
use serde::Serialize;
use traffic::numbered::{Direction, Mark, NumberedResult, NumberedSpec};
use traffic::{Event, Task};

use crate::bench::{Bench, GuestProcess, NicPlan, VfPlan, mac_text, plan};

/// How one daemon follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The new process takes over.
    Upgrade,
    /// The old one is killed.
    Kill,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SuccessionRun {
    /// How.
    pub how: How,
    /// How often.
    pub count: u64,
    /// Frames a second in each direction; 0: as many as go.
    pub rate_pps: u32,
    /// Rings of the guests' adapters.
    pub ring: RingKind,
    /// Whether what is in flight is written down for the next daemon.
    pub inflight: bool,
    /// VFs whose frames are mirrored to files, 0 to [`MIRRORS_MAX`]: those of the guests first.
    pub mirrors: usize,
    /// The longest gap that is let pass, ms, if one is not.
    pub gap_max_ms: Option<f64>,
}

/// Half, nine tenths, and 99 of 100 are not more than this; and the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub p50: f64,
    /// Nine in ten are not more.
    pub p90: f64,
    /// 99 in a hundred are not more.
    pub p99: f64,
    /// The most.
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

/// What `shunt lab upgrade --json` and `shunt lab kill --json` print.
#[derive(Clone, Debug, Serialize)]
pub struct Succession {
    /// How one daemon followed another.
    pub how: How,
    /// How often.
    pub count: u64,
    /// Rings of the guests' adapters.
    pub ring: RingKind,
    /// Whether what was in flight was written down.
    pub inflight: bool,
    /// VFs whose frames were mirrored to files.
    pub mirrors: usize,
    /// Frames a second in each direction, as asked for; 0: as many as went.
    pub rate_pps: u32,
    /// Frames that never arrived, in both directions; so for all that follow.
    pub lost: u64,
    /// Frames that arrived again.
    pub duplicated: u64,
    /// The most of them after one kill.
    pub duplicated_at_once_max: u64,
    /// Frames that arrived after a later one.
    pub reordered: u64,
    /// Frames that were not as they had been sent.
    pub corrupted: u64,
    /// Used entries that repeat another, or name no buffer.
    pub used_repeated: u64,
    /// Buffers that came back before others that were posted earlier.
    pub used_out_of_order: u64,
    /// Sent buffers that never came back.
    pub used_missing: u64,
    /// Frames sent.
    pub frames: u64,
    /// Seconds of traffic.
    pub seconds: f64,
    /// Longest time between two arrivals in one direction, around each succession, in milliseconds.
    pub gap_ms: Spread,
    /// The longest that it may be, if it may not be any; in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_max_ms: Option<f64>,
    /// Longest time that the guests' process had no CPU around each, in milliseconds.
    pub absence_ms: Spread,
    /// For an upgrade, how long neither daemon served; for a kill, from it to a daemon that is
    /// ready; in milliseconds.
    pub silent_ms: Spread,
    /// After a kill, from a daemon that listens again to rings that are started, in milliseconds.
    pub reattach_ms: Spread,
    /// From the first guest to the second, and back.
    pub directions: [Direction; 2],
    /// CPUs that were pinned: switch, guests.
    pub pinned: Vec<usize>,
}

impl Succession {
    /// Whether every frame arrived, whole and in order, and every buffer came back once; after an
    /// upgrade no frame may arrive twice, either, and no gap be longer than it may.
    pub fn passed(&self) -> bool {
        let doubled = match self.how {
            How::Upgrade => self.duplicated,
            How::Kill => self.duplicated_at_once_max.saturating_sub(2 * virtq::BURST as u64),
        };
        let frames = self.lost + doubled + self.reordered + self.corrupted;
        let used = self.used_repeated + self.used_out_of_order + self.used_missing;
        let is_in_time = self.gap_max_ms.is_none_or(|most| self.gap_ms.max <= most);
        frames + used == 0 && self.frames > 0 && is_in_time
    }
}

/// The most mirrors: each takes 32 MiB of memory, twice during an upgrade, and up to 1 GiB of disk.
pub const MIRRORS_MAX: usize = 16;

/// Traffic around each succession.
const AROUND: Duration = Duration::from_millis(60);

/// The daemon waits 0.5 s for guests of VFs that have none, and is not replaced before.
const SETTLED: Duration = Duration::from_secs(1);

/// Runs it; `program` is shunt itself, `cpus` those it may use. `done` hears of successions.
///
/// # Errors
/// A daemon or the guests do not start, or end by themselves.
pub fn run(
    program: &Path,
    cpus: &[usize],
    run: SuccessionRun,
    mut done: impl FnMut(u64),
) -> Result<Succession> {
    let placement = plan(cpus, 1);
    let vf = |i| VfPlan { macs: vec![mac_text(i, 0)], ..VfPlan::default() };
    let vfs = (0..run.mirrors.max(2)).map(vf).collect();
    let nic = NicPlan { cpu: placement.switch, vfs, ..NicPlan::default() };
    let mut bench = Bench::start(program, &nic)?;
    bench.mirror(run.mirrors)?;
    let guest = |i: usize| (bench.vf_socket(i), mac_text(i, 0).to_string());
    let spec = NumberedSpec {
        cpu: placement.guests[0].0,
        guests: [guest(0), guest(1)],
        rate_pps: run.rate_pps,
        ring: run.ring,
        inflight: run.inflight,
        reattach: run.how == How::Kill,
    };
    let mut guests = GuestProcess::start_task(program, &Task::Numbered(spec))?;
    guests.go()?;
    std::thread::sleep(if run.mirrors > 2 { SETTLED } else { AROUND });
    guests.mark()?; // what was before the first is none of it
    let mut silent_ms = Vec::new();
    for turn in 1..=run.count {
        std::thread::sleep(AROUND);
        silent_ms.push(match run.how {
            How::Upgrade => bench.upgrade()?.silent_us as f64 / 1e3,
            How::Kill => bench.kill_and_restart()? * 1e3,
        });
        std::thread::sleep(AROUND);
        guests.mark()?;
        done(turn);
    }
    std::thread::sleep(AROUND);
    guests.go()?; // any other word ends it
    let result = match guests.hear()? {
        Event::Numbered(result) => result,
        other => bail!("the guests said {other:?} and no result"),
    };
    bench.check_alive()?;
    let pinned = placement.switch.into_iter().chain(placement.guests[0].0).collect();
    Ok(Succession { pinned, ..conclude(&result, run, silent_ms) })
}

fn conclude(result: &NumberedResult, run: SuccessionRun, silent_ms: Vec<f64>) -> Succession {
    let ways = &result.directions;
    let sum = |what: fn(&Direction) -> u64| ways.iter().map(what).sum::<u64>();
    let marks = result.marks.get(1..).unwrap_or_default();
    let spread =
        |what: fn(&Mark) -> f64| Spread::of(marks.iter().map(|mark| what(mark) / 1e3).collect());
    Succession {
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

    fn told(how: How, change: fn(&mut NumberedResult)) -> Succession {
        let way = Direction { sent: 9, received: 9, ..Direction::default() };
        let mark = |gap_us| Mark { gap_us, ..Mark::default() };
        let mut result = NumberedResult {
            seconds: 2.0,
            directions: [way; 2],
            marks: vec![mark(9e9), mark(3000.0), mark(1000.0)],
            ..NumberedResult::default()
        };
        change(&mut result);
        let ring = RingKind::Split;
        let (inflight, mirrors) = (false, 0);
        let run =
            SuccessionRun { how, count: 2, rate_pps: 5, ring, inflight, mirrors, gap_max_ms: None };
        conclude(&result, run, vec![2.0, 1.0])
    }

    #[test]
    fn gaps_are_told_without_what_was_before_the_first() {
        let told = told(How::Upgrade, |_| {});
        assert!(told.passed());
        assert_eq!((told.count, told.frames), (2, 18));
        assert_eq!(told.gap_ms, Spread { p50: 1.0, p90: 3.0, p99: 3.0, max: 3.0 });
        assert_eq!(told.silent_ms.p50, 1.0);
        assert_eq!(Spread::of(Vec::new()), Spread::default());
        let within = |most| Succession { gap_max_ms: Some(most), ..told.clone() }.passed();
        assert!(within(3.0) && !within(2.9));
    }

    #[test]
    fn whatever_is_wrong_once_is_enough_to_fail() {
        let fails = |how, change| !told(how, change).passed();
        assert!(fails(How::Upgrade, |result| result.directions[1].lost = 1));
        assert!(fails(How::Kill, |result| result.directions[0].reordered = 1));
        assert!(fails(How::Kill, |result| result.directions[0].corrupted = 1));
        assert!(fails(How::Kill, |result| result.used_repeated = 1));
        assert!(fails(How::Kill, |result| result.used_out_of_order = 1));
        assert!(fails(How::Upgrade, |result| result.used_missing = 1));
    }

    #[test]
    fn a_burst_may_come_twice_after_a_kill_and_not_after_an_upgrade() {
        let burst = |result: &mut NumberedResult| {
            result.directions[0].duplicated = 64;
            result.marks[1].duplicated = 64;
        };
        assert!(told(How::Kill, burst).passed());
        assert!(!told(How::Upgrade, burst).passed());
        let more = |result: &mut NumberedResult| result.marks[1].duplicated = 129;
        assert!(!told(How::Kill, more).passed());
    }
}
