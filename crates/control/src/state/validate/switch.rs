//! Rules for switches, their ports and their ACLs.

use serde_json::Value;

use super::super::switch::{AclRule, Switch, SwitchPort, UPLINK};
use super::{Check, Once, one_of};

/// IP protocols whose headers begin with two ports: TCP, UDP and SCTP.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

impl<'a> Check<'a> {
    pub(super) fn switch(&mut self, switch: &'a Switch, at: &str) {
        let field = format!("{at}.name");
        self.switch_names.claim(&mut self.problems, &switch.name, &field, &switch.name);
        let field = format!("{at}.nic");
        if self.state.nic(&switch.nic).is_none() {
            let allowed = one_of("NIC", self.state.nics.iter().map(|nic| nic.name.as_str()));
            self.wrong(field, switch.nic.as_str(), "is no NIC", allowed);
        } else {
            self.switched.claim(&mut self.problems, &switch.nic, &field, &switch.nic);
        }
        let mut ports = Once::new("has settings in");
        for (i, port) in switch.ports.iter().enumerate() {
            let at = format!("{at}.port[{i}]");
            let field = format!("{at}.adapter");
            ports.claim(&mut self.problems, &port.adapter, &field, &port.adapter);
            self.on_switch(switch, &port.adapter, field);
            self.port(switch, port, &at);
        }
        let mut statics = Once::new("is in this VLAN the address of");
        for (i, entry) in switch.statics.iter().enumerate() {
            let at = format!("{at}.static[{i}]");
            let key = (entry.mac, entry.vlan);
            let value = entry.mac.to_string();
            statics.claim(&mut self.problems, key, &format!("{at}.mac"), &value);
            self.on_switch(switch, &entry.port, format!("{at}.port"));
        }
    }

    /// A name that must be an adapter of the switch, or the uplink's.
    fn on_switch(&mut self, switch: &Switch, name: &str, field: String) {
        let adapter = self.state.adapter(name);
        let here = adapter.is_some_and(|one| one.switch.as_deref() == Some(&switch.name));
        if !here && name != UPLINK {
            let all = self.state.adapters.iter();
            let here = all.filter(|one| one.switch.as_deref() == Some(&switch.name));
            let names: Vec<&str> = here.take(10).map(|one| one.name.as_str()).collect();
            let allowed = match names.is_empty() {
                true => format!("write {UPLINK}; no adapter is on {}", switch.name),
                false => {
                    format!("write {UPLINK}, or an adapter of it such as {}", names.join(", "))
                }
            };
            self.wrong(field, name, &format!("is not on switch {}", switch.name), allowed);
        }
    }

    fn port(&mut self, switch: &'a Switch, port: &'a SwitchPort, at: &str) {
        let adapter = self.state.adapter(&port.adapter);
        self.trunks_or_vlan(&port.trunks, adapter.and_then(|adapter| adapter.vlan), at);
        if let Some(native) = port.native_vlan
            && !port.trunks.iter().any(|range| range.contains(native))
        {
            let allowed = "write one of the VLANs of trunks".to_owned();
            self.wrong(format!("{at}.native_vlan"), native, "is none of the trunks", allowed);
        }
        if let Some(mirror) = &port.mirror {
            self.mirror(mirror, &switch.nic, Some(&port.adapter), &format!("{at}.mirror"));
        }
        for (i, rule) in port.acl.iter().enumerate() {
            self.rule(rule, &format!("{at}.acl[{i}]"));
        }
    }

    fn rule(&mut self, rule: &AclRule, at: &str) {
        let with_ports = rule.protocol.is_some_and(|protocol| WITH_PORTS.contains(&protocol));
        if (rule.from_port.is_some() || rule.to_port.is_some()) && !with_ports {
            let error = "has no ports, and a rule for ports needs one that has";
            let protocol = rule.protocol.map_or(Value::from("any protocol"), Value::from);
            let allowed = "write 6 (TCP), 17 (UDP) or 132 (SCTP)".to_owned();
            self.wrong(format!("{at}.protocol"), protocol, error, allowed);
        }
        if let (Some(from), Some(to)) = (rule.from_ip, rule.to_ip)
            && from.address.is_ipv4() != to.address.is_ipv4()
        {
            let error = "is of another family than from_ip, so no frame meets the rule";
            let allowed = "write both as IPv4, or both as IPv6".to_owned();
            self.wrong(format!("{at}.to_ip"), to.to_string(), error, allowed);
        }
        let is_ip = rule.from_ip.is_some() || rule.to_ip.is_some() || rule.protocol.is_some();
        if let Some(ethertype) =
            rule.ethertype.filter(|kind| is_ip && ![0x800, 0x86dd].contains(kind))
        {
            let error = "is not IP, so no frame meets the rule's conditions on IP";
            let allowed = "leave it out, or write 2048 (IPv4) or 34525 (IPv6)".to_owned();
            self.wrong(format!("{at}.ethertype"), ethertype, error, allowed);
        }
    }
}
