//! Charges for work that a burst causes beyond its frames: copies for the receivers of a flood, for
//! mirrors and for the peers of a tunnel, and the segments that are cut for them.
//!
//! # Model
//! A sender's rates count the bytes that it sent, as they are on a wire, or the bytes that were
//! delivered, if these are more. The storm limit counts a flooded frame before it is forwarded, and
//! afterwards:
//!
//! | work | storm limit |
//! |---|---|
//! | segments of a flooded frame | each beyond the first |
//! | the same, cut for a further receiver | each |
//! | copy for a further peer of a tunnel | each |
//!
//! It may be overdrawn by these; then no flood passes until it has recovered.
//!
//! Only the tunnel knows which addresses are unknown to it. It copies frames to these, if no storm
//! limit has counted them yet, only while the limit has room.

use std::cell::{Cell, RefCell};

use bridge::DropReason;
use bridge::rate::StormLimit;
use port::{Delivered, HeaderBytes};

use super::Pipeline;
use crate::port::counter;
use crate::slow::view::BurstView;
use crate::snapshot::SwitchSnapshot;

/// Storm limit of the sender of a burst.
pub(crate) enum Storm<'a> {
    /// No limit: the frame is the daemon's or the host's own.
    None,
    /// Limit of a function.
    Function(RefCell<&'a mut StormLimit>),
    /// Limits of a port of the switch.
    Switch(&'a SwitchSnapshot, bridge::PortId),
}

/// Charges of one burst.
pub(crate) struct Charges<'a> {
    storm: Storm<'a>,
    /// Bytes delivered to all receivers.
    delivered: Cell<u64>,
    /// Set once the frame that is being flooded was cut for a receiver.
    was_cut: Cell<bool>,
}

impl<'a> Charges<'a> {
    pub(crate) fn new(storm: Storm<'a>) -> Charges<'a> {
        Charges { storm, delivered: Cell::new(0), was_cut: Cell::new(false) }
    }

    pub(crate) fn of_function(limit: &'a mut StormLimit) -> Charges<'a> {
        Charges::new(Storm::Function(RefCell::new(limit)))
    }

    /// Bytes delivered to all receivers.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.get()
    }

    /// Adds bytes delivered to a receiver.
    #[inline]
    pub(super) fn add(&self, delivered: &Delivered) {
        let bytes = delivered.bytes.saturating_add(delivered.copied_bytes);
        self.delivered.set(self.delivered.get().saturating_add(bytes));
    }
}

/// Stage at which a frame is flooded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FloodPoint {
    Nic,
    Switch,
}

impl Pipeline<'_> {
    /// Counts a group frame by the limit of a function; returns `false` if it must be dropped. The
    /// switch counts its own while it classifies.
    pub(super) fn admits_group(&self) -> bool {
        match &self.charges.storm {
            Storm::Function(limit) => limit.borrow_mut().admit(1, self.now_ns) > 0,
            Storm::None | Storm::Switch(..) => true,
        }
    }

    /// Charges the further segments of a frame before it is flooded, if a limit counts it at this
    /// stage.
    pub(super) fn begin_flood(&self, at: FloodPoint, view: &BurstView<'_>, index: usize) {
        if !view.flooded {
            self.charges.was_cut.set(false);
        }
        let header = &view.headers[index];
        let is_counted = match &self.charges.storm {
            Storm::Function(_) => at == FloodPoint::Nic && is_group(header),
            Storm::Switch(..) => at == FloodPoint::Switch,
            Storm::None => false,
        };
        if is_counted {
            self.charge_segments(view, index);
        }
    }

    /// Charges the further segments of a frame that a limit has let pass.
    pub(super) fn charge_segments(&self, view: &BurstView<'_>, index: usize) {
        if self.burst.offloads.is_empty() {
            return;
        }
        let frame = usize::from(view.frame(index as u8));
        let (count, _) = self.burst.offload(frame).segments(self.burst.frames[frame].len);
        self.charge_storm(&view.headers[index], count - 1);
    }

    fn charge_storm(&self, header: &HeaderBytes, frames: u32) {
        match &self.charges.storm {
            Storm::None => {}
            Storm::Function(limit) => limit.borrow_mut().charge(frames),
            Storm::Switch(switch, from) => {
                switch.table.charge_flood(&switch.state, *from, header, frames, self.now_ns);
            }
        }
    }

    /// Copies that a tunnel may make of frames to unknown addresses.
    pub(super) fn copies_allowed(&self, view: &BurstView<'_>) -> u32 {
        match &self.charges.storm {
            Storm::None => u32::MAX,
            Storm::Function(limit) => limit.borrow_mut().room(self.now_ns),
            // The switch has counted it.
            Storm::Switch(..) if view.flooded => u32::MAX,
            Storm::Switch(switch, from) => {
                switch.table.unknown_room(&switch.state, *from, self.now_ns)
            }
        }
    }

    /// Charges the storm limit for copies, and segments cut for a further receiver of a flood.
    #[cold]
    pub(super) fn charge_delivered(
        &self,
        view: &BurstView<'_>,
        indices: &[u8],
        delivered: &Delivered,
    ) {
        let Some(header) = indices.first().map(|index| &view.headers[usize::from(*index)]) else {
            return;
        };
        self.charge_storm(header, delivered.copies);
        let is_cut = view.flooded && delivered.frames > 1; // a flood is delivered frame by frame
        let is_limited = is_group(header) || matches!(self.charges.storm, Storm::Switch(..));
        if is_cut && self.charges.was_cut.replace(true) && is_limited {
            self.charge_storm(header, delivered.frames);
        }
        if delivered.over_limit > 0 {
            let word = match &self.charges.storm {
                Storm::Switch(..) => {
                    counter::TX_SWITCH_DROPS + DropReason::StormUnknown.switch_index()
                }
                Storm::None | Storm::Function(_) => {
                    counter::TX_DROPS + DropReason::Storm.nic_index()
                }
            };
            let frames = match indices {
                // Of several frames it is not known which; captures deliver singly.
                [index] => &[view.frame(*index)][..],
                _ => &[],
            };
            self.source.count_drops(word, u64::from(delivered.over_limit), frames);
        }
    }
}

fn is_group(header: &HeaderBytes) -> bool {
    header[0] & 1 == 1
}
