//! VFs in use, which must not vanish.

use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::address::PciAddress;
use crate::driver::VFIO_PCI;
use crate::error::{OwnedBy, VfOwner};
use crate::pf;
use crate::sysfs::Sysfs;

/// VFs of a PF in use: by a process through vfio-pci, or with the interface in another network
/// namespace than sysfs shows. Needs the rights to open devices of VFIO.
pub(crate) fn owners(sysfs: &Sysfs, pf: PciAddress) -> Vec<VfOwner> {
    let number: u16 = pf::number(sysfs, pf, "sriov_numvfs").unwrap_or(0);
    let owned = |vf: u16| Some(VfOwner { vf, by: owner(sysfs, pf::vf(sysfs, pf, vf)?)? });
    (0..number).filter_map(owned).collect()
}

fn owner(sysfs: &Sysfs, vf: PciAddress) -> Option<OwnedBy> {
    let function = sysfs.pci(vf);
    let driver = Sysfs::target(&function.join("driver"))?;
    if driver.replace('_', "-").ends_with(VFIO_PCI) {
        return is_open(vfio_group(&function)?).then_some(OwnedBy::Vfio);
    }
    // Interfaces in other namespaces are not in the directory.
    let has_interface = !Sysfs::interface_directories(&function).is_empty();
    (has_interface && Sysfs::interfaces(&function).is_empty()).then_some(OwnedBy::Namespace)
}

/// Device of a function's VFIO group.
fn vfio_group(function: &std::path::Path) -> Option<PathBuf> {
    let link = function.join("iommu_group");
    let number = Sysfs::target(&link)?;
    let no_iommu = Sysfs::text(&link.join("name")).is_some_and(|name| name == "vfio-noiommu");
    let name = if no_iommu { format!("noiommu-{number}") } else { number };
    Some(PathBuf::from("/dev/vfio").join(name))
}

/// `true` if a process has the device open: only one may.
fn is_open(group: PathBuf) -> bool {
    let opened = rustix::fs::open(group, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    opened.is_err_and(|errno| errno == Errno::BUSY)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_vf_whose_interface_is_not_to_be_seen_has_an_owner() {
        let dir = tempfile::tempdir().unwrap();
        let (sysfs, pf): (_, PciAddress) = (Sysfs::at(dir.path()), "0000:01:00.0".parse().unwrap());
        fs::create_dir_all(sysfs.pci(pf)).unwrap();
        fs::write(sysfs.pci(pf).join("sriov_numvfs"), "5").unwrap();
        // Driver, and its interface if it has made one; none of a group is open here.
        let vfs = [
            (Some("igbvf"), Some("")),
            (Some("igbvf"), Some("eth1")),
            (Some("igbvf"), None),
            (None, None),
            (Some("vfio-pci"), None),
        ];
        for (index, (driver, interface)) in vfs.into_iter().enumerate() {
            let vf = format!("0000:01:10.{index}");
            let function = sysfs.pci(vf.parse().unwrap());
            fs::create_dir_all(&function).unwrap();
            symlink(format!("../{vf}"), sysfs.pci(pf).join(format!("virtfn{index}"))).unwrap();
            symlink("../../../../kernel/iommu_groups/no-group", function.join("iommu_group"))
                .unwrap();
            if let Some(driver) = driver {
                symlink(format!("../../../bus/pci/drivers/{driver}"), function.join("driver"))
                    .unwrap();
            }
            if let Some(interface) = interface {
                fs::create_dir_all(function.join("net").join(interface)).unwrap();
            }
        }
        assert_eq!(owners(&sysfs, pf), [VfOwner { vf: 0, by: OwnedBy::Namespace }]);
    }
}
