//! Chains of guests: rate of each placement over chain length and frame size, with the advice.
//!
//! # Model
//! Equal chains, from the wire through guests of one adapter each and back to the wire. All chains
//! share the traffic. Guests share the host's cores for guests, and have at most one core each.
//! Every figure is that of [`advise`] for such a [`Workload`], with adapters that are free or have
//! fixed paths.
//!
//! # Limits
//! Chains of 1 to 8 guests, as nfv-2017 measured; 1 to 64 chains; frames of 64 to 1518 bytes.

use std::ops::RangeInclusive;

use model::state::{Problem, Problems};

use crate::advise::{AdapterAdvice, Advice, advise};
use crate::dma::FCS;
use crate::limit::Limit;
use crate::machine::Machine;
use crate::path::PlannedPath;
use crate::units::{Bytes, FrameRate};
use crate::workload::{WIRE, Workload};

/// Allowed guests of a chain.
pub const LENGTHS: RangeInclusive<u32> = 1..=8;
/// Allowed chains.
pub const COUNTS: RangeInclusive<u32> = 1..=64;
/// Allowed frame sizes, with FCS.
pub const FRAMES: RangeInclusive<u32> = 64..=1518;
/// Frame sizes of a curve.
const SIZES: [u32; 19] = [
    64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1152, 1280, 1400,
    1518,
];
/// Relative difference below which two rates are equal.
const TOLERANCE: f64 = 1e-9;

/// Chains of guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chains {
    /// Guests of a chain.
    pub length: u32,
    /// Number of chains.
    pub count: u32,
    /// Bytes of a frame, with FCS.
    pub frame_bytes: u32,
}

/// Paths of the guests of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// All on one path.
    All(PlannedPath),
    /// The first and the last on VFs, those between on the switch; needs three guests.
    EndsOnVfs,
}

/// Rate of all chains together, and its bottleneck.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChainRate {
    /// Frames per second that leave the chains.
    pub rate: FrameRate,
    /// Bottleneck.
    pub binding: Limit,
}

/// Rates of every placement over one parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// Values of the parameter.
    pub at: Vec<u32>,
    /// Rates at each value; `None` where the placement needs more VFs or guests than there are.
    pub lines: Vec<(Placement, Vec<Option<ChainRate>>)>,
    /// Path that carries more with all guests on it, `vf` or `synthetic`, from each of these values
    /// on. The first is the least value; each other one is a crossover.
    pub leads: Vec<(u32, PlannedPath)>,
}

impl Placement {
    /// All placements.
    pub const ALL: [Self; 4] = [
        Self::All(PlannedPath::Vf),
        Self::EndsOnVfs,
        Self::All(PlannedPath::Synthetic),
        Self::All(PlannedPath::Kernel),
    ];

    /// The name in JSON: the path, or `ends-on-vf`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All(path) => path.as_str(),
            Self::EndsOnVfs => "ends-on-vf",
        }
    }

    fn path(self, position: u32, length: u32) -> PlannedPath {
        match self {
            Self::All(path) => path,
            Self::EndsOnVfs if [0, length - 1].contains(&position) => PlannedPath::Vf,
            Self::EndsOnVfs => PlannedPath::Synthetic,
        }
    }
}

impl Chains {
    /// Cores of each guest: its part of the host's cores for guests, at most one.
    fn cores_each(&self, machine: &Machine) -> f64 {
        let guests = f64::from(self.length * self.count);
        (machine.host.guest_cores.value / guests).min(1.0)
    }

    /// Workload file of these chains, with free or fixed paths.
    pub fn file(&self, machine: &Machine, placement: Option<Placement>) -> String {
        let &Self { length, count, frame_bytes } = self;
        let cores = self.cores_each(machine);
        let mut text = format!("frames = \"{frame_bytes}\"\n");
        for position in 0..length {
            text += &format!(
                "\n[[service]]\nname = \"guest{}\"\nguests = {count}\ncores = {cores:?}\n",
                position + 1
            );
            if let Some(placement) = placement {
                text += &format!("path = \"{}\"\n", placement.path(position, length));
            }
        }
        let through = (1..=length).map(|number| format!("\"guest{number}\", ")).collect::<String>();
        text + &format!(
            "\n[[flow]]\nname = \"chain\"\nthrough = [\"{WIRE}\", {through}\"{WIRE}\"]\n"
        )
    }

    /// Advice for these chains, with the workload that it is for.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn advice(&self, machine: &Machine) -> Result<(Workload, Advice), Problems> {
        for (field, value, range) in [
            ("length", self.length, LENGTHS),
            ("chains", self.count, COUNTS),
            ("frame", self.frame_bytes, FRAMES),
        ] {
            if !range.contains(&value) {
                let problem = Problem::out_of_range(field, value, range.start(), range.end());
                return Err(problem.into());
            }
        }
        let workload = Workload::parse(&self.file(machine, None))?;
        let advice = advise(machine, &workload)?;
        Ok((workload, advice))
    }

    /// Rate of a placement; `None` if it needs more VFs or guests than there are.
    pub fn rate(&self, machine: &Machine, placement: Placement) -> Option<ChainRate> {
        if placement == Placement::EndsOnVfs && self.length < 3 {
            return None;
        }
        let workload = Workload::parse(&self.file(machine, Some(placement))).ok()?;
        let advice = advise(machine, &workload).ok()?;
        // The flow's share is one million frames per second.
        Some(ChainRate { rate: FrameRate::mpps(advice.scale), binding: advice.binding })
    }

    /// Rate in Gbit/s of a frame rate in million frames per second, without FCS.
    pub fn gbps(&self, rate: FrameRate) -> f64 {
        (rate * Bytes(f64::from(self.frame_bytes) - FCS)).as_gbps()
    }

    /// Curves over the length of the chains.
    pub fn over_length(&self, machine: &Machine) -> Curves {
        self.over(machine, LENGTHS.collect(), |length| Self { length, ..*self })
    }

    /// Curves over the frame size; crossovers are exact to the byte.
    pub fn over_frame(&self, machine: &Machine) -> Curves {
        self.over(machine, SIZES.into(), |frame_bytes| Self { frame_bytes, ..*self })
    }

    fn over(&self, machine: &Machine, at: Vec<u32>, with: impl Fn(u32) -> Self) -> Curves {
        let line = |placement| {
            let rates = at.iter().map(|&value| with(value).rate(machine, placement));
            (placement, rates.collect())
        };
        let lines: Vec<(_, Vec<_>)> = Placement::ALL.map(line).into();
        let leaders: Vec<_> = at.iter().map(|&value| with(value).leader(machine)).collect();
        let mut leads = vec![(at[0], leaders[0])];
        for (values, paths) in at.windows(2).zip(leaders.windows(2)) {
            if paths[0] == paths[1] {
                continue;
            }
            let (mut before, mut from) = (values[0], values[1]);
            while from - before > 1 {
                let middle = before.midpoint(from);
                match with(middle).leader(machine) == paths[1] {
                    true => from = middle,
                    false => before = middle,
                }
            }
            leads.push((from, paths[1]));
        }
        Curves { at, lines, leads }
    }

    /// Path that carries more; equal rates are better on VFs, which take no cores of the switch.
    fn leader(&self, machine: &Machine) -> PlannedPath {
        let rate = |path| self.rate(machine, Placement::All(path)).map_or(0.0, |it| it.rate.0);
        let (vf, switch) = (rate(PlannedPath::Vf), rate(PlannedPath::Synthetic));
        if switch > vf * (1.0 + TOLERANCE) { PlannedPath::Synthetic } else { PlannedPath::Vf }
    }

    /// Reason for the advice: its rate and bottleneck, beside those of all guests on one path.
    pub fn reason(&self, machine: &Machine, advice: &Advice) -> String {
        let on = |path: PlannedPath| -> Vec<&AdapterAdvice> {
            advice.adapters.iter().filter(|adapter| adapter.path == path).collect()
        };
        let paths = [PlannedPath::Vf, PlannedPath::Synthetic];
        let parts = paths.into_iter().filter(|path| !on(*path).is_empty());
        let mut parts: Vec<_> =
            parts.map(|path| format!("{} on {path}", list(&on(path)))).collect();
        let alone = (parts.len() == 1).then(|| advice.adapters[0].path);
        if let Some(path) = alone {
            parts = vec![format!("All guests on {path}")];
        }
        let mut text = format!(
            "{}: {:.2} Mpps through all chains, then {} is full.",
            parts.join("; "),
            advice.scale,
            advice.binding
        );
        for path in paths.into_iter().filter(|path| Some(*path) != alone) {
            text += &match self.rate(machine, Placement::All(path)) {
                Some(ChainRate { rate, binding }) => {
                    format!(" All on {path}: {:.2} Mpps, then {binding}.", rate.as_mpps())
                }
                None => {
                    let (wanted, vfs) = (self.length * self.count, machine.vfs());
                    format!(" All on {path} need {wanted} VFs, and there are {vfs}.")
                }
            };
        }
        text
    }
}

/// Names of adapters in the order of the chain; three and more in a row as `guest2 to guest5`.
fn list(adapters: &[&AdapterAdvice]) -> String {
    let number = |of: &AdapterAdvice| of.name.trim_start_matches("guest").parse().unwrap_or(0_u32);
    let rows = adapters.chunk_by(|one, next| number(one) + 1 == number(next));
    let row = |row: &[&AdapterAdvice]| match row {
        [first, _, .., last] => format!("{} to {}", first.name, last.name),
        few => few.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", "),
    };
    rows.map(row).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::testbed;

    const CHAINS: Chains = Chains { length: 4, count: 2, frame_bytes: 64 };

    /// The advice is at least as good as each placement, and no worse than any of all assignments.
    #[test]
    fn the_advice_is_never_below_a_curve() {
        let machine = testbed().unwrap();
        for length in LENGTHS {
            for frame_bytes in [64, 300, 1518] {
                let chains = Chains { length, count: 1, frame_bytes };
                let (_, advice) = chains.advice(&machine).unwrap();
                assert!(advice.is_exact);
                let fixed = Placement::ALL.into_iter().filter(|it| it.as_str() != "kernel");
                for placement in fixed {
                    let Some(rate) = chains.rate(&machine, placement) else { continue };
                    let least = rate.rate.as_mpps() * (1.0 - TOLERANCE);
                    assert!(advice.scale >= least, "{chains:?} {placement:?}");
                }
            }
        }
    }

    #[test]
    fn curves_have_the_rates_of_their_points_and_cross_where_they_say() {
        let machine = testbed().unwrap();
        for (curves, with) in [
            (
                CHAINS.over_length(&machine),
                (|value| Chains { length: value, ..CHAINS }) as fn(u32) -> Chains,
            ),
            (CHAINS.over_frame(&machine), |value| Chains { frame_bytes: value, ..CHAINS }),
        ] {
            for (placement, rates) in &curves.lines {
                assert_eq!(rates.len(), curves.at.len());
                for (value, rate) in curves.at.iter().zip(rates) {
                    assert_eq!(*rate, with(*value).rate(&machine, *placement));
                }
            }
            assert_eq!(curves.leads[0].0, curves.at[0]);
            for pair in curves.leads.windows(2) {
                let ((_, before), (from, path)) = (pair[0], pair[1]);
                assert_eq!(with(from).leader(&machine), path);
                assert_eq!(with(from - 1).leader(&machine), before);
            }
        }
        let crossing = CHAINS.over_length(&machine).leads;
        assert!(crossing.len() > 1, "long chains are better on the switch: {crossing:?}");
    }

    #[test]
    fn too_many_guests_for_the_vfs_are_told() {
        let mut machine = testbed().unwrap();
        machine.nic.vfs = 7;
        assert_eq!(CHAINS.rate(&machine, Placement::All(PlannedPath::Vf)), None);
        let (_, advice) = CHAINS.advice(&machine).unwrap();
        let told = CHAINS.reason(&machine, &advice);
        assert!(told.contains("All on vf need 8 VFs, and there are 7."), "{told}");
        assert!(told.contains(" Mpps through all chains, then "), "{told}");
    }

    /// Rows of three and more guests are shortened, in the order of the chain.
    #[test]
    fn a_reason_names_the_guests_of_each_path() {
        let machine = testbed().unwrap();
        let (_, mut advice) = Chains { length: 6, ..CHAINS }.advice(&machine).unwrap();
        for (vf, said) in [
            (&[0][..], "guest1 on vf; guest2 to guest6 on synthetic: "),
            (&[0, 1, 5], "guest1, guest2, guest6 on vf; guest3 to guest5 on synthetic: "),
            (&[], "All guests on synthetic: "),
        ] {
            for (position, adapter) in advice.adapters.iter_mut().enumerate() {
                let is_vf = vf.contains(&position);
                adapter.path = if is_vf { PlannedPath::Vf } else { PlannedPath::Synthetic };
            }
            let told = CHAINS.reason(&machine, &advice);
            assert!(told.starts_with(said), "{told}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_said() {
        let machine = testbed().unwrap();
        for (chains, said) in [
            (Chains { length: 9, ..CHAINS }, "length: 9 is out of range; write a number, 1 to 8"),
            (Chains { count: 0, ..CHAINS }, "chains: 0 is out of range; write a number, 1 to 64"),
            (
                Chains { frame_bytes: 63, ..CHAINS },
                "frame: 63 is out of range; write a number, 64 to 1518",
            ),
        ] {
            assert_eq!(chains.advice(&machine).unwrap_err().to_string(), said);
        }
    }
}
