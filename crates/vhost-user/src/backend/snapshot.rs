//! Hand-over of a session to another process.
//!
//! Model: the old process handles no message between [`Backend::snapshot`] and
//! [`Backend::suspend`]. The new one ([`Backend::restore`]) has its device map the memory. It
//! starts the rings after the old one has stopped them ([`Backend::resume`]), from their positions.
//!
//! Only rings that ran continue. A ring that was stopped, because the device refused it or its
//! settings are incomplete, stays stopped, and its settings are not checked before it starts.
//!
//! Every part of a session is destructured by name here, so that the compiler reports a new part
//! that is missing.

use std::sync::Arc;

use crate::features::ProtocolFeatures;
use crate::foreign::ForeignFd;

use super::layout::Addresses;
use super::memory::MemorySlot;
use super::ring::{Kick, RingState};
use super::{Backend, BackendDevice, Reason};

/// A session, without the memory, which the device has.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Features that the driver accepted, as [`Features`](crate::Features) bits.
    pub features: u64,
    /// Protocol features negotiated, as [`ProtocolFeatures`] bits.
    pub protocol_features: u64,
    /// The virtio device status last set.
    pub status: u8,
    /// Memory regions: guest address, front-end address, bytes.
    pub slots: Vec<[u64; 3]>,
    /// All rings, in their order.
    pub rings: Vec<RingSnapshot>,
    /// `true` if the device has a dirty log.
    pub has_log: bool,
    /// Socket for requests to the front-end.
    pub channel: Option<Arc<ForeignFd>>,
}

/// One ring.
#[derive(Clone, Debug, Default)]
pub struct RingSnapshot {
    /// Number of descriptors, if set.
    pub size: Option<u16>,
    /// Addresses of its three parts in the front-end, if set: descriptors, available, used.
    pub addresses: Option<[u64; 3]>,
    /// Guest address for logged writes to the used ring, if they are logged.
    pub log: Option<u64>,
    /// Start position, or position of the last stop.
    pub base: u32,
    /// Notification by the guest.
    pub kick: KickSnapshot,
    /// Eventfd that interrupts the guest.
    pub call: Option<Arc<ForeignFd>>,
    /// Eventfd that reports a broken ring.
    pub err: Option<Arc<ForeignFd>>,
    /// `true` if it is enabled.
    pub enabled: bool,
    /// `true` if it runs.
    pub running: bool,
}

/// Notification of available buffers by a guest.
#[derive(Clone, Debug, Default)]
pub enum KickSnapshot {
    /// Not set: the ring is stopped.
    #[default]
    Unset,
    /// None: poll the ring.
    Poll,
    /// This eventfd.
    Fd(Arc<ForeignFd>),
}

/// Reasons that a session cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Negotiated features that are not offered here.
    #[error("the front-end uses features {0:#x}, which are not offered here")]
    Features(u64),
    /// Negotiated protocol features that are not offered here.
    #[error("the front-end uses protocol features {0:?}, which are not offered here")]
    ProtocolFeatures(ProtocolFeatures),
    /// The number of rings differs.
    #[error("the session has {got} rings, and the attachment {expected}")]
    Rings {
        /// Rings of the attachment.
        expected: usize,
        /// Rings of the session.
        got: usize,
    },
}

/// One direction of the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingDirection {
    /// Tx of the guest: odd numbers.
    Transmit,
    /// Rx of the guest: even numbers.
    Receive,
}

impl RingDirection {
    fn has(self, index: usize) -> bool {
        index.is_multiple_of(2) == (self == RingDirection::Receive)
    }
}

impl Backend {
    /// Snapshot of the session.
    pub fn snapshot(&self) -> Snapshot {
        let Backend {
            // Belongs to the attachment.
            config: _,
            features,
            protocol_features,
            status,
            slots,
            rings,
            has_log,
            channel,
            // Reported already, or of one message only.
            refusal: _,
        } = self;
        Snapshot {
            features: *features,
            protocol_features: protocol_features.bits(),
            status: *status,
            slots: slots.iter().map(|slot| slot.to_array()).collect(),
            rings: rings.iter().map(RingState::snapshot).collect(),
            has_log: *has_log,
            channel: channel.clone(),
        }
    }

    /// Restores a session, with all rings stopped. The device must have the session's memory, and
    /// its log and records, before they start.
    ///
    /// # Errors
    /// [`RestoreError`]: it needs what is not offered here.
    pub fn restore(&mut self, snapshot: Snapshot) -> Result<(), RestoreError> {
        let Snapshot { features, protocol_features, status, slots, rings, has_log, channel } =
            snapshot;
        let unknown = features & !self.offered_features();
        if unknown != 0 {
            return Err(RestoreError::Features(unknown));
        }
        let agreed = ProtocolFeatures::from_bits_retain(protocol_features);
        let unknown = agreed - self.config.protocol_features;
        if !unknown.is_empty() {
            return Err(RestoreError::ProtocolFeatures(unknown));
        }
        if rings.len() != self.rings.len() {
            let (expected, got) = (self.rings.len(), rings.len());
            return Err(RestoreError::Rings { expected, got });
        }
        self.rings = rings.into_iter().map(RingState::restore).collect();
        (self.features, self.protocol_features, self.status) = (features, agreed, status);
        self.slots = slots.into_iter().map(MemorySlot::from_array).collect();
        self.has_log = has_log;
        self.channel = channel;
        Ok(())
    }

    /// Stops the running rings of one direction, so that no lane uses them any more.
    pub fn suspend(&mut self, half: RingDirection, device: &mut impl BackendDevice) {
        for index in (0..self.rings.len()).filter(|index| half.has(*index)) {
            self.rings[index].resumes = self.rings[index].running;
            self.stop(index, device);
        }
    }

    /// Positions of the rings, valid while they are stopped.
    pub fn positions(&self) -> Vec<u32> {
        self.rings.iter().map(|ring| ring.base).collect()
    }

    /// Sets the start position of each ring.
    ///
    /// # Errors
    /// The number of rings differs.
    pub fn set_positions(&mut self, positions: &[u32]) -> Result<(), RestoreError> {
        if positions.len() != self.rings.len() {
            let (expected, got) = (self.rings.len(), positions.len());
            return Err(RestoreError::Rings { expected, got });
        }
        for (ring, base) in self.rings.iter_mut().zip(positions) {
            ring.base = *base;
        }
        Ok(())
    }

    /// Starts every ring that ran when it was suspended, in this or in the old process.
    ///
    /// # Errors
    /// A ring cannot continue; the others run.
    pub fn resume(&mut self, device: &mut impl BackendDevice) -> Result<(), Reason> {
        let mut result = Ok(());
        for index in 0..self.rings.len() {
            if std::mem::take(&mut self.rings[index].resumes) {
                result = result.and(self.start(index, device));
            }
        }
        result
    }
}

impl RingState {
    fn snapshot(&self) -> RingSnapshot {
        let RingState {
            size,
            addresses,
            log,
            base,
            kick,
            call,
            err,
            enabled,
            discards: _,
            running,
            resumes: _,
        } = self;
        let addresses = addresses.map(|Addresses { desc, avail, used }| [desc, avail, used]);
        let kick = match kick {
            Kick::Unset => KickSnapshot::Unset,
            Kick::Poll => KickSnapshot::Poll,
            Kick::Fd(fd) => KickSnapshot::Fd(fd.clone()),
        };
        let (call, err) = (call.clone(), err.clone());
        let (size, log, base) = (*size, *log, *base);
        let (enabled, running) = (*enabled, *running);
        RingSnapshot { size, addresses, log, base, kick, call, err, enabled, running }
    }

    fn restore(snapshot: RingSnapshot) -> RingState {
        let RingSnapshot { size, addresses, log, base, kick, call, err, enabled, running } =
            snapshot;
        let addresses = addresses.map(|[desc, avail, used]| Addresses { desc, avail, used });
        let kick = match kick {
            KickSnapshot::Unset => Kick::Unset,
            KickSnapshot::Poll => Kick::Poll,
            KickSnapshot::Fd(fd) => Kick::Fd(fd),
        };
        let (running, resumes, discards) = (false, running, running && !enabled);
        RingState {
            size,
            addresses,
            log,
            base,
            kick,
            call,
            err,
            enabled,
            discards,
            running,
            resumes,
        }
    }
}

impl MemorySlot {
    fn to_array(self) -> [u64; 3] {
        let MemorySlot { guest_addr, user_addr, size } = self;
        [guest_addr, user_addr, size]
    }

    fn from_array([guest_addr, user_addr, size]: [u64; 3]) -> MemorySlot {
        MemorySlot { guest_addr, user_addr, size }
    }
}
