//! Updates of a lane: its rings from the queue list, and shares, limits and budgets from snapshots.

use std::sync::Arc;

use bridge::nic::{Schedule, Share};

use super::lane_ports::{LaneNic, LanePort, LaneRing};
use super::worker::Worker;
use crate::lane::queue_list::TxRing;

/// Most rings of a lane that stages buffers ahead: 64 buffers of each have 8 KiB in its L1 cache.
const RINGS_AHEAD: usize = 4;

impl Worker {
    /// Adds new rings, and removes those that are gone.
    #[cold]
    pub(super) fn follow_queue_list(&mut self, now_ns: u64) {
        let (version, rings) = self.queue_list.get();
        self.queue_list_version = version;
        let mut before = std::mem::take(&mut self.rings);
        let poll = |ring: TxRing| match before.iter().position(|poll| poll.ring.is(&ring)) {
            Some(known) => before.swap_remove(known),
            None => LaneRing::new(ring),
        };
        self.rings = rings.into_iter().map(poll).collect();
        self.scratch.receive.stages_ahead = self.rings.len() <= RINGS_AHEAD;
        self.nics.clear();
        self.ports.clear();
        self.schedule = Schedule::new();
        let mut first = 0;
        for group in self.rings.chunk_by_mut(|a, b| Arc::ptr_eq(&a.ring.port, &b.ring.port)) {
            let TxRing { nic, port, .. } = group[0].ring.clone();
            let known = self.nics.iter().position(|other| Arc::ptr_eq(&other.nic, &nic));
            let nic = known.unwrap_or_else(|| {
                self.nics.push(LaneNic::new(nic));
                self.nics.len() - 1
            });
            group.iter_mut().for_each(|poll| poll.nic = nic);
            let own = first as u32..(first + group.len()) as u32;
            self.schedule.add(Share::default(), own, now_ns);
            self.ports.push(LanePort { nic, port, first, rings: group.len(), share: None });
            first += group.len();
        }
    }

    /// Takes shares, limits and budgets from new snapshots.
    #[cold]
    pub(super) fn follow_snapshots(&mut self, now_ns: u64) {
        for (nic, served) in self.nics.iter_mut().enumerate() {
            if !served.is_changed() {
                continue;
            }
            let snapshot = served.snapshot.load();
            served.followed = snapshot.number();
            served.budget = snapshot.budget.clone();
            for (sender, scheduled) in self.ports.iter_mut().enumerate() {
                if scheduled.nic != nic {
                    continue;
                }
                let share = scheduled.part_of(snapshot.share(&scheduled.port));
                if scheduled.share != Some(share) {
                    scheduled.share = Some(share);
                    self.schedule.set(sender, share, now_ns);
                }
                // Each ring gets a part, so that more rings do not add up to more.
                let limit = snapshot.storm_limit(&scheduled.port);
                let limit = limit.div_ceil(scheduled.port.pairs() as u32);
                let enters = snapshot.enters(&scheduled.port);
                for poll in &mut self.rings[scheduled.first..][..scheduled.rings] {
                    poll.sender.limit_storms(limit, now_ns);
                    poll.enters = enters;
                }
            }
        }
    }
}
