//! `shunt switch acl`: rules of a switch port.

use anyhow::Result;
use api::Method;
use clap::Args;
use model::state::Remedy;
use serde_json::{Value, json};

use super::cells::{cell, condition, entries, find};
use super::client::{ChangeArgs, DaemonArgs, encode_segment};
use super::switch::port_path;
use crate::complete;
use crate::error::UsageError;
use crate::flat::Fields;
use crate::text::table;

#[derive(Debug, Args)]
pub(super) struct Acl {
    /// Name of the switch.
    #[arg(add = complete::switch())]
    switch: String,
    /// Adapter or tunnel at the port, or uplink.
    #[arg(add = complete::switch_port())]
    adapter: String,
    /// Append a rule for frames from the port: allow, deny or count, and matches such as
    /// from_ip=10.0.0.0/8 protocol=tcp to_port=443.
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

impl Acl {
    pub(super) fn run(&self, target: &DaemonArgs) -> Result<()> {
        let ports = format!("/v1/switches/{}/ports", encode_segment(&self.switch));
        let ports = target.send(Method::GET, &ports, None, None)?;
        let port = find(&ports.body, "adapter", &json!(self.adapter));
        let rules: Vec<Value> = entries(&port["acl"]).cloned().collect();
        if self.add.is_empty() && self.remove.is_empty() && !self.clear {
            let state = target.get("/v1/state")?;
            let switch = find(&state["switch"], "name", &json!(self.switch));
            let names = complete::port_names(&state, switch);
            if !names.contains(&self.adapter) {
                let (names, name) = (names.iter().map(String::as_str), self.adapter.as_str());
                let message = format!("has no port on switch {}", self.switch);
                return Err(UsageError::choose(
                    "<ADAPTER>",
                    name,
                    &message,
                    &names.collect::<Vec<_>>(),
                )
                .into());
            }
            let stats = target.get("/v1/stats")?;
            let numbered = (1..).zip(&rules);
            let counted = numbered.map(|(number, rule)| self.with_count(rule, number, &stats));
            let counted: Vec<Value> = counted.collect();
            let fields = || Fields::of("AclRule").and(["rule", "frames"]);
            return target.show_list(fields, &counted, show_rules);
        }
        let mut rules = kept(rules, &self.remove, self.clear)?;
        for text in &self.add {
            rules.push(rule(text)?);
        }
        let body = json!({"acl": rules});
        let done = format!("changed the rules of {} on {}", self.adapter, self.switch);
        let path = port_path(&self.switch, &self.adapter);
        let how = self.how.of(ports.generation);
        target.change(Method::PATCH, &path, Some(&body), &how, &done)
    }

    /// A rule with its number and the frames that matched it.
    fn with_count(&self, rule: &Value, number: usize, stats: &Value) -> Value {
        let is_it = |one: &&Value| {
            one["switch"] == *self.switch && one["port"] == *self.adapter && one["rule"] == number
        };
        let counted = entries(&stats["rules"]).find(is_it).unwrap_or(&Value::Null);
        let mut rule = rule.clone();
        rule["rule"] = number.into();
        rule["frames"] = counted["frames"].clone();
        rule
    }
}

/// Rules without those to remove, which are numbered from 1.
pub(super) fn kept(
    rules: Vec<Value>,
    remove: &[usize],
    clear: bool,
) -> Result<Vec<Value>, UsageError> {
    let most = rules.len();
    match remove.iter().find(|number| !(1..=most).contains(number)) {
        Some(wrong) if most == 0 => Err(UsageError::option(
            "--remove",
            *wrong,
            "names no rule",
            "leave it out: there are none",
        )),
        Some(wrong) => Err(UsageError::out_of_range("--remove", *wrong, 1, most)),
        None => {
            let stays = |number: usize| !clear && !remove.contains(&number);
            let numbered = (1..).zip(rules).filter(|(number, _)| stays(*number));
            Ok(numbered.map(|(_, rule)| rule).collect())
        }
    }
}

/// A word of a rule is no match.
pub(super) fn no_match(rule: &str, word: &str) -> UsageError {
    let message = format!("has {word}, which is no match");
    let remedy = Remedy::choose("write a match such as protocol=tcp", "NAME=VALUE");
    UsageError::option("--add", rule, &message, remedy)
}

/// Parses `deny protocol=udp to_port=67-68`. The daemon validates the words.
fn rule(text: &str) -> Result<Value, UsageError> {
    let mut words = text.split_whitespace();
    let Some(action) = words.next() else {
        return Err(UsageError::choose("--add", text, "is no rule", &["allow", "deny", "count"]));
    };
    let mut rule = json!({"action": action});
    for word in words {
        let Some((name, value)) = word.split_once('=') else {
            if ["rx", "tx"].contains(&word) {
                let message = format!("has {word}, but a rule is for what its port sends");
                let remedy = format!(
                    "leave {word} out, and filter what an adapter receives at the ports that send \
                     it, such as uplink"
                );
                return Err(UsageError::option("--add", text, &message, remedy));
            }
            return Err(no_match(text, word));
        };
        let is_number = matches!(name, "ethertype" | "vlan" | "protocol");
        let number = value.parse::<u64>().ok().filter(|_| is_number);
        rule[name] = number.map_or_else(|| Value::from(value), Value::from);
    }
    Ok(rule)
}

fn show_rules(rules: &[Value]) -> String {
    const OWN: [&str; 3] = ["rule", "action", "frames"];
    let row = |rule: &Value| {
        let conditions = rule.as_object().into_iter().flatten();
        let conditions = conditions.filter(|(name, _)| !OWN.contains(&name.as_str()));
        let conditions: Vec<String> =
            conditions.map(|(name, value)| condition(name, value)).collect();
        let all = if conditions.is_empty() { "every frame".into() } else { conditions.join(" ") };
        [cell(&rule["rule"]), cell(&rule["action"]), all, cell(&rule["frames"])]
    };
    table(["rule", "action", "conditions", "frames"], rules.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_words() {
        let told = |text: &str| rule(text).unwrap_err().to_string();
        assert_eq!(
            rule("deny protocol=17 to_port=67-68 from_ip=10.0.0.0/8").unwrap(),
            json!({"action": "deny", "protocol": 17, "to_port": "67-68", "from_ip": "10.0.0.0/8"})
        );
        assert_eq!(rule("deny").unwrap(), json!({"action": "deny"}));
        assert!(told(" ").contains("allow, deny, count"));
        assert!(told("deny rx").contains("leave rx out"));
        assert!(told("deny 17").contains("17, which is no match"));
        assert_eq!(rule("deny protocol=udp").unwrap()["protocol"], "udp");
    }
}
