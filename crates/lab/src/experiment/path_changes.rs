//! Path changes while numbered frames flow.
//!
//! Two guests send numbered frames to each other as fast as a window allows. Meanwhile their
//! adapters change at random among the paths vf, vmq and synthetic, one at a time, through the
//! daemon's API. Each change is a request that returns when it is applied and stored; now and then,
//! and at the end, the paths in force are read back. [`traffic::numbered`] accounts for each
//! number.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use model::state::PathInForce;
use report::statistics::random::Random;
use serde::Serialize;
use traffic::protocol::numbered::{Direction, NumberedResult, NumberedSpec};
use traffic::{Event, Task};

use super::sample::spread;
use crate::bench::{
    AdapterPlan, BenchAttachment, GuestProcess, SwitchedBench, SwitchedPlan, mac_text, plan,
};

/// Paths to change between.
const PATHS: [PathInForce; 3] = [PathInForce::Vf, PathInForce::Vmq, PathInForce::Synthetic];
/// Number of changes between two checks of the paths in force.
const CHECK_EVERY: u64 = 100;
/// Traffic before the first change, and after the last.
const ALONE: Duration = Duration::from_millis(200);

/// Settings of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChangesRun {
    /// Number of changes.
    pub count: u64,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Result, printed by `shunt lab path-changes --json`.
#[derive(Clone, Debug, Serialize)]
pub struct PathChanges {
    /// Frames that never arrived, in both directions, as all of the following.
    pub lost: u64,
    /// Duplicated frames.
    pub duplicated: u64,
    /// Frames that arrived after a later one.
    pub reordered: u64,
    /// Frames with changed bytes.
    pub corrupted: u64,
    /// Longest time between two arrivals in one direction, in microseconds.
    pub gap_us_max: f64,
    /// Longest time that the guests' process had no CPU, in microseconds: no frame arrives in it.
    pub absence_us_max: f64,
    /// Frames sent.
    pub frames: u64,
    /// Applied changes.
    pub changes: u64,
    /// Applied changes by path before and after.
    pub changes_by_path: BTreeMap<String, u64>,
    /// Number of checks of the paths in force.
    pub checks: u64,
    /// Duration of a change in milliseconds, from request to answer: minimum, median, maximum.
    pub change_ms: [f64; 3],
    /// Seconds of traffic.
    pub seconds: f64,
    /// Mframes/s, both directions together.
    pub mpps: f64,
    /// From the first guest to the second, and back.
    pub directions: [Direction; 2],
    /// Seed of the random numbers.
    pub seed: u64,
    /// Pinned CPUs: switch, guests.
    pub pinned: Vec<usize>,
}

impl PathChanges {
    /// `true` if every frame arrived once, intact and in order.
    pub fn passed(&self) -> bool {
        self.lost + self.duplicated + self.reordered + self.corrupted == 0 && self.frames > 0
    }
}

/// Runs it; `program` is the shunt binary, `cpus` the allowed CPUs. Passes changes so far to
/// `done`.
pub fn run(
    program: &Path,
    cpus: &[usize],
    run: PathChangesRun,
    done: impl FnMut(u64),
) -> Result<PathChanges> {
    let placement = plan(cpus, 1);
    let paths = [PathInForce::Vf, PathInForce::Synthetic];
    let adapter = |i: usize| AdapterPlan {
        attached: BenchAttachment::Socket,
        mac: mac_text(i, 0),
        path: paths[i],
    };
    let adapters = vec![adapter(0), adapter(1)];
    let plan = SwitchedPlan { cpu: placement.switch, adapters, ..SwitchedPlan::default() };
    let mut bench = SwitchedBench::start(program, &plan)?;
    let guest = |i: usize| (bench.socket(i), mac_text(i, 0).to_string());
    let guests = [guest(0), guest(1)];
    let spec = NumberedSpec { cpu: placement.guests[0].0, guests, ..NumberedSpec::default() };
    let mut guests = GuestProcess::start_task(bench.bench.program(), &Task::Numbered(spec))?;
    guests.go()?;
    std::thread::sleep(ALONE);
    let mut log = Log { paths, ..Log::default() };
    let changed = log.change(&bench, run, done);
    if let Err(error) = changed {
        bench.bench.check_alive()?; // its standard error says more
        return Err(error);
    }
    std::thread::sleep(ALONE);
    guests.go()?; // any line ends it
    let result = match guests.hear()? {
        Event::Numbered(result) => result,
        other => bail!("the guest process said {other:?} and no result"),
    };
    bench.bench.check_alive()?;
    let pinned = placement.switch.into_iter().chain(placement.guests[0].0).collect();
    Ok(PathChanges { pinned, ..conclude(&result, log, run.seed) })
}

/// Changes so far.
#[derive(Debug)]
struct Log {
    paths: [PathInForce; 2],
    by_path: BTreeMap<String, u64>,
    took_ms: Vec<f64>,
    checks: u64,
}

impl Default for Log {
    fn default() -> Log {
        let paths = [PathInForce::None; 2];
        Log { paths, by_path: BTreeMap::new(), took_ms: Vec::new(), checks: 0 }
    }
}

impl Log {
    fn change(
        &mut self,
        bench: &SwitchedBench,
        run: PathChangesRun,
        mut done: impl FnMut(u64),
    ) -> Result<()> {
        let mut random = Random::new(run.seed);
        for change in 1..=run.count {
            let (adapter, path) = next(&mut random, &self.paths);
            let begin = Instant::now();
            bench.set_path(adapter, path)?;
            self.took_ms.push(begin.elapsed().as_secs_f64() * 1e3);
            let before = std::mem::replace(&mut self.paths[adapter], path);
            *self.by_path.entry(format!("{before} to {path}")).or_default() += 1;
            if change % CHECK_EVERY == 0 || change == run.count {
                bench.check_paths(&self.paths)?;
                self.checks += 1;
                done(change);
            }
        }
        Ok(())
    }
}

/// A random adapter, and a path other than its present one.
fn next(random: &mut Random, paths: &[PathInForce; 2]) -> (usize, PathInForce) {
    let adapter = random.below(2) as usize;
    (adapter, other_path(random, paths[adapter]))
}

/// A random path other than `path`.
pub(super) fn other_path(random: &mut Random, path: PathInForce) -> PathInForce {
    let others: Vec<PathInForce> = PATHS.into_iter().filter(|other| *other != path).collect();
    random.pick(&others)
}

fn conclude(result: &NumberedResult, log: Log, seed: u64) -> PathChanges {
    let ways = &result.directions;
    let sum = |what: fn(&Direction) -> u64| ways.iter().map(what).sum::<u64>();
    let received = sum(|way| way.received);
    PathChanges {
        lost: sum(|way| way.lost),
        duplicated: sum(|way| way.duplicated),
        reordered: sum(|way| way.reordered),
        corrupted: sum(|way| way.corrupted),
        gap_us_max: ways[0].gap_us_max.max(ways[1].gap_us_max),
        absence_us_max: result.absence_us_max,
        frames: sum(|way| way.sent),
        changes: log.took_ms.len() as u64,
        changes_by_path: log.by_path,
        checks: log.checks,
        change_ms: spread(log.took_ms),
        seconds: result.seconds,
        mpps: received as f64 / result.seconds / 1e6,
        directions: result.directions,
        seed,
        pinned: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_one_and_each_kind_comes() {
        let mut random = Random::new(1);
        let mut paths = [PathInForce::Vf; 2];
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let (adapter, path) = next(&mut random, &paths);
            assert_ne!(paths[adapter], path);
            seen.insert((adapter, paths[adapter], path));
            paths[adapter] = path;
        }
        assert_eq!(seen.len(), 12, "two adapters, three paths to two others");
    }

    #[test]
    fn one_bad_frame_in_one_direction_is_enough_to_fail() {
        let told = |change: fn(&mut Direction)| {
            let good = Direction { sent: 9, received: 9, gap_us_max: 5.0, ..Direction::default() };
            let mut directions = [good; 2];
            change(&mut directions[1]);
            let result = NumberedResult {
                seconds: 2.0,
                directions,
                absence_us_max: 1.0,
                ..NumberedResult::default()
            };
            conclude(&result, Log::default(), 0)
        };
        let good = told(|way| way.gap_us_max = 7.0);
        assert!(good.passed());
        assert_eq!((good.frames, good.gap_us_max), (18, 7.0));
        assert!(!told(|way| way.lost = 1).passed());
        assert!(!told(|way| way.duplicated = 1).passed());
        assert!(!told(|way| way.reordered = 1).passed());
        assert!(!told(|way| way.corrupted = 1).passed());
    }
}
