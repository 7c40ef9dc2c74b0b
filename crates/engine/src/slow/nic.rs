//! The NIC stage of the pipeline.

use bridge::{Action, DropReason, PortId};
use port::{BURST, BurstBuffers, HeaderBytes, VlanEdit};

use super::charges::FloodPoint;
use super::{NicEgress, Pipeline, SwitchEgress};
use crate::port::counter;
use crate::slow::scratch::NicScratch;
use crate::slow::view::{ALL_INDICES, BurstView, indices_of};

impl Pipeline<'_> {
    /// Forwards frames from the switch's uplink into the NIC.
    pub(super) fn enter_nic(
        &self,
        view: &BurstView<'_>,
        indices: &[u8],
        edit: VlanEdit,
        egress: &mut SwitchEgress<'_>,
    ) -> usize {
        let next = egress.nic.as_mut();
        let Some((scratch, view)) = self.pass_on(next, view, indices, edit) else { return 0 };
        let view = match edit {
            VlanEdit::Pop => self.without_second_tags(view),
            _ => view,
        };
        let NicScratch { verdicts, flows, .. } = &mut *scratch;
        let summary = self.snapshot().table.classify(PortId::PF, view.headers, flows, verdicts);
        let mut egress = NicEgress { switch: None, receive: egress.receive };
        self.leave_nic(PortId::PF, &view, summary, scratch, &mut egress)
    }

    /// Drops frames that show another tag once theirs is removed, also behind a priority tag. It
    /// would take them into a VLAN that their sender may not be a member of.
    #[cold]
    fn without_second_tags<'v>(&self, view: BurstView<'v>) -> BurstView<'v> {
        let has_tag = |(i, header): &(usize, &HeaderBytes)| {
            let second = || view.snapshots.get(*i).is_none_or(wire::HeaderSnapshot::has_second_tag);
            wire::FrameHeader(**header).vid().is_some_and(|vid| vid != 0 || second())
        };
        let tagged = view.headers.iter().enumerate().filter(has_tag);
        let skip = tagged.fold(view.skip, |skip, (i, _)| skip | 1 << i);
        self.drop_at_nic(DropReason::VlanForbidden, &view, indices_of(skip, &mut [0; BURST]));
        BurstView { skip, ..view }
    }

    /// Forwards the frames that the NIC has classified; returns the number delivered.
    pub(crate) fn leave_nic(
        &self,
        from: PortId,
        view: &BurstView<'_>,
        summary: bridge::Summary,
        scratch: &mut NicScratch,
        egress: &mut NicEgress<'_>,
    ) -> usize {
        let (delivered, stopped) = match summary.port() {
            Some(to) if view.skip == 0 => {
                let indices = &ALL_INDICES[..view.headers.len()];
                (self.send_to_function((from, to), view, indices, egress), 0)
            }
            _ => self.scatter_nic(from, view, scratch, egress),
        };
        if self.snapshot().table.is_mirrored() {
            let view = BurstView { skip: view.skip | stopped, ..*view };
            self.mirror_nic(from, &view, scratch, egress);
        }
        delivered
    }

    /// Forwards frames with several receivers, or with drops. Returns the number delivered, and a
    /// mask of the frames that the storm limit dropped.
    fn scatter_nic(
        &self,
        from: PortId,
        view: &BurstView<'_>,
        scratch: &mut NicScratch,
        egress: &mut NicEgress<'_>,
    ) -> (usize, u64) {
        let NicScratch { verdicts, groups, .. } = scratch;
        let (mut delivered, mut stopped) = (0, 0);
        groups.clear();
        for (i, verdict) in verdicts.as_slice().iter().enumerate() {
            if view.skip >> i & 1 == 1 {
                continue; // counted by the poll
            }
            match verdict.action() {
                Action::Port(port) => groups.add(port.0, i),
                Action::Flood(_) => {
                    // The limit is for group addresses only: flooding unknown unicast to the wire
                    // is normal.
                    let is_group = view.headers[i][0] & 1 == 1;
                    if !is_group || self.admits_group() {
                        delivered += self.flood_nic(from, view, i, egress);
                    } else {
                        stopped |= 1 << i;
                        self.drop_at_nic(DropReason::Storm, view, &ALL_INDICES[i..=i]);
                    }
                }
                Action::Drop(DropReason::NoMatch | DropReason::LinkDown | DropReason::Hairpin)
                    if view.flooded => {}
                Action::Drop(reason) => self.drop_at_nic(reason, view, &ALL_INDICES[i..=i]),
            }
        }
        while let Some((to, indices)) = groups.next() {
            delivered += self.send_to_function((from, PortId(to)), view, indices, egress);
        }
        (delivered, stopped)
    }

    /// Sends a frame to all functions that should receive it; returns the number of receivers.
    #[cold]
    pub(crate) fn flood_nic(
        &self,
        from: PortId,
        view: &BurstView<'_>,
        frame: usize,
        egress: &mut NicEgress<'_>,
    ) -> usize {
        let snapshot = self.snapshot();
        self.begin_flood(FloodPoint::Nic, view, frame);
        let receivers = snapshot.table.receivers(from, &view.headers[frame]);
        // A NIC may have no uplink, and a VF no guest: a missing receiver of a flood is no drop.
        let is_there = |to: &PortId| snapshot.port(*to).is_some() || snapshot.switches(*to);
        let receivers = receivers.filter(is_there);
        let indices = &ALL_INDICES[frame..=frame];
        let view = BurstView { flooded: true, ..*view };
        receivers.map(|to| self.send_to_function((from, to), &view, indices, egress)).sum()
    }

    /// Sends frames to one function, with the tags that its VLAN rules require.
    fn send_to_function(
        &self,
        (from, to): (PortId, PortId),
        view: &BurstView<'_>,
        indices: &[u8],
        egress: &mut NicEgress<'_>,
    ) -> usize {
        let table = &self.snapshot().table;
        if let Some(edit) = table.edit(from, to) {
            return self.send_as((from, to), view, indices, edit, egress);
        }
        let edit = |index: &u8| table.edit_of(from, to, &view.headers[usize::from(*index)]);
        let alike = indices.chunk_by(|a, b| edit(a) == edit(b));
        alike
            .map(|indices| self.send_as((from, to), view, indices, edit(&indices[0]), egress))
            .sum()
    }

    fn send_as(
        &self,
        (from, to): (PortId, PortId),
        view: &BurstView<'_>,
        indices: &[u8],
        edit: VlanEdit,
        egress: &mut NicEgress<'_>,
    ) -> usize {
        let snapshot = self.snapshot();
        if snapshot.switches(to)
            && let Some(switch) = &snapshot.switch
        {
            self.charge((from, to), indices.len() as u64, || self.bytes(view, indices));
            return self.enter_switch(switch, view, indices, edit, egress);
        }
        self.hand_over((from, to), view, indices, edit, egress.receive)
    }

    /// Delivers frames at a function's own port; returns the number delivered.
    #[inline]
    pub(super) fn hand_over(
        &self,
        (from, to): (PortId, PortId),
        view: &BurstView<'_>,
        indices: &[u8],
        edit: VlanEdit,
        buffers: &mut BurstBuffers,
    ) -> usize {
        let Some(port) = self.snapshot().port(to) else {
            // A NIC may have no uplink, and a VF no guest's adapter.
            self.drop_at_nic(DropReason::NoMatch, view, indices);
            return 0;
        };
        let by_queue = to.queue_index().is_some();
        let delivered = self.deliver(port, by_queue, view, indices, edit, buffers);
        let (frames, bytes) = (u64::from(delivered.frames), delivered.bytes);
        if to == PortId::UPLINK {
            self.source.block().add(counter::TX_UPLINK_FRAMES, frames);
            self.source.block().add(counter::TX_UPLINK_BYTES, bytes);
        }
        self.charge((from, to), frames, || bytes);
        delivered.frames as usize
    }

    /// Bytes of the frames as they were sent.
    pub(super) fn bytes(&self, view: &BurstView<'_>, indices: &[u8]) -> u64 {
        let len = |index: &u8| u64::from(self.burst.frames[usize::from(view.frame(*index))].len);
        indices.iter().map(len).sum()
    }

    /// Charges the NIC's budget, if it has one, for traffic from one function to another.
    #[inline]
    pub(super) fn charge(
        &self,
        (from, to): (PortId, PortId),
        frames: u64,
        bytes: impl FnOnce() -> u64,
    ) {
        if let Some(budget) = &self.snapshot().budget {
            let mut budget = budget.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            budget.charge(from, to, frames, bytes());
        }
    }

    /// Copies frames to the monitors of mirrored functions. Rare, so frames are not grouped.
    #[cold]
    fn mirror_nic(
        &self,
        from: PortId,
        view: &BurstView<'_>,
        scratch: &mut NicScratch,
        egress: &mut NicEgress<'_>,
    ) {
        for (i, verdict) in scratch.verdicts.as_slice().iter().enumerate() {
            if view.skip >> i & 1 == 1 {
                continue;
            }
            self.snapshot().table.mirror(from, &view.headers[i], *verdict, |copy| {
                let port = match copy.to {
                    bridge::nic::MirrorTarget::Port(to) => self.snapshot().port(to),
                    bridge::nic::MirrorTarget::Capture(number) => self.snapshot().monitor(number),
                };
                if let Some(port) = port {
                    let indices = &ALL_INDICES[i..=i];
                    self.deliver(port, false, view, indices, copy.edit, egress.receive);
                }
            });
        }
    }
}
