//! Switchdev mode: rules match the frames of functions; other frames go to the function's
//! representor, for the host.
//!
//! Model: each function is connected to its representor. Frames from the representor always go to
//! the function. Frames from the function meet its rules in order, and the first match decides;
//! without a match they go to the representor. Of the bridge's rules in [`nic`](crate::nic) the
//! first two apply before: a link that is down drops all frames, and `spoof_check` requires a MAC
//! of the function as the source. No others apply: there is no VEB, VLANs are not isolated, and
//! addresses do not select functions. But rules take the outer tag for the VLAN, so a function may
//! not send a priority tag that another tag follows here either. The uplink counts as a function
//! whose representor is that of the wire.
//!
//! A rule does what software behind the representor would do for the same match, as the kernel
//! requires (Linux, `networking/representors.rst`). So a rule names frames that arrive at a
//! representor, and its target is the function behind another one.
//!
//! A frame with truncated or unparseable headers matches only rules on addresses, VLAN and type.
//! Its VLAN is that of its outer tag; 0 means no tag or a priority tag.
//!
//! Limits: [`MAX_RULES`] rules, one target each. No I/O, no clock, no allocation after the table is
//! built.

use crate::matching::{Key, List, Match, Words};
use wire::{FrameHeader, HeaderSnapshot, VlanEdit};

use crate::nic::error::ConfigError;
use crate::nic::port::PortName;
use crate::nic::{NicConfig, PortVlan, Table};
use crate::{BURST, DropReason, PortId};

/// Maximum number of rules of a NIC.
pub const MAX_RULES: usize = 4096;

/// A rule of a NIC in switchdev mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Sender: the uplink, the PF or a VF.
    pub from: PortId,
    /// Match of its frames.
    pub matches: Match,
    /// Target of its frames.
    pub to: RuleTarget,
    /// Pop the outer tag, if there is one.
    pub pop: bool,
    /// Tag to push after that.
    pub push: Option<PortVlan>,
}

/// Target of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleTarget {
    /// To the uplink, the PF or a VF.
    Port(PortId),
    /// The representor, as without a match: an exception from later rules.
    Representor,
    /// Drop.
    Drop,
}

/// Result for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SwitchdevAction {
    /// To the representor: no rule matches.
    Slow,
    /// The rule with this number decides.
    Rule(u16),
    /// Dropped before any rule.
    Drop(DropReason),
}

/// Results for a burst. Made once, reused for every burst.
#[derive(Clone, Debug)]
pub struct SwitchdevActions {
    of: [SwitchdevAction; BURST],
    len: usize,
    wants_snapshots: bool,
}

impl SwitchdevActions {
    /// None yet.
    pub const fn new() -> Self {
        Self { of: [SwitchdevAction::Slow; BURST], len: 0, wants_snapshots: false }
    }

    /// One for each frame of the burst.
    #[inline]
    pub fn as_slice(&self) -> &[SwitchdevAction] {
        &self.of[..self.len.min(BURST)]
    }

    /// Returns `true` if a priority-tagged frame was refused because its longer snapshot was
    /// missing. Classify the burst again with longer snapshots.
    #[inline]
    pub const fn wants_snapshots(&self) -> bool {
        self.wants_snapshots
    }

    fn fill(&mut self, len: usize, action: SwitchdevAction) {
        self.len = len.min(BURST);
        self.of[..self.len].fill(action);
    }
}

impl Default for SwitchdevActions {
    fn default() -> Self {
        Self::new()
    }
}

/// The rules of one port.
#[derive(Clone, Debug)]
struct Of {
    list: List,
    /// Bits of a key that the rules examine.
    mask: Words,
    /// Numbers of the rules among all.
    numbers: Box<[u16]>,
    /// Set if some examine more than the first 16 bytes.
    needs_snapshots: bool,
}

/// The rules of a NIC, ready to be matched.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// By port; `None` without rules.
    of: Vec<Option<Of>>,
    all: Box<[Rule]>,
}

impl Rules {
    /// Builds from validated rules.
    pub(crate) fn build(rules: &[Rule], ports: usize) -> Self {
        let of = |port: usize| {
            let own = || rules.iter().enumerate().filter(|(_, rule)| rule.from.index() == port);
            own().next()?;
            let list = List::build(own().map(|(_, rule)| &rule.matches));
            let needs_snapshots = own().any(|(_, rule)| !rule.matches.is_shallow());
            let numbers = own().map(|(number, _)| number as u16).collect();
            Some(Of { mask: list.mask(), list, numbers, needs_snapshots })
        };
        Self { of: (0..ports).map(of).collect(), all: rules.into() }
    }

    fn of(&self, from: PortId) -> Option<&Of> {
        self.of.get(from.index())?.as_ref()
    }
}

impl Table {
    /// Returns `true` in switchdev mode, where [`sort`](Self::sort) decides.
    pub fn is_switchdev(&self) -> bool {
        self.rules.is_some()
    }

    /// Returns `true` if rules examine more than the first 16 bytes of a port's frames.
    pub fn needs_snapshots(&self, from: PortId) -> bool {
        self.rules.as_ref().and_then(|rules| rules.of(from)).is_some_and(|of| of.needs_snapshots)
    }

    /// Matches up to [`BURST`] frames from a function or the wire in switchdev mode, and ignores
    /// further ones. `snapshots` may be empty. The receiver must get exactly the bytes that were
    /// matched.
    pub fn sort(
        &self,
        from: PortId,
        headers: &[[u8; 16]],
        snapshots: &[HeaderSnapshot],
        out: &mut SwitchdevActions,
    ) {
        let headers = &headers[..headers.len().min(BURST)];
        out.wants_snapshots = false;
        let source = match self.source(from) {
            Ok(source) => source,
            Err(reason) => return out.fill(headers.len(), SwitchdevAction::Drop(reason)),
        };
        out.fill(headers.len(), SwitchdevAction::Slow);
        let checked = source.src_lookup || source.src_mask != 0;
        if checked {
            for (header, action) in headers.iter().zip(&mut out.of) {
                if self.is_spoofed(source, FrameHeader(*header)) {
                    *action = SwitchdevAction::Drop(DropReason::SpoofedMac);
                }
            }
        }
        let SwitchdevActions { of: actions, wants_snapshots, .. } = out;
        for (index, (header, action)) in headers.iter().zip(actions).enumerate() {
            let second = || {
                *wants_snapshots |= snapshots.is_empty();
                snapshots.get(index).is_none_or(HeaderSnapshot::has_second_tag)
            };
            if *action == SwitchdevAction::Slow && source.hides_vlan(FrameHeader(*header), second) {
                *action = SwitchdevAction::Drop(DropReason::VlanForbidden);
            }
        }
        if let Some(of) = self.rules.as_ref().and_then(|rules| rules.of(from)) {
            of.sort(headers, snapshots, &mut out.of);
        }
    }

    /// Rule with this number.
    pub fn rule(&self, number: u16) -> Option<&Rule> {
        self.rules.as_ref()?.all.get(usize::from(number))
    }
}

impl Of {
    /// Finds the rule of each frame that was not dropped.
    fn sort(
        &self,
        headers: &[[u8; 16]],
        snapshots: &[HeaderSnapshot],
        actions: &mut [SwitchdevAction; BURST],
    ) {
        // Consecutive frames of one flow reuse the last result.
        let mut last: Option<(Words, SwitchdevAction)> = None;
        for (index, (header, action)) in headers.iter().zip(actions).enumerate() {
            if *action != SwitchdevAction::Slow {
                continue;
            }
            let short;
            let snapshot = match snapshots.get(index) {
                Some(snapshot) => snapshot,
                None => {
                    short = HeaderSnapshot::of_frame(header);
                    &short
                }
            };
            let header = FrameHeader(*header);
            let vid = header.vid().unwrap_or(0);
            let words = Key::words_of(header, snapshot, vid)
                .unwrap_or_else(|| Key::outer(header, snapshot, vid).words());
            let masked: Words = std::array::from_fn(|n| words[n] & self.mask[n]);
            *action = match last {
                Some((words, action)) if words == masked => action,
                _ => self.find(&Key::from_words(&words)),
            };
            last = Some((masked, *action));
        }
    }

    fn find(&self, key: &Key) -> SwitchdevAction {
        let first = self.list.find(key, |_| true);
        first.map_or(SwitchdevAction::Slow, |rule| SwitchdevAction::Rule(self.numbers[rule]))
    }
}

impl Rule {
    /// Edit of a matching frame.
    #[inline]
    pub fn edit(&self, header: &[u8; 16]) -> VlanEdit {
        let pops = self.pop && FrameHeader(*header).is_tagged();
        match (pops, self.push.map(PortVlan::tag)) {
            (false, None) => VlanEdit::None,
            (true, None) => VlanEdit::Pop,
            (false, Some(tag)) => VlanEdit::Push(tag),
            (true, Some(tag)) => VlanEdit::Retag(tag),
        }
    }
}

impl NicConfig {
    /// Validates the rules, and the other settings in switchdev mode.
    pub(crate) fn check_switchdev(&self) -> Result<(), ConfigError> {
        let Some(rules) = &self.switchdev else { return Ok(()) };
        if self.switch.is_some() || self.mode != crate::nic::Mode::Veb {
            return Err(ConfigError::SwitchdevBridge);
        }
        if rules.len() > MAX_RULES {
            return Err(ConfigError::TooManyRules { rules: rules.len() });
        }
        for (port, function) in self.functions() {
            let refused = [
                ("vlan", function.vlan.is_some()),
                ("trunk", !function.trunk.is_empty()),
                ("promiscuous", function.promiscuous),
                ("mirror", function.mirror.is_some()),
            ];
            if let Some((field, _)) = refused.into_iter().find(|(_, is_set)| *is_set) {
                return Err(ConfigError::Switchdev { port, field });
            }
        }
        rules.iter().enumerate().try_for_each(|(number, rule)| self.check_rule(number, rule))
    }

    fn check_rule(&self, rule: usize, of: &Rule) -> Result<(), ConfigError> {
        let is_there =
            |port: PortId| port == PortId::UPLINK || self.functions().any(|it| it.0 == port);
        let wrong = |field: &'static str, value: String, allowed: String| {
            Err(ConfigError::Rule { rule, field, value, allowed })
        };
        if !is_there(of.from) {
            let allowed = "the uplink, or a PF or VF that exists".to_owned();
            return wrong("from", PortName(of.from).to_string(), allowed);
        }
        match of.to {
            RuleTarget::Port(to) if to == of.from || !is_there(to) => {
                let allowed = "the uplink, or a PF or VF that exists, and not where they come from";
                return wrong("to", PortName(to).to_string(), allowed.to_owned());
            }
            RuleTarget::Representor | RuleTarget::Drop if of.pop || of.push.is_some() => {
                let allowed = "no tag changed of frames that go to no port".to_owned();
                return wrong("to", of.to.to_string(), allowed);
            }
            RuleTarget::Port(_) | RuleTarget::Representor | RuleTarget::Drop => {}
        }
        if let Some(qos) = of.push.map(|push| push.qos).filter(|qos| *qos > crate::nic::QOS_MAX) {
            return wrong("push.qos", qos.to_string(), format!("0 to {}", crate::nic::QOS_MAX));
        }
        of.matches.check().or_else(|it| wrong(it.field, it.value, it.allowed))
    }
}

impl std::fmt::Display for RuleTarget {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Port(port) => port.fmt(out),
            Self::Representor => out.write_str("the representor"),
            Self::Drop => out.write_str("drop"),
        }
    }
}
