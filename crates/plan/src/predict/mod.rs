//! The model: what limits frames on a path, and by which limit they are held.
//!
//! # Model
//! Each limit is a rate at which something on the way is full: the line, either direction of PCIe,
//! what the NIC can do, the thread that polls a port, all threads of the switch, the guests, the
//! memory ([`load`](crate::load) says what a frame takes of each). Their smallest is the rate, and
//! it is the *binding* limit. Rates count frames as nfv-2017 does: those that guests send, summed
//! over guests. Frames get through a chain of `n` guests at the `n`th part of it.
//!
//! # Limits
//! Steady load, flows spread evenly over guests, no drops; caches are part of the costs and not
//! modelled; a path's traffic is alone on the machine.

mod latency;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use latency::{Latency, Station};
pub use report::results::{PathKind, Pattern};

use crate::CORES;
use crate::dma::FCS;
use crate::frames::Frames;
use crate::limit::Limit;
use crate::load::{Company, End, Guests, Hop, Load, Party, costs};
use crate::machine::Machine;
use crate::units::{BitRate, Bytes, Cycles, FrameRate};

/// What is to be predicted.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// North/south or east/west.
    pub pattern: Pattern,
    /// The path of all guests.
    pub path: PathKind,
    /// Sizes of frames.
    pub frames: Frames,
    /// Guests; east/west a chain of so many.
    pub guests: u32,
    /// Cores of each guest.
    pub cores_each: f64,
}

/// Why nothing can be predicted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// A number of guests that none has.
    #[error("{0} guests: 1 to 4096 are possible, and east/west takes at least 2")]
    Guests(u32),
    /// Cores that no guest has.
    #[error("{0} cores for each guest: 0.001 to 1024 are possible")]
    Cores(f64),
    /// More guests than functions.
    #[error("{guests} guests on path vf: {nic} has {vfs} VFs")]
    Functions {
        /// Guests that were asked for.
        guests: u32,
        /// The NIC.
        nic: String,
        /// Its VFs.
        vfs: u32,
    },
}

/// One limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// What is full.
    pub limit: Limit,
    /// At which rate, summed over guests.
    pub rate: FrameRate,
}

/// What was predicted.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Frames that guests send, summed over guests.
    pub rate: FrameRate,
    /// The same in bits, without FCS.
    pub bits: BitRate,
    /// What holds it.
    pub binding: Limit,
    /// All limits, the lowest first.
    pub terms: Vec<Term>,
    /// Bytes on PCIe from the NIC to the host for each of those frames.
    pub pcie_up: Bytes,
    /// Bytes on PCIe from the host to the NIC for each of those frames.
    pub pcie_down: Bytes,
    /// Cores of the switch that work at that rate.
    pub switch_cores: f64,
    /// Cores of guests that work at that rate.
    pub guest_cores: f64,
    /// The stations of a frame's way, for its latency.
    pub stations: Vec<Station>,
}

impl Prediction {
    /// The rate at which frames get through a whole chain of so many guests.
    pub fn chain(&self, guests: u32) -> FrameRate {
        self.rate / f64::from(guests)
    }
}

/// Predicts a scenario.
///
/// # Errors
/// It cannot be: [`ScenarioError`].
pub fn predict(machine: &Machine, scenario: &Scenario) -> Result<Prediction, ScenarioError> {
    check(machine, scenario)?;
    // What one frame a second takes of each: the rate at which that is all of it is the limit.
    let (company, hops) = traffic(machine, scenario, FrameRate(1.0));
    let load = Load::of(machine, &company, &hops);
    let mut terms: Vec<_> = load
        .iter()
        .map(|(what, taken)| Term { limit: what.limit, rate: FrameRate(1.0 / taken) })
        .collect();
    terms.sort_by(|a, b| a.rate.0.total_cmp(&b.rate.0));
    let mut told = BTreeSet::new();
    terms.retain(|term| told.insert(term.limit));
    let Term { limit: binding, rate } = terms[0];
    let stations = latency::stations(machine, scenario, &terms);
    Ok(Prediction {
        rate,
        bits: rate * (scenario.frames.size() + Bytes(-FCS)),
        binding,
        terms,
        pcie_up: Bytes(load.up.0 / 8.0),
        pcie_down: Bytes(load.down.0 / 8.0),
        switch_cores: load.switch_cores * rate.0,
        guest_cores: load.guest_cores * rate.0,
        stations,
    })
}

/// Cycles of the switch for each frame that guests send, where bursts by the wire are divided among
/// so many `receivers`, and so many frames more come by the wire and find no room: what is dropped
/// was taken from the wire in vain.
pub fn switch_cycles(
    machine: &Machine,
    scenario: &Scenario,
    receivers: f64,
    dropped: f64,
) -> Cycles {
    let (mut company, hops) = traffic(machine, scenario, FrameRate(1.0));
    company.receivers = Some(receivers);
    let clock = machine.host.clock().0;
    let in_vain = costs(&machine.host, scenario.path).map_or(0.0, |costs| costs.wire.value);
    Cycles(Load::of(machine, &company, &hops).switch_cores * clock + dropped * in_vain)
}

/// Guests, and their hops where they send so many frames a second. Where the far end of the wire
/// runs on the host, as the lab's generator does, a chain begins and ends there.
fn traffic(machine: &Machine, scenario: &Scenario, rate: FrameRate) -> (Company, Vec<Hop>) {
    let &Scenario { pattern, path, guests: count, cores_each, .. } = scenario;
    let each = Guests { count, cores_each, cycles: None };
    let is_by_wire = pattern == Pattern::NorthSouth || machine.host.generator_cycles.is_some();
    let hop = |from, to, rate| {
        let frames = scenario.frames.clone();
        Hop { from, to, rate, frames, by_wire: is_by_wire }
    };
    let (wire, all) = (End::Wire, End::Party(0));
    match pattern {
        Pattern::NorthSouth => {
            (Company::of(each, path), vec![hop(wire, all, rate), hop(all, wire, rate)])
        }
        Pattern::EastWest if machine.host.generator_cycles.is_none() => {
            (Company::of(each, path), vec![hop(all, all, rate)])
        }
        Pattern::EastWest => {
            let mut company = Company::of(Guests { count: 1, ..each }, path);
            company.guests.push(Guests { count: count - 1, ..each });
            company.parties.push(Party { path, of: 1 });
            let (first, others) = (all, End::Party(1));
            let once = rate / f64::from(count);
            let mut hops = vec![hop(wire, first, once), hop(first, others, once)];
            if count > 2 {
                hops.push(hop(others, others, once * f64::from(count - 2)));
            }
            hops.push(hop(others, wire, once));
            (company, hops)
        }
    }
}

fn check(machine: &Machine, scenario: &Scenario) -> Result<(), ScenarioError> {
    let &Scenario { guests, cores_each, .. } = scenario;
    let least = if scenario.pattern == Pattern::EastWest { 2 } else { 1 };
    if !(least..=4096).contains(&guests) {
        return Err(ScenarioError::Guests(guests));
    }
    if !CORES.contains(&cores_each) {
        return Err(ScenarioError::Cores(cores_each));
    }
    if scenario.path == PathKind::Vf && guests > machine.vfs() {
        let nic = machine.card().to_owned();
        return Err(ScenarioError::Functions { guests, nic, vfs: machine.vfs() });
    }
    Ok(())
}
