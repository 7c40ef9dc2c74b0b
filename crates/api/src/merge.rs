//! Merges a client's document into the state in force.
//!
//! Objects are NICs, switches, adapters and virtual PFs. An object in the document replaces the one
//! of the same name as a whole. Others are removed only with the client's consent (`prune`):
//! without it `/v1/apply` keeps them, and `PUT /v1/state`, which replaces, rejects the document.
//! Input without a version or without any object (an empty file, `{}`, the output of a failed
//! program) is rejected, so that no accident removes everything.

use std::collections::{BTreeMap, BTreeSet};

use model::state::{Actual, ChangePlan, ObjectKind, PlanAction, Problem, Problems, State};
use serde_json::Value;

use super::error::ApiError;

/// Lists of named objects in the document.
const LISTS: [&str; 4] = ["nic", "switch", "adapter", "vpf"];

/// The merged state.
#[derive(Debug)]
pub(super) struct MergedState {
    pub(super) state: State,
    /// Objects that the document does not name and that are kept, such as `adapter web`.
    pub(super) kept: Vec<String>,
    /// Origin of each object of the state.
    origins: Origins,
}

/// Origins of a state's objects, in the order of [`LISTS`].
type Origins = [Vec<Origin>; 4];

/// Origin of an object of the state.
#[derive(Debug)]
enum Origin {
    /// Its position in the client's document, such as `adapter[2]`.
    Document(String),
    /// Its name in the state in force.
    Kept(String),
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
    Ok(MergedState { state, kept: Vec::new(), origins: Default::default() })
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

/// The state in force with objects replaced and added, the kept objects, and all origins. Does not
/// check the meaning. Objects keep their order, so a document without changes yields the same
/// state.
fn merged(now: &State, document: &Value) -> Result<MergedState, ApiError> {
    let (given, adapters) = State::read(document).map_err(ApiError::Wrong)?;
    if given.is_empty() {
        let error = "the document names no NIC, switch, adapter or virtual PF";
        let allowed = "name the objects to keep or create; to remove objects, delete each";
        return Err(ApiError::Wrong(Problem::new("", Value::Null, error, allowed).into()));
    }
    let mut state = now.clone();
    let mut kept = Vec::new();
    let place = |list: &'static str| move |at: usize| format!("{list}[{at}]");
    let origins = [
        merge(&mut state.nics, given.nics, |it| &it.name, place("nic"), ("NIC", &mut kept)),
        merge(
            &mut state.switches,
            given.switches,
            |it| &it.name,
            place("switch"),
            ("switch", &mut kept),
        ),
        merge(
            &mut state.adapters,
            given.adapters,
            |it| &it.name,
            |at| adapters[at].clone(),
            ("adapter", &mut kept),
        ),
        merge(&mut state.vpfs, given.vpfs, |it| &it.name, place("vpf"), ("virtual PF", &mut kept)),
    ];
    Ok(MergedState { state, kept, origins })
}

/// Replaces objects of the same name, appends new ones, and returns the origins. `place` gives an
/// object's position in the document; kept objects are recorded with the word for their kind.
fn merge<T>(
    now: &mut Vec<T>,
    given: Vec<T>,
    name: fn(&T) -> &str,
    place: impl Fn(usize) -> String,
    (word, kept): (&str, &mut Vec<String>),
) -> Vec<Origin> {
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    for (at, object) in given.iter().enumerate() {
        named.entry(name(object).to_owned()).or_insert(at); // one that comes twice is refused later
    }
    let mut given: Vec<Option<T>> = given.into_iter().map(Some).collect();
    let mut origins = Vec::new();
    for object in now.iter_mut() {
        let own = name(object).to_owned();
        match named.get(&own).and_then(|&at| Some((at, given[at].take()?))) {
            Some((at, new)) => {
                *object = new;
                origins.push(Origin::Document(place(at)));
            }
            None => {
                kept.push(format!("{word} {own}"));
                origins.push(Origin::Kept(own));
            }
        }
    }
    for (at, object) in given.into_iter().enumerate() {
        if let Some(object) = object {
            now.push(object);
            origins.push(Origin::Document(place(at)));
        }
    }
    origins
}

impl MergedState {
    /// Translates positions in an error to those of the client's document. An object outside the
    /// document is shown by name, such as `adapter["web"]`.
    pub(super) fn in_clients_words(&self, error: ApiError) -> ApiError {
        let told = |mut problems: Problems| {
            for problem in &mut problems.problems {
                problem.field = self.translated(&problem.field);
                problem.error = self.translated(&problem.error);
            }
            problems
        };
        match error {
            ApiError::Wrong(problems) => ApiError::Wrong(told(problems)),
            ApiError::Impossible(problems) => ApiError::Impossible(told(problems)),
            ApiError::Refused(refused) => {
                ApiError::Refused(crate::plane::PlaneError(told(refused.0)))
            }
            other => other,
        }
    }

    /// Translates every `adapter[N]` and the like in a text.
    fn translated(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (list, origins) in LISTS.iter().zip(&self.origins) {
            let start = format!("{list}[");
            let mut parts = text.split(&start);
            let mut told = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                let number = part
                    .split_once(']')
                    .and_then(|(n, rest)| Some((origins.get(n.parse::<usize>().ok()?)?, rest)));
                told += &match number {
                    Some((Origin::Document(place), rest)) => format!("{place}{rest}"),
                    Some((Origin::Kept(name), rest)) => format!("{start}{name:?}]{rest}"),
                    None => format!("{start}{part}"),
                };
            }
            text = told;
        }
        text
    }
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
