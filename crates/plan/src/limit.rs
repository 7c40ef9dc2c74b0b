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
