//! Maps errors of the switch table to fields of the document.

use bridge::PortId;
use bridge::switch::{ConfigError, ErrorLocation, SwitchConfig};
use model::state::Problem;
use wire::Vid;

use super::acl;
use super::origin::twice;

/// Origins of a switch's settings in the document.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// `switch[0]`.
    pub(super) at: String,
    /// Field of the address, by static entry.
    pub(super) statics: Vec<String>,
    /// Field, by mirror.
    pub(super) mirrors: Vec<String>,
    /// Number and adapter entry, by port.
    pub(super) ports: Vec<(PortId, String)>,
    /// Adapter and port entry, by ACL.
    pub(super) acls: Vec<(String, String)>,
}

impl Fields {
    /// Error of the switch table, with the field of the document.
    pub(super) fn problem(&self, config: &SwitchConfig, error: ConfigError) -> Problem {
        let ConfigError { place, field, value, allowed } = error;
        let at = &self.at;
        let of = |fields: &[String], index: usize| fields.get(index).unwrap_or(at).clone();
        let found = match place {
            ErrorLocation::Switch => at.clone(),
            ErrorLocation::Port(port) => {
                let known = self.ports.iter().find(|(id, _)| *id == port);
                known.map_or(at, |(_, entry)| entry).clone()
            }
            ErrorLocation::Static(index) => of(&self.statics, index),
            ErrorLocation::Mirror(index) => of(&self.mirrors, index),
            ErrorLocation::Rule { acl, rule } => {
                let entry = self.acls.get(acl).map_or(at, |(_, entry)| entry);
                format!("{entry}.acl[{rule}].{}", acl::field(field))
            }
        };
        if let ErrorLocation::Static(index) = place
            && let Some((mac, other)) = self.twice(&value)
        {
            let vlan = config.statics.get(index).and_then(|entry| entry.vlan);
            return twice(found, mac, vlan.map_or(0, Vid::get), other);
        }
        let what = match (place, field) {
            (ErrorLocation::Switch, "statics") => {
                "of adapters' and VFs' addresses, one for each VLAN, are"
            }
            (ErrorLocation::Switch, "acls") => "are",
            (ErrorLocation::Switch, "mirrors") => "of adapters in the switch are",
            _ => "is",
        };
        let error = format!("{what} not what the switch takes");
        Problem::new(found, value, error, format!("allowed is {allowed}"))
    }

    /// Splits the error of a duplicate address; gives the address and the document's field of the
    /// other entry.
    fn twice<'v>(&'v self, value: &'v str) -> Option<(&'v str, &'v str)> {
        let (mac, other) = value.split_once(", as in statics[")?;
        let index: usize = other.trim_end_matches(']').parse().ok()?;
        Some((mac, self.statics.get(index)?))
    }
}
