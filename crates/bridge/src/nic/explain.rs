//! Explanation of the NIC's verdict on a frame: the rules of [`nic`](crate::nic), in their order.
//!
//! The verdict is that of [`Table::classify_with_snapshots`], and each check calls the predicate
//! that the classifier calls. So an explanation never contradicts it.

use wire::{FrameHeader, HeaderSnapshot};

use crate::explanation::{Steps, list_text, tag_text, vlan_text};
use crate::nic::map::key;
use crate::nic::source::Source;
use crate::nic::{Flows, Mode, RuleTarget, SwitchdevAction, SwitchdevActions, Table};
use crate::{Action, DropReason, Explanation, PortId, PortNames, Verdict, Verdicts};

/// Rule of a function's addresses.
const SPOOF_CHECK: &str = "spoof check";
/// Rule against group addresses as sources.
const SOURCE: &str = "source address";
/// Rules of tags.
const VLAN: &str = "VLAN";

impl Table {
    /// Explains the verdict of [`classify`](Self::classify) on a frame from a port.
    pub fn explain(
        &self,
        from: PortId,
        snapshot: &HeaderSnapshot,
        names: PortNames<'_>,
    ) -> Explanation {
        let (mut verdicts, headers) = (Verdicts::new(), [snapshot.header()]);
        let snapshots = std::slice::from_ref(snapshot);
        self.classify_with_snapshots(from, &headers, snapshots, &mut Flows::new(), &mut verdicts);
        let verdict = verdicts[0];
        let header = FrameHeader(headers[0]);
        let (mut steps, source) = match self.explain_sender(from, header, names) {
            Ok(begun) => begun,
            Err(dropped) => return *dropped,
        };
        if header.src().is_multicast() {
            let detail = format!("{} is a group address", header.src());
            return steps.dropped(SOURCE, DropReason::SourceMulticast, detail);
        }
        steps.passed(SOURCE, format!("{} is no group address", header.src()));
        let second = || snapshot.has_second_tag();
        if source.forbids(header, &self.trunks) {
            let detail = format!("{}: not allowed here", tag_text(header));
            return steps.dropped(VLAN, DropReason::VlanForbidden, detail);
        }
        if source.hides_vlan(header, second) {
            let detail = "another tag follows the priority tag";
            return steps.dropped(VLAN, DropReason::VlanForbidden, detail);
        }
        let vid = source.vid_of(header.tag_bits());
        steps.passed(VLAN, format!("{}: {}", tag_text(header), vlan_text(vid)));
        let place = format!("{} in {}", header.dst(), vlan_text(vid));
        let found = self.macs.get(key(header.dst_key(), vid));
        match found.map(Verdict::action) {
            _ if header.dst().is_multicast() => steps.off("look-up", format!("{place}: a group")),
            Some(Action::Port(port)) => {
                steps.passed("look-up", format!("{place}: address of {}", names(port)));
            }
            Some(Action::Drop(_) | Action::Flood(_)) => {
                steps.passed("look-up", format!("{place}: behind a link that is down"));
            }
            None => steps.passed("look-up", format!("{place}: no entry, unknown unicast")),
        }
        match source.mode {
            Mode::Veb => {}
            mode => steps.passed("bridging", mode.name()),
        }
        let detail = match verdict.action() {
            Action::Port(to) => format!("to {}", names(to)),
            Action::Flood(_) => {
                format!("flood to {}", list_text(self.receivers(from, &header.0), names))
            }
            Action::Drop(DropReason::Hairpin) => "behind the port it came from".to_owned(),
            Action::Drop(DropReason::LinkDown) => "the link of every receiver is down".to_owned(),
            Action::Drop(_) => "no port may receive it".to_owned(),
        };
        steps.end("destination", verdict, detail)
    }

    /// Explains the action of [`sort`](Self::sort) on a frame from a function in switchdev mode.
    /// The verdict for the function's representor is the function's own port.
    pub fn explain_switchdev(
        &self,
        from: PortId,
        snapshot: &HeaderSnapshot,
        names: PortNames<'_>,
    ) -> Explanation {
        let (mut actions, headers) = (SwitchdevActions::new(), [snapshot.header()]);
        self.sort(from, &headers, std::slice::from_ref(snapshot), &mut actions);
        let (mut steps, _) = match self.explain_sender(from, FrameHeader(headers[0]), names) {
            Ok(begun) => begun,
            Err(dropped) => return *dropped,
        };
        let action = actions.as_slice().first().copied().unwrap_or(SwitchdevAction::Slow);
        let representor = || format!("to the representor of {}", names(from));
        let (detail, verdict) = match action {
            SwitchdevAction::Drop(reason) => {
                return steps.dropped(VLAN, reason, "another tag follows the priority tag");
            }
            SwitchdevAction::Slow => {
                steps.passed("rules", "no rule matches");
                (representor(), Verdict::port(from))
            }
            SwitchdevAction::Rule(number) => {
                steps.passed("rules", format!("rule {} matches", number + 1));
                match self.rule(number).map(|rule| rule.to) {
                    Some(RuleTarget::Port(to)) => (format!("to {}", names(to)), Verdict::port(to)),
                    Some(RuleTarget::Representor) => (representor(), Verdict::port(from)),
                    Some(RuleTarget::Drop) | None => {
                        ("the rule drops it".to_owned(), Verdict::drop(DropReason::Rule))
                    }
                }
            }
        };
        steps.end("destination", verdict, detail)
    }

    /// Explains the first two rules, of the port's link and of its addresses.
    fn explain_sender(
        &self,
        from: PortId,
        header: FrameHeader,
        names: PortNames<'_>,
    ) -> Result<(Steps, &Source), Box<Explanation>> {
        let mut steps = Steps::default();
        let source = match self.source(from) {
            Ok(source) => source,
            Err(reason) => {
                let detail = match reason {
                    DropReason::LinkDown => "down",
                    _ => "the NIC has no function at the port",
                };
                return Err(steps.dropped("link", reason, detail).into());
            }
        };
        steps.passed("link", "up");
        if self.is_spoofed(source, header) {
            let detail = format!("{} is not an address of {}", header.src(), names(from));
            return Err(steps.dropped(SPOOF_CHECK, DropReason::SpoofedMac, detail).into());
        }
        steps.passed_if_on(SPOOF_CHECK, source.src_lookup || source.src_mask != 0);
        Ok((steps, source))
    }
}
