//! Which path an adapter has, and why it is not the one asked for.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why an adapter has its path. Codes are stable: programs may compare them.
///
/// The first eight are the words of Windows' `Get-NetAdapterSriov`, the others ours.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum Reason {
    /// Nothing is in the way: the adapter has what was asked for.
    Supported,
    /// A bridge above the NIC has no Access Control Services.
    MissingAcs,
    /// The PCI bus has no numbers left for VFs.
    NoBusResources,
    /// There is no address space for the VFs' registers.
    NoVfBarSpace,
    /// The PF has no driver that knows SR-IOV.
    MissingPfDriver,
    /// There is no IOMMU, or it is off.
    NoIoMmuSupport,
    /// The firmware does not let the system control PCI Express (`_OSC`).
    NoOscSupport,
    /// Nobody knows.
    Unknown,
    /// Adapters of greater weight have all VFs.
    NoFreeVf,
    /// Adapters of greater weight have all receive queues.
    NoFreeQueue,
    /// The adapter's weight for it is 0.
    WeightZero,
    /// The switch was not created with `iov`.
    SwitchNotIov,
    /// The NIC's VFs are off (`num_vfs`), or the one that the adapter names is.
    VfDisabled,
    /// The adapter's guest is being migrated.
    MigrationInProgress,
    /// The adapter asked for a lesser path.
    NotWanted,
    /// The adapter's traffic suits another path better (`path = "auto"`).
    FollowsTraffic,
    /// The adapter is on no switch, so it has no synthetic path.
    NoSwitch,
    /// Rules of its switch port, or of the uplink's, can only be enforced in the switch.
    PortPolicy,
}

impl Reason {
    /// All, in the order of their documentation.
    pub const ALL: [Reason; 18] = [
        Reason::Supported,
        Reason::MissingAcs,
        Reason::NoBusResources,
        Reason::NoVfBarSpace,
        Reason::MissingPfDriver,
        Reason::NoIoMmuSupport,
        Reason::NoOscSupport,
        Reason::Unknown,
        Reason::NoFreeVf,
        Reason::NoFreeQueue,
        Reason::WeightZero,
        Reason::SwitchNotIov,
        Reason::VfDisabled,
        Reason::MigrationInProgress,
        Reason::NotWanted,
        Reason::FollowsTraffic,
        Reason::NoSwitch,
        Reason::PortPolicy,
    ];

    /// What it means, and what helps, for a person.
    pub const fn text(self) -> &'static str {
        match self {
            Reason::Supported => "the adapter has what was asked for",
            Reason::MissingAcs => "a PCIe bridge lacks Access Control Services; use another slot",
            Reason::NoBusResources => "no PCI bus numbers are left; boot with pci=assign-busses",
            Reason::NoVfBarSpace => "no address space for VFs; boot with pci=realloc",
            Reason::MissingPfDriver => "the PF's driver lacks SR-IOV; load the vendor's",
            Reason::NoIoMmuSupport => "there is no IOMMU; enable it in the firmware",
            Reason::NoOscSupport => "the firmware keeps PCIe to itself; update it",
            Reason::Unknown => "the cause is not known",
            Reason::NoFreeVf => "adapters of greater iov_weight have all VFs",
            Reason::NoFreeQueue => "adapters of greater vmq_weight have all queues",
            Reason::WeightZero => "the adapter's weight is 0; set iov_weight or vmq_weight",
            Reason::SwitchNotIov => "the switch was created without iov; create it anew",
            Reason::VfDisabled => "the VF is not enabled; raise num_vfs",
            Reason::MigrationInProgress => "the guest is being migrated",
            Reason::NotWanted => "the adapter asked for a lesser path",
            Reason::FollowsTraffic => "the traffic suits another path better",
            Reason::NoSwitch => "the adapter is on no switch",
            Reason::PortPolicy => "rules of its switch port can only be enforced in the switch",
        }
    }
}

impl fmt::Display for Reason {
    /// Its code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The path that carries an adapter's frames.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PathInForce {
    /// A VF.
    Vf,
    /// A receive queue of its own; it sends through the switch.
    Vmq,
    /// The switch.
    Synthetic,
    /// None: it is connected to nothing.
    None,
}

impl fmt::Display for PathInForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathInForce::Vf => "vf",
            PathInForce::Vmq => "vmq",
            PathInForce::Synthetic => "synthetic",
            PathInForce::None => "none",
        })
    }
}
