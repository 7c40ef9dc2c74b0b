//! What a guest wants of a VF, and what it has of that.

use std::fmt;

use model::state::{Adapter, GuestSetting, LinkState, MacText, Vlan, VlanProto};
use serde::{Deserialize, Serialize};

/// What is to change; the rest stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    pub mac: Option<MacText>,
    /// Inside, `None` is for no VLAN.
    pub vlan: Option<Option<Vlan>>,
    /// 0 for what the host says.
    pub max_tx_mbps: Option<u32>,
    /// 0 for what the host says.
    pub min_tx_mbps: Option<u32>,
    pub spoof_check: Option<bool>,
    pub trust: Option<bool>,
    pub link_state: Option<LinkState>,
}

impl Wish {
    /// The rights that it takes.
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

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.settings().next().is_none()
    }
}

impl fmt::Display for Wish {
    /// ` mac 02:00:00:00:00:01 vlan 100`, with a blank before each.
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

/// One setting of a guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Set<T> {
    /// What the guest says.
    pub(super) to: T,
    /// What the operator's document said then. If it says something else, the guest's word has
    /// fallen.
    pub(super) host: T,
}

/// What a guest has set of a VF.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GuestVf {
    /// The adapter that it was set upon: with another behind the VF it falls.
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

/// Notes a wish; one for what the host says is none.
fn put<T: PartialEq + Copy>(place: &mut Option<Set<T>>, wish: Option<T>, host: T) {
    if let Some(to) = wish {
        *place = (to != host).then_some(Set { to, host });
    }
}

impl GuestVf {
    /// With a wish that is granted; `host` is the adapter as the operator has it.
    pub(super) fn with(&self, wish: &Wish, host: &Adapter) -> GuestVf {
        let mut all = GuestVf { adapter: host.name.clone(), ..self.clone() };
        let settings = &host.settings;
        // "No limit" of a guest's is none of its own: the host's stays.
        let rate =
            |wish: Option<u32>, host: u32| wish.map(|mbps| if mbps == 0 { host } else { mbps });
        put(&mut all.mac, wish.mac, host.mac);
        put(&mut all.vlan, wish.vlan, settings.vlan);
        put(
            &mut all.max_tx_mbps,
            rate(wish.max_tx_mbps, settings.max_tx_mbps),
            settings.max_tx_mbps,
        );
        put(
            &mut all.min_tx_mbps,
            rate(wish.min_tx_mbps, settings.min_tx_mbps),
            settings.min_tx_mbps,
        );
        put(&mut all.spoof_check, wish.spoof_check, settings.spoof_check);
        put(&mut all.trust, wish.trust, settings.trust);
        put(&mut all.link_state, wish.link_state, settings.link_state);
        all
    }

    /// What of it still holds, as a wish: the operator's document says of the same adapter what it
    /// said then.
    pub(super) fn holding(&self, host: &Adapter) -> Wish {
        if !["", &host.name].contains(&self.adapter.as_str()) {
            return Wish::default();
        }
        fn of<T: PartialEq + Copy>(set: Option<Set<T>>, host: T) -> Option<T> {
            set.filter(|set| set.host == host).map(|set| set.to)
        }
        let settings = &host.settings;
        Wish {
            mac: of(self.mac, host.mac),
            vlan: of(self.vlan, settings.vlan),
            max_tx_mbps: of(self.max_tx_mbps, settings.max_tx_mbps),
            min_tx_mbps: of(self.min_tx_mbps, settings.min_tx_mbps),
            spoof_check: of(self.spoof_check, settings.spoof_check),
            trust: of(self.trust, settings.trust),
            link_state: of(self.link_state, settings.link_state),
        }
    }

    /// An adapter with it.
    pub(crate) fn upon(&self, adapter: &Adapter) -> Adapter {
        let mut adapter = adapter.clone();
        self.put_upon(&mut adapter);
        adapter
    }

    /// Puts it upon an adapter.
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

    /// Whether the guest has set nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.names().is_empty()
    }

    /// The names of its settings, as the document has them.
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
