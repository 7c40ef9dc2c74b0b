//! A ring with all that belongs to it, and where it is written down how far it has come.

use vhost_user::RingSetup;
use virtq::Inflight;
use wire::virtio_net as net;

use super::super::ring::Ring;
use super::GuestDevice;

impl GuestDevice {
    /// A ring, with all that belongs to it now.
    pub(super) fn ring(&mut self, index: usize, setup: &RingSetup) -> Ring {
        let packed = net::feature::has(setup.features, net::feature::VIRTIO_F_RING_PACKED);
        let inflight = if packed { self.record(index, setup) } else { None };
        Ring {
            setup: setup.clone(),
            memory: self.memory.clone(),
            log: self.log.clone(),
            inflight,
            stalled: self.stalled.clone(),
            budget: self.budget.clone(),
            interrupt: None,
        }
    }

    /// The record of a packed ring: the front-end's, if it keeps one that has room, or ours.
    fn record(&mut self, index: usize, setup: &RingSetup) -> Option<Inflight> {
        let given = self.records.as_ref().and_then(|records| records.of(index, setup.size));
        match given {
            Some(given) => {
                self.kept.clear(index); // what it says is of before
                Some(given)
            }
            None => self.kept.of(index, setup, &self.files),
        }
    }
}
