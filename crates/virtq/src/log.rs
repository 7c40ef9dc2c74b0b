//! What a queue writes to the guest's memory, said in the front-end's dirty log.
//!
//! # Model
//! A queue writes to four places: the buffers that it uses; the used ring, or the descriptors of a
//! packed ring; and the words by which it asks for kicks. Each is logged right after it was
//! written, before anything else is done: a log that is switched on, off or exchanged between two
//! bursts finds nothing half logged.
//!
//! Where something is in the guest's own addresses is found by the memory's regions. A front-end
//! may also say where it wants writes to the used ring logged; a packed ring's event area, that is.

use std::sync::Arc;

use guestmem::{Buffer, DirtyLog, GuestMemory, GuestSlice};

use crate::ring::Addresses;

/// What is to be logged of a queue's writes, and where.
#[derive(Clone, Debug)]
pub struct Log {
    /// The log.
    pub pages: Arc<DirtyLog>,
    /// Whether writes to buffers are logged, and not only those to the ring.
    pub buffers: bool,
    /// Guest address of the used ring, or of the device's event area, as the front-end has it.
    pub used: Option<u64>,
}

/// A log, and where a ring's parts are in it.
#[derive(Debug)]
pub(crate) struct WriteLog {
    pages: Arc<DirtyLog>,
    buffers: bool,
    /// The used ring, or the event area: where the memory has it, and where the front-end does.
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

    /// So many bytes of the used ring, or of the event area, were written.
    pub(crate) fn used(&self, offset: u64, len: u64) {
        for at in self.used.into_iter().flatten() {
            self.pages.mark(at.saturating_add(offset), len);
        }
    }

    /// So many bytes of the descriptors were written.
    pub(crate) fn descriptors(&self, offset: u64, len: u64) {
        if let Some(at) = self.descriptors {
            self.pages.mark(at.saturating_add(offset), len);
        }
    }

    /// The first `len` bytes of a buffer were written.
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
