//! A session as another process can take it up.
//!
//! Model: the process that gives a session away stands still meanwhile: it handles no message
//! between [`Backend::snapshot`] and [`Backend::suspend`]. The one that takes it up
//! ([`Backend::restore`]) has its device map the memory, and starts the rings when the other has
//! let go of them ([`Backend::resume`]), from where they stopped.
//!
//! Only rings that ran go on. One that stood, because the device refused it or because a part of
//! its settings is missing, stands as before, and nothing is asked of its settings: they are judged
//! when it starts, as always.
//!
//! Whatever a session consists of is taken apart by name here, so that a part that is added to it
//! cannot be forgotten: the compiler asks for it.

use std::sync::Arc;

use crate::features::ProtocolFeatures;
use crate::foreign::ForeignFd;

use super::form::Addresses;
use super::memory::Slot;
use super::ring::{Kick, Ring};
use super::{Backend, Device, Reason};

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
    /// Whether the device has a dirty log.
    pub has_log: bool,
    /// Over which the front-end takes requests of ours.
    pub channel: Option<Arc<ForeignFd>>,
}

/// One ring.
#[derive(Clone, Debug, Default)]
pub struct RingSnapshot {
    /// Number of descriptors, once it was set.
    pub size: Option<u16>,
    /// Addresses of its three parts in the front-end, once they were set: descriptors, available,
    /// used.
    pub addresses: Option<[u64; 3]>,
    /// Guest address at which writes to the used ring are logged, if they are.
    pub log: Option<u64>,
    /// Where it is to start, or where it stopped.
    pub base: u32,
    /// How the guest kicks.
    pub kick: KickSnapshot,
    /// The descriptor that interrupts the guest.
    pub call: Option<Arc<ForeignFd>>,
    /// The descriptor that says that the ring is broken.
    pub err: Option<Arc<ForeignFd>>,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Whether it runs.
    pub running: bool,
}

/// How a guest kicks.
#[derive(Clone, Debug, Default)]
pub enum KickSnapshot {
    /// Nothing was said: the ring is stopped.
    #[default]
    Unset,
    /// It does not.
    Poll,
    /// By this descriptor.
    Fd(Arc<ForeignFd>),
}

/// Why a session cannot be taken up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// What the front-end agreed on is not offered here.
    #[error("the front-end uses features {0:#x}, which this program does not offer here")]
    Features(u64),
    /// The same of protocol features.
    #[error("the front-end uses protocol features {0:?}, which this program does not offer here")]
    ProtocolFeatures(ProtocolFeatures),
    /// There are not as many rings.
    #[error("the session has {got} rings, and the attachment {expected}")]
    Rings {
        /// Rings of the attachment.
        expected: usize,
        /// Rings of the session.
        got: usize,
    },
}

/// Which rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Those from the guest: its Tx, odd numbers.
    Transmit,
    /// Those to the guest: its Rx, even numbers.
    Receive,
}

impl Half {
    fn has(self, index: usize) -> bool {
        index.is_multiple_of(2) == (self == Half::Receive)
    }
}

impl Backend {
    /// The session as it is.
    pub fn snapshot(&self) -> Snapshot {
        let Backend {
            // The attachment's own.
            config: _,
            features,
            protocol_features,
            status,
            slots,
            rings,
            has_log,
            channel,
            // It was told, or has to do with one message only.
            refusal: _,
        } = self;
        Snapshot {
            features: *features,
            protocol_features: protocol_features.bits(),
            status: *status,
            slots: slots.iter().map(|slot| slot.to_array()).collect(),
            rings: rings.iter().map(Ring::snapshot).collect(),
            has_log: *has_log,
            channel: channel.clone(),
        }
    }

    /// Takes a session up, with all rings stopped. The device is to have the session's memory, and
    /// what else there is of it, before they start.
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
        self.rings = rings.into_iter().map(Ring::restore).collect();
        (self.features, self.protocol_features, self.status) = (features, agreed, status);
        self.slots = slots.into_iter().map(Slot::from_array).collect();
        self.has_log = has_log;
        self.channel = channel;
        Ok(())
    }

    /// Stops the running rings of one half, so that no lane touches them any more.
    pub fn suspend(&mut self, half: Half, device: &mut impl Device) {
        for index in (0..self.rings.len()).filter(|index| half.has(*index)) {
            self.rings[index].resumes = self.rings[index].running;
            self.stop(index, device);
        }
    }

    /// Where each ring goes on, as long as it is stopped.
    pub fn positions(&self) -> Vec<u32> {
        self.rings.iter().map(|ring| ring.base).collect()
    }

    /// Says where each ring goes on.
    ///
    /// # Errors
    /// There are more or fewer rings.
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

    /// Starts every ring that ran when it was suspended, here or where the session comes from.
    ///
    /// # Errors
    /// One cannot go on; the others run.
    pub fn resume(&mut self, device: &mut impl Device) -> Result<(), Reason> {
        let mut result = Ok(());
        for index in 0..self.rings.len() {
            if std::mem::take(&mut self.rings[index].resumes) {
                result = result.and(self.start(index, device));
            }
        }
        result
    }
}

impl Ring {
    fn snapshot(&self) -> RingSnapshot {
        let Ring {
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

    fn restore(snapshot: RingSnapshot) -> Ring {
        let RingSnapshot { size, addresses, log, base, kick, call, err, enabled, running } =
            snapshot;
        let addresses = addresses.map(|[desc, avail, used]| Addresses { desc, avail, used });
        let kick = match kick {
            KickSnapshot::Unset => Kick::Unset,
            KickSnapshot::Poll => Kick::Poll,
            KickSnapshot::Fd(fd) => Kick::Fd(fd),
        };
        let (running, resumes, discards) = (false, running, running && !enabled);
        Ring { size, addresses, log, base, kick, call, err, enabled, discards, running, resumes }
    }
}

impl Slot {
    fn to_array(self) -> [u64; 3] {
        let Slot { guest_addr, user_addr, size } = self;
        [guest_addr, user_addr, size]
    }

    fn from_array([guest_addr, user_addr, size]: [u64; 3]) -> Slot {
        Slot { guest_addr, user_addr, size }
    }
}
