//! What of a machine can be fitted.

use serde::Serialize;

use crate::machine::{Costs, Figure, Host, Machine};

/// A figure of a machine that can be fitted, or several that are taken for alike.
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
    /// `byte` of the switch and of the software NIC, which are carried by the same lane.
    LaneByte,
    KernelFromGuest,
    KernelWire,
}

impl Parameter {
    /// What a forwarding experiment on a card and a switch can tell. Not what the wire's port costs
    /// the switch, for it adds to what either end of a guest's costs, and only sums are seen.
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

    /// What the lab's experiment can tell, where path `vf` is a software NIC.
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

    /// Its figures, which are alike; none where the machine has nothing of the kind.
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

    /// Sets its figures.
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
