//! Actions of a soak: a list that follows from the seed, the number of steps and the kinds.

use std::fmt::{self, Display};
use std::str::FromStr;

use model::state::PathInForce;
use report::statistics::random::Random;

use super::super::path_changes::other_path;

/// Adapters whose guests are always there: two honest ones, then four that are hostile at times.
pub const ADAPTERS: usize = 6;
/// Initial path of each.
pub(super) const PATH: PathInForce = PathInForce::Vf;

/// Kinds of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An adapter changes path.
    Path,
    /// An adapter gets another weight and maximum rate.
    Settings,
    /// The port of an adapter gets rules, and loses them.
    Rules,
    /// Frames of an adapter are mirrored to a file for a while.
    Mirror,
    /// The link of an honest adapter is down for a while.
    Link,
    /// An adapter and its guest come and go.
    Adapter,
    /// Hostile guests attack.
    Hostile,
    /// Two kernels copy a file by TCP, over taps.
    Tap,
    /// The daemon is hot-restarted.
    Upgrade,
    /// The daemon is killed, and started again.
    Kill,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 10] = [
        Kind::Path,
        Kind::Settings,
        Kind::Rules,
        Kind::Mirror,
        Kind::Link,
        Kind::Adapter,
        Kind::Hostile,
        Kind::Tap,
        Kind::Upgrade,
        Kind::Kill,
    ];

    /// Name in options and results.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Path => "path",
            Kind::Settings => "settings",
            Kind::Rules => "rules",
            Kind::Mirror => "mirror",
            Kind::Link => "link",
            Kind::Adapter => "adapter",
            Kind::Hostile => "hostile",
            Kind::Tap => "tap",
            Kind::Upgrade => "upgrade",
            Kind::Kill => "kill",
        }
    }

    /// Frequency, relative to the other kinds.
    fn weight(self) -> u64 {
        match self {
            Kind::Path => 40,
            Kind::Settings => 15,
            Kind::Rules | Kind::Mirror | Kind::Adapter | Kind::Hostile => 8,
            Kind::Tap | Kind::Upgrade => 4,
            Kind::Link => 3,
            Kind::Kill => 2,
        }
    }

    /// `true` if the action replaces the daemon.
    pub fn is_restart(self) -> bool {
        matches!(self, Kind::Upgrade | Kind::Kill)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let found = Kind::ALL.into_iter().find(|kind| kind.as_str() == text);
        let all = || Kind::ALL.map(Kind::as_str).join(", ");
        found.ok_or_else(|| format!("{text} is no kind of action; expected one of {}", all()))
    }
}

/// One action. Adapters are numbers; each action but a change of path or settings is complete when
/// its step ends, except that hostile guests and copies continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Path { adapter: usize, from: PathInForce, to: PathInForce },
    Settings { adapter: usize, weight: u64, max_tx_mbps: u64 },
    Rules { adapter: usize },
    Mirror { adapter: usize },
    Link { adapter: usize },
    Adapter { in_use: bool },
    Hostile { bursts: u64, seed: u64 },
    Tap { mib: u32 },
    Upgrade,
    Kill,
}

impl Action {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Action::Path { .. } => Kind::Path,
            Action::Settings { .. } => Kind::Settings,
            Action::Rules { .. } => Kind::Rules,
            Action::Mirror { .. } => Kind::Mirror,
            Action::Link { .. } => Kind::Link,
            Action::Adapter { .. } => Kind::Adapter,
            Action::Hostile { .. } => Kind::Hostile,
            Action::Tap { .. } => Kind::Tap,
            Action::Upgrade => Kind::Upgrade,
            Action::Kill => Kind::Kill,
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Path { adapter, from, to } => {
                write!(f, "adapter g{adapter} path {from} -> {to}")
            }
            Action::Settings { adapter, weight, max_tx_mbps } => {
                write!(f, "adapter g{adapter} tx_weight {weight}, max_tx_mbps {max_tx_mbps}")
            }
            Action::Rules { adapter } => write!(f, "port g{adapter} rules on and off"),
            Action::Mirror { adapter } => write!(f, "adapter g{adapter} mirror on and off"),
            Action::Link { adapter } => write!(f, "adapter g{adapter} link down and up"),
            Action::Adapter { in_use: false } => f.write_str("adapter spare added and removed"),
            Action::Adapter { in_use: true } => f.write_str("adapter spare removed in use"),
            Action::Hostile { bursts, seed } => write!(f, "hostile {bursts} bursts, seed {seed}"),
            Action::Tap { mib } => write!(f, "copy of {mib} MiB between taps"),
            Action::Upgrade => f.write_str("hot restart"),
            Action::Kill => f.write_str("kill and start"),
        }
    }
}

/// All actions of a run. The second half has no restarts, so that one process serves long enough
/// for a slow leak to show.
pub(super) fn plan(seed: u64, steps: usize, kinds: &[Kind]) -> Vec<Action> {
    let mut random = Random::new(seed);
    let mut paths = [PATH; ADAPTERS];
    (0..steps)
        .map(|step| {
            let is_early = step < steps / 2;
            let usable = || kinds.iter().filter(move |kind| is_early || !kind.is_restart());
            let mut at = random.below(usable().map(|kind| kind.weight()).sum());
            let kind = usable().find(|kind| {
                let found = at < kind.weight();
                at = at.saturating_sub(kind.weight());
                found
            });
            let kind = kind.expect("a kind that is no restart");
            next(*kind, &mut random, &mut paths)
        })
        .collect()
}

fn next(kind: Kind, random: &mut Random, paths: &mut [PathInForce; ADAPTERS]) -> Action {
    let adapter = random.below(ADAPTERS as u64) as usize;
    match kind {
        Kind::Path => {
            let to = other_path(random, paths[adapter]);
            let from = std::mem::replace(&mut paths[adapter], to);
            Action::Path { adapter, from, to }
        }
        Kind::Settings => {
            // Above the rate of the guests: a lower one would fill their rings.
            let max_tx_mbps = random.pick(&[0, 1000, 2500, 10_000]);
            Action::Settings { adapter, weight: random.between(1, 100), max_tx_mbps }
        }
        Kind::Rules => Action::Rules { adapter },
        Kind::Mirror => Action::Mirror { adapter },
        Kind::Link => Action::Link { adapter: adapter % 2 },
        Kind::Adapter => Action::Adapter { in_use: random.one_in(2) },
        Kind::Hostile => {
            Action::Hostile { bursts: random.between(200, 2000), seed: random.below(1 << 32) }
        }
        Kind::Tap => Action::Tap { mib: random.between(1, 32) as u32 },
        Kind::Upgrade => Action::Upgrade,
        Kind::Kill => Action::Kill,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_actions_and_every_kind_comes() {
        let actions = plan(7, 2000, &Kind::ALL);
        assert_eq!(actions, plan(7, 2000, &Kind::ALL));
        assert_ne!(actions, plan(8, 2000, &Kind::ALL));
        for kind in Kind::ALL {
            assert!(actions.iter().any(|action| action.kind() == kind), "no {}", kind.as_str());
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        let late = &actions[1000..];
        assert!(
            !late.iter().any(|action| action.kind().is_restart()),
            "one process from half time"
        );
    }

    #[test]
    fn a_path_change_begins_where_the_last_one_ended() {
        let mut paths = [PATH; ADAPTERS];
        for action in plan(1, 500, &[Kind::Path]) {
            let Action::Path { adapter, from, to } = action else { panic!("{action}") };
            assert!(paths[adapter] == from && from != to, "{action}");
            paths[adapter] = to;
        }
    }

    #[test]
    fn a_kind_that_is_left_out_never_comes() {
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Kill).collect();
        assert!(plan(3, 1000, &kinds).iter().all(|action| action.kind() != Kind::Kill));
        assert!("kil".parse::<Kind>().unwrap_err().contains("hostile, tap, upgrade, kill"));
    }
}
