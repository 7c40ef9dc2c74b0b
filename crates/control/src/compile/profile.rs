//! What the card of a NIC's profile refuses.

use std::collections::BTreeMap;

use nic::{PortId, Refused};

use super::function::{Member, Owner, Scope};
use super::nics::{mode, profile};
use crate::state::{Problem, Problems, Profile, may_ever_have_vf};

/// Checks a NIC against its profile. Gives the rates of each function; `known` are those that were accepted before, which
/// a link that is down does not take back.
pub(super) fn check(
    scope: &Scope<'_>,
    known: Option<&BTreeMap<String, (u32, u32)>>,
    problems: &mut Problems,
) -> BTreeMap<String, (u32, u32)> {
    let card = profile(scope.nic.profile);
    if scope.nic.total_vfs > u16::from(card.total_vfs_max) {
        let error = format!("is refused by the profile {} ({})", card.name, nic::Errno::Erange);
        let allowed = format!("write a number, 0 to {}", card.total_vfs_max);
        let field = format!("{}.total_vfs", scope.at);
        problems.push(Problem::new(field, scope.nic.total_vfs, error, allowed));
    }
    if let Err(refused) = card.check_mode(mode(scope.nic.bridging)) {
        problems.push(problem(card.name, &refused, format!("{}.bridging", scope.at), ""));
    }
    if scope.nic.is_switchdev()
        && let Err(refused) = card.check_switchdev()
    {
        problems.push(problem(card.name, &refused, format!("{}.mode", scope.at), ""));
    }
    let mut rates = BTreeMap::new();
    if scope.nic.profile == Profile::Ideal {
        return rates; // which refuses nothing that the document can say
    }
    for (port, owner, remedy) in owners(scope) {
        let function = nic::Function { mirror: mirror(&owner), ..owner.function() };
        let rate = (function.share.min_mbit, function.share.max_mbit);
        let accepted = known.is_none_or(|known| known.get(&owner.label) == Some(&rate));
        match card.check(port, &function, scope.uplink_up || accepted) {
            Ok(()) => drop(rates.insert(owner.label, rate)),
            Err(refused) => {
                let field = field(&owner, &refused);
                problems.push(problem(card.name, &refused, field, remedy));
            }
        }
    }
    rates
}

/// Everything that is a function of the NIC or could be one, and what helps beside another value.
pub(super) fn owners<'a>(scope: &Scope<'a>) -> Vec<(PortId, Owner<'a>, &'static str)> {
    let mut all: Vec<_> = scope.pf().map(|owner| (PortId::PF, owner, "")).into_iter().collect();
    let named = |index: u16| scope.members.iter().any(|one| one.adapter.vf == Some(index));
    for vf in scope.nic.vfs.iter().filter(|vf| !named(vf.index)) {
        all.push((PortId::vf(vf.index as u8), scope.vacant(vf.index), ""));
    }
    if scope.nic.total_vfs == 0 {
        return all;
    }
    let may = |member: &&Member<'_>| may_ever_have_vf(scope.state, member.adapter).is_ok();
    for member in scope.members.iter().filter(may) {
        let vf = member.given.vf.or(member.adapter.vf);
        let remedy = ", or iov_weight = 0 so that it never gets a VF";
        let port = PortId::vf(vf.unwrap_or(0) as u8);
        all.push((port, scope.adapter_on(*member, vf), remedy));
    }
    all
}

/// Any mirror is as good as another to a card.
fn mirror(owner: &Owner<'_>) -> Option<nic::Mirror> {
    let to = nic::Monitor::Capture(0);
    owner.settings.mirror.map(|_| nic::Mirror { way: nic::Way::Both, to })
}

/// The document's name of a field that a card refuses.
fn field(owner: &Owner<'_>, refused: &Refused) -> String {
    let name = refused.field.rsplit(": ").next().unwrap_or_default();
    let name = match name {
        "vlan_protocol" => "vlan.proto",
        "min_tx_rate" => "min_tx_mbps",
        "max_tx_rate" | "tx_rate" => "max_tx_mbps",
        "trunk" => "trunks",
        // The first beyond its own, be it of the adapter or a static entry for it.
        "extra_macs" => match owner.macs.get(1) {
            Some((_, field)) => return field.clone(),
            None => "macs",
        },
        "weight" => "tx_weight",
        "storm_limit" => "storm_limit_pps",
        same => same,
    };
    format!("{}.{name}", owner.at)
}

fn problem(card: &str, refused: &Refused, field: String, remedy: &str) -> Problem {
    let error = format!("is refused by the profile {card} ({})", refused.errno);
    let allowed = format!("allowed is {}{remedy}", refused.allowed);
    Problem::new(field, refused.value.as_str(), error, allowed)
}
