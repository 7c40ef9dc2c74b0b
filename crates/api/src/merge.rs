//! Merges a client's document into the state in force.
//!
//! Objects are NICs, switches, adapters and virtual PFs. An object in the document replaces the one
//! of the same name as a whole. Others are removed only with the client's consent (`prune`):
//! without it `/v1/apply` keeps them, and `PUT /v1/state`, which replaces, rejects the document.
//! Input without a version or without any object (an empty file, `{}`, the output of a failed
//! program) is rejected, so that no accident removes everything.

use std::collections::{BTreeMap, BTreeSet};

use model::state::{Actual, ChangePlan, ObjectKind, PlanAction, Problem, State};
use serde_json::Value;

use super::error::ApiError;

/// The merged state.
#[derive(Debug)]
pub(super) struct MergedState {
    pub(super) state: State,
    /// Objects that the document does not name and that are kept, such as `adapter web`.
    pub(super) kept: Vec<String>,
}

/// The state that replaces the one in force.
///
/// # Errors
/// The document is invalid, or removes objects without `prune`.
pub(super) fn replacing(
    now: &State,
    document: &Value,
    prune: bool,
) -> Result<MergedState, ApiError> {
    let MergedState { kept, .. } = merged(now, document)?;
    if !prune && !kept.is_empty() {
        let error = format!("the document does not name {}", listed(&kept));
        let allowed = "name them, or consent to their removal with ?prune=true";
        return Err(ApiError::Impossible(Problem::new("", Value::Null, error, allowed).into()));
    }
    let state = State::parse(document).map_err(ApiError::Wrong)?;
    Ok(MergedState { state, kept: Vec::new() })
}

/// The state in force with the document applied; `prune` removes all other objects. Does not check
/// the meaning.
///
/// # Errors
/// The document is invalid.
pub(super) fn applied(now: &State, document: &Value, prune: bool) -> Result<MergedState, ApiError> {
    if prune {
        return replacing(now, document, prune);
    }
    merged(now, document)
}

/// The state in force with objects replaced and added, the kept objects, without a check of the
/// meaning. Objects keep their order, so a document without changes yields the same
/// state.
fn merged(now: &State, document: &Value) -> Result<MergedState, ApiError> {
    let given = State::read(document).map_err(ApiError::Wrong)?;
    if given.is_empty() {
        let error = "the document names no NIC, switch, adapter or virtual PF";
        let allowed = "name the objects to keep or create; to remove objects, delete each";
        return Err(ApiError::Wrong(Problem::new("", Value::Null, error, allowed).into()));
    }
    let mut state = now.clone();
    let mut kept = Vec::new();
    merge(&mut state.nics, given.nics, |it| &it.name, ("NIC", &mut kept));
    merge(&mut state.switches, given.switches, |it| &it.name, ("switch", &mut kept));
    merge(&mut state.adapters, given.adapters, |it| &it.name, ("adapter", &mut kept));
    merge(&mut state.vpfs, given.vpfs, |it| &it.name, ("virtual PF", &mut kept));
    Ok(MergedState { state, kept })
}

/// Replaces objects of the same name, and appends new ones; kept objects are recorded with the word
/// for their kind.
fn merge<T>(
    now: &mut Vec<T>,
    given: Vec<T>,
    name: fn(&T) -> &str,
    (word, kept): (&str, &mut Vec<String>),
) {
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    for (at, object) in given.iter().enumerate() {
        named.entry(name(object).to_owned()).or_insert(at); // one that comes twice is refused later
    }
    let mut given: Vec<Option<T>> = given.into_iter().map(Some).collect();
    for object in now.iter_mut() {
        match named.get(name(object)).and_then(|&at| given[at].take()) {
            Some(new) => *object = new,
            None => kept.push(format!("{word} {}", name(object))),
        }
    }
    now.extend(given.into_iter().flatten());
}

/// Adapters in use by a guest that a plan removes.
pub(super) fn in_use(before: &Actual, plan: &ChangePlan) -> Vec<String> {
    let used = before.adapters.iter().filter(|one| one.connected).map(|one| one.name.as_str());
    let used: BTreeSet<&str> = used.collect();
    let steps = plan.steps.iter();
    let gone =
        steps.filter(|step| step.action == PlanAction::Remove && step.kind == ObjectKind::Adapter);
    gone.filter(|step| used.contains(&*step.name)).map(|step| step.name.clone()).collect()
}

/// The first objects, and the number of the others.
fn listed(objects: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = objects.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match objects.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
