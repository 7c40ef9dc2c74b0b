//! Rules for switches, their ports and their ACLs.

use serde_json::{Value, json};
use wire::vlan;

use super::super::adapter::Adapter;
use super::super::switch::{RuleMatch, Switch, SwitchPort, UPLINK, Vxlan};
use super::{Check, UniqueKeys, is_reserved, one_of};

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
        let mut ports = UniqueKeys::new("has settings in");
        for (i, port) in switch.ports.iter().enumerate() {
            let at = format!("{at}.port[{i}]");
            let field = format!("{at}.adapter");
            ports.claim(&mut self.problems, &port.adapter, &field, &port.adapter);
            self.on_switch(switch, &port.adapter, field);
            self.port(switch, port, &at);
        }
        for (i, tunnel) in switch.tunnels.iter().enumerate() {
            self.tunnel(switch, tunnel, &format!("{at}.vxlan[{i}]"));
        }
        for (i, entry) in switch.statics.iter().enumerate() {
            let at = format!("{at}.static[{i}]");
            let value = entry.mac.to_string();
            self.on_switch(switch, &entry.port, format!("{at}.port"));
            let field = format!("{at}.vlan");
            if let Some(adapter) = self.state.adapter(&entry.port) {
                self.static_vlan(adapter, entry.vlan, field);
            } else if let Some(tunnel) =
                switch.tunnel(&entry.port).filter(|one| one.vlan != entry.vlan)
            {
                let value = entry.vlan.map_or(Value::from("none"), Value::from);
                let allowed = match tunnel.vlan {
                    Some(vlan) => format!("write {vlan}"),
                    None => "leave it out".to_owned(),
                };
                self.wrong(field, value, &format!("is not the VLAN of {}", tunnel.name), allowed);
            }
            let key = (switch.nic.as_str(), entry.vlan.unwrap_or(0), entry.mac);
            self.macs.claim(&mut self.problems, key, &format!("{at}.mac"), &value);
        }
    }

    /// VLAN of a static address behind an adapter.
    fn static_vlan(&mut self, adapter: &Adapter, vlan: Option<u16>, field: String) {
        let native = adapter.settings.vlan.map(|vlan| vlan.id);
        let tagged = |vlan: u16| adapter.settings.trunks.iter().any(|range| range.contains(vlan));
        if vlan != native && !vlan.is_some_and(tagged) {
            let value = vlan.map_or(Value::from("none"), Value::from);
            let error = format!("is no VLAN of adapter {}", adapter.name);
            let allowed = match native {
                Some(native) => format!("write {native}, or one of its trunks"),
                None => "leave it out, or write one of its trunks".to_owned(),
            };
            self.wrong(field, value, &error, allowed);
        }
    }

    /// A tunnel: name and network are unique.
    fn tunnel(&mut self, switch: &'a Switch, tunnel: &'a Vxlan, at: &str) {
        let field = format!("{at}.name");
        let name = tunnel.name.as_str();
        if is_reserved(name) {
            let error = "is the reserved name of a switch's uplink port";
            self.wrong(field.clone(), name, error, "choose another");
        }
        if self.state.adapter(name).is_some() {
            self.wrong(field, name, "is an adapter's name", "choose another");
        } else if switch.tunnels.iter().filter(|one| one.name == tunnel.name).count() > 1 {
            let error = "is the name of another tunnel of the switch";
            self.wrong(field, name, error, "choose another");
        }
        let key = (tunnel.vni, tunnel.port, tunnel.local);
        self.networks.claim(&mut self.problems, key, &format!("{at}.vni"), &tunnel.vni);
        let field = format!("{at}.peers");
        let Some(first) = tunnel.peers.first() else {
            let allowed = "name at least one other host".to_owned();
            return self.wrong(field, Value::Null, "has no entry", allowed);
        };
        let family = if first.is_ipv4() { "IPv4" } else { "IPv6" };
        let allowed = format!("write {family} addresses only, as the first peer is one");
        for (i, peer) in tunnel.peers.iter().enumerate() {
            let field = format!("{field}[{i}]");
            if peer.is_ipv4() != first.is_ipv4() {
                self.wrong(field, peer.to_string(), "has another address family", allowed.clone());
            } else if peer.is_unspecified() || peer.is_multicast() || Some(*peer) == tunnel.local {
                let error = "is not an address of another host";
                self.wrong(field, peer.to_string(), error, "write a unicast address");
            } else if tunnel.peers[..i].contains(peer) {
                self.wrong(field, peer.to_string(), "is named twice", "name each once");
            }
        }
        let local = tunnel.local.filter(|local| local.is_ipv4() != first.is_ipv4());
        if let Some(local) = local {
            self.wrong(
                format!("{at}.local"),
                local.to_string(),
                "has another address family",
                allowed,
            );
        }
    }

    /// Name of an adapter or tunnel of the switch, or the uplink.
    fn on_switch(&mut self, switch: &Switch, name: &str, field: String) {
        let adapter = self.state.adapter(name);
        let here = adapter.is_some_and(|one| one.switch.as_deref() == Some(&switch.name));
        if !here && name != UPLINK && switch.tunnel(name).is_none() {
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

    fn port(&mut self, switch: &Switch, port: &SwitchPort, at: &str) {
        self.vlans(&port.trunks, None, at);
        match (self.state.adapter(&port.adapter), switch.tunnel(&port.adapter)) {
            _ if port.adapter == UPLINK => {}
            (_, Some(_)) => self.untagged(port, ("tunnel", "vlan"), at),
            (Some(adapter), None) => self.adapters_port(adapter, port, at),
            (None, None) => return, // which is told already
        }
        if let Some(native) = port.native_vlan.filter(|_| port.adapter == UPLINK)
            && !port.trunks.iter().any(|range| range.contains(native))
        {
            let allowed = "write one of the VLANs of trunks".to_owned();
            self.wrong(format!("{at}.native_vlan"), native, "is none of the trunks", allowed);
        }
        for (i, rule) in port.acl.iter().enumerate() {
            self.rule(&rule.matches, &format!("{at}.acl[{i}]"));
        }
    }

    /// Settings of an adapter's port that belong to the adapter, or have no effect.
    fn adapters_port(&mut self, adapter: &Adapter, port: &SwitchPort, at: &str) {
        let name = &adapter.name;
        self.untagged(port, ("adapter", "trunks"), at);
        if let Some(most) = port.max_macs.filter(|_| adapter.settings.spoof_check) {
            let error = "has no effect: the adapter's spoof_check disables learning";
            let allowed = format!("leave it out, or set spoof_check = false of adapter {name}");
            self.wrong(format!("{at}.max_macs"), most, error, allowed);
        }
    }

    /// VLANs at a port that belong to its adapter or tunnel, in the field `trunks` names.
    fn untagged(&mut self, port: &SwitchPort, (what, trunks): (&str, &str), at: &str) {
        let name = &port.adapter;
        if !port.trunks.is_empty() {
            let written: Vec<String> = port.trunks.iter().map(ToString::to_string).collect();
            let (error, allowed) =
                (format!("are the {what}'s"), format!("set {trunks} of {what} {name}"));
            self.wrong(format!("{at}.trunks"), written, &error, allowed);
        }
        if let Some(native) = port.native_vlan {
            let (error, allowed) =
                (format!("is the {what}'s"), format!("set vlan of {what} {name}"));
            self.wrong(format!("{at}.native_vlan"), native, &error, allowed);
        }
    }

    /// Conditions that no frame can meet.
    pub(super) fn rule(&mut self, rule: &RuleMatch, at: &str) {
        let with_ports = rule.protocol.is_some_and(|protocol| WITH_PORTS.contains(&protocol.0));
        if (rule.from_port.is_some() || rule.to_port.is_some()) && !with_ports {
            let error = "has no ports";
            let protocol = rule.protocol.map_or(Value::from("any protocol"), |it| json!(it));
            let allowed = "write tcp, udp or sctp".to_owned();
            self.wrong(format!("{at}.protocol"), protocol, error, allowed);
        }
        if let (Some(from), Some(to)) = (rule.from_ip, rule.to_ip)
            && from.address.is_ipv4() != to.address.is_ipv4()
        {
            let error = "has another address family than from_ip, so no frame matches";
            let allowed = "write both as IPv4, or both as IPv6".to_owned();
            self.wrong(format!("{at}.to_ip"), to.to_string(), error, allowed);
        }
        let is_ip = rule.from_ip.is_some() || rule.to_ip.is_some() || rule.protocol.is_some();
        let Some(ethertype) = rule.ethertype else {
            return;
        };
        let field = format!("{at}.ethertype");
        let mut prefixes = [rule.from_ip, rule.to_ip].into_iter().flatten();
        if is_ip && ![0x800, 0x86dd].contains(&ethertype) {
            let error = "is not IP, so no frame matches the IP conditions";
            let allowed = "leave it out, or write 2048 (IPv4) or 34525 (IPv6)".to_owned();
            self.wrong(field, ethertype, error, allowed);
        } else if prefixes.any(|prefix| prefix.address.is_ipv4() != (ethertype == 0x800)) {
            let error = "is the other IP version, so no frame matches the addresses";
            self.wrong(field, ethertype, error, "leave it out".to_owned());
        } else if vlan::is_tpid(ethertype) {
            let error = "is a tag; ethertype matches after all tags";
            let allowed = "write vlan, or the EtherType inside the tag".to_owned();
            self.wrong(field, ethertype, error, allowed);
        }
    }
}
