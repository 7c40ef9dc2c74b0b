//! From one state to another: the named steps, in an order in which each is possible.
//!
//! What refers to others goes before them when it is removed, and comes after them when it is
//! created: virtual PFs, adapters, switches, VFs, NICs are removed in this order, and created and
//! changed in the reverse. Moves of adapters between paths, which follow from the steps, stand at
//! the end.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::shape::join;
use super::{Allocation, Nic, State, Vf};

/// What is done to a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It is there from now on.
    Create,
    /// Some of its settings change.
    Change,
    /// It is no more.
    Remove,
    /// An adapter gets another path.
    Move,
}

/// What kind of thing.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A NIC.
    Nic,
    /// A VF's settings; its name is `NIC/vfN`.
    Vf,
    /// A switch.
    Switch,
    /// An adapter.
    Adapter,
    /// A virtual PF.
    Vpf,
}

/// One setting that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// Its path within the thing, such as `vlan.id`.
    pub field: String,
    /// What it was; null if it was not there.
    #[schema(value_type = Value)]
    pub from: Value,
    /// What it becomes; null if it goes.
    #[schema(value_type = Value)]
    pub to: Value,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// To what kind of thing.
    pub kind: Kind,
    /// To which.
    pub name: String,
    /// The settings that change; none for what is created or removed.
    pub changes: Vec<Change>,
}

/// All steps; none if both states are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// In the order in which they are done.
    pub steps: Vec<Step>,
}

impl Plan {
    /// The steps from one state to another.
    pub fn between(from: &State, to: &State) -> Plan {
        // VFs are things of their own, so NICs are compared without them.
        let (old_nics, new_nics) = (without_vfs(&from.nics), without_vfs(&to.nics));
        // In the order in which they are created.
        let kinds = [
            steps(Kind::Nic, [&old_nics, &new_nics].map(|all| named(all, |nic| &nic.name))),
            steps(Kind::Vf, [from, to].map(vfs)),
            steps(Kind::Switch, [from, to].map(|it| named(&it.switches, |one| &one.name))),
            steps(Kind::Adapter, [from, to].map(|it| named(&it.adapters, |one| &one.name))),
            steps(Kind::Vpf, [from, to].map(|it| named(&it.vpfs, |one| &one.name))),
        ];
        let (mut removed, mut made) = (Vec::new(), Vec::new());
        for [gone, come] in kinds {
            removed.push(gone);
            made.extend(come);
        }
        let steps = removed.into_iter().rev().flatten().chain(made).collect();
        Plan { steps }
    }

    /// Adds the adapters that get another path; those that come or go have their step already.
    pub fn with_moves(mut self, before: &[Allocation], after: &[Allocation]) -> Plan {
        let before: BTreeMap<&str, &Allocation> =
            before.iter().map(|one| (one.adapter.as_str(), one)).collect();
        for new in after {
            let Some(old) = before.get(new.adapter.as_str()) else {
                continue;
            };
            if (old.path, old.vf) != (new.path, new.vf) {
                let change = Change {
                    field: "path".into(),
                    from: old.place().into(),
                    to: format!("{} ({})", new.place(), new.reason).into(),
                };
                let step = Step::new(Action::Move, Kind::Adapter, &new.adapter);
                self.steps.push(Step { changes: vec![change], ..step });
            }
        }
        self
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Step {
    fn new(action: Action, kind: Kind, name: &str) -> Step {
        Step { action, kind, name: name.to_owned(), changes: Vec::new() }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Create => "create",
            Action::Change => "change",
            Action::Remove => "remove",
            Action::Move => "move",
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Nic => "nic",
            Kind::Vf => "vf",
            Kind::Switch => "switch",
            Kind::Adapter => "adapter",
            Kind::Vpf => "vpf",
        })
    }
}

impl fmt::Display for Step {
    /// `change nic nic0` and a line for each setting.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.action, self.kind, self.name)?;
        for Change { field, from, to } in &self.changes {
            write!(f, "\n    {field}: {} -> {}", shown(from), shown(to))?;
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    /// One step a line; `nothing to do` if there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing to do");
        }
        for (i, step) in self.steps.iter().enumerate() {
            write!(f, "{}{step}", if i > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn json(thing: impl Serialize) -> Value {
    serde_json::to_value(thing).expect("a setting is JSON")
}

/// Things by their names.
type Named<'a, T> = BTreeMap<String, &'a T>;

fn named<T>(things: &[T], name: impl Fn(&T) -> &String) -> Named<'_, T> {
    things.iter().map(|thing| (name(thing).clone(), thing)).collect()
}

fn without_vfs(nics: &[Nic]) -> Vec<Nic> {
    nics.iter().map(|nic| Nic { vfs: Vec::new(), ..nic.clone() }).collect()
}

/// The VFs of all NICs, each as `NIC/vfN`.
fn vfs(state: &State) -> Named<'_, Vf> {
    let of = state
        .nics
        .iter()
        .flat_map(|nic| nic.vfs.iter().map(|vf| (format!("{}/vf{}", nic.name, vf.index), vf)));
    of.collect()
}

/// The steps of one kind of thing: those that remove, and those that create and change. Only what
/// differs is looked into.
fn steps<T: PartialEq + Serialize>(kind: Kind, [old, new]: [Named<'_, T>; 2]) -> [Vec<Step>; 2] {
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    let removed = gone.map(|name| Step::new(Action::Remove, kind, name)).collect();
    let made = new.iter().filter_map(|(name, thing)| match old.get(name) {
        None => Some(Step::new(Action::Create, kind, name)),
        Some(before) if before == thing => None,
        Some(before) => {
            let changes = changes(&json(before), &json(thing));
            Some(Step { changes, ..Step::new(Action::Change, kind, name) })
        }
    });
    [removed, made.collect()]
}

/// The leaves that differ; a list is a leaf.
fn changes(old: &Value, new: &Value) -> Vec<Change> {
    let (mut from, mut to) = (BTreeMap::new(), BTreeMap::new());
    leaves(old, String::new(), &mut from);
    leaves(new, String::new(), &mut to);
    let fields: std::collections::BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let change = |field: &String| {
        let of = |leaves: &BTreeMap<String, Value>| leaves.get(field).cloned().unwrap_or_default();
        let (from, to) = (of(&from), of(&to));
        (from != to).then(|| Change { field: field.clone(), from, to })
    };
    fields.into_iter().filter_map(change).collect()
}

fn leaves(value: &Value, path: String, out: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                leaves(value, join(&path, name), out);
            }
        }
        leaf => drop(out.insert(path, leaf.clone())),
    }
}
