//! A fleet's file.
//!
//! ```toml
//! [[host]]
//! name = "rack"             # a kind of hosts
//! count = 400
//! nic = "xl710"             # a profile's name, or its file
//! profile = "nfv-2017"
//! cores = 8                 # threads of the switch; the profile's, if left out
//! guest_cores = 28          # cores for guests; the profile's, if left out
//!
//! [[chain]]
//! name = "edge"             # a kind of chains
//! count = 500
//! services = 4              # guests, one after another
//! cores = 1.0               # of each guest; 1, if left out
//! cycles = 400.0            # a frame; the host's figure, if left out
//! mpps = 0.5                # through the chain
//! frames = "imix"
//! ```

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde::Deserialize;

use super::{ChainKind, Fleet, HostKind, Scarce};
use crate::frames::{Frames, FramesError};
use crate::load::Guests;
use crate::machine::{Figure, Host, Machine, Nic, ProfileError};
use crate::units::FrameRate;
use crate::within::{CORES, CYCLES, MPPS, ValueError, within};
use crate::workload::is_name;

const KINDS_MAX: usize = 4096;
const COUNTS: RangeInclusive<f64> = 1.0..=100_000.0;
const SERVICES_MAX: u32 = 64;
const HOSTS_MAX: u64 = 100_000;
const GUESTS_MAX: u64 = 1_000_000;

/// Why there is no plan for a fleet.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The text is not of the form.
    #[error("{0}")]
    Form(String),
    /// Nothing in it.
    #[error("it has no [[{0}]]: a fleet has hosts, and chains to be placed on them")]
    Empty(&'static str),
    /// Too many kinds.
    #[error(
        "it has {count} [[{what}]]: at most {KINDS_MAX} are possible; give those that are alike a count"
    )]
    Many {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
    },
    /// Too many in all.
    #[error("it has {count} {what}: at most {max} are possible; plan for parts of it")]
    Large {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u64,
        /// How many there may be.
        max: u64,
    },
    /// A name that none can have.
    #[error("one of the {0} is called {1:?}: 1 to 32 letters, digits and hyphens are possible")]
    Name(&'static str, String),
    /// A name twice.
    #[error("two {0} are called {1:?}: give those that are alike a count")]
    Twice(&'static str, String),
    /// A figure that cannot be.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Frames that are none.
    #[error("chain {of:?}: {why}")]
    Frames {
        /// Whose.
        of: String,
        /// Why not.
        why: FramesError,
    },
    /// A profile.
    #[error("host {of:?}: {why}")]
    Profile {
        /// Whose.
        of: String,
        /// Why not.
        why: ProfileError,
    },
    /// A chain for no host.
    #[error("chain {name:?} fits no host, even alone: on the best one it takes {:.0} % of {limit}", taken * 100.0)]
    Chain {
        /// The chain.
        name: String,
        /// What is not enough.
        limit: Scarce,
        /// How much of it a chain takes.
        taken: f64,
    },
    /// The solver gave up.
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
    within(&of, "count", entry.count, COUNTS)?;
    let fault = |why| FleetError::Profile { of: entry.name.clone(), why };
    let nic = Nic::named(&entry.nic).map_err(fault)?;
    let mut host = Host::named(&entry.profile).map_err(fault)?;
    let given = [("cores", entry.cores), ("guest_cores", entry.guest_cores)];
    let figures = [&mut host.switch_cores, &mut host.guest_cores];
    for ((field, given), figure) in given.into_iter().zip(figures) {
        let Some(cores) = given else { continue };
        within(&of, field, cores, CORES)?;
        *figure = Figure::new(cores, "the fleet's file");
    }
    Ok(HostKind { name: entry.name, count: entry.count, machine: Machine { nic, host } })
}

fn chain_kind(entry: ChainEntry) -> Result<ChainKind, FleetError> {
    let of = format!("chain {:?}", entry.name);
    within(&of, "count", entry.count, COUNTS)?;
    within(&of, "services", entry.services, 1.0..=f64::from(SERVICES_MAX))?;
    within(&of, "cores", entry.cores, CORES)?;
    within(&of, "mpps", entry.mpps, MPPS)?;
    entry.cycles.map(|cycles| within(&of, "cycles", cycles, CYCLES)).transpose()?;
    let frames: Frames =
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
