//! A whole document from a client: what it must say, and what becomes of objects that it does not name.
//!
//! Objects are NICs, switches, adapters and virtual PFs. An object that the document names becomes what the document
//! says, whole. Others are removed only with the client's consent (`prune`): without it `/v1/apply` keeps them, and
//! `PUT /v1/state`, which replaces, refuses. Input without a version or without any object (an empty file, `{}`, the
//! output of a program that failed) is refused, so that no accident removes everything.

use std::collections::{BTreeMap, BTreeSet};

use model::state::{Action, Actual, Filled, Kind, Plan, Problem, Problems, State, fill};
use serde_json::Value;

use super::fault::Fault;

/// Lists of objects in the document, which have names, with the words for one.
const LISTS: [(&str, &str); 4] =
    [("nic", "NIC"), ("switch", "switch"), ("adapter", "adapter"), ("vpf", "virtual PF")];

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
    let (_, kept, _) = merged(now, document)?;
    if !prune && !kept.is_empty() {
        let error = format!("the document does not name {}", listed(&kept));
        let allowed = "name them, or consent to their removal with ?prune=true";
        return Err(Fault::Impossible(Problem::new("", Value::Null, error, allowed).into()));
    }
    let state = State::parse(document).map_err(Fault::Wrong)?;
    Ok(Whole { state, kept: Vec::new(), origins: Default::default() })
}

/// The state in force with all that the document names; with `prune` nothing else.
///
/// # Errors
/// The document is wrong.
pub(super) fn applied(now: &State, document: &Value, prune: bool) -> Result<Whole, Fault> {
    if prune {
        return replacing(now, document, prune);
    }
    let (merged, kept, origins) = merged(now, document)?;
    let mut whole = Whole { state: State::default(), kept, origins };
    match State::parse(&merged) {
        Ok(state) => whole.state = state,
        Err(problems) => return Err(whole.in_clients_words(Fault::Wrong(problems))),
    }
    Ok(whole)
}

/// The document of the state in force with objects replaced and added, the objects that stay, and where each is from.
/// Objects keep their order, so that a document that changes nothing gives the same state.
fn merged(now: &State, document: &Value) -> Result<(Value, Vec<String>, Origins), Fault> {
    State::check_form(document).map_err(Fault::Wrong)?;
    let Filled { document, adapters } = fill(document).map_err(Fault::Wrong)?;
    let place = |list: &str, at: usize| match list {
        "adapter" => adapters[at].clone(),
        _ => format!("{list}[{at}]"),
    };
    let mut merged = now.to_document();
    let (mut kept, mut origins) = (Vec::new(), Origins::default());
    let mut is_empty = true;
    for ((list, word), origins) in LISTS.into_iter().zip(&mut origins) {
        let none = Vec::new();
        let given = document[list].as_array().unwrap_or(&none);
        is_empty &= given.is_empty();
        let name_of = |object: &Value| object["name"].as_str().unwrap_or_default().to_owned();
        let mut named: BTreeMap<String, usize> = BTreeMap::new();
        for (at, object) in given.iter().enumerate() {
            named.entry(name_of(object)).or_insert(at); // one that comes twice is refused later
        }
        let mut is_placed = vec![false; given.len()];
        let Some(objects) = merged[list].as_array_mut() else { continue };
        for object in objects.iter_mut() {
            let name = name_of(object);
            origins.push(match named.get(&name) {
                Some(&at) => {
                    *object = given[at].clone();
                    is_placed[at] = true;
                    Origin::Document(place(list, at))
                }
                None => {
                    kept.push(format!("{word} {name}"));
                    Origin::Kept(name)
                }
            });
        }
        for (at, object) in given.iter().enumerate().filter(|(at, _)| !is_placed[*at]) {
            objects.push(object.clone());
            origins.push(Origin::Document(place(list, at)));
        }
    }
    if is_empty {
        let error = "the document names no NIC, switch, adapter or virtual PF";
        let allowed = "name what shall be there; to remove objects, delete each of them";
        return Err(Fault::Wrong(Problem::new("", Value::Null, error, allowed).into()));
    }
    Ok((merged, kept, origins))
}

impl Whole {
    /// A fault with the positions of objects as the client's document has them; an object that the document does not
    /// name is called by its name, such as `adapter["web"]`.
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
        for ((list, _), origins) in LISTS.iter().zip(&self.origins) {
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
