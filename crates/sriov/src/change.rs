//! Changes that need rights: requests to the launcher.
//!
//! Each names a PF by its address, and the launcher finds the rest in sysfs: VFs, drivers, and the
//! interface.

use std::os::fd::BorrowedFd;

use host::launcher::{Answer, PF, Request, check_named};
use host::netlink::{KernelError, Netlink};
use model::state::{NicMode, Vlan};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::address::PciAddress;
use crate::devlink::{self, DevlinkDevice};
use crate::driver::{Binding, VFIO_PCI, own_driver, write};
use crate::error::VfOwner;
use crate::owners::{is_open_by_vfio, owners};
use crate::pf;
use crate::sysfs::Sysfs;
use crate::vf::{VfSetting, set_vf};

/// Largest VLAN ID.
const VLAN_MAX: u16 = 4094;
/// Largest priority of a VLAN tag.
const QOS_MAX: u8 = 7;

/// Checks that a function is the PF of a NIC with SR-IOV, and named.
fn check_pf(sysfs: &Sysfs, pf: PciAddress) -> Result<(), Errno> {
    let has_vfs = pf::number::<u16>(sysfs, pf, "sriov_totalvfs").is_some();
    if !has_vfs || !pf::is_network(sysfs, pf) {
        return Err(Errno::PERM);
    }
    let of_interface =
        |errno| pf::interface(sysfs, pf).map_or(Err(errno), |(name, _)| check_named(&[PF], &name));
    check_named(&[PF], &pf.to_string()).or_else(of_interface)
}

/// Checks that a PF has a VF of this index.
pub(crate) fn check_vf(sysfs: &Sysfs, pf: PciAddress, vf: u16) -> Result<(), Errno> {
    check_pf(sysfs, pf)?;
    let enabled: u16 = pf::number(sysfs, pf, "sriov_numvfs").unwrap_or(0);
    if vf < enabled { Ok(()) } else { Err(Errno::PERM) }
}

/// Changes the number of VFs from or to 0, or tells which VFs are in use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeVfs {
    pub(crate) pf: PciAddress,
    /// Number of VFs; `None`: it stays, and those in use are told.
    pub(crate) num_vfs: Option<u16>,
}

/// Result of changing the number of VFs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum VfsAnswer {
    /// The number is as wanted; without one, no VF is in use.
    Done,
    /// VFs are in use, so none is removed.
    InUse(Vec<VfOwner>),
}

impl Request for ChangeVfs {
    const NAME: &'static str = "change-vfs";
    const DOES: &'static str =
        "makes the VFs of a PF of a NIC, or removes them if none is in use; tells those in use";
    type Reply = VfsAnswer;

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        check_pf(&Sysfs::default(), self.pf)
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<VfsAnswer> {
        let sysfs = Sysfs::default();
        if self.num_vfs.is_none_or(|num_vfs| num_vfs == 0) {
            let owners = owners(&sysfs, self.pf);
            if !owners.is_empty() {
                return Ok((VfsAnswer::InUse(owners), Vec::new()));
            }
        }
        if let Some(num_vfs) = self.num_vfs {
            write(&sysfs.pci(self.pf).join("sriov_numvfs"), &num_vfs.to_string())?;
        }
        Ok((VfsAnswer::Done, Vec::new()))
    }
}

/// Changes a setting of a VF.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeVf {
    pub(crate) pf: PciAddress,
    pub(crate) vf: u16,
    pub(crate) setting: VfSetting,
}

impl ChangeVf {
    fn check_in(&self, sysfs: &Sysfs) -> Result<(), Errno> {
        check_vf(sysfs, self.pf, self.vf)?;
        match self.setting {
            VfSetting::Vlan(Some(Vlan { id, qos, .. })) if id > VLAN_MAX || qos > QOS_MAX => {
                Err(Errno::PERM)
            }
            VfSetting::Driver(_) => Err(Errno::PERM),
            _ => Ok(()),
        }
    }
}

impl Request for ChangeVf {
    const NAME: &'static str = "change-vf";
    const DOES: &'static str = "changes a setting of a VF of a NIC, as `ip link set PF vf N` does";
    type Reply = Result<(), KernelError>;

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        self.check_in(&Sysfs::default())
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<Self::Reply> {
        let (_, interface) = pf::interface(&Sysfs::default(), self.pf).ok_or(Errno::NODEV)?;
        let netlink = Netlink::route()?;
        Ok((set_vf(&netlink, interface, self.vf, &self.setting), Vec::new()))
    }
}

/// Binds a VF to a driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BindDriver {
    pub(crate) pf: PciAddress,
    pub(crate) vf: u16,
    pub(crate) binding: Binding,
}

impl Request for BindDriver {
    const NAME: &'static str = "bind-driver";
    const DOES: &'static str =
        "binds a VF of a NIC to its own driver, to vfio-pci or a variant of it, or to none";
    type Reply = ();

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        self.check_in(&Sysfs::default())
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<()> {
        self.bind(&Sysfs::default(), is_open_by_vfio)?;
        Ok(((), Vec::new()))
    }
}

impl BindDriver {
    /// Binds the VF. One that a process has open keeps its driver: a guest would lose the device.
    fn bind(
        &self,
        sysfs: &Sysfs,
        is_open: impl FnOnce(&Sysfs, PciAddress) -> bool,
    ) -> Result<(), Errno> {
        let vf = pf::vf(sysfs, self.pf, self.vf).ok_or(Errno::NODEV)?;
        if Binding::of(sysfs, vf).driver != self.binding.driver && is_open(sysfs, vf) {
            return Err(Errno::BUSY);
        }
        self.binding.apply(sysfs, vf)
    }

    fn check_in(&self, sysfs: &Sysfs) -> Result<(), Errno> {
        check_vf(sysfs, self.pf, self.vf)?;
        let of_pf = Sysfs::target(&sysfs.pci(self.pf).join("driver")).unwrap_or_default();
        let Binding { driver, driver_override } = &self.binding;
        // A driver that is chosen by name is not asked whether it fits.
        let fits = |name: &&String| **name == own_driver(&of_pf) || is_vfio(name);
        let all_fit = driver.iter().chain(driver_override).all(|name| fits(&name));
        if all_fit { Ok(()) } else { Err(Errno::PERM) }
    }
}

/// `true` for vfio-pci and the variants of it for single cards, such as `mlx5_vfio_pci`.
fn is_vfio(driver: &str) -> bool {
    // The kernel ends a name at a newline.
    let is_name = driver.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    is_name && (driver == VFIO_PCI || driver.ends_with("_vfio_pci"))
}

/// Reads or sets the eswitch mode of a PF; reading it needs rights too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EswitchMode {
    pf: PciAddress,
    set: Option<NicMode>,
}

impl EswitchMode {
    pub(crate) fn read(pf: PciAddress) -> EswitchMode {
        EswitchMode { pf, set: None }
    }

    pub(crate) fn set(pf: PciAddress, mode: NicMode) -> EswitchMode {
        EswitchMode { pf, set: Some(mode) }
    }
}

impl Request for EswitchMode {
    const NAME: &'static str = "eswitch-mode";
    const DOES: &'static str = "reads or sets the eswitch mode of a PF of a NIC: legacy, switchdev";
    /// The mode; `None` if the driver has no eswitch.
    type Reply = Result<Option<NicMode>, KernelError>;

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        check_pf(&Sysfs::default(), self.pf)
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<Self::Reply> {
        let device = DevlinkDevice::pci(self.pf);
        let served = devlink::Devlink::open().and_then(|devlink| match self.set {
            None => devlink.eswitch_mode(&device),
            Some(mode) => devlink.set_eswitch_mode(&device, mode).map(|()| Some(mode)),
        });
        Ok((served, Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use model::state::VlanProto;

    use super::*;

    /// A tree with a PF of igb that has two VFs, and a disk with VFs.
    fn tree() -> (tempfile::TempDir, Sysfs) {
        let dir = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::at(dir.path());
        for (address, class) in [(pf(), "0x020000"), (disk(), "0x010802")] {
            let function = sysfs.pci(address);
            fs::create_dir_all(&function).unwrap();
            let all = [("class", class), ("sriov_totalvfs", "7"), ("sriov_numvfs", "2")];
            all.iter().for_each(|(name, text)| fs::write(function.join(name), text).unwrap());
        }
        symlink("../../../bus/pci/drivers/igb", sysfs.pci(pf()).join("driver")).unwrap();
        fs::create_dir_all(sysfs.pci("0000:01:10.0".parse().unwrap())).unwrap();
        (dir, sysfs)
    }

    fn pf() -> PciAddress {
        "0000:01:00.0".parse().unwrap()
    }

    fn disk() -> PciAddress {
        "0000:02:00.0".parse().unwrap()
    }

    #[test]
    fn only_vfs_of_nics_are_changed() {
        let (_dir, sysfs) = tree();
        assert_eq!(check_pf(&sysfs, pf()), Ok(()));
        for no_pf in [disk(), "0000:01:10.0".parse().unwrap(), "0000:03:00.0".parse().unwrap()] {
            assert_eq!(check_pf(&sysfs, no_pf), Err(Errno::PERM), "{no_pf}");
        }
        let vlan = |id, qos| VfSetting::Vlan(Some(Vlan { id, qos, proto: VlanProto::Dot1q }));
        let check = |pf, vf, setting| ChangeVf { pf, vf, setting }.check_in(&sysfs);
        assert_eq!(check(pf(), 1, vlan(4094, 7)), Ok(()));
        assert_eq!(check(pf(), 1, VfSetting::Mac(None)), Ok(()));
        let driver = VfSetting::Driver(Binding::default());
        for (pf, vf, setting) in [
            (pf(), 2, vlan(1, 0)),
            (disk(), 0, vlan(1, 0)),
            (pf(), 1, vlan(4095, 0)),
            (pf(), 1, vlan(1, 8)),
            (pf(), 1, driver),
        ] {
            assert_eq!(check(pf, vf, setting.clone()), Err(Errno::PERM), "{pf} {vf} {setting:?}");
        }
    }

    #[test]
    fn a_vf_that_a_process_has_open_keeps_its_driver() {
        let (_dir, sysfs) = tree();
        let vf = sysfs.pci("0000:01:10.0".parse().unwrap());
        symlink("../0000:01:10.0", sysfs.pci(pf()).join("virtfn0")).unwrap();
        symlink("../../../bus/pci/drivers/vfio-pci", vf.join("driver")).unwrap();
        fs::write(vf.join("driver_override"), "vfio-pci").unwrap();
        let bind =
            |binding, is_open| BindDriver { pf: pf(), vf: 0, binding }.bind(&sysfs, |_, _| is_open);
        for driver in [Binding::own("igbvf"), Binding::default()] {
            assert_eq!(bind(driver, true), Err(Errno::BUSY));
        }
        let chosen = fs::read_to_string(vf.join("driver_override")).unwrap();
        assert_eq!(chosen, "vfio-pci", "nothing is changed");
        assert_eq!(bind(Binding::vfio_pci(), true), Ok(()), "it has that driver");
        assert_eq!(bind(Binding::default(), false), Err(Errno::NOENT), "it is unbound");
    }

    #[test]
    fn vfs_are_bound_to_no_drivers_but_their_own_and_those_of_vfio() {
        let (_dir, sysfs) = tree();
        let check = |vf, driver: Option<&str>, chosen: Option<&str>| {
            let binding = Binding {
                driver: driver.map(str::to_owned),
                driver_override: chosen.map(str::to_owned),
            };
            BindDriver { pf: pf(), vf, binding }.check_in(&sysfs)
        };
        assert_eq!(check(1, Some("igbvf"), None), Ok(()));
        assert_eq!(check(1, Some("vfio-pci"), Some("vfio-pci")), Ok(()));
        assert_eq!(check(1, Some("mlx5_vfio_pci"), None), Ok(()));
        assert_eq!(check(1, None, None), Ok(()));
        assert_eq!(check(2, None, None), Err(Errno::PERM), "no VF");
        for other in ["igb", "nvme", "../igbvf", "uio_pci_generic", ""].into_iter().chain([
            "uio_pci_generic\n_vfio_pci",
            "uio_pci_generic\0_vfio_pci",
            "a/b_vfio_pci",
        ]) {
            assert_eq!(check(1, Some(other), None), Err(Errno::PERM), "{other}");
            assert_eq!(check(1, Some("igbvf"), Some(other)), Err(Errno::PERM), "{other}");
        }
    }
}
