//! Rules for adapters.

use serde_json::Value;

use super::super::adapter::{Adapter, WantedPath, short_name};
use super::super::nic::Nic;
use super::super::text::FunctionName;
use super::{Check, is_reserved, one_of};

/// Counter name of a PF.
const PF: &str = "pf";

impl<'a> Check<'a> {
    pub(super) fn adapter(&mut self, adapter: &'a Adapter, at: &str) {
        let field = format!("{at}.name");
        let is_written = at.starts_with("adapter");
        if is_written {
            self.adapter_names.claim(&mut self.problems, &adapter.name, &field, &adapter.name);
        } else {
            self.adapter_names.note(&adapter.name, at);
        }
        if is_reserved(&adapter.name) {
            let error = "is the reserved name of a switch's uplink port";
            self.wrong(field, adapter.name.as_str(), error, "choose another");
        }
        self.guests_attachment(&adapter.attachment, &format!("{at}.attachment"));
        let settings = &adapter.settings;
        self.settings(settings, at);
        self.adapter_place(adapter, at);
        let Some(nic) = self.state.nic_of(adapter) else {
            return;
        };
        self.counters_name(adapter, nic, &format!("{at}.name"));
        match nic.is_pci() {
            true => self.adapter_on_card(adapter, nic, at),
            false => self.no_vf(&adapter.attachment, &format!("{at}.attachment")),
        }
        if let Some(index) = adapter.vf {
            let field = format!("{at}.{}", if is_written { "vf" } else { "index" });
            self.vf_index(nic, index, field.clone());
            self.named_vfs.claim(&mut self.problems, (&nic.name, index), &field, &index);
        }
        self.macs(nic, adapter.mac, settings, settings.vlan, at);
        if let Some(mirror) = &settings.mirror {
            self.mirror(mirror, &nic.name, Some(&adapter.name), &format!("{at}.mirror"));
        }
        self.on_a_switch(adapter, at);
    }

    /// Counters and ring records are named by NIC and adapter, without a common prefix.
    fn counters_name(&mut self, adapter: &'a Adapter, nic: &'a Nic, field: &str) {
        let short = short_name(&nic.name, &adapter.name);
        let mut functions = nic.represented().map(FunctionName::port_name);
        let same = self.vf_named.get(short).filter(|same| same.name != adapter.name);
        let error = if short == PF || functions.any(|name| name == short) {
            "is the counter name of a function of its NIC"
        } else if same.is_some_and(|same| self.is_on(same, nic)) {
            "has the same counter name as another adapter; the names differ only in the NIC's prefix"
        } else {
            return;
        };
        self.wrong(field.to_owned(), adapter.name.as_str(), error, "choose another");
    }

    fn is_on(&self, adapter: &Adapter, nic: &Nic) -> bool {
        self.state.nic_of(adapter).is_some_and(|its| its.name == nic.name)
    }

    /// An adapter is on a switch, or on a NIC without one.
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
            (Some(nic), Some(switch)) => {
                let error = format!("excludes switch {switch:?}");
                let remedy = "remove nic (a switch is on a NIC already), or remove switch";
                self.wrong(format!("{at}.nic"), nic.as_str(), &error, remedy);
            }
            (None, None) => {
                let remedy = "name a switch, or a NIC with nic";
                self.wrong(format!("{at}.switch"), Value::Null, "is missing", remedy);
            }
        }
        let lesser = matches!(adapter.path, WantedPath::Vmq | WantedPath::Synthetic);
        if adapter.switch.is_none() && lesser {
            let (error, allowed) = ("needs a switch", "give switch instead of nic, or path vf");
            let path = serde_json::to_value(adapter.path).unwrap_or_default();
            self.wrong(format!("{at}.path"), path, error, allowed);
        }
    }

    /// Settings of an adapter against those of its port.
    fn on_a_switch(&mut self, adapter: &'a Adapter, at: &str) {
        let Some(switch) = adapter.switch.as_deref().and_then(|name| self.state.switch(name))
        else {
            return;
        };
        let Some(port) = switch.port(&adapter.name) else {
            return;
        };
        if adapter.settings.promiscuous && !port.unknown_unicast {
            let error = format!("contradicts unknown_unicast of its port on {}", switch.name);
            let allowed = "write false, or set unknown_unicast = true there".to_owned();
            self.wrong(format!("{at}.promiscuous"), true, &error, allowed);
        }
    }
}
