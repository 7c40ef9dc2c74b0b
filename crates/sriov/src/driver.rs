//! Drivers of VFs: binding to the VF's own driver, to vfio-pci, or to none.
//!
//! Follows `Documentation/ABI/testing/sysfs-bus-pci` of Linux: `driver_override`, `unbind` and
//! `drivers_probe`.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::address::PciAddress;
use crate::sysfs::Sysfs;

/// Time for a driver to let go of a function, or to take it.
const BIND_TIMEOUT: Duration = Duration::from_secs(2);
/// Driver for functions that a VMM has.
pub const VFIO_PCI: &str = "vfio-pci";

/// Driver of a function, and the driver that the kernel is to choose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The driver; `None`: the function is bound to no driver.
    pub driver: Option<String>,
    /// `driver_override`; `None`: the kernel chooses by the function's IDs.
    pub driver_override: Option<String>,
}

impl Binding {
    /// Bound to vfio-pci, also if the kernel probes again.
    pub fn vfio_pci() -> Binding {
        let driver = Some(VFIO_PCI.to_owned());
        Binding { driver: driver.clone(), driver_override: driver }
    }

    /// Bound to the driver that the kernel chooses, which has this name.
    pub fn own(driver: &str) -> Binding {
        Binding { driver: Some(driver.to_owned()), driver_override: None }
    }

    /// Reads the binding of a function.
    pub fn of(sysfs: &Sysfs, address: PciAddress) -> Binding {
        let function = sysfs.pci(address);
        let given = Sysfs::text(&function.join("driver_override"));
        Binding {
            driver: Sysfs::target(&function.join("driver")),
            driver_override: given.filter(|given| given != "(null)"),
        }
    }

    /// Binds a function.
    ///
    /// # Errors
    /// The kernel's; `ENODEV` if no driver or another one takes the function, `EBUSY` if its
    /// driver does not let it go in time.
    pub(crate) fn apply(&self, sysfs: &Sysfs, address: PciAddress) -> Result<(), Errno> {
        let function = sysfs.pci(address);
        let bound = || Sysfs::target(&function.join("driver"));
        let choose = |driver: &Option<String>| {
            let text = driver.as_deref().unwrap_or("\n");
            write(&function.join("driver_override"), text)
        };
        let now = Binding::of(sysfs, address);
        if now.driver != self.driver {
            // While it is bound by name, VFs are probed even if the PF does not want that.
            if self.driver.is_some() {
                choose(&self.driver)?;
            }
            if now.driver.is_some() {
                write(&function.join("driver/unbind"), &address.to_string())?;
                wait(|| bound().is_none(), Errno::BUSY)?;
            }
            if self.driver.is_some() {
                write(&sysfs.root().join("bus/pci/drivers_probe"), &address.to_string())?;
                wait(|| bound() == self.driver, Errno::NODEV)?;
            }
        }
        if Binding::of(sysfs, address).driver_override != self.driver_override {
            choose(&self.driver_override)?;
        }
        Ok(())
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.driver.as_deref().unwrap_or("none"))?;
        match &self.driver_override {
            Some(given) if self.driver_override != self.driver => {
                write!(f, " (driver_override {given})")
            }
            _ => Ok(()),
        }
    }
}

/// Name of the driver for the VFs of a PF with this driver.
pub(crate) fn own_driver(of_pf: &str) -> &str {
    match of_pf {
        "igb" => "igbvf",
        "ixgbe" => "ixgbevf",
        "i40e" | "ice" => "iavf",
        other => other,
    }
}

/// Writes an attribute.
pub(crate) fn write(attribute: &std::path::Path, text: &str) -> Result<(), Errno> {
    Sysfs::write(attribute, text).map_err(|error| errno(&error))
}

/// The kernel's number of an error.
pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Waits for a condition; `late` if it takes too long.
fn wait(is_met: impl Fn() -> bool, late: Errno) -> Result<(), Errno> {
    if wait_until(BIND_TIMEOUT, is_met) { Ok(()) } else { Err(late) }
}

/// Waits for a condition; returns `false` if it takes too long.
pub(crate) fn wait_until(most: Duration, is_met: impl Fn() -> bool) -> bool {
    let end = Instant::now() + most;
    loop {
        if is_met() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree with a VF, and what the kernel reads of it; nothing happens in it.
    fn tree(driver: Option<&str>) -> (tempfile::TempDir, Sysfs, PciAddress) {
        let dir = tempfile::tempdir().unwrap();
        let (sysfs, vf) = (Sysfs::at(dir.path()), "0000:01:10.0".parse().unwrap());
        let bus = dir.path().join("bus/pci");
        fs::create_dir_all(sysfs.pci(vf)).unwrap();
        fs::create_dir_all(bus.join("drivers/igbvf")).unwrap();
        fs::write(sysfs.pci(vf).join("driver_override"), "(null)").unwrap();
        fs::write(bus.join("drivers/igbvf/unbind"), "").unwrap();
        fs::write(bus.join("drivers_probe"), "").unwrap();
        if let Some(driver) = driver {
            symlink(bus.join("drivers").join(driver), sysfs.pci(vf).join("driver")).unwrap();
        }
        (dir, sysfs, vf)
    }

    #[test]
    fn a_vf_that_no_driver_takes_is_an_error() {
        let (dir, sysfs, vf) = tree(None);
        assert_eq!(Binding::vfio_pci().apply(&sysfs, vf), Err(Errno::NODEV));
        assert_eq!(Binding::of(&sysfs, vf).driver_override.as_deref(), Some(VFIO_PCI));
        let probed = fs::read_to_string(dir.path().join("bus/pci/drivers_probe")).unwrap();
        assert_eq!(probed, vf.to_string());
    }

    #[test]
    fn a_vf_that_its_driver_keeps_is_an_error() {
        let (dir, sysfs, vf) = tree(Some("igbvf"));
        assert_eq!(Binding::vfio_pci().apply(&sysfs, vf), Err(Errno::BUSY));
        let released = fs::read_to_string(dir.path().join("bus/pci/drivers/igbvf/unbind"));
        assert_eq!(released.unwrap(), vf.to_string());
        let probed = fs::read_to_string(dir.path().join("bus/pci/drivers_probe")).unwrap();
        assert_eq!(probed, "", "another driver is not asked while this one has the VF");
    }
}
