//! Checks the meaning of a document: references, unique names, and settings that exclude each
//! other.
//!
//! Every rule is checked for every entry, so one run reports every independent mistake.

mod adapter;
mod attachment;
mod pci;
mod service;
mod switch;
mod switchdev;
mod vpf;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;

use serde_json::Value;

use super::adapter::Adapter;
use super::function::{Mirror, Pf, PortSettings, Vf};
use super::nic::Nic;
use super::problem::{Problem, Problems, Remedy};
use super::switch::UPLINK;
use super::text::{MacText, VlanRange};
use super::{State, Vlan, VlanProto};

/// Checks a document of valid form; `adapters` are the positions of its adapters.
pub(super) fn meaning(state: &State, adapters: &[String]) -> Result<(), Problems> {
    let mut check = Check::new(state, adapters);
    for (i, nic) in state.nics.iter().enumerate() {
        check.nic(nic, &format!("nic[{i}]"));
    }
    for (i, switch) in state.switches.iter().enumerate() {
        check.switch(switch, &format!("switch[{i}]"));
    }
    for (adapter, at) in state.adapters.iter().zip(adapters) {
        check.adapter(adapter, at);
    }
    for (i, vpf) in state.vpfs.iter().enumerate() {
        check.vpf(vpf, &format!("vpf[{i}]"));
    }
    check.problems.or(())
}

/// Check of a document.
struct Check<'a> {
    state: &'a State,
    /// Positions of the adapters.
    adapters: &'a [String],
    problems: Problems,
    nic_names: UniqueKeys<&'a str>,
    switch_names: UniqueKeys<&'a str>,
    adapter_names: UniqueKeys<&'a str>,
    /// Adapters whose names look like those generated from a file's `[[nic.vf]]`, without the NIC's
    /// name.
    vf_named: HashMap<&'a str, &'a Adapter>,
    vpf_names: UniqueKeys<&'a str>,
    /// Adapters and host devices behind a function of a virtual PF.
    behind: UniqueKeys<&'a str>,
    sockets: UniqueKeys<&'a str>,
    /// Interfaces, with the path of their network namespace.
    interfaces: UniqueKeys<(Option<String>, String)>,
    /// Names on the vDPA bus.
    vdpas: UniqueKeys<&'a str>,
    /// Files that are written: of mirrors, and sinks.
    files: UniqueKeys<&'a str>,
    /// Captures that are played, collected in advance.
    played: HashSet<&'a str>,
    /// Networks of tunnels, with their UDP port and this host's address.
    networks: UniqueKeys<(u32, u16, Option<IpAddr>)>,
    /// PFs of cards.
    cards: UniqueKeys<&'a str>,
    /// NICs with a switch.
    switched: UniqueKeys<&'a str>,
    /// VFs of a NIC that adapters name.
    named_vfs: UniqueKeys<(&'a str, u16)>,
    /// VFs that adapters name, collected in advance: their addresses are the adapters'.
    adapters_vfs: HashMap<(&'a str, u16), &'a Adapter>,
    /// Addresses of a NIC, with their VLAN; 0 for none.
    macs: UniqueKeys<(&'a str, u16, MacText)>,
}

impl<'a> Check<'a> {
    fn new(state: &'a State, adapters: &'a [String]) -> Self {
        let named = state.adapters.iter().filter_map(|adapter| {
            let nic = state.nic_of(adapter)?;
            Some(((nic.name.as_str(), adapter.vf?), adapter))
        });
        let vf_named = state.adapters.iter().filter(|adapter| adapter.name.starts_with("vf"));
        Check {
            state,
            adapters,
            adapters_vfs: named.collect(),
            problems: Problems::default(),
            nic_names: UniqueKeys::new("is the name of"),
            switch_names: UniqueKeys::new("is the name of"),
            adapter_names: UniqueKeys::new("is the name of"),
            vf_named: vf_named.map(|adapter| (adapter.name.as_str(), adapter)).collect(),
            vpf_names: UniqueKeys::new("is the name of"),
            behind: UniqueKeys::new("is behind"),
            sockets: UniqueKeys::new("is the socket of"),
            interfaces: UniqueKeys::new("is the interface of"),
            vdpas: UniqueKeys::new("is the vDPA device of"),
            files: UniqueKeys::new("is written by"),
            played: state.played().collect(),
            networks: UniqueKeys::new("is the network of"),
            cards: UniqueKeys::new("is the card of"),
            switched: UniqueKeys::new("is the NIC of"),
            named_vfs: UniqueKeys::new("is named by"),
            macs: UniqueKeys::new("is in this VLAN the address of"),
        }
    }

    fn wrong(
        &mut self,
        path: String,
        value: impl Into<Value>,
        message: &str,
        remedy: impl Into<Remedy>,
    ) {
        self.problems.push(Problem::new(path, value, message, remedy));
    }

    fn nic(&mut self, nic: &'a Nic, at: &str) {
        self.nic_names.claim(&mut self.problems, &nic.name, &format!("{at}.name"), &nic.name);
        if nic.num_vfs > nic.total_vfs {
            let allowed = format!("write a number up to total_vfs, {}", nic.total_vfs);
            self.wrong(format!("{at}.num_vfs"), nic.num_vfs, "is too many", allowed);
        }
        if let Some(uplink) = &nic.uplink {
            self.attachment(uplink, &format!("{at}.uplink"));
            self.no_vf(uplink, &format!("{at}.uplink"));
        }
        if nic.budget_permille > 0 && nic.profile.is_ideal() {
            let error = "limits the profile's capacity, and ideal has none";
            let allowed = "write 0, or choose another profile".to_owned();
            self.wrong(format!("{at}.budget_permille"), nic.budget_permille, error, allowed);
        }
        if let Some(pf) = &nic.pf {
            self.pf(nic, pf, &format!("{at}.pf"));
        }
        let mut indices = UniqueKeys::new("is the index of");
        for (i, vf) in nic.vfs.iter().enumerate() {
            let at = format!("{at}.vf[{i}]");
            indices.claim(&mut self.problems, vf.index, &format!("{at}.index"), &vf.index);
            self.vf(nic, vf, &at);
        }
        self.service_vlans(nic, at);
        match nic.is_pci() {
            true => self.card(nic, at),
            false => self.soft(nic, at),
        }
    }

    fn pf(&mut self, nic: &'a Nic, pf: &'a Pf, at: &str) {
        let switches = self.state.switches.iter();
        if let Some(switch) = switches.clone().find(|switch| switch.nic == nic.name) {
            let error = format!("is used by switch {} of this NIC", switch.name);
            let allowed = "leave pf or the switch out".to_owned();
            self.wrong(at.to_owned(), pf.mac.to_string(), &error, allowed);
        }
        self.guests_attachment(&pf.attachment, &format!("{at}.attachment"));
        self.no_vf(&pf.attachment, &format!("{at}.attachment"));
        self.settings(&pf.settings, at);
        self.macs(nic, pf.mac, &pf.settings, pf.settings.vlan, at);
        if let Some(mirror) = &pf.settings.mirror {
            self.mirror(mirror, &nic.name, None, &format!("{at}.mirror"));
        }
    }

    fn vf(&mut self, nic: &'a Nic, vf: &'a Vf, at: &str) {
        self.vf_index(nic, vf.index, format!("{at}.index"));
        let settings = &vf.settings;
        self.settings(settings, at);
        let adapter = self.adapters_vfs.get(&(nic.name.as_str(), vf.index)).copied();
        if let Some(mirror) = &settings.mirror {
            let whose = adapter.map(|adapter| adapter.name.as_str());
            self.mirror(mirror, &nic.name, whose, &format!("{at}.mirror"));
        }
        let Some(adapter) = adapter else {
            let own = vf.mac.map(|mac| (format!("{at}.mac"), mac));
            let others =
                (0..).zip(&settings.macs).map(|(i, mac)| (format!("{at}.macs[{i}]"), *mac));
            own.into_iter()
                .chain(others)
                .for_each(|(field, mac)| self.mac(nic, mac, settings.vlan, &field));
            return;
        };
        // Two places for one address could contradict each other.
        let whose = format!("is set here and by adapter {}", adapter.name);
        let remedy = "leave it to the adapter".to_owned();
        if let Some(mac) = vf.mac.filter(|mac| *mac != adapter.mac) {
            self.wrong(format!("{at}.mac"), mac.to_string(), &whose, remedy.clone());
        }
        if !settings.macs.is_empty() && settings.macs != adapter.settings.macs {
            let macs: Vec<String> = settings.macs.iter().map(ToString::to_string).collect();
            self.wrong(format!("{at}.macs"), macs, &whose, remedy);
        }
        if settings.native() != adapter.settings.native() {
            self.macs(nic, adapter.mac, &adapter.settings, settings.vlan, at);
        }
    }

    /// A VF index that must exist on the NIC.
    fn vf_index(&mut self, nic: &Nic, index: u16, field: String) {
        if index >= nic.total_vfs {
            let allowed = match nic.total_vfs {
                0 => format!("raise total_vfs of {}, which is 0", nic.name),
                total => format!("write a number, 0 to {}", total - 1),
            };
            self.wrong(field, index, &format!("is no VF of {}", nic.name), allowed);
        }
    }

    fn mac(&mut self, nic: &'a Nic, mac: MacText, vlan: Option<Vlan>, field: &str) {
        let key = (nic.name.as_str(), vlan.map_or(0, |vlan| vlan.id), mac);
        self.macs.claim(&mut self.problems, key, field, &mac.to_string());
    }

    fn macs(
        &mut self,
        nic: &'a Nic,
        first: MacText,
        settings: &PortSettings,
        vlan: Option<Vlan>,
        at: &str,
    ) {
        self.mac(nic, first, vlan, &format!("{at}.mac"));
        for (i, mac) in settings.macs.iter().enumerate() {
            self.mac(nic, *mac, vlan, &format!("{at}.macs[{i}]"));
        }
    }

    /// Settings of a function or an adapter that exclude each other.
    fn settings(&mut self, settings: &PortSettings, at: &str) {
        let PortSettings { trust, promiscuous, min_tx_mbps, max_tx_mbps, .. } = *settings;
        if max_tx_mbps > 0 && min_tx_mbps > max_tx_mbps {
            let allowed = format!("write at most {max_tx_mbps}");
            let field = format!("{at}.min_tx_mbps");
            self.wrong(field, min_tx_mbps, "exceeds max_tx_mbps", allowed);
        }
        if promiscuous && !trust {
            let allowed = "write false, or set trust = true".to_owned();
            self.wrong(format!("{at}.promiscuous"), true, "takes trust", allowed);
        }
        self.vlans(&settings.trunks, settings.vlan, at);
    }

    fn vlans(&mut self, trunks: &[VlanRange], vlan: Option<Vlan>, at: &str) {
        if let (Some(vlan), [_, ..]) = (vlan, trunks)
            && vlan.proto == VlanProto::Dot1ad
        {
            let error = "treats the guest's tags as payload, which contradicts trunks";
            let allowed = "leave trunks out, or write \"802.1q\"".to_owned();
            self.wrong(format!("{at}.vlan.proto"), "802.1ad", error, allowed);
        }
        let overlap = trunks.iter().enumerate().find(|(i, one)| {
            trunks[..*i].iter().any(|other| one.first <= other.last && other.first <= one.last)
        });
        if let Some((i, range)) = overlap {
            let field = format!("{at}.trunks[{i}]");
            self.wrong(field, range.to_string(), "overlaps another", "name each VLAN once");
        }
    }

    /// `whose` is the adapter with the mirror, if known.
    fn mirror(&mut self, mirror: &'a Mirror, nic: &str, whose: Option<&str>, at: &str) {
        match (&mirror.adapter, &mirror.file) {
            (Some(name), None) => {
                let field = format!("{at}.adapter");
                let target = self.state.adapter(name);
                let on = target.and_then(|target| self.state.nic_of(target));
                if on.is_none_or(|on| on.name != nic) {
                    let allowed = format!("name an adapter that is on {nic}");
                    self.wrong(field, name.as_str(), "is no adapter of this NIC", allowed);
                } else if whose == Some(name) {
                    let allowed = "name another adapter".to_owned();
                    self.wrong(field, name.as_str(), "would mirror to itself", allowed);
                }
            }
            (None, Some(file)) => self.file(file, format!("{at}.file")),
            _ => {
                let allowed = "give adapter or file, one of the two".to_owned();
                self.wrong(at.to_owned(), Value::Null, "needs one target", allowed);
            }
        }
    }
}

/// Remedy for a reference to a missing object; allows the first of `all`.
fn one_of<'n>(what: &str, all: impl Iterator<Item = &'n str>) -> Remedy {
    let names = all.take(10).collect::<Vec<_>>().join(", ");
    let text = match names.is_empty() {
        true => format!("there is no {what}; create one first"),
        false => {
            let article = if what.starts_with('a') { "an" } else { "a" };
            format!("name {article} {what} of the document, such as {names}")
        }
    };
    Remedy::choose(text, names)
}

/// `true` for a name that a generated adapter or the uplink has.
fn is_reserved(name: &str) -> bool {
    name == UPLINK
}

/// Values that must be unique.
struct UniqueKeys<K> {
    /// Phrase of the error, before the field of the first use.
    taken: &'static str,
    seen: HashMap<K, String>,
}

impl<K: Hash + Eq> UniqueKeys<K> {
    fn new(taken: &'static str) -> Self {
        UniqueKeys { taken, seen: HashMap::new() }
    }

    /// Records `holder` as the user of `key`, replacing any other.
    fn note(&mut self, key: K, holder: &str) {
        self.seen.insert(key, holder.to_owned());
    }

    /// Records that `field` uses `key`, written as `value`. A second use is a problem.
    fn claim<V>(&mut self, problems: &mut Problems, key: K, field: &str, value: &V)
    where
        V: Clone + Into<Value>,
    {
        match self.seen.get(&key) {
            Some(holder) => {
                let error = format!("{} {holder} already", self.taken);
                let allowed = "choose another".to_owned();
                problems.push(Problem::new(field, value.clone(), error, allowed));
            }
            None => {
                // Shows the entry instead of its field.
                let holder = field.rsplit_once('.').map_or(field, |(holder, _)| holder);
                self.seen.insert(key, holder.to_owned());
            }
        }
    }
}
