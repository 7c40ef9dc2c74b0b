//! Lists of PCI NICs: one row for each, and all facts about one.
//!
//! # Model
//! [`Listing::of`] joins the facts of a NIC and its [`Support`] in one flat row, which tables and
//! programs show. [`details`] is the whole of it as headings and values for people. Both are
//! functions over [`Facts`], whatever machine these are of.

use model::state::Reason;
use serde::{Deserialize, Serialize};

use crate::PciAddress;
use crate::facts::{BridgeFacts, Facts, InterfaceFacts, NicFacts, Platform, VfFacts, ids};
use crate::support::{Obstacle, Support};

/// A PCI NIC in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    /// Address of the function.
    pub address: PciAddress,
    /// Interface of the PF; `None` without a driver or in another network namespace.
    pub interface: Option<String>,
    /// Driver.
    pub driver: Option<String>,
    /// Version of the driver.
    pub driver_version: Option<String>,
    /// Version of the card's firmware.
    pub firmware: Option<String>,
    /// Vendor and device, such as `8086:10c9`.
    pub id: String,
    /// MAC address of the interface.
    pub mac: Option<String>,
    /// Operational state of the interface: `up`, `down`, ...
    pub link: Option<String>,
    /// Speed of the link in Mbit/s.
    pub speed_mbps: Option<u64>,
    /// MTU of the interface in bytes.
    pub mtu: Option<u32>,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// IOMMU group.
    pub iommu_group: Option<u32>,
    /// `true` if all bridges above have Access Control Services; `None` if it is not known.
    pub acs: Option<bool>,
    /// Eswitch mode.
    pub eswitch_mode: Option<String>,
    /// Number of enabled VFs; `None` without SR-IOV.
    pub num_vfs: Option<u32>,
    /// Number of possible VFs; `None` without SR-IOV.
    pub total_vfs: Option<u32>,
    /// Drivers of the enabled VFs.
    pub vf_drivers: Vec<String>,
    /// `Supported`, the first reason against VFs, or `None` for a card without SR-IOV.
    pub support: Option<Reason>,
    /// The same for VFs in VMs.
    pub passthrough: Option<Reason>,
    /// Causes with their remedies, of both.
    pub remedies: Vec<String>,
}

impl Listing {
    /// Row of a NIC.
    pub fn of(platform: &Platform, nic: &NicFacts) -> Listing {
        let support = Support::of(platform, nic);
        let interface = nic.uplink();
        let versions = interface.and_then(|it| it.versions.as_ref());
        let told = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let vfs = nic.sriov.as_ref().filter(|_| support.is_pf);
        let mut vf_drivers: Vec<String> =
            vfs.into_iter().flat_map(|it| &it.vfs).filter_map(|vf| vf.driver.clone()).collect();
        vf_drivers.sort();
        vf_drivers.dedup();
        let all = support.vfs.iter().chain(&support.passthrough);
        Listing {
            address: nic.address,
            interface: interface.map(|it| it.name.clone()),
            driver: nic.driver.clone(),
            driver_version: nic
                .module_version
                .clone()
                .or_else(|| versions.and_then(|it| told(&it.version))),
            firmware: versions.and_then(|it| told(&it.firmware)),
            id: ids(&nic.vendor, &nic.device),
            mac: interface.and_then(|it| it.mac.clone()),
            link: interface.and_then(|it| it.operstate.clone()),
            speed_mbps: interface.and_then(InterfaceFacts::speed_mbps),
            mtu: interface.and_then(|it| it.mtu),
            numa_node: nic.numa_node.and_then(|node| node.try_into().ok()),
            iommu_group: nic.iommu_group.as_ref().map(|group| group.number),
            acs: nic.has_acs(),
            eswitch_mode: nic.eswitch_mode.clone(),
            num_vfs: vfs.and_then(|it| it.num_vfs),
            total_vfs: vfs.and_then(|it| it.total_vfs),
            vf_drivers,
            support: support.reason(&support.vfs),
            passthrough: support.reason(&support.passthrough),
            remedies: all.map(|it| format!("{}: {}; {}", it.reason, it.cause, it.remedy)).collect(),
        }
    }

    /// Rows of all NICs.
    pub fn all(facts: &Facts) -> Vec<Listing> {
        facts.nics.iter().map(|nic| Listing::of(&facts.platform, nic)).collect()
    }

    /// State and speed of the link: `up 25G`, `down`.
    pub fn link_and_speed(&self) -> Option<String> {
        let speed = match self.speed_mbps {
            None => String::new(),
            Some(mbps) if mbps % 1000 == 0 => format!(" {}G", mbps / 1000),
            Some(2500) => " 2.5G".to_owned(),
            Some(mbps) => format!(" {mbps}M"),
        };
        Some(format!("{}{speed}", self.link.as_ref()?))
    }

    /// Support in one cell: `yes`, a reason against VFs, `no` for a card without them, or `yes`
    /// with a reason against VFs in VMs.
    pub fn verdict(&self) -> String {
        match (self.support, self.passthrough) {
            (None, _) => "no".to_owned(),
            (Some(Reason::Supported), None | Some(Reason::Supported)) => "yes".to_owned(),
            (Some(Reason::Supported), Some(in_vms)) => format!("yes ({in_vms})"),
            (Some(reason), _) => reason.to_string(),
        }
    }
}

impl Support {
    fn reason(&self, obstacles: &[Obstacle]) -> Option<Reason> {
        let supported = self.is_pf.then_some(Reason::Supported);
        obstacles.first().map(|obstacle| obstacle.reason).or(supported)
    }
}

impl NicFacts {
    /// Interface of the wire: the first that is no representor.
    pub fn uplink(&self) -> Option<&InterfaceFacts> {
        let is_representor = |name: &str| name.contains("vf") || name.contains("sf");
        let is_wire =
            |it: &&InterfaceFacts| !it.phys_port_name.as_deref().is_some_and(is_representor);
        self.interfaces.iter().find(is_wire)
    }

    /// `true` if all bridges above have Access Control Services; `None` if it is not known.
    pub fn has_acs(&self) -> Option<bool> {
        let each: Vec<Option<bool>> = self.bridges.iter().map(BridgeFacts::has_acs).collect();
        match each.contains(&Some(false)) {
            true => Some(false),
            false if each.is_empty() || each.contains(&None) => None,
            false => Some(true),
        }
    }

    /// Returns `true` if a user's word names it: an interface or its address, with or without the
    /// domain.
    pub fn is_named(&self, name: &str) -> bool {
        let address = self.address.to_string();
        let is_address = address == name || address.strip_prefix("0000:") == Some(name);
        is_address || self.interfaces.iter().any(|interface| interface.name == name)
    }
}

impl BridgeFacts {
    fn has_acs(&self) -> Option<bool> {
        let config = self.config.as_ref().filter(|config| config.has_capabilities())?;
        Some(config.acs.is_some())
    }
}

impl InterfaceFacts {
    /// Speed of the link in Mbit/s, if there is one.
    pub fn speed_mbps(&self) -> Option<u64> {
        self.speed.and_then(|speed| speed.try_into().ok()).filter(|speed| *speed > 0)
    }
}

/// All about a NIC as headings and values; a dash stands for a fact that the kernel does not tell.
pub fn details(platform: &Platform, nic: &NicFacts) -> Vec<(&'static str, String)> {
    let row = Listing::of(platform, nic);
    let support = Support::of(platform, nic);
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let number = |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let versions = |name: &Option<String>, version: &Option<String>| match (name, version) {
        (Some(name), Some(version)) => format!("{name} {version}"),
        (name, _) => text(name),
    };
    let link = &nic.link;
    let lanes = |speed: &Option<String>, width: Option<u32>| match (speed, width) {
        (Some(speed), Some(width)) => format!("{speed} x{width}"),
        _ => "-".to_owned(),
    };
    let (now, most) = (lanes(&link.speed, link.width), lanes(&link.max_speed, link.max_width));
    let config = nic.config.as_ref();
    let mut all = vec![
        ("address", row.address.to_string()),
        ("interface", text(&row.interface)),
        (
            "id",
            format!("{} subsystem {}", row.id, ids(&nic.subsystem_vendor, &nic.subsystem_device)),
        ),
        ("driver", versions(&row.driver, &row.driver_version)),
        ("firmware", text(&row.firmware)),
        ("MAC address", text(&row.mac)),
        ("link", row.link_and_speed().unwrap_or_else(|| "-".to_owned())),
        ("MTU", number(row.mtu)),
        ("PCI Express", format!("{now}, at most {most}")),
        ("NUMA node", number(row.numa_node)),
        ("eswitch mode", text(&row.eswitch_mode)),
        (
            "IOMMU group",
            nic.iommu_group.as_ref().map_or("-".to_owned(), |group| {
                let others = group.others.join(", ");
                let with = if others.is_empty() { others } else { format!(", with {others}") };
                format!("{}{with}", group.number)
            }),
        ),
        (
            "bridges",
            match nic.bridges.is_empty() {
                true => "-".to_owned(),
                false => nic.bridges.iter().map(bridge).collect::<Vec<_>>().join(", "),
            },
        ),
    ];
    if config.is_some_and(|it| !it.has_capabilities() && !it.is_conventional()) {
        all.push(("note", "run as root to see ACS and the SR-IOV registers".to_owned()));
    }
    if let Some(sriov) = nic.sriov.as_ref().filter(|_| support.is_pf) {
        all.push(("VFs", format!("{} of {}", number(sriov.num_vfs), number(sriov.total_vfs))));
        let place = format!(
            "offset {}, stride {}, device {}",
            number(sriov.offset),
            number(sriov.stride),
            text(&sriov.vf_device)
        );
        all.push(("VF addresses", place));
        let probed = if sriov.drivers_autoprobe == Some(0) { "off" } else { "on" };
        all.push(("VF autoprobe", probed.to_owned()));
        all.extend(sriov.vfs.iter().map(|it| ("VF", vf(it))));
    }
    all.push(("SR-IOV", said(&support.vfs, support.is_pf)));
    if support.is_pf {
        all.push(("VFs in VMs", said(&support.passthrough, true)));
    }
    for obstacle in support.vfs.iter().chain(&support.passthrough) {
        all.push(("cause", format!("{}: {}", obstacle.reason, obstacle.cause)));
        all.push(("remedy", obstacle.remedy.clone()));
    }
    all
}

fn bridge(bridge: &BridgeFacts) -> String {
    let acs = match bridge.has_acs() {
        Some(true) => "ACS",
        Some(false) => "no ACS",
        None => "ACS unknown",
    };
    format!("{} ({acs})", bridge.address)
}

fn vf(vf: &VfFacts) -> String {
    let mut words = vec![format!("{} {}", vf.index, vf.address)];
    words.extend(vf.interfaces.iter().map(|it| it.name.clone()));
    words.push(vf.driver.clone().unwrap_or_else(|| "no driver".to_owned()));
    words.extend(vf.iommu_group.as_ref().map(|group| format!("IOMMU group {}", group.number)));
    words.join(", ")
}

/// Verdict of a list of obstacles.
fn said(obstacles: &[Obstacle], is_possible: bool) -> String {
    let codes: Vec<String> = obstacles.iter().map(|it| it.reason.to_string()).collect();
    match codes.is_empty() {
        true if is_possible => "yes".to_owned(),
        true => "no: the card shows no SR-IOV".to_owned(),
        false => format!("no: {}", codes.join(", ")),
    }
}
