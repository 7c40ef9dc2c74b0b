//! What a lane takes from others: which rings it has, and from scenes shares, limits and budgets.

use std::sync::{Arc, Mutex, PoisonError};

use nic::{Budget, PortId, Schedule, Share};

use super::{Poll, Worker};
use crate::fabric::SoftNic;
use crate::port::Port;
use crate::queue_list::Ring;

/// A NIC of which this lane has ports, and what was taken from its scene.
pub(super) struct Served {
    nic: Arc<SoftNic>,
    /// The scene's number; 0 for none yet.
    scene: u64,
    budget: Option<Arc<Mutex<Budget>>>,
}

impl Served {
    /// Asks the budget, if there is one, whether a burst that enters there may go now.
    ///
    /// # Errors
    /// The time at which to ask again, in ns.
    #[inline]
    pub(super) fn may_send(&self, enters: PortId, now_ns: u64) -> Result<(), u64> {
        let Some(budget) = &self.budget else { return Ok(()) };
        budget.lock().unwrap_or_else(PoisonError::into_inner).open(enters, now_ns)
    }
}

/// A port as a sender of this lane's schedule.
pub(super) struct Scheduled {
    /// Its NIC's place in [`Worker::nics`].
    nic: usize,
    port: Arc<Port>,
    /// Its rings on this lane: where they begin, and how many.
    first: usize,
    rings: usize,
    /// What was set last: tokens start anew when rates are set, and scenes change often.
    share: Option<Share>,
}

impl Scheduled {
    /// What this lane grants of the port's share: its part of the rates, by rings.
    fn part_of(&self, share: Share) -> Share {
        let part = |mbit: u32| {
            let mbit = u64::from(mbit) * self.rings as u64;
            mbit.div_ceil(self.port.pairs() as u64) as u32
        };
        Share {
            weight: share.weight,
            min_mbit: part(share.min_mbit),
            max_mbit: part(share.max_mbit),
        }
    }
}

impl Worker {
    /// Takes up ports that came, and lets go of those that went.
    pub(super) fn follow_roster(&mut self, now_ns: u64) {
        let Some(rings) = self.queue_list.changed(&mut self.roster_version) else {
            return;
        };
        let mut before = std::mem::take(&mut self.rings);
        let poll = |ring: Ring| match before.iter().position(|poll| poll.ring.is(&ring)) {
            Some(known) => before.swap_remove(known),
            None => Poll::new(ring),
        };
        self.rings = rings.into_iter().map(poll).collect();
        self.nics.clear();
        self.ports.clear();
        self.schedule = Schedule::new();
        let mut first = 0;
        for group in self.rings.chunk_by_mut(|a, b| Arc::ptr_eq(&a.ring.port, &b.ring.port)) {
            let Ring { nic, port, .. } = group[0].ring.clone();
            let known = self.nics.iter().position(|other| Arc::ptr_eq(&other.nic, &nic));
            let nic = known.unwrap_or_else(|| {
                self.nics.push(Served { nic, scene: 0, budget: None });
                self.nics.len() - 1
            });
            group.iter_mut().for_each(|poll| poll.nic = nic);
            let own = first as u32..(first + group.len()) as u32;
            self.schedule.add(Share::default(), own, now_ns);
            self.ports.push(Scheduled { nic, port, first, rings: group.len(), share: None });
            first += group.len();
        }
    }

    /// Takes shares, limits and budgets from scenes that are new.
    pub(super) fn follow_scenes(&mut self, now_ns: u64) {
        for (nic, served) in self.nics.iter_mut().enumerate() {
            let scene = served.nic.scene();
            if scene.number() == served.scene {
                continue;
            }
            served.scene = scene.number();
            served.budget = scene.budget.clone();
            for (sender, scheduled) in self.ports.iter_mut().enumerate() {
                if scheduled.nic != nic {
                    continue;
                }
                let share = scheduled.part_of(scene.share(&scheduled.port));
                if scheduled.share != Some(share) {
                    scheduled.share = Some(share);
                    self.schedule.set(sender, share, now_ns);
                }
                // Each ring has a part, so that more of them give no more.
                let limit = scene.storm_limit(&scheduled.port);
                let limit = limit.div_ceil(scheduled.port.pairs() as u32);
                let enters = scene.enters(&scheduled.port);
                for poll in &mut self.rings[scheduled.first..][..scheduled.rings] {
                    poll.sender.limit_storms(limit, now_ns);
                    poll.enters = enters;
                }
            }
        }
    }
}
