//! Pipeline of a burst that is not the [usual case](crate::forward): the stages NIC and switch, and
//! the one copy at its end.
//!
//! # Model
//! A burst enters at one of the two stages. Frames to the PF go on to the other stage, and never
//! return. Each stage sees the frames as they are there ([`BurstView`]): with the tag that is right
//! on the PF. All edits of a frame's tag are combined into one, which the copy makes.

mod charges;
pub(crate) mod edit;
mod enter;
mod groups;
mod nic;
pub(crate) mod scratch;
mod switch;
mod switchdev;
pub(crate) mod view;

use bridge::DropReason;
use host::stall::BurstMarker;
use port::capture::live::Direction;
use port::{BURST, Burst, BurstBuffers, Delivered, VlanEdit};

use crate::capture::FrameResult;
use crate::capture::log::{BurstLog, FrameEvent};
use crate::counters::CounterBlock;
use crate::lane::stage_clock::StageClock;
use crate::lane::stages::Stage;
use crate::port::{Port, counter};
use crate::snapshot::ForwardingSnapshot;

use scratch::{NicScratch, SwitchScratch};
use view::{BurstView, ViewBuffer};

pub(crate) use charges::{Charges, Storm};
pub(crate) use enter::enter;

/// Source of a burst: snapshot, port and queue pair, and the lane's instruments.
#[derive(Clone, Copy)]
pub(crate) struct BurstSource<'a> {
    pub(crate) snapshot: &'a ForwardingSnapshot,
    pub(crate) port: &'a Port,
    pub(crate) pair: usize,
    /// Record of the memory that the lane touches.
    pub(crate) marker: &'a BurstMarker,
    /// Clock of the stages.
    pub(crate) stages: &'a StageClock,
    /// Log of what happens to the frames, while a port of the NIC is captured.
    pub(crate) log: Option<&'a BurstLog>,
}

impl BurstSource<'_> {
    /// Counters of the source's queue pair.
    #[inline]
    pub(crate) fn block(&self) -> &CounterBlock {
        self.port.block(self.pair)
    }

    /// Counts drops at the sender's port, and notes them for captures. The only way to do either:
    /// no drop is counted that captures do not see. `frames` are indices in the burst, `count` may
    /// differ from their number for copies and segments.
    fn count_drops(&self, counter: usize, count: u64, frames: &[u8]) {
        self.block().add(counter, count);
        if let Some(log) = self.log {
            log.add_drops(self, counter, frames);
        }
    }
}

/// Outputs of the NIC stage.
pub(crate) struct NicEgress<'a> {
    /// The next stage; `None` if the frames come from there.
    pub(crate) switch: Option<(&'a mut SwitchScratch, &'a mut ViewBuffer)>,
    pub(crate) receive: &'a mut BurstBuffers,
}

/// Outputs of the switch stage.
pub(crate) struct SwitchEgress<'a> {
    /// The next stage; `None` if the frames come from there.
    pub(crate) nic: Option<(&'a mut NicScratch, &'a mut ViewBuffer)>,
    pub(crate) receive: &'a mut BurstBuffers,
}

/// A burst in the pipeline.
#[derive(Clone, Copy)]
pub(crate) struct Pipeline<'a> {
    source: BurstSource<'a>,
    burst: &'a Burst<'a>,
    charges: &'a Charges<'a>,
    now_ns: u64,
    from_uplink: bool,
}

impl<'a> Pipeline<'a> {
    pub(crate) fn new(
        source: BurstSource<'a>,
        burst: &'a Burst<'a>,
        charges: &'a Charges<'a>,
        now_ns: u64,
        from_uplink: bool,
    ) -> Pipeline<'a> {
        Pipeline { source, burst, charges, now_ns, from_uplink }
    }

    fn snapshot(&self) -> &'a ForwardingSnapshot {
        self.source.snapshot
    }

    /// Frames as the next stage sees them, and the memory of that stage; `None` if they came from
    /// there, or if their headers are not known after the edit. Such frames are dropped and
    /// counted.
    fn pass_on<'v, S>(
        &self,
        next: Option<&'v mut (&mut S, &mut ViewBuffer)>,
        view: &BurstView<'_>,
        indices: &[u8],
        edit: VlanEdit,
    ) -> Option<(&'v mut S, BurstView<'v>)> {
        let Some((scratch, view_buffer)) = next else {
            self.drop_at_nic(DropReason::Hairpin, view, indices);
            return None;
        };
        let Some(view) = view_buffer.view(self.burst, view, indices, edit) else {
            self.drop_at_nic(DropReason::VlanForbidden, view, indices);
            return None;
        };
        Some((scratch, view))
    }

    /// Copies frames of a view to a port, with one more edit of their tags; returns the counts.
    /// `by_queue` if the NIC chose a receive queue.
    fn deliver(
        &self,
        port: &Port,
        by_queue: bool,
        view: &BurstView<'_>,
        indices: &[u8],
        then: VlanEdit,
        buffers: &mut BurstBuffers,
    ) -> Delivered {
        let is_captured = self.is_captured(port);
        if is_captured && indices.len() > 1 {
            // One by one, so that the result tells the frame.
            let mut all = Delivered::default();
            for index in indices.chunks(1) {
                let one = self.deliver(port, by_queue, view, index, then, buffers);
                all.frames += one.frames;
                all.bytes += one.bytes;
            }
            return all;
        }
        let Some(edit) = edit::combine(view.edit, then) else {
            self.drop_at_nic(DropReason::VlanForbidden, view, indices);
            return Delivered::default();
        };
        let mut numbers = [0; BURST];
        let frames = match view.frames {
            None => indices,
            Some(_) => {
                let each = numbers.iter_mut().zip(indices);
                each.for_each(|(number, index)| *number = view.frame(*index));
                &numbers[..indices.len()]
            }
        };
        let stages = self.source.stages;
        stages.end(Stage::Classify);
        let (mut half, block) = port.receive(self.source.pair);
        let Some(attached) = half.as_mut() else {
            if !port.is_gone() {
                block.add(counter::RX_DOWN, indices.len() as u64);
                self.note_delivery(port, by_queue, frames, edit, None);
            }
            return Delivered::default();
        };
        self.source.marker.touch(port.id);
        if attached.replicates {
            attached.ring.allow_copies(self.copies_allowed(view));
        }
        let delivered = attached.deliver((self.burst, frames, edit), block, buffers, stages);
        if self.from_uplink {
            block.add(counter::RX_UPLINK_FRAMES, u64::from(delivered.frames));
            block.add(counter::RX_UPLINK_BYTES, delivered.bytes);
        }
        self.charges.add(&delivered);
        if delivered.copies + delivered.over_limit > 0 || view.flooded && delivered.frames > 1 {
            self.charge_delivered(view, indices, &delivered);
        }
        drop(half);
        stages.end(Stage::Publish);
        if is_captured {
            self.note_delivery(port, by_queue, frames, edit, Some(&delivered));
        }
        delivered
    }

    /// Returns `true` if a capture wants the results of deliveries to a port.
    fn is_captured(&self, port: &Port) -> bool {
        let Some(log) = self.source.log else { return false };
        log.is_wanted(self.snapshot(), self.source.port, port)
    }

    /// Notes the delivery of a frame for captures; `None` for a port without a ring.
    fn note_delivery(
        &self,
        port: &Port,
        by_queue: bool,
        frames: &[u8],
        edit: VlanEdit,
        delivered: Option<&Delivered>,
    ) {
        let Some(log) = self.source.log else { return };
        let results = match delivered {
            None => [Some(FrameResult::Dropped(counter::RX_DOWN)), None, None],
            Some(Delivered { frames, no_buffer, too_small, over_limit, .. }) => {
                let passed = match (frames, no_buffer + too_small + over_limit) {
                    (0, 0) => Some(FrameResult::Waits),
                    (0, _) => None,
                    _ => Some(FrameResult::Passed),
                };
                let dropped =
                    |count: u32, counter| (count > 0).then_some(FrameResult::Dropped(counter));
                let no_buffer = dropped(*no_buffer, counter::RX_NO_BUFFER);
                [passed, no_buffer, dropped(*too_small, counter::RX_TOO_SMALL)]
            }
        };
        for frame in frames {
            for result in results.into_iter().flatten() {
                let (frame, direction) = (*frame, Direction::Out);
                let event = FrameEvent { frame, direction, result, edit, by_queue };
                log.add(self.snapshot(), port, event);
            }
        }
    }

    /// Drops frames of a view for a reason of the NIC.
    fn drop_at_nic(&self, reason: DropReason, view: &BurstView<'_>, indices: &[u8]) {
        self.drop_frames(counter::TX_DROPS + reason.nic_index(), view, indices);
    }

    /// Drops frames of a view; they count at the sender's port.
    fn drop_frames(&self, counter: usize, view: &BurstView<'_>, indices: &[u8]) {
        let mut numbers = [0; BURST];
        let each = numbers.iter_mut().zip(indices);
        each.for_each(|(number, index)| *number = view.frame(*index));
        self.source.count_drops(counter, indices.len() as u64, &numbers[..indices.len()]);
    }
}
