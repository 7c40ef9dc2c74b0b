//! Ports of the data plane: attachments with their locations, and receivers of mirrored frames.

use model::state::{FunctionName, Mirror};

use super::PortLocation;
use super::function::FunctionEntry;

/// Function of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortOwner {
    /// The uplink.
    Uplink,
    /// The guest with the PF.
    Pf,
    /// An adapter, by name.
    Adapter(String),
    /// A tunnel of the NIC's switch, by name.
    Tunnel(String),
    /// The host's representor of a function, in switchdev mode.
    Representor(FunctionName),
}

/// An attachment and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledPort {
    /// Function of the attachment.
    pub of: PortOwner,
    /// Location; no other attachment has it.
    pub location: PortLocation,
    /// Path `vmq`: queue of the NIC that also fills the receive ring.
    pub queue: Option<bridge::PortId>,
    /// Share of the transmit capacity.
    pub share: bridge::nic::Share,
    /// Effective link state.
    pub link_up: bool,
}

/// A receiver of mirrored frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Monitor {
    /// Source of the frames: an adapter's name, `nic0/vf3` or `nic0/pf`.
    pub label: String,
    /// Field with the mirror, such as `adapter[2].mirror`.
    pub field: String,
    /// Receiver of the copies.
    pub target: MonitorTarget,
}

/// Destination of mirrored frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MonitorTarget {
    /// A pcapng file, by path.
    File(String),
    /// An adapter, by name.
    Adapter(String),
}

/// An attachment without transmit settings: an uplink, tunnel or representor.
pub(super) fn plain_port(of: PortOwner, location: PortLocation, link_up: bool) -> CompiledPort {
    CompiledPort { of, location, queue: None, share: bridge::nic::Share::default(), link_up }
}

pub(super) fn function_port(
    of: PortOwner,
    location: PortLocation,
    entry: &FunctionEntry<'_>,
    uplink_up: bool,
) -> CompiledPort {
    CompiledPort {
        of,
        location,
        queue: None,
        share: entry.share(),
        link_up: entry.link.is_up(uplink_up),
    }
}

/// Receivers of mirrored frames, one per mirrored source.
#[derive(Debug, Default)]
pub(super) struct MonitorList(pub(super) Vec<Monitor>);

impl MonitorList {
    /// Number of the mirror of a source.
    pub(super) fn number(&mut self, entry: &FunctionEntry<'_>, mirror: &Mirror) -> usize {
        let target = match (&mirror.adapter, &mirror.file) {
            (Some(adapter), _) => MonitorTarget::Adapter(adapter.clone()),
            (None, file) => MonitorTarget::File(file.clone().unwrap_or_default()),
        };
        let field = format!("{}.mirror", entry.at);
        let monitor = Monitor { label: entry.label.clone(), field, target };
        let known = self.0.iter().position(|one| *one == monitor);
        known.unwrap_or_else(|| {
            self.0.push(monitor);
            self.0.len() - 1
        })
    }
}
