//! PCI NICs of this machine, as `shunt nic` lists and shows them.
//!
//! Model: the facts come from this machine or from a file of `shunt doctor --report`. A NIC that no
//! daemon manages is an entry of the list too, so that one list has all NICs.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};
use sriov::discovery::{Listing, details};
use sriov::facts::{Facts, NicFacts};

use crate::doctor::report::Report;
use crate::error::UsageError;
use crate::flat::Fields;
use crate::text::{cell, of_stdout, table};

/// NicsOf whose PCI NICs are shown.
#[derive(Debug, clap::Args)]
pub(super) struct NicsOf {
    /// File of `shunt doctor --report`: show the PCI NICs of that machine instead.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

impl NicsOf {
    /// Returns `true` if it is this machine, which may run a daemon.
    pub(super) fn is_this(&self) -> bool {
        self.from.is_none()
    }

    pub(super) fn facts(&self) -> Result<Facts> {
        match &self.from {
            Some(file) => Ok(Report::read(file)?.pci),
            None => Ok(crate::doctor::pci_facts()),
        }
    }
}

/// Fields of a PCI NIC, which all entries of the list have.
pub(super) fn with_fields(fields: Fields) -> Fields {
    fields
        .and([
            "managed",
            "pci.acs",
            "pci.address",
            "pci.driver",
            "pci.driver_version",
            "pci.eswitch_mode",
            "pci.firmware",
            "pci.id",
            "pci.interface",
            "pci.iommu_group",
            "pci.link",
            "pci.mac",
            "pci.mtu",
            "pci.num_vfs",
            "pci.numa_node",
            "pci.passthrough",
            "pci.speed_mbps",
            "pci.support",
            "pci.total_vfs",
        ])
        .and_array("pci.remedies")
        .and_array("pci.vf_drivers")
}

/// Entry of a PCI NIC that no daemon manages. Its name is what `shunt nic show` takes.
pub(super) fn entry(listing: &Listing) -> Value {
    json!({
        "name": name(listing),
        "kind": "pci",
        "managed": false,
        "num_vfs": listing.num_vfs,
        "total_vfs": listing.total_vfs,
        "pci": listing,
    })
}

fn name(listing: &Listing) -> String {
    listing.interface.clone().unwrap_or_else(|| listing.address.to_string())
}

/// Table of PCI NICs.
pub(crate) fn listed(listings: &[Listing]) -> String {
    let row = |listing: &Listing| {
        let text = |value: &Option<String>| cell(&json!(value));
        let vfs = match (listing.num_vfs, listing.total_vfs) {
            (Some(enabled), Some(total)) => format!("{enabled}/{total}"),
            _ => "-".to_owned(),
        };
        [
            text(&listing.interface),
            listing.address.to_string(),
            text(&listing.driver),
            text(&listing.link_and_speed()),
            vfs,
            cell(&json!(listing.numa_node)),
            text(&listing.eswitch_mode),
            listing.verdict(),
        ]
    };
    let header = ["NIC", "address", "driver", "link", "VFs", "NUMA", "eswitch", "SR-IOV"];
    table(header, listings.iter().map(row).collect())
}

/// The NIC with this interface or address.
pub(super) fn find<'a>(facts: &'a Facts, name: &str) -> Option<&'a NicFacts> {
    facts.nics.iter().find(|nic| nic.is_named(name))
}

/// The error of a name that no PCI NIC has.
pub(super) fn unknown(facts: &Facts, name: &str) -> UsageError {
    let names: Vec<String> = Listing::all(facts).iter().map(self::name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let message = "is no PCI NIC, and no daemon was asked for its NICs";
    UsageError::meant("<NIC>", name, message, names.iter().copied(), &names)
}

/// Facts about a NIC: as JSON, or as headings and values.
pub(super) fn shown(facts: &Facts, nic: &NicFacts, as_json: bool) -> String {
    if as_json {
        let listing = Listing::of(&facts.platform, nic);
        let told = json!({"pci": listing, "facts": nic, "platform": facts.platform});
        return format!("{told:#}\n");
    }
    let all = details(&facts.platform, nic);
    let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, &**value)).collect();
    of_stdout().fields(&all)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_part_of_a_listing_is_a_declared_field() {
        let listing = Listing {
            address: "0000:01:00.0".parse().unwrap(),
            interface: None,
            driver: None,
            driver_version: None,
            firmware: None,
            id: "8086:10c9".to_owned(),
            mac: None,
            link: None,
            speed_mbps: None,
            mtu: None,
            numa_node: None,
            iommu_group: None,
            acs: None,
            eswitch_mode: None,
            num_vfs: Some(2),
            total_vfs: Some(7),
            vf_drivers: Vec::new(),
            support: None,
            passthrough: None,
            remedies: Vec::new(),
        };
        let entry = entry(&listing);
        assert_eq!((&entry["name"], &entry["num_vfs"]), (&json!("0000:01:00.0"), &json!(2)));
        let parts: BTreeSet<String> =
            entry["pci"].as_object().unwrap().keys().map(|key| format!("pci.{key}")).collect();
        let fields = with_fields(Fields::of("Nic"));
        let declared = fields.names().filter(|name| name.starts_with("pci."));
        assert_eq!(declared.map(str::to_owned).collect::<BTreeSet<_>>(), parts);
    }
}
