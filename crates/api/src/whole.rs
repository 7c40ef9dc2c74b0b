//! A whole document from a client: what it must say, and what becomes of objects that it does not
//! name.
//!
//! Objects are NICs, switches, adapters and virtual PFs. An object that the document names becomes
//! what the document says, whole. Others are removed only with the client's consent (`prune`):
//! without it `/v1/apply` keeps them, and `PUT /v1/state`, which replaces, refuses. Input without a
//! version or without any object (an empty file, `{}`, the output of a program that failed) is
//! refused, so that no accident removes everything.

use std::collections::{BTreeMap, BTreeSet};

use model::state::{Action, Actual, Kind, Plan, Problem, Problems, State};
use serde_json::Value;

use super::fault::Fault;

/// Lists of objects in the document, which have names.
const LISTS: [&str; 4] = ["nic", "switch", "adapter", "vpf"];

/// A state that a client asked for.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) state: State,
    /// Objects that the document does not name and that stay, such as `adapter web`.
    pub(super) kept: Vec<String>,
    /// Where the document has each object of the state.
    origins: Origins,
}

/// Where the objects of a state come from, by the order of [`LISTS`].
type Origins = [Vec<Origin>; 4];

/// Where an object of the state comes from.
#[derive(Debug)]
enum Origin {
    /// Its place in the client's document, such as `adapter[2]`.
    Document(String),
    /// Its name in the state in force.
    Kept(String),
}

/// The state that replaces the one in force.
///
/// # Errors
/// The document is wrong, or removes objects without `prune`.
pub(super) fn replacing(now: &State, document: &Value, prune: bool) -> Result<Whole, Fault> {
    let Whole { kept, .. } = merged(now, document)?;
    if !prune && !kept.is_empty() {
        let error = format!("the document does not name {}", listed(&kept));
        let allowed = "name them, or consent to their removal with ?prune=true";
        return Err(Fault::Impossible(Problem::new("", Value::Null, error, allowed).into()));
    }
    let state = State::parse(document).map_err(Fault::Wrong)?;
    Ok(Whole { state, kept: Vec::new(), origins: Default::default() })
}

/// The state in force with all that the document names; with `prune` nothing else. What it means is
/// not checked.
///
/// # Errors
/// The document is wrong.
pub(super) fn applied(now: &State, document: &Value, prune: bool) -> Result<Whole, Fault> {
    if prune {
        return replacing(now, document, prune);
    }
    merged(now, document)
}

/// The state in force with objects replaced and added, the objects that stay, and where each is
/// from; what it means is not checked. Objects keep their order, so that a document that changes
/// nothing gives the same state.
fn merged(now: &State, document: &Value) -> Result<Whole, Fault> {
    let (given, adapters) = State::read(document).map_err(Fault::Wrong)?;
    if given.is_empty() {
        let error = "the document names no NIC, switch, adapter or virtual PF";
        let allowed = "name what shall be there; to remove objects, delete each of them";
        return Err(Fault::Wrong(Problem::new("", Value::Null, error, allowed).into()));
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
    Ok(Whole { state, kept, origins })
}

/// Puts objects in the place of those that have their names, and the others behind; says where each
/// is from. `place` is where one stands in the document; what is kept is noted, with the word for
/// its kind.
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

impl Whole {
    /// A fault with the positions of objects as the client's document has them; an object that the
    /// document does not name is called by its name, such as `adapter["web"]`.
    pub(super) fn in_clients_words(&self, fault: Fault) -> Fault {
        let told = |mut problems: Problems| {
            for problem in &mut problems.problems {
                problem.field = self.translated(&problem.field);
                problem.error = self.translated(&problem.error);
            }
            problems
        };
        match fault {
            Fault::Wrong(problems) => Fault::Wrong(told(problems)),
            Fault::Impossible(problems) => Fault::Impossible(told(problems)),
            Fault::Refused(refused) => Fault::Refused(crate::plane::Refused(told(refused.0))),
            other => other,
        }
    }

    /// The text with every `adapter[N]` and its like translated.
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

/// Adapters that a plan removes while a guest uses them.
pub(super) fn in_use(before: &Actual, plan: &Plan) -> Vec<String> {
    let used = before.adapters.iter().filter(|one| one.connected).map(|one| one.name.as_str());
    let used: BTreeSet<&str> = used.collect();
    let steps = plan.steps.iter();
    let gone = steps.filter(|step| step.action == Action::Remove && step.kind == Kind::Adapter);
    gone.filter(|step| used.contains(&*step.name)).map(|step| step.name.clone()).collect()
}

/// The first objects, and the count of the others.
fn listed(objects: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = objects.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match objects.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
