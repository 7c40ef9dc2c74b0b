//! PFs in sysfs.

use std::fs;
use std::path::PathBuf;
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
    let device = fs::canonicalize(device).ok().filter(|_| is_name)?;
    // An interface of virtio is that of a device below the function.
    let mut names = device.iter().rev().take(2).filter_map(|name| name.to_str());
    names.find_map(|name| name.parse().ok())
}

/// `true` for a network controller.
pub(crate) fn is_network(sysfs: &Sysfs, address: PciAddress) -> bool {
    let class = Sysfs::text(&sysfs.pci(address).join("class"));
    class.is_some_and(|class| class.starts_with(NETWORK_CLASS))
}

/// A number in an attribute of a function.
pub(crate) fn number<T: FromStr>(sysfs: &Sysfs, address: PciAddress, name: &str) -> Option<T> {
    Sysfs::number(&sysfs.pci(address).join(name))
}

/// Directory of a function's interface. In switchdev mode a PF has the representors as well, which
/// have names of ports such as `pf0vf1`.
pub(crate) fn interface_directory(sysfs: &Sysfs, address: PciAddress) -> Option<PathBuf> {
    let is_representor = |net: &PathBuf| {
        Sysfs::text(&net.join("phys_port_name"))
            .is_some_and(|port| port.starts_with("pf") || port.starts_with('c'))
    };
    let all = Sysfs::interfaces(&sysfs.pci(address));
    all.into_iter().find(|net| !is_representor(net))
}

/// Name and index of a function's interface.
pub(crate) fn interface(sysfs: &Sysfs, address: PciAddress) -> Option<(String, u32)> {
    let net = interface_directory(sysfs, address)?;
    let name = net.file_name()?.to_str()?.to_owned();
    Some((name, Sysfs::number(&net.join("ifindex"))?))
}

/// Address of a VF by its index; `None` if it is not enabled.
pub fn vf(sysfs: &Sysfs, pf: PciAddress, index: u16) -> Option<PciAddress> {
    Sysfs::target(&sysfs.pci(pf).join(format!("virtfn{index}")))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_interface_of_a_pf_is_none_of_its_representors() {
        let dir = tempfile::tempdir().unwrap();
        let (sysfs, pf) = (Sysfs::at(dir.path()), "0000:01:00.0".parse().unwrap());
        assert_eq!(interface(&sysfs, pf), None);
        for (name, port, index) in
            [("a0", "pf0vf0", "7"), ("b0", "c1pf0vf1", "8"), ("c0", "p0", "9")]
        {
            let net = sysfs.pci(pf).join("net").join(name);
            fs::create_dir_all(&net).unwrap();
            fs::write(net.join("phys_port_name"), port).unwrap();
            fs::write(net.join("ifindex"), index).unwrap();
        }
        assert_eq!(interface(&sysfs, pf), Some(("c0".to_owned(), 9)));
    }

    #[test]
    fn the_name_of_an_interface_leads_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::at(dir.path());
        for path in ["class/net/eth0", "class/net/eth1", "0000:01:00.0/virtio3"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        for path in ["class/net/eth0/device", "class/net/device", "class/device"] {
            symlink(dir.path().join("0000:01:00.0"), dir.path().join(path)).unwrap();
        }
        let virtio = dir.path().join("class/net/eth1/device");
        symlink("../../../0000:01:00.0/virtio3", virtio).unwrap();
        for name in ["eth0", "eth1"] {
            assert_eq!(of_interface(&sysfs, name), "0000:01:00.0".parse().ok());
        }
        for name in ["", ".", "..", "../..", "eth0/../eth0", "lo"] {
            assert_eq!(of_interface(&sysfs, name), None, "{name}");
        }
    }
}
