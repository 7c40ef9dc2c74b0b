//! The functions of a card, and the interfaces of its VFs.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use host::interface::Interfaces;
use host::links::Links;
use host::{netns, unshare};
use sriov::{PciAddress, Sysfs};
use wire::Mac;

use crate::subject::GuestConfig;

/// Time limit for interfaces to appear, and for their links.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The PF of a card, and its VFs.
#[derive(Debug)]
pub(super) struct Device {
    /// Interface of the PF.
    pub(super) interface: String,
    /// Address of the PF.
    pub(super) address: PciAddress,
    function: PathBuf,
}

impl Device {
    /// The card with this address, whose PF has this interface.
    pub(super) fn new(address: PciAddress, interface: String) -> Device {
        Device { interface, address, function: Sysfs::default().pci(address) }
    }

    fn vf(&self, index: u16) -> PathBuf {
        self.function.join(format!("virtfn{index}"))
    }

    /// Interface of a VF, if it is in this namespace.
    fn interface_of(&self, vf: u16) -> Option<VfInterface> {
        let net = Sysfs::interfaces(&self.vf(vf)).pop()?;
        let name = net.file_name()?.to_str()?.to_owned();
        let index = Sysfs::number(&net.join("ifindex"))?;
        let mac = Sysfs::text(&net.join("address"))?.parse().ok()?;
        Some(VfInterface { name, index, mac })
    }

    /// Waits for the interface of a VF.
    pub(super) fn wait_for(&self, vf: u16) -> Result<VfInterface> {
        wait(TIMEOUT, || Ok(self.interface_of(vf)))?
            .with_context(|| format!("VF {vf} has no interface here"))
    }

    /// Waits for the link of the PF, without which drivers reject rates.
    pub(super) fn wait_for_link(&self) -> Result<()> {
        let interfaces = Interfaces::of(None)?;
        let link = || Ok(interfaces.state(&self.interface)?.is_running.then_some(()));
        wait(TIMEOUT, link)?.with_context(|| format!("{} has no link", self.interface))
    }

    /// Gives a VF to a guest: its driver begins again, with the address that the PF has set, and
    /// its interface moves into a namespace, where it is up.
    pub(super) fn give(&self, vf: u16, mac: Mac) -> Result<GuestInterface> {
        if self.wait_for(vf)?.mac != mac {
            self.reload_driver(vf)
                .with_context(|| format!("cannot load VF {vf}'s driver again"))?;
        }
        let found = self.wait_for(vf)?;
        let pf = Interfaces::of(None)?.state(&self.interface)?.index;
        // A name that no interface has that appears while this one is away.
        let name = format!("shunt{pf}v{vf}");
        let namespace = unshare::network_file()?;
        Links::open()?.move_to(namespace.as_fd(), found.index, &name)?;
        let netns = format!("/proc/self/fd/{}", namespace.as_raw_fd());
        let interfaces = Interfaces::of(Some(&netns))?;
        interfaces.set_up(&name, true)?;
        let link = || Ok(interfaces.state(&name)?.is_running.then_some(()));
        wait(TIMEOUT, link)?.with_context(|| format!("VF {vf} has no link"))?;
        let index = interfaces.state(&name)?.index;
        Ok(GuestInterface { vf, name, index, interfaces, netns, namespace })
    }

    /// Binds the driver of a VF again.
    fn reload_driver(&self, vf: u16) -> Result<()> {
        let function = self.vf(vf);
        let address = Sysfs::target(&function).context("there is no such VF")?;
        let driver = std::fs::canonicalize(function.join("driver"))?;
        Sysfs::write(&driver.join("unbind"), &address)?;
        Sysfs::write(&driver.join("bind"), &address)?;
        Ok(())
    }

    /// Takes a VF back from a guest that ends in order.
    pub(super) fn take(&self, guest: GuestInterface) -> Result<()> {
        let GuestInterface { vf, name, index, interfaces, netns, namespace } = guest;
        let home = std::fs::File::open("/proc/thread-self/ns/net")?;
        interfaces.set_up(&name, false)?;
        netns::within(Some(&netns), || Links::open()?.move_to(home.as_fd(), index, &name))??;
        drop((interfaces, namespace));
        self.wait_for(vf).map(drop)
    }

    /// Waits for a VF whose guest was killed: the kernel returns the interface of a namespace that
    /// ends.
    pub(super) fn take_from_killed(&self, guest: GuestInterface) -> Result<()> {
        let vf = guest.vf;
        drop(guest);
        self.wait_for(vf).map(drop)
    }

    /// Checks that a VF has no user: its interface is here, and down.
    pub(super) fn check_unused(&self, vf: u16) -> Result<()> {
        let VfInterface { name, .. } = self.interface_of(vf).with_context(|| {
            format!(
                "VF {vf} is in use, or has no driver: its interface is not in this network \
                 namespace; give it back, or load its driver"
            )
        })?;
        let is_up = Interfaces::of(None)?.state(&name)?.is_up;
        ensure!(!is_up, "VF {vf} is in use: its interface {name} is up; ip link set {name} down");
        Ok(())
    }
}

/// Waits until something is there; `None` if it takes too long. A signal does not end it: an
/// interrupted run waits as well, for what it gives back.
pub(super) fn wait<T>(
    most: Duration,
    mut find: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let end = Instant::now() + most;
    loop {
        let found = find()?;
        if found.is_some() || Instant::now() >= end {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Interface of a VF in this namespace.
#[derive(Debug)]
pub(super) struct VfInterface {
    name: String,
    index: u32,
    mac: Mac,
}

/// Interface of a VF in the namespace of a guest. The namespace ends with this value and the
/// sockets in it.
#[derive(Debug)]
pub(super) struct GuestInterface {
    vf: u16,
    pub(super) name: String,
    index: u32,
    interfaces: Interfaces,
    /// Path of the namespace.
    pub(super) netns: String,
    namespace: OwnedFd,
}

impl GuestInterface {
    /// `true` while the interface is the one that was given.
    pub(super) fn is_there(&self) -> bool {
        self.interfaces.state(&self.name).is_ok_and(|state| state.index == self.index)
    }

    /// Address and link that the guest sees.
    pub(super) fn config(&self) -> Result<GuestConfig> {
        let state = self.interfaces.state(&self.name)?;
        Ok(GuestConfig { mac: Mac(state.mac), link_up: state.is_running })
    }
}
