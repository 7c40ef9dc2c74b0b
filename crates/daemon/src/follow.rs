//! Which path suits the traffic of an adapter: `path = "auto"`.
//!
//! Model: for each adapter a [`Follower`] is told, interval by interval, what was counted, and
//! answers when another path suits it. Traffic to and from the wire (north/south) wants a VF, which
//! spares it the switch. Traffic between guests of the server (east/west) wants the switch: a hop
//! from VF to VF crosses the bus twice and shares what the card's packet engine does, however many
//! VFs there are, while the switch copies from guest to guest. In Intel's measurements of 2017
//! (`published/nfv_dpdk_forwarding.csv`) VFs win or draw north/south at every frame size; east/west
//! the switch wins with frames of 1518 bytes from two guests on, and loses with frames below 512
//! bytes until there are many guests. So small frames stay where they are, and so does what is too
//! little to matter.
//!
//! A change of path is cheap and not free, so a Follower is slow to change its mind: another path
//! must suit without a break for [`Rules::intervals`] intervals and by a margin, and there are at
//! most [`Rules::changes_max`] changes within [`Rules::window_ms`]. Beyond that the adapter stays,
//! which is told once.
//!
//! The answers are [`Facts::suited`](model::state::Facts::suited). Limits: an adapter that was not
//! resumed begins with a VF, as [`allocate`](model::state::allocate) does; time is what the
//! intervals add up to. No I/O, no clock.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use model::state::PathInForce;

#[cfg(test)]
mod tests;

/// When a path suits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// With fewer frames a second, sent and received together, an adapter stays where it is:
    /// 10 000.
    pub frames_per_s_min: u64,
    /// With a greater part of its frames to and from the wire, in thousandths, a VF suits. 700.
    pub wire_permille_vf: u64,
    /// With a smaller part, the switch suits; what is between the two is the margin. 300.
    pub wire_permille_switch: u64,
    /// With smaller frames on the average, in bytes, the switch does not suit. 512.
    pub frame_bytes_switch: u64,
    /// For how many intervals in turn another path must suit. 5.
    pub intervals: u32,
    /// The most changes within the window. 6.
    pub changes_max: usize,
    /// The window, in ms. One hour.
    pub window_ms: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
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

/// Frames, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    /// How many.
    pub frames: u64,
    /// How long all together.
    pub bytes: u64,
}

/// What was counted of an adapter in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// The interval, in ms. One of 0 is not looked at.
    pub interval_ms: u64,
    /// What its guest sent.
    pub sent: Amount,
    /// What its guest received.
    pub received: Amount,
    /// Of what it sent, that which went to the uplink.
    pub sent_to_wire: Amount,
    /// Of what it received, that which came from the uplink.
    pub received_from_wire: Amount,
}

/// What an interval's traffic was like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Frames a second, sent and received.
    pub frames_per_s: u64,
    /// Bytes of a frame on the average.
    pub frame_bytes: u64,
    /// Frames to and from the wire, in thousandths.
    pub wire_permille: u64,
}

impl Traffic {
    /// What it was like.
    pub(crate) fn kind(&self) -> Kind {
        let frames = self.sent.frames.saturating_add(self.received.frames);
        let bytes = self.sent.bytes.saturating_add(self.received.bytes);
        // Counters are not read at one moment, so a part may be a little more than the whole.
        let wire = self.sent_to_wire.frames.saturating_add(self.received_from_wire.frames);
        let part = |amount: u64, unit: u64, of: u64| {
            let part = u128::from(amount) * u128::from(unit) / u128::from(of.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        Kind {
            frames_per_s: part(frames, 1000, self.interval_ms),
            frame_bytes: part(bytes, 1, frames),
            wire_permille: part(wire.min(frames), 1000, frames),
        }
    }
}

impl Rules {
    /// The path that suits, if one does better than any other.
    fn suits(&self, kind: Kind) -> Option<PathInForce> {
        if kind.frames_per_s < self.frames_per_s_min {
            None
        } else if kind.wire_permille > self.wire_permille_vf {
            Some(PathInForce::Vf)
        } else if kind.wire_permille < self.wire_permille_switch
            && kind.frame_bytes >= self.frame_bytes_switch
        {
            Some(PathInForce::Synthetic)
        } else {
            None
        }
    }
}

/// What was decided of an adapter, and why: an entry for a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Which adapter.
    pub adapter: String,
    /// The path that suited it until now.
    pub from: PathInForce,
    /// The path that suits its traffic.
    pub to: PathInForce,
    /// Whether it stays all the same, as it has changed too often.
    pub held: bool,
    /// The last interval's traffic.
    pub kind: Kind,
    rules: Rules,
}

impl fmt::Display for Decision {
    /// `vf -> synthetic: 4 % of its frames go to or from the wire (under 30 % for 5 intervals)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { from, to, kind, rules, .. } = self;
        let Kind { frames_per_s, frame_bytes, wire_permille } = kind;
        let percent = wire_permille / 10;
        let limit = match to {
            PathInForce::Vf => format!("over {} %", rules.wire_permille_vf / 10),
            _ => format!("under {} %", rules.wire_permille_switch / 10),
        };
        write!(f, "{from} -> {to}: ")?;
        if self.held {
            let Rules { changes_max, window_ms, .. } = rules;
            let minutes = window_ms.div_ceil(60_000);
            write!(f, "not done, {changes_max} changes in {minutes} min are the most; ")?;
        }
        write!(
            f,
            "{percent} % of its frames go to or from the wire ({limit} for {} intervals), {frames_per_s} frames a second \
             of {frame_bytes} bytes",
            rules.intervals
        )
    }
}

/// What is remembered of an adapter.
#[derive(Debug, Clone)]
struct Track {
    suited: PathInForce,
    /// For how many intervals in turn the other path has suited.
    streak: u32,
    now_ms: u64,
    /// When it changed, within the window.
    changes: VecDeque<u64>,
    /// Whether it was told that it stays.
    held: bool,
}

impl Track {
    fn new(suited: PathInForce) -> Self {
        Track { suited, streak: 0, now_ms: 0, changes: VecDeque::new(), held: false }
    }

    /// The path to change to, if it is time; and whether that is held back.
    fn observe(
        &mut self,
        rules: &Rules,
        interval_ms: u64,
        kind: Kind,
    ) -> Option<(PathInForce, bool)> {
        self.now_ms = self.now_ms.saturating_add(interval_ms);
        let since = self.now_ms.saturating_sub(rules.window_ms);
        while self.changes.front().is_some_and(|change| *change <= since) {
            self.changes.pop_front();
        }
        let Some(to) = rules.suits(kind).filter(|to| *to != self.suited) else {
            (self.streak, self.held) = (0, false);
            return None;
        };
        self.streak = self.streak.saturating_add(1);
        if self.streak < rules.intervals {
            return None;
        }
        if self.changes.len() >= rules.changes_max {
            let told = std::mem::replace(&mut self.held, true);
            return (!told).then_some((to, true));
        }
        self.changes.push_back(self.now_ms);
        (self.suited, self.streak, self.held) = (to, 0, false);
        Some((to, false))
    }
}

/// Follows the traffic of adapters; see the module's documentation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Follower {
    rules: Rules,
    tracks: BTreeMap<String, Track>,
}

impl Follower {
    /// One that goes by these rules.
    #[cfg(test)]
    pub(crate) fn new(rules: Rules) -> Self {
        Follower { rules, tracks: BTreeMap::new() }
    }

    /// Takes up an adapter whose traffic was found to suit `path` before, as after a restart.
    pub(crate) fn resume(&mut self, adapter: &str, path: PathInForce) {
        self.tracks.insert(adapter.to_owned(), Track::new(path));
    }

    /// Takes note of an adapter's traffic in an interval. Answers if that changes something, or
    /// would if it had not changed too often.
    pub(crate) fn observe(&mut self, adapter: &str, traffic: &Traffic) -> Option<Decision> {
        if traffic.interval_ms == 0 {
            return None;
        }
        if !self.tracks.contains_key(adapter) {
            self.resume(adapter, PathInForce::Vf);
        }
        let (rules, kind) = (self.rules, traffic.kind());
        let track = self.tracks.get_mut(adapter)?;
        let from = track.suited;
        let (to, held) = track.observe(&rules, traffic.interval_ms, kind)?;
        Some(Decision { adapter: adapter.to_owned(), from, to, held, kind, rules })
    }

    /// Forgets adapters that are not to be followed any more.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.tracks.retain(|adapter, _| keep(adapter));
    }

    /// The path that suits each adapter.
    pub(crate) fn suited(&self) -> BTreeMap<String, PathInForce> {
        self.tracks.iter().map(|(adapter, track)| (adapter.clone(), track.suited)).collect()
    }
}
