//! Maps errors of the NIC table to fields of the document.

use bridge::PortId;
use bridge::nic::{ConfigError, Field};
use model::state::Problem;

use super::function::FunctionEntry;

/// Origins of a NIC's settings in the document.
#[derive(Debug, Default)]
pub(super) struct Origins<'a> {
    /// Functions and queues, by port.
    pub(super) entries: Vec<(PortId, FunctionEntry<'a>)>,
    /// Field of the address, by filter.
    pub(super) filters: Vec<String>,
    /// Index of the document's rule, by rule of the table.
    pub(super) rules: Vec<usize>,
    /// Entry of the NIC.
    pub(super) nic: String,
}

impl Origins<'_> {
    fn entry(&self, port: PortId) -> Option<&FunctionEntry<'_>> {
        self.entries.iter().find(|(is, _)| *is == port).map(|(_, entry)| entry)
    }

    /// Field of an address.
    fn address(&self, port: PortId, field: Field) -> String {
        let index = match field {
            Field::Mac => 0,
            Field::ExtraMac(index) => 1 + index,
            Field::Filter(index) => {
                return self.filters.get(index).unwrap_or(&self.nic).clone();
            }
            Field::GuestMac(_) => usize::MAX,
        };
        let mac = self.entry(port).and_then(|entry| entry.macs.get(index));
        mac.map_or_else(|| self.nic.clone(), |(_, field)| field.clone())
    }

    fn settings(&self, port: PortId, field: &str) -> String {
        match self.entry(port) {
            Some(entry) => format!("{}.{field}", entry.at),
            None => self.nic.clone(),
        }
    }

    /// Error of the NIC table. The document is valid, so only errors of the combined settings
    /// remain.
    pub(super) fn problem(&self, error: ConfigError) -> Problem {
        match error {
            ConfigError::DuplicateMac { port, field, mac, vid, other, other_field } => {
                let other = self.address(other, other_field);
                twice(self.address(port, field), &mac.to_string(), vid, &other)
            }
            ConfigError::TooManyMacs { port, macs } => {
                let error = format!("bring the addresses of the NIC to {macs}");
                let allowed = format!("leave some out; {} is the most", bridge::nic::MAX_MACS);
                Problem::new(self.settings(port, "macs"), (), error, allowed)
            }
            ConfigError::TooManyAddresses { port, addresses } => {
                let error =
                    format!("bring the pairs of address and VLAN of the NIC to {addresses}");
                let allowed =
                    format!("leave VLANs out; {} is the most", bridge::nic::MAX_ADDRESSES);
                Problem::new(self.settings(port, "trunks"), (), error, allowed)
            }
            ConfigError::TooManyFilters { filters, others } => {
                let error = format!(
                    "has {} pairs of address and VLAN with those behind its switch",
                    filters + others
                );
                let allowed = format!(
                    "leave VLANs of trunks out; {} is the most",
                    bridge::nic::MAX_ADDRESSES
                );
                Problem::new(self.nic.clone(), (), error, allowed)
            }
            ConfigError::Switchdev { port, field } => {
                let error = "needs the NIC's own bridge, which switchdev mode does not have";
                Problem::new(self.settings(port, field), (), error, "leave it out".to_owned())
            }
            ConfigError::Rule { rule, field, value, allowed } => {
                let rule = self.rules.get(rule).copied().unwrap_or(rule);
                let field = format!("{}.rule[{rule}].{}", self.nic, super::acl::field(field));
                Problem::new(field, value, "cannot be", format!("write {allowed}"))
            }
            other => Problem::new(self.nic.clone(), (), other.to_string(), "correct it"),
        }
    }
}

/// An address used twice in one VLAN, 0 for none; `other` is the field of the first use.
pub(super) fn twice(field: String, mac: &str, vid: u16, other: &str) -> Problem {
    let error = match vid {
        0 => format!("is, without a tag, also the address in {other}"),
        vid => format!("is in VLAN {vid} also the address in {other}"),
    };
    Problem::new(field, mac, error, "choose another")
}
