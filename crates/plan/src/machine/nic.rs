//! Limits of a NIC for the planner: the section `plan` of a card profile.

use std::path::Path;

use model::state::{Problem, Problems};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::{Figure, check_figures};
use crate::dma::Batches;
use crate::pcie::PcieLink;

/// A NIC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// Name in commands: the file name without extension.
    #[serde(skip_deserializing)]
    pub name: String,
    /// Name of the card and its speed.
    #[serde(skip_deserializing)]
    pub title: String,
    /// Number of VFs of a port.
    #[serde(skip_deserializing)]
    pub vfs: u32,
    /// PCIe link.
    pub link: PcieLink,
    /// Share of the link's rate that this NIC reaches; credits, tags and read boundaries cost the
    /// rest.
    pub link_share: Figure,
    /// PCIe transactions for each frame; default: an 82599 with a polling driver.
    #[serde(default = "polling")]
    pub batches: Batches,
    /// Ports to the wire.
    pub wire: NicWire,
    /// Embedded switch between functions.
    pub between: EmbeddedSwitch,
    /// Time of one queue pair for a frame, in ns.
    pub queue_ns: Figure,
    /// Additional time for each byte, in ns.
    pub queue_ns_per_byte: Figure,
    /// Read of host memory on an idle link, in ns.
    pub read_ns: Figure,
    /// Write to host memory on an idle link, in ns.
    pub write_ns: Figure,
}

/// Card profile, as the planner reads it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Card {
    title: String,
    vfs: u32,
    /// Section of a software NIC; not used here.
    #[serde(rename = "soft")]
    _soft: Option<IgnoredAny>,
    plan: Nic,
}

impl Card {
    /// Converts to a NIC; `file` is the profile's name or path.
    pub(super) fn nic(self, file: &str) -> Nic {
        let Card { title, vfs, plan, .. } = self;
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Nic { name, title, vfs, ..plan }
    }
}

/// The NIC's wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicWire {
    /// Number of ports in use.
    pub ports: u8,
    /// Line rate of a port, in Gbit/s.
    pub line_gbps: Figure,
    /// Million frames per second between wire and host, in each direction, over all ports.
    pub mpps: Figure,
}

/// The NIC's embedded switch between functions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedSwitch {
    /// Million frames per second between functions.
    pub mpps: Figure,
    /// Gbit/s between functions, without FCS.
    pub gbps: Figure,
}

const fn polling() -> Batches {
    Batches::POLLING
}

impl Nic {
    /// All figures with their names.
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

    pub(super) fn check(&self) -> Result<(), Problems> {
        if let Some((field, allowed)) = self.link.fault() {
            let PcieLink { generation, lanes, max_payload, max_read_request } = self.link;
            let value = match field {
                "generation" => generation.into(),
                "lanes" => lanes.into(),
                "max_payload" => max_payload,
                _ => max_read_request,
            };
            let (field, remedy) = (format!("link.{field}"), format!("write {allowed}"));
            return Err(Problem::new(field, value, "is out of range", remedy).into());
        }
        let ports = self.wire.ports;
        if !(1..=8).contains(&ports) {
            return Err(Problem::out_of_range("wire.ports", ports, 1, 8).into());
        }
        if self.link_share.value > 1.0 {
            let value = self.link_share.value;
            return Err(Problem::out_of_range("link_share", value, "1e-9", 1).into());
        }
        check_figures(self.figures())
    }
}
