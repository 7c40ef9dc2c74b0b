//! Facts about PCI NICs, as the kernel reports them.
//!
//! # Model
//! [`Facts::read`] reads a [`Sysfs`] tree, and asks a [`Kernel`] for what is not in sysfs. The
//! facts are not judged here: [`crate::support`] and [`crate::discovery`] are functions over them.
//! They can be written as JSON and read back, so the facts of one machine are a test on another.
//!
//! # Limits
//! - A missing or unreadable file makes its fact `None` or empty, never an error.
//! - Only network controllers (PCI class 02) are read. A VF is a part of its PF's facts; in a VM,
//!   which has no PF, it is a function of its own.
//! - Serial numbers, host names and IP addresses are not read.
//!
//! Follows `Documentation/ABI/testing/sysfs-bus-pci`, `sysfs-class-net` and
//! `sysfs-kernel-iommu_groups` of Linux, and the PCI Express Base Specification 6.0, sections
//! 7.7.11 (ACS) and 9.3.3 (SR-IOV).

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{PciAddress, Sysfs, pf};

mod anonymous;
mod config;
mod kernel;
#[cfg(test)]
mod tests;

pub use anonymous::anonymised;
pub use config::{AcsRegisters, ConfigSpace, SriovRegisters};
pub use kernel::{InterfaceVersions, Kernel, ThisKernel};

/// PCI NICs of a machine at one moment, and what their VFs depend on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The machine below the NICs.
    pub platform: Platform,
    /// NICs, by address.
    pub nics: Vec<NicFacts>,
}

/// Facts about the machine that all its NICs depend on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    /// Options of the kernel's command line about PCI, IOMMU, hugepages and isolation of CPUs; the
    /// others may hold secrets.
    pub kernel_options: Vec<String>,
    /// Vendor of the CPUs, such as `GenuineIntel`.
    pub cpu_vendor: Option<String>,
    /// ACPI tables that describe IOMMUs and the extended configuration space: those of DMAR
    /// (Intel), IVRS (AMD), IORT (Arm), VIOT (virtio) and MCFG that the firmware has. `None` if the
    /// kernel does not show them.
    pub acpi_tables: Option<Vec<String>>,
    /// IOMMUs in use.
    pub iommus: Vec<String>,
    /// Number of IOMMU groups.
    pub iommu_groups: usize,
    /// Number of PCI Express services, such as AER and hot plug, that the kernel controls: not 0
    /// only if the firmware's `_OSC` let it.
    pub pcie_services: usize,
}

/// Facts about a NIC's PCI function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NicFacts {
    /// Its address.
    pub address: PciAddress,
    /// PCI class, such as `0x020000`.
    pub class: Option<String>,
    /// Vendor, such as `0x8086`.
    pub vendor: Option<String>,
    /// Device of that vendor.
    pub device: Option<String>,
    /// Vendor of the board.
    pub subsystem_vendor: Option<String>,
    /// Board of that vendor.
    pub subsystem_device: Option<String>,
    /// Driver; `None` if no driver is bound.
    pub driver: Option<String>,
    /// Version of the driver's module; drivers of the kernel have none.
    pub module_version: Option<String>,
    /// NUMA node; `None` or -1 on a machine with one node.
    pub numa_node: Option<i32>,
    /// IOMMU group.
    pub iommu_group: Option<IommuGroup>,
    /// PCI Express link; all `None` for a conventional PCI function.
    pub link: PcieLink,
    /// Lines of the attribute `resource`: first address, last address and flags. Lines 0 to 5 are
    /// the BARs, 6 the ROM, 7 to 12 the BARs of the VFs.
    pub resource: Vec<String>,
    /// Configuration space.
    pub config: Option<ConfigSpace>,
    /// Bridges above it, the nearest first, the root port last.
    pub bridges: Vec<BridgeFacts>,
    /// SR-IOV attributes; `None` if the kernel has none for it.
    pub sriov: Option<SriovFacts>,
    /// Network interfaces in this network namespace; in eswitch mode switchdev also the
    /// representors.
    pub interfaces: Vec<InterfaceFacts>,
    /// Eswitch mode, by devlink; `None` if the driver has none or does not tell.
    pub eswitch_mode: Option<String>,
}

/// IOMMU group of a PCI function: the smallest set of devices that can be given to a VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IommuGroup {
    /// Its number, which may change at a boot.
    pub number: u32,
    /// The other devices of the group.
    pub others: Vec<String>,
}

/// PCI Express link of a function, as the kernel writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PcieLink {
    /// Current speed, such as `8.0 GT/s PCIe`.
    pub speed: Option<String>,
    /// Speed that the function can have.
    pub max_speed: Option<String>,
    /// Current number of lanes.
    pub width: Option<u32>,
    /// Number of lanes that the function can have.
    pub max_width: Option<u32>,
}

/// Facts about a bridge above a NIC: a root port or a port of a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BridgeFacts {
    /// Its address.
    pub address: PciAddress,
    /// Vendor.
    pub vendor: Option<String>,
    /// Device of that vendor.
    pub device: Option<String>,
    /// Number of the bus below it.
    pub secondary_bus: Option<u8>,
    /// Highest number of a bus below it.
    pub subordinate_bus: Option<u8>,
    /// Configuration space.
    pub config: Option<ConfigSpace>,
}

/// SR-IOV attributes of a PF.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SriovFacts {
    /// Number of possible VFs, after the driver's limit.
    pub total_vfs: Option<u32>,
    /// Number of enabled VFs.
    pub num_vfs: Option<u32>,
    /// Distance from the PF to its first VF, in functions.
    pub offset: Option<u32>,
    /// Distance from a VF to the next.
    pub stride: Option<u32>,
    /// Device ID of the VFs, in hexadecimal digits.
    pub vf_device: Option<String>,
    /// 1 if the kernel looks for a driver of a new VF, 0 if not.
    pub drivers_autoprobe: Option<u32>,
    /// Enabled VFs, by index.
    pub vfs: Vec<VfFacts>,
}

/// Facts about a VF.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VfFacts {
    /// Index among the VFs of its PF.
    pub index: u32,
    /// Its address.
    pub address: PciAddress,
    /// Driver; `None` if no driver is bound.
    pub driver: Option<String>,
    /// IOMMU group.
    pub iommu_group: Option<IommuGroup>,
    /// Network interfaces in this network namespace.
    pub interfaces: Vec<InterfaceFacts>,
}

/// Facts about a network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceFacts {
    /// Its name.
    pub name: String,
    /// MAC address.
    pub mac: Option<String>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Operational state of RFC 2863, such as `up` or `down`.
    pub operstate: Option<String>,
    /// Carrier (1) or none (0); `None` while the interface is down.
    pub carrier: Option<u32>,
    /// Speed in Mbit/s; -1 or `None` if it is not known.
    pub speed: Option<i64>,
    /// Port of a switchdev NIC, such as `p0` for the wire and `pf0vf1` for a representor.
    pub phys_port_name: Option<String>,
    /// Driver and firmware, as the driver reports them.
    pub versions: Option<InterfaceVersions>,
}

impl Facts {
    /// The facts of a tree and its kernel.
    pub fn read(sysfs: &Sysfs, kernel: &dyn Kernel) -> Facts {
        let devices = sysfs.root().join("bus/pci/devices");
        let names = Sysfs::names(&devices).into_iter();
        let mut addresses: Vec<PciAddress> = names.filter_map(|name| name.parse().ok()).collect();
        addresses.sort();
        let is_nic = |address: &PciAddress| {
            let is_vf = sysfs.pci(*address).join("physfn").exists();
            pf::is_network(sysfs, *address) && !is_vf
        };
        let nics = addresses.into_iter().filter(is_nic);
        Facts {
            platform: Platform::read(sysfs, kernel),
            nics: nics.map(|address| NicFacts::read(sysfs, kernel, address)).collect(),
        }
    }
}

impl Platform {
    fn read(sysfs: &Sysfs, kernel: &dyn Kernel) -> Platform {
        const TABLES: [&str; 5] = ["DMAR", "IORT", "IVRS", "MCFG", "VIOT"];
        let tables = Sysfs::names(&sysfs.root().join("firmware/acpi/tables"));
        let tables = (!tables.is_empty()).then(|| {
            let known = tables.into_iter().filter(|name| TABLES.contains(&&**name));
            known.collect()
        });
        Platform {
            kernel_options: kernel.proc("cmdline").map_or_else(Vec::new, |line| options(&line)),
            cpu_vendor: kernel.proc("cpuinfo").and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("vendor_id"))?;
                Some(line.split_once(':')?.1.trim().to_owned())
            }),
            acpi_tables: tables,
            iommus: Sysfs::names(&sysfs.root().join("class/iommu")),
            iommu_groups: Sysfs::names(&sysfs.root().join("kernel/iommu_groups")).len(),
            pcie_services: Sysfs::names(&sysfs.root().join("bus/pci_express/devices")).len(),
        }
    }

    /// Returns `true` if the kernel's command line has this option, such as `intel_iommu=off`, or
    /// with several values between commas.
    pub fn has_option(&self, name: &str, value: &str) -> bool {
        let values = self.kernel_options.iter().filter_map(|option| option.split_once('='));
        values.filter(|(one, _)| *one == name).any(|(_, all)| all.split(',').any(|it| it == value))
    }
}

/// Options of a command line that matter for NICs and for CPUs of the data plane.
fn options(line: &str) -> Vec<String> {
    const BEGINNINGS: [&str; 5] = ["iommu.", "vfio", "kvm", "pcie_", "intel_iommu"];
    const NAMES: [&str; 13] = [
        "amd_iommu",
        "default_hugepagesz",
        "hugepages",
        "hugepagesz",
        "iommu",
        "irqaffinity",
        "isolcpus",
        "mitigations",
        "nohz_full",
        "pci",
        "rcu_nocbs",
        "swiotlb",
        "modprobe.blacklist",
    ];
    let is_known = |option: &&str| {
        let name = option.split('=').next().unwrap_or_default();
        NAMES.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
    };
    line.split_ascii_whitespace().filter(is_known).map(str::to_owned).collect()
}

impl NicFacts {
    fn read(sysfs: &Sysfs, kernel: &dyn Kernel, address: PciAddress) -> NicFacts {
        let at = sysfs.pci(address);
        let text = |name: &str| Sysfs::text(&at.join(name));
        let lines = text("resource").unwrap_or_default();
        NicFacts {
            address,
            class: text("class"),
            vendor: text("vendor"),
            device: text("device"),
            subsystem_vendor: text("subsystem_vendor"),
            subsystem_device: text("subsystem_device"),
            driver: Sysfs::target(&at.join("driver")),
            module_version: text("driver/module/version"),
            numa_node: Sysfs::number(&at.join("numa_node")),
            iommu_group: iommu_group(&at),
            link: PcieLink {
                speed: text("current_link_speed"),
                max_speed: text("max_link_speed"),
                width: Sysfs::number(&at.join("current_link_width")),
                max_width: Sysfs::number(&at.join("max_link_width")),
            },
            resource: lines.lines().map(str::to_owned).collect(),
            config: ConfigSpace::read(&at.join("config")),
            bridges: bridges(sysfs, address),
            sriov: at.join("sriov_totalvfs").exists().then(|| SriovFacts::read(sysfs, kernel, &at)),
            interfaces: interfaces(&at, kernel),
            eswitch_mode: kernel.eswitch_mode(address),
        }
    }
}

impl SriovFacts {
    fn read(sysfs: &Sysfs, kernel: &dyn Kernel, at: &Path) -> SriovFacts {
        let mut vfs: Vec<VfFacts> = Sysfs::names(at)
            .iter()
            .filter_map(|name| {
                let index = name.strip_prefix("virtfn")?.parse().ok()?;
                let address = Sysfs::target(&at.join(name))?.parse().ok()?;
                let vf = sysfs.pci(address);
                Some(VfFacts {
                    index,
                    address,
                    driver: Sysfs::target(&vf.join("driver")),
                    iommu_group: iommu_group(&vf),
                    interfaces: interfaces(&vf, kernel),
                })
            })
            .collect();
        vfs.sort_by_key(|vf| vf.index);
        SriovFacts {
            total_vfs: Sysfs::number(&at.join("sriov_totalvfs")),
            num_vfs: Sysfs::number(&at.join("sriov_numvfs")),
            offset: Sysfs::number(&at.join("sriov_offset")),
            stride: Sysfs::number(&at.join("sriov_stride")),
            vf_device: Sysfs::text(&at.join("sriov_vf_device")),
            drivers_autoprobe: Sysfs::number(&at.join("sriov_drivers_autoprobe")),
            vfs,
        }
    }
}

/// Bridges between a function and its root bus, from the path of its directory in sysfs.
fn bridges(sysfs: &Sysfs, address: PciAddress) -> Vec<BridgeFacts> {
    let whole = sysfs.pci(address).canonicalize().unwrap_or_default();
    let above = whole.ancestors().skip(1).map_while(|path| {
        let address = path.file_name()?.to_str()?.parse().ok()?;
        Some(BridgeFacts {
            address,
            vendor: Sysfs::text(&path.join("vendor")),
            device: Sysfs::text(&path.join("device")),
            secondary_bus: Sysfs::number(&path.join("secondary_bus_number")),
            subordinate_bus: Sysfs::number(&path.join("subordinate_bus_number")),
            config: ConfigSpace::read(&path.join("config")),
        })
    });
    above.collect()
}

fn iommu_group(at: &Path) -> Option<IommuGroup> {
    let number = Sysfs::target(&at.join("iommu_group"))?.parse().ok()?;
    let own = at.file_name()?.to_str()?;
    let devices = Sysfs::names(&at.join("iommu_group/devices")).into_iter();
    Some(IommuGroup { number, others: devices.filter(|name| name != own).collect() })
}

/// Interfaces of a function.
fn interfaces(at: &Path, kernel: &dyn Kernel) -> Vec<InterfaceFacts> {
    let all = Sysfs::interfaces(at).into_iter();
    all.filter_map(|net| InterfaceFacts::read(&net, kernel)).collect()
}

impl InterfaceFacts {
    fn read(at: &Path, kernel: &dyn Kernel) -> Option<InterfaceFacts> {
        let name = at.file_name()?.to_str()?.to_owned();
        Some(InterfaceFacts {
            mac: Sysfs::text(&at.join("address")),
            mtu: Sysfs::number(&at.join("mtu")),
            operstate: Sysfs::text(&at.join("operstate")),
            carrier: Sysfs::number(&at.join("carrier")),
            speed: Sysfs::number(&at.join("speed")),
            phys_port_name: Sysfs::text(&at.join("phys_port_name")),
            versions: kernel.versions(&name),
            name,
        })
    }
}

/// A decimal number in a file.
/// Vendor and device as `lspci -n` writes them: `8086:10c9`.
pub(crate) fn ids(vendor: &Option<String>, device: &Option<String>) -> String {
    let id = |text: &Option<String>| text.as_deref().unwrap_or("?").replace("0x", "");
    format!("{}:{}", id(vendor), id(device))
}
