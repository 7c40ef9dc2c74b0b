//! Path selection by traffic, for adapters with `path = "auto"`.
//!
//! # Model
//! A [`PathSelector`] is given each adapter's traffic counters interval by interval, and decides on
//! the path. Traffic to and from the wire (north/south) suits a VF, which bypasses the switch.
//! Traffic between guests of the server (east/west) suits the switch. From VF to VF a frame crosses
//! the bus twice and shares the card's packet engine, while the switch copies it from guest to
//! guest.
//!
//! In Intel's measurements of 2017 (`published/nfv_dpdk_forwarding.csv`) VFs win or draw
//! north/south at every frame size. East/west the switch wins with frames of 1518 bytes from two
//! guests on; with frames below 512 bytes it loses until there are many guests. So adapters with
//! small frames or little traffic keep their path.
//!
//! A change of path has a cost. Another path must suit for [`PathRules::intervals`] consecutive
//! intervals and by a margin. There are at most [`PathRules::changes_max`] changes within
//! [`PathRules::window_ms`]; beyond that the adapter keeps its path, which is reported once.
//!
//! The results are [`Facts::suited`](model::state::Facts::suited).
//!
//! # Limits
//! An adapter that was not resumed starts with a VF, as in [`allocate`](model::state::allocate).
//! Time is the sum of the intervals. No I/O, no clock.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use model::state::PathInForce;

#[cfg(test)]
mod tests;

/// Thresholds of path selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathRules {
    /// Minimum frames per second, sent and received: with fewer an adapter keeps its path. 10 000.
    pub frames_per_s_min: u64,
    /// Share of frames to and from the wire above which a VF suits, in thousandths. 700.
    pub wire_permille_vf: u64,
    /// Share below which the switch suits, in thousandths; the gap between both is the margin. 300.
    pub wire_permille_switch: u64,
    /// Minimum average frame size for the switch, in bytes. 512.
    pub frame_bytes_switch: u64,
    /// Number of consecutive intervals for which another path must suit. 5.
    pub intervals: u32,
    /// Maximum number of changes within the window. 6.
    pub changes_max: usize,
    /// Window, in milliseconds. One hour.
    pub window_ms: u64,
}

impl Default for PathRules {
    fn default() -> Self {
        PathRules {
            frames_per_s_min: 10_000,
            wire_permille_vf: 700,
            wire_permille_switch: 300,
            frame_bytes_switch: 512,
            intervals: 5,
            changes_max: 6,
            window_ms: 3_600_000,
        }
    }
}

/// Number of frames, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FrameCount {
    /// Frames.
    pub frames: u64,
    /// Total bytes.
    pub bytes: u64,
}

/// Traffic counters of an adapter for one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrafficSample {
    /// Interval, in milliseconds; an interval of 0 is ignored.
    pub interval_ms: u64,
    /// Sent by the guest.
    pub sent: FrameCount,
    /// Received by the guest.
    pub received: FrameCount,
    /// Sent to the uplink.
    pub sent_to_wire: FrameCount,
    /// Received from the uplink.
    pub received_from_wire: FrameCount,
}

/// Traffic profile of an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrafficProfile {
    /// Frames per second, sent and received.
    pub frames_per_s: u64,
    /// Average frame size, in bytes.
    pub frame_bytes: u64,
    /// Share of frames to and from the wire, in thousandths.
    pub wire_permille: u64,
}

impl TrafficSample {
    /// Computes the profile.
    pub(crate) fn profile(&self) -> TrafficProfile {
        let frames = self.sent.frames.saturating_add(self.received.frames);
        let bytes = self.sent.bytes.saturating_add(self.received.bytes);
        // Counters are not read at the same moment, so a part may slightly exceed the whole.
        let wire = self.sent_to_wire.frames.saturating_add(self.received_from_wire.frames);
        let part = |amount: u64, unit: u64, of: u64| {
            let part = u128::from(amount) * u128::from(unit) / u128::from(of.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        TrafficProfile {
            frames_per_s: part(frames, 1000, self.interval_ms),
            frame_bytes: part(bytes, 1, frames),
            wire_permille: part(wire.min(frames), 1000, frames),
        }
    }
}

impl PathRules {
    /// Path that suits, if one is clearly better.
    fn suits(&self, profile: TrafficProfile) -> Option<PathInForce> {
        if profile.frames_per_s < self.frames_per_s_min {
            None
        } else if profile.wire_permille > self.wire_permille_vf {
            Some(PathInForce::Vf)
        } else if profile.wire_permille < self.wire_permille_switch
            && profile.frame_bytes >= self.frame_bytes_switch
        {
            Some(PathInForce::Synthetic)
        } else {
            None
        }
    }
}

/// Decision about an adapter's path, with its cause: a log entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathDecision {
    /// Adapter.
    pub adapter: String,
    /// Path that suited it until now.
    pub from: PathInForce,
    /// Path that suits its traffic.
    pub to: PathInForce,
    /// The change is suppressed: too many within the window.
    pub suppressed: bool,
    /// Traffic profile of the last interval.
    pub profile: TrafficProfile,
    rules: PathRules,
}

impl fmt::Display for PathDecision {
    /// Example: `vf -> synthetic: 4 % of its frames go to or from the wire (under 30 % for 5
    /// intervals)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathDecision { from, to, profile, rules, .. } = self;
        let TrafficProfile { frames_per_s, frame_bytes, wire_permille } = profile;
        let percent = wire_permille / 10;
        let limit = match to {
            PathInForce::Vf => format!("over {} %", rules.wire_permille_vf / 10),
            _ => format!("under {} %", rules.wire_permille_switch / 10),
        };
        write!(f, "{from} -> {to}: ")?;
        if self.suppressed {
            let PathRules { changes_max, window_ms, .. } = rules;
            let minutes = window_ms.div_ceil(60_000);
            write!(f, "suppressed, at most {changes_max} changes in {minutes} min; ")?;
        }
        write!(
            f,
            "{percent} % of its frames go to or from the wire ({limit} for {} intervals), {frames_per_s} frames/s \
             of {frame_bytes} bytes",
            rules.intervals
        )
    }
}

/// State of an adapter.
#[derive(Debug, Clone)]
struct AdapterTrack {
    suited: PathInForce,
    /// Number of consecutive intervals for which the other path has suited.
    streak: u32,
    now_ms: u64,
    /// Times of changes within the window, in milliseconds.
    changes: VecDeque<u64>,
    /// A suppressed change has been reported.
    suppressed: bool,
}

impl AdapterTrack {
    fn new(suited: PathInForce) -> Self {
        AdapterTrack { suited, streak: 0, now_ms: 0, changes: VecDeque::new(), suppressed: false }
    }

    /// Path to change to, if due, and a flag that the change is suppressed.
    fn observe(
        &mut self,
        rules: &PathRules,
        interval_ms: u64,
        profile: TrafficProfile,
    ) -> Option<(PathInForce, bool)> {
        self.now_ms = self.now_ms.saturating_add(interval_ms);
        let since = self.now_ms.saturating_sub(rules.window_ms);
        while self.changes.front().is_some_and(|change| *change <= since) {
            self.changes.pop_front();
        }
        let Some(to) = rules.suits(profile).filter(|to| *to != self.suited) else {
            (self.streak, self.suppressed) = (0, false);
            return None;
        };
        self.streak = self.streak.saturating_add(1);
        if self.streak < rules.intervals {
            return None;
        }
        if self.changes.len() >= rules.changes_max {
            let told = std::mem::replace(&mut self.suppressed, true);
            return (!told).then_some((to, true));
        }
        self.changes.push_back(self.now_ms);
        (self.suited, self.streak, self.suppressed) = (to, 0, false);
        Some((to, false))
    }
}

/// Selects paths by traffic; see the module's documentation.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathSelector {
    rules: PathRules,
    tracks: BTreeMap<String, AdapterTrack>,
}

impl PathSelector {
    /// A selector with these rules.
    #[cfg(test)]
    pub(crate) fn new(rules: PathRules) -> Self {
        PathSelector { rules, tracks: BTreeMap::new() }
    }

    /// Restores the path of an adapter, as after a restart.
    pub(crate) fn resume(&mut self, adapter: &str, path: PathInForce) {
        self.tracks.insert(adapter.to_owned(), AdapterTrack::new(path));
    }

    /// Adds an interval of an adapter's traffic; returns a decision to change its path, or a
    /// suppressed one.
    pub(crate) fn observe(
        &mut self,
        adapter: &str,
        traffic: &TrafficSample,
    ) -> Option<PathDecision> {
        if traffic.interval_ms == 0 {
            return None;
        }
        if !self.tracks.contains_key(adapter) {
            self.resume(adapter, PathInForce::Vf);
        }
        let (rules, profile) = (self.rules, traffic.profile());
        let track = self.tracks.get_mut(adapter)?;
        let from = track.suited;
        let (to, suppressed) = track.observe(&rules, traffic.interval_ms, profile)?;
        Some(PathDecision { adapter: adapter.to_owned(), from, to, suppressed, profile, rules })
    }

    /// Removes adapters that are no longer selected for.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.tracks.retain(|adapter, _| keep(adapter));
    }

    /// Path suited to each adapter.
    pub(crate) fn suited(&self) -> BTreeMap<String, PathInForce> {
        self.tracks.iter().map(|(adapter, track)| (adapter.clone(), track.suited)).collect()
    }
}
