//! Receivers of flooded frames.

use wire::FrameHeader;

use crate::nic::map::key;
use crate::nic::table::Port;
use crate::nic::{Mode, Table};
use crate::{DropReason, PortId, Verdict};

impl Table {
    /// Ports that receive a frame flooded by [`classify`](Self::classify).
    ///
    /// A multicast frame goes to the members of its VLAN that have joined the group, and to the
    /// uplink. Unknown unicast goes to promiscuous functions, and to the uplink. Neither goes back
    /// to its port, to a port whose link is down, or to a queue. In VEPA and isolated mode a
    /// function reaches only the uplink. A reflected frame of VEPA mode does not return to the
    /// function with its source MAC.
    pub fn receivers<'a>(
        &'a self,
        from: PortId,
        header: &[u8; 16],
    ) -> impl Iterator<Item = PortId> + 'a {
        let header = FrameHeader(*header);
        let source = self.source(from).ok();
        let vid = source.map_or(0, |source| source.vid_of(header.tag_bits()));
        let is_uplink = from == PortId::UPLINK;
        let apart = !is_uplink && self.mode != Mode::Veb;
        // Sender of a reflected frame.
        let reflected = is_uplink && self.mode == Mode::Vepa;
        let sender = if reflected { self.sender(header, vid) } else { None };
        let dst = header.dst();
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

    /// Port of a frame's sender by its source MAC, as a verdict.
    pub(crate) fn sender(&self, header: FrameHeader, vid: u16) -> Option<Verdict> {
        self.macs.get(key(header.src_key(), vid)).map(|port| self.home(port))
    }

    /// Port through which the owner of `port` sends: for a queue, the switch.
    pub(crate) fn home(&self, port: Verdict) -> Verdict {
        let sends_by_switch = self.has_switch && port.is_queue();
        if sends_by_switch { Verdict::port(PortId::PF) } else { port }
    }

    /// Verdict on unknown unicast.
    pub(crate) fn miss(&self, from: PortId, header: &[u8; 16]) -> Verdict {
        let mut receivers = self.receivers(from, header);
        match (receivers.next(), receivers.next()) {
            (None, _) => self.no_receiver(from),
            (Some(one), None) => Verdict::port(one),
            _ => Verdict::FLOOD,
        }
    }

    /// Verdict on a frame without receivers. For a function's frame the only cause is that the
    /// uplink is down.
    pub(crate) const fn no_receiver(&self, from: PortId) -> Verdict {
        match from {
            PortId::UPLINK => Verdict::drop(DropReason::NoMatch),
            _ => Verdict::drop(DropReason::LinkDown),
        }
    }
}
