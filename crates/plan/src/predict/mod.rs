//! The model: rate of a path, and its bottleneck.
//!
//! # Model
//! Each limit is the rate at which one resource on the route is full: the line, PCIe in either
//! direction, the NIC, the thread that polls a port, all threads of the switch, guests, memory.
//! [`load`](crate::load) computes a frame's use of each. The lowest is the predicted rate, and the
//! *binding* limit. Rates count frames as nfv-2017 does: sent by guests, summed over guests. A
//! chain of `n` guests delivers the `n`th part of it.
//!
//! # Limits
//! Steady load, flows spread evenly over guests, no drops; caches are part of the costs and not
//! modelled; a path's traffic is alone on the machine.

mod latency;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use latency::{Latency, Station};
pub use report::results::Pattern;

pub use crate::path::PlannedPath;

use model::state::{Problem, Problems};

use crate::CORES;
use crate::dma::FCS;
use crate::frames::FrameMix;
use crate::limit::Limit;
use crate::load::{AdapterGroup, FlowEnd, FlowHop, GuestSet, Guests, MachineLoad, costs};
use crate::machine::Machine;
use crate::units::{BitRate, Bytes, Cycles, FrameRate};

/// Scenario of a prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// North/south or east/west.
    pub pattern: Pattern,
    /// Path of all guests.
    pub path: PlannedPath,
    /// Sizes of frames.
    pub frames: FrameMix,
    /// Number of guests; east/west, the length of the chain.
    pub guests: u32,
    /// Cores of each guest.
    pub cores_each: f64,
}

/// One limit and its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term {
    /// The limit.
    pub limit: Limit,
    /// Rate at which it is full, summed over guests.
    pub rate: FrameRate,
}

/// Result of a prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Frames that guests send, summed over guests.
    pub rate: FrameRate,
    /// The same in bits per second, without FCS.
    pub bits: BitRate,
    /// Bottleneck.
    pub binding: Limit,
    /// All limits, the lowest first.
    pub terms: Vec<Term>,
    /// Bytes on PCIe from the NIC to the host for each of those frames.
    pub pcie_up: Bytes,
    /// Bytes on PCIe from the host to the NIC for each of those frames.
    pub pcie_down: Bytes,
    /// Busy cores of the switch at that rate.
    pub switch_cores: f64,
    /// Busy cores of guests at that rate.
    pub guest_cores: f64,
    /// Stations on a frame's route, for the latency.
    pub stations: Vec<Station>,
}

impl Prediction {
    /// Rate at which frames pass a whole chain of `guests` guests.
    pub fn chain(&self, guests: u32) -> FrameRate {
        self.rate / f64::from(guests)
    }
}

/// Predicts the rate of a scenario.
///
/// # Errors
/// The scenario is impossible: a problem of its field.
pub fn predict(machine: &Machine, scenario: &Scenario) -> Result<Prediction, Problems> {
    check(machine, scenario)?;
    // The load of one frame per second: the inverse of a share is the rate at which it is full.
    let (guest_set, hops) = traffic(machine, scenario, FrameRate(1.0));
    let load = MachineLoad::of(machine, &guest_set, &hops);
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

/// Switch cycles for each frame that guests send. Bursts from the wire split among `receivers`
/// guests. `dropped` more frames come from the wire and find no room; their wire cost counts too.
pub fn switch_cycles(
    machine: &Machine,
    scenario: &Scenario,
    receivers: f64,
    dropped: f64,
) -> Cycles {
    let (mut guest_set, hops) = traffic(machine, scenario, FrameRate(1.0));
    guest_set.receivers = Some(receivers);
    let clock = machine.host.clock().0;
    let dropped_cycles = costs(&machine.host, scenario.path).map_or(0.0, |costs| costs.wire.value);
    Cycles(
        MachineLoad::of(machine, &guest_set, &hops).switch_cores * clock + dropped * dropped_cycles,
    )
}

/// Guests and hops of a scenario at a rate. If the far end of the wire runs on the host, like the
/// lab's generator, a chain starts and ends there.
fn traffic(machine: &Machine, scenario: &Scenario, rate: FrameRate) -> (GuestSet, Vec<FlowHop>) {
    let &Scenario { pattern, path, guests: count, cores_each, .. } = scenario;
    let each = Guests { count, cores_each, cycles: None };
    let is_by_wire = pattern == Pattern::NorthSouth || machine.host.generator_cycles.is_some();
    let hop = |from, to, rate| {
        let frames = scenario.frames.clone();
        FlowHop { from, to, rate, frames, by_wire: is_by_wire }
    };
    let (wire, all) = (FlowEnd::Wire, FlowEnd::Adapters(0));
    match pattern {
        Pattern::NorthSouth => {
            (GuestSet::of(each, path), vec![hop(wire, all, rate), hop(all, wire, rate)])
        }
        Pattern::EastWest if machine.host.generator_cycles.is_none() => {
            (GuestSet::of(each, path), vec![hop(all, all, rate)])
        }
        Pattern::EastWest => {
            let mut guest_set = GuestSet::of(Guests { count: 1, ..each }, path);
            guest_set.guests.push(Guests { count: count - 1, ..each });
            guest_set.adapters.push(AdapterGroup { path, guests: 1 });
            let (first, others) = (all, FlowEnd::Adapters(1));
            let once = rate / f64::from(count);
            let mut hops = vec![hop(wire, first, once), hop(first, others, once)];
            if count > 2 {
                hops.push(hop(others, others, once * f64::from(count - 2)));
            }
            hops.push(hop(others, wire, once));
            (guest_set, hops)
        }
    }
}

fn check(machine: &Machine, scenario: &Scenario) -> Result<(), Problems> {
    let &Scenario { guests, cores_each, .. } = scenario;
    let least = if scenario.pattern == Pattern::EastWest { 2 } else { 1 };
    if !(least..=4096).contains(&guests) {
        return Err(Problem::out_of_range("--guests", guests, least, 4096).into());
    }
    if !CORES.contains(&cores_each) {
        let [least, most] = [CORES.start(), CORES.end()];
        return Err(Problem::out_of_range("--guest-cores", cores_each, least, most).into());
    }
    if scenario.path == PlannedPath::Vf && guests > machine.vfs() {
        let (nic, vfs) = (machine.card(), machine.vfs());
        let message = format!("are too many for path vf: {nic} has {vfs} VFs");
        return Err(
            Problem::new("--guests", guests, message, format!("write at most {vfs}")).into()
        );
    }
    Ok(())
}
