//! The switch stage of the pipeline.

use bridge::{Action, DropReason, PortId};
use port::VlanEdit;

use super::charges::FloodPoint;
use super::{NicEgress, Pipeline, SwitchEgress};
use crate::port::counter;
use crate::slow::scratch::SwitchScratch;
use crate::slow::view::{ALL_INDICES, BurstView};
use crate::snapshot::SwitchSnapshot;

impl Pipeline<'_> {
    /// Forwards frames from the PF into the switch.
    pub(super) fn enter_switch(
        &self,
        switch: &SwitchSnapshot,
        view: &BurstView<'_>,
        indices: &[u8],
        edit: VlanEdit,
        egress: &mut NicEgress<'_>,
    ) -> usize {
        let next = egress.switch.as_mut();
        let Some((scratch, view)) = self.pass_on(next, view, indices, edit) else { return 0 };
        let summary = scratch.classify(switch, PortId::UPLINK, &view, self.now_ns, None);
        let mut egress = SwitchEgress { nic: None, receive: egress.receive };
        self.leave_switch(switch, PortId::UPLINK, &view, summary, scratch, &mut egress)
    }

    /// Forwards the frames that the switch has classified; returns the number delivered.
    pub(crate) fn leave_switch(
        &self,
        switch: &SwitchSnapshot,
        from: PortId,
        view: &BurstView<'_>,
        summary: bridge::Summary,
        scratch: &mut SwitchScratch,
        egress: &mut SwitchEgress<'_>,
    ) -> usize {
        let delivered = match summary.port() {
            Some(to) if view.skip == 0 => {
                let indices = &ALL_INDICES[..view.headers.len()];
                self.send_to_port(switch, (from, to), view, indices, egress)
            }
            _ => self.scatter_switch(switch, from, view, scratch, egress),
        };
        self.mirror_switch(switch, from, view, scratch, egress);
        delivered
    }

    fn scatter_switch(
        &self,
        switch: &SwitchSnapshot,
        from: PortId,
        view: &BurstView<'_>,
        scratch: &mut SwitchScratch,
        egress: &mut SwitchEgress<'_>,
    ) -> usize {
        let SwitchScratch { verdicts, groups, .. } = scratch;
        let mut delivered = 0;
        groups.clear();
        for (i, verdict) in verdicts.as_slice().iter().enumerate() {
            if view.skip >> i & 1 == 1 {
                continue; // counted by the poll
            }
            match verdict.action() {
                Action::Port(port) => groups.add(port.0, i),
                Action::Flood(flood) => {
                    delivered += self.flood_switch(switch, from, view, (i, flood), egress);
                }
                Action::Drop(DropReason::NoMatch | DropReason::Hairpin) if view.flooded => {}
                Action::Drop(reason) => {
                    let indices = &ALL_INDICES[i..=i];
                    self.drop_frames(counter::switch_drop(reason), view, indices);
                }
            }
        }
        while let Some((to, indices)) = groups.next() {
            delivered += self.send_to_port(switch, (from, PortId(to)), view, indices, egress);
        }
        delivered
    }

    /// Sends a frame to all ports of the switch that should receive it; returns the number of
    /// receivers.
    #[cold]
    pub(crate) fn flood_switch(
        &self,
        switch: &SwitchSnapshot,
        from: PortId,
        view: &BurstView<'_>,
        (frame, flood): (usize, bridge::Flood),
        egress: &mut SwitchEgress<'_>,
    ) -> usize {
        self.begin_flood(FloodPoint::Switch, view, frame);
        let vid = switch.table.vid(from, &view.headers[frame]);
        let receivers = switch.table.flood_ports(from, vid, flood).iter();
        let indices = &ALL_INDICES[frame..=frame];
        let view = BurstView { flooded: true, ..*view };
        // A port may have no guest: a missing receiver of a flood is no drop.
        let is_there = |to: PortId| to == PortId::UPLINK || switch.port(to).is_some();
        let others = receivers.filter(|to| **to != from && is_there(**to));
        others.map(|to| self.send_to_port(switch, (from, *to), &view, indices, egress)).sum()
    }

    /// Sends frames to one port of the switch, with the tags that its rules require.
    fn send_to_port(
        &self,
        switch: &SwitchSnapshot,
        (from, to): (PortId, PortId),
        view: &BurstView<'_>,
        indices: &[u8],
        egress: &mut SwitchEgress<'_>,
    ) -> usize {
        let edit = |index: &u8| switch.table.edit(from, to, &view.headers[usize::from(*index)]);
        let mut send = |indices: &[u8], edit: VlanEdit| match to {
            PortId::UPLINK => self.enter_nic(view, indices, edit, egress),
            _ => match switch.port(to) {
                Some(port) => {
                    self.deliver(port, false, view, indices, edit, egress.receive).frames as usize
                }
                None => {
                    self.drop_frames(counter::switch_drop(DropReason::NoMatch), view, indices);
                    0
                }
            },
        };
        match indices {
            [] => 0,
            [first, ..] if switch.table.edits_alike(from) => send(indices, edit(first)),
            _ => {
                let alike = indices.chunk_by(|a, b| edit(a) == edit(b));
                alike.map(|indices| send(indices, edit(&indices[0]))).sum()
            }
        }
    }

    /// Copies frames to the switch's mirrors, as the mirrored port sees them. Dropped frames were
    /// not sent, as in the NIC stage.
    fn mirror_switch(
        &self,
        switch: &SwitchSnapshot,
        from: PortId,
        view: &BurstView<'_>,
        scratch: &SwitchScratch,
        egress: &mut SwitchEgress<'_>,
    ) {
        let verdicts = scratch.verdicts.as_slice().iter();
        for (i, (mirrors, verdict)) in scratch.verdicts.mirrors().iter().zip(verdicts).enumerate() {
            let is_carried = view.skip >> i & 1 == 0 && !verdict.is_drop();
            let mut left = if is_carried { *mirrors } else { 0 };
            while left != 0 {
                let mirror = left.trailing_zeros() as usize;
                left &= left - 1;
                let port = switch.table.mirror_port(mirror).and_then(|to| switch.port(to));
                if let Some(port) = port {
                    let edit = switch.table.mirror_edit(mirror, from, &view.headers[i]);
                    let indices = &ALL_INDICES[i..=i];
                    self.deliver(port, false, view, indices, edit, egress.receive);
                }
            }
        }
    }
}
