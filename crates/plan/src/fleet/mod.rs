//! Chains on many hosts.
//!
//! # Model
//! A chain is placed whole on one host, on one of three ways: all its guests on VFs, all on the
//! switch, or its two ends on VFs and everything between on the switch. Each way takes a share of
//! each of a host's resources ([`Load`]) and a number of VFs and cores, and a host can have what
//! sums up to at most all of each. Chains of one kind are alike, and so are hosts.
//!
//! Two answers are given. *Greedy*: the largest chains first, each on the first host that has room,
//! on the way that takes least of what is scarcest there. *Solved*: a linear program over kinds of
//! chains, kinds of hosts and ways, with fractions allowed, which no placement can beat. As many
//! hosts as it has are opened, and its mix is spread over them, so that each host has some of all;
//! what finds no room there opens others, and at the end hosts are emptied whose chains find room
//! elsewhere.
//!
//! # Limits
//! The program knows sums over hosts of a kind, not single hosts; the gap between its bound and
//! what was placed is told. A burst from the wire is counted as if each frame in it were for
//! another guest, which is the dearest.

mod file;
mod place;
mod solve;
#[cfg(test)]
mod tests;

pub use file::FleetError;
use serde::Serialize;

use crate::frames::Frames;
use crate::limit::{Limit, Owner};
use crate::load::{self, Company, Guests, Hop, Load};
use crate::machine::Machine;
use crate::predict::PathKind;
use crate::units::FrameRate;

/// A kind of hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct HostKind {
    /// Its name.
    pub name: String,
    /// How many.
    pub count: u32,
    /// What they are.
    pub machine: Machine,
}

/// A kind of chains.
#[derive(Debug, Clone, PartialEq)]
pub struct ChainKind {
    /// Its name.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Guests of each, one after another.
    pub services: u32,
    /// What each guest is.
    pub guests: Guests,
    /// Frames that go through it.
    pub rate: FrameRate,
    /// Their sizes.
    pub frames: Frames,
}

/// A fleet and what is to be placed on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// The hosts.
    pub hosts: Vec<HostKind>,
    /// The chains.
    pub chains: Vec<ChainKind>,
}

/// How a chain's guests reach each other and the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// All on VFs.
    Vf,
    /// All on the switch.
    Vhost,
    /// The ends on VFs towards the wire, everything between on the switch.
    Mixed,
}

impl Way {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::Vf, Self::Vhost, Self::Mixed];
}

/// A resource of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scarce {
    /// Virtual functions.
    Vfs,
    /// Cores for guests.
    Cores,
    /// What frames are held by.
    #[serde(untagged)]
    Limit(Limit),
}

impl std::fmt::Display for Scarce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Vfs => f.pad("vfs"),
            Self::Cores => f.pad("cores"),
            Self::Limit(limit) => limit.fmt(f),
        }
    }
}

/// Resources that chains share, in the order of [`Need`]; those of frames are the fuller of in and
/// out.
const SHARED: [Scarce; 11] = [
    Scarce::Vfs,
    Scarce::Cores,
    Scarce::Limit(Limit::Line),
    Scarce::Limit(Limit::PcieUp),
    Scarce::Limit(Limit::PcieDown),
    Scarce::Limit(Limit::NicPps),
    Scarce::Limit(Limit::NicInternal),
    Scarce::Limit(Limit::SwitchCpu),
    Scarce::Limit(Limit::WirePort),
    Scarce::Limit(Limit::WireQueue),
    Scarce::Limit(Limit::Memory),
];

/// What a chain takes of a host, as shares of all of it.
type Need = [f64; SHARED.len()];

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Chains that there are.
    pub chains: u32,
    /// Guests of all of them.
    pub guests: u32,
    /// Hosts that there are.
    pub hosts: u32,
    /// By the linear program and its rounding.
    pub solved: Answer,
    /// By the greedy alone.
    pub greedy: Answer,
    /// Chains that the program would place with fractions: no placement has more.
    pub bound_placed: f64,
    /// Hosts that it would take with fractions.
    pub bound_hosts: f64,
    /// What is too little for all chains, and the share that is missing of what there is; empty if
    /// all can be placed with fractions.
    pub missing: Vec<Missing>,
}

/// A resource of which there is too little.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Missing {
    /// Which.
    pub limit: Scarce,
    /// How much more would be needed, as a share of what there is.
    pub share: f64,
}

/// A placement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Chains that have a place.
    pub placed: u32,
    /// Hosts that have any.
    pub hosts_used: u32,
    /// How many chains of which kind are on hosts of which kind, and on which way.
    pub places: Vec<Place>,
    /// How full hosts are on average, those that are used: each resource.
    pub taken: Vec<Taken>,
    /// What is on each host that has any.
    pub hosts: Vec<Holds>,
    /// Chains that have no place, and why.
    pub unplaced: Vec<Unplaced>,
}

/// Chains of a kind that have no place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unplaced {
    /// The chains.
    pub chain: String,
    /// How many.
    pub count: u32,
    /// What is too little on the host that has most room for one.
    pub limit: Scarce,
    /// By how much, as a share of what a host has.
    pub short: f64,
}

/// Chains of a kind on hosts of a kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Place {
    /// The chains.
    pub chain: String,
    /// The hosts.
    pub host: String,
    /// The way.
    pub way: Way,
    /// How many.
    pub count: u32,
}

/// One host and its chains.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Holds {
    /// The host's kind.
    pub host: String,
    /// Its number among those of its kind, from 0.
    pub number: u32,
    /// Chains by kind and way.
    pub chains: Vec<Held>,
}

/// Chains of a kind on one host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Held {
    /// The chains.
    pub chain: String,
    /// The way.
    pub way: Way,
    /// How many.
    pub count: u32,
}

/// How full something is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Taken {
    /// Of what.
    pub limit: Scarce,
    /// Which share of it is taken.
    pub share: f64,
}

/// Hosts that are of one make, whatever they are called.
struct Class<'a> {
    machine: &'a Machine,
    /// How many there are.
    count: u32,
}

/// What each chain takes of a host of each class on each way; none where it cannot go.
type Needs = [Vec<[Option<Need>; 3]>];

impl Fleet {
    /// Reads a fleet.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, FleetError> {
        file::parse(text)
    }

    /// Places its chains.
    ///
    /// # Errors
    /// A chain that no host can carry even alone, or a linear program that cannot be solved.
    pub fn plan(&self) -> Result<Plan, FleetError> {
        let (classes, of) = self.classes();
        let needs = self.needs(&classes)?;
        let bound = solve::bound(&classes, &self.chains, &needs)?;
        let (solved, greedy) = place::both(self, &of, &needs, &bound);
        let chains: u32 = self.chains.iter().map(|chain| chain.count).sum();
        let missing = match bound.placed < f64::from(chains) - 1e-6 {
            true => solve::missing(&classes, &self.chains, &needs)?,
            false => Vec::new(),
        };
        Ok(Plan {
            chains,
            guests: self.chains.iter().map(|chain| chain.count * chain.services).sum(),
            hosts: self.hosts.iter().map(|host| host.count).sum(),
            solved,
            greedy,
            bound_placed: bound.placed,
            bound_hosts: bound.used.iter().sum(),
            missing,
        })
    }

    /// The classes of hosts, and the class of each kind.
    fn classes(&self) -> (Vec<Class<'_>>, Vec<usize>) {
        let mut classes: Vec<Class<'_>> = Vec::new();
        let mut of = Vec::new();
        for HostKind { machine, count, .. } in &self.hosts {
            let known = classes.iter().position(|class| class.machine == machine);
            of.push(known.unwrap_or(classes.len()));
            match known {
                Some(known) => classes[known].count += count,
                None => classes.push(Class { machine, count: *count }),
            }
        }
        (classes, of)
    }

    fn needs(&self, classes: &[Class<'_>]) -> Result<Vec<Vec<[Option<Need>; 3]>>, FleetError> {
        let mut all = Vec::new();
        for chain in &self.chains {
            let on = |class: &Class<'_>| Way::ALL.map(|way| need(class.machine, chain, way));
            let on: Vec<_> = classes.iter().map(on).collect();
            if on.iter().flatten().all(Result::is_err) {
                let least = on.iter().flatten().filter_map(|one| one.as_ref().err());
                // There is at least one host, and it has three ways.
                let Some(&(limit, taken)) = least.min_by(|a, b| a.1.total_cmp(&b.1)) else {
                    continue;
                };
                return Err(FleetError::Chain { name: chain.name.clone(), limit, taken });
            }
            all.push(on.into_iter().map(|ways| ways.map(Result::ok)).collect());
        }
        Ok(all)
    }
}

/// What one chain takes of a host that it shares with others, or what of it is not enough for it
/// even alone, and how much it takes of that.
fn need(machine: &Machine, chain: &ChainKind, way: Way) -> Result<Need, (Scarce, f64)> {
    let (mut company, hops) = traffic(chain, way);
    let host = &machine.host;
    let functions = company.parties.iter().filter(|party| party.path == PathKind::Vf).count();
    let vfs = match functions {
        0 => 0.0,
        functions => functions as f64 / f64::from(machine.vfs()),
    };
    let cores = f64::from(chain.services) * chain.guests.cores_each / host.guest_cores.value;
    let (alone, own) = shares(&Load::of(machine, &company, &hops), vfs, cores);
    let fullest = SHARED.into_iter().zip(alone).chain(own).max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((limit, taken)) = fullest.filter(|(_, taken)| *taken > 1.0) {
        return Err((limit, taken));
    }
    company.receivers = Some(f64::INFINITY);
    let (among_others, _) = shares(&Load::of(machine, &company, &hops), vfs, cores);
    // What fits alone fits, if nobody comes beside it.
    Ok(among_others.map(|taken| taken.min(1.0)))
}

/// What is taken of what chains share; and, of what is a chain's own, what is the fullest.
fn shares(load: &Load, vfs: f64, cores: f64) -> (Need, Option<(Scarce, f64)>) {
    let mut need = [0.0; SHARED.len()];
    (need[0], need[1]) = (vfs, cores);
    let mut own: Option<(Scarce, f64)> = None;
    for (what, taken) in load.iter() {
        let scarce = Scarce::Limit(what.limit);
        match (SHARED.iter().position(|shared| *shared == scarce), what.of) {
            (Some(at), Owner::All | Owner::In | Owner::Out) => need[at] = need[at].max(taken),
            _ if own.is_none_or(|(_, most)| taken > most) => own = Some((scarce, taken)),
            _ => (),
        }
    }
    (need, own)
}

/// A chain as guests and hops.
fn traffic(chain: &ChainKind, way: Way) -> (Company, Vec<Hop>) {
    let last = chain.services - 1;
    let paths = (0..chain.services).map(|service| match way {
        Way::Vf => [PathKind::Vf; 2],
        Way::Vhost => [PathKind::Vhost; 2],
        Way::Mixed if chain.services == 1 => [PathKind::Vf; 2],
        Way::Mixed if service == 0 => [PathKind::Vf, PathKind::Vhost],
        Way::Mixed if service == last => [PathKind::Vhost, PathKind::Vf],
        Way::Mixed => [PathKind::Vhost; 2],
    });
    load::chain(chain.guests, paths, chain.rate, &chain.frames)
}
