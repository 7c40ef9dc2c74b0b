//! Path of an adapter, and the reason if it is not the wanted one.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Reason for an adapter's path. Codes are stable, so programs may compare them.
///
/// The first eight are those of Windows' `Get-NetAdapterSriov`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum Reason {
    /// The adapter has the wanted path.
    Supported,
    /// A bridge above the NIC has no Access Control Services.
    MissingAcs,
    /// The PCI bus has no free bus numbers for VFs.
    NoBusResources,
    /// The VFs' registers (BARs) have no address space.
    NoVfBarSpace,
    /// The PF has no driver that knows SR-IOV.
    MissingPfDriver,
    /// No IOMMU, or it is off.
    NoIoMmuSupport,
    /// The firmware does not let the system control PCI Express (`_OSC`).
    NoOscSupport,
    /// Unknown.
    Unknown,
    /// Adapters of higher weight have all VFs.
    NoFreeVf,
    /// Adapters of higher weight have all receive queues.
    NoFreeQueue,
    /// The adapter's weight is 0.
    WeightZero,
    /// The switch was not created with `iov`.
    SwitchNotIov,
    /// The NIC's VFs are disabled (`num_vfs`), or the one that the adapter names is.
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
    /// All reasons, in the order of the documentation.
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

    /// Explanation; remedy, for people.
    pub const fn text(self) -> &'static str {
        match self {
            Reason::Supported => "the adapter has the wanted path; nothing is to be done",
            Reason::MissingAcs => {
                "a PCIe bridge lacks Access Control Services (ACS), so a VM could reach other devices; \
                 use another slot, or switch on ACS in the firmware setup"
            }
            Reason::NoBusResources => "no PCI bus numbers are left; boot with pci=assign-busses",
            Reason::NoVfBarSpace => {
                "no address space for VFs; boot with pci=realloc, or switch on \"Above 4G decoding\" in \
                 the firmware setup"
            }
            Reason::MissingPfDriver => "the PF has no driver that enables VFs; load the vendor's",
            Reason::NoIoMmuSupport => {
                "there is no IOMMU, so no VM can have a VF; switch it on in the firmware setup (VT-d, \
                 AMD-Vi), and boot with intel_iommu=on iommu=pt"
            }
            Reason::NoOscSupport => {
                "the firmware keeps PCI Express to itself; boot without pci=nommconf, or update it"
            }
            Reason::Unknown => {
                "the cause is not known; see `shunt nic show`, the daemon's log and dmesg"
            }
            Reason::NoFreeVf => {
                "adapters of higher iov_weight have all VFs; raise its iov_weight or total_vfs"
            }
            Reason::NoFreeQueue => {
                "adapters of higher vmq_weight have all queues; raise its vmq_weight"
            }
            Reason::WeightZero => "the adapter's weight is 0; set iov_weight or vmq_weight",
            Reason::SwitchNotIov => "the switch was created without iov; recreate it",
            Reason::VfDisabled => "the VF is not enabled; raise num_vfs",
            Reason::MigrationInProgress => "the guest is being migrated; wait for the end",
            Reason::NotWanted => "the adapter wants another path; set its path",
            Reason::FollowsTraffic => {
                "the traffic suits another path better; set a path other than auto to keep it"
            }
            Reason::NoSwitch => "the adapter is on no switch; put it on one",
            Reason::PortPolicy => {
                "rules of its switch port can only be enforced in the switch; remove acl, guards and \
                 isolated of its port, and of uplink"
            }
        }
    }
}

impl fmt::Display for Reason {
    /// Code.
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
