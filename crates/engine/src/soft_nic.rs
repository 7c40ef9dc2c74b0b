//! A soft NIC: its ports, and the snapshot that decides where their frames go.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::port::Port;
use crate::snapshot::ForwardingSnapshot;

/// One soft NIC.
pub struct SoftNic {
    /// NIC name.
    pub name: String,
    snapshot: ArcSwap<ForwardingSnapshot>,
    /// Number of the last snapshot set, for lanes that look for a change each round.
    number: AtomicU64,
    /// By port number; `None` for a free number.
    ports: Mutex<Vec<Option<Arc<Port>>>>,
}

impl fmt::Debug for SoftNic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftNic").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SoftNic {
    /// A NIC with no port plugged in.
    pub(crate) fn new(name: &str) -> SoftNic {
        let snapshot = ArcSwap::from_pointee(ForwardingSnapshot::empty());
        let number = AtomicU64::new(snapshot.load().number());
        SoftNic { name: name.to_owned(), snapshot, number, ports: Mutex::default() }
    }

    /// The current snapshot.
    #[inline]
    pub fn snapshot(&self) -> arc_swap::Guard<Arc<ForwardingSnapshot>> {
        self.snapshot.load()
    }

    /// Replaces the snapshot: a burst uses the old or the new one, never a mixture. Frames posted
    /// after this returns are forwarded by the new one.
    pub fn set_snapshot(&self, snapshot: impl Into<Arc<ForwardingSnapshot>>) {
        let snapshot = snapshot.into();
        let number = snapshot.number();
        let _in_turn = self.lock(); // the number is that of the snapshot, also with two callers
        self.snapshot.store(snapshot);
        self.number.store(number, Ordering::Release);
    }

    /// Number of the last snapshot set: that one is in use, or a later one.
    #[inline]
    pub(crate) fn snapshot_number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Waits until no lane uses a replaced snapshot (grace period): a burst is forwarded under the
    /// lock of its transmit ring.
    pub fn wait_grace_period(&self) {
        for port in self.ports() {
            (0..port.pairs()).for_each(|pair| drop(port.lock_transmit(pair)));
        }
    }

    /// All ports.
    pub fn ports(&self) -> Vec<Arc<Port>> {
        self.lock().iter().flatten().cloned().collect()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Option<Arc<Port>>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
