//! Who receives a frame that goes to more than one port.

use wire::FrameHeader;

use crate::nic::map::key;
use crate::nic::table::Port;
use crate::nic::{Mode, Table};
use crate::{DropReason, PortId, Verdict};

impl Table {
    /// The ports that receive a frame which [`classify`](Self::classify) floods.
    ///
    /// A frame to a group goes to the members of its VLAN that hear the group, and to the uplink;
    /// one to an unknown MAC to those that are promiscuous, and to the uplink. Never to the port it
    /// came from, nor to one whose link is down, nor to a queue. In the modes that keep functions
    /// apart a function reaches the uplink only, and what a VEPA's uplink sends back does not
    /// return to the function whose MAC it comes from.
    pub fn receivers<'a>(
        &'a self,
        from: PortId,
        head: &[u8; 16],
    ) -> impl Iterator<Item = PortId> + 'a {
        let head = FrameHeader(*head);
        let source = self.source(from).ok();
        let vid = source.map_or(0, |source| source.vid_of(head.tag_bits()));
        let is_uplink = from == PortId::UPLINK;
        let apart = !is_uplink && self.mode != Mode::Veb;
        // Whom a reflected frame comes from.
        let reflected = is_uplink && self.mode == Mode::Vepa;
        let sender = if reflected { self.sender(head, vid) } else { None };
        let dst = head.dst();
        let open = is_uplink || self.floods_unknown;
        let members = if source.is_some() { self.members(vid) } else { &[] };
        members.iter().copied().filter(move |to| {
            let hears = |port: &Port| match dst.is_multicast() {
                true => port.hears(dst),
                false => port.promiscuous && open,
            };
            let wants = match *to {
                PortId::UPLINK => true,
                _ => !apart && self.port(*to).is_some_and(hears),
            };
            wants && *to != from && sender != Some(Verdict::port(*to))
        })
    }

    /// Where a frame was sent from, by its source: the verdict on frames back to there.
    pub(crate) fn sender(&self, head: FrameHeader, vid: u16) -> Option<Verdict> {
        self.macs.get(key(head.src_key(), vid)).map(|port| self.home(port))
    }

    /// The port by which whoever receives at this one sends: the owner of a queue, by the switch.
    pub(crate) fn home(&self, port: Verdict) -> Verdict {
        let sends_by_switch = self.has_switch && port.is_queue();
        if sends_by_switch { Verdict::port(PortId::PF) } else { port }
    }

    /// What becomes of a frame to an unknown MAC.
    pub(crate) fn miss(&self, from: PortId, head: &[u8; 16]) -> Verdict {
        let mut receivers = self.receivers(from, head);
        match (receivers.next(), receivers.next()) {
            (None, _) => self.nobody(from),
            (Some(one), None) => Verdict::port(one),
            _ => Verdict::FLOOD,
        }
    }

    /// The verdict on a frame that nobody receives. From a function that can only be because the
    /// uplink is down.
    pub(crate) const fn nobody(&self, from: PortId) -> Verdict {
        match from {
            PortId::UPLINK => Verdict::drop(DropReason::NoMatch),
            _ => Verdict::drop(DropReason::LinkDown),
        }
    }
}
