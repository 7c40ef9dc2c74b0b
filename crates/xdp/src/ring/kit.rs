//! Rings in memory of our own, for tests.

use super::*;

/// Counters and entries in the kernel's layout: a cache line for each counter.
pub(crate) fn layout(size: u32) -> Layout {
    Layout { producer: 0, consumer: 64, flags: Some(128), entries: 192, size }
}

/// A ring in anonymous memory.
pub(crate) fn ring<T: Entry>(size: u32) -> RingMemory<T> {
    let layout = layout(size);
    let len = layout.len::<T>();
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice, of the length that is given.
    unsafe {
        let base = rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags);
        RingMemory::over(base.unwrap(), len, layout)
    }
}

/// A second handle on a ring: the other side.
pub(crate) fn other_end<T: Entry>(shared: &RingMemory<T>) -> RingMemory<T> {
    // An unused mapping of its own: each handle unmaps what it owns.
    let mut other = ring(shared.size());
    other.producer = shared.producer;
    other.consumer = shared.consumer;
    other.flags = shared.flags;
    other.entries = shared.entries;
    other
}
