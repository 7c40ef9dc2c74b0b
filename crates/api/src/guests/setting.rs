//! Settings that a guest requests for a VF, and those it has.

use std::fmt;

use model::state::{Adapter, GuestSetting, LinkState, MacText, Vlan, VlanProto};
use serde::{Deserialize, Serialize};

/// Requested change; absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingsChange {
    pub mac: Option<MacText>,
    /// Inner `None`: no VLAN.
    pub vlan: Option<Option<Vlan>>,
    /// 0: the host's rate.
    pub max_tx_mbps: Option<u32>,
    /// 0: the host's rate.
    pub min_tx_mbps: Option<u32>,
    pub spoof_check: Option<bool>,
    pub trust: Option<bool>,
    pub link_state: Option<LinkState>,
}

impl SettingsChange {
    /// Rights that the change needs.
    pub fn settings(&self) -> impl Iterator<Item = GuestSetting> {
        let rate = self.max_tx_mbps.is_some() || self.min_tx_mbps.is_some();
        [
            (self.mac.is_some(), GuestSetting::Mac),
            (self.vlan.is_some(), GuestSetting::Vlan),
            (rate, GuestSetting::Rate),
            (self.spoof_check.is_some(), GuestSetting::SpoofCheck),
            (self.trust.is_some(), GuestSetting::Trust),
            (self.link_state.is_some(), GuestSetting::LinkState),
        ]
        .into_iter()
        .filter_map(|(wanted, setting)| wanted.then_some(setting))
    }

    /// `true` if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.settings().next().is_none()
    }
}

impl fmt::Display for SettingsChange {
    /// ` mac 02:00:00:00:00:01 vlan 100`, with a space before each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |word: bool| if word { "on" } else { "off" };
        if let Some(mac) = self.mac {
            write!(f, " mac {mac}")?;
        }
        match self.vlan {
            Some(Some(Vlan { id, qos, proto })) => {
                let proto = if proto == VlanProto::Dot1ad { " proto 802.1ad" } else { "" };
                write!(f, " vlan {id} qos {qos}{proto}")?;
            }
            Some(None) => write!(f, " vlan 0")?,
            None => {}
        }
        let rates = [("max", self.max_tx_mbps), ("min", self.min_tx_mbps)];
        for (name, rate) in rates.into_iter().filter_map(|(name, rate)| Some((name, rate?))) {
            write!(f, " {name}_tx_rate {rate}")?;
        }
        for (name, word) in [("spoofchk", self.spoof_check), ("trust", self.trust)] {
            word.map_or(Ok(()), |word| write!(f, " {name} {}", on(word)))?;
        }
        match self.link_state {
            Some(LinkState::Auto) => f.write_str(" state auto"),
            Some(LinkState::Enable) => f.write_str(" state enable"),
            Some(LinkState::Disable) => f.write_str(" state disable"),
            None => Ok(()),
        }
    }
}

/// One setting of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Set<T> {
    /// The guest's value.
    pub(super) to: T,
    /// The operator's value at that time. Once it differs, the guest's value is dropped.
    pub(super) host: T,
}

/// A guest's settings of a VF.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GuestVf {
    /// Adapter at the time of the change: with another adapter behind the VF the settings are
    /// dropped.
    #[serde(skip_serializing_if = "String::is_empty")]
    adapter: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<Set<MacText>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<Set<Option<Vlan>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tx_mbps: Option<Set<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_tx_mbps: Option<Set<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spoof_check: Option<Set<bool>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust: Option<Set<bool>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link_state: Option<Set<LinkState>>,
}

/// Stores a requested value; the host's own value removes it.
fn put<T: PartialEq + Copy>(place: &mut Option<Set<T>>, change: Option<T>, host: T) {
    if let Some(to) = change {
        *place = (to != host).then_some(Set { to, host });
    }
}

impl GuestVf {
    /// Adds a granted change; `host` is the adapter in the operator's document.
    pub(super) fn with(&self, change: &SettingsChange, host: &Adapter) -> GuestVf {
        let mut all = GuestVf { adapter: host.name.clone(), ..self.clone() };
        let settings = &host.settings;
        // A guest's "no limit" keeps the host's limit.
        let rate =
            |change: Option<u32>, host: u32| change.map(|mbps| if mbps == 0 { host } else { mbps });
        put(&mut all.mac, change.mac, host.mac);
        put(&mut all.vlan, change.vlan, settings.vlan);
        put(
            &mut all.max_tx_mbps,
            rate(change.max_tx_mbps, settings.max_tx_mbps),
            settings.max_tx_mbps,
        );
        put(
            &mut all.min_tx_mbps,
            rate(change.min_tx_mbps, settings.min_tx_mbps),
            settings.min_tx_mbps,
        );
        put(&mut all.spoof_check, change.spoof_check, settings.spoof_check);
        put(&mut all.trust, change.trust, settings.trust);
        put(&mut all.link_state, change.link_state, settings.link_state);
        all
    }

    /// The part still valid, as a change: the operator's values for the same adapter are those of
    /// that time.
    pub(super) fn holding(&self, host: &Adapter) -> SettingsChange {
        if !["", &host.name].contains(&self.adapter.as_str()) {
            return SettingsChange::default();
        }
        fn of<T: PartialEq + Copy>(set: Option<Set<T>>, host: T) -> Option<T> {
            set.filter(|set| set.host == host).map(|set| set.to)
        }
        let settings = &host.settings;
        SettingsChange {
            mac: of(self.mac, host.mac),
            vlan: of(self.vlan, settings.vlan),
            max_tx_mbps: of(self.max_tx_mbps, settings.max_tx_mbps),
            min_tx_mbps: of(self.min_tx_mbps, settings.min_tx_mbps),
            spoof_check: of(self.spoof_check, settings.spoof_check),
            trust: of(self.trust, settings.trust),
            link_state: of(self.link_state, settings.link_state),
        }
    }

    /// Copy of an adapter with these settings.
    pub(crate) fn upon(&self, adapter: &Adapter) -> Adapter {
        let mut adapter = adapter.clone();
        self.put_upon(&mut adapter);
        adapter
    }

    /// Applies the settings to an adapter.
    pub(super) fn put_upon(&self, adapter: &mut Adapter) {
        fn upon<T: Copy>(field: &mut T, set: Option<Set<T>>) {
            if let Some(set) = set {
                *field = set.to;
            }
        }
        upon(&mut adapter.mac, self.mac);
        let settings = &mut adapter.settings;
        upon(&mut settings.vlan, self.vlan);
        upon(&mut settings.max_tx_mbps, self.max_tx_mbps);
        upon(&mut settings.min_tx_mbps, self.min_tx_mbps);
        upon(&mut settings.spoof_check, self.spoof_check);
        upon(&mut settings.trust, self.trust);
        upon(&mut settings.link_state, self.link_state);
    }

    /// `true` without any settings.
    pub(super) fn is_empty(&self) -> bool {
        self.names().is_empty()
    }

    /// Names of the settings, as in the document.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let all = [
            ("mac", self.mac.is_some()),
            ("vlan", self.vlan.is_some()),
            ("max_tx_mbps", self.max_tx_mbps.is_some()),
            ("min_tx_mbps", self.min_tx_mbps.is_some()),
            ("spoof_check", self.spoof_check.is_some()),
            ("trust", self.trust.is_some()),
            ("link_state", self.link_state.is_some()),
        ];
        all.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect()
    }
}
