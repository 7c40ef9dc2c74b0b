//! Rules for adapters.

use serde_json::Value;

use super::super::model::{Adapter, Nic, WantedPath};
use super::{Check, is_reserved, one_of};

impl<'a> Check<'a> {
    pub(super) fn adapter(&mut self, adapter: &'a Adapter, at: &str) {
        let field = format!("{at}.name");
        self.adapter_names.claim(&mut self.problems, &adapter.name, &field, &adapter.name);
        if is_reserved(&adapter.name) {
            let error = "is what every switch calls its port to the wire";
            self.wrong(field, adapter.name.as_str(), error, "choose another".into());
        }
        let socket = &adapter.attachment.socket;
        let field = format!("{at}.attachment.socket");
        self.sockets.claim(&mut self.problems, socket, &field, socket);
        self.rates(adapter.min_tx_mbps, adapter.max_tx_mbps, at);
        self.adapter_place(adapter, at);
        let Some(nic) = self.state.nic_of(adapter) else {
            return;
        };
        if let Some(index) = adapter.vf {
            self.adapter_vf(nic, adapter, index, at);
        }
        self.mac(nic, adapter.mac, adapter.vlan, &format!("{at}.mac"));
        for (i, mac) in adapter.macs.iter().enumerate() {
            self.mac(nic, *mac, adapter.vlan, &format!("{at}.macs[{i}]"));
        }
    }

    /// On a switch, or on a NIC without one.
    fn adapter_place(&mut self, adapter: &'a Adapter, at: &str) {
        match (&adapter.nic, &adapter.switch) {
            (Some(name), None) if self.state.nic(name).is_none() => {
                let allowed = one_of("NIC", self.state.nics.iter().map(|nic| nic.name.as_str()));
                self.wrong(format!("{at}.nic"), name.as_str(), "is no NIC", allowed);
            }
            (None, Some(name)) if self.state.switch(name).is_none() => {
                let switches = self.state.switches.iter().map(|switch| switch.name.as_str());
                let allowed = one_of("switch", switches);
                self.wrong(format!("{at}.switch"), name.as_str(), "is no switch", allowed);
            }
            (Some(_), None) | (None, Some(_)) => {}
            _ => {
                let allowed = "give switch or nic, one of the two".to_owned();
                self.wrong(format!("{at}.switch"), Value::Null, "leaves the place open", allowed);
            }
        }
        let lesser = matches!(adapter.path, WantedPath::Vmq | WantedPath::Synthetic);
        if adapter.switch.is_none() && lesser {
            let (error, allowed) = ("needs a switch", "give switch instead of nic, or path vf");
            let path = serde_json::to_value(adapter.path).unwrap_or_default();
            self.wrong(format!("{at}.path"), path, error, allowed.into());
        }
    }

    /// The VF that the adapter names must exist, be named once, and leave to the adapter what is the adapter's: two
    /// places for one setting would be two answers to what it is.
    fn adapter_vf(&mut self, nic: &'a Nic, adapter: &'a Adapter, index: u16, at: &str) {
        let field = format!("{at}.vf");
        self.vf_index(nic, index, field.clone());
        self.named_vfs.claim(&mut self.problems, (&nic.name, index), &field, &index);
        let nics = self.state.nics.iter();
        let n = nics.take_while(|other| other.name != nic.name).count();
        let Some((i, vf)) = nic.vfs.iter().enumerate().find(|(_, vf)| vf.index == index) else {
            return;
        };
        let own = format!("nic[{n}].vf[{i}]");
        let whose = format!("is set here and by adapter {}", adapter.name);
        let remedy = || "leave it to the adapter".to_owned();
        if let Some(mac) = vf.mac.filter(|mac| *mac != adapter.mac) {
            self.wrong(format!("{own}.mac"), mac.to_string(), &whose, remedy());
        }
        if let Some(vlan) = vf.vlan.filter(|vlan| adapter.vlan != Some(*vlan)) {
            self.wrong(format!("{own}.vlan"), vlan.id, &whose, remedy());
        }
        if let (Some(vlan), [_, ..]) = (adapter.vlan, &vf.trunks[..]) {
            let error = format!("makes an access port of VF {index}, which has trunks");
            let allowed = "leave the vlan or the trunks out".to_owned();
            self.wrong(format!("{at}.vlan"), vlan.id, &error, allowed);
        }
        for (name, of_vf, of_adapter) in [
            ("min_tx_mbps", vf.min_tx_mbps, adapter.min_tx_mbps),
            ("max_tx_mbps", vf.max_tx_mbps, adapter.max_tx_mbps),
        ] {
            if of_vf != 0 && of_vf != of_adapter {
                self.wrong(format!("{own}.{name}"), of_vf, &whose, remedy());
            }
        }
    }
}
