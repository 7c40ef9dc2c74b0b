//! Errors of changes to a NIC.

use std::fmt;

use host::netlink::KernelError;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::address::PciAddress;
use crate::netdev::NetdevError;
use crate::refusals::explain;

/// A change of a NIC that did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SriovError {
    /// There is no such device.
    #[error("{device} is no PCI NIC of this machine; shunt nic list shows all")]
    NotFound {
        /// Interface or address that was looked for.
        device: String,
    },
    /// The device is a VF.
    #[error("{address} is a VF; name its PF {pf}")]
    IsVf {
        /// Its address.
        address: PciAddress,
        /// Its PF.
        pf: String,
    },
    /// The PF has vanished.
    #[error("{0} has vanished from the PCI bus; see the kernel's log")]
    Vanished(PciAddress),
    /// The PF has no network driver.
    #[error(
        "{0} has no interface here: load its driver, or move the interface back to this network namespace"
    )]
    NoInterface(PciAddress),
    /// The PF cannot have so many VFs.
    #[error("{address}: num_vfs = {wanted} is more than its {total}; see shunt nic list")]
    TooManyVfs {
        /// The PF.
        address: PciAddress,
        /// Wanted number.
        wanted: u16,
        /// Largest number, `sriov_totalvfs`.
        total: u16,
    },
    /// The PF cannot have a VF of this index.
    #[error("{address} has no VF {vf}: it can have {total}; see shunt nic list")]
    NoVf {
        /// The PF.
        address: PciAddress,
        /// Index.
        vf: u16,
        /// Largest number, `sriov_totalvfs`.
        total: u16,
    },
    /// VFs that would be removed are in use.
    #[error("{address}: its VFs cannot be removed, for some are in use: {}; release them first", list(.owners))]
    InUse {
        /// The PF.
        address: PciAddress,
        /// The VFs in use.
        owners: Vec<VfOwner>,
    },
    /// The kernel or the driver refused a setting.
    #[error("{place}: {setting} is refused: {advice}")]
    Refused {
        /// The PF, and the VF if it is a VF's setting.
        place: String,
        /// The setting with its value.
        setting: String,
        /// Its meaning, and a remedy.
        advice: &'static str,
        /// Error number and the driver's message.
        source: KernelError,
    },
    /// The interface of a VF cannot go where it is wanted.
    #[error("{address}, VF {vf}: its interface cannot be {name}{}: {source}", at(.netns))]
    Netdev {
        /// The PF.
        address: PciAddress,
        /// Index of the VF.
        vf: u16,
        /// Wanted name.
        name: String,
        /// Wanted namespace; `None`: the daemon's.
        netns: Option<String>,
        /// The error.
        source: NetdevError,
    },
    /// The driver accepted a number of VFs, and enabled another.
    #[error(
        "{address}: num_vfs = {wanted} is accepted, but {enabled} are enabled: set the PF's interface up, and see the kernel's log"
    )]
    NotEnabled {
        /// The PF.
        address: PciAddress,
        /// Number of VFs.
        wanted: u16,
        /// Number in force.
        enabled: u16,
    },
    /// The functions did not appear or vanish in time.
    #[error(
        "{address}: {wanted} VFs are enabled, but their functions have not followed; see the kernel's log"
    )]
    Late {
        /// The PF.
        address: PciAddress,
        /// Number of VFs.
        wanted: u16,
    },
    /// The driver reports no settings of a VF, so none can be compared and set.
    #[error("{address}, VF {vf}: the driver does not report it: it is in reset, try again")]
    NotReported {
        /// The PF.
        address: PciAddress,
        /// Index of the VF.
        vf: u16,
    },
    /// The original state cannot be recorded, so nothing is changed.
    #[error("{file}: the NIC's original state cannot be {what}; nothing is changed")]
    Record {
        /// The file.
        file: String,
        /// `read`, `written` or `removed`.
        what: &'static str,
        /// The error.
        source: KernelError,
    },
    /// The kernel refuses a netlink socket.
    #[error("cannot open a netlink socket")]
    Netlink(#[source] Errno),
    /// A change failed, and undoing the steps before it too.
    #[error("{}; undoing the change failed too: {}", with_source(.error), with_source(.undo))]
    NotUndone {
        /// The first error.
        error: Box<SriovError>,
        /// The error of undoing.
        undo: Box<SriovError>,
    },
}

impl SriovError {
    /// A refusal of settings, given as name and value.
    pub(crate) fn refused(
        (address, vf): (PciAddress, Option<u16>),
        driver: &str,
        settings: &[(&'static str, String)],
        source: KernelError,
    ) -> SriovError {
        let place = match vf {
            Some(vf) => format!("{address}, VF {vf}"),
            None => address.to_string(),
        };
        let setting: Vec<String> =
            settings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let name = settings.first().map_or("", |(name, _)| name);
        let advice = explain(name, driver, source.errno());
        SriovError::Refused { place, setting: setting.join(", "), advice, source }
    }
}

/// An error with its source, on one line.
fn with_source(error: &SriovError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

fn at(netns: &Option<String>) -> String {
    netns.as_ref().map_or_else(String::new, |netns| format!(" in namespace {netns}"))
}

fn list(owners: &[VfOwner]) -> String {
    let all: Vec<String> = owners.iter().map(ToString::to_string).collect();
    all.join(", ")
}

/// A VF in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VfOwner {
    /// Index of the VF.
    pub vf: u16,
    /// Its use.
    pub by: OwnedBy,
}

/// Use of a VF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnedBy {
    /// Its interface is in another network namespace.
    Namespace,
    /// A process has it open through vfio-pci.
    Vfio,
    /// Shunt has given it away.
    Shunt,
}

impl fmt::Display for VfOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.by {
            OwnedBy::Namespace => "its interface is in another network namespace",
            OwnedBy::Vfio => "a process has it open through vfio-pci, such as QEMU",
            OwnedBy::Shunt => "an adapter has it",
        };
        write!(f, "VF {} ({by})", self.vf)
    }
}
