//! The walk's stop at the NIC.

use nic::{Action, DropReason, PortId};
use port::{BurstBuffers, Head, VlanEdit};

use super::charges::At;
use super::{NicWay, SwitchWay, View, Walk};
use crate::forward::ALL;
use crate::port::word;
use crate::stop::NicStop;

impl Walk<'_> {
    /// Frames that go on from the switch's uplink into the NIC.
    pub(super) fn enter_nic(
        &self,
        view: &View<'_>,
        picks: &[u8],
        edit: VlanEdit,
        way: &mut SwitchWay<'_>,
    ) -> usize {
        let Some((stop, hop)) = &mut way.nic else {
            self.drop_at_nic(DropReason::Hairpin, picks.len());
            return 0;
        };
        let Some(view) = hop.view(self.burst, view, picks, edit) else {
            self.drop_at_nic(DropReason::VlanForbidden, picks.len());
            return 0;
        };
        let view = match edit {
            VlanEdit::Pop => self.without_second_tags(view),
            _ => view,
        };
        let NicStop { verdicts, flows, .. } = &mut **stop;
        let summary = self.scene().table.classify(PortId::PF, view.heads, flows, verdicts);
        let mut way = NicWay { switch: None, receive: way.receive };
        self.leave_nic(PortId::PF, &view, summary, stop, &mut way)
    }

    /// Leaves out frames that show another tag now that theirs is off, also behind a priority tag:
    /// it would take them into a VLAN that their sender may be no member of.
    #[cold]
    fn without_second_tags<'v>(&self, view: View<'v>) -> View<'v> {
        let has_tag = |(i, head): &(usize, &Head)| {
            let second = || view.deep.get(*i).is_none_or(wire::DeepHead::has_second_tag);
            wire::Head(**head).vid().is_some_and(|vid| vid != 0 || second())
        };
        let tagged = view.heads.iter().enumerate().filter(has_tag);
        let skip = tagged.fold(view.skip, |skip, (i, _)| skip | 1 << i);
        self.drop_at_nic(DropReason::VlanForbidden, skip.count_ones() as usize);
        View { skip, ..view }
    }

    /// Carries on what the NIC has judged; says how many frames were delivered.
    pub(crate) fn leave_nic(
        &self,
        from: PortId,
        view: &View<'_>,
        summary: nic::Summary,
        stop: &mut NicStop,
        way: &mut NicWay<'_>,
    ) -> usize {
        let (delivered, stopped) = match summary.port() {
            Some(to) if view.skip == 0 => {
                let picks = &ALL[..view.heads.len()];
                (self.send_to_function((from, to), view, picks, way), 0)
            }
            _ => self.scatter_nic(from, view, stop, way),
        };
        if self.scene().table.is_mirrored() {
            let view = View { skip: view.skip | stopped, ..*view };
            self.mirror_nic(from, &view, stop, way);
        }
        delivered
    }

    /// Frames for several receivers, or some to drop; says how many were delivered, and which of
    /// them the storm limit stopped.
    fn scatter_nic(
        &self,
        from: PortId,
        view: &View<'_>,
        stop: &mut NicStop,
        way: &mut NicWay<'_>,
    ) -> (usize, u64) {
        let NicStop { verdicts, groups, .. } = stop;
        let (mut delivered, mut stopped) = (0, 0);
        groups.clear();
        for (i, verdict) in verdicts.as_slice().iter().enumerate() {
            if view.skip >> i & 1 == 1 {
                continue; // counted by the poll
            }
            match verdict.action() {
                Action::Port(port) => groups.add(port.0, i),
                Action::Flood => {
                    // The limit is one of groups: unknown addresses are what a wire is for.
                    let is_group = view.heads[i][0] & 1 == 1;
                    if !is_group || self.admits_group() {
                        delivered += self.flood_nic(from, view, i, way);
                    } else {
                        stopped |= 1 << i;
                        self.drop_at_nic(DropReason::Storm, 1);
                    }
                }
                Action::Drop(DropReason::NoMatch | DropReason::LinkDown | DropReason::Hairpin)
                    if view.flooded => {}
                Action::Drop(reason) => self.drop_at_nic(reason, 1),
            }
        }
        // Each receiver's ring has to be read in three steps of which each needs the one before;
        // those of all receivers are on their way while the first is served.
        for (to, len) in groups.sizes() {
            self.prefetch(self.scene().port(PortId(to)), len);
        }
        while let Some((to, picks)) = groups.next() {
            delivered += self.send_to_function((from, PortId(to)), view, picks, way);
        }
        (delivered, stopped)
    }

    /// Sends a frame to all functions that are to get it; says how many did.
    #[cold]
    pub(crate) fn flood_nic(
        &self,
        from: PortId,
        view: &View<'_>,
        frame: usize,
        way: &mut NicWay<'_>,
    ) -> usize {
        let scene = self.scene();
        self.begin_flood(At::Nic, view, frame);
        let receivers = scene.table.receivers(from, &view.heads[frame]);
        // A NIC may have no uplink, and a VF no guest: nobody there is no drop.
        let is_there = |to: &PortId| scene.port(*to).is_some() || scene.switches(*to);
        let receivers = receivers.filter(is_there);
        let picks = &ALL[frame..=frame];
        let view = View { flooded: true, ..*view };
        receivers.map(|to| self.send_to_function((from, to), &view, picks, way)).sum()
    }

    /// Sends the picked frames to one function, with the tags that its VLAN rules ask for.
    fn send_to_function(
        &self,
        (from, to): (PortId, PortId),
        view: &View<'_>,
        picks: &[u8],
        way: &mut NicWay<'_>,
    ) -> usize {
        let table = &self.scene().table;
        if let Some(edit) = table.edit(from, to) {
            return self.send_as((from, to), view, picks, edit, way);
        }
        let edit = |pick: &u8| table.edit_of(from, to, &view.heads[usize::from(*pick)]);
        let alike = picks.chunk_by(|a, b| edit(a) == edit(b));
        alike.map(|picks| self.send_as((from, to), view, picks, edit(&picks[0]), way)).sum()
    }

    fn send_as(
        &self,
        (from, to): (PortId, PortId),
        view: &View<'_>,
        picks: &[u8],
        edit: VlanEdit,
        way: &mut NicWay<'_>,
    ) -> usize {
        let scene = self.scene();
        if scene.switches(to)
            && let Some(switch) = &scene.switch
        {
            self.charge((from, to), picks.len() as u64, || self.bytes(view, picks));
            return self.enter_switch(switch, view, picks, edit, way);
        }
        self.hand_over((from, to), view, picks, edit, way.receive)
    }

    /// Delivers the picked frames at a function's own port; says how many were delivered.
    #[inline]
    pub(super) fn hand_over(
        &self,
        (from, to): (PortId, PortId),
        view: &View<'_>,
        picks: &[u8],
        edit: VlanEdit,
        area: &mut BurstBuffers,
    ) -> usize {
        let Some(port) = self.scene().port(to) else {
            // A NIC may have no uplink, and a VF no guest's adapter.
            self.drop_at_nic(DropReason::NoMatch, picks.len());
            return 0;
        };
        let delivered = self.deliver(port, view, picks, edit, area);
        let (frames, bytes) = (u64::from(delivered.frames), delivered.bytes);
        if to == PortId::UPLINK {
            self.source.block().add(word::TX_UPLINK_FRAMES, frames);
            self.source.block().add(word::TX_UPLINK_BYTES, bytes);
        }
        self.charge((from, to), frames, || bytes);
        delivered.frames as usize
    }

    /// Bytes of the picked frames as they were sent.
    pub(super) fn bytes(&self, view: &View<'_>, picks: &[u8]) -> u64 {
        let len = |pick: &u8| u64::from(self.burst.frames[usize::from(view.frame(*pick))].len);
        picks.iter().map(len).sum()
    }

    /// Charges the NIC's budget, if it has one, for what went from one function to another.
    #[inline]
    pub(super) fn charge(
        &self,
        (from, to): (PortId, PortId),
        frames: u64,
        bytes: impl FnOnce() -> u64,
    ) {
        if let Some(budget) = &self.scene().budget {
            let mut budget = budget.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            budget.charge(from, to, frames, bytes());
        }
    }

    /// Gives the monitors of mirrored functions their copies. Rare, so it does not group them.
    #[cold]
    fn mirror_nic(&self, from: PortId, view: &View<'_>, stop: &mut NicStop, way: &mut NicWay<'_>) {
        for (i, verdict) in stop.verdicts.as_slice().iter().enumerate() {
            if view.skip >> i & 1 == 1 {
                continue;
            }
            self.scene().table.mirror(from, &view.heads[i], *verdict, |copy| {
                let port = match copy.to {
                    nic::Monitor::Port(to) => self.scene().port(to),
                    nic::Monitor::Capture(number) => self.scene().monitor(number),
                };
                if let Some(port) = port {
                    self.deliver(port, view, &ALL[i..=i], copy.edit, way.receive);
                }
            });
        }
    }
}
