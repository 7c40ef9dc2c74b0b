//! Dirty log of a queue: its writes to the guest's memory, marked in the front-end's log.
//!
//! # Model
//! A queue writes to the buffers that it uses, to the used ring or the descriptors of a packed
//! ring, and to its event suppression. Each write is logged right after it was made, before any
//! other step. So a log can be enabled, disabled or replaced between two bursts.
//!
//! Guest addresses are found by the memory's regions. A front-end may name another address for
//! writes to the used ring, or to the event area of a packed ring.

use std::sync::Arc;

use guestmem::{Buffer, DirtyLog, GuestMemory, GuestSlice};

use crate::ring::Addresses;

/// Dirty-log settings of a queue.
#[derive(Clone, Debug)]
pub struct Log {
    /// The log.
    pub pages: Arc<DirtyLog>,
    /// Writes to buffers are logged too, not only those to the ring.
    pub buffers: bool,
    /// Guest address of the used ring, or of the device's event area, as the front-end gives it.
    pub used: Option<u64>,
}

/// A dirty log, and the addresses of a ring's parts in it.
#[derive(Debug)]
pub(crate) struct WriteLog {
    pages: Arc<DirtyLog>,
    buffers: bool,
    /// Addresses of the used ring or event area: by the memory's regions, and as the front-end
    /// gives it.
    used: [Option<u64>; 2],
    /// The descriptors, which the device of a packed ring writes to.
    descriptors: Option<u64>,
}

impl WriteLog {
    pub(crate) fn new(log: Log, memory: &GuestMemory, addresses: &Addresses) -> WriteLog {
        let Log { pages, buffers, used } = log;
        let find = |user_addr| memory.guest_addr_of(&memory.user_slice(user_addr, 1)?);
        let found = find(addresses.used);
        let used = [found, used.filter(|_| used != found)];
        WriteLog { pages, buffers, used, descriptors: find(addresses.desc) }
    }

    /// Logs a write of `len` bytes to the used ring or the event area.
    pub(crate) fn used(&self, offset: u64, len: u64) {
        for at in self.used.into_iter().flatten() {
            self.pages.mark(at.saturating_add(offset), len);
        }
    }

    /// Logs a write of `len` bytes to the descriptors.
    pub(crate) fn descriptors(&self, offset: u64, len: u64) {
        if let Some(at) = self.descriptors {
            self.pages.mark(at.saturating_add(offset), len);
        }
    }

    /// Logs a write to the first `len` bytes of a buffer.
    pub(crate) fn buffer(
        &self,
        memory: &GuestMemory,
        (buffer, arena): (&Buffer<'_>, &[GuestSlice<'_>]),
        len: u32,
    ) {
        if !self.buffers {
            return;
        }
        let mut left = len;
        for slice in buffer.slices(arena) {
            if left == 0 {
                break;
            }
            self.pages.mark_slice(memory, slice, left);
            left = left.saturating_sub(slice.len());
        }
    }
}
