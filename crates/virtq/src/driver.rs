//! The driver's side of a ring: for the lab's guests and for tests.

use std::sync::Arc;

use guestmem::{GuestMemory, SharedFile};

/// A piece of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Guest physical address.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// Whether the device writes here.
    pub writable: bool,
}

/// A buffer that the device gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// What [`DriverQueue::post`] returned for it.
    pub id: u16,
    /// Bytes that the device wrote.
    pub len: u32,
}

/// One region of memory for a guest of our own: guest and front-end addresses are both `base` plus
/// the file's offset.
pub fn guest_memory(file: &SharedFile, base: u64) -> Result<Arc<GuestMemory>, guestmem::MapError> {
    let size = file.mapping().size() as u64;
    let mapping = Arc::new(guestmem::Mapping::new(file.fd(), size, 0)?);
    let region = guestmem::Region { guest_addr: base, user_addr: base, mapping };
    Ok(Arc::new(GuestMemory::new(vec![region]).expect("one region overlaps nothing")))
}
