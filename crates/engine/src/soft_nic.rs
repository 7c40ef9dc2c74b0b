//! A soft NIC: its ports, and the snapshot that decides where their frames go.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::port::Port;
use crate::snapshot::ForwardingSnapshot;

/// One soft NIC.
pub struct SoftNic {
    /// NIC name.
    pub name: String,
    snapshot: ArcSwap<ForwardingSnapshot>,
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
        SoftNic { name: name.to_owned(), snapshot, ports: Mutex::default() }
    }

    /// The current snapshot.
    #[inline]
    pub fn snapshot(&self) -> arc_swap::Guard<Arc<ForwardingSnapshot>> {
        self.snapshot.load()
    }

    /// Replaces the snapshot: a burst uses the old or the new one, never a mixture. Frames posted
    /// after this returns are forwarded by the new one.
    pub fn set_snapshot(&self, snapshot: impl Into<Arc<ForwardingSnapshot>>) {
        self.snapshot.store(snapshot.into());
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
