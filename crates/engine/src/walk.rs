//! The way of a burst through NIC and switch, and the one copy at its end.
//!
//! # Model
//! A burst enters at one of the two stops, and what goes to the PF goes on to the other: from there
//! nothing comes back. At each stop the frames stand as they look there ([`View`]): with the tag
//! that is right on the PF. What is done to a frame's tag on its whole way is put together into
//! one change, and made by the copy.

use nic::{Action, DropReason, PortId, StormLimit};
use port::{Area, BURST, Burst, Delivered, Edit, Head};
use vswitch::PortId as SwitchPort;
use wire::DeepHead;

use crate::edit;
use crate::forward::{ALL, Source};
use crate::port::{Port, word};
use crate::scene::{Scene, Switch};
use crate::stop::{Hop, NicStop, SwitchStop};

/// Frames of a burst as a stop sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) heads: &'a [Head],
    /// More of each, if it was taken.
    pub(crate) deep: &'a [DeepHead],
    /// Their numbers in the burst; `None` for all of it.
    pub(crate) frames: Option<&'a [u8]>,
    /// What was done to the tags of all of them so far.
    pub(crate) edit: Edit,
    /// Bit i is set if frame i is none to be carried.
    pub(crate) skip: u64,
}

impl<'a> View<'a> {
    /// A burst as it came.
    pub(crate) fn of(burst: &Burst<'a>) -> View<'a> {
        let Burst { heads, deep, malformed, .. } = *burst;
        View { heads, deep, frames: None, edit: Edit::None, skip: malformed }
    }

    /// The number of a frame in the burst.
    #[inline]
    pub(crate) fn frame(&self, pick: u8) -> u8 {
        self.frames.map_or(pick, |frames| frames[usize::from(pick)])
    }
}

/// What the NIC needs to send frames on.
pub(crate) struct NicWay<'a> {
    /// The next stop; `None` if that is where they come from.
    pub(crate) switch: Option<(&'a mut SwitchStop, &'a mut Hop)>,
    /// The limit of the function that they come from.
    pub(crate) storm: Option<&'a mut StormLimit>,
    pub(crate) receive: &'a mut Area,
}

/// What the switch needs to send frames on.
pub(crate) struct SwitchWay<'a> {
    /// The next stop; `None` if that is where they come from.
    pub(crate) nic: Option<(&'a mut NicStop, &'a mut Hop)>,
    pub(crate) receive: &'a mut Area,
}

/// A burst on its way.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'a> {
    source: Source<'a>,
    burst: &'a Burst<'a>,
    now_ns: u64,
    from_uplink: bool,
}

impl Source<'_> {
    /// The counters of the ring that the burst comes from.
    #[inline]
    pub(crate) fn block(&self) -> &crate::counters::Block {
        self.port.block(self.pair)
    }
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        source: Source<'a>,
        burst: &'a Burst<'a>,
        now_ns: u64,
        from_uplink: bool,
    ) -> Walk<'a> {
        Walk { source, burst, now_ns, from_uplink }
    }

    fn scene(&self) -> &'a Scene {
        self.source.scene
    }

    /// Carries on what the NIC has judged.
    pub(crate) fn leave_nic(
        &self,
        from: PortId,
        view: &View<'_>,
        summary: nic::Summary,
        stop: &mut NicStop,
        way: &mut NicWay<'_>,
    ) {
        match summary.port() {
            Some(to) if view.skip == 0 => {
                self.send_to_function((from, to), view, &ALL[..view.heads.len()], way);
            }
            _ => self.scatter_nic(from, view, stop, way),
        }
        if self.scene().table.is_mirrored() {
            self.mirror_nic(from, view, stop, way);
        }
    }

    /// Frames for several receivers, or some to drop.
    fn scatter_nic(&self, from: PortId, view: &View<'_>, stop: &mut NicStop, way: &mut NicWay<'_>) {
        let NicStop { verdicts, groups, .. } = stop;
        groups.clear();
        for (i, verdict) in verdicts.as_slice().iter().enumerate() {
            if view.skip >> i & 1 == 1 {
                continue; // counted by the poll
            }
            match verdict.action() {
                Action::Port(port) => groups.add(port.0, i),
                Action::Flood => {
                    let storm = way.storm.as_mut();
                    if storm.is_none_or(|storm| storm.admit(1, self.now_ns) > 0) {
                        self.flood_nic(from, view, i, way);
                    } else {
                        self.drop_at_nic(DropReason::Storm, 1);
                    }
                }
                Action::Drop(reason) => self.drop_at_nic(reason, 1),
            }
        }
        // Each receiver's ring has to be read in three steps of which each needs the one before;
        // those of all receivers are on their way while the first is served.
        for (to, len) in groups.sizes() {
            self.prefetch(self.scene().port(PortId(to)), len);
        }
        while let Some((to, picks)) = groups.next() {
            self.send_to_function((from, PortId(to)), view, picks, way);
        }
    }

    fn prefetch(&self, port: Option<&std::sync::Arc<Port>>, frames: usize) {
        if let Some(port) = port
            && let Some(attached) = port.receive(self.source.pair).0.as_ref()
        {
            attached.ring.prefetch(frames);
        }
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
        let receivers = scene.table.receivers(from, &view.heads[frame]);
        // A NIC may have no uplink, and a VF no guest: nobody there is no drop.
        let is_there = |to: &PortId| scene.port(*to).is_some() || scene.switches(*to);
        let receivers = receivers.filter(is_there);
        let picks = &ALL[frame..=frame];
        receivers.map(|to| self.send_to_function((from, to), view, picks, way)).sum()
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
            return self.send_as((from, to), view, picks, edit::of_nic(edit), way);
        }
        let edit = |pick: &u8| table.edit_of(from, to, &view.heads[usize::from(*pick)]);
        let alike = picks.chunk_by(|a, b| edit(a) == edit(b));
        let send = |picks: &[u8]| {
            let edit = edit::of_nic(edit(&picks[0]));
            self.send_as((from, to), view, picks, edit, way)
        };
        alike.map(send).sum()
    }

    fn send_as(
        &self,
        (from, to): (PortId, PortId),
        view: &View<'_>,
        picks: &[u8],
        edit: Edit,
        way: &mut NicWay<'_>,
    ) -> usize {
        let scene = self.scene();
        if scene.switches(to)
            && let Some(switch) = &scene.switch
        {
            return self.enter_switch(switch, view, picks, edit, way);
        }
        let Some(port) = scene.port(to) else {
            // A NIC may have no uplink, and a VF no guest's adapter.
            self.drop_at_nic(DropReason::NoMatch, picks.len());
            return 0;
        };
        let delivered = self.deliver(port, view, picks, edit, way.receive);
        let (frames, bytes) = (u64::from(delivered.frames), delivered.bytes);
        if to == PortId::UPLINK {
            self.source.block().add(word::TX_UPLINK_FRAMES, frames);
            self.source.block().add(word::TX_UPLINK_BYTES, bytes);
        }
        if let Some(budget) = &scene.budget {
            let mut budget = budget.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            budget.charge(from, to, frames, bytes);
        }
        delivered.frames as usize
    }

    /// Frames that go on from the PF into the switch.
    fn enter_switch(
        &self,
        switch: &Switch,
        view: &View<'_>,
        picks: &[u8],
        edit: Edit,
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
                    let edit = edit::of_nic(copy.edit);
                    self.deliver(port, view, &ALL[i..=i], edit, way.receive);
                }
            });
        }
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
        self.mirror_switch(switch, view, stop, way);
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
        let vid = switch.table.vid(from, &view.heads[frame]);
        let receivers = switch.table.flood_ports(from, vid, flood).iter();
        let picks = &ALL[frame..=frame];
        let others = receivers.filter(|to| **to != from);
        others.map(|to| self.send_to_port(switch, (from, *to), view, picks, way)).sum()
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
        let edit = |pick: &u8| {
            edit::of_switch(switch.table.edit(from, to, &view.heads[usize::from(*pick)]))
        };
        let mut send = |picks: &[u8], edit: Edit| match to {
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

    /// Frames that go on from the switch's uplink into the NIC.
    fn enter_nic(
        &self,
        view: &View<'_>,
        picks: &[u8],
        edit: Edit,
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
        let NicStop { verdicts, flows, .. } = &mut **stop;
        let summary = self.scene().table.classify(PortId::PF, view.heads, flows, verdicts);
        let mut way = NicWay { switch: None, storm: None, receive: way.receive };
        self.leave_nic(PortId::PF, &view, summary, stop, &mut way);
        picks.len()
    }

    /// Gives the switch's mirrors their copies: as the frames came in.
    fn mirror_switch(
        &self,
        switch: &Switch,
        view: &View<'_>,
        stop: &SwitchStop,
        way: &mut SwitchWay<'_>,
    ) {
        for (i, mirrors) in stop.verdicts.mirrors().iter().enumerate() {
            let mut left = if view.skip >> i & 1 == 1 { 0 } else { *mirrors };
            while left != 0 {
                let mirror = left.trailing_zeros() as usize;
                left &= left - 1;
                let port = switch.table.mirror_port(mirror).and_then(|to| switch.port(to));
                if let Some(port) = port {
                    self.deliver(port, view, &ALL[i..=i], Edit::None, way.receive);
                }
            }
        }
    }

    /// Copies the picked frames of a view to a port, with one more change to their tags; says what
    /// it took.
    fn deliver(
        &self,
        port: &Port,
        view: &View<'_>,
        picks: &[u8],
        then: Edit,
        area: &mut Area,
    ) -> Delivered {
        let Some(edit) = edit::both(view.edit, then) else {
            self.drop_at_nic(DropReason::VlanForbidden, picks.len());
            return Delivered::default();
        };
        let mut frames = [0; BURST];
        let picks = match view.frames {
            None => picks,
            Some(_) => {
                let numbers = frames.iter_mut().zip(picks);
                numbers.for_each(|(frame, pick)| *frame = view.frame(*pick));
                &frames[..picks.len()]
            }
        };
        let (mut half, block) = port.receive(self.source.pair);
        let Some(attached) = half.as_mut() else {
            block.add(word::RX_DOWN, picks.len() as u64);
            return Delivered::default();
        };
        attached.ring.swap(area);
        let delivered = attached.ring.deliver(self.burst, picks, edit);
        let notified = attached.ring.publish();
        attached.ring.swap(area);
        block.add(word::RX_FRAMES, u64::from(delivered.frames));
        block.add(word::RX_BYTES, delivered.bytes);
        block.add(word::RX_NOTIFIES, u64::from(notified));
        if self.from_uplink {
            block.add(word::RX_UPLINK_FRAMES, u64::from(delivered.frames));
            block.add(word::RX_UPLINK_BYTES, delivered.bytes);
        }
        let Delivered { no_buffer, too_small, fault, .. } = delivered;
        if no_buffer + too_small > 0 {
            block.add(word::RX_NO_BUFFER, u64::from(no_buffer));
            block.add(word::RX_TOO_SMALL, u64::from(too_small));
        }
        if let Some(fault) = fault
            && !attached.fault_seen
        {
            attached.fault_seen = true;
            attached.ring.raise_error();
            block.add(word::RX_FAULTS + fault as usize, 1);
        }
        delivered
    }

    fn drop_at_nic(&self, reason: DropReason, frames: usize) {
        self.source.block().add(word::TX_DROPS + reason.index(), frames as u64);
    }
}
