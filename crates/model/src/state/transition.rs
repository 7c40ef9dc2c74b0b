//! Settings that are fixed when an object is created, so a running state cannot change them.

use super::State;
use super::problem::{Problem, Problems};

/// Checks that `from`, which is in force, can become `to`.
///
/// # Errors
/// Each fixed setting that differs: a NIC's kind, device, profile and `vmq_queues`; of a soft NIC
/// `total_vfs`, and `num_vfs`, which Linux only changes from or to 0 (`EBUSY`); a switch's `iov`
/// and `nic`.
pub fn transition(from: &State, to: &State) -> Result<(), Problems> {
    let mut problems = Problems::default();
    for (i, new) in to.nics.iter().enumerate() {
        let Some(old) = from.nic(&new.name) else {
            continue;
        };
        let at = |field: &str| format!("nic[{i}].{field}");
        let name = &new.name;
        let mut fixed = |field: &str, new: serde_json::Value, old: serde_json::Value| {
            if new != old {
                let error = "is fixed when a NIC is created";
                let allowed = format!("write {old}, or delete and recreate {name}");
                problems.push(Problem::new(at(field), new, error, allowed));
            }
        };
        fixed("kind", json(new.kind), json(old.kind));
        fixed("device", json(&new.device), json(&old.device));
        fixed("profile", json(new.profile), json(old.profile));
        if !new.is_pci() {
            fixed("total_vfs", json(new.total_vfs), json(old.total_vfs));
        }
        fixed("vmq_queues", json(new.vmq_queues), json(old.vmq_queues));
        let is_direct = old.num_vfs != 0 && new.num_vfs != 0 && !new.is_pci();
        if old.num_vfs != new.num_vfs && is_direct {
            let error = format!("cannot change while {} VFs are enabled", old.num_vfs);
            let allowed = format!("write {} or 0; from 0 any number", old.num_vfs);
            problems.push(Problem::new(at("num_vfs"), new.num_vfs, error, allowed));
        }
    }
    for (i, new) in to.switches.iter().enumerate() {
        let Some(old) = from.switch(&new.name) else {
            continue;
        };
        let remedy = format!("or delete and recreate {}", new.name);
        let error = "is fixed when a switch is created";
        if old.iov != new.iov {
            let allowed = format!("write {}, {remedy}", old.iov);
            problems.push(Problem::new(format!("switch[{i}].iov"), new.iov, error, allowed));
        }
        if old.nic != new.nic {
            let allowed = format!("write {:?}, {remedy}", old.nic);
            let field = format!("switch[{i}].nic");
            problems.push(Problem::new(field, new.nic.as_str(), error, allowed));
        }
    }
    problems.or(()).map_err(|problems| problems.named(&to.to_document()))
}

fn json(value: impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(value).expect("a setting is JSON")
}
