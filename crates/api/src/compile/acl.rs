//! ACLs of switch ports, as the switch table takes them.

use bridge::matching::{MacPrefix, Match};
use bridge::switch::{Acl, Rule, RuleAction};
use model::state::{AclAction, AclRule, IpPrefix, RuleMatch};
use wire::Mac;

/// ACL of a port. A frame that no rule matches is allowed.
pub(super) fn acl(rules: &[AclRule]) -> Acl {
    Acl { rules: rules.iter().map(rule).collect(), default_allow: true }
}

/// Matches one address exactly.
pub(super) fn mac_match(mac: Mac) -> MacPrefix {
    MacPrefix { mac, len: 48 }
}

fn ip_match(IpPrefix { address, length }: IpPrefix) -> bridge::matching::IpPrefix {
    bridge::matching::IpPrefix { addr: address, len: length }
}

/// Conditions shared by port ACLs and NIC rules.
pub(super) fn matches(rule: &RuleMatch) -> Match {
    Match {
        src_mac: rule.from_mac.map(|mac| mac_match(mac.0)),
        ethertype: rule.ethertype,
        src_ip: rule.from_ip.map(ip_match),
        dst_ip: rule.to_ip.map(ip_match),
        protocol: rule.protocol.map(|protocol| protocol.0),
        src_port: rule.from_port.map(|range| range.first..=range.last),
        dst_port: rule.to_port.map(|range| range.first..=range.last),
        ..Match::default()
    }
}

fn rule(rule: &AclRule) -> Rule {
    let matches = Match {
        dst_mac: rule.to_mac.map(|mac| mac_match(mac.0)),
        vid: rule.vlan.map(|vlan| vlan..=vlan),
        ..matches(&rule.matches)
    };
    let action = match rule.action {
        AclAction::Allow => RuleAction::Allow,
        AclAction::Deny => RuleAction::Deny,
        AclAction::Count => RuleAction::Count,
    };
    Rule { matches, action }
}

/// Document name of a field of a rule.
pub(super) fn field(name: &str) -> &str {
    match name {
        "src_mac" => "from_mac",
        "dst_mac" => "to_mac",
        "vid" => "vlan",
        "src_ip" => "from_ip",
        "dst_ip" => "to_ip",
        "src_port" => "from_port",
        "dst_port" => "to_port",
        same => same,
    }
}
