//! Where in the document the settings of a switch come from, so that the table's error names the
//! field.

use model::state::Problem;
use vswitch::{ConfigError, Place, PortId, SwitchConfig};
use wire::Vid;

use super::acl;
use super::origin::twice;

/// Where the settings of a switch come from.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// `switch[0]`.
    pub(super) at: String,
    /// By static entry: the field of its address.
    pub(super) statics: Vec<String>,
    /// By mirror: the field.
    pub(super) mirrors: Vec<String>,
    /// By port: its number and the adapter's entry.
    pub(super) ports: Vec<(PortId, String)>,
    /// By list of rules: whose port it is of, and the port's entry.
    pub(super) acls: Vec<(String, String)>,
}

impl Fields {
    /// What the switch's table refuses, with the document's field.
    pub(super) fn problem(&self, config: &SwitchConfig, error: ConfigError) -> Problem {
        let ConfigError { place, field, value, allowed } = error;
        let at = &self.at;
        let of = |fields: &[String], index: usize| fields.get(index).unwrap_or(at).clone();
        let found = match place {
            Place::Switch => at.clone(),
            Place::Port(port) => {
                let known = self.ports.iter().find(|(id, _)| *id == port);
                known.map_or(at, |(_, entry)| entry).clone()
            }
            Place::Static(index) => of(&self.statics, index),
            Place::Mirror(index) => of(&self.mirrors, index),
            Place::Rule { acl, rule } => {
                let entry = self.acls.get(acl).map_or(at, |(_, entry)| entry);
                format!("{entry}.acl[{rule}].{}", acl::field(field))
            }
        };
        if let Place::Static(index) = place
            && let Some((mac, other)) = self.twice(&value)
        {
            let vlan = config.statics.get(index).and_then(|entry| entry.vlan);
            return twice(found, mac, vlan.map_or(0, Vid::get), other);
        }
        let what = match (place, field) {
            (Place::Switch, "statics") => "of adapters' and VFs' addresses, one for each VLAN, are",
            (Place::Switch, "acls") => "are",
            (Place::Switch, "mirrors") => "of adapters in the switch are",
            _ => "is",
        };
        let error = format!("{what} not what the switch takes");
        Problem::new(found, value, error, format!("allowed is {allowed}"))
    }

    /// An address that the table has found twice, and the document's field of the other.
    fn twice<'v>(&'v self, value: &'v str) -> Option<(&'v str, &'v str)> {
        let (mac, other) = value.split_once(", as in statics[")?;
        let index: usize = other.trim_end_matches(']').parse().ok()?;
        Some((mac, self.statics.get(index)?))
    }
}
