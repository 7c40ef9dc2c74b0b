//! PFs in sysfs.

use std::str::FromStr;

use crate::address::PciAddress;
use crate::sysfs::Sysfs;

/// First byte of the class of network controllers.
const NETWORK_CLASS: &str = "0x02";

/// The PCI function behind an interface.
pub(crate) fn of_interface(sysfs: &Sysfs, name: &str) -> Option<PciAddress> {
    // A name is one part of a path.
    let is_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let device = sysfs.root().join("class/net").join(name).join("device");
    Sysfs::target(&device).filter(|_| is_name)?.parse().ok()
}

/// `true` for a network controller.
pub(crate) fn is_network(sysfs: &Sysfs, address: PciAddress) -> bool {
    let class = Sysfs::text(&sysfs.pci(address).join("class"));
    class.is_some_and(|class| class.starts_with(NETWORK_CLASS))
}

/// A number in an attribute of a function.
pub(crate) fn number<T: FromStr>(sysfs: &Sysfs, address: PciAddress, name: &str) -> Option<T> {
    Sysfs::text(&sysfs.pci(address).join(name))?.parse().ok()
}

/// Name and index of a PF's interface. In switchdev mode the PF's function has the representors as
/// well, which have names of ports such as `pf0vf1`.
pub(crate) fn interface(sysfs: &Sysfs, address: PciAddress) -> Option<(String, u32)> {
    let net = sysfs.pci(address).join("net");
    let is_representor = |name: &String| {
        Sysfs::text(&net.join(name).join("phys_port_name"))
            .is_some_and(|port| port.starts_with("pf") || port.starts_with('c'))
    };
    let name = Sysfs::names(&net).into_iter().find(|name| !is_representor(name))?;
    let index = Sysfs::text(&net.join(&name).join("ifindex"))?.parse().ok()?;
    Some((name, index))
}

/// Address of a VF.
pub(crate) fn vf(sysfs: &Sysfs, pf: PciAddress, index: u16) -> Option<PciAddress> {
    Sysfs::target(&sysfs.pci(pf).join(format!("virtfn{index}")))?.parse().ok()
}
