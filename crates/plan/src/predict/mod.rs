//! The model: what limits frames on a path, and by which limit they are held.
//!
//! # Model
//! Each limit is a rate at which something on the way is full: the line, either direction of PCIe, what the NIC can do,
//! the thread that polls a port, all threads of the switch, the guests, the memory ([`load`](crate::load) says what a frame takes of
//! each). Their smallest is the rate, and it is the *binding* limit. Rates count frames as nfv-2017 does: those that guests
//! send, summed over guests. Frames get through a chain of `n` guests at the `n`th part of it.
//!
//! # Limits
//! Steady load, flows spread evenly over guests, no drops; caches are part of the costs and not modelled; a path's traffic is
//! alone on the machine.

mod latency;
#[cfg(test)]
mod tests;

pub use lab::report::model::{PathKind, Pattern};
pub use latency::{Latency, Station};

use crate::dma::FCS;
use crate::frames::Frames;
use crate::limit::Limit;
use crate::load::{Company, End, Guests, Hop, Load};
use crate::machine::{Machine, Nic};
use crate::units::{BitRate, Bytes, FrameRate};

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
    #[error("{0} cores for each guest: more than 0 and at most 1024 are possible")]
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
    let company = company(scenario);
    // What one frame a second takes of each: the rate at which that is all of it is the limit.
    let load = Load::of(machine, &company, &hops(scenario, FrameRate(1.0)));
    let mut terms: Vec<_> = load
        .iter()
        .map(|(what, taken)| Term { limit: what.limit, rate: FrameRate(1.0 / taken) })
        .collect();
    terms.sort_by(|a, b| a.rate.0.total_cmp(&b.rate.0));
    terms.dedup_by_key(|term| term.limit);
    let Term { limit: binding, rate } = terms[0];
    let stations = latency::stations(machine, scenario);
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

fn company(scenario: &Scenario) -> Company {
    let &Scenario { path, guests: count, cores_each, .. } = scenario;
    Company::of(Guests { count, cores_each, cycles: None }, path)
}

/// The hops of a scenario whose guests send so many frames a second.
fn hops(scenario: &Scenario, rate: FrameRate) -> Vec<Hop> {
    let frames = &scenario.frames;
    let hop = |from, to| Hop { from, to, rate, frames: frames.clone() };
    let guests = End::Party(0);
    match scenario.pattern {
        Pattern::NorthSouth => vec![hop(End::Wire, guests), hop(guests, End::Wire)],
        Pattern::EastWest => vec![hop(guests, guests)],
    }
}

fn check(machine: &Machine, scenario: &Scenario) -> Result<(), ScenarioError> {
    let &Scenario { guests, cores_each, .. } = scenario;
    let least = if scenario.pattern == Pattern::EastWest { 2 } else { 1 };
    if !(least..=4096).contains(&guests) {
        return Err(ScenarioError::Guests(guests));
    }
    if !(cores_each > 0.0 && cores_each <= 1024.0) {
        return Err(ScenarioError::Cores(cores_each));
    }
    let Nic { vfs, title, .. } = &machine.nic;
    if scenario.path == PathKind::Vf && machine.host.soft_nic.is_none() && guests > *vfs {
        return Err(ScenarioError::Functions { guests, nic: title.clone(), vfs: *vfs });
    }
    Ok(())
}
