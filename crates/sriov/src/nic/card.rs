//! Access to a NIC: sysfs and netlink, behind a trait.

use std::path::PathBuf;
use std::time::Duration;

use host::launcher::ask;
use host::netlink::{KernelError, Netlink};
use model::state::{MacText, NicMode};
use rustix::io::Errno;

use super::NumVfsError;
use crate::address::PciAddress;
use crate::change::{BindDriver, ChangeVf, ChangeVfs, EswitchMode, VfsAnswer};
use crate::driver::{Binding, own_driver, wait_until};
use crate::error::{SriovError, VfOwner};
use crate::netdev::{self, HostNetdev, NetdevError, PlaceNetdev, VfNetdev};
use crate::pf;
use crate::sysfs::Sysfs;
use crate::vf::{VfSetting, VfState, read_vfs};

/// Driver of virtio functions.
const VIRTIO: &str = "virtio-pci";
/// Time for functions to appear or to vanish.
const FUNCTIONS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the PF's link to come back: with a new number of VFs igb resets the PF, and takes rates
/// only with a link.
const LINK_TIMEOUT: Duration = Duration::from_secs(15);
/// Time for the carrier to show that the PF is reset.
const RESET_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for drivers of new VFs to make their interfaces.
const INTERFACES_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for the driver of a VF to make its interface.
const NETDEV_TIMEOUT: Duration = Duration::from_secs(5);

/// A PF and its VFs.
pub(super) trait Card {
    fn address(&self) -> PciAddress;
    fn is_present(&self) -> bool;
    fn interface(&self) -> Option<String>;
    fn driver(&self) -> Option<String>;
    /// NUMA node of the PF; `None` on a machine with one.
    fn numa_node(&self) -> Option<u32> {
        None
    }
    fn total_vfs(&self) -> u16;
    fn num_vfs(&self) -> u16;
    /// `None` if the driver has no eswitch.
    fn mode(&self) -> Option<NicMode>;
    fn vfs(&self) -> Result<Vec<VfState>, KernelError>;
    /// VFs in use.
    fn owners(&self) -> Result<Vec<VfOwner>, KernelError>;
    /// Sets the number of VFs from or to 0, and waits for them. A driver may accept a number and
    /// enable another.
    fn set_num_vfs(&mut self, num_vfs: u16) -> Result<(), NumVfsError>;
    fn set_mode(&mut self, mode: NicMode) -> Result<(), KernelError>;
    fn set_vf(&mut self, vf: u16, setting: &VfSetting) -> Result<(), KernelError>;
    /// Interface of a VF here.
    fn netdev(&self, vf: u16) -> Option<HostNetdev>;
    /// Use of a VF's interface by the host; `None` if it has none.
    fn host_use(&self, vf: u16) -> Option<String>;
    /// `true` if a namespace has the interface of a VF.
    fn is_netdev_in(&self, vf: u16, netns: &str) -> bool;
    /// Moves the interface of a VF out of this namespace, or sets it here; returns notes.
    fn place(&mut self, vf: u16, to: &VfNetdev) -> Result<Vec<String>, NetdevError>;
    /// Takes the driver from a VF, with the interface wherever that is.
    fn unbind(&mut self, vf: u16) -> Result<(), KernelError>;
    /// Lets the VF's own driver make a new interface here.
    fn bind(&mut self, vf: u16) -> Result<(), KernelError>;
}

/// A card of this machine. Its changes are requests to the launcher.
#[derive(Debug)]
pub(super) struct KernelCard {
    sysfs: Sysfs,
    address: PciAddress,
    netlink: Netlink,
    /// `true` from a new number of VFs to the first rate that is refused.
    is_reset: bool,
}

impl KernelCard {
    /// Finds a PF by its interface or its address.
    ///
    /// # Errors
    /// There is no such PF, or the kernel refuses a netlink socket.
    pub(super) fn find(sysfs: Sysfs, device: &str) -> Result<KernelCard, SriovError> {
        let not_found = || SriovError::NotFound { device: device.to_owned() };
        let address = match device.parse() {
            Ok(address) => address,
            Err(_) => pf::of_interface(&sysfs, device).ok_or_else(not_found)?,
        };
        if !pf::is_network(&sysfs, address) {
            return Err(not_found());
        }
        if let Some(pf) = Sysfs::target(&sysfs.pci(address).join("physfn")) {
            return Err(SriovError::IsVf { address, pf });
        }
        let netlink = Netlink::route().map_err(SriovError::Netlink)?;
        Ok(KernelCard { sysfs, address, netlink, is_reset: false })
    }

    fn function(&self) -> PathBuf {
        self.sysfs.pci(self.address)
    }

    /// `true` if the PF's interface is up; its carrier cannot be read while it is down.
    fn is_up(&self) -> bool {
        self.carrier().is_some()
    }

    fn has_link(&self) -> bool {
        self.carrier().is_some_and(|carrier| carrier == "1")
    }

    fn carrier(&self) -> Option<String> {
        let net = pf::interface_directory(&self.sysfs, self.address)?;
        Sysfs::text(&net.join("carrier"))
    }

    /// `true` once the VFs have interfaces, as far as they have drivers.
    fn have_interfaces(&self, num_vfs: u16) -> bool {
        (0..num_vfs).all(|vf| {
            let function = self.function().join(format!("virtfn{vf}"));
            !Sysfs::interfaces(&function).is_empty()
        })
    }
}

impl Card for KernelCard {
    fn address(&self) -> PciAddress {
        self.address
    }

    fn is_present(&self) -> bool {
        self.function().exists()
    }

    fn interface(&self) -> Option<String> {
        pf::interface(&self.sysfs, self.address).map(|(name, _)| name)
    }

    fn driver(&self) -> Option<String> {
        Sysfs::target(&self.function().join("driver"))
    }

    fn numa_node(&self) -> Option<u32> {
        // -1 stands for none.
        pf::number(&self.sysfs, self.address, "numa_node")
    }

    fn total_vfs(&self) -> u16 {
        pf::number(&self.sysfs, self.address, "sriov_totalvfs").unwrap_or(0)
    }

    fn num_vfs(&self) -> u16 {
        pf::number(&self.sysfs, self.address, "sriov_numvfs").unwrap_or(0)
    }

    fn mode(&self) -> Option<NicMode> {
        let (mode, _) = ask(EswitchMode::read(self.address), &[]).ok()?;
        mode.unwrap_or(None)
    }

    fn vfs(&self) -> Result<Vec<VfState>, KernelError> {
        let Some((_, index)) = pf::interface(&self.sysfs, self.address) else {
            return Ok(Vec::new());
        };
        let mut vfs = read_vfs(&self.netlink, index, true)?;
        if vfs.is_empty() && self.driver().as_deref() == Some(VIRTIO) {
            // It has no settings of VFs: their addresses are given.
            let address = |vf| Some(VfSetting::Mac(Some(MacText(self.netdev(vf)?.address))));
            let vf = |index| VfState {
                index,
                address: None,
                settings: address(index).into_iter().collect(),
                counters: None,
            };
            vfs = (0..self.num_vfs()).map(vf).collect();
        }
        for vf in &mut vfs {
            vf.address = pf::vf(&self.sysfs, self.address, vf.index);
            if let Some(address) = vf.address {
                vf.settings.push(VfSetting::Driver(Binding::of(&self.sysfs, address)));
            }
        }
        Ok(vfs)
    }

    fn owners(&self) -> Result<Vec<VfOwner>, KernelError> {
        match ask(ChangeVfs { pf: self.address, num_vfs: None }, &[])? {
            (VfsAnswer::Done, _) => Ok(Vec::new()),
            (VfsAnswer::InUse(owners), _) => Ok(owners),
        }
    }

    fn set_num_vfs(&mut self, num_vfs: u16) -> Result<(), NumVfsError> {
        let before = self.num_vfs();
        self.is_reset = true;
        let (answer, _) = ask(ChangeVfs { pf: self.address, num_vfs: Some(num_vfs) }, &[])?;
        match answer {
            VfsAnswer::Done => {}
            VfsAnswer::InUse(owners) => return Err(NumVfsError::InUse(owners)),
        }
        if self.num_vfs() != num_vfs {
            return Ok(());
        }
        let functions = |number: u16| {
            (0..number).filter(|vf| pf::vf(&self.sysfs, self.address, *vf).is_some()).count()
        };
        let all = before.max(num_vfs);
        if !wait_until(FUNCTIONS_TIMEOUT, || functions(all) == usize::from(num_vfs)) {
            return Err(NumVfsError::Late);
        }
        // Without a driver, or with a slow one, there are interfaces later or never.
        if pf::number(&self.sysfs, self.address, "sriov_drivers_autoprobe") != Some(0) {
            wait_until(INTERFACES_TIMEOUT, || self.have_interfaces(num_vfs));
        }
        Ok(())
    }

    fn set_mode(&mut self, mode: NicMode) -> Result<(), KernelError> {
        let (answer, _) = ask(EswitchMode::set(self.address, mode), &[])?;
        answer.map(drop)
    }

    fn set_vf(&mut self, vf: u16, setting: &VfSetting) -> Result<(), KernelError> {
        if let VfSetting::Driver(binding) = setting {
            let request = BindDriver { pf: self.address, vf, binding: binding.clone() };
            return Ok(ask(request, &[]).map(drop)?);
        }
        let pf = self.address;
        let change = || {
            let request = ChangeVf { pf, vf, setting: setting.clone() };
            ask(request, &[])?.0
        };
        match change() {
            Err(error)
                if error.errno() == Errno::INVAL
                    && matches!(setting, VfSetting::Rate { .. })
                    && self.is_up()
                    && std::mem::take(&mut self.is_reset) =>
            {
                // The driver knows of its reset before the carrier shows it.
                wait_until(RESET_TIMEOUT, || !self.has_link());
                wait_until(LINK_TIMEOUT, || self.has_link());
                change()
            }
            done => done,
        }
    }

    fn netdev(&self, vf: u16) -> Option<HostNetdev> {
        netdev::read(&self.sysfs, pf::vf(&self.sysfs, self.address, vf)?)
    }

    fn host_use(&self, vf: u16) -> Option<String> {
        netdev::host_use(&self.sysfs, pf::vf(&self.sysfs, self.address, vf)?)
    }

    fn is_netdev_in(&self, vf: u16, netns: &str) -> bool {
        let function = pf::vf(&self.sysfs, self.address, vf);
        function.is_some_and(|function| netdev::is_in(netns, function))
    }

    fn place(&mut self, vf: u16, to: &VfNetdev) -> Result<Vec<String>, NetdevError> {
        match ask(PlaceNetdev { pf: self.address, vf, to: to.clone() }, &[]) {
            Ok((placed, _)) => placed,
            Err(errno) => Err(NetdevError::from(errno)),
        }
    }

    fn unbind(&mut self, vf: u16) -> Result<(), KernelError> {
        self.set_vf(vf, &VfSetting::Driver(Binding::default()))
    }

    fn bind(&mut self, vf: u16) -> Result<(), KernelError> {
        let driver = self.driver().unwrap_or_default();
        self.set_vf(vf, &VfSetting::Driver(Binding::own(own_driver(&driver))))?;
        match wait_until(NETDEV_TIMEOUT, || self.netdev(vf).is_some()) {
            true => Ok(()),
            false => Err(Errno::TIMEDOUT.into()),
        }
    }
}
