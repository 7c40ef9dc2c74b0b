//! Where in the document something comes from, so that a table's error names the field.

use model::state::Problem;
use nic::PortId;
use nic::{ConfigError, Field};

use super::function::Owner;

/// Whose settings each port of a NIC has, and where each filter comes from.
#[derive(Debug, Default)]
pub(super) struct Origins<'a> {
    /// By port: functions and queues.
    pub(super) owners: Vec<(PortId, Owner<'a>)>,
    /// By filter: the field of its address.
    pub(super) filters: Vec<String>,
    /// By the table's rule: which of the document's it is.
    pub(super) rules: Vec<usize>,
    /// The entry of the NIC.
    pub(super) nic: String,
}

impl Origins<'_> {
    fn owner(&self, port: PortId) -> Option<&Owner<'_>> {
        self.owners.iter().find(|(is, _)| *is == port).map(|(_, owner)| owner)
    }

    /// The field that has an address.
    fn address(&self, port: PortId, field: Field) -> String {
        let index = match field {
            Field::Mac => 0,
            Field::ExtraMac(index) => 1 + index,
            Field::Filter(index) => {
                return self.filters.get(index).unwrap_or(&self.nic).clone();
            }
            Field::GuestMac(_) => usize::MAX,
        };
        let mac = self.owner(port).and_then(|owner| owner.macs.get(index));
        mac.map_or_else(|| self.nic.clone(), |(_, field)| field.clone())
    }

    fn settings(&self, port: PortId, field: &str) -> String {
        match self.owner(port) {
            Some(owner) => format!("{}.{field}", owner.at),
            None => self.nic.clone(),
        }
    }

    /// What a NIC's table refuses. The document was checked, so what is left is what shows only
    /// when all is put together.
    pub(super) fn problem(&self, error: ConfigError) -> Problem {
        match error {
            ConfigError::DuplicateMac { port, field, mac, vid, other, other_field } => {
                let other = self.address(other, other_field);
                twice(self.address(port, field), &mac.to_string(), vid, &other)
            }
            ConfigError::TooManyMacs { port, macs } => {
                let error = format!("bring the addresses of the NIC to {macs}");
                let allowed = format!("leave some out; {} is the most", nic::MAX_MACS);
                Problem::new(self.settings(port, "macs"), (), error, allowed)
            }
            ConfigError::TooManyAddresses { port, addresses } => {
                let error =
                    format!("bring the pairs of address and VLAN of the NIC to {addresses}");
                let allowed = format!("leave VLANs out; {} is the most", nic::MAX_ADDRESSES);
                Problem::new(self.settings(port, "trunks"), (), error, allowed)
            }
            ConfigError::TooManyFilters { filters, others } => {
                let error = format!(
                    "has {} pairs of address and VLAN with those behind its switch",
                    filters + others
                );
                let allowed =
                    format!("leave VLANs of trunks out; {} is the most", nic::MAX_ADDRESSES);
                Problem::new(self.nic.clone(), (), error, allowed)
            }
            ConfigError::Switchdev { port, field } => {
                let error = "is of the NIC's own bridge, which there is none of in switchdev mode";
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

/// An address that two have in one VLAN, 0 for none; `other` is the field of who had it first.
pub(super) fn twice(field: String, mac: &str, vid: u16, other: &str) -> Problem {
    let error = match vid {
        0 => format!("is, without a tag, also the address in {other}"),
        vid => format!("is in VLAN {vid} also the address in {other}"),
    };
    Problem::new(field, mac, error, "choose another")
}
