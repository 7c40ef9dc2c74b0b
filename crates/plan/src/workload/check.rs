//! Checks of a workload file.

use std::collections::BTreeSet;

use super::{Adapter, File, Flow, FlowEntry, Service, ServiceEntry, WIRE, Workload};
use crate::frames::{FrameMix, FrameMixError};
use crate::load::Guests;
use crate::predict::PathKind;
use crate::range::{CORES, CYCLES, MPPS, ValueError, check_range};
use crate::units::FrameRate;

const SERVICES_MAX: usize = 64;
const ADAPTERS_MAX: usize = 4;
const FLOWS_MAX: usize = 256;
const GUESTS_MAX: u32 = 4096;

/// Mistake in a workload file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// Syntax error, or a wrong field.
    #[error("{0}")]
    Form(String),
    /// No service, or no flow.
    #[error("no [[{0}]]; a workload needs at least one service and one flow")]
    Empty(&'static str),
    /// Too many entries.
    #[error("{count} {what} exceed max {max}")]
    Many {
        /// Kind of entry.
        what: String,
        /// Number of entries.
        count: usize,
        /// Maximum.
        max: usize,
    },
    /// Duplicate name.
    #[error("two {0} have the name {1:?}; rename one")]
    Twice(&'static str, String),
    /// Invalid name.
    #[error("{0} name {1:?}: use 1 to 32 letters, digits and hyphens, but not \"wire\"")]
    Name(&'static str, String),
    /// Value out of range.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Invalid frame sizes.
    #[error("{of}: {why}")]
    Frames {
        /// The workload or flow.
        of: String,
        /// Cause.
        why: FrameMixError,
    },
    /// Missing frame sizes.
    #[error(
        "flow {0:?} has no frame sizes; set `frames` for it or for the workload, e.g. frames = \"imix\""
    )]
    Sizes(String),
    /// Flow without a service, or with one end only.
    #[error(
        "flow {0:?} has through = {1}; expected two or more of services and the wire, with at least one service"
    )]
    Short(String, String),
    /// Unknown service.
    #[error("flow {flow:?}: unknown service {service:?}; expected one of {known}")]
    Unknown {
        /// Name of the flow.
        flow: String,
        /// Given name.
        service: String,
        /// Known services.
        known: String,
    },
    /// Wire in the middle of a flow.
    #[error("flow {0:?} has the wire between services; split it into two flows")]
    Wire(String),
    /// Service that occurs twice in a flow.
    #[error("flow {flow:?} passes {service:?} twice; make return traffic another flow")]
    Cycle {
        /// Name of the flow.
        flow: String,
        /// Name of the service.
        service: String,
    },
    /// Rates for some flows only.
    #[error("flow {0:?} has no mpps, but others have; set it for all flows or for none")]
    Rates(String),
}

pub(super) fn check(file: File) -> Result<Workload, WorkloadError> {
    few("[[service]]", file.service.len(), SERVICES_MAX)?;
    few("[[flow]]", file.flow.len(), FLOWS_MAX)?;
    for (what, is_empty) in [("service", file.service.is_empty()), ("flow", file.flow.is_empty())] {
        if is_empty {
            return Err(WorkloadError::Empty(what));
        }
    }
    unique("services", "service", file.service.iter().map(|one| &one.name))?;
    unique("flows", "flow", file.flow.iter().map(|one| &one.name))?;
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
        return Err(WorkloadError::Twice("adapters", twice.name.clone()));
    }
    let of_all = file.frames.as_deref().map(|text| frames("the workload", text)).transpose()?;
    workload.has_rates = file.flow.iter().any(|flow| flow.mpps.is_some());
    for entry in &file.flow {
        let flow = flow(entry, &workload, &ends, of_all.as_ref())?;
        workload.flows.push(flow);
    }
    Ok(workload)
}

fn few(what: &str, count: usize, max: usize) -> Result<(), WorkloadError> {
    match count <= max {
        true => Ok(()),
        false => Err(WorkloadError::Many { what: what.to_owned(), count, max }),
    }
}

/// Valid name: 1 to 32 letters, digits and hyphens.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = name.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
    is_plain && (1..=32).contains(&name.len())
}

fn unique<'a>(
    all: &'static str,
    one: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), WorkloadError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !is_name(name) || name == WIRE {
            return Err(WorkloadError::Name(one, name.clone()));
        }
        if !seen.insert(name) {
            return Err(WorkloadError::Twice(all, name.clone()));
        }
    }
    Ok(())
}

fn frames(of: &str, text: &str) -> Result<FrameMix, WorkloadError> {
    text.parse().map_err(|why| WorkloadError::Frames { of: of.to_owned(), why })
}

/// Adds a service and its adapters; returns the first and last adapter.
fn service(entry: &ServiceEntry, to: &mut Workload) -> Result<(usize, usize), WorkloadError> {
    let of = format!("service {:?}", entry.name);
    check_range(&of, "guests", entry.guests, 1.0..=f64::from(GUESTS_MAX))?;
    check_range(&of, "cores", entry.cores, CORES)?;
    entry.cycles.map(|cycles| check_range(&of, "cycles", cycles, CYCLES)).transpose()?;
    let path = |path: &String| {
        let wrong = |_| {
            let (of, value) = (of.clone(), format!("{path:?}"));
            let allowed = "\"vf\", \"vhost\" and \"virtio\"".to_owned();
            ValueError { of, field: "path", value, allowed }
        };
        path.parse::<PathKind>().map_err(wrong)
    };
    let fixed = entry.path.as_ref().map(path).transpose()?;
    few(&format!("adapters of {of}"), entry.adapters.len(), ADAPTERS_MAX)?;
    unique("adapters of one service", "adapter", entry.adapters.iter())?;
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
) -> Result<Flow, WorkloadError> {
    let name = entry.name.clone();
    let frames = match (&entry.frames, of_all) {
        (Some(text), _) => frames(&format!("flow {name:?}"), text)?,
        (None, Some(all)) => all.clone(),
        (None, None) => return Err(WorkloadError::Sizes(name)),
    };
    let rate = match entry.mpps {
        Some(mpps) => {
            check_range(&format!("flow {name:?}"), "mpps", mpps, MPPS)?;
            FrameRate::mpps(mpps)
        }
        None if workload.has_rates => return Err(WorkloadError::Rates(name)),
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

/// Services of a flow, as indices; `None` is the wire.
fn places(entry: &FlowEntry, workload: &Workload) -> Result<Vec<Option<usize>>, WorkloadError> {
    let FlowEntry { name, through, .. } = entry;
    few(&format!("services in flow {name:?}"), through.len(), SERVICES_MAX)?;
    let is_wire = |place: &String| place == WIRE;
    if through.len() < 2 || through.iter().all(is_wire) {
        return Err(WorkloadError::Short(name.clone(), format!("{through:?}")));
    }
    if through[1..through.len() - 1].iter().any(is_wire) {
        return Err(WorkloadError::Wire(name.clone()));
    }
    let mut seen = BTreeSet::new();
    let place = |place: &String| {
        if is_wire(place) {
            return Ok(None);
        }
        let known = || workload.services.iter().map(|one| one.name.as_str()).collect::<Vec<_>>();
        let number = workload.services.iter().position(|one| one.name == *place);
        let Some(number) = number else {
            let (flow, service) = (name.clone(), place.clone());
            return Err(WorkloadError::Unknown { flow, service, known: known().join(", ") });
        };
        match seen.insert(number) {
            true => Ok(Some(number)),
            false => Err(WorkloadError::Cycle { flow: name.clone(), service: place.clone() }),
        }
    };
    through.iter().map(place).collect()
}
