//! A ring as a session sets it up, and its parts for the data plane.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use guestmem::{DirtyLog, GuestMemory};
use port::notifier::WriteBudget;
use port::virtio_net::{Interrupt, ReceiveLayout, ReceiveRing, RingEvents, TransmitRing};
use vhost_user::{Refused, RingSetup};
use virtq::{Addresses, Content, DeviceQueue, Features, InflightRecord, Log, Position, Start};
use wire::virtio_net::{self as net, OffloadSet, feature};

/// Parameters of a ring.
#[derive(Debug)]
pub(super) struct RingParameters {
    pub(super) setup: RingSetup,
    pub(super) memory: Arc<GuestMemory>,
    /// Dirty log, if the setup enables logging.
    pub(super) log: Option<Arc<DirtyLog>>,
    /// In-flight record.
    pub(super) inflight: Option<InflightRecord>,
    /// Set when a descriptor of the front-end blocked a thread.
    pub(super) stalled: Arc<AtomicBool>,
    /// Time budget of the front-end's interrupts.
    pub(super) budget: Arc<WriteBudget>,
    /// Interrupts the guest, if no eventfd does.
    pub(super) interrupt: Option<Arc<dyn Interrupt>>,
}

impl RingParameters {
    pub(super) fn has(&self, bit: u32) -> bool {
        feature::has(self.setup.features, bit)
    }

    /// Size of the device header, in bytes.
    pub(super) fn header(&self) -> u32 {
        net::header_len(self.setup.features) as u32
    }

    /// Returns `true` if writes are logged.
    pub(super) fn logs(&self) -> bool {
        self.setup.log.is_some()
    }

    /// Eventfds and interrupts of the ring.
    pub(super) fn events(&self) -> RingEvents {
        let RingSetup { kick, call, err, .. } = &self.setup;
        RingEvents {
            kick: kick.clone(),
            call: call.clone(),
            interrupt: self.interrupt.clone(),
            error: err.clone(),
            stalled: self.stalled.clone(),
            budget: self.budget.clone(),
            call_state: Arc::default(),
            error_state: Arc::default(),
        }
    }

    /// Device side of the ring.
    pub(super) fn queue(&self, content: Content) -> Result<DeviceQueue, Refused> {
        self.queue_at(self.setup.base, content)
    }

    fn queue_at(&self, base: Position, content: Content) -> Result<DeviceQueue, Refused> {
        let mut features = Features::empty();
        features.set(Features::INDIRECT, self.has(feature::VIRTIO_F_RING_INDIRECT_DESC));
        features.set(Features::EVENT_IDX, self.has(feature::VIRTIO_F_RING_EVENT_IDX));
        features.set(Features::PACKED, self.has(feature::VIRTIO_F_RING_PACKED));
        features.set(Features::IN_ORDER, self.has(feature::VIRTIO_F_IN_ORDER));
        let RingSetup { desc, avail, used, size, .. } = self.setup;
        let addresses = Addresses { desc, avail, used };
        let start = Start { base, inflight: self.inflight.clone(), log: self.log()? };
        let queue =
            DeviceQueue::new(self.memory.clone(), &addresses, size, features, content, start);
        queue.map_err(|error| Refused::new(error.to_string()))
    }

    fn log(&self) -> Result<Option<Log>, Refused> {
        match (self.setup.log, &self.log) {
            (None, _) => Ok(None),
            (Some(wanted), Some(pages)) => {
                let pages = pages.clone();
                Ok(Some(Log { pages, buffers: wanted.buffers, used: wanted.used }))
            }
            (Some(_), None) => Err(Refused::new("logging is enabled, but there is no log")),
        }
    }

    /// Receive half of a port.
    pub(super) fn receive(&self) -> Result<ReceiveRing, Refused> {
        self.receive_at(self.setup.base)
    }

    /// Receive half, starting at another position.
    pub(super) fn receive_at(&self, base: Position) -> Result<ReceiveRing, Refused> {
        let mergeable = self.has(feature::VIRTIO_NET_F_MRG_RXBUF);
        let layout = ReceiveLayout { header: self.header(), mergeable };
        let takes = OffloadSet::of_receive(self.setup.features);
        let queue = self.queue_at(base, Content::Writable)?;
        Ok(ReceiveRing::new(queue, self.events(), layout, takes))
    }

    /// Transmit half of a port, with a maximum frame size and a start position.
    pub(super) fn transmit_at(
        &self,
        base: Position,
        frame_bytes_max: u32,
    ) -> Result<TransmitRing, Refused> {
        let leaves = OffloadSet::of_transmit(self.setup.features);
        let content = Content::Readable { header: self.header(), keep: !leaves.is_empty() };
        let queue = self.queue_at(base, content)?;
        let ring = TransmitRing::new(queue, self.events(), frame_bytes_max, leaves);
        Ok(if self.setup.enabled { ring } else { ring.discarding() })
    }
}
