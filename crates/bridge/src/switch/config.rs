//! Configuration of a switch, and its validation.

use std::collections::HashMap;

use wire::{Mac, Vid};

use crate::PortId;
use crate::switch::error::ensure;
use crate::switch::{
    Acl, ConfigError, ErrorLocation, MAX_PORTS, MAX_RULES, Native, Tagging, VidSet, Vlans,
};

/// Maximum number of static entries of a switch.
pub const MAX_STATICS: usize = 8192;
/// Maximum number of mirrors of a switch; a mask of them has 32 bits.
pub const MAX_MIRRORS: usize = 32;
/// Maximum limit of storm control, frames a second.
pub const MAX_RATE: u32 = 10_000_000;

/// The settings of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchConfig {
    /// By number, the uplink first; `None` where there is no port.
    pub ports: Vec<Option<PortConfig>>,
    /// Addresses that are known without being learned.
    pub statics: Vec<StaticEntry>,
    /// The lists that ports refer to.
    pub acls: Vec<Acl>,
    /// Mirrors.
    pub mirrors: Vec<SwitchMirror>,
}

/// The settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The VLANs whose frames may come and go here.
    pub vlans: Vlans,
    /// The tag that its untagged frames get.
    pub tagging: Tagging,
    /// Learning of its addresses.
    pub learning: Learning,
    /// Isolated from all other isolated ports.
    pub isolated: bool,
    /// Receives unknown unicast.
    pub flood_unknown: bool,
    /// Storm control of its frames.
    pub storm: Storm,
    /// Index in [`SwitchConfig::acls`] of the list for its frames.
    pub acl: Option<usize>,
    /// DHCP guard: drops DHCP server messages.
    pub dhcp_guard: bool,
    /// Router guard: drops router messages.
    pub router_guard: bool,
}

impl PortConfig {
    /// A guest's port in one VLAN, or in the untagged network: 64 addresses, nothing filtered.
    pub const fn access(vlan: Option<Vid>) -> Self {
        Self {
            vlans: Vlans::Access(vlan),
            tagging: Tagging { qos: 0, service: false },
            learning: Learning { limit: 64, beyond: Beyond::Forward },
            isolated: false,
            flood_unknown: true,
            storm: Storm { broadcast: None, multicast: None, unknown: None },
            acl: None,
            dhcp_guard: false,
            router_guard: false,
        }
    }

    /// An uplink: every VLAN, and addresses up to the capacity.
    pub fn uplink() -> Self {
        Self {
            vlans: Vlans::Trunk { allowed: VidSet::all(), native: Native::Untagged },
            learning: Learning { limit: u32::MAX, beyond: Beyond::Forward },
            ..Self::access(None)
        }
    }
}

/// Limit of a port's addresses, without static entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learning {
    /// Maximum number; at 0 nothing is learned.
    pub limit: u32,
    /// Action for frames from further addresses.
    pub beyond: Beyond,
}

/// Action for a frame from an address that is unknown and cannot be learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// The frame passes; frames to its address are flooded.
    Forward,
    /// The frame is dropped. With a limit of 0 only static entries may send.
    Drop,
}

/// Limits of storm control, frames a second; `None` for no limit, 0 to drop all.
///
/// After a pause a port may send a tenth of a second's frames at once, at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Storm {
    /// Frames to `ff:ff:ff:ff:ff:ff`.
    pub broadcast: Option<u32>,
    /// Frames to other groups.
    pub multicast: Option<u32>,
    /// Frames to unknown addresses.
    pub unknown: Option<u32>,
}

/// An address that is known without being learned, and that no other port may send from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticEntry {
    /// The address.
    pub mac: Mac,
    /// Its VLAN; `None` for the untagged network.
    pub vlan: Option<Vid>,
    /// The port it is behind.
    pub port: PortId,
}

/// Copies of some ports' frames for another port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchMirror {
    /// Port that receives the copies.
    pub to: PortId,
    /// Ports whose sent frames are copied.
    pub ingress: Vec<PortId>,
    /// Ports whose received frames are copied.
    pub egress: Vec<PortId>,
}

impl SwitchConfig {
    /// Every port that there is.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (PortId, &PortConfig)> {
        let all = (0..).map(PortId).zip(&self.ports);
        all.filter_map(|(port, config)| Some((port, config.as_ref()?)))
    }

    pub(crate) fn port(&self, port: PortId) -> Option<&PortConfig> {
        self.ports.get(port.index())?.as_ref()
    }

    /// Checks everything.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let count = self.ports.len();
        ensure!(
            count <= MAX_PORTS,
            ErrorLocation::Switch,
            "ports",
            format_args!("{count} ports"),
            format_args!("up to {MAX_PORTS}")
        );
        for (port, config) in self.ports() {
            self.check_port(ErrorLocation::Port(port), config)?;
        }
        self.check_statics()?;
        self.check_mirrors()?;
        let rules: usize = self.acls.iter().map(|acl| acl.rules.len()).sum();
        ensure!(
            rules <= MAX_RULES,
            ErrorLocation::Switch,
            "acls",
            format_args!("{rules} rules in all lists"),
            format_args!("up to {MAX_RULES}")
        );
        for (index, acl) in self.acls.iter().enumerate() {
            acl.check(index)?;
        }
        Ok(())
    }

    fn check_port(&self, place: ErrorLocation, config: &PortConfig) -> Result<(), ConfigError> {
        let lists = self.acls.len();
        if let Some(acl) = config.acl {
            let allowed = format_args!("a list of the switch's {lists}, counted from 0");
            ensure!(acl < lists, place, "acl", acl, allowed);
        }
        let Tagging { qos, service } = config.tagging;
        ensure!(qos <= 7, place, "tagging.qos", qos, "up to 7");
        let access = matches!(config.vlans, Vlans::Access(Some(_)));
        let allowed = "false, but for access ports of a VLAN";
        ensure!(access || !service, place, "tagging.service", service, allowed);
        let Storm { broadcast, multicast, unknown } = config.storm;
        for (field, rate) in [
            ("storm.broadcast", broadcast),
            ("storm.multicast", multicast),
            ("storm.unknown", unknown),
        ] {
            let rate = rate.unwrap_or(0);
            let allowed = format_args!("up to {MAX_RATE} frames a second, or none");
            ensure!(rate <= MAX_RATE, place, field, rate, allowed);
        }
        Ok(())
    }

    fn check_statics(&self) -> Result<(), ConfigError> {
        let count = self.statics.len();
        ensure!(
            count <= MAX_STATICS,
            ErrorLocation::Switch,
            "statics",
            format_args!("{count} static entries"),
            format_args!("up to {MAX_STATICS}")
        );
        let mut seen = HashMap::new();
        for (index, &StaticEntry { mac, vlan, port }) in self.statics.iter().enumerate() {
            let place = ErrorLocation::Static(index);
            let unicast = !mac.is_multicast() && !mac.is_zero();
            ensure!(unicast, place, "mac", mac, "a unicast address that is not zero");
            if let Some(other) = seen.insert((mac, vlan), index) {
                let value = format_args!("{mac}, as in {}", ErrorLocation::Static(other));
                return Err(ConfigError::new(place, "mac", value, "each once within a VLAN"));
            }
            let config = self.port(port);
            ensure!(config.is_some(), place, "port", port, "a port of the switch");
            let vid = vlan.map_or(0, Vid::get);
            let member = config.is_some_and(|config| config.vlans.contains(vid));
            let allowed = format_args!("a VLAN that {port} is a member of");
            ensure!(member, place, "vlan", vlan_name(vid), allowed);
        }
        Ok(())
    }

    fn check_mirrors(&self) -> Result<(), ConfigError> {
        let count = self.mirrors.len();
        ensure!(
            count <= MAX_MIRRORS,
            ErrorLocation::Switch,
            "mirrors",
            format_args!("{count} mirrors"),
            format_args!("up to {MAX_MIRRORS}")
        );
        let mut seen = HashMap::new();
        for (index, SwitchMirror { to, ingress, egress }) in self.mirrors.iter().enumerate() {
            let place = ErrorLocation::Mirror(index);
            let to_fields = std::iter::once(("to", to));
            let from = ingress.iter().map(|port| ("ingress", port));
            for (field, port) in to_fields.chain(from).chain(egress.iter().map(|p| ("egress", p))) {
                ensure!(self.port(*port).is_some(), place, field, port, "a port of the switch");
                let other = field == "to" || port != to;
                ensure!(other, place, field, port, "any port but the one that gets the copies");
            }
            if let Some(other) = seen.insert(*to, index) {
                let value = format_args!("{to}, as in {}", ErrorLocation::Mirror(other));
                return Err(ConfigError::new(place, "to", value, "one mirror for each port"));
            }
        }
        Ok(())
    }
}

fn vlan_name(vid: u16) -> String {
    if vid == 0 { "the untagged network".into() } else { vid.to_string() }
}
