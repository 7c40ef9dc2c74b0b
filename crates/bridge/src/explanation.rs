//! Explanation of a verdict: the rules in their order, each with its result for one frame.
//!
//! For an operator, not for lanes: explanations allocate.

use wire::{FrameHeader, vlan};

use crate::{Action, DropReason, PortId, Verdict};

/// Maximum number of ports that a detail names.
const LIST_MAX: usize = 16;

/// Name of a port, for details.
pub type PortNames<'a> = &'a dyn Fn(PortId) -> String;

/// Result of a rule for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// The frame passes.
    Passed,
    /// The rule is off, or does not concern the frame.
    Off,
    /// The frame is dropped; no rule follows.
    Dropped(DropReason),
}

/// A rule, and its result for a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name of the rule.
    pub rule: &'static str,
    /// Its result.
    pub result: StepResult,
    /// Setting, table entry or part of the frame that led to the result.
    pub detail: String,
}

/// Explanation of a bridge's verdict on a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Rules up to the one that drops the frame, or all.
    pub steps: Vec<Step>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Steps so far.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<Step>);

impl Steps {
    pub(crate) fn passed(&mut self, rule: &'static str, detail: impl Into<String>) {
        self.add(rule, StepResult::Passed, detail.into());
    }

    pub(crate) fn off(&mut self, rule: &'static str, detail: impl Into<String>) {
        self.add(rule, StepResult::Off, detail.into());
    }

    /// A rule with a setting that may be off.
    pub(crate) fn passed_if_on(&mut self, rule: &'static str, is_on: bool) {
        match is_on {
            true => self.passed(rule, "on"),
            false => self.off(rule, "off"),
        }
    }

    fn add(&mut self, rule: &'static str, result: StepResult, detail: String) {
        self.0.push(Step { rule, result, detail });
    }

    /// Ends with a drop.
    pub(crate) fn dropped(
        mut self,
        rule: &'static str,
        reason: DropReason,
        detail: impl Into<String>,
    ) -> Explanation {
        self.add(rule, StepResult::Dropped(reason), detail.into());
        Explanation { steps: self.0, verdict: Verdict::drop(reason) }
    }

    /// Ends with a rule that is off.
    pub(crate) fn end_off(
        mut self,
        rule: &'static str,
        verdict: Verdict,
        detail: &str,
    ) -> Explanation {
        self.off(rule, detail);
        Explanation { steps: self.0, verdict }
    }

    /// Ends with a rule whose result is the verdict.
    pub(crate) fn end(
        mut self,
        rule: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
    ) -> Explanation {
        let result = match verdict.action() {
            Action::Drop(reason) => StepResult::Dropped(reason),
            Action::Port(_) | Action::Flood(_) => StepResult::Passed,
        };
        self.add(rule, result, detail.into());
        Explanation { steps: self.0, verdict }
    }
}

/// Tag of a frame, in words.
pub(crate) fn tag_text(header: FrameHeader) -> String {
    match header.vid() {
        None => "untagged".to_owned(),
        Some(vid) => {
            let priority = header.tci() >> 13;
            let kind = if header.tpid_or_type() == vlan::TPID_8021Q { "802.1Q" } else { "802.1ad" };
            match vid {
                0 => format!("{kind} priority tag, priority {priority}"),
                _ => format!("{kind} tag of VLAN {vid}, priority {priority}"),
            }
        }
    }
}

/// A VLAN by its number, in words.
pub(crate) fn vlan_text(vid: u16) -> String {
    if vid == 0 { "the untagged network".to_owned() } else { format!("VLAN {vid}") }
}

/// Names of ports, separated by commas; at most [`LIST_MAX`].
pub(crate) fn list_text(mut ports: impl Iterator<Item = PortId>, names: PortNames<'_>) -> String {
    let first: Vec<String> = ports.by_ref().take(LIST_MAX).map(names).collect();
    match (first.is_empty(), ports.count()) {
        (true, _) => "none".to_owned(),
        (false, 0) => first.join(", "),
        (false, more) => format!("{} and {more} more", first.join(", ")),
    }
}
