//! The same work for two switches: a VLAN, and a hundred rules that match no frame.
//!
//! Both learn addresses, forward by them within the VLAN, and check each flow against every rule.
//! Shunt also knows both addresses in advance and rejects all others (spoof check).

use serde_json::{Value, json};

use crate::bench::peers::ovs::Flows;

/// VLAN of both ports.
pub(super) const VLAN: u16 = 7;
/// Rules per port.
const RULES: u32 = 100;

/// Rules for a port of Shunt's switch, on all layers.
pub(super) fn acl() -> Vec<Value> {
    let rule = |i: u32| {
        let mut rule = match i % 4 {
            0 => json!({ "to_ip": format!("203.0.113.{i}/32"), "protocol": 17 }),
            1 => json!({ "protocol": 6, "to_port": (1000 + i).to_string() }),
            2 => json!({ "from_mac": format!("02:5b:ee:00:00:{i:02x}") }),
            _ => json!({ "from_ip": format!("10.{i}.0.0/16") }),
        };
        rule["action"] = json!("deny");
        rule
    };
    (0..RULES).map(rule).collect()
}

/// The rules as OpenFlow flows: frames that no rule denies are switched by address.
pub(super) fn ovs() -> Flows {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let flow = |(i, rule): (usize, Value)| {
        let udp = rule["protocol"] == json!(17);
        let fields = [
            ("to_ip", if udp { "udp,nw_dst" } else { "ip,nw_dst" }),
            ("to_port", "tcp,tp_dst"),
            ("from_mac", "dl_src"),
            ("from_ip", "ip,nw_src"),
        ];
        let fields = fields.iter().filter(|(name, _)| !rule[*name].is_null());
        let fields = fields.map(|(name, field)| format!("{field}={}", text(&rule[*name])));
        let matched = fields.collect::<Vec<_>>().join(",");
        format!("priority={},{matched},actions=drop", 1000 - i)
    };
    let mut flows: Vec<String> = acl().into_iter().enumerate().map(flow).collect();
    flows.push("priority=1,actions=NORMAL".into());
    Flows::Rules(flows, VLAN)
}

#[cfg(test)]
mod tests {
    use model::state::AclRule;

    use super::*;

    #[test]
    fn both_switches_have_the_same_rules() {
        let Flows::Rules(flows, vlan) = ovs() else { panic!("rules") };
        assert_eq!((flows.len(), vlan), (101, VLAN));
        assert_eq!(flows[0], "priority=1000,udp,nw_dst=203.0.113.0/32,actions=drop");
        assert_eq!(flows[1], "priority=999,tcp,tp_dst=1001,actions=drop");
        assert_eq!(flows[2], "priority=998,dl_src=02:5b:ee:00:00:02,actions=drop");
        assert_eq!(flows[3], "priority=997,ip,nw_src=10.3.0.0/16,actions=drop");
    }

    #[test]
    fn rules_are_on_all_layers() {
        let rules: Vec<AclRule> =
            acl().into_iter().map(|rule| serde_json::from_value(rule).unwrap()).collect();
        let layers: [fn(&AclRule) -> bool; 4] = [
            |rule| rule.matches.to_ip.is_some(),
            |rule| rule.matches.to_port.is_some(),
            |rule| rule.matches.from_mac.is_some(),
            |rule| rule.matches.from_ip.is_some(),
        ];
        for layer in layers {
            assert!(rules.iter().filter(|rule| layer(rule)).count() >= 24);
        }
    }
}
