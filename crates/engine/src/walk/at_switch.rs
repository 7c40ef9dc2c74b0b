//! The walk's stop at the switch.

use nic::DropReason;
use port::VlanEdit;
use vswitch::PortId as SwitchPort;

use super::charges::At;
use super::{NicWay, SwitchWay, View, Walk};
use crate::forward::ALL;
use crate::port::word;
use crate::scene::Switch;
use crate::stop::SwitchStop;

impl Walk<'_> {
    /// Frames that go on from the PF into the switch.
    pub(super) fn enter_switch(
        &self,
        switch: &Switch,
        view: &View<'_>,
        picks: &[u8],
        edit: VlanEdit,
        way: &mut NicWay<'_>,
    ) -> usize {
        let Some((stop, hop)) = &mut way.switch else {
            self.drop_at_nic(DropReason::Hairpin, picks.len());
            return 0;
        };
        let Some(view) = hop.view(self.burst, view, picks, edit) else {
            self.drop_at_nic(DropReason::VlanForbidden, picks.len());
            return 0;
        };
        let summary = stop.classify(switch, SwitchPort::UPLINK, &view, self.now_ns, None);
        let mut way = SwitchWay { nic: None, receive: way.receive };
        self.leave_switch(switch, SwitchPort::UPLINK, &view, summary, stop, &mut way)
    }

    /// Carries on what the switch has judged; says how many frames were delivered.
    pub(crate) fn leave_switch(
        &self,
        switch: &Switch,
        from: SwitchPort,
        view: &View<'_>,
        summary: vswitch::Summary,
        stop: &mut SwitchStop,
        way: &mut SwitchWay<'_>,
    ) -> usize {
        let delivered = match summary.port() {
            Some(to) if view.skip == 0 => {
                let picks = &ALL[..view.heads.len()];
                self.send_to_port(switch, (from, to), view, picks, way)
            }
            _ => self.scatter_switch(switch, from, view, stop, way),
        };
        self.mirror_switch(switch, from, view, stop, way);
        delivered
    }

    fn scatter_switch(
        &self,
        switch: &Switch,
        from: SwitchPort,
        view: &View<'_>,
        stop: &mut SwitchStop,
        way: &mut SwitchWay<'_>,
    ) -> usize {
        let SwitchStop { verdicts, groups, .. } = stop;
        let mut delivered = 0;
        groups.clear();
        for (i, verdict) in verdicts.as_slice().iter().enumerate() {
            if view.skip >> i & 1 == 1 {
                continue; // counted by the poll
            }
            match verdict.action() {
                vswitch::Action::Port(port) => groups.add(port.0, i),
                vswitch::Action::Flood(flood) => {
                    delivered += self.flood_switch(switch, from, view, (i, flood), way);
                }
                vswitch::Action::Drop(
                    vswitch::DropReason::NoMatch | vswitch::DropReason::Hairpin,
                ) if view.flooded => {}
                vswitch::Action::Drop(reason) => {
                    self.source.block().add(word::TX_SWITCH_DROPS + reason.index(), 1);
                }
            }
        }
        for (to, len) in groups.sizes() {
            self.prefetch(switch.port(SwitchPort(to)), len);
        }
        while let Some((to, picks)) = groups.next() {
            delivered += self.send_to_port(switch, (from, SwitchPort(to)), view, picks, way);
        }
        delivered
    }

    /// Sends a frame to all ports of the switch that are to get it; says how many did.
    #[cold]
    pub(crate) fn flood_switch(
        &self,
        switch: &Switch,
        from: SwitchPort,
        view: &View<'_>,
        (frame, flood): (usize, vswitch::Flood),
        way: &mut SwitchWay<'_>,
    ) -> usize {
        self.begin_flood(At::Switch, view, frame);
        let vid = switch.table.vid(from, &view.heads[frame]);
        let receivers = switch.table.flood_ports(from, vid, flood).iter();
        let picks = &ALL[frame..=frame];
        let view = View { flooded: true, ..*view };
        // A port may have no guest: nobody there is no drop.
        let is_there = |to: SwitchPort| to == SwitchPort::UPLINK || switch.port(to).is_some();
        let others = receivers.filter(|to| **to != from && is_there(**to));
        others.map(|to| self.send_to_port(switch, (from, *to), &view, picks, way)).sum()
    }

    /// Sends the picked frames to one port of the switch, with the tags that its rules ask for.
    fn send_to_port(
        &self,
        switch: &Switch,
        (from, to): (SwitchPort, SwitchPort),
        view: &View<'_>,
        picks: &[u8],
        way: &mut SwitchWay<'_>,
    ) -> usize {
        let edit = |pick: &u8| switch.table.edit(from, to, &view.heads[usize::from(*pick)]);
        let mut send = |picks: &[u8], edit: VlanEdit| match to {
            SwitchPort::UPLINK => self.enter_nic(view, picks, edit, way),
            _ => match switch.port(to) {
                Some(port) => self.deliver(port, view, picks, edit, way.receive).frames as usize,
                None => {
                    let word = word::TX_SWITCH_DROPS + vswitch::DropReason::NoMatch.index();
                    self.source.block().add(word, picks.len() as u64);
                    0
                }
            },
        };
        match picks {
            [] => 0,
            [first, ..] if switch.table.edits_alike(from) => send(picks, edit(first)),
            _ => {
                let alike = picks.chunk_by(|a, b| edit(a) == edit(b));
                alike.map(|picks| send(picks, edit(&picks[0]))).sum()
            }
        }
    }

    /// Gives the switch's mirrors their copies: as the mirrored port sees the frames. What is
    /// dropped was not sent, as at the NIC's stop.
    fn mirror_switch(
        &self,
        switch: &Switch,
        from: SwitchPort,
        view: &View<'_>,
        stop: &SwitchStop,
        way: &mut SwitchWay<'_>,
    ) {
        let verdicts = stop.verdicts.as_slice().iter();
        for (i, (mirrors, verdict)) in stop.verdicts.mirrors().iter().zip(verdicts).enumerate() {
            let is_carried = view.skip >> i & 1 == 0 && !verdict.is_drop();
            let mut left = if is_carried { *mirrors } else { 0 };
            while left != 0 {
                let mirror = left.trailing_zeros() as usize;
                left &= left - 1;
                let port = switch.table.mirror_port(mirror).and_then(|to| switch.port(to));
                if let Some(port) = port {
                    let edit = switch.table.mirror_edit(mirror, from, &view.heads[i]);
                    self.deliver(port, view, &ALL[i..=i], edit, way.receive);
                }
            }
        }
    }
}
