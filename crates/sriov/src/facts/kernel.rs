//! Answers of the kernel that are not in sysfs.

use std::fs;

use host::interface::Interfaces;
use model::state::NicMode;
use serde::{Deserialize, Serialize};

use crate::{Devlink, DevlinkDevice, PciAddress};

/// Driver and firmware of an interface, as its driver reports them (`ethtool -i`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceVersions {
    /// Driver of the interface; for virtio not that of the PCI function.
    pub driver: String,
    /// Version of the driver; the kernel's release for drivers of the kernel.
    pub version: String,
    /// Version of the card's firmware; empty if the driver does not report it.
    pub firmware: String,
}

/// Questions to the kernel beside sysfs. Each answer is `None` if there is none, as by default: a
/// copied tree has no kernel.
pub trait Kernel {
    /// Text of a file in `/proc`.
    fn proc(&self, _name: &str) -> Option<String> {
        None
    }

    /// Driver and firmware of an interface.
    fn versions(&self, _interface: &str) -> Option<InterfaceVersions> {
        None
    }

    /// Eswitch mode of a PF: `legacy` or `switchdev`.
    fn eswitch_mode(&self, _pf: PciAddress) -> Option<String> {
        None
    }
}

/// The kernel of this machine.
#[derive(Debug)]
pub struct ThisKernel {
    interfaces: Option<Interfaces>,
    devlink: Option<Devlink>,
}

impl Default for ThisKernel {
    fn default() -> ThisKernel {
        ThisKernel { interfaces: Interfaces::of(None).ok(), devlink: Devlink::open().ok() }
    }
}

impl Kernel for ThisKernel {
    fn proc(&self, name: &str) -> Option<String> {
        let bytes = fs::read(format!("/proc/{name}")).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn versions(&self, interface: &str) -> Option<InterfaceVersions> {
        let driver = self.interfaces.as_ref()?.driver(interface).ok()?;
        let host::interface::InterfaceDriver { name, version, firmware, .. } = driver;
        Some(InterfaceVersions { driver: name, version, firmware })
    }

    fn eswitch_mode(&self, pf: PciAddress) -> Option<String> {
        let mode = self.devlink.as_ref()?.eswitch_mode(&DevlinkDevice::pci(pf)).ok()??;
        Some(match mode {
            NicMode::Legacy => "legacy".to_owned(),
            NicMode::Switchdev => "switchdev".to_owned(),
        })
    }
}
