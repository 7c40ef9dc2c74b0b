//! Conditions for VFs of a NIC, and for giving these VFs to a VM.
//!
//! # Model
//! [`Support::of`] is a function over facts. VFs exist if the PF has a driver that enables them,
//! addresses for their registers and numbers for their bus. A container needs no more. A VM gets a
//! VF by vfio, which also needs an IOMMU, and bridges that do not pass frames of DMA from one
//! device to another (ACS). What is in force counts more than a rule: enabled VFs need no proof.
//!
//! # Sources
//! The rules are those of the kernel, whose messages are quoted beside them: `drivers/pci/iov.c`
//! (`sriov_init`, `sriov_enable`), `drivers/pci/pci-sysfs.c`, `drivers/iommu/iommu.c`
//! (`pci_device_group`), `drivers/acpi/pci_root.c` (`negotiate_os_control`), and
//! `Documentation/admin-guide/kernel-parameters.txt`. The codes are those of Windows'
//! `Get-NetAdapterSriov`.

use model::state::Reason;
use serde::{Deserialize, Serialize};

use crate::facts::{BridgeFacts, IommuGroup, NicFacts, Platform, SriovFacts, ids};

#[cfg(test)]
mod tests;

/// Line of the attribute `resource` with the first VF BAR.
const FIRST_VF_BAR: usize = 7;
/// Number of VF BARs.
const VF_BARS: usize = 6;
/// `IORESOURCE_UNSET` of the kernel: a resource without an address.
const UNSET: u64 = 0x2000_0000;
/// Drivers that hold a function for a program, and do not enable VFs.
const HOLDERS: [&str; 3] = ["pci-stub", "uio_pci_generic", "vfio-pci"];

/// Support of a NIC for VFs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Support {
    /// `true` if the kernel shows VFs that the function could have.
    pub is_pf: bool,
    /// Obstacles to VFs; none and `is_pf`: VFs can be used.
    pub vfs: Vec<Obstacle>,
    /// Obstacles to a VF in a VM, for a PF.
    pub passthrough: Vec<Obstacle>,
}

/// Reason against VFs, or against a VF in a VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Obstacle {
    /// Its code.
    pub reason: Reason,
    /// Cause on this machine.
    pub cause: String,
    /// Remedy on this machine.
    pub remedy: String,
}

fn obstacle(reason: Reason, cause: impl Into<String>, remedy: impl Into<String>) -> Obstacle {
    Obstacle { reason, cause: cause.into(), remedy: remedy.into() }
}

impl Support {
    /// Support of a NIC on a machine.
    pub fn of(platform: &Platform, nic: &NicFacts) -> Support {
        let pf = nic.sriov.as_ref().filter(|sriov| sriov.total_vfs.is_some_and(|total| total > 0));
        let Some(pf) = pf else {
            return Support {
                is_pf: false,
                vfs: without_capability(nic).into_iter().collect(),
                passthrough: Vec::new(),
            };
        };
        let vfs: Vec<Obstacle> = match pf.num_vfs {
            Some(1..) => Vec::new(),
            _ => {
                [driver(nic), addresses(nic), bus_numbers(nic, pf)].into_iter().flatten().collect()
            }
        };
        let passthrough = match iommu(platform, nic) {
            Some(no_iommu) => Some(no_iommu),
            None => isolation(nic, pf),
        };
        Support { is_pf: true, vfs, passthrough: passthrough.into_iter().collect() }
    }
}

/// Obstacle of a function for which the kernel has no `sriov_totalvfs`, or 0 in it; `None` if the
/// card just has no SR-IOV.
///
/// `sriov_init` ignores a capability whose TotalVFs is 0. Extended capabilities are only seen in a
/// configuration space of 4096 bytes ("can't access extended configuration space under this
/// bridge"); without one `negotiate_os_control` does not ask for `_OSC` ("not requesting OS
/// control").
fn without_capability(nic: &NicFacts) -> Option<Obstacle> {
    const OFF: &str = "switch SR-IOV on in the card's own settings: in the firmware setup at boot, or \
                       by the vendor's tool (mlxconfig SRIOV_EN, bnxtnvm, BootUtil)";
    if nic.sriov.is_some() {
        let cause = "the card or its driver offers 0 VFs";
        return Some(obstacle(Reason::Unknown, cause, OFF));
    }
    let config = nic.config.as_ref()?;
    let is_express = nic.link.max_width.is_some();
    if is_express && config.is_conventional() {
        let cause = "the kernel cannot reach the extended configuration space, where SR-IOV is";
        let remedy = "boot without pci=nommconf and acpi=off; else update the machine's firmware";
        return Some(obstacle(Reason::NoOscSupport, cause, remedy));
    }
    match config.sriov?.total_vfs {
        0 => {
            let cause = "the card has SR-IOV, with 0 VFs";
            Some(obstacle(Reason::Unknown, cause, OFF))
        }
        _ => {
            let cause = "the card has SR-IOV, but the kernel does not use it";
            let remedy = "use a kernel with CONFIG_PCI_IOV; dmesg has the reason of the kernel";
            Some(obstacle(Reason::Unknown, cause, remedy))
        }
    }
}

/// Obstacle in the PF's driver. Without one `sriov_numvfs` rejects each number ("driver does not
/// support SR-IOV configuration via sysfs").
fn driver(nic: &NicFacts) -> Option<Obstacle> {
    match nic.driver.as_deref() {
        None => {
            let id = ids(&nic.vendor, &nic.device);
            let remedy = format!(
                "load the driver of device {id} (lspci -nnk -s {} names it), or install the vendor's",
                nic.address
            );
            Some(obstacle(Reason::MissingPfDriver, "the PF has no driver", remedy))
        }
        Some(holder) if HOLDERS.contains(&holder) => {
            let cause = format!("the PF is held by {holder}, which enables no VFs");
            let remedy = format!("unbind {} from {holder} and bind its own driver", nic.address);
            Some(obstacle(Reason::MissingPfDriver, cause, remedy))
        }
        Some(_) => None,
    }
}

/// Obstacle in the VFs' registers. `sriov_enable` needs an address for each VF BAR: "not enough
/// MMIO resources for SR-IOV", ENOMEM.
fn addresses(nic: &NicFacts) -> Option<Obstacle> {
    let bars = nic.resource.iter().skip(FIRST_VF_BAR).take(VF_BARS);
    let bars: Vec<[u64; 3]> = bars.filter_map(|line| resource(line)).collect();
    if bars.len() < VF_BARS {
        return None; // a kernel without the attribute
    }
    let is_missing = |[start, _, flags]: &[u64; 3]| {
        let is_used = *flags != 0;
        is_used && (*start == 0 || flags & UNSET != 0)
    };
    let missing = bars.iter().filter(|bar| is_missing(bar)).count();
    let cause = match missing {
        0 if bars.iter().all(|[start, ..]| *start == 0) => {
            "the registers of the VFs have no address space".to_owned()
        }
        0 => return None,
        missing => format!("{missing} BARs of the VFs have no address space"),
    };
    let remedy = "boot with pci=realloc; if that is not enough, switch on \"Above 4G decoding\" (64-bit \
                  PCI addresses) in the machine's firmware setup";
    Some(obstacle(Reason::NoVfBarSpace, cause, remedy))
}

/// First address, last address and flags of a line of the attribute `resource`.
fn resource(line: &str) -> Option<[u64; 3]> {
    let mut words = line.split_whitespace().map(|word| {
        let digits = word.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    });
    Some([words.next()??, words.next()??, words.next()??])
}

/// Obstacle in the numbers of buses. The last VF must be on a bus below the bridge of its PF; else
/// `sriov_enable`: "can't enable %d VFs (bus %02x out of range of %pR)", in older kernels "SR-IOV:
/// bus number out of range", ENOMEM.
fn bus_numbers(nic: &NicFacts, pf: &SriovFacts) -> Option<Obstacle> {
    let highest = u32::from(
        nic.bridges.first().and_then(|BridgeFacts { subordinate_bus, .. }| *subordinate_bus)?,
    );
    let (total, offset, stride) = (pf.total_vfs?, pf.offset?, pf.stride?);
    let own = u32::from(nic.address.device) << 3 | u32::from(nic.address.function);
    let bus = |index: u32| {
        let distance = stride.saturating_mul(index).saturating_add(offset);
        u32::from(nic.address.bus).saturating_add(own.saturating_add(distance) >> 8)
    };
    let reachable = (0..total).take_while(|index| bus(*index) <= highest).count();
    if reachable == total as usize {
        return None;
    }
    let cause = format!(
        "bus numbers reach for {reachable} of {total} VFs: the last would be on bus {:02x}, and the \
         bridge above ends at {highest:02x}",
        bus(total - 1)
    );
    let remedy = "boot with pci=assign-busses; or use a slot directly below a root port";
    Some(obstacle(Reason::NoBusResources, cause, remedy))
}

/// Obstacle in the IOMMU. vfio gives only devices of an IOMMU group to a VM.
fn iommu(platform: &Platform, nic: &NicFacts) -> Option<Obstacle> {
    let reason = |cause: &str, remedy: &str| Some(obstacle(Reason::NoIoMmuSupport, cause, remedy));
    if platform.iommu_groups > 0 {
        return match nic.iommu_group {
            Some(_) => None,
            None => reason(
                "the NIC is behind no IOMMU",
                "use another slot; in a VM, one behind the virtual IOMMU",
            ),
        };
    }
    for (name, value) in [("intel_iommu", "off"), ("amd_iommu", "off"), ("iommu", "off")] {
        if platform.has_option(name, value) {
            let remedy = format!("boot without {name}={value}");
            return reason("the IOMMU is switched off on the kernel's command line", &remedy);
        }
    }
    let has = |table: &str| {
        let tables = platform.acpi_tables.iter().flatten();
        tables.clone().any(|one| one == table)
    };
    if has("DMAR") {
        let cause = "the machine has an IOMMU (DMAR), which the kernel does not use";
        return reason(cause, "boot with intel_iommu=on iommu=pt");
    }
    if has("IVRS") || has("IORT") || has("VIOT") {
        let cause = "the machine has an IOMMU, which the kernel does not use";
        return reason(cause, "boot with iommu=pt; dmesg tells why the kernel left it off");
    }
    let remedy = match platform.cpu_vendor.as_deref() {
        Some("AuthenticAMD") => {
            "switch on the IOMMU (AMD-Vi) in the machine's firmware setup, and boot with iommu=pt"
        }
        Some("GenuineIntel") => {
            "switch on VT-d in the machine's firmware setup, and boot with intel_iommu=on iommu=pt"
        }
        _ => "switch on the IOMMU in the machine's firmware setup",
    };
    let remedy = format!("{remedy}; a VM needs a virtual one, such as QEMU's -device intel-iommu");
    reason("the machine shows no IOMMU", &remedy)
}

/// Obstacle in the isolation of VFs. `pci_device_group` puts a device into one group with all that
/// it can reach without the IOMMU: below a bridge without ACS that is every function and the
/// bridge. vfio gives a group as a whole, or QEMU fails with "group %d is not viable".
fn isolation(nic: &NicFacts, pf: &SriovFacts) -> Option<Obstacle> {
    let groups: Vec<&IommuGroup> = pf.vfs.iter().filter_map(|vf| vf.iommu_group.as_ref()).collect();
    let shared = match groups.is_empty() {
        false => groups.into_iter().find(|group| !group.others.is_empty()),
        // Functions of the card itself say nothing about its VFs.
        true => nic.iommu_group.as_ref().filter(|group| {
            let slot = nic.address.to_string();
            let slot = slot.split_once('.').map_or(&*slot, |(slot, _)| slot);
            group.others.iter().any(|other| !other.starts_with(slot))
        }),
    }?;
    let lacking = nic.bridges.iter().find(|bridge| {
        bridge.config.as_ref().is_some_and(|it| it.has_capabilities() && it.acs.is_none())
    });
    let group = format!("IOMMU group {} has {}", shared.number, shared.others.join(", "));
    let cause = match lacking {
        Some(bridge) => format!("bridge {} has no ACS: {group} too", bridge.address),
        None => format!("{group} too"),
    };
    let remedy = "use a slot below another root port, or switch on ACS in the machine's firmware setup \
                  (pcie_acs_override only hides that devices can reach each other)";
    Some(obstacle(Reason::MissingAcs, cause, remedy))
}
