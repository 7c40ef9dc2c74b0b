//! What is enforced on a function's frames, and which of it goes together.

use wire::Vid;

use super::super::fields::TRUNK_VLAN;
use super::super::model::Rules;
use super::super::table::Table;
use super::super::value::Given;

/// The most VLANs of a trunk: all there are.
const MAX_TRUNK_VLANS: usize = 4094;

/// The rules of a function; `has_vlan`: whether it has a VLAN.
pub(super) fn rules(table: &Table<'_>, has_vlan: bool) -> Option<Rules> {
    let vlan_protocol = match table.choice("vlan_protocol")? {
        "802.1ad" => nic::VlanProtocol::Ieee8021Ad,
        _ => nic::VlanProtocol::Ieee8021Q,
    };
    let link = match table.choice("link_state")? {
        "enable" => nic::LinkState::Enable,
        "disable" => nic::LinkState::Disable,
        _ => nic::LinkState::Auto,
    };
    let rules = Rules {
        vlan_qos: table.int("vlan_qos"),
        vlan_protocol,
        trunk: trunk(table)?,
        spoof_check: table.bool("spoof_check"),
        trust: table.bool("trust"),
        promiscuous: table.bool("promiscuous"),
        link,
        share: nic::Share {
            weight: table.int("weight"),
            min_mbit: table.int("min_tx_mbps"),
            max_mbit: table.int("max_tx_mbps"),
        },
        storm_limit: table.int("storm_limit"),
    };
    go_together(table, &rules, has_vlan).then_some(rules)
}

/// Refuses what makes no sense beside the rest.
fn go_together(table: &Table<'_>, rules: &Rules, has_vlan: bool) -> bool {
    let service = rules.vlan_protocol == nic::VlanProtocol::Ieee8021Ad;
    let nic::Share { min_mbit, max_mbit, .. } = rules.share;
    let is_pf = !table.knows("index");
    let mistakes = [
        ("vlan_qos", rules.vlan_qos > 0 && !has_vlan, "needs a `vlan`, whose tag it is in"),
        ("vlan_protocol", service && !has_vlan, "needs a `vlan`, whose tag it is of"),
        ("trunk", service && !rules.trunk.is_empty(), "is not possible with 802.1ad"),
        ("promiscuous", rules.promiscuous && !rules.trust && !is_pf, "needs `trust = true`"),
        ("min_tx_mbps", max_mbit > 0 && min_mbit > max_mbit, "is above `max_tx_mbps`"),
    ];
    let mut good = true;
    for (name, wrong, problem) in mistakes {
        if wrong && let Given::Value(item) = table.item(name) {
            table.refuse(&item, problem);
            good = false;
        }
    }
    good
}

fn trunk(table: &Table<'_>) -> Option<Vec<Vid>> {
    let items = match table.list("trunk", MAX_TRUNK_VLANS) {
        Given::Value((items, _)) => items,
        Given::Absent => return Some(Vec::new()),
        Given::Bad => return None,
    };
    let vid = |number: u64| u16::try_from(number).ok().and_then(|number| Vid::new(number).ok());
    let vids = items.iter().map(|item| vid(table.int_in(&TRUNK_VLAN, item)?));
    // All are looked at before the first mistake counts, so that each is told.
    vids.collect::<Vec<_>>().into_iter().collect()
}
