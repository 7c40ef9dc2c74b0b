//! Placement of service chains on many hosts.
//!
//! # Model
//! A chain is placed whole on one host, in one of three layouts: all guests on VFs, all on the
//! switch, or the ends on VFs and the rest on the switch. Each layout takes a share of every
//! resource of a host ([`MachineLoad`]), and a number of VFs and cores. The shares on a host sum to
//! at most 1. Chains of one kind are equal, and so are hosts of one kind.
//!
//! There are two results. *Greedy*: the largest chains first, each on the first host with room, in
//! the layout that fills the host least. *Solved*: a linear program over chain kinds, host classes
//! and layouts. It allows fractions, so it bounds every placement. The program's number of hosts is
//! opened, and its mix spread over them. Chains that do not fit open more hosts. At the end, hosts
//! whose chains fit elsewhere are emptied.
//!
//! # Limits
//! The program sums over hosts of a class; the gap between its bound and the placement is reported.
//! Bursts from the wire are costed as if every frame went to another guest, the most expensive
//! case.

mod file;
mod placement;
mod solve;
#[cfg(test)]
mod tests;

use model::state::{Problem, Problems};
use serde::Serialize;

use crate::frames::FrameMix;
use crate::limit::{Limit, Scope};
use crate::load::{self, FlowHop, GuestSet, Guests, MachineLoad};
use crate::machine::Machine;
use crate::predict::PlannedPath;
use crate::units::FrameRate;

/// A kind of hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct HostKind {
    /// Name of the kind.
    pub name: String,
    /// Number of hosts.
    pub count: u32,
    /// NIC and host profile.
    pub machine: Machine,
}

/// A kind of chains.
#[derive(Debug, Clone, PartialEq)]
pub struct ChainKind {
    /// Name of the kind.
    pub name: String,
    /// Number of chains.
    pub count: u32,
    /// Guests of each chain, in a row.
    pub services: u32,
    /// Cores and cycles of each guest.
    pub guests: Guests,
    /// Frame rate through the chain.
    pub rate: FrameRate,
    /// Frame sizes.
    pub frames: FrameMix,
}

/// Hosts, and the chains to place on them.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// The hosts.
    pub hosts: Vec<HostKind>,
    /// The chains.
    pub chains: Vec<ChainKind>,
}

/// Paths of a chain's guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChainLayout {
    /// All guests on VFs.
    Vf,
    /// All guests on the switch.
    Synthetic,
    /// The ends on VFs towards the wire, the rest on the switch.
    Mixed,
}

impl ChainLayout {
    /// All layouts.
    pub const ALL: [Self; 3] = [Self::Vf, Self::Synthetic, Self::Mixed];
}

/// A resource of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostResource {
    /// VFs.
    Vfs,
    /// Cores for guests.
    Cores,
    /// A limit of the data path.
    #[serde(untagged)]
    Limit(Limit),
}

impl std::fmt::Display for HostResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Vfs => f.pad("vfs"),
            Self::Cores => f.pad("cores"),
            Self::Limit(limit) => limit.fmt(f),
        }
    }
}

/// Resources that chains share, in the order of [`Demand`]. For a limit with two directions, the
/// fuller one counts.
const SHARED: [HostResource; 11] = [
    HostResource::Vfs,
    HostResource::Cores,
    HostResource::Limit(Limit::Line),
    HostResource::Limit(Limit::PcieUp),
    HostResource::Limit(Limit::PcieDown),
    HostResource::Limit(Limit::NicPps),
    HostResource::Limit(Limit::NicInternal),
    HostResource::Limit(Limit::SwitchCpu),
    HostResource::Limit(Limit::WirePort),
    HostResource::Limit(Limit::WireQueue),
    HostResource::Limit(Limit::Memory),
];

/// Demand of one chain, as shares of a host.
type Demand = [f64; SHARED.len()];

/// Result of planning a fleet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FleetPlan {
    /// Number of chains.
    pub chains: u32,
    /// Number of guests.
    pub guests: u32,
    /// Number of hosts.
    pub hosts: u32,
    /// Placement by the linear program, rounded.
    pub solved: Placement,
    /// Placement by the greedy algorithm.
    pub greedy: Placement,
    /// Chains placed by the linear program, with fractions: an upper bound.
    pub bound_placed: f64,
    /// Hosts used by the linear program, with fractions.
    pub bound_hosts: f64,
    /// Resources that are too small for all chains; empty if the program places all.
    pub missing: Vec<Shortage>,
}

/// A resource that is too small.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shortage {
    /// The resource.
    pub limit: HostResource,
    /// Additional amount needed, as a share of the total.
    pub share: f64,
}

/// A placement of all chains.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Placement {
    /// Placed chains.
    pub placed: u32,
    /// Hosts with at least one chain.
    pub hosts_used: u32,
    /// Chain counts by chain kind, host kind and layout.
    pub places: Vec<PlacedChains>,
    /// Mean utilization of the used hosts, for each resource.
    pub taken: Vec<Utilization>,
    /// Chains of each used host.
    pub hosts: Vec<HostChains>,
    /// Chains without a place, with the reason.
    pub unplaced: Vec<UnplacedChains>,
}

/// Chains of one kind without a place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnplacedChains {
    /// Chain kind.
    pub chain: String,
    /// Number of chains.
    pub count: u32,
    /// Resource that is short on the host with the most room.
    pub limit: HostResource,
    /// Shortage, as a share of a host.
    pub short: f64,
}

/// Chains of one kind on hosts of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlacedChains {
    /// Chain kind.
    pub chain: String,
    /// Host kind.
    pub host: String,
    /// Layout.
    pub layout: ChainLayout,
    /// Number of chains.
    pub count: u32,
}

/// One host and its chains.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostChains {
    /// Host kind.
    pub host: String,
    /// Index among hosts of its kind, from 0.
    pub number: u32,
    /// Chains by kind and layout.
    pub chains: Vec<ChainCount>,
}

/// Chains of a kind on one host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChainCount {
    /// Chain kind.
    pub chain: String,
    /// Layout.
    pub layout: ChainLayout,
    /// Number of chains.
    pub count: u32,
}

/// Utilization of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Utilization {
    /// The resource.
    pub limit: HostResource,
    /// Used share.
    pub share: f64,
}

/// Hosts with equal hardware, whatever their kind's name.
struct HostClass<'a> {
    machine: &'a Machine,
    /// Number of hosts.
    count: u32,
}

/// Demand of each chain kind on each host class, by layout; `None` if the layout does not fit.
type Demands = [Vec<[Option<Demand>; 3]>];

impl Fleet {
    /// Parses a fleet file.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        file::parse(text)
    }

    /// Places all chains.
    ///
    /// # Errors
    /// A chain that fits no host even alone, or a linear program that cannot be solved.
    pub fn plan(&self) -> Result<FleetPlan, Problems> {
        let (classes, of) = self.classes();
        let demands = self.demands(&classes)?;
        let bound = solve::bound(&classes, &self.chains, &demands)?;
        let (solved, greedy) = placement::place_all(self, &of, &demands, &bound);
        let chains: u32 = self.chains.iter().map(|chain| chain.count).sum();
        let missing = match bound.placed < f64::from(chains) - 1e-6 {
            true => solve::missing(&classes, &self.chains, &demands)?,
            false => Vec::new(),
        };
        Ok(FleetPlan {
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

    /// Host classes, and the class of each host kind.
    fn classes(&self) -> (Vec<HostClass<'_>>, Vec<usize>) {
        let mut classes: Vec<HostClass<'_>> = Vec::new();
        let mut of = Vec::new();
        for HostKind { machine, count, .. } in &self.hosts {
            let known = classes.iter().position(|class| class.machine == machine);
            of.push(known.unwrap_or(classes.len()));
            match known {
                Some(known) => classes[known].count += count,
                None => classes.push(HostClass { machine, count: *count }),
            }
        }
        (classes, of)
    }

    fn demands(
        &self,
        classes: &[HostClass<'_>],
    ) -> Result<Vec<Vec<[Option<Demand>; 3]>>, Problems> {
        let mut all = Vec::new();
        for chain in &self.chains {
            let on = |class: &HostClass<'_>| {
                ChainLayout::ALL.map(|layout| demand(class.machine, chain, layout))
            };
            let on: Vec<_> = classes.iter().map(on).collect();
            if on.iter().flatten().all(Result::is_err) {
                let least = on.iter().flatten().filter_map(|one| one.as_ref().err());
                // There is at least one host, and it has three layouts.
                let Some(&(limit, taken)) = least.min_by(|a, b| a.1.total_cmp(&b.1)) else {
                    continue;
                };
                let percent = taken * 100.0;
                let message = format!(
                    "fits no host, even alone: it needs {percent:.0} % of {limit} on the best one"
                );
                let remedy = "reduce its `services`, `cores` or `mpps`, or add a larger host";
                let problem = Problem::new("", (), message, remedy);
                return Err(problem.of(format!("chain {}", chain.name)).into());
            }
            all.push(on.into_iter().map(|layouts| layouts.map(Result::ok)).collect());
        }
        Ok(all)
    }
}

/// Demand of one chain on a host shared with others. The error names the resource that one chain
/// alone exceeds, and its share.
fn demand(
    machine: &Machine,
    chain: &ChainKind,
    layout: ChainLayout,
) -> Result<Demand, (HostResource, f64)> {
    let (mut guest_set, hops) = traffic(chain, layout);
    let host = &machine.host;
    let functions = guest_set.adapters.iter().filter(|party| party.path == PlannedPath::Vf).count();
    let vfs = match functions {
        0 => 0.0,
        functions => functions as f64 / f64::from(machine.vfs()),
    };
    let cores = f64::from(chain.services) * chain.guests.cores_each / host.guest_cores.value;
    let (alone, own) = shares(&MachineLoad::of(machine, &guest_set, &hops), vfs, cores);
    let fullest = SHARED.into_iter().zip(alone).chain(own).max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((limit, taken)) = fullest.filter(|(_, taken)| *taken > 1.0) {
        return Err((limit, taken));
    }
    guest_set.receivers = Some(f64::INFINITY);
    let (among_others, _) = shares(&MachineLoad::of(machine, &guest_set, &hops), vfs, cores);
    // A chain that fits alone may fill the host.
    Ok(among_others.map(|taken| taken.min(1.0)))
}

/// Shares of the shared resources, and the fullest of the chain's own resources.
fn shares(load: &MachineLoad, vfs: f64, cores: f64) -> (Demand, Option<(HostResource, f64)>) {
    let mut demand = [0.0; SHARED.len()];
    (demand[0], demand[1]) = (vfs, cores);
    let mut own: Option<(HostResource, f64)> = None;
    for (what, taken) in load.iter() {
        let scarce = HostResource::Limit(what.limit);
        match (SHARED.iter().position(|shared| *shared == scarce), what.scope) {
            (Some(at), Scope::All | Scope::In | Scope::Out) => demand[at] = demand[at].max(taken),
            _ if own.is_none_or(|(_, most)| taken > most) => own = Some((scarce, taken)),
            _ => (),
        }
    }
    (demand, own)
}

/// Guests and hops of a chain.
fn traffic(chain: &ChainKind, layout: ChainLayout) -> (GuestSet, Vec<FlowHop>) {
    let last = chain.services - 1;
    let paths = (0..chain.services).map(|service| match layout {
        ChainLayout::Vf => [PlannedPath::Vf; 2],
        ChainLayout::Synthetic => [PlannedPath::Synthetic; 2],
        ChainLayout::Mixed if chain.services == 1 => [PlannedPath::Vf; 2],
        ChainLayout::Mixed if service == 0 => [PlannedPath::Vf, PlannedPath::Synthetic],
        ChainLayout::Mixed if service == last => [PlannedPath::Synthetic, PlannedPath::Vf],
        ChainLayout::Mixed => [PlannedPath::Synthetic; 2],
    });
    load::chain(chain.guests, paths, chain.rate, &chain.frames)
}
