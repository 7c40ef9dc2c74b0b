//! Account of a soak: losses by cause, and the daemon's resources over time.

use std::collections::BTreeMap;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;
use traffic::Latency;
use traffic::protocol::numbered::{Direction, Mark};
use virtq::BURST;

use super::plan::{Action, Kind};
use crate::bench::ProcessSize;

/// Readings of the daemon's resources.
pub const POINTS: usize = 12;
/// Open files by which readings may differ: those of a session depend on its adapter's path.
pub const FDS_TOLERANCE: usize = 8;
/// Readings that the last one is compared with: at a twelfth of the run, and the first after half
/// time, from which on one process serves.
pub(super) const BASES: [usize; 2] = [0, POINTS / 2];
/// Growth of memory that is no leak, MiB: allocators keep freed memory.
pub const OWN_MIB_TOLERANCE: f64 = 4.0;
/// Growth of the number of files that is no leak: each adapter's first packed ring makes one, and
/// the first tap.
pub const FILES_TOLERANCE: usize = 10;

/// State of a soak at one moment, without hostile guests, copies and temporary settings.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Point {
    /// Seconds since the start.
    pub seconds: f64,
    /// Actions so far.
    pub actions: usize,
    /// Frames of the honest guests so far.
    pub frames: Direction,
    /// Latency of their frames since the last point.
    pub latency: Latency,
    /// Resources of the daemon.
    #[serde(flatten)]
    pub size: ProcessSize,
    /// Files in its run directory.
    pub files: usize,
}

/// Frames around the actions of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cause {
    /// Number of actions.
    pub actions: u64,
    /// Lost frames that the daemon counted under a reason that the action explains, by reason.
    pub lost: BTreeMap<String, u64>,
    /// Other lost frames.
    pub lost_unexplained: u64,
    /// Duplicated frames.
    pub duplicated: u64,
    /// Longest time between two arrivals in one direction, in milliseconds.
    pub gap_ms_max: f64,
    /// Longest time that the guests' process had no CPU, in milliseconds.
    pub absence_ms_max: f64,
}

/// Account of the frames, step by step.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) frames: Direction,
    pub(super) causes: BTreeMap<String, Cause>,
    pub(super) problems: Vec<String>,
    /// Latencies since the last point.
    latencies_ns: Histogram<u64>,
}

impl Account {
    pub(super) fn new() -> Result<Account> {
        let latencies_ns = traffic::histogram()?;
        let (frames, causes, problems) = Default::default();
        Ok(Account { frames, causes, problems, latencies_ns })
    }

    /// Records a step: the spans of its frames, and the drops at the honest ports by reason.
    pub(super) fn record(
        &mut self,
        step: usize,
        action: &Action,
        spans: &[Mark],
        drops: &BTreeMap<String, u64>,
    ) {
        let Some(last) = spans.last() else { return };
        let before = std::mem::replace(&mut self.frames, Direction::of_both(&last.directions));
        let gain = |what: fn(&Direction) -> u64| what(&self.frames).saturating_sub(what(&before));
        let (mut lost, kind) = (gain(|frames| frames.lost), action.kind());
        let duplicated = gain(|frames| frames.duplicated);
        let cause = self.causes.entry(kind.as_str().to_owned()).or_default();
        cause.actions += 1;
        for (reason, count) in drops.iter().filter(|(reason, _)| explains(kind, reason)) {
            let explained = lost.min(*count);
            *cause.lost.entry(reason.clone()).or_default() += explained;
            lost -= explained;
        }
        cause.lost_unexplained += lost;
        cause.duplicated += duplicated;
        for span in spans {
            cause.gap_ms_max = cause.gap_ms_max.max(span.gap_us / 1e3);
            cause.absence_ms_max = cause.absence_ms_max.max(span.absence_us / 1e3);
            for (ns, count) in &span.latencies_ns {
                self.latencies_ns.saturating_record_n(*ns, *count);
            }
        }
        // Frames of a killed daemon's last burst in each direction may come again.
        let repeated = if kind == Kind::Kill { 2 * BURST as u64 } else { 0 };
        for (what, count) in [
            ("lost", lost),
            ("duplicated", duplicated.saturating_sub(repeated)),
            ("reordered", gain(|frames| frames.reordered)),
            ("corrupted", gain(|frames| frames.corrupted)),
        ] {
            if count > 0 {
                let drops = if drops.is_empty() { String::new() } else { format!("; {drops:?}") };
                self.problems.push(format!("step {step}, {action}: {count} frames {what}{drops}"));
            }
        }
    }

    /// Latency since the last call.
    pub(super) fn take_latency(&mut self) -> Latency {
        let latency = Latency::of(&self.latencies_ns);
        self.latencies_ns.reset();
        latency
    }
}

/// `true` if frames may be dropped for this reason around this kind of action. Frames to an adapter
/// whose link is down count as unmatched where the switch forwards them. After a kill, lanes wait
/// 500 ms for the guests, and drop frames for those that come later.
fn explains(kind: Kind, reason: &str) -> bool {
    match kind {
        Kind::Link => ["tx_link_down", "tx_no_match"].contains(&reason),
        Kind::Kill => reason == "rx_down",
        _ => false,
    }
}

/// Resources that the daemon has not given back by the last point, as sentences.
pub(super) fn leaks(points: &[Point]) -> Vec<String> {
    let (Some(last), POINTS..) = (points.last(), points.len()) else { return Vec::new() };
    let (mut leaks, files) = (Vec::new(), FILES_TOLERANCE as f64);
    for base in BASES.map(|base| &points[base]) {
        for (what, was, is, tolerance) in [
            ("MiB of memory", base.size.own_mib, last.size.own_mib, OWN_MIB_TOLERANCE),
            ("open files", base.size.fds as f64, last.size.fds as f64, FDS_TOLERANCE as f64),
            ("threads", base.size.threads as f64, last.size.threads as f64, 0.0),
            ("files in its directory", base.files as f64, last.files as f64, files),
        ] {
            if is > was + tolerance {
                let (from, to) = (base.seconds, last.seconds);
                leaks.push(format!("leak: {was:.1} {what} at {from:.0} s, {is:.1} at {to:.0} s"));
            }
        }
    }
    leaks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of a daemon whose resources grow by `change` from each to the next.
    fn series(change: fn(&mut Point, usize)) -> Vec<Point> {
        let point = |i| {
            let size = ProcessSize { rss_mib: 90.0, own_mib: 20.0, fds: 70, threads: 9 };
            let mut point = Point { seconds: i as f64, size, files: 12, ..Point::default() };
            change(&mut point, i);
            point
        };
        (0..POINTS).map(point).collect()
    }

    #[test]
    fn a_leak_is_told_by_its_kind() {
        assert_eq!(leaks(&series(|_, _| ())), Vec::<String>::new());
        let one = |change| {
            let leaks = leaks(&series(change));
            assert_eq!(leaks.len(), 2, "against both bases: {leaks:?}");
            leaks[0].clone()
        };
        assert_eq!(
            one(|point, i| point.size.fds += 2 * i),
            "leak: 70.0 open files at 0 s, 92.0 at 11 s"
        );
        assert!(one(|point, i| point.size.threads += i).contains("threads"));
        assert!(one(|point, i| point.files += 3 * i).contains("files in its directory"));
        assert!(one(|point, i| point.size.own_mib += i as f64).contains("MiB of memory"));
        // A new process at half time hides what the old one had lost.
        let late = leaks(&series(|point, i| point.size.fds -= if i == 6 { 9 } else { 0 }));
        assert_eq!(late, ["leak: 61.0 open files at 6 s, 70.0 at 11 s"]);
        assert!(leaks(&series(|point, i| point.size.own_mib += i as f64 / 5.0)).is_empty());
    }

    fn span(directions: [Direction; 2]) -> Mark {
        Mark { directions, latencies_ns: vec![(2000, 9), (90_000, 1)], ..Mark::default() }
    }

    #[test]
    fn losses_are_explained_by_drops_of_the_action_alone() {
        let direction =
            |lost| Direction { sent: 9 + lost, received: 9, lost, ..Direction::default() };
        let drops =
            BTreeMap::from([("tx_link_down".to_owned(), 5), ("rx_no_buffer".to_owned(), 1)]);
        let lost = |action: &Action, lost| {
            let mut account = Account::new().unwrap();
            account.record(3, action, &[span([direction(lost), direction(0)])], &drops);
            account
        };
        let link = Action::Link { adapter: 0 };
        let account = lost(&link, 5);
        assert_eq!(account.problems, Vec::<String>::new());
        assert_eq!(account.causes["link"].lost["tx_link_down"], 5);
        let Direction { sent, received, lost: all, .. } = account.frames;
        assert_eq!(sent, received + all);
        let account = lost(&link, 6);
        assert_eq!(account.causes["link"].lost_unexplained, 1);
        assert!(account.problems[0].starts_with("step 3, adapter g0 link down and up: 1 frames"));
        assert_eq!(lost(&Action::Upgrade, 5).causes["upgrade"].lost_unexplained, 5);
    }

    #[test]
    fn a_burst_may_come_twice_after_a_kill_and_latencies_are_those_since_the_last_point() {
        let twice = |action: &Action, duplicated| {
            let mut account = Account::new().unwrap();
            let way = Direction { sent: 9, received: 9, duplicated, ..Direction::default() };
            account.record(1, action, &[span([way; 2])], &BTreeMap::new());
            account
        };
        assert!(twice(&Action::Kill, 64).problems.is_empty());
        assert_eq!(twice(&Action::Kill, 65).problems.len(), 1);
        let mut account = twice(&Action::Upgrade, 1);
        assert_eq!(account.problems, ["step 1, hot restart: 2 frames duplicated"]);
        let latency = account.take_latency();
        assert_eq!((latency.frames, latency.p50_us.round()), (10, 2.0));
        assert_eq!(account.take_latency().frames, 0);
    }
}
