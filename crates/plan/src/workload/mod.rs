//! Workload: services, and the traffic through them.
//!
//! # The file
//! ```toml
//! frames = "imix"                # frame sizes: bytes with FCS, imix, or 64:7,1518:1
//!
//! [[service]]                    # guests of one kind
//! name = "firewall"
//! guests = 2                     # default 1
//! cores = 1.0                    # of each guest; default 1
//! cycles = 400.0                 # to receive and send on a frame; default: the host's figure
//! adapters = ["outside", "inside"] # frames enter by the first, leave by the last; default: one
//!
//! [[service]]
//! name = "cache"
//! path = "synthetic"             # fixed path; default: chosen
//!
//! [[flow]]
//! name = "web"
//! through = ["wire", "firewall", "cache", "wire"]
//! mpps = 1.5                     # wanted rate; without any, all flows grow alike to the maximum
//! ```
//!
//! # Limits
//! 64 services, 4 adapters each, 256 flows of at most 64 services. A flow passes a service once: a
//! chain has no cycles. Return traffic is another flow.

mod check;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use check::is_name;
use model::config::of_toml;
use model::state::Problems;
use serde::Deserialize;

use crate::frames::FrameMix;
use crate::load::{AdapterGroup, FlowEnd, FlowHop, GuestSet, Guests};
use crate::predict::PlannedPath;
use crate::units::FrameRate;

/// Name of the outside of the host in a flow.
pub const WIRE: &str = "wire";

/// A checked workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Services.
    pub services: Vec<Service>,
    /// Adapters, by service.
    pub adapters: Vec<Adapter>,
    /// Flows.
    pub flows: Vec<Flow>,
    /// Flows have wanted rates; otherwise only shares.
    pub has_rates: bool,
}

/// A service: guests of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Name of the service.
    pub name: String,
    /// Its guests.
    pub guests: Guests,
}

/// An adapter that each guest of a service has.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    /// Name: the service's, with the adapter's own if there are several.
    pub name: String,
    /// Index of the service.
    pub service: usize,
    /// Fixed path, if any.
    pub fixed: Option<PlannedPath>,
}

/// A flow of frames.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Name of the flow.
    pub name: String,
    /// Wanted frame rate, or a share.
    pub rate: FrameRate,
    /// Frame sizes.
    pub frames: FrameMix,
    /// Sending and receiving adapter of each hop; `None` is the wire.
    pub hops: Vec<(Option<usize>, Option<usize>)>,
}

impl Workload {
    /// Parses a workload file.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let file: File = toml::from_str(text).map_err(|error| of_toml(text, &error))?;
        check::check(file)
    }

    /// Guests, with these paths of their adapters.
    pub fn guest_set(&self, paths: &[PlannedPath]) -> GuestSet {
        let party = |(adapter, path): (&Adapter, &PlannedPath)| AdapterGroup {
            path: *path,
            guests: adapter.service,
        };
        GuestSet {
            guests: self.services.iter().map(|service| service.guests).collect(),
            adapters: self.adapters.iter().zip(paths).map(party).collect(),
            receivers: None,
        }
    }

    /// All hops; equal hops of several flows are merged.
    pub fn hops(&self) -> Vec<FlowHop> {
        let end = |adapter: Option<usize>| adapter.map_or(FlowEnd::Wire, FlowEnd::Adapters);
        let mut hops: Vec<FlowHop> = Vec::new();
        for flow in &self.flows {
            let Flow { rate, frames, .. } = flow;
            let by_wire = flow.hops.first().is_some_and(|(from, _)| from.is_none());
            for &(from, to) in &flow.hops {
                let (from, to) = (end(from), end(to));
                let is_alike = |hop: &&mut FlowHop| {
                    let its = (hop.from, hop.to, &hop.frames, hop.by_wire);
                    its == (from, to, frames, by_wire)
                };
                match hops.iter_mut().find(is_alike) {
                    Some(known) => known.rate = known.rate + *rate,
                    None => hops.push(FlowHop {
                        from,
                        to,
                        rate: *rate,
                        frames: frames.clone(),
                        by_wire,
                    }),
                }
            }
        }
        hops
    }

    /// Number of VFs that these paths need.
    pub fn functions(&self, paths: &[PlannedPath]) -> u32 {
        let adapters =
            self.adapters.iter().zip(paths).filter(|(_, path)| **path == PlannedPath::Vf);
        adapters.map(|(adapter, _)| self.services[adapter.service].guests.count).sum()
    }
}

/// Workload file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    frames: Option<String>,
    #[serde(default)]
    service: Vec<ServiceEntry>,
    #[serde(default)]
    flow: Vec<FlowEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceEntry {
    name: String,
    #[serde(default = "one")]
    guests: u32,
    #[serde(default = "one_core")]
    cores: f64,
    cycles: Option<f64>,
    #[serde(default)]
    adapters: Vec<String>,
    path: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowEntry {
    name: String,
    through: Vec<String>,
    mpps: Option<f64>,
    frames: Option<String>,
}

const fn one() -> u32 {
    1
}

const fn one_core() -> f64 {
    1.0
}
