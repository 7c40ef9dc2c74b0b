//! Fleet file.
//!
//! ```toml
//! [[host]]
//! name = "rack"             # a kind of hosts
//! count = 400
//! nic = "xl710"             # name or path of a NIC profile
//! profile = "nfv-2017"
//! cores = 8                 # cores of the switch; default: the profile's
//! guest_cores = 28          # cores for guests; default: the profile's
//!
//! [[chain]]
//! name = "edge"             # a kind of chains
//! count = 500
//! services = 4              # guests in a row
//! cores = 1.0               # of each guest; default 1
//! cycles = 400.0            # per frame; default: the host's figure
//! mpps = 0.5                # through the chain
//! frames = "imix"
//! ```

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde::Deserialize;

use super::{ChainKind, Fleet, HostKind, HostResource};
use crate::frames::{FrameMix, FrameMixError};
use crate::load::Guests;
use crate::machine::{Figure, Host, Machine, Nic, ProfileError};
use crate::range::{CORES, CYCLES, MPPS, ValueError, check_range};
use crate::units::FrameRate;
use crate::workload::is_name;

const KINDS_MAX: usize = 4096;
const COUNTS: RangeInclusive<f64> = 1.0..=100_000.0;
const SERVICES_MAX: u32 = 64;
const HOSTS_MAX: u64 = 100_000;
const GUESTS_MAX: u64 = 1_000_000;

/// Reason why a fleet cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// Syntax error, or a wrong field.
    #[error("{0}")]
    Form(String),
    /// No host, or no chain.
    #[error("no [[{0}]]; a fleet needs at least one host and one chain")]
    Empty(&'static str),
    /// Too many kinds.
    #[error("{count} [[{what}]] exceed max {KINDS_MAX}; merge equal ones with `count`")]
    Many {
        /// `host` or `chain`.
        what: &'static str,
        /// Number of kinds.
        count: usize,
    },
    /// Too many hosts or guests in total.
    #[error("{count} {what} exceed max {max}; plan parts of the fleet separately")]
    Large {
        /// `hosts` or `guests`.
        what: &'static str,
        /// Total.
        count: u64,
        /// Maximum.
        max: u64,
    },
    /// Invalid name.
    #[error("name {1:?} in {0}: use 1 to 32 letters, digits and hyphens")]
    Name(&'static str, String),
    /// Duplicate name.
    #[error("two {0} have the name {1:?}; rename one, or merge equal ones with `count`")]
    Twice(&'static str, String),
    /// Value out of range.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Invalid frame sizes.
    #[error("chain {of:?}: {why}")]
    Frames {
        /// Name of the chain.
        of: String,
        /// Cause.
        why: FrameMixError,
    },
    /// Invalid profile.
    #[error("host {of:?}: {why}")]
    Profile {
        /// Name of the host.
        of: String,
        /// Cause.
        why: ProfileError,
    },
    /// A chain that fits no host.
    #[error("chain {name:?} fits no host, even alone: it needs {:.0} % of {limit} on the best one", taken * 100.0)]
    Chain {
        /// Name of the chain.
        name: String,
        /// Resource that is too small.
        limit: HostResource,
        /// Share of it that one chain needs.
        taken: f64,
    },
    /// The solver failed.
    #[error("the linear program could not be solved: {0}")]
    Solver(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    host: Vec<HostEntry>,
    #[serde(default)]
    chain: Vec<ChainEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostEntry {
    name: String,
    count: u32,
    nic: String,
    profile: String,
    cores: Option<f64>,
    guest_cores: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainEntry {
    name: String,
    count: u32,
    services: u32,
    #[serde(default = "one_core")]
    cores: f64,
    cycles: Option<f64>,
    mpps: f64,
    frames: String,
}

const fn one_core() -> f64 {
    1.0
}

pub(super) fn parse(text: &str) -> Result<Fleet, FleetError> {
    let file: File = toml::from_str(text)
        .map_err(|error| FleetError::Form(error.to_string().trim_end().to_owned()))?;
    let File { host, chain } = file;
    for (what, count) in [("host", host.len()), ("chain", chain.len())] {
        match count {
            0 => return Err(FleetError::Empty(what)),
            1..=KINDS_MAX => (),
            _ => return Err(FleetError::Many { what, count }),
        }
    }
    unique("hosts", host.iter().map(|host| &host.name))?;
    unique("chains", chain.iter().map(|chain| &chain.name))?;
    let fleet = Fleet {
        hosts: host.into_iter().map(host_kind).collect::<Result<_, _>>()?,
        chains: chain.into_iter().map(chain_kind).collect::<Result<_, _>>()?,
    };
    let hosts = fleet.hosts.iter().map(|host| u64::from(host.count)).sum();
    let guests = fleet.chains.iter().map(|of| u64::from(of.count) * u64::from(of.services)).sum();
    for (what, count, max) in [("hosts", hosts, HOSTS_MAX), ("guests", guests, GUESTS_MAX)] {
        if count > max {
            return Err(FleetError::Large { what, count, max });
        }
    }
    Ok(fleet)
}

fn unique<'a>(
    all: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), FleetError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !is_name(name) {
            return Err(FleetError::Name(all, name.clone()));
        }
        if !seen.insert(name) {
            return Err(FleetError::Twice(all, name.clone()));
        }
    }
    Ok(())
}

fn host_kind(entry: HostEntry) -> Result<HostKind, FleetError> {
    let of = format!("host {:?}", entry.name);
    check_range(&of, "count", entry.count, COUNTS)?;
    let fault = |why| FleetError::Profile { of: entry.name.clone(), why };
    let nic = Nic::named(&entry.nic).map_err(fault)?;
    let mut host = Host::named(&entry.profile).map_err(fault)?;
    let given = [("cores", entry.cores), ("guest_cores", entry.guest_cores)];
    let figures = [&mut host.switch_cores, &mut host.guest_cores];
    for ((field, given), figure) in given.into_iter().zip(figures) {
        let Some(cores) = given else { continue };
        check_range(&of, field, cores, CORES)?;
        *figure = Figure::new(cores, "the fleet's file");
    }
    Ok(HostKind { name: entry.name, count: entry.count, machine: Machine { nic, host } })
}

fn chain_kind(entry: ChainEntry) -> Result<ChainKind, FleetError> {
    let of = format!("chain {:?}", entry.name);
    check_range(&of, "count", entry.count, COUNTS)?;
    check_range(&of, "services", entry.services, 1.0..=f64::from(SERVICES_MAX))?;
    check_range(&of, "cores", entry.cores, CORES)?;
    check_range(&of, "mpps", entry.mpps, MPPS)?;
    entry.cycles.map(|cycles| check_range(&of, "cycles", cycles, CYCLES)).transpose()?;
    let frames: FrameMix =
        entry.frames.parse().map_err(|why| FleetError::Frames { of: entry.name.clone(), why })?;
    Ok(ChainKind {
        name: entry.name,
        count: entry.count,
        services: entry.services,
        guests: Guests { count: 1, cores_each: entry.cores, cycles: entry.cycles },
        rate: FrameRate::mpps(entry.mpps),
        frames,
    })
}
