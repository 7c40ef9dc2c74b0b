//! Rules for switchdev mode: bridge settings without effect, representors, and rules.

use std::collections::HashSet;

use serde_json::Value;

use super::super::attachment::Attachment;
use super::super::nic::{Bridging, Nic};
use super::super::switchdev::NicRule;
use super::super::text::{FunctionName, RuleTarget};
use super::{Check, UniqueKeys};

/// Longest interface name, in bytes.
const NAME_MAX: usize = 15;

impl<'a> Check<'a> {
    /// Checks a NIC's fields against its mode.
    pub(super) fn switchdev(&mut self, nic: &'a Nic, at: &str) {
        if !nic.is_switchdev() {
            let given = [("representor", nic.representors.len()), ("rule", nic.rules.len())];
            for (field, _) in given.into_iter().filter(|(_, len)| *len > 0) {
                let allowed = "leave it out, or write mode = \"switchdev\"".to_owned();
                let error = "needs mode switchdev, and the NIC is in mode legacy";
                self.wrong(format!("{at}.{field}"), Value::Null, error, allowed);
            }
            return;
        }
        if nic.bridging != Bridging::Veb {
            let word = serde_json::json!(nic.bridging);
            let allowed = "leave it out, or write mode = \"legacy\"".to_owned();
            let error = "needs the NIC's own bridge, which switchdev mode does not have";
            self.wrong(format!("{at}.bridging"), word, error, allowed);
        }
        let mut switches = self.state.switches.iter().enumerate();
        if let Some((i, switch)) = switches.find(|(_, switch)| switch.nic == nic.name) {
            let error = "is in switchdev mode, where the host is the switch";
            let allowed = "name a NIC in mode legacy".to_owned();
            self.wrong(format!("switch[{i}].nic"), switch.nic.as_str(), error, allowed);
        }
        self.representors(nic, at);
        for (i, rule) in nic.rules.iter().enumerate() {
            self.nic_rule(nic, rule, &format!("{at}.rule[{i}]"));
        }
    }

    fn representors(&mut self, nic: &'a Nic, at: &str) {
        let mut of = UniqueKeys::new("is the function of");
        for (i, it) in nic.representors.iter().enumerate() {
            let at = format!("{at}.representor[{i}]");
            let field = format!("{at}.of");
            of.claim(&mut self.problems, it.of, &field, &it.of.to_string());
            self.function(nic, it.of, field);
            self.guests_attachment(&it.attachment, &format!("{at}.attachment"));
            self.no_vf(&it.attachment, &format!("{at}.attachment"));
        }
        for (function, attachment, given) in nic.representors() {
            let (None, Attachment::Tap(tap)) = (given, &attachment) else { continue };
            let remedy = format!(
                "write a [[nic.representor]] with of = \"{function}\" and another attachment"
            );
            let field = format!("{at}.mode");
            if tap.interface.len() > NAME_MAX {
                let error = "yields a representor name that is too long for an interface";
                self.wrong(field, tap.interface.as_str(), error, remedy);
            } else {
                let (key, name) = ((None, tap.interface.clone()), tap.interface.as_str());
                self.interfaces.claim(&mut self.problems, key, &field, &name);
            }
        }
    }

    /// A function that must exist.
    fn function(&mut self, nic: &Nic, name: FunctionName, field: String) {
        let there: HashSet<FunctionName> = nic.represented().collect();
        // A disabled VF may be named, so that `num_vfs` can change without other changes.
        let may_be = matches!(name, FunctionName::Vf(index) if index < nic.total_vfs);
        if !there.contains(&name) && !may_be {
            let allowed = match name {
                FunctionName::Uplink => "give the NIC an uplink".to_owned(),
                FunctionName::Pf => "give the NIC a pf".to_owned(),
                FunctionName::Vf(_) => format!("name a VF below total_vfs, {}", nic.total_vfs),
            };
            let error = format!("does not exist on {}", nic.name);
            self.wrong(field, name.to_string(), &error, allowed);
        }
    }

    fn nic_rule(&mut self, nic: &'a Nic, rule: &NicRule, at: &str) {
        self.function(nic, rule.from, format!("{at}.from"));
        match rule.to {
            RuleTarget::Function(to) if to == rule.from => {
                let allowed = "name another function, or representor or drop".to_owned();
                let error = "is the source of the frames";
                self.wrong(format!("{at}.to"), to.to_string(), error, allowed);
            }
            RuleTarget::Function(to) => self.function(nic, to, format!("{at}.to")),
            RuleTarget::Representor | RuleTarget::Drop => {
                let changes =
                    [("pop_vlan", rule.pop_vlan), ("push_vlan", rule.push_vlan.is_some())];
                for (field, _) in changes.into_iter().filter(|(_, changes)| *changes) {
                    let error = "needs a function as destination";
                    let allowed = "leave it out, or name a function in to".to_owned();
                    self.wrong(format!("{at}.{field}"), Value::Null, error, allowed);
                }
            }
        }
        self.rule(&rule.matches, at);
    }
}
