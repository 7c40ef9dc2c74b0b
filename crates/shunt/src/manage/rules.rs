//! `shunt nic rules`, and the representors in `shunt nic show`.

use anyhow::Result;
use api::Method;
use clap::Args;
use model::state::Remedy;
use serde_json::{Value, json};

use super::acl::{kept, no_match};
use super::cells::{cell, condition, entries, find, told_of};
use super::client::{ChangeArgs, DaemonArgs, encode_segment};
use crate::complete;
use crate::error::UsageError;
use crate::flat::Fields;
use crate::text::table;

#[derive(Debug, Args)]
pub(super) struct Rules {
    /// Name of the NIC, in mode switchdev.
    #[arg(add = complete::nic())]
    nic: String,
    /// Append a rule: source and destination (a function, representor or drop), then matches and
    /// actions such as protocol=tcp to_port=443 push_vlan=100 pop_vlan priority=5.
    #[arg(long, value_name = "RULE")]
    add: Vec<String>,
    /// Remove the rule with this number, as shown; repeatable.
    #[arg(long, value_name = "N")]
    remove: Vec<usize>,
    /// Remove all rules first.
    #[arg(long, conflicts_with = "remove")]
    clear: bool,
    #[command(flatten)]
    how: ChangeArgs,
}

impl Rules {
    pub(super) fn run(&self, target: &DaemonArgs) -> Result<()> {
        let path = format!("/v1/nics/{}", encode_segment(&self.nic));
        let nic = target.send(Method::GET, &path, None, None)?;
        let rules: Vec<Value> = entries(&nic.body["rule"]).cloned().collect();
        if self.add.is_empty() && self.remove.is_empty() && !self.clear {
            let stats = target.get("/v1/stats")?;
            let counted: Vec<Value> = (0..rules.len())
                .map(|rule| self.with_counters(&rules[rule], rule + 1, &stats))
                .collect();
            let fields = || Fields::of("NicRule").and(["rule", "frames", "bytes"]);
            return target.show_list(fields, &counted, show);
        }
        let mut all = kept(rules, &self.remove, self.clear)?;
        for text in &self.add {
            all.push(rule(text)?);
        }
        let done = format!("changed the rules of {}", self.nic);
        let how = self.how.of(nic.generation);
        target.change(Method::PATCH, &path, Some(&json!({"rule": all})), &how, &done)
    }

    /// A rule with its counters; one that waits for a VF has none.
    fn with_counters(&self, rule: &Value, number: usize, stats: &Value) -> Value {
        let is_it = |one: &&Value| one["nic"] == *self.nic && one["rule"] == number;
        let counted = entries(&stats["offloads"]).find(is_it).unwrap_or(&Value::Null);
        let mut rule = rule.clone();
        rule["rule"] = number.into();
        rule["frames"] = counted["frames"].clone();
        rule["bytes"] = counted["bytes"].clone();
        rule
    }
}

/// Parses `vf0 uplink protocol=tcp push_vlan=100`. The daemon validates the words.
fn rule(text: &str) -> Result<Value, UsageError> {
    let mut words = text.split_whitespace();
    let (Some(from), Some(to)) = (words.next(), words.next()) else {
        let message = "is no rule";
        let remedy = Remedy::choose(
            "begin it with source and destination, such as vf0 uplink",
            "FROM TO, matches and actions, such as vf0 uplink vlan=5",
        );
        return Err(UsageError::option("--add", text, message, remedy));
    };
    let mut rule = json!({"from": from, "to": to});
    for word in words {
        match word.split_once('=') {
            None if word == "pop_vlan" => rule["pop_vlan"] = true.into(),
            None => return Err(no_match(text, word)),
            Some(("push_vlan", id)) => rule["push_vlan"] = json!({"id": number(id)}),
            Some((name @ ("push_qos" | "push_proto"), value)) if rule["push_vlan"].is_object() => {
                let name = name.trim_start_matches("push_");
                rule["push_vlan"][name] = number(value);
            }
            Some((name, value)) => {
                let is_number = matches!(name, "ethertype" | "vlan" | "protocol" | "priority");
                rule[name] = if is_number { number(value) } else { value.into() };
            }
        }
    }
    Ok(rule)
}

/// A number, or text that the daemon will reject.
fn number(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| text.into(), Value::from)
}

fn show(rules: &[Value]) -> String {
    const OWN: [&str; 8] =
        ["rule", "from", "to", "priority", "pop_vlan", "push_vlan", "frames", "bytes"];
    let row = |rule: &Value| {
        let conditions = rule.as_object().into_iter().flatten();
        let conditions = conditions.filter(|(name, _)| !OWN.contains(&name.as_str()));
        let mut words: Vec<String> =
            conditions.map(|(name, value)| condition(name, value)).collect();
        if words.is_empty() {
            words.push("every frame".to_owned());
        }
        words.extend((rule["pop_vlan"] == true).then(|| "pop_vlan".to_owned()));
        words.extend(rule["push_vlan"]["id"].as_u64().map(|id| format!("push_vlan={id}")));
        for (name, usual) in [("qos", json!(0)), ("proto", json!("802.1q"))] {
            let value = &rule["push_vlan"][name];
            if !value.is_null() && *value != usual {
                words.push(format!("push_{name}={}", cell(value)));
            }
        }
        let [number, priority, from, to, frames, bytes] =
            ["rule", "priority", "from", "to", "frames", "bytes"].map(|name| cell(&rule[name]));
        [number, priority, from, to, words.join(" "), frames, bytes]
    };
    let header = ["rule", "priority", "from", "to", "frames of it", "frames", "bytes"];
    table(header, rules.iter().map(row).collect())
}

/// Representors of a NIC in force, as comments of a file.
pub(super) fn representors(nic: &Value) -> String {
    let one = |it: &Value| {
        let name = cell(&it["name"]);
        let link = if it["up"] == true { "up" } else { "down" };
        let mtu = it["mtu"].as_u64().map_or_else(String::new, |mtu| format!(", MTU {mtu}"));
        let line = format!(
            "# {name}: representor of {}, {}, {link}{mtu}\n",
            cell(&it["of"]),
            cell(&it["attachment"])
        );
        let gone = find(&json!([it["device"]]), "state", &json!("gone")).clone();
        line + &told_of(&name, &gone)
    };
    entries(&nic["representors"]).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_written_as_it_is_shown() {
        let read = rule(
            "vf0 uplink protocol=tcp to_port=443 push_vlan=100 push_qos=3 pop_vlan priority=5",
        );
        let expected = json!({
            "from": "vf0", "to": "uplink", "protocol": "tcp", "to_port": "443", "pop_vlan": true,
            "push_vlan": {"id": 100, "qos": 3}, "priority": 5,
        });
        assert_eq!(read.unwrap(), expected);
        let text = show(&[expected]);
        for word in ["protocol=tcp", "to_port=443", "pop_vlan", "push_vlan=100", "push_qos=3"] {
            assert!(text.contains(word), "{text}");
        }
        assert!(rule("vf0").unwrap_err().to_string().contains("vf0 uplink"));
        assert!(
            rule("vf0 drop quickly")
                .unwrap_err()
                .to_string()
                .contains("quickly, which is no match")
        );
    }

    #[test]
    fn representors_say_whose_they_are_and_how() {
        let up = json!({"of": "vf0", "name": "pf0vf0", "attachment": "tap:a", "up": true, "mtu": 1500, "device": null});
        let gone = json!({"state": "gone", "since_ms": 0, "reason": "no such device", "notes": []});
        let down = json!({"of": "uplink", "name": "p0", "attachment": "tap:b", "up": false, "mtu": null, "device": gone});
        let text = representors(&json!({"representors": [up, down]}));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# pf0vf0: representor of vf0, tap:a, up, MTU 1500");
        assert_eq!(lines[1], "# p0: representor of uplink, tap:b, down");
        assert!(lines[2].starts_with("# p0: gone since"), "{text}");
    }
}
