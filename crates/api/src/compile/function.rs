//! Settings of functions: where they come from, and their form in the NIC table.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use bridge::nic::{PortVlan, Share, Vids, VlanProtocol};
use bridge::switch::Tagging;
use model::state::{
    Adapter, Allocation, FunctionName, LinkState, MacText, Nic, PortSettings, State, StaticEntry,
    Switch, Vf, Vlan, VlanProto,
};
use wire::{Mac, Vid};

use super::LiveLinks;

/// A NIC with everything attached to it.
#[derive(Debug)]
pub(super) struct NicScope<'a> {
    pub(super) state: &'a State,
    pub(super) nic: &'a Nic,
    /// `nic[0]`.
    pub(super) at: String,
    /// The switch on it, and `switch[0]`.
    pub(super) switch: Option<(&'a Switch, String)>,
    /// The adapters on it, in the document's order.
    pub(super) members: Vec<Member<'a>>,
    pub(super) uplink_up: bool,
    /// In switchdev mode: functions with an enabled representor.
    pub(super) representors_up: BTreeSet<FunctionName>,
}

/// An adapter of a NIC, and its allocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) adapter: &'a Adapter,
    pub(super) given: &'a Allocation,
    /// Its index in the document.
    pub(super) at: usize,
}

/// Settings of a VF without an entry.
static UNSET: LazyLock<PortSettings> = LazyLock::new(PortSettings::default);

/// Settings and addresses of a function, and their position in the document.
#[derive(Debug, Clone)]
pub(super) struct FunctionEntry<'a> {
    pub(super) settings: &'a PortSettings,
    /// Link state; in switchdev mode it follows the representor.
    pub(super) link: bridge::nic::LinkState,
    /// Entry with the settings: `adapter[2]` or `nic[0].vf[1]`.
    pub(super) at: String,
    /// Addresses with their fields; the primary address is first.
    pub(super) macs: Vec<(Mac, String)>,
    /// Name for messages and captures.
    pub(super) label: String,
}

impl FunctionEntry<'_> {
    /// The function for the NIC table, without its mirror.
    pub(super) fn function(&self) -> bridge::nic::Function {
        bridge::nic::Function {
            spoof_check: self.settings.spoof_check,
            trust: self.settings.trust,
            promiscuous: self.settings.promiscuous,
            share: self.share(),
            storm_limit: self.settings.storm_limit_pps,
            ..self.queue()
        }
    }

    /// The function for a receive queue: addresses, VLANs and link. Everything else is enforced on
    /// the adapter's transmit side.
    pub(super) fn queue(&self) -> bridge::nic::Function {
        let mut macs = self.macs.iter().map(|(mac, _)| *mac);
        let mut function = bridge::nic::Function::new(macs.next().unwrap_or_default());
        function.extra_macs = macs.collect();
        function.vlan = self.settings.vlan.and_then(port_vlan);
        function.trunk = self.settings.tagged().collect::<Vids>();
        function.link = self.link;
        function
    }

    /// Share of the transmit capacity.
    pub(super) fn share(&self) -> Share {
        let PortSettings { tx_weight, min_tx_mbps, max_tx_mbps, .. } = *self.settings;
        Share { weight: tx_weight, min_mbit: min_tx_mbps, max_mbit: max_tx_mbps }
    }

    /// VLAN tag for untagged frames, without the VLAN ID.
    pub(super) fn tagging(&self) -> Tagging {
        let tagging =
            |vlan: Vlan| Tagging { qos: vlan.qos, service: vlan.proto == VlanProto::Dot1ad };
        self.settings.vlan.map_or(Tagging::default(), tagging)
    }
}

impl<'a> NicScope<'a> {
    pub(super) fn new(
        state: &'a State,
        given: &'a [Allocation],
        live: &LiveLinks,
        at: usize,
    ) -> NicScope<'a> {
        let nic = &state.nics[at];
        let mut switches = state.switches.iter().enumerate();
        let switch = switches.find(|(_, switch)| switch.nic == nic.name);
        let adapters = state.adapters.iter().enumerate();
        // A guest on another host is not attached here, and its addresses are there.
        let on_it = adapters
            .filter(|(_, adapter)| !adapter.is_elsewhere())
            .filter(|(_, adapter)| state.nic_of(adapter).is_some_and(|on| on.name == nic.name));
        let up = live.representors_up.iter().filter(|(of, _)| *of == nic.name);
        let representors_up: BTreeSet<_> = up.map(|(_, function)| *function).collect();
        let member = |(at, adapter): (usize, &'a Adapter)| {
            // Both lists have the same order; search only if not.
            let same = |one: &&Allocation| one.adapter == adapter.name;
            let given =
                given.get(at).filter(same).or_else(|| given.iter().find(|one| same(one)))?;
            Some(Member { adapter, given, at })
        };
        NicScope {
            state,
            nic,
            at: format!("nic[{at}]"),
            switch: switch.map(|(at, switch)| (switch, format!("switch[{at}]"))),
            members: on_it.filter_map(member).collect(),
            uplink_up: !live.uplinks_down.contains(&nic.name)
                && (!nic.is_switchdev() || representors_up.contains(&FunctionName::Uplink)),
            representors_up,
        }
    }

    /// An adapter with its own settings.
    pub(super) fn adapter(&self, member: Member<'a>) -> FunctionEntry<'a> {
        let Member { adapter, at, .. } = member;
        let at = format!("adapter[{at}]");
        let settings = &adapter.settings;
        let macs = addresses(Some(adapter.mac), &settings.macs, &at);
        FunctionEntry { settings, link: link(settings), at, macs, label: adapter.name.clone() }
    }

    /// An adapter as on VF `index`, or on any VF without settings. The VF's settings apply, if it
    /// has any, and the adapter's static addresses on the switch.
    pub(super) fn adapter_on(&self, member: Member<'a>, index: Option<u16>) -> FunctionEntry<'a> {
        let mut entry = self.adapter(member);
        if let Some((at, vf)) = index.and_then(|index| self.entry(index)) {
            (entry.settings, entry.link) = (&vf.settings, link(&vf.settings));
            entry.at = format!("{}.vf[{at}]", self.at);
        }
        let own = self.statics().filter(|(_, entry)| entry.port == member.adapter.name);
        entry.macs.extend(own.map(|(field, entry)| (entry.mac.0, field)));
        entry
    }

    /// VF `index`, without an adapter.
    pub(super) fn vacant(&self, index: u16) -> FunctionEntry<'a> {
        let label = format!("{}/vf{index}", self.nic.name);
        let (settings, at, mut macs) = match self.entry(index) {
            Some((i, vf)) => {
                let at = format!("{}.vf[{i}]", self.at);
                let macs = addresses(vf.mac, &vf.settings.macs, &at);
                (&vf.settings, at, macs)
            }
            None => (&*UNSET, self.at.clone(), Vec::new()),
        };
        if self.entry(index).is_none_or(|(_, vf)| vf.mac.is_none()) {
            macs.insert(0, (self.derived_mac(index), at.clone()));
        }
        FunctionEntry { settings, link: link(settings), at, macs, label }
    }

    /// The PF, if a guest has it.
    pub(super) fn pf(&self) -> Option<FunctionEntry<'a>> {
        let pf = self.nic.pf.as_ref().filter(|_| self.switch.is_none())?;
        let at = format!("{}.pf", self.at);
        let macs = addresses(Some(pf.mac), &pf.settings.macs, &at);
        let label = format!("{}/pf", self.nic.name);
        let settings = &pf.settings;
        Some(FunctionEntry { settings, link: link(settings), at, macs, label })
    }

    /// The static addresses of the switch, each with its field.
    pub(super) fn statics(&self) -> impl Iterator<Item = (String, &'a StaticEntry)> {
        self.switch.iter().flat_map(|(switch, at)| {
            let entries = switch.statics.iter().enumerate();
            entries.map(move |(i, entry)| (format!("{at}.static[{i}].mac"), entry))
        })
    }

    fn entry(&self, index: u16) -> Option<(usize, &'a Vf)> {
        self.nic.vfs.iter().enumerate().find(|(_, vf)| vf.index == index)
    }

    /// Locally administered address, stable across runs and not used in the document.
    fn derived_mac(&self, index: u16) -> Mac {
        let used = |mac: Mac| {
            let is = |other: &MacText| other.0 == mac;
            let nic = self.nic;
            let adapters = self.state.adapters.iter();
            adapters.clone().any(|one| is(&one.mac) || one.settings.macs.iter().any(is))
                || nic
                    .vfs
                    .iter()
                    .any(|vf| vf.mac.as_ref().is_some_and(is) || vf.settings.macs.iter().any(is))
                || nic.pf.as_ref().is_some_and(|pf| is(&pf.mac) || pf.settings.macs.iter().any(is))
                || self.statics().any(|(_, entry)| is(&entry.mac))
        };
        let derived = (0_u8..=u8::MAX).map(|salt| {
            let bytes = self.nic.name.bytes().chain([0, salt]);
            // FNV-1a: the hash must not change between versions of this program.
            let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
                (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
            });
            let [a, b, c, d] = hash.to_be_bytes();
            Mac([0x02, a, b, c, d, index as u8])
        });
        let mut derived = derived.into_iter();
        let first = derived.next().unwrap_or_default();
        std::iter::once(first).chain(derived).find(|mac| !used(*mac)).unwrap_or(first)
    }
}

/// Port VLAN of the NIC table.
pub(super) fn port_vlan(vlan: Vlan) -> Option<PortVlan> {
    let protocol = match vlan.proto {
        VlanProto::Dot1q => VlanProtocol::Ieee8021Q,
        VlanProto::Dot1ad => VlanProtocol::Ieee8021Ad,
    };
    Some(PortVlan { vid: Vid::new(vlan.id).ok()?, qos: vlan.qos, protocol })
}

fn link(settings: &PortSettings) -> bridge::nic::LinkState {
    match settings.link_state {
        LinkState::Auto => bridge::nic::LinkState::Auto,
        LinkState::Enable => bridge::nic::LinkState::Enable,
        LinkState::Disable => bridge::nic::LinkState::Disable,
    }
}

fn addresses(own: Option<MacText>, further: &[MacText], at: &str) -> Vec<(Mac, String)> {
    let own = own.map(|mac| (mac.0, format!("{at}.mac")));
    let further = further.iter().enumerate();
    own.into_iter().chain(further.map(|(i, mac)| (mac.0, format!("{at}.macs[{i}]")))).collect()
}
