//! Explanation of the switch's verdict on a frame: the rules of [`switch`](crate::switch), in their
//! order.
//!
//! Each step calls the function that the classifier calls, so an explanation never contradicts it.

use wire::{FrameHeader, HeaderSnapshot};

use crate::explanation::{Steps, list_text, tag_text, vlan_text};
use crate::matching::Key;
use crate::switch::bins::key;
use crate::switch::meter::Cost;
use crate::switch::source::{Screen, Source, kind_of};
use crate::switch::{LEARN_MAX, RuleAction, State, Table};
use crate::{Action, DropReason, Explanation, PortId, PortNames, Verdict};

/// Rules of [`Table::admit`], in their order.
const ADMISSION: [(&str, DropReason); 4] = [
    ("source address", DropReason::SourceMulticast),
    ("VLAN", DropReason::VlanForbidden),
    ("reserved group", DropReason::LinkLocal),
    ("static addresses", DropReason::SpoofedMac),
];

/// A frame on its way through the rules.
struct Traced<'a> {
    table: &'a Table,
    state: &'a State,
    source: &'a Source,
    header: FrameHeader,
    vid: u16,
    names: PortNames<'a>,
}

impl Table {
    /// Explains the verdict of [`classify`](Self::classify) on a frame from a port at a time.
    ///
    /// `state` is a [copy](State::copy): the frame's source is learned there, and storm control is
    /// charged.
    pub fn explain(
        &self,
        state: &State,
        (from, now_ns): (PortId, u64),
        snapshot: &HeaderSnapshot,
        names: PortNames<'_>,
    ) -> Explanation {
        let header = FrameHeader(snapshot.header());
        let mut steps = Steps::default();
        let Some(source) = self.source(from) else {
            return steps.dropped("link", DropReason::LinkDown, "down");
        };
        steps.passed("link", "up");
        let vid = source.vid_of(header.tag_bits());
        let traced = Traced { table: self, state, source, header, vid, names };
        let admitted = self.admit(source, header, Some(snapshot));
        for (rule, reason) in ADMISSION {
            let detail = traced.admission(reason);
            match admitted {
                Err(refused) if refused == reason => return steps.dropped(rule, reason, detail.1),
                _ => steps.passed(rule, detail.0),
            }
        }
        if let Some(screen) = source.screen.as_deref() {
            if let Some((rule, reason, detail)) = traced.screen(&mut steps, screen, snapshot) {
                return steps.dropped(rule, reason, detail);
            }
        } else {
            steps.off("guards and ACL", "none at this port");
        }
        if let Err(detail) = traced.learn(&mut steps) {
            return steps.dropped("learning", DropReason::MacLimit, detail);
        }
        let found = traced.look_up();
        let verdict = self.forward(&state.fdb, source, header, vid);
        steps.passed("look-up", found);
        let detail = match verdict.action() {
            Action::Port(to) => format!("to {}", names(to)),
            Action::Flood(flood) => {
                let receivers = self.flood_ports(from, vid, flood).iter().copied();
                format!("flood to {}", list_text(receivers.filter(|to| *to != from), names))
            }
            Action::Drop(DropReason::Hairpin) => "behind the port it came from".to_owned(),
            Action::Drop(DropReason::Isolated) => "both ports are isolated".to_owned(),
            Action::Drop(_) => "no other port of the VLAN receives it".to_owned(),
        };
        if !verdict.is_flood() {
            return steps.end("destination", verdict, detail);
        }
        steps.passed("destination", detail);
        match traced.storm(verdict, now_ns) {
            (verdict, None) => steps.end_off("storm control", verdict, "no limit"),
            (verdict, Some(detail)) => steps.end("storm control", verdict, detail),
        }
    }
}

impl Traced<'_> {
    /// Details of a rule of [`ADMISSION`]: if the frame passes, and if not.
    fn admission(&self, reason: DropReason) -> (String, String) {
        let Traced { header, vid, .. } = self;
        let (src, dst) = (header.src(), header.dst());
        match reason {
            DropReason::SourceMulticast => {
                (format!("{src} is no group address"), format!("{src} is a group address"))
            }
            DropReason::VlanForbidden => {
                let tag = tag_text(*header);
                (format!("{tag}: {}", vlan_text(*vid)), format!("{tag}: not allowed here"))
            }
            DropReason::LinkLocal => (
                format!("{dst} is not reserved for a single link"),
                format!("{dst} is reserved for a single link"),
            ),
            _ => match self.table.fixed(key(src.key(), *vid)) {
                Some(port) if port == self.source.port => {
                    (format!("{src} is a static address of this port"), String::new())
                }
                Some(port) => {
                    let name = (self.names)(port);
                    (String::new(), format!("{src} is a static address of {name}"))
                }
                None => (format!("{src} is not static"), String::new()),
            },
        }
    }

    /// Guards and ACL; returns the rule that drops the frame.
    fn screen(
        &self,
        steps: &mut Steps,
        screen: &Screen,
        snapshot: &HeaderSnapshot,
    ) -> Option<(&'static str, DropReason, String)> {
        let Some((words, _)) = Key::words_and_layout(self.header, snapshot, self.vid) else {
            let detail = "cut off, malformed or too far back".to_owned();
            return Some(("headers", DropReason::HiddenHeader, detail));
        };
        steps.passed("headers", "complete");
        let masked = std::array::from_fn(|n| words[n] & screen.mask[n]);
        let mut counted = Vec::new();
        let search = |counter: usize| counted.push(counter);
        let dropped = self.table.search(screen, &Key::from_words(&masked), search);
        for (rule, reason, is_on) in [
            ("DHCP guard", DropReason::DhcpGuard, screen.dhcp_guard),
            ("router guard", DropReason::RouterGuard, screen.router_guard),
        ] {
            if dropped == Some(reason) {
                return Some((rule, reason, "on: such a message may not come from here".into()));
            }
            steps.passed_if_on(rule, is_on);
        }
        let Some(acl) = screen.acl.and_then(|acl| self.table.acls.get(acl)) else {
            steps.off("ACL", "none at this port");
            return None;
        };
        let rules = counted.iter().filter_map(|counter| acl.rule(*counter));
        let mut text: Vec<String> = Vec::new();
        let mut is_decided = false;
        for (rule, action) in rules {
            let action = match action {
                RuleAction::Allow => "allows",
                RuleAction::Deny => "denies",
                RuleAction::Count => "counts",
            };
            is_decided = action != "counts";
            text.push(format!("rule {} {action}", rule + 1));
        }
        if !is_decided {
            let action = if dropped.is_some() { "denies" } else { "allows" };
            text.push(format!("no rule decides, the default {action}"));
        }
        let text = text.join("; ");
        if let Some(reason) = dropped {
            return Some(("ACL", reason, text));
        }
        steps.passed("ACL", text);
        None
    }

    /// Learns the source in the copy.
    ///
    /// # Errors
    /// The frame is dropped; the detail.
    fn learn(&self, steps: &mut Steps) -> Result<(), String> {
        let Traced { table, state, source, header, vid, names } = self;
        let (src, fdb) = (header.src(), &state.fdb);
        let before = fdb.look_up(key(src.key(), *vid));
        let limit = source.learning.limit;
        match table.learn(fdb, source, (*header, *vid), &mut { LEARN_MAX }) {
            Err(_) => {
                return Err(format!("{src} is unknown, and the port may have {limit} addresses"));
            }
            Ok(true) => steps.passed(
                "learning",
                match before {
                    Some(port) => format!("{src} would move here from {}", names(port)),
                    None => format!("{src} would be learned"),
                },
            ),
            Ok(false) if table.fixed(key(src.key(), *vid)).is_some() => {
                steps.off("learning", format!("{src} is static"));
            }
            Ok(false) if source.careless => steps.off("learning", "off at this port"),
            Ok(false) if before == Some(source.port) => {
                steps.passed("learning", format!("{src} is known here"));
            }
            Ok(false) => steps.passed("learning", format!("{src} is not learned: no room")),
        }
        Ok(())
    }

    /// The entry of the destination.
    fn look_up(&self) -> String {
        let Traced { table, state, header, vid, names, .. } = self;
        let dst = header.dst();
        let place = format!("{dst} in {}", vlan_text(*vid));
        let key = key(dst.key(), *vid);
        if dst.is_multicast() {
            return format!("{place}: a group");
        }
        if let Some(port) = table.fixed(key) {
            return format!("{place}: static address of {}", names(port));
        }
        match state.fdb.look_up(key) {
            Some(port) if table.groups.reach[0].has(*vid, port) => {
                format!("{place}: learned at {}", names(port))
            }
            Some(port) => {
                format!("{place}: learned at {}, which is no member now", names(port))
            }
            None => format!("{place}: no entry, unknown unicast"),
        }
    }

    /// Verdict of storm control, and its detail if there is a limit.
    fn storm(&self, verdict: Verdict, now_ns: u64) -> (Verdict, Option<String>) {
        let Traced { state, source, header, .. } = self;
        let kind = kind_of(*header);
        let cost = source.storm[kind];
        let room = state.meters.room((source.port, kind), cost, now_ns);
        let (granted, beyond) = source.storm(&state.meters, (*header, verdict), 1, now_ns);
        let detail = match cost {
            Cost::Free => None,
            Cost::Forbidden => Some("limit 0 frames/s".to_owned()),
            Cost::Ns(ns) => {
                let rate = (1_000_000_000 + ns / 2) / ns.max(1);
                Some(format!("limit {rate} frames/s, room for {room} now"))
            }
        };
        (if granted > 0 { verdict } else { beyond }, detail)
    }
}
