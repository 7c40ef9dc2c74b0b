//! From the desired state to what the data plane is made of.
//!
//! Model: [`compile`] takes a document, who got which VF and queue, and what is known of the links,
//! and gives for every NIC a [`Nic`]: the tables of the NIC and of the switch on it, and where each
//! attachment is plugged in. Nothing is in force until the caller swaps it in; an error leaves the
//! caller with what it has.
//!
//! Paths: an adapter on path `vf` is plugged into its VF. On `synthetic` and `vmq` it is plugged
//! into the switch, whose port 0 is the NIC's PF; on `vmq` the NIC has a queue besides, whose
//! frames go to the adapter past the switch.
//!
//! Addresses: the switch knows those of every adapter beforehand, at the adapter's port or, if it
//! is on a VF, at port 0; the NIC knows those behind the PF as filters or of queues. So a known
//! adapter is never flooded for, and a change of its path needs no learning. With `spoof_check`
//! nothing else is learned at its port, and nothing else may send there. So what a VF sends to an
//! unknown address spares the switch, unless an adapter is promiscuous or there is an unchecked one
//! in the switch, behind which it could be.
//!
//! Tunnels: each is a port of the switch in one VLAN, without known addresses: what is behind it is
//! learned. So what a VF sends to an unknown address goes to the switch as well.
//!
//! Links: an adapter whose link is down (`link_state`, or `auto` and the uplink's is) has no port
//! in the switch. Its addresses stand at port 0 meanwhile, so nobody else can take them, and frames
//! for them are not flooded to guests.
//!
//! Switchdev mode: each function is at the far end of a pipe from its representor, whose link it
//! has; there is no switch.
//!
//! Numbers: a port of a switch keeps its number as long as its adapter is on the switch, on
//! whichever path, so what was learned there stays right; numbers that nobody has any more are told
//! ([`Switch::left`]).
//!
//! Profiles: what the card of a NIC's profile refuses is refused here, with its errno. An adapter
//! that could get a VF is held to that whether it has one now or not.
//!
//! Limits: those of [`nic::Table`] and [`vswitch::Table`], each told with the field of the
//! document. Pure: no I/O, no clock.

mod acl;
mod fields;
mod function;
mod nics;
mod numbers;
mod origin;
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

/// What is known of the machine beyond the document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Live {
    /// NICs whose uplink has no link, by name.
    pub uplinks_down: BTreeSet<String>,
    /// Representors that are up, by NIC.
    pub representors_up: BTreeSet<(String, FunctionName)>,
}

/// Everything that the data plane is to be.
#[derive(Debug, Default)]
pub struct Compiled {
    /// The NICs, in the document's order.
    pub nics: Vec<Nic>,
    /// The rates of each function that its card accepted: some cards refuse new ones while the link
    /// is down.
    rates: BTreeMap<String, (u32, u32)>,
}

/// One NIC.
#[derive(Debug)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Its settings, of which the table is built.
    pub config: nic::NicConfig,
    /// Its classifier.
    pub table: Arc<nic::Table>,
    /// What it can carry, if that is limited.
    pub capacity: Option<nic::Capacity>,
    /// The switch on its PF, if there is one.
    pub switch: Option<Switch>,
    /// Where each attachment is plugged in. One that is not listed is connected to nothing.
    pub plugs: Vec<Plug>,
    /// Who gets copies, by the number of [`nic::Monitor::Capture`].
    pub monitors: Vec<Monitor>,
    /// In switchdev mode: which of the document's rules each of the table's is.
    pub rules: Vec<usize>,
}

/// A switch.
#[derive(Debug)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// Its settings, of which the table is built.
    pub config: vswitch::SwitchConfig,
    /// Its classifier.
    pub table: Arc<vswitch::Table>,
    /// How long an address is remembered, in seconds.
    pub ageing_s: u32,
    /// Ports that get copies and are nobody's place, each with an index of [`Nic::monitors`].
    pub taps: Vec<(vswitch::PortId, usize)>,
    /// Whose port each list of [`vswitch::SwitchConfig::acls`] is for, by index.
    pub acls: Vec<String>,
    /// Ports of adapters that have left, and those at which less may be learned than before: what
    /// was learned there is to be forgotten once this is in force, or a guest that is checked from
    /// now on would keep the addresses of others.
    pub left: Vec<vswitch::PortId>,
    /// The numbers of ports, for the next time.
    pub numbers: Numbers,
}

/// Whose attachment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attached {
    /// The wire's.
    Uplink,
    /// Of the guest that has the PF.
    Pf,
    /// An adapter's, by name.
    Adapter(String),
    /// Of a tunnel of the NIC's switch, by name.
    Tunnel(String),
    /// The host's, for a function of a NIC in switchdev mode.
    Representor(FunctionName),
}

/// An attachment and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plug {
    /// Which attachment.
    pub of: Attached,
    /// Its place; no other attachment has it.
    pub place: PortLocation,
    /// The queue of the NIC that fills its receive ring as well, on path `vmq`.
    pub queue: Option<nic::PortId>,
    /// Its part of the transmit capacity.
    pub share: nic::Share,
    /// Whether its link is up.
    pub link_up: bool,
}

/// Who gets copies of whose frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Monitor {
    /// Whose frames: an adapter's name, `nic0/vf3` or `nic0/pf`.
    pub label: String,
    /// Who gets them.
    pub target: Target,
}

/// Where copies go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To a pcapng file, by its path.
    File(String),
    /// To an adapter, by its name.
    Adapter(String),
}

impl Compiled {
    /// The NIC of that name.
    pub fn nic(&self, name: &str) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.name == name)
    }
}

impl Nic {
    /// The plug of an adapter, if it is plugged in.
    pub fn adapter(&self, name: &str) -> Option<&Plug> {
        self.plugs.iter().find(|plug| matches!(&plug.of, Attached::Adapter(is) if is == name))
    }
}

/// Works out what the data plane is to be. `given` is what [`allocate`](model::state::allocate)
/// answered for `state`, and `before` is what this answered last, if it did.
///
/// # Errors
/// What the profile of a NIC refuses, and what is more than a table takes, each with the document's
/// field.
pub fn compile(
    state: &State,
    given: &[Allocation],
    live: &Live,
    before: Option<&Compiled>,
) -> Result<Compiled, Problems> {
    let mut problems = Problems::default();
    let mut all = Compiled::default();
    for at in 0..state.nics.len() {
        let scope = function::Scope::new(state, given, live, at);
        let rates = before.map(|before| &before.rates);
        all.rates.extend(profile::check(&scope, rates, &mut problems));
        if scope.nic.is_switchdev() && !switchdev::check(&scope, &mut problems) {
            continue; // the table would refuse it again, in other words
        }
        let old = before.and_then(|before| before.nic(&state.nics[at].name));
        match nics::nic(&scope, old) {
            Ok(nic) => all.nics.push(nic),
            Err(problem) => problems.push(problem),
        }
    }
    problems.or(all)
}
