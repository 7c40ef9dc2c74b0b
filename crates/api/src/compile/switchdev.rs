//! A NIC in switchdev mode: what it refuses, its representors, and its rules.

use model::state::{FunctionName, NicRule, Problem, Problems, RuleTarget};
use nic::{LinkState, PortId, Target};

use super::acl::{mac_match, matches};
use super::function::{Owner, Scope, port_vlan};
use super::nics::free_plug;
use super::profile::owners;
use super::{Attached, Plug, PortLocation};

/// Refuses what only a bridge means, of all that is a function or could be one; says whether there
/// was nothing.
pub(super) fn check(scope: &Scope<'_>, problems: &mut Problems) -> bool {
    let before = problems.problems.len();
    for (owner, _) in owners(scope) {
        for field in refused(&owner) {
            let error = "is of the NIC's own bridge, and in switchdev mode the host says that";
            let allowed = format!("leave it out, and set it at the representor: {}", remedy(field));
            problems.push(Problem::new(format!("{}.{field}", owner.at), (), error, allowed));
        }
    }
    problems.problems.len() == before
}

/// The fields that mean nothing.
fn refused(owner: &Owner<'_>) -> impl Iterator<Item = &'static str> {
    let settings = owner.settings;
    let all = [
        ("vlan", settings.vlan.is_some()),
        ("trunks", !settings.trunks.is_empty()),
        ("promiscuous", settings.promiscuous),
        ("link_state", owner.link != LinkState::Auto),
        ("mirror", settings.mirror.is_some()),
    ];
    all.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| field)
}

fn remedy(field: &str) -> &'static str {
    match field {
        "vlan" | "trunks" => "a VLAN of the host's bridge, or a [[nic.rule]] with push_vlan",
        "link_state" => "ip link set its representor up or down",
        "mirror" => "tc or tcpdump there",
        _ => "what the host's bridge floods",
    }
}

/// The port of a function.
pub(super) fn port(name: FunctionName) -> PortId {
    match name {
        FunctionName::Uplink => PortId::UPLINK,
        FunctionName::Pf => PortId::PF,
        FunctionName::Vf(index) => PortId::vf(index as u8),
    }
}

/// A function's link: as its representor's.
pub(super) fn link(scope: &Scope<'_>, name: FunctionName) -> LinkState {
    match scope.representors_up.contains(&name) {
        true => LinkState::Enable,
        false => LinkState::Disable,
    }
}

/// The plugs of all representors.
pub(super) fn representors(scope: &Scope<'_>) -> impl Iterator<Item = Plug> {
    let plug = |of| free_plug(Attached::Representor(of), PortLocation::Representor(port(of)), true);
    scope.nic.represented().map(plug)
}

/// The rules in the order in which they are tried, and which of the document's each is. One that
/// speaks of a VF that is not enabled waits for that.
pub(super) fn rules(scope: &Scope<'_>) -> (Vec<nic::Rule>, Vec<usize>) {
    let there: Vec<FunctionName> = scope.nic.represented().collect();
    let is_there = |name: FunctionName| there.contains(&name);
    let can = |rule: &NicRule| {
        let to = match rule.to {
            RuleTarget::Function(to) => is_there(to),
            RuleTarget::Representor | RuleTarget::Drop => true,
        };
        is_there(rule.from) && to
    };
    let mut all: Vec<(usize, &NicRule)> =
        scope.nic.rules.iter().enumerate().filter(|(_, rule)| can(rule)).collect();
    all.sort_by_key(|(_, rule)| rule.priority);
    all.into_iter().map(|(at, it)| (rule(it), at)).unzip()
}

fn rule(rule: &NicRule) -> nic::Rule {
    let matches = nic::Match {
        dst_mac: rule.to_mac.map(|mac| mac_match(mac.0)),
        vid: rule.vlan.map(|vlan| vlan..=vlan),
        ..matches(&rule.matches)
    };
    let to = match rule.to {
        RuleTarget::Function(to) => Target::Port(port(to)),
        RuleTarget::Representor => Target::Representor,
        RuleTarget::Drop => Target::Drop,
    };
    let push = rule.push_vlan.and_then(port_vlan);
    nic::Rule { from: port(rule.from), matches, to, pop: rule.pop_vlan, push }
}
