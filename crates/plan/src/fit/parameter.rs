//! Parameters of a machine that can be fitted.

use serde::Serialize;

use crate::machine::{Costs, Figure, Host, Machine};

/// A figure of a machine to be fitted, or several with a common value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each is the field of that name")]
pub enum Parameter {
    LinkShare,
    WireMpps,
    BetweenMpps,
    QueueNs,
    QueueNsPerByte,
    WireQueueGbps,
    GuestCycles,
    GeneratorCycles,
    SwitchFromGuest,
    SwitchToGuest,
    SwitchWire,
    SwitchByte,
    SwitchReceiver,
    SwitchLookup,
    /// `from_guest` and `to_guest` of the switch: the two sides of a ring.
    SwitchRing,
    SoftWire,
    SoftLookup,
    /// `from_guest` and `to_guest` of the software NIC.
    SoftRing,
    /// `byte` of the switch and of the software NIC, which share a lane.
    LaneByte,
    KernelFromGuest,
    KernelWire,
}

impl Parameter {
    /// Parameters that a forwarding experiment on a card and a switch determines. Without the
    /// switch's wire-port cost: it appears only in sums with the cost of guest ports.
    pub const CARD: [Self; 11] = [
        Self::LinkShare,
        Self::WireMpps,
        Self::BetweenMpps,
        Self::QueueNs,
        Self::QueueNsPerByte,
        Self::GuestCycles,
        Self::SwitchFromGuest,
        Self::SwitchToGuest,
        Self::SwitchByte,
        Self::SwitchReceiver,
        Self::WireQueueGbps,
    ];

    /// Parameters that the lab's experiment determines, with a software NIC as path `vf`.
    pub const LAB: [Self; 11] = [
        Self::SoftRing,
        Self::SoftWire,
        Self::SoftLookup,
        Self::SwitchRing,
        Self::SwitchWire,
        Self::SwitchLookup,
        Self::LaneByte,
        Self::KernelFromGuest,
        Self::KernelWire,
        Self::GuestCycles,
        Self::GeneratorCycles,
    ];

    /// Figures with this parameter's value; empty if the machine has none.
    pub fn figures(self, machine: &mut Machine) -> Vec<&mut Figure> {
        let Machine { nic, host } = machine;
        let Host { switch, kernel, soft_nic, .. } = host;
        let soft = soft_nic.as_mut();
        match self {
            Self::LinkShare => vec![&mut nic.link_share],
            Self::WireMpps => vec![&mut nic.wire.mpps],
            Self::BetweenMpps => vec![&mut nic.between.mpps],
            Self::QueueNs => vec![&mut nic.queue_ns],
            Self::QueueNsPerByte => vec![&mut nic.queue_ns_per_byte],
            Self::WireQueueGbps => vec![&mut host.wire_queue_gbps],
            Self::GuestCycles => vec![&mut host.guest_cycles],
            Self::GeneratorCycles => host.generator_cycles.iter_mut().collect(),
            Self::SwitchFromGuest => vec![&mut switch.from_guest],
            Self::SwitchToGuest => vec![&mut switch.to_guest],
            Self::SwitchWire => vec![&mut switch.wire],
            Self::SwitchByte => vec![&mut switch.byte],
            Self::SwitchReceiver => vec![&mut switch.receiver],
            Self::SwitchLookup => switch.lookup.iter_mut().collect(),
            Self::SwitchRing => ring(switch),
            Self::SoftWire => soft.map(|soft| &mut soft.wire).into_iter().collect(),
            Self::SoftLookup => soft.and_then(|soft| soft.lookup.as_mut()).into_iter().collect(),
            Self::SoftRing => soft.map(ring).unwrap_or_default(),
            Self::LaneByte => {
                soft.map(|soft| &mut soft.byte).into_iter().chain([&mut switch.byte]).collect()
            }
            Self::KernelFromGuest => vec![&mut kernel.from_guest],
            Self::KernelWire => vec![&mut kernel.wire],
        }
    }

    /// Sets all its figures.
    pub fn set(self, machine: &mut Machine, value: f64) {
        for figure in self.figures(machine) {
            figure.value = value;
        }
    }
}

/// Both sides of a guest's ring.
fn ring(costs: &mut Costs) -> Vec<&mut Figure> {
    vec![&mut costs.from_guest, &mut costs.to_guest]
}
