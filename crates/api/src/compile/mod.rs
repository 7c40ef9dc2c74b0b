//! Compiles the desired state to the tables of the data plane.
//!
//! Model: [`compile`] takes a document, the allocation of VFs and queues, and the state of links.
//! For every NIC it returns a [`CompiledNic`]: the tables of the NIC and of its switch, and the
//! location of each attachment. The caller applies the result; an error changes nothing.
//!
//! Paths: an adapter on path `vf` is connected to its VF. On `synthetic` and `vmq` it is connected
//! to the switch, whose port 0 is the NIC's PF. On `vmq` a queue of the NIC also delivers frames to
//! it, bypassing the switch.
//!
//! Addresses: the switch has every adapter's address statically, at the adapter's port or, for a
//! VF, at port 0. The NIC has the addresses behind the PF as filters or queue addresses. So frames
//! to a known adapter are never flooded, and a change of its path needs no learning. With
//! `spoof_check` a port learns no further address, and sends from none. Unknown unicast of a VF
//! bypasses the switch, unless a port of the switch is promiscuous or unchecked.
//!
//! Tunnels: each is a switch port in one VLAN without static addresses; addresses behind it are
//! learned. So unknown unicast of a VF goes to the switch too.
//!
//! Links: an adapter whose link is down (`link_state`, or `auto` with the uplink down) has no
//! switch port. Its addresses stay at port 0 meanwhile: no other adapter can take them, and frames
//! to them are not flooded.
//!
//! Switchdev mode: each function is connected to its representor by a pipe, and has the
//! representor's link state. There is no switch.
//!
//! Numbers: a switch port keeps its number while its adapter is on the switch, whatever its path,
//! so learned addresses stay valid. Freed numbers are in [`CompiledSwitch::left`].
//!
//! Profiles: a setting that the NIC's card profile rejects is rejected here, with its errno. This
//! holds for every adapter that could get a VF.
//!
//! Limits: those of [`bridge::nic::Table`] and [`bridge::switch::Table`]; errors name the field of
//! the document. Pure: no I/O, no clock.

mod acl;
mod fields;
mod function;
mod nics;
mod numbers;
mod origin;
mod ports;
mod profile;
mod switch;
mod switchdev;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::state::{Allocation, FunctionName, Problems, State};

pub use engine::PortLocation;
pub use numbers::Numbers;
pub use ports::{CompiledPort, Monitor, MonitorTarget, PortOwner};

/// State of links, which the document does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveLinks {
    /// NICs whose uplink is down, by name.
    pub uplinks_down: BTreeSet<String>,
    /// Representors that are up, by NIC.
    pub representors_up: BTreeSet<(String, FunctionName)>,
}

/// Target configuration of the data plane.
#[derive(Debug, Default)]
pub struct Compiled {
    /// The NICs, in the document's order.
    pub nics: Vec<CompiledNic>,
    /// Accepted rates of each function: some cards reject a new rate while the link is down.
    rates: BTreeMap<String, (u32, u32)>,
}

/// A compiled NIC.
#[derive(Debug)]
pub struct CompiledNic {
    /// Its name.
    pub name: String,
    /// Settings from which the table is built.
    pub config: bridge::nic::NicConfig,
    /// Classifier table.
    pub table: Arc<bridge::nic::Table>,
    /// Capacity limits, if any.
    pub capacity: Option<bridge::nic::Capacity>,
    /// The switch on its PF, if there is one.
    pub switch: Option<CompiledSwitch>,
    /// Location of each attachment. An attachment without an entry is disconnected.
    pub ports: Vec<CompiledPort>,
    /// Receivers of mirrored frames, indexed by [`bridge::nic::MirrorTarget::Capture`].
    pub monitors: Vec<Monitor>,
    /// Switchdev mode: index of the document's rule for each rule of the table.
    pub rules: Vec<usize>,
}

/// A compiled switch.
#[derive(Debug)]
pub struct CompiledSwitch {
    /// Its name.
    pub name: String,
    /// Settings from which the table is built.
    pub config: bridge::switch::SwitchConfig,
    /// Classifier table.
    pub table: Arc<bridge::switch::Table>,
    /// Ageing time of learned addresses, in seconds.
    pub ageing_s: u32,
    /// Ports that only receive copies, each with an index of [`CompiledNic::monitors`].
    pub taps: Vec<(bridge::PortId, usize)>,
    /// Adapter of each list of [`bridge::switch::SwitchConfig::acls`], by index.
    pub acls: Vec<String>,
    /// Ports of removed adapters, and ports that may now learn fewer addresses. Addresses learned
    /// there must be flushed once this is applied; otherwise a guest that is now checked would keep
    /// other guests' addresses.
    pub left: Vec<bridge::PortId>,
    /// Port numbers, for the next compilation.
    pub numbers: Numbers,
}

impl Compiled {
    /// The NIC of that name.
    pub fn nic(&self, name: &str) -> Option<&CompiledNic> {
        self.nics.iter().find(|nic| nic.name == name)
    }
}

impl CompiledNic {
    /// The location of an adapter, if it is connected.
    pub fn adapter(&self, name: &str) -> Option<&CompiledPort> {
        self.ports.iter().find(|plug| matches!(&plug.of, PortOwner::Adapter(is) if is == name))
    }
}

/// Compiles a document. `given` is the result of [`allocate`](model::state::allocate) for `state`;
/// `before` is the previous result of this function.
///
/// # Errors
/// Settings that a NIC's profile rejects or a table cannot hold, each with its field of the
/// document.
pub fn compile(
    state: &State,
    given: &[Allocation],
    live: &LiveLinks,
    before: Option<&Compiled>,
) -> Result<Compiled, Problems> {
    let mut problems = Problems::default();
    let mut all = Compiled::default();
    for at in 0..state.nics.len() {
        let scope = function::NicScope::new(state, given, live, at);
        let rates = before.map(|before| &before.rates);
        all.rates.extend(profile::check(&scope, rates, &mut problems));
        if scope.nic.is_switchdev() && !switchdev::check(&scope, &mut problems) {
            continue; // the table would refuse it again, in other words
        }
        let old = before.and_then(|before| before.nic(&state.nics[at].name));
        match nics::nic(&scope, old) {
            Ok(nic) => all.nics.push(nic),
            Err(found) => problems = problems.and(found),
        }
    }
    problems.or(all).map_err(|problems| problems.named(&state.to_document()))
}
