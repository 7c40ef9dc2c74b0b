//! The way of a burst through NIC and switch, and the one copy at its end.
//!
//! # Model
//! A burst enters at one of the two stops, and what goes to the PF goes on to the other: from there
//! nothing comes back. At each stop the frames stand as they look there ([`View`]): with the tag
//! that is right on the PF. What is done to a frame's tag on its whole way is put together into
//! one change, and made by the copy.

mod at_nic;
mod at_pipe;
mod at_switch;
mod charges;

use nic::DropReason;
use port::{BURST, Burst, BurstBuffers, Delivered, Head, VlanEdit};
use wire::DeepHead;

use crate::edit;
use crate::forward::Source;
use crate::port::{Port, word};
use crate::scene::Scene;
use crate::stages::Stage;
use crate::stop::{BurstView, NicStop, SwitchStop};

pub(crate) use charges::{Charges, Storm};

/// Frames of a burst as a stop sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) heads: &'a [Head],
    /// More of each, if it was taken.
    pub(crate) deep: &'a [DeepHead],
    /// Their numbers in the burst; `None` for all of it.
    pub(crate) frames: Option<&'a [u8]>,
    /// What was done to the tags of all of them so far.
    pub(crate) edit: VlanEdit,
    /// Bit i is set if frame i is none to be carried.
    pub(crate) skip: u64,
    /// Whether the stop before sent them to others too: then it is no drop if nobody is here.
    pub(crate) flooded: bool,
}

impl<'a> View<'a> {
    /// A burst as it came.
    pub(crate) fn of(burst: &Burst<'a>) -> View<'a> {
        let Burst { heads, deep, malformed, .. } = *burst;
        View { heads, deep, frames: None, edit: VlanEdit::None, skip: malformed, flooded: false }
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
    pub(crate) switch: Option<(&'a mut SwitchStop, &'a mut BurstView)>,
    pub(crate) receive: &'a mut BurstBuffers,
}

/// What the switch needs to send frames on.
pub(crate) struct SwitchWay<'a> {
    /// The next stop; `None` if that is where they come from.
    pub(crate) nic: Option<(&'a mut NicStop, &'a mut BurstView)>,
    pub(crate) receive: &'a mut BurstBuffers,
}

/// A burst on its way.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'a> {
    source: Source<'a>,
    burst: &'a Burst<'a>,
    charges: &'a Charges<'a>,
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
        charges: &'a Charges<'a>,
        now_ns: u64,
        from_uplink: bool,
    ) -> Walk<'a> {
        Walk { source, burst, charges, now_ns, from_uplink }
    }

    fn scene(&self) -> &'a Scene {
        self.source.scene
    }

    fn prefetch(&self, port: Option<&std::sync::Arc<Port>>, frames: usize) {
        if let Some(port) = port
            && let Some(attached) = port.receive(self.source.pair).0.as_ref()
        {
            attached.ring.prefetch(frames);
        }
    }

    /// Copies the picked frames of a view to a port, with one more change to their tags; says what
    /// it took.
    fn deliver(
        &self,
        port: &Port,
        view: &View<'_>,
        picks: &[u8],
        then: VlanEdit,
        area: &mut BurstBuffers,
    ) -> Delivered {
        let Some(edit) = edit::both(view.edit, then) else {
            self.drop_at_nic(DropReason::VlanForbidden, picks.len());
            return Delivered::default();
        };
        let mut numbers = [0; BURST];
        let frames = match view.frames {
            None => picks,
            Some(_) => {
                let each = numbers.iter_mut().zip(picks);
                each.for_each(|(number, pick)| *number = view.frame(*pick));
                &numbers[..picks.len()]
            }
        };
        let stages = self.source.stages;
        stages.end(Stage::Classify);
        let (mut half, block) = port.receive(self.source.pair);
        let Some(attached) = half.as_mut() else {
            if !port.is_gone() {
                block.add(word::RX_DOWN, picks.len() as u64);
            }
            return Delivered::default();
        };
        self.source.standing.touch(port.id);
        if attached.makes_copies {
            attached.ring.allow_copies(self.copies_allowed(view));
        }
        let delivered = attached.fill(block, area, stages, |ring| {
            if stages.is_sampling() {
                ring.stage(frames.len());
                stages.end(Stage::Descriptors);
            }
            ring.deliver(self.burst, frames, edit)
        });
        if self.from_uplink {
            block.add(word::RX_UPLINK_FRAMES, u64::from(delivered.frames));
            block.add(word::RX_UPLINK_BYTES, delivered.bytes);
        }
        if delivered.copies + delivered.over_limit > 0 || view.flooded && delivered.frames > 1 {
            self.charge_delivered(view, picks, &delivered);
        }
        drop(half);
        stages.end(Stage::Publish);
        delivered
    }

    fn drop_at_nic(&self, reason: DropReason, frames: usize) {
        self.source.block().add(word::TX_DROPS + reason.index(), frames as u64);
    }
}
