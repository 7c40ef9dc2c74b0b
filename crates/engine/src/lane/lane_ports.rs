//! NICs, ports and rings of a lane, with the values taken from their snapshots.

use std::sync::{Arc, Mutex, PoisonError};

use bridge::PortId;
use bridge::nic::{Budget, Share};

use super::silence::Silence;
use crate::lane::queue_list::TxRing;
use crate::lane::sender::Sender;
use crate::port::Port;
use crate::soft_nic::{LaneSnapshot, SoftNic};

/// A NIC with ports on this lane, and the values taken from its snapshot.
pub(super) struct LaneNic {
    pub(super) nic: Arc<SoftNic>,
    pub(super) snapshot: LaneSnapshot,
    /// Number of the snapshot whose shares, limits and budget the lane has; 0 for none yet.
    pub(super) followed: u64,
    pub(super) budget: Option<Arc<Mutex<Budget>>>,
}

impl LaneNic {
    pub(super) fn new(nic: Arc<SoftNic>) -> LaneNic {
        let snapshot = nic.lane_snapshot();
        LaneNic { nic, snapshot, followed: 0, budget: None }
    }

    /// Returns `true` if there is a newer snapshot than the one followed.
    #[inline]
    pub(super) fn is_changed(&mut self) -> bool {
        self.snapshot.load().number() != self.followed
    }

    /// Asks the budget, if there is one, to admit a burst that enters at `enters`.
    ///
    /// # Errors
    /// Time at which to ask again, ns.
    #[inline]
    pub(super) fn may_send(&self, enters: PortId, now_ns: u64) -> Result<(), u64> {
        let Some(budget) = &self.budget else { return Ok(()) };
        budget.lock().unwrap_or_else(PoisonError::into_inner).open(enters, now_ns)
    }
}

/// A port in this lane's schedule.
pub(super) struct LanePort {
    /// Index of its NIC in the worker's list.
    pub(super) nic: usize,
    pub(super) port: Arc<Port>,
    /// First of its rings on this lane, and their number.
    pub(super) first: usize,
    pub(super) rings: usize,
    /// Last share set: setting rates resets tokens, and snapshots change often.
    pub(super) share: Option<Share>,
}

impl LanePort {
    /// This lane's part of the port's share: rates in proportion to its rings.
    pub(super) fn part_of(&self, share: Share) -> Share {
        let part = |mbit: u32| {
            let mbit = u64::from(mbit) * self.rings as u64;
            mbit.div_ceil(self.port.pairs() as u64) as u32
        };
        Share { min_mbit: part(share.min_mbit), max_mbit: part(share.max_mbit), ..share }
    }
}

/// A transmit ring of a lane.
pub(super) struct LaneRing {
    pub(super) ring: TxRing,
    /// Index of its NIC in the worker's list.
    pub(super) nic: usize,
    /// Port of the NIC at which its frames enter.
    pub(super) enters: PortId,
    pub(super) silence: Silence,
    pub(super) sender: Sender,
    /// Frames were available when the lane last tried to sleep.
    pub(super) waits: bool,
}

impl LaneRing {
    pub(super) fn new(ring: TxRing) -> LaneRing {
        let (enters, sender) = (PortId::PF, Sender::new());
        LaneRing { ring, nic: 0, enters, silence: Silence::default(), sender, waits: false }
    }
}
