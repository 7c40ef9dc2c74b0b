//! Steps from one state to another, in an order in which each is possible.
//!
//! An object is removed before the objects that it refers to, and created after them. So the order
//! of removal is virtual PFs, adapters, switches, VFs, NICs; creation and changes have the reverse
//! order. Changes of adapters' paths follow from the steps and come last.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::schema::{join, schema_at, schemas};
use super::{Allocation, Nic, State, Vf};

/// Action of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlanAction {
    /// Creates the object.
    Create,
    /// Changes settings.
    Change,
    /// Removes the object.
    Remove,
    /// Changes an adapter's path.
    Move,
}

/// Kind of object.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// A NIC.
    Nic,
    /// Settings of a VF; its name is `NIC/vfN`.
    Vf,
    /// A switch.
    Switch,
    /// An adapter.
    Adapter,
    /// A virtual PF.
    Vpf,
}

/// Change of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    /// Path within the object, such as `vlan.id`.
    pub field: String,
    /// Old value; null if absent.
    #[schema(value_type = Value)]
    pub from: Value,
    /// New value; null if removed.
    #[schema(value_type = Value)]
    pub to: Value,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanStep {
    /// Action.
    pub action: PlanAction,
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Name of the object.
    pub name: String,
    /// Changed settings; none if the object is created or removed.
    pub changes: Vec<FieldChange>,
}

/// All steps; none if both states are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangePlan {
    /// In order of execution.
    pub steps: Vec<PlanStep>,
}

impl ChangePlan {
    /// The steps from one state to another.
    pub fn between(from: &State, to: &State) -> ChangePlan {
        // VFs are objects of their own, so NICs are compared without them.
        let (old_nics, new_nics) = (without_vfs(&from.nics), without_vfs(&to.nics));
        // In order of creation.
        let kinds = [
            steps(ObjectKind::Nic, [&old_nics, &new_nics].map(|all| named(all, |nic| &nic.name))),
            steps(ObjectKind::Vf, [from, to].map(vfs)),
            steps(ObjectKind::Switch, [from, to].map(|it| named(&it.switches, |one| &one.name))),
            steps(ObjectKind::Adapter, [from, to].map(|it| named(&it.adapters, |one| &one.name))),
            steps(ObjectKind::Vpf, [from, to].map(|it| named(&it.vpfs, |one| &one.name))),
        ];
        let (mut removed, mut made) = (Vec::new(), Vec::new());
        for [gone, come] in kinds {
            removed.push(gone);
            made.extend(come);
        }
        let steps = removed.into_iter().rev().flatten().chain(made).collect();
        ChangePlan { steps }
    }

    /// Adds changes of adapters' paths, except for adapters that are created or removed.
    pub fn with_moves(mut self, before: &[Allocation], after: &[Allocation]) -> ChangePlan {
        let before: BTreeMap<&str, &Allocation> =
            before.iter().map(|one| (one.adapter.as_str(), one)).collect();
        for new in after {
            let Some(old) = before.get(new.adapter.as_str()) else {
                continue;
            };
            if (old.path, old.vf) != (new.path, new.vf) {
                let change = FieldChange {
                    field: "path".into(),
                    from: old.place().into(),
                    to: format!("{} ({})", new.place(), new.reason).into(),
                };
                let step = PlanStep::new(PlanAction::Move, ObjectKind::Adapter, &new.adapter);
                self.steps.push(PlanStep { changes: vec![change], ..step });
            }
        }
        self
    }

    /// `true` without steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl PlanStep {
    fn new(action: PlanAction, kind: ObjectKind, name: &str) -> PlanStep {
        PlanStep { action, kind, name: name.to_owned(), changes: Vec::new() }
    }
}

impl ObjectKind {
    /// Schema of the object.
    fn schema(self) -> &'static Value {
        &schemas()[match self {
            ObjectKind::Nic => "Nic",
            ObjectKind::Vf => "Vf",
            ObjectKind::Switch => "Switch",
            ObjectKind::Adapter => "Adapter",
            ObjectKind::Vpf => "Vpf",
        }]
    }
}

impl fmt::Display for PlanAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PlanAction::Create => "create",
            PlanAction::Change => "change",
            PlanAction::Remove => "remove",
            PlanAction::Move => "move",
        })
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ObjectKind::Nic => "nic",
            ObjectKind::Vf => "vf",
            ObjectKind::Switch => "switch",
            ObjectKind::Adapter => "adapter",
            ObjectKind::Vpf => "vpf",
        })
    }
}

impl fmt::Display for PlanStep {
    /// `change nic nic0` and a line for each setting.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.action, self.kind, self.name)?;
        for change in &self.changes {
            write_change(f, "", self.kind.schema(), change)?;
        }
        Ok(())
    }
}

/// Writes a line for a changed setting; of a list of objects, one for each setting of an entry that
/// differs from its default. `schema` is that of the object with the setting, `before` names its
/// place.
fn write_change(
    f: &mut fmt::Formatter<'_>,
    before: &str,
    schema: &Value,
    change: &FieldChange,
) -> fmt::Result {
    let FieldChange { field, from, to } = change;
    let (old, new) = (entries(from), entries(to));
    if old.is_empty() && new.is_empty() {
        return write!(f, "\n    {before}{field}: {} -> {}", shown(from), shown(to));
    }
    let of_entry = schema_at(schema, &format!("{field}[]"));
    let labels: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut labels: Vec<&String> = labels.into_iter().collect();
    labels.sort_by_key(|label| label.parse::<usize>().unwrap_or(0)); // rules by number
    for label in labels {
        let entry = format!("{before}{field} {label}");
        match (old.get(label), new.get(label)) {
            (old, new) if old == new => {}
            (Some(_), None) => write!(f, "\n    {entry}: removed")?,
            (old, Some(new)) if name_of(new).is_some() => {
                let none = Value::Object(Map::new());
                let changes = changes(old.unwrap_or(&&none), new);
                let changes = changes.iter().filter(|FieldChange { field, to, .. }| {
                    let default = &schema_at(of_entry, field)["default"];
                    let is_unset = to.is_null() || *to == json!([]) || to == default;
                    !NAMES.contains(&&**field) && (old.is_some() || !is_unset)
                });
                let mut changes = changes.peekable();
                if changes.peek().is_none() {
                    write!(f, "\n    {entry}: added")?;
                }
                for change in changes {
                    write_change(f, &format!("{entry}, "), of_entry, change)?;
                }
            }
            (old, new) => {
                let [old, new] = [old, new].map(|one| one.map_or("none".to_owned(), |it| rule(it)));
                write!(f, "\n    {entry}: {old} -> {new}")?;
            }
        }
    }
    Ok(())
}

/// Fields that name an entry of a list.
const NAMES: [&str; 5] = ["adapter", "name", "mac", "of", "index"];

/// Name of an entry of a list; none for a rule.
fn name_of(entry: &Value) -> Option<String> {
    let is_rule = ["action", "to"].iter().any(|field| entry.get(field).is_some());
    let name = NAMES.iter().find_map(|field| entry.get(field).filter(|name| !name.is_null()));
    name.filter(|_| !is_rule).map(shown)
}

/// Objects of a list by name, or by number from 1.
fn entries(list: &Value) -> BTreeMap<String, &Value> {
    let objects = list.as_array().into_iter().flatten().filter(|one| one.is_object());
    let numbered = objects.enumerate();
    numbered.map(|(i, one)| (name_of(one).unwrap_or_else(|| (i + 1).to_string()), one)).collect()
}

/// A rule in the words of a command: `deny protocol=udp to_port=53`.
fn rule(rule: &Value) -> String {
    const FIRST: [&str; 3] = ["action", "from", "to"];
    let mut fields = BTreeMap::new();
    leaves(rule, String::new(), &mut fields);
    let first = FIRST.iter().filter_map(|name| fields.remove(*name)).map(|value| shown(&value));
    let mut words: Vec<String> = first.collect();
    let set = fields.iter().filter(|(_, value)| !value.is_null());
    words.extend(set.map(|(name, value)| format!("{name}={}", shown(value))));
    words.join(" ")
}

impl fmt::Display for ChangePlan {
    /// One step per line; `nothing to do` without steps.
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
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

fn to_json(thing: impl Serialize) -> Value {
    serde_json::to_value(thing).expect("a setting is JSON")
}

/// Objects by name.
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

/// Steps of one kind of object: removals, and creations with changes. Compares details only of
/// objects that differ.
fn steps<T: PartialEq + Serialize>(
    kind: ObjectKind,
    [old, new]: [Named<'_, T>; 2],
) -> [Vec<PlanStep>; 2] {
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    let removed = gone.map(|name| PlanStep::new(PlanAction::Remove, kind, name)).collect();
    let made = new.iter().filter_map(|(name, thing)| match old.get(name) {
        None => Some(PlanStep::new(PlanAction::Create, kind, name)),
        Some(before) if before == thing => None,
        Some(before) => {
            let changes = changes(&to_json(before), &to_json(thing));
            Some(PlanStep { changes, ..PlanStep::new(PlanAction::Change, kind, name) })
        }
    });
    [removed, made.collect()]
}

/// Leaves that differ; a list counts as a leaf.
fn changes(old: &Value, new: &Value) -> Vec<FieldChange> {
    let (mut from, mut to) = (BTreeMap::new(), BTreeMap::new());
    leaves(old, String::new(), &mut from);
    leaves(new, String::new(), &mut to);
    let fields: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let change = |field: &String| {
        let of = |leaves: &BTreeMap<String, Value>| leaves.get(field).cloned().unwrap_or_default();
        let (from, to) = (of(&from), of(&to));
        (from != to).then(|| FieldChange { field: field.clone(), from, to })
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
