//! Answers of the planner: chains of guests on a machine, with curves over their length and the
//! frame size.
//!
//! A pure computation: no state, no file, no lock. The profiles are those that come with the
//! program.
//!
//! # Limits
//! The ranges of [`plan::chains`]; at most 256 combinations of paths, and some 200 predictions for
//! the curves.

use std::sync::LazyLock;

use ::plan::advise::{AdapterAdvice, Advice};
use ::plan::chains::{self, Chains, Curves};
use ::plan::limit::Resource;
use ::plan::machine::{DEFAULT_HOST, DEFAULT_NIC, Figure, Host, Machine, Nic, hosts, nics};
use ::plan::workload::Workload;
use serde::Serialize;
use utoipa::ToSchema;

use crate::ApiError;
use crate::handler::ApiRequest;
use crate::operation::{Parameter, ParameterKind};

/// Maximum cores of a query, of the switch or of guests.
const CORES_MAX: u64 = 64;
/// Chain of a query that names none: length, number of chains, bytes of a frame.
const DEFAULT: Chains = Chains { length: 4, count: 1, frame_bytes: 64 };

const fn range(of: std::ops::RangeInclusive<u32>) -> ParameterKind {
    ParameterKind::Whole(*of.start() as u64..=*of.end() as u64)
}

/// Query parameters.
pub(crate) static PARAMETERS: [Parameter; 7] = [
    Parameter {
        name: "nic",
        kind: ParameterKind::Name(|| nics().collect()),
        text: "Card profile; default xl710. Not with a host whose path vf is the software NIC.",
    },
    Parameter {
        name: "host",
        kind: ParameterKind::Name(|| hosts().collect()),
        text: "Host profile; default nfv-2017.",
    },
    Parameter {
        name: "cores",
        kind: ParameterKind::Whole(1..=CORES_MAX),
        text: "Threads of the switch; default: the host's.",
    },
    Parameter {
        name: "guest_cores",
        kind: ParameterKind::Whole(1..=CORES_MAX),
        text: "Cores for all guests together; default: the host's. A guest has at most one.",
    },
    Parameter {
        name: "length",
        kind: range(chains::LENGTHS),
        text: "Guests of a chain; default 4.",
    },
    Parameter { name: "chains", kind: range(chains::COUNTS), text: "Number of chains; default 1." },
    Parameter {
        name: "frame",
        kind: range(chains::FRAMES),
        text: "Bytes of a frame, with FCS; default 64.",
    },
];

/// Predicted rates of chains on a machine, and the recommended paths.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanAnswer {
    /// Name of the NIC; null if path vf is the software NIC.
    pub nic: Option<String>,
    /// Name of the host.
    pub host: String,
    /// Threads of the switch.
    pub cores: f64,
    /// Cores for all guests together.
    pub guest_cores: f64,
    /// Guests of a chain.
    pub length: u32,
    /// Number of chains.
    pub chains: u32,
    /// Bytes of a frame, with FCS.
    pub frame: u32,
    /// The recommendation.
    pub advice: PlanAdvice,
    /// Rates over the guests of a chain.
    pub over_length: PlanCurves,
    /// Rates over the frame size.
    pub over_frame: PlanCurves,
    /// The same workload as a file for `shunt plan --workload`.
    pub workload: String,
    /// Profiles of NICs.
    pub nics: Vec<PlanProfile>,
    /// Profiles of hosts.
    pub hosts: Vec<PlanProfile>,
}

/// Recommended paths, as `shunt plan --workload` gives them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanAdvice {
    /// Million frames per second through all chains.
    pub mpps: f64,
    /// The same in Gbit/s, without FCS.
    pub gbps: f64,
    /// Bottleneck.
    pub binding_limit: String,
    /// VFs in use.
    pub vfs: u32,
    /// Busy cores of the switch.
    pub switch_cores: f64,
    /// Rate and bottleneck of the recommendation, beside those of one path for all guests.
    pub reason: String,
    /// Bottleneck, VFs and cores, in sentences.
    pub verdict: String,
    /// Each guest of a chain.
    pub adapters: Vec<PlanAdapter>,
    /// Used share of every resource, the fullest first.
    pub resources: Vec<PlanResource>,
}

/// Recommended path of a guest's adapter.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanAdapter {
    /// Name of the guest.
    pub adapter: String,
    /// Path: `vf` or `synthetic`.
    pub path: String,
    /// Fullest resource on its path.
    pub binding_limit: Option<String>,
    /// Free share of that resource.
    pub margin: Option<f64>,
    /// The other path; null if there are not enough VFs.
    pub otherwise: Option<PlanAlternative>,
}

/// Result with one adapter on the other path.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanAlternative {
    /// The other path.
    pub path: String,
    /// Rate relative to the recommendation: 0.8 is a fifth less.
    pub against: f64,
    /// Bottleneck on that path.
    pub binding_limit: String,
}

/// A resource of the machine.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanResource {
    /// Name of its limit.
    pub limit: String,
    /// Meaning of the limit.
    pub meaning: String,
    /// Guest to which it belongs, `in` or `out` of the wire; empty if shared by all.
    pub of: String,
    /// Used share, from 0 to 1.
    pub taken: f64,
}

/// Rates of each placement over a parameter.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanCurves {
    /// Values of the parameter.
    pub at: Vec<u32>,
    /// A line for each placement.
    pub lines: Vec<PlanLine>,
    /// The path that carries more, `vf` or `synthetic`, from each value on; each but the first is a
    /// crossover.
    pub leads: Vec<PlanLead>,
}

/// Rates of a placement.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanLine {
    /// Path of all guests: `vf`, `synthetic` or `kernel`; or `ends-on-vf`, the first and last guest
    /// on VFs, and those between on the switch.
    pub placement: String,
    /// Million frames per second through all chains at each value; null if it needs more VFs or
    /// guests than there are.
    pub mpps: Vec<Option<f64>>,
    /// Bottlenecks.
    pub binding_limit: Vec<Option<String>>,
}

/// Path that carries more from a value on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanLead {
    /// The least value.
    pub from: u32,
    /// The path.
    pub path: String,
}

/// A profile.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct PlanProfile {
    /// Its name.
    pub name: String,
    /// Its description.
    pub title: String,
    /// VFs of a NIC; null for a host.
    pub vfs: Option<u32>,
    /// Threads of the switch; null for a NIC.
    pub cores: Option<f64>,
    /// Cores for guests; null for a NIC.
    pub guest_cores: Option<f64>,
    /// `true` for a host whose path vf is the software NIC.
    pub soft_nic: bool,
}

/// Profiles that come with the program, which a test reads: NICs, hosts.
static PROFILES: LazyLock<[Vec<PlanProfile>; 2]> = LazyLock::new(|| {
    let nic = |nic: Nic| PlanProfile {
        name: nic.name,
        title: nic.title,
        vfs: Some(nic.vfs),
        cores: None,
        guest_cores: None,
        soft_nic: false,
    };
    let host = |host: Host| PlanProfile {
        name: host.name,
        title: host.title,
        vfs: None,
        cores: Some(host.switch_cores.value),
        guest_cores: Some(host.guest_cores.value),
        soft_nic: host.soft_nic.is_some(),
    };
    [
        nics().filter_map(|name| Nic::named(name).ok()).map(nic).collect(),
        hosts().filter_map(|name| Host::named(name).ok()).map(host).collect(),
    ]
});

/// Answers a query.
///
/// # Errors
/// The software NIC has no card profile.
pub(crate) fn answer(asked: &ApiRequest) -> Result<PlanAnswer, ApiError> {
    let wrong = |problems: model::state::Problems| {
        let first = problems.problems.into_iter().next().unwrap_or_default();
        ApiError::BadRequest(first.into())
    };
    let name = |field: &str| asked.names.get(field).copied();
    let number = |field: &str| asked.numbers.get(field).copied();
    let mut machine = Machine::shipped(name("nic"), name("host")).map_err(wrong)?;
    for (figure, field) in
        [(&mut machine.host.switch_cores, "cores"), (&mut machine.host.guest_cores, "guest_cores")]
    {
        if let Some(cores) = number(field) {
            *figure = Figure::new(cores as f64, "the query");
        }
    }
    let or = |field, default| number(field).map_or(default, |value| value as u32);
    let chains = Chains {
        length: or("length", DEFAULT.length),
        count: or("chains", DEFAULT.count),
        frame_bytes: or("frame", DEFAULT.frame_bytes),
    };
    let (workload, advice) = chains.advice(&machine).map_err(wrong)?;
    let card = name("nic").unwrap_or(DEFAULT_NIC);
    let [nics, hosts] = PROFILES.clone();
    Ok(PlanAnswer {
        nic: machine.host.soft_nic.is_none().then(|| card.to_owned()),
        host: name("host").unwrap_or(DEFAULT_HOST).to_owned(),
        cores: machine.host.switch_cores.value,
        guest_cores: machine.host.guest_cores.value,
        length: chains.length,
        chains: chains.count,
        frame: chains.frame_bytes,
        advice: PlanAdvice::of(&machine, &chains, &workload, &advice),
        over_length: chains.over_length(&machine).into(),
        over_frame: chains.over_frame(&machine).into(),
        workload: chains.file(&machine, None),
        nics,
        hosts,
    })
}

impl PlanAdvice {
    fn of(machine: &Machine, chains: &Chains, workload: &Workload, advice: &Advice) -> Self {
        let adapter = |of: &AdapterAdvice| PlanAdapter {
            adapter: of.name.clone(),
            path: of.path.to_string(),
            binding_limit: of.binding.map(|(limit, _)| limit.to_string()),
            margin: of.binding.map(|(_, margin)| margin),
            otherwise: of.alternative.map(|other| PlanAlternative {
                path: other.path.to_string(),
                against: other.relative_scale,
                binding_limit: other.binding.to_string(),
            }),
        };
        let resource = |(what, taken): &(Resource, f64)| PlanResource {
            limit: what.limit.to_string(),
            meaning: what.limit.meaning().to_owned(),
            of: advice.owner(workload, what.scope),
            taken: *taken,
        };
        PlanAdvice {
            mpps: advice.scale,
            gbps: chains.gbps(::plan::units::FrameRate::mpps(advice.scale)),
            binding_limit: advice.binding.to_string(),
            vfs: advice.functions,
            switch_cores: advice.switch_cores,
            reason: chains.reason(machine, advice),
            verdict: advice.verdict(workload).join(" "),
            adapters: advice.adapters.iter().map(adapter).collect(),
            resources: advice.resources.iter().map(resource).collect(),
        }
    }
}

impl From<Curves> for PlanCurves {
    fn from(of: Curves) -> PlanCurves {
        let line =
            |(placement, rates): (chains::Placement, Vec<Option<chains::ChainRate>>)| PlanLine {
                placement: placement.as_str().to_owned(),
                mpps: rates.iter().map(|rate| rate.map(|rate| rate.rate.as_mpps())).collect(),
                binding_limit: rates
                    .iter()
                    .map(|rate| rate.map(|rate| rate.binding.to_string()))
                    .collect(),
            };
        let lead = |(from, path): (u32, ::plan::path::PlannedPath)| PlanLead {
            from,
            path: path.to_string(),
        };
        PlanCurves {
            at: of.at,
            lines: of.lines.into_iter().map(line).collect(),
            leads: of.leads.into_iter().map(lead).collect(),
        }
    }
}
