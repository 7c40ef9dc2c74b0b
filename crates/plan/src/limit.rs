//! Limits of the data path, and the resources that they apply to.

use std::fmt;

use serde::Serialize;

/// Kind of limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Line rate of the wire.
    Line,
    /// PCIe from the NIC to the host.
    PcieUp,
    /// PCIe from the host to the NIC.
    PcieDown,
    /// Frames per second of the NIC.
    NicPps,
    /// Bits per second within the NIC.
    NicInternal,
    /// Queue pair of a function.
    NicQueue,
    /// Switch thread that polls a guest's port.
    GuestPort,
    /// Switch thread that polls the port to the NIC.
    WirePort,
    /// Receive queue of the port to the NIC.
    WireQueue,
    /// All threads of the switch.
    SwitchCpu,
    /// Cores of guests.
    GuestCpu,
    /// Memory bandwidth.
    Memory,
}

impl Limit {
    /// Meaning, as a phrase.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Line => "line rate of the wire",
            Self::PcieUp => "PCIe from the NIC to the host",
            Self::PcieDown => "PCIe from the host to the NIC",
            Self::NicPps => "frames per second of the NIC",
            Self::NicInternal => "bits per second within the NIC",
            Self::NicQueue => "queue pair of a function",
            Self::GuestPort => "switch thread that polls a guest's port",
            Self::WirePort => "switch thread that polls the port to the NIC",
            Self::WireQueue => "receive queue of the port to the NIC",
            Self::SwitchCpu => "all threads of the switch",
            Self::GuestCpu => "cores of guests",
            Self::Memory => "memory bandwidth",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Line => "line",
            Self::PcieUp => "pcie-up",
            Self::PcieDown => "pcie-down",
            Self::NicPps => "nic-pps",
            Self::NicInternal => "nic-internal",
            Self::NicQueue => "nic-queue",
            Self::GuestPort => "guest-port",
            Self::WirePort => "wire-port",
            Self::WireQueue => "wire-queue",
            Self::SwitchCpu => "switch-cpu",
            Self::GuestCpu => "guest-cpu",
            Self::Memory => "memory",
        })
    }
}

/// Traffic that a resource serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// All traffic.
    All,
    /// Frames from the wire.
    In,
    /// Frames to the wire.
    Out,
    /// One adapter group.
    Adapters(usize),
    /// One kind of guests.
    Guests(usize),
}

/// A limit, and the traffic it applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// The limit.
    pub limit: Limit,
    /// Traffic that it applies to.
    pub scope: Scope,
}
