//! Which rings a lane polls: a list that others change while it runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use port::Transmit;

use crate::port::Port;
use crate::queue_pair::AttachedRing;
use crate::soft_nic::SoftNic;

/// A transmit ring: a queue pair of a port.
#[derive(Clone, Debug)]
pub(crate) struct TxRing {
    pub(crate) nic: Arc<SoftNic>,
    pub(crate) port: Arc<Port>,
    pub(crate) pair: usize,
}

impl TxRing {
    /// Calls `act` with the transmit half, if one is attached.
    pub(crate) fn with(&self, act: impl FnOnce(&mut AttachedRing<dyn Transmit>)) {
        if let Some(mut half) = self.port.transmit(self.pair)
            && let Some(attached) = half.as_mut()
        {
            act(attached);
        }
    }

    /// Disables kicks.
    pub(crate) fn disable_notification(&self) {
        self.with(|attached| {
            if let Some(ring) = attached.ring.guest_ring() {
                ring.disable_notification();
            }
        });
    }

    /// Returns `true` if both are the same ring.
    pub(crate) fn is(&self, other: &TxRing) -> bool {
        Arc::ptr_eq(&self.port, &other.port) && self.pair == other.pair
    }
}

/// The rings of one lane. A lane checks its version once a round, at the cost of a load.
#[derive(Debug, Default)]
pub(crate) struct QueueList {
    version: AtomicU64,
    rings: Mutex<Vec<TxRing>>,
}

impl QueueList {
    fn lock(&self) -> MutexGuard<'_, Vec<TxRing>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Adds a ring, behind those of the same port.
    pub(crate) fn add(&self, ring: TxRing) {
        let mut rings = self.lock();
        let last = rings.iter().rposition(|other| Arc::ptr_eq(&other.port, &ring.port));
        let at = last.map_or(rings.len(), |last| last + 1);
        rings.insert(at, ring);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Removes all rings of a port.
    pub(crate) fn remove(&self, port: &Arc<Port>) {
        let mut rings = self.lock();
        rings.retain(|ring| !Arc::ptr_eq(&ring.port, port));
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Version of the list: each change makes another.
    #[inline(always)]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The rings, and a version that they have at least.
    pub(crate) fn get(&self) -> (u64, Vec<TxRing>) {
        let version = self.version();
        (version, self.lock().clone())
    }
}
