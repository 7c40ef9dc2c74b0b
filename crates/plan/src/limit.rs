//! What can hold frames up.

use std::fmt;

use serde::Serialize;

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The wire.
    Line,
    /// PCIe from the NIC to the host.
    PcieUp,
    /// PCIe from the host to the NIC.
    PcieDown,
    /// Frames a second that the NIC can do.
    NicPps,
    /// Bits a second within the NIC.
    NicInternal,
    /// A function's queue pair.
    NicQueue,
    /// The thread of the switch that polls a guest's port.
    GuestPort,
    /// The thread of the switch that polls the port to the NIC.
    WirePort,
    /// The receive queue of the port to the NIC.
    WireQueue,
    /// All threads of the switch.
    SwitchCpu,
    /// Guests' cores.
    GuestCpu,
    /// The memory.
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

/// Whose a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// All traffic's.
    All,
    /// That of frames that come in.
    In,
    /// That of frames that go out.
    Out,
    /// A party's own.
    Party(usize),
    /// Some guests' own.
    Guests(usize),
}

/// A limit, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// The limit.
    pub limit: Limit,
    /// Whose it is.
    pub of: Owner,
}
