//! Checks of a workload file.

use std::collections::BTreeSet;

use model::state::{Problem, Problems, Remedy};
use serde_json::Value;

use super::{Adapter, File, Flow, FlowEntry, Service, ServiceEntry, WIRE, Workload};
use crate::frames::FrameMix;
use crate::load::Guests;
use crate::path::{PathError, PlannedPath};
use crate::range::{CORES, CYCLES, MPPS, check_range};
use crate::units::FrameRate;

const SERVICES_MAX: usize = 64;
const ADAPTERS_MAX: usize = 4;
const FLOWS_MAX: usize = 256;
const GUESTS_MAX: u32 = 4096;

pub(super) fn check(file: File) -> Result<Workload, Problems> {
    few("the workload", "service", file.service.len(), SERVICES_MAX)?;
    few("the workload", "flow", file.flow.len(), FLOWS_MAX)?;
    for (what, is_empty) in [("service", file.service.is_empty()), ("flow", file.flow.is_empty())] {
        if is_empty {
            let message = format!("has no [[{what}]]");
            let remedy = "write at least one service and one flow";
            return Err(Problem::new("", (), message, remedy).of("the workload").into());
        }
    }
    unique("service", file.service.iter().map(|one| &one.name))?;
    unique("flow", file.flow.iter().map(|one| &one.name))?;
    let mut workload = Workload {
        services: Vec::new(),
        adapters: Vec::new(),
        flows: Vec::new(),
        has_rates: false,
    };
    let mut ends = Vec::new();
    for entry in &file.service {
        ends.push(service(entry, &mut workload)?);
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = workload.adapters.iter().find(|adapter| !seen.insert(&adapter.name)) {
        return Err(twice_named("adapter", &twice.name));
    }
    let of_all = file.frames.as_deref().map(|text| frames("the workload", text)).transpose()?;
    workload.has_rates = file.flow.iter().any(|flow| flow.mpps.is_some());
    for entry in &file.flow {
        let flow = flow(entry, &workload, &ends, of_all.as_ref())?;
        workload.flows.push(flow);
    }
    Ok(workload)
}

fn few(of: &str, field: &str, count: usize, max: usize) -> Result<(), Problems> {
    let message = format!("has too many entries, {count}");
    match count <= max {
        true => Ok(()),
        false => {
            Err(Problem::new(field, (), message, format!("write at most {max}")).of(of).into())
        }
    }
}

/// Another service, flow or adapter has this name.
fn twice_named(kind: &str, name: &str) -> Problems {
    Problem::new("name", name, "is the name of another one", "rename one of them")
        .of(format!("{kind} {name}"))
        .into()
}

/// Valid name: 1 to 32 letters, digits and hyphens.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = name.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
    is_plain && (1..=32).contains(&name.len())
}

fn unique<'a>(kind: &str, names: impl Iterator<Item = &'a String>) -> Result<(), Problems> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !is_name(name) || name == WIRE {
            let remedy = "write 1 to 32 letters, digits and hyphens, but not \"wire\"";
            let problem = Problem::new("name", name.as_str(), "is not allowed", remedy);
            return Err(problem.of(kind).into());
        }
        if !seen.insert(name) {
            return Err(twice_named(kind, name));
        }
    }
    Ok(())
}

fn frames(of: &str, text: &str) -> Result<FrameMix, Problems> {
    text.parse().map_err(|problems: Problems| problems.of(of))
}

/// Adds a service and its adapters; returns the first and last adapter.
fn service(entry: &ServiceEntry, to: &mut Workload) -> Result<(usize, usize), Problems> {
    let of = format!("service {}", entry.name);
    check_range(&of, "guests", entry.guests, 1.0..=f64::from(GUESTS_MAX))?;
    check_range(&of, "cores", entry.cores, CORES)?;
    entry.cycles.map(|cycles| check_range(&of, "cycles", cycles, CYCLES)).transpose()?;
    let path = |path: &String| {
        let wrong = |PathError { allowed, .. }: PathError| {
            let names = [allowed.as_str()];
            let problem = Problem::not_one_of("path", path.as_str(), "is not allowed", names);
            Problems::from(problem.of(of.clone()))
        };
        path.parse::<PlannedPath>().map_err(wrong)
    };
    let fixed = entry.path.as_ref().map(path).transpose()?;
    few(&of, "adapters", entry.adapters.len(), ADAPTERS_MAX)?;
    unique("adapter", entry.adapters.iter())?;
    let service = to.services.len();
    let guests = Guests { count: entry.guests, cores_each: entry.cores, cycles: entry.cycles };
    to.services.push(Service { name: entry.name.clone(), guests });
    let first = to.adapters.len();
    let names = match &entry.adapters[..] {
        [] => vec![entry.name.clone()],
        own => own.iter().map(|own| format!("{}-{own}", entry.name)).collect(),
    };
    to.adapters.extend(names.into_iter().map(|name| Adapter { name, service, fixed }));
    Ok((first, to.adapters.len() - 1))
}

fn flow(
    entry: &FlowEntry,
    workload: &Workload,
    ends: &[(usize, usize)],
    of_all: Option<&FrameMix>,
) -> Result<Flow, Problems> {
    let name = entry.name.clone();
    let frames = match (&entry.frames, of_all) {
        (Some(text), _) => frames(&format!("flow {name}"), text)?,
        (None, Some(all)) => all.clone(),
        (None, None) => {
            let remedy = "set it for the flow or for the workload, such as frames = \"imix\"";
            return Err(missing("frames", "is missing", remedy, &name));
        }
    };
    let rate = match entry.mpps {
        Some(mpps) => {
            check_range(&format!("flow {name}"), "mpps", mpps, MPPS)?;
            FrameRate::mpps(mpps)
        }
        None if workload.has_rates => {
            let remedy = "set it for all flows or for none";
            return Err(missing("mpps", "is missing, and other flows have it", remedy, &name));
        }
        None => FrameRate::mpps(1.0),
    };
    let through = places(entry, workload)?;
    let adapter = |service: Option<usize>| service.map(|service| ends[service]);
    let hop = |pair: &[Option<usize>]| {
        (adapter(pair[0]).map(|(_, last)| last), adapter(pair[1]).map(|(first, _)| first))
    };
    let hops = through.windows(2).map(hop).collect();
    Ok(Flow { name, rate, frames, hops })
}

/// A field of a flow that must be there.
fn missing(field: &str, message: &str, remedy: &str, flow: &str) -> Problems {
    Problem::new(field, (), message, remedy).of(format!("flow {flow}")).into()
}

/// Services of a flow, as indices; `None` is the wire.
fn places(entry: &FlowEntry, workload: &Workload) -> Result<Vec<Option<usize>>, Problems> {
    let FlowEntry { name, through, .. } = entry;
    let of = format!("flow {name}");
    few(&of, "through", through.len(), SERVICES_MAX)?;
    let wrong = |value: Value, message: &str, remedy: Remedy| {
        Problems::from(Problem::new("through", value, message, remedy).of(of.clone()))
    };
    let is_wire = |place: &String| place == WIRE;
    if through.len() < 2 || through.iter().all(is_wire) {
        let remedy = "write two or more of services and the wire, with at least one service";
        return Err(wrong(Value::Null, "is too short, or has no service", remedy.into()));
    }
    if through[1..through.len() - 1].iter().any(is_wire) {
        let message = "has the wire between services";
        return Err(wrong(Value::Null, message, "split it into two flows".into()));
    }
    let mut seen = BTreeSet::new();
    let place = |place: &String| {
        if is_wire(place) {
            return Ok(None);
        }
        let known = || workload.services.iter().map(|one| one.name.as_str()).collect::<Vec<_>>();
        let number = workload.services.iter().position(|one| one.name == *place);
        let Some(number) = number else {
            let problem = Problem::not_one_of("through", place.as_str(), "is no service", known());
            return Err(Problems::from(problem.of(of.clone())));
        };
        match seen.insert(number) {
            true => Ok(Some(number)),
            false => {
                let remedy = "make return traffic another flow".into();
                Err(wrong(place.as_str().into(), "is passed twice", remedy))
            }
        }
    };
    through.iter().map(place).collect()
}
