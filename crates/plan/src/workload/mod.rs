//! A workload: services, and the traffic that flows through them.
//!
//! # The file
//! ```toml
//! frames = "imix"                # sizes of frames: bytes with FCS, imix, or 64:7,1518:1
//!
//! [[service]]                    # guests of one kind
//! name = "firewall"
//! guests = 2                     # 1, if left out
//! cores = 1.0                    # of each; 1, if left out
//! cycles = 400.0                 # a frame that it takes in and sends on; the host's figure, if left out
//! adapters = ["outside", "inside"] # frames come in by the first and leave by the last; one adapter, if left out
//!
//! [[service]]
//! name = "cache"
//! path = "vhost"                 # where it must be; chosen, if left out
//!
//! [[flow]]
//! name = "web"
//! through = ["wire", "firewall", "cache", "wire"]
//! mpps = 1.5                     # wanted; if no flow has it, as much as there can be of all alike
//! ```
//!
//! # Limits
//! 64 services, 4 adapters each, 256 flows of at most 64 services. A flow goes through a service
//! once: a chain has no cycles. What comes back is another flow.

mod check;
#[cfg(test)]
pub(crate) mod tests;

pub use check::WorkloadError;
pub(crate) use check::is_name;
use serde::Deserialize;

use crate::frames::Frames;
use crate::load::{Company, End, Guests, Hop, Party};
use crate::predict::PathKind;
use crate::units::FrameRate;

/// Where frames come from and go to outside the host.
pub const WIRE: &str = "wire";

/// A workload that holds together.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Its services.
    pub services: Vec<Service>,
    /// Its adapters, by service.
    pub adapters: Vec<Adapter>,
    /// Its traffic.
    pub flows: Vec<Flow>,
    /// Whether rates are wanted, or only their shares.
    pub has_rates: bool,
}

/// A service: guests of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its guests.
    pub guests: Guests,
}

/// An adapter that each guest of a service has.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    /// Its name: the service's, and its own if there are several.
    pub name: String,
    /// The number of the service.
    pub service: usize,
    /// The path that it must have.
    pub fixed: Option<PathKind>,
}

/// A flow of frames.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// How many frames: wanted, or a share.
    pub rate: FrameRate,
    /// Their sizes.
    pub frames: Frames,
    /// Its hops: the adapter that sends and the one that receives; none is the wire.
    pub hops: Vec<(Option<usize>, Option<usize>)>,
}

impl Workload {
    /// Reads a workload.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let file: File = toml::from_str(text)
            .map_err(|error| WorkloadError::Form(error.to_string().trim_end().to_owned()))?;
        check::check(file)
    }

    /// Its guests, with these paths of its adapters.
    pub fn company(&self, paths: &[PathKind]) -> Company {
        let party =
            |(adapter, path): (&Adapter, &PathKind)| Party { path: *path, of: adapter.service };
        Company {
            guests: self.services.iter().map(|service| service.guests).collect(),
            parties: self.adapters.iter().zip(paths).map(party).collect(),
            receivers: None,
        }
    }

    /// Its hops, those of all flows that are alike as one.
    pub fn hops(&self) -> Vec<Hop> {
        let end = |adapter: Option<usize>| adapter.map_or(End::Wire, End::Party);
        let mut hops: Vec<Hop> = Vec::new();
        for flow in &self.flows {
            let Flow { rate, frames, .. } = flow;
            let by_wire = flow.hops.first().is_some_and(|(from, _)| from.is_none());
            for &(from, to) in &flow.hops {
                let (from, to) = (end(from), end(to));
                let is_alike = |hop: &&mut Hop| {
                    let its = (hop.from, hop.to, &hop.frames, hop.by_wire);
                    its == (from, to, frames, by_wire)
                };
                match hops.iter_mut().find(is_alike) {
                    Some(known) => known.rate = known.rate + *rate,
                    None => {
                        hops.push(Hop { from, to, rate: *rate, frames: frames.clone(), by_wire })
                    }
                }
            }
        }
        hops
    }

    /// VFs that these paths take.
    pub fn functions(&self, paths: &[PathKind]) -> u32 {
        let adapters = self.adapters.iter().zip(paths).filter(|(_, path)| **path == PathKind::Vf);
        adapters.map(|(adapter, _)| self.services[adapter.service].guests.count).sum()
    }
}

/// The file as it is written.
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
