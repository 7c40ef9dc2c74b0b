//! Building a ring with its memory, log and in-flight record.

use vhost_user::RingSetup;
use virtq::InflightRecord;
use wire::virtio_net as net;

use super::super::ring::RingParameters;
use super::GuestDevice;

impl GuestDevice {
    /// Builds a ring from its setup and the device's current state.
    pub(super) fn ring(&mut self, index: usize, setup: &RingSetup) -> RingParameters {
        let packed = net::feature::has(setup.features, net::feature::VIRTIO_F_RING_PACKED);
        let inflight = if packed { self.record(index, setup) } else { None };
        RingParameters {
            setup: setup.clone(),
            memory: self.memory.clone(),
            log: self.log.clone(),
            inflight,
            stalled: self.stalled.clone(),
            budget: self.budget.clone(),
            interrupt: None,
        }
    }

    /// Record of a packed ring: the front-end's if it has room, else ours.
    fn record(&mut self, index: usize, setup: &RingSetup) -> Option<InflightRecord> {
        let given = self.records.as_ref().and_then(|records| records.of(index, setup.size));
        match given {
            Some(given) => {
                self.saved_rings.clear(index); // outdated
                Some(given)
            }
            None => self.saved_rings.of(index, setup, &self.files),
        }
    }
}
