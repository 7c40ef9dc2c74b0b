//! Switchdev mode: what a function sends is matched with rules, and what none matches is for the
//! host, at the function's representor.
//!
//! Model: there is a pipe from each function to its representor. What the representor sends comes
//! out at the function, whatever it is. What the function sends meets the function's rules, in
//! their order: the first that fits says where it goes. A frame that fits none comes out at the
//! representor. Of the bridge's rules (those of the crate) the first two hold before: a link that
//! is down lets nothing pass, and with `spoof_check` the source must be a MAC of the function.
//! Nothing else does: there is no VEB, no VLAN is a wall, and addresses say nothing of where
//! functions are. But rules take a frame's outer tag for its VLAN, so a function may not send a
//! priority tag that another tag follows here either. The uplink is a function here, whose pipe
//! leads to the wire's representor.
//!
//! A rule does what software behind the representor would do for the same match, as the kernel's
//! contract asks (Linux, `networking/representors.rst`): so it speaks of frames that arrive at a
//! representor, and its target is what is behind another.
//!
//! A frame whose headers cannot be told, or are cut off, fits no rule that names more of it than
//! addresses, VLAN and type. Its VLAN is that of its outer tag; 0 is without, or a priority tag.
//!
//! Limits: [`MAX_RULES`] rules, one target each. No I/O, no clock, no allocation after the table is
//! built.

use crate::matching::{Key, List, Match, Words};
use wire::{FrameHeader, HeaderSnapshot, VlanEdit};

use crate::nic::mistake::ConfigError;
use crate::nic::port::PortName;
use crate::nic::{NicConfig, PortVlan, Table};
use crate::{BURST, DropReason, PortId};

/// The most rules of a NIC.
pub const MAX_RULES: usize = 4096;

/// A rule of a NIC in switchdev mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whose frames it is for: the uplink's, the PF's or a VF's.
    pub from: PortId,
    /// Which of them.
    pub matches: Match,
    /// Where they go.
    pub to: Target,
    /// Whether their outer tag is taken off, if they have one.
    pub pop: bool,
    /// The tag that they get, once that is done.
    pub push: Option<PortVlan>,
}

/// Where a rule sends frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// To the uplink, the PF or a VF.
    Port(PortId),
    /// To the representor, as frames that no rule matches: an exception from later rules.
    Representor,
    /// Nowhere.
    Drop,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It comes out at the representor, as no rule matches it.
    Slow,
    /// The rule of this number says.
    Rule(u16),
    /// It is dropped before any rule.
    Drop(DropReason),
}

/// What becomes of each frame of a burst. Made once, used for every burst.
#[derive(Clone, Debug)]
pub struct Fates {
    of: [Fate; BURST],
    len: usize,
    wants_deep: bool,
}

impl Fates {
    /// None yet.
    pub const fn new() -> Self {
        Self { of: [Fate::Slow; BURST], len: 0, wants_deep: false }
    }

    /// One for each frame of the burst.
    #[inline]
    pub fn as_slice(&self) -> &[Fate] {
        &self.of[..self.len.min(BURST)]
    }

    /// Returns `true` if a priority-tagged frame was refused because its longer snapshot was
    /// missing. Classify the burst again with longer snapshots.
    #[inline]
    pub const fn wants_deep(&self) -> bool {
        self.wants_deep
    }

    fn fill(&mut self, len: usize, fate: Fate) {
        self.len = len.min(BURST);
        self.of[..self.len].fill(fate);
    }
}

impl Default for Fates {
    fn default() -> Self {
        Self::new()
    }
}

/// The rules of one port.
#[derive(Clone, Debug)]
struct Of {
    list: List,
    /// The bits of a key that decide.
    mask: Words,
    /// Their numbers among all.
    numbers: Box<[u16]>,
    /// Whether some look beyond the first 16 bytes.
    deep: bool,
}

/// The rules of a NIC, ready to be matched.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// By port; `None` without rules.
    of: Vec<Option<Of>>,
    all: Box<[Rule]>,
}

impl Rules {
    /// From rules that were checked.
    pub(crate) fn build(rules: &[Rule], ports: usize) -> Self {
        let of = |port: usize| {
            let own = || rules.iter().enumerate().filter(|(_, rule)| rule.from.index() == port);
            own().next()?;
            let list = List::build(own().map(|(_, rule)| &rule.matches));
            let deep = own().any(|(_, rule)| !rule.matches.is_shallow());
            let numbers = own().map(|(number, _)| number as u16).collect();
            Some(Of { mask: list.mask(), list, numbers, deep })
        };
        Self { of: (0..ports).map(of).collect(), all: rules.into() }
    }

    fn of(&self, from: PortId) -> Option<&Of> {
        self.of.get(from.index())?.as_ref()
    }
}

impl Table {
    /// Whether it is in switchdev mode: then [`sort`](Self::sort) says what becomes of frames.
    pub fn is_switchdev(&self) -> bool {
        self.rules.is_some()
    }

    /// Whether rules look at more of a port's frames than the first 16 bytes.
    pub fn needs_deep(&self, from: PortId) -> bool {
        self.rules.as_ref().and_then(|rules| rules.of(from)).is_some_and(|of| of.deep)
    }

    /// Judges up to [`BURST`] frames that a function, or the wire, sent to a NIC in switchdev mode;
    /// those beyond are not looked at. `deep` shows more of each, or is empty; what is judged here
    /// must also be what the receiver gets.
    pub fn sort(&self, from: PortId, heads: &[[u8; 16]], deep: &[HeaderSnapshot], out: &mut Fates) {
        let heads = &heads[..heads.len().min(BURST)];
        out.wants_deep = false;
        let source = match self.source(from) {
            Ok(source) => source,
            Err(reason) => return out.fill(heads.len(), Fate::Drop(reason)),
        };
        out.fill(heads.len(), Fate::Slow);
        let checked = source.src_lookup || source.src_mask != 0;
        if checked {
            for (head, fate) in heads.iter().zip(&mut out.of) {
                if self.is_spoofed(source, FrameHeader(*head)) {
                    *fate = Fate::Drop(DropReason::SpoofedMac);
                }
            }
        }
        let Fates { of: fates, wants_deep, .. } = out;
        for (index, (head, fate)) in heads.iter().zip(fates).enumerate() {
            let second = || {
                *wants_deep |= deep.is_empty();
                deep.get(index).is_none_or(HeaderSnapshot::has_second_tag)
            };
            if *fate == Fate::Slow && source.hides_vlan(FrameHeader(*head), second) {
                *fate = Fate::Drop(DropReason::VlanForbidden);
            }
        }
        if let Some(of) = self.rules.as_ref().and_then(|rules| rules.of(from)) {
            of.sort(heads, deep, &mut out.of);
        }
    }

    /// The rule of this number.
    pub fn rule(&self, number: u16) -> Option<&Rule> {
        self.rules.as_ref()?.all.get(usize::from(number))
    }
}

impl Of {
    /// Finds the rule of each frame that was not dropped.
    fn sort(&self, heads: &[[u8; 16]], deep: &[HeaderSnapshot], fates: &mut [Fate; BURST]) {
        // Frames of one flow come together; the last one's answer is at hand.
        let mut last: Option<(Words, Fate)> = None;
        for (index, (head, fate)) in heads.iter().zip(fates).enumerate() {
            if *fate != Fate::Slow {
                continue;
            }
            let short;
            let deep = match deep.get(index) {
                Some(deep) => deep,
                None => {
                    short = HeaderSnapshot::of_frame(head);
                    &short
                }
            };
            let head = FrameHeader(*head);
            let vid = head.vid().unwrap_or(0);
            let words = Key::words_of(head, deep, vid)
                .unwrap_or_else(|| Key::outer(head, deep, vid).words());
            let masked: Words = std::array::from_fn(|n| words[n] & self.mask[n]);
            *fate = match last {
                Some((words, fate)) if words == masked => fate,
                _ => self.find(&Key::from_words(&words)),
            };
            last = Some((masked, *fate));
        }
    }

    fn find(&self, key: &Key) -> Fate {
        let first = self.list.find(key, |_| true);
        first.map_or(Fate::Slow, |rule| Fate::Rule(self.numbers[rule]))
    }
}

impl Rule {
    /// What is done to the tag of a frame that it matches.
    #[inline]
    pub fn edit(&self, head: &[u8; 16]) -> VlanEdit {
        let pops = self.pop && FrameHeader(*head).is_tagged();
        match (pops, self.push.map(PortVlan::tag)) {
            (false, None) => VlanEdit::None,
            (true, None) => VlanEdit::Pop,
            (false, Some(tag)) => VlanEdit::Push(tag),
            (true, Some(tag)) => VlanEdit::Retag(tag),
        }
    }
}

impl NicConfig {
    /// Checks what switchdev mode asks of rules, and of everything else.
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
            Target::Port(to) if to == of.from || !is_there(to) => {
                let allowed = "the uplink, or a PF or VF that exists, and not where they come from";
                return wrong("to", PortName(to).to_string(), allowed.to_owned());
            }
            Target::Representor | Target::Drop if of.pop || of.push.is_some() => {
                let allowed = "no tag changed of frames that go to no port".to_owned();
                return wrong("to", of.to.to_string(), allowed);
            }
            Target::Port(_) | Target::Representor | Target::Drop => {}
        }
        if let Some(qos) = of.push.map(|push| push.qos).filter(|qos| *qos > crate::nic::QOS_MAX) {
            return wrong("push.qos", qos.to_string(), format!("0 to {}", crate::nic::QOS_MAX));
        }
        of.matches.check().or_else(|it| wrong(it.field, it.value, it.allowed))
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Port(port) => port.fmt(out),
            Self::Representor => out.write_str("the representor"),
            Self::Drop => out.write_str("drop"),
        }
    }
}
