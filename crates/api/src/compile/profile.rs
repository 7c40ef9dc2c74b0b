//! Settings of a NIC and its functions that the card of the NIC's profile rejects.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bridge::nic::{LinkState, Share};
use model::profile::{Errno, Profile, Soft};
use model::state::{
    Bridging, PortSettings, Problem, Problems, Remedy, VlanProto, may_ever_have_vf,
};
use serde_json::{Value, json};

use super::function::{FunctionEntry, Member, NicScope};

/// Settings that Linux has an interface for, and those with a check of their own. All others are
/// extensions.
const KNOWN_TO_LINUX: [&str; 8] = [
    "link_state",
    "macs",
    "max_tx_mbps",
    "min_tx_mbps",
    "promiscuous",
    "spoof_check",
    "trust",
    "vlan",
];

/// Settings that are not set.
static UNSET: LazyLock<Value> = LazyLock::new(|| json!(PortSettings::default()));

/// A setting that a card rejects.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rejected {
    /// Path of the field in the document.
    field: String,
    value: String,
    errno: Errno,
    allowed: String,
}

impl Rejected {
    fn problem(self, card: &Profile, remedy: &str) -> Problem {
        let error = format!("is rejected by the profile {} ({})", card.name, self.errno);
        let text = format!("allowed is {}{remedy}", self.allowed);
        Problem::new(self.field, self.value, error, Remedy::choose(text, self.allowed))
    }
}

/// Checks a NIC against its profile. Returns the rates of each function. `known` has the rates
/// accepted before: a link that is down does not reject them.
pub(super) fn check(
    scope: &NicScope<'_>,
    known: Option<&BTreeMap<String, (u32, u32)>>,
    problems: &mut Problems,
) -> BTreeMap<String, (u32, u32)> {
    let card = scope.nic.profile;
    if scope.nic.total_vfs > u16::from(card.vfs) {
        let error = format!("is rejected by the profile {} ({})", card.name, Errno::Erange);
        let allowed = format!("write a number, 0 to {}", card.vfs);
        let field = format!("{}.total_vfs", scope.at);
        problems.push(Problem::new(field, scope.nic.total_vfs, error, allowed));
    }
    for rejected in of_nic(card, scope) {
        problems.push(rejected.problem(card, ""));
    }
    let mut rates = BTreeMap::new();
    if card.is_ideal() {
        return rates; // rejects nothing that the document can say
    }
    for (entry, remedy) in entries(scope) {
        let Share { min_mbit, max_mbit, .. } = entry.share();
        let accepted =
            known.is_none_or(|known| known.get(&entry.label) == Some(&(min_mbit, max_mbit)));
        match of_function(card, &entry, scope.uplink_up || accepted) {
            None => drop(rates.insert(entry.label, (min_mbit, max_mbit))),
            Some(rejected) => problems.push(rejected.problem(card, remedy)),
        }
    }
    rates
}

fn of_nic(card: &Profile, scope: &NicScope<'_>) -> Vec<Rejected> {
    let rejects = &card.soft.rejects;
    let modes = if rejects.vepa.is_none() { "veb or vepa" } else { "veb" };
    let bridging = match scope.nic.bridging {
        Bridging::Veb => None,
        Bridging::Vepa => rejects.vepa.map(|errno| ("bridging", "vepa", errno, modes)),
        Bridging::Isolated => {
            rejects.extensions.map(|errno| ("bridging", "isolated", errno, modes))
        }
    };
    let switchdev = rejects.switchdev.filter(|_| scope.nic.is_switchdev());
    let mode = switchdev.map(|errno| ("mode", "switchdev", errno, "legacy"));
    let rejected = |(field, value, errno, allowed): (&str, &str, Errno, &str)| Rejected {
        field: format!("{}.{field}", scope.at),
        value: value.to_owned(),
        errno,
        allowed: format!("{allowed} with the profile {}", card.name),
    };
    bridging.into_iter().chain(mode).map(rejected).collect()
}

/// First setting of a function that the card rejects. Rates of 0 count as not set, so a link that
/// is down does not reject them.
fn of_function(card: &Profile, entry: &FunctionEntry<'_>, uplink_up: bool) -> Option<Rejected> {
    let Soft { rejects, .. } = &card.soft;
    let vlan = entry.settings.vlan;
    let (link, share) = (entry.link, entry.share());
    let at = |field: &str| format!("{}.{field}", entry.at);
    let links = if rejects.link_state_disable.is_none() { "auto or disable" } else { "auto" };
    // First further address: of the adapter, or of its static entry.
    let macs = entry.macs.len().saturating_sub(1);
    let mac = entry.macs.get(1).map_or_else(String::new, |(_, field)| field.clone());
    let is_802_1ad = vlan.is_some_and(|vlan| vlan.proto == VlanProto::Dot1ad);
    let checks: [(bool, Option<Errno>, String, String, &str); 4] = [
        (macs > 0, rejects.extensions, mac, format!("{macs} addresses"), "none"),
        (is_802_1ad, rejects.vlan_802_1ad, at("vlan.proto"), "802.1ad".into(), "802.1Q"),
        (
            link == LinkState::Enable,
            rejects.link_state_enable,
            at("link_state"),
            "enable".into(),
            links,
        ),
        (
            link == LinkState::Disable,
            rejects.link_state_disable,
            at("link_state"),
            "disable".into(),
            links,
        ),
    ];
    let rejected = checks.into_iter().find_map(|(is_set, errno, field, value, allowed)| {
        let allowed = format!("{allowed} with the profile {}", card.name);
        errno.filter(|_| is_set).map(|errno| Rejected { field, value, errno, allowed })
    });
    let rejected = rejected.or_else(|| extension(card, entry));
    rejected.or_else(|| rates(card, &entry.at, share, uplink_up))
}

/// First extension that is set, if the card rejects them.
fn extension(card: &Profile, entry: &FunctionEntry<'_>) -> Option<Rejected> {
    let errno = card.soft.rejects.extensions?;
    let settings = json!(entry.settings);
    let is_set = |(name, value): &(&String, &Value)| {
        !KNOWN_TO_LINUX.contains(&name.as_str()) && UNSET.get(name) != Some(value)
    };
    let (name, value) = settings.as_object()?.iter().find(is_set)?;
    let (value, allowed) = match value {
        Value::Array(list) if list.len() == 1 => ("1 entry".to_owned(), "none".to_owned()),
        Value::Array(list) => (format!("{} entries", list.len()), "none".to_owned()),
        Value::Object(_) => ("a table".to_owned(), "none".to_owned()),
        value => (value.to_string(), UNSET.get(name).map_or("none".to_owned(), Value::to_string)),
    };
    let allowed = format!("{allowed} with the profile {}", card.name);
    Some(Rejected { field: format!("{}.{name}", entry.at), value, errno, allowed })
}

fn rates(card: &Profile, at: &str, share: Share, uplink_up: bool) -> Option<Rejected> {
    let Share { min_mbit: min, max_mbit: max, .. } = share;
    if min == 0 && max == 0 {
        return None;
    }
    let rejected = |field: &str, value: String, errno, allowed: String| {
        Some(Rejected { field: format!("{at}.{field}"), value, errno, allowed })
    };
    let soft = &card.soft;
    if soft.tx_rates_need_link && !uplink_up {
        let allowed = "a change while the uplink is up".to_owned();
        return rejected("max_tx_mbps", "one without a link".to_owned(), Errno::Einval, allowed);
    }
    if let (Some(errno), 1..) = (soft.rejects.min_tx_mbps, min) {
        let allowed = format!("0 with the profile {}", card.name);
        return rejected("min_tx_mbps", format!("{min} Mbit/s"), errno, allowed);
    }
    let highest = soft.speed_mbps;
    for (field, rate, lowest) in
        [("min_tx_mbps", min, 1), ("max_tx_mbps", max, soft.max_tx_mbps_min.max(1))]
    {
        if rate > 0 && !(lowest..=highest).contains(&rate) {
            let allowed = format!("0 and {lowest} to {highest} Mbit/s");
            return rejected(field, format!("{rate} Mbit/s"), Errno::Einval, allowed);
        }
    }
    None
}

/// Every function of the NIC, and every adapter that could be one. The text is an alternative
/// remedy.
pub(super) fn entries<'a>(scope: &NicScope<'a>) -> Vec<(FunctionEntry<'a>, &'static str)> {
    let mut all: Vec<_> = scope.pf().map(|entry| (entry, "")).into_iter().collect();
    let named = |index: u16| scope.members.iter().any(|one| one.adapter.vf == Some(index));
    for vf in scope.nic.vfs.iter().filter(|vf| !named(vf.index)) {
        all.push((scope.vacant(vf.index), ""));
    }
    if scope.nic.total_vfs == 0 {
        return all;
    }
    let may = |member: &&Member<'_>| may_ever_have_vf(scope.state, member.adapter).is_ok();
    for member in scope.members.iter().filter(may) {
        let vf = member.given.vf.or(member.adapter.vf);
        let remedy = ", or iov_weight = 0 so that it never gets a VF";
        all.push((scope.adapter_on(*member, vf), remedy));
    }
    all
}

#[cfg(test)]
mod tests;
