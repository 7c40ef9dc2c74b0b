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

use model::config::of_toml;
use model::state::{Problem, Problems, Remedy};
use serde::Deserialize;

use super::{ChainKind, Fleet, HostKind};
use crate::frames::FrameMix;
use crate::load::Guests;
use crate::machine::{Figure, Host, Machine, Nic};
use crate::range::{CORES, CYCLES, MPPS, check_range};
use crate::units::FrameRate;
use crate::workload::is_name;

const KINDS_MAX: usize = 4096;
const COUNTS: RangeInclusive<f64> = 1.0..=100_000.0;
const SERVICES_MAX: u32 = 64;
const HOSTS_MAX: u64 = 100_000;
const GUESTS_MAX: u64 = 1_000_000;

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

pub(super) fn parse(text: &str) -> Result<Fleet, Problems> {
    let file: File = toml::from_str(text).map_err(|error| of_toml(text, &error))?;
    let File { host, chain } = file;
    for (what, count) in [("host", host.len()), ("chain", chain.len())] {
        match count {
            0 => {
                let message = format!("has no [[{what}]]");
                return Err(wrong("", message, "write at least one host and one chain"));
            }
            1..=KINDS_MAX => (),
            _ => {
                let message = format!("has too many entries, {count}");
                let remedy = format!("write at most {KINDS_MAX}; merge equal ones with `count`");
                return Err(wrong(what, message, remedy));
            }
        }
    }
    unique("host", host.iter().map(|host| &host.name))?;
    unique("chain", chain.iter().map(|chain| &chain.name))?;
    let fleet = Fleet {
        hosts: host.into_iter().map(host_kind).collect::<Result<_, _>>()?,
        chains: chain.into_iter().map(chain_kind).collect::<Result<_, _>>()?,
    };
    let hosts: u64 = fleet.hosts.iter().map(|host| u64::from(host.count)).sum();
    let guests: u64 =
        fleet.chains.iter().map(|of| u64::from(of.count) * u64::from(of.services)).sum();
    for (what, count, max) in [("hosts", hosts, HOSTS_MAX), ("guests", guests, GUESTS_MAX)] {
        if count > max {
            let message = format!("are {count} in all");
            let remedy = format!("write at most {max}; plan parts of the fleet separately");
            return Err(wrong(what, message, remedy));
        }
    }
    Ok(fleet)
}

/// A mistake in the fleet as a whole.
pub(super) fn wrong(
    field: &str,
    message: impl Into<String>,
    remedy: impl Into<Remedy>,
) -> Problems {
    Problem::new(field, (), message, remedy).of("the fleet").into()
}

fn unique<'a>(kind: &str, names: impl Iterator<Item = &'a String>) -> Result<(), Problems> {
    let mut seen = BTreeSet::new();
    for name in names {
        let (message, remedy) = match () {
            () if !is_name(name) => ("is not allowed", "write 1 to 32 letters, digits and hyphens"),
            () if !seen.insert(name) => {
                ("is the name of another one", "rename one, or merge equal ones with `count`")
            }
            () => continue,
        };
        let of = format!("{kind} {}", name.escape_debug());
        return Err(Problem::new("name", name.as_str(), message, remedy).of(of).into());
    }
    Ok(())
}

fn host_kind(entry: HostEntry) -> Result<HostKind, Problems> {
    let of = format!("host {}", entry.name);
    check_range(&of, "count", entry.count, COUNTS)?;
    let nic = Nic::named(&entry.nic).map_err(|problems| problems.of(&of))?;
    let mut host = Host::named(&entry.profile).map_err(|problems| problems.of(&of))?;
    let given = [("cores", entry.cores), ("guest_cores", entry.guest_cores)];
    let figures = [&mut host.switch_cores, &mut host.guest_cores];
    for ((field, given), figure) in given.into_iter().zip(figures) {
        let Some(cores) = given else { continue };
        check_range(&of, field, cores, CORES)?;
        *figure = Figure::new(cores, "the fleet's file");
    }
    Ok(HostKind { name: entry.name, count: entry.count, machine: Machine { nic, host } })
}

fn chain_kind(entry: ChainEntry) -> Result<ChainKind, Problems> {
    let of = format!("chain {}", entry.name);
    check_range(&of, "count", entry.count, COUNTS)?;
    check_range(&of, "services", entry.services, 1.0..=f64::from(SERVICES_MAX))?;
    check_range(&of, "cores", entry.cores, CORES)?;
    check_range(&of, "mpps", entry.mpps, MPPS)?;
    entry.cycles.map(|cycles| check_range(&of, "cycles", cycles, CYCLES)).transpose()?;
    let frames: FrameMix = entry.frames.parse().map_err(|problems: Problems| problems.of(&of))?;
    Ok(ChainKind {
        name: entry.name,
        count: entry.count,
        services: entry.services,
        guests: Guests { count: 1, cores_each: entry.cores, cycles: entry.cycles },
        rate: FrameRate::mpps(entry.mpps),
        frames,
    })
}
