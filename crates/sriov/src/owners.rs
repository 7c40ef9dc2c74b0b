//! VFs in use, which must not vanish.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::address::PciAddress;
use crate::driver::VFIO_PCI;
use crate::error::{OwnedBy, VfOwner};
use crate::pf;
use crate::sysfs::Sysfs;

/// Directory of the devices of VFIO.
const VFIO_DEVICES: &str = "/dev/vfio";

/// VFs of a PF in use: by a process through vfio-pci, or with the interface in another network
/// namespace than sysfs shows. Needs the rights to open devices of VFIO, and to see the open files
/// of processes.
pub(crate) fn owners(sysfs: &Sysfs, pf: PciAddress) -> Vec<VfOwner> {
    owners_with(sysfs, Path::new(VFIO_DEVICES), pf)
}

/// `true` if a process has a VF open through vfio-pci, or that cannot be told.
pub(crate) fn is_open_by_vfio(sysfs: &Sysfs, vf: PciAddress) -> bool {
    owner(sysfs, Path::new(VFIO_DEVICES), vf) == Some(OwnedBy::Vfio)
}

fn owners_with(sysfs: &Sysfs, devices: &Path, pf: PciAddress) -> Vec<VfOwner> {
    let number: u16 = pf::number(sysfs, pf, "sriov_numvfs").unwrap_or(0);
    let owned = |vf: u16| Some(VfOwner { vf, by: owner(sysfs, devices, pf::vf(sysfs, pf, vf)?)? });
    (0..number).filter_map(owned).collect()
}

fn owner(sysfs: &Sysfs, devices: &Path, vf: PciAddress) -> Option<OwnedBy> {
    let function = sysfs.pci(vf);
    let driver = Sysfs::target(&function.join("driver"))?;
    if driver.replace('_', "-").ends_with(VFIO_PCI) {
        return is_open(devices, &function).then_some(OwnedBy::Vfio);
    }
    // Interfaces in other namespaces are not in the directory.
    let has_interface = !Sysfs::interface_directories(&function).is_empty();
    (has_interface && Sysfs::interfaces(&function).is_empty()).then_some(OwnedBy::Namespace)
}

/// `true` if a process has the function open through VFIO, or that cannot be told.
fn is_open(devices: &Path, function: &Path) -> bool {
    let group = vfio_group(function).map(|name| devices.join(name));
    let opened = group
        .as_ref()
        .map(|group| rustix::fs::open(group, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()));
    match opened {
        // Only one process may have a group open, and none with a device of it open by itself.
        Some(Ok(_)) => false,
        // A kernel without groups (CONFIG_VFIO_GROUP), or a group that this mount namespace lacks.
        None | Some(Err(Errno::NOENT)) => {
            let names = Sysfs::names(&function.join("vfio-dev"));
            let own = names.iter().map(|name| devices.join("devices").join(name));
            any_process_has(&own.chain(group).collect::<Vec<_>>())
        }
        Some(Err(_)) => true,
    }
}

/// Name of the device of a function's VFIO group.
fn vfio_group(function: &Path) -> Option<String> {
    let link = function.join("iommu_group");
    let number = Sysfs::target(&link)?;
    let no_iommu = Sysfs::text(&link.join("name")).is_some_and(|name| name == "vfio-noiommu");
    Some(if no_iommu { format!("noiommu-{number}") } else { number })
}

/// `true` if a process has one of these files open.
fn any_process_has(paths: &[PathBuf]) -> bool {
    let descriptors = |process: String| {
        let directory = Path::new("/proc").join(process).join("fd");
        Sysfs::names(&directory).into_iter().map(move |number| directory.join(number))
    };
    let mut files = Sysfs::names(Path::new("/proc")).into_iter().flat_map(descriptors);
    files.any(|file| std::fs::read_link(file).is_ok_and(|target| paths.contains(&target)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree with a PF whose VFs have these drivers; the PF's address.
    fn tree(root: &Path, drivers: &[Option<&str>]) -> (Sysfs, PciAddress) {
        let (sysfs, pf): (_, PciAddress) = (Sysfs::at(root), "0000:01:00.0".parse().unwrap());
        fs::create_dir_all(sysfs.pci(pf)).unwrap();
        fs::write(sysfs.pci(pf).join("sriov_numvfs"), drivers.len().to_string()).unwrap();
        for (index, driver) in drivers.iter().enumerate() {
            let vf = vf(index);
            let function = sysfs.pci(vf);
            fs::create_dir_all(&function).unwrap();
            symlink(format!("../{vf}"), sysfs.pci(pf).join(format!("virtfn{index}"))).unwrap();
            let group = format!("../../../../kernel/iommu_groups/no-{index}");
            symlink(group, function.join("iommu_group")).unwrap();
            if let Some(driver) = driver {
                symlink(format!("../../../bus/pci/drivers/{driver}"), function.join("driver"))
                    .unwrap();
            }
        }
        (sysfs, pf)
    }

    fn vf(index: usize) -> PciAddress {
        format!("0000:01:10.{index}").parse().unwrap()
    }

    #[test]
    fn a_vf_that_is_open_through_vfio_has_an_owner() {
        let dir = tempfile::tempdir().unwrap();
        let (sysfs, pf) = tree(dir.path(), &[Some("vfio-pci"), Some("mlx5_vfio_pci")]);
        let devices = dir.path().join("dev");
        fs::create_dir_all(devices.join("devices")).unwrap();
        let owned = || -> Vec<u16> {
            owners_with(&sysfs, &devices, pf).iter().map(|owner| owner.vf).collect()
        };
        assert_eq!(owned(), [0; 0], "no process has a device that is not there");
        // A group that opens is free; a directory stands for one that does not (EISDIR).
        fs::write(devices.join("no-0"), "").unwrap();
        fs::create_dir(devices.join("no-1")).unwrap();
        assert_eq!(owned(), [1]);
        // A kernel without groups.
        fs::remove_dir(devices.join("no-1")).unwrap();
        fs::create_dir_all(sysfs.pci(vf(1)).join("vfio-dev/vfio3")).unwrap();
        assert_eq!(owned(), [0; 0]);
        let opened = fs::File::create(devices.join("devices/vfio3")).unwrap();
        assert_eq!(owned(), [1]);
        drop(opened);
        assert_eq!(owned(), [0; 0]);
    }

    #[test]
    fn a_vf_whose_interface_is_not_to_be_seen_has_an_owner() {
        let dir = tempfile::tempdir().unwrap();
        let vfs = [Some("igbvf"), Some("igbvf"), Some("igbvf"), None, Some("vfio-pci")];
        let (sysfs, pf) = tree(dir.path(), &vfs);
        // Interfaces that drivers have made, one of them in this namespace.
        fs::create_dir_all(sysfs.pci(vf(0)).join("net")).unwrap();
        fs::create_dir_all(sysfs.pci(vf(1)).join("net/eth1")).unwrap();
        assert_eq!(owners(&sysfs, pf), [VfOwner { vf: 0, by: OwnedBy::Namespace }]);
    }
}
