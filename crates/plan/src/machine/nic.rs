//! Limits of a NIC for the planner: the part `plan` of a card profile.

use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::{Fault, Figure, possible};
use crate::dma::Batches;
use crate::pcie::Link;

/// A NIC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// Name in commands: that of the file.
    #[serde(skip_deserializing)]
    pub name: String,
    /// Name of the card and its speed.
    #[serde(skip_deserializing)]
    pub title: String,
    /// Number of VFs of a port.
    #[serde(skip_deserializing)]
    pub vfs: u32,
    /// Its PCIe link.
    pub link: Link,
    /// The share of what the link could carry that this NIC gets out of it: credits and tags that
    /// run out, boundaries of reads.
    pub link_share: Figure,
    /// What it exchanges with the host for each frame; that of an 82599 with a polling driver, if
    /// left out.
    #[serde(default = "polling")]
    pub batches: Batches,
    /// Its wire.
    pub wire: Wire,
    /// Its switch between functions.
    pub between: Between,
    /// A frame's share of one queue pair's time, in ns: what a function with one queue can do at
    /// best.
    pub queue_ns: Figure,
    /// The same for each byte.
    pub queue_ns_per_byte: Figure,
    /// A read of host memory, in ns, unloaded.
    pub read_ns: Figure,
    /// A write to host memory, in ns, unloaded.
    pub write_ns: Figure,
}

/// Card profile, as the planner reads it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Card {
    title: String,
    vfs: u32,
    /// A software NIC's.
    #[serde(rename = "soft")]
    _soft: Option<IgnoredAny>,
    plan: Nic,
}

impl Card {
    /// The NIC; `file` is the profile's name or path.
    pub(super) fn nic(self, file: &str) -> Nic {
        let Card { title, vfs, plan, .. } = self;
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Nic { name, title, vfs, ..plan }
    }
}

/// The NIC's wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// Ports in use.
    pub ports: u8,
    /// The rate of a port, in Gbit/s.
    pub line_gbps: Figure,
    /// Million frames a second between wire and host, each way, all ports together.
    pub mpps: Figure,
}

/// The NIC's own switch between functions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Between {
    /// Million frames a second from function to function.
    pub mpps: Figure,
    /// Gbit/s from function to function, FCS not counted.
    pub gbps: Figure,
}

const fn polling() -> Batches {
    Batches::POLLING
}

impl Nic {
    /// Its figures with their names.
    pub fn figures(&self) -> Vec<(&'static str, &Figure)> {
        vec![
            ("link_share", &self.link_share),
            ("wire.line_gbps", &self.wire.line_gbps),
            ("wire.mpps", &self.wire.mpps),
            ("between.mpps", &self.between.mpps),
            ("between.gbps", &self.between.gbps),
            ("queue_ns", &self.queue_ns),
            ("queue_ns_per_byte", &self.queue_ns_per_byte),
            ("read_ns", &self.read_ns),
            ("write_ns", &self.write_ns),
        ]
    }

    pub(super) fn check(&self) -> Result<(), Fault> {
        if let Some((field, allowed)) = self.link.fault() {
            let Link { generation, lanes, max_payload, max_read_request } = self.link;
            let value = match field {
                "generation" => generation.to_string(),
                "lanes" => lanes.to_string(),
                "max_payload" => max_payload.to_string(),
                _ => max_read_request.to_string(),
            };
            return Err(Fault { field: format!("link.{field}"), value, allowed });
        }
        let ports = self.wire.ports;
        if !(1..=8).contains(&ports) {
            let (field, value) = ("wire.ports".to_owned(), ports.to_string());
            return Err(Fault { field, value, allowed: "1 to 8" });
        }
        if self.link_share.value > 1.0 {
            let (field, value) = ("link_share".to_owned(), self.link_share.value.to_string());
            return Err(Fault { field, value, allowed: "at most 1" });
        }
        possible(self.figures())
    }
}
