//! A soft NIC: its ports, and the snapshot that decides where their frames go.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::capture::CapturePoint;
use crate::port::Port;
use crate::snapshot::ForwardingSnapshot;

/// A lane's hold of the current snapshot: it is read again only after a change.
pub(crate) type LaneSnapshot =
    arc_swap::Cache<Arc<ArcSwap<ForwardingSnapshot>>, Arc<ForwardingSnapshot>>;

/// One soft NIC.
pub struct SoftNic {
    /// NIC name.
    pub name: String,
    snapshot: Arc<ArcSwap<ForwardingSnapshot>>,
    /// Replaced snapshots that a lane may still hold; freed here, since a lane frees no memory.
    replaced: Mutex<Vec<Arc<ForwardingSnapshot>>>,
    /// Captures, which each snapshot has.
    captures: Mutex<Vec<Arc<CapturePoint>>>,
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
        let snapshot = Arc::new(ArcSwap::from_pointee(ForwardingSnapshot::empty()));
        let (replaced, captures, ports) = Default::default();
        SoftNic { name: name.to_owned(), snapshot, replaced, captures, ports }
    }

    /// The current snapshot.
    #[inline]
    pub fn snapshot(&self) -> arc_swap::Guard<Arc<ForwardingSnapshot>> {
        self.snapshot.load()
    }

    /// Replaces the snapshot: a burst uses the old or the new one, never a mixture. Frames posted
    /// after this returns are forwarded by the new one.
    pub fn set_snapshot(&self, snapshot: impl Into<Arc<ForwardingSnapshot>>) {
        let captures = self.captures.lock().unwrap_or_else(PoisonError::into_inner);
        let mut snapshot = snapshot.into();
        if !captures.is_empty() || !snapshot.captures.is_empty() {
            snapshot = Arc::new(snapshot.with_captures(&captures));
        }
        self.swap(snapshot);
    }

    /// Adds a capture to the snapshot.
    pub(crate) fn add_capture(&self, point: &Arc<CapturePoint>) {
        let mut captures = self.captures.lock().unwrap_or_else(PoisonError::into_inner);
        captures.push(point.clone());
        self.swap(Arc::new(self.snapshot().with_captures(&captures)));
    }

    /// Removes a capture, if it is there.
    pub(crate) fn remove_capture(&self, point: &Arc<CapturePoint>) {
        let mut captures = self.captures.lock().unwrap_or_else(PoisonError::into_inner);
        let before = captures.len();
        captures.retain(|one| !Arc::ptr_eq(one, point));
        if captures.len() < before {
            self.swap(Arc::new(self.snapshot().with_captures(&captures)));
        }
    }

    fn swap(&self, snapshot: Arc<ForwardingSnapshot>) {
        let before = self.snapshot.swap(snapshot);
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        replaced.retain(|snapshot| Arc::strong_count(snapshot) > 1);
        replaced.push(before);
    }

    /// The current snapshot, for a lane.
    pub(crate) fn lane_snapshot(&self) -> LaneSnapshot {
        LaneSnapshot::new(self.snapshot.clone())
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
