//! A NIC in switchdev mode: rejected settings, representors, and rules.

use bridge::PortId;
use bridge::nic::LinkState;
use model::state::{FunctionName, NicRule, Problem, Problems, RuleTarget};

use super::acl::{mac_match, matches};
use super::function::{FunctionEntry, NicScope, port_vlan};
use super::ports::plain_port;
use super::profile::entries;
use super::{CompiledPort, PortLocation, PortOwner};

/// Rejects settings of the NIC's own bridge, for every function and every adapter that could be
/// one. Returns `true` if there are none.
pub(super) fn check(scope: &NicScope<'_>, problems: &mut Problems) -> bool {
    let before = problems.problems.len();
    for (entry, _) in entries(scope) {
        for field in refused(&entry) {
            let error = "needs the NIC's own bridge; in switchdev mode the host decides that";
            let allowed =
                format!("leave it out, and configure the representor instead: {}", remedy(field));
            problems.push(Problem::new(format!("{}.{field}", entry.at), (), error, allowed));
        }
    }
    problems.problems.len() == before
}

/// Fields without a meaning in switchdev mode.
fn refused(entry: &FunctionEntry<'_>) -> impl Iterator<Item = &'static str> {
    let settings = entry.settings;
    let all = [
        ("vlan", settings.vlan.is_some()),
        ("trunks", !settings.trunks.is_empty()),
        ("promiscuous", settings.promiscuous),
        ("link_state", entry.link != LinkState::Auto),
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

/// Link state of a function: that of its representor.
pub(super) fn link(scope: &NicScope<'_>, name: FunctionName) -> LinkState {
    match scope.representors_up.contains(&name) {
        true => LinkState::Enable,
        false => LinkState::Disable,
    }
}

/// Attachments of all representors.
pub(super) fn representors(scope: &NicScope<'_>) -> impl Iterator<Item = CompiledPort> {
    let plug =
        |of| plain_port(PortOwner::Representor(of), PortLocation::Representor(port(of)), true);
    scope.nic.represented().map(plug)
}

/// Rules in match order, and the index of each in the document. A rule for a disabled VF is left
/// out.
pub(super) fn rules(scope: &NicScope<'_>) -> (Vec<bridge::nic::Rule>, Vec<usize>) {
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

fn rule(rule: &NicRule) -> bridge::nic::Rule {
    let matches = bridge::matching::Match {
        dst_mac: rule.to_mac.map(|mac| mac_match(mac.0)),
        vid: rule.vlan.map(|vlan| vlan..=vlan),
        ..matches(&rule.matches)
    };
    let to = match rule.to {
        RuleTarget::Function(to) => bridge::nic::RuleTarget::Port(port(to)),
        RuleTarget::Representor => bridge::nic::RuleTarget::Representor,
        RuleTarget::Drop => bridge::nic::RuleTarget::Drop,
    };
    let push = rule.push_vlan.and_then(port_vlan);
    bridge::nic::Rule { from: port(rule.from), matches, to, pop: rule.pop_vlan, push }
}
