//! Allocation of scarce VFs and receive queues.
//!
//! Policy of this project (Windows defines the weights, but not their effect):
//! 1. An adapter that names a VF (`vf`) gets it. No other adapter gets a VF that is named, or that
//!    has settings of its own.
//! 2. The other VFs go to adapters by `iov_weight`, highest first. Of equal ones, the current
//!    holder of a VF keeps it; then names decide, in byte order.
//! 3. Queues go by `vmq_weight` in the same way, to adapters without a VF.
//!
//! A migrating adapter keeps its VF or queue, whatever the weights of others.
//!
//! Switch-only features rule out a VF. An adapter whose port has rules, guards or isolation sends
//! through the switch: it gets no VF, but may get a queue, which only receives. Settings of the
//! port `uplink` apply to frames from the wire, so they rule out VFs and queues for all adapters of
//! the switch: those frames would bypass the settings.
//!
//! A pure function: the same state and facts give the same result, in any order of the document.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::adapter::{Adapter, WantedPath};
use super::nic::Nic;
use super::switch::{Switch, UPLINK};
use super::{Actual, ActualNic, PathInForce, Reason, State};

/// Input of the policy beyond the desired state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Current VF of each adapter.
    pub vfs: BTreeMap<String, u16>,
    /// Current queue of each adapter.
    pub queues: BTreeMap<String, u16>,
    /// Reason why a NIC has no VFs, by its name; absent: it has.
    pub support: BTreeMap<String, Reason>,
    /// Best path for the traffic of adapters with `path = "auto"`; absent: a VF.
    pub suited: BTreeMap<String, PathInForce>,
}

impl Facts {
    /// Facts from the state in force.
    pub fn of(actual: &Actual) -> Facts {
        let mut facts = Facts::default();
        for adapter in &actual.adapters {
            let name = || adapter.name.clone();
            facts.vfs.extend(adapter.vf.map(|vf| (name(), vf)));
            facts.queues.extend(adapter.queue.map(|queue| (name(), queue)));
            if adapter.reason == Reason::FollowsTraffic {
                facts.suited.insert(name(), adapter.path);
            }
        }
        // A card that is missing may come back.
        let is_poor = |nic: &&ActualNic| nic.support != Reason::Supported && nic.card.is_none();
        let poor = actual.nics.iter().filter(is_poor);
        facts.support.extend(poor.map(|nic| (nic.name.clone(), nic.support)));
        facts
    }
}

/// Allocation of one adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allocation {
    /// Name of the adapter.
    pub adapter: String,
    /// Its path.
    pub path: PathInForce,
    /// Its VF, on path `vf`.
    pub vf: Option<u16>,
    /// Its queue, on path `vmq`.
    pub queue: Option<u16>,
    /// Reason for another path than the wanted one; else `Supported`.
    pub reason: Reason,
    /// Reason for having no VF; else `Supported`.
    pub vf_reason: Reason,
    /// Reason for having no queue; `Supported` if it has one or needs none.
    pub vmq_reason: Reason,
}

impl Allocation {
    /// `vf 3`, `vmq 0`, `synthetic` or `none`.
    pub fn place(&self) -> String {
        match self.vf.or(self.queue).filter(|_| self.path != PathInForce::None) {
            Some(number) => format!("{} {number}", self.path),
            None => self.path.to_string(),
        }
    }
}

/// Allocates the VFs and queues of all NICs; one result for each adapter, in document order.
pub fn allocate(state: &State, facts: &Facts) -> Vec<Allocation> {
    let (mut vfs, mut queues) = (Given::default(), Given::default());
    for nic in &state.nics {
        let on_it =
            |adapter: &&Adapter| state.nic_of(adapter).is_some_and(|on| on.name == nic.name);
        let adapters: Vec<&Adapter> = state.adapters.iter().filter(on_it).collect();
        give_vfs(state, facts, nic, &adapters, &mut vfs);
        give_queues(state, facts, nic, &adapters, &vfs, &mut queues);
    }
    state.adapters.iter().map(|adapter| allocation(adapter, facts, &vfs, &queues)).collect()
}

/// Number that each adapter got, or the reason for getting none.
type Given<'a> = BTreeMap<&'a str, Result<u16, Reason>>;

fn give_vfs<'a>(
    state: &State,
    facts: &Facts,
    nic: &Nic,
    adapters: &[&'a Adapter],
    given: &mut Given<'a>,
) {
    let named = adapters.iter().filter_map(|adapter| adapter.vf);
    let reserved: BTreeSet<u16> = nic.vfs.iter().map(|vf| vf.index).chain(named).collect();
    let pool = (0..nic.num_vfs).filter(|index| !reserved.contains(index)).collect();
    let mut rivals = Vec::new();
    for adapter in adapters {
        match (may_have_vf(state, facts, nic, adapter), adapter.vf) {
            (Err(reason), _) => drop(given.insert(&adapter.name, Err(reason))),
            (Ok(()), Some(named)) => drop(given.insert(&adapter.name, Ok(named))),
            (Ok(()), None) => {
                rivals
                    .push((adapter.name.as_str(), claim(adapter, adapter.iov_weight, &facts.vfs)));
            }
        }
    }
    divide(rivals, pool, &facts.vfs, Reason::NoFreeVf, given);
}

/// Checks that the document allows an adapter to have a VF, now or once one is free.
pub fn may_ever_have_vf(state: &State, adapter: &Adapter) -> Result<(), Reason> {
    if matches!(adapter.path, WantedPath::Vmq | WantedPath::Synthetic) {
        return Err(Reason::NotWanted);
    }
    if adapter.iov_weight == 0 {
        return Err(Reason::WeightZero);
    }
    let switch = adapter.switch.as_deref().and_then(|name| state.switch(name));
    if switch.is_some_and(|switch| !switch.iov) {
        return Err(Reason::SwitchNotIov);
    }
    let port = switch.and_then(|switch| switch.port(&adapter.name));
    if switch.is_some_and(screens_the_wire) || port.is_some_and(|p| p.filters() || p.isolated) {
        return Err(Reason::PortPolicy);
    }
    Ok(())
}

/// Checks that an adapter may have a VF now. Operator settings are reported before limits of the
/// machine.
fn may_have_vf(state: &State, facts: &Facts, nic: &Nic, adapter: &Adapter) -> Result<(), Reason> {
    may_ever_have_vf(state, adapter)?;
    if let Some(missing) = facts.support.get(&nic.name) {
        return Err(*missing);
    }
    if nic.num_vfs <= adapter.vf.unwrap_or(0) {
        return Err(Reason::VfDisabled);
    }
    if is_gone(adapter) {
        return Err(Reason::MigrationInProgress);
    }
    if suited(adapter, facts) == PathInForce::Vf { Ok(()) } else { Err(Reason::FollowsTraffic) }
}

/// `true` if its guest's host is unknown, and is not this one.
fn is_gone(adapter: &Adapter) -> bool {
    adapter.is_elsewhere() && !adapter.is_on_the_way()
}

/// `true` if the port to the wire filters frames that other paths would bypass.
fn screens_the_wire(switch: &Switch) -> bool {
    switch.port(UPLINK).is_some_and(|port| {
        let narrow = !port.trunks.is_empty() || port.native_vlan.is_some();
        port.filters() || port.isolated || narrow
    })
}

fn give_queues<'a>(
    state: &State,
    facts: &Facts,
    nic: &Nic,
    adapters: &[&'a Adapter],
    vfs: &Given<'a>,
    given: &mut Given<'a>,
) {
    let mut rivals = Vec::new();
    let on_vf = |adapter: &Adapter| matches!(vfs.get(adapter.name.as_str()), Some(Ok(_)));
    for adapter in adapters.iter().filter(|adapter| !on_vf(adapter)) {
        let switch = adapter.switch.as_deref().and_then(|name| state.switch(name));
        let may = if adapter.path == WantedPath::Synthetic {
            Err(Reason::NotWanted)
        } else if adapter.vmq_weight == 0 {
            Err(Reason::WeightZero)
        } else if switch.is_none() {
            Err(Reason::NoSwitch)
        } else if switch.is_some_and(screens_the_wire) {
            Err(Reason::PortPolicy)
        } else if is_gone(adapter) {
            Err(Reason::MigrationInProgress)
        } else if suited(adapter, facts) == PathInForce::Synthetic {
            Err(Reason::FollowsTraffic)
        } else {
            Ok(())
        };
        match may {
            Err(reason) => drop(given.insert(&adapter.name, Err(reason))),
            Ok(()) => {
                rivals.push((
                    adapter.name.as_str(),
                    claim(adapter, adapter.vmq_weight, &facts.queues),
                ));
            }
        }
    }
    divide(rivals, (0..nic.vmq_queues).collect(), &facts.queues, Reason::NoFreeQueue, given);
}

/// Effective weight of an adapter: a migrating one keeps its VF or queue.
fn claim(adapter: &Adapter, weight: u8, held: &BTreeMap<String, u16>) -> u16 {
    let keeps = adapter.is_on_the_way() && held.contains_key(&adapter.name);
    if keeps { u16::MAX } else { weight.into() }
}

/// Best path for an adapter's traffic.
fn suited(adapter: &Adapter, facts: &Facts) -> PathInForce {
    let follows = adapter.path == WantedPath::Auto;
    let found = facts.suited.get(&adapter.name).filter(|_| follows);
    found.copied().unwrap_or(PathInForce::Vf)
}

/// Assigns numbers of `pool` to `rivals` (name and weight); `held` has the current numbers.
fn divide<'a>(
    mut rivals: Vec<(&'a str, u16)>,
    mut pool: BTreeSet<u16>,
    held: &BTreeMap<String, u16>,
    none_left: Reason,
    given: &mut Given<'a>,
) {
    // If several adapters claim the same number, one keeps it.
    let mut holders: BTreeMap<u16, (&str, u16)> = BTreeMap::new();
    rivals.sort_by_key(|&(name, weight)| (Reverse(weight), name));
    for &(name, weight) in &rivals {
        if let Some(index) = held.get(name).filter(|index| pool.contains(index)) {
            holders.entry(*index).or_insert((name, weight));
        }
    }
    let holds: BTreeMap<&str, u16> =
        holders.iter().map(|(index, (name, _))| (*name, *index)).collect();
    rivals.sort_by_key(|&(name, weight)| (Reverse(weight), !holds.contains_key(name), name));
    let losers = rivals.split_off(rivals.len().min(pool.len()));
    given.extend(losers.into_iter().map(|(name, _)| (name, Err(none_left))));
    let (keep, take): (Vec<_>, Vec<_>) =
        rivals.into_iter().map(|(name, _)| name).partition(|name| holds.contains_key(name));
    for name in keep {
        pool.remove(&holds[name]);
        given.insert(name, Ok(holds[name]));
    }
    given.extend(take.into_iter().zip(pool).map(|(name, index)| (name, Ok(index))));
}

fn allocation(adapter: &Adapter, facts: &Facts, vfs: &Given<'_>, queues: &Given<'_>) -> Allocation {
    let name = adapter.name.as_str();
    // Only a state that was not parsed has an adapter without a NIC.
    let vf = vfs.get(name).copied().unwrap_or(Err(Reason::Unknown));
    let queue = match vf {
        Ok(_) => Err(Reason::Supported),
        Err(_) => queues.get(name).copied().unwrap_or(Err(Reason::Unknown)),
    };
    let path = match (vf, queue) {
        _ if adapter.is_elsewhere() => PathInForce::None,
        (Ok(_), _) => PathInForce::Vf,
        (_, Ok(_)) => PathInForce::Vmq,
        _ if adapter.switch.is_some() => PathInForce::Synthetic,
        _ => PathInForce::None,
    };
    let vf_reason = vf.err().unwrap_or(Reason::Supported);
    let vmq_reason = queue.err().unwrap_or(Reason::Supported);
    let reason = match adapter.path {
        _ if adapter.is_elsewhere() => Reason::MigrationInProgress,
        WantedPath::Vf => vf_reason,
        WantedPath::Vmq => vmq_reason,
        WantedPath::Synthetic => Reason::Supported,
        WantedPath::Auto if suited(adapter, facts) == PathInForce::Vmq => vmq_reason,
        WantedPath::Auto => vf_reason,
    };
    let (vf, queue) = (vf.ok(), queue.ok());
    Allocation { adapter: name.to_owned(), path, vf, queue, reason, vf_reason, vmq_reason }
}
