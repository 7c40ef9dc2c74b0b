//! The four rings that a socket shares with the kernel.
//!
//! # Model
//! A ring has one producer and one consumer, each with a free-running 32-bit counter in the shared
//! memory. Entries between the two are filled. The producer writes entries and then publishes them
//! by one store (release) of its counter. The consumer loads the counter (acquire), reads entries,
//! and then frees them in the same way. Both work in batches here: counters are loaded only when
//! the last value seen does not suffice, and stored once a batch.
//!
//! We are the producer of the fill and the transmit ring, and the consumer of the others. An
//! impossible counter (more filled than the ring has) is clamped: a kernel bug may then garble a
//! frame, but not this process's memory.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::xdp::XdpRingOffset;

/// A frame, or a fragment, in the receive and the transmit ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Address in the memory; with unaligned chunks the upper 16 bits are an offset.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// [`Descriptor::CONTINUES`] or nothing.
    pub options: u32,
}

impl Descriptor {
    /// The frame continues in the next descriptor (`XDP_PKT_CONTD`).
    pub const CONTINUES: u32 = 1;

    /// Returns `true` if the frame continues in the next descriptor.
    pub fn continues(&self) -> bool {
        self.options & Descriptor::CONTINUES != 0
    }
}

/// Type of a ring's entries: plain bytes, with every pattern valid.
pub trait Entry: Copy + Send + sealed::Sealed {}
impl Entry for u64 {}
impl Entry for Descriptor {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for super::Descriptor {}
}

/// Flag of a ring: the kernel waits for a system call (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;

/// Largest ring, in entries: allocated without effort, and large enough.
pub const RING_MAX: u32 = 32 * 1024;

/// A ring's shared memory.
#[derive(Debug)]
pub(crate) struct RingMemory<T> {
    base: *mut libc::c_void,
    len: usize,
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    /// Before Linux 5.4 there are no flags.
    flags: Option<*const AtomicU32>,
    entries: *mut T,
    mask: u32,
    of: PhantomData<T>,
}

// SAFETY: the pointers refer to a mapping that this owns. Counters and flags are atomics; entries
// are accessed only by the one handle that owns this.
unsafe impl<T: Entry> Send for RingMemory<T> {}

impl<T> Drop for RingMemory<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped; nothing else points into it.
        let _ = unsafe { rustix::mm::munmap(self.base, self.len) };
    }
}

/// Offsets of a ring's parts from the start of its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    producer: usize,
    consumer: usize,
    flags: Option<usize>,
    entries: usize,
    size: u32,
}

impl Layout {
    fn of(offset: XdpRingOffset, size: u32) -> Layout {
        Layout {
            producer: offset.producer as usize,
            consumer: offset.consumer as usize,
            flags: offset.flags.map(|flags| flags as usize),
            entries: offset.desc as usize,
            size,
        }
    }

    /// Size in bytes with entries of `T`.
    fn len<T>(&self) -> usize {
        self.entries + self.size as usize * size_of::<T>()
    }

    /// Returns `true` if all parts are aligned and before the entries.
    fn is_sound<T>(&self) -> bool {
        let counter = |at: usize| at.is_multiple_of(align_of::<AtomicU32>()) && at < self.entries;
        self.size.is_power_of_two()
            && counter(self.producer)
            && counter(self.consumer)
            && self.flags.is_none_or(counter)
            && self.entries.is_multiple_of(align_of::<T>())
    }
}

impl<T: Entry> RingMemory<T> {
    /// Maps the ring at offset `place` of a socket.
    fn map(socket: BorrowedFd<'_>, place: u64, layout: Layout) -> Result<RingMemory<T>, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let len = layout.len::<T>();
        let hint = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(hint, len, protection, flags, socket, place)? };
        // SAFETY: just mapped, of this length, with no other user.
        Ok(unsafe { RingMemory::over(base, len, layout) })
    }

    /// # Safety
    /// `base` must be a mapping of `len` bytes, page aligned, which belongs to the result.
    unsafe fn over(base: *mut libc::c_void, len: usize, layout: Layout) -> RingMemory<T> {
        assert!(layout.is_sound::<T>() && len >= layout.len::<T>(), "{layout:?}");
        let counter = |at: usize| base.wrapping_byte_add(at).cast_const().cast();
        RingMemory {
            base,
            len,
            producer: counter(layout.producer),
            consumer: counter(layout.consumer),
            flags: layout.flags.map(counter),
            entries: base.wrapping_byte_add(layout.entries).cast(),
            mask: layout.size - 1,
            of: PhantomData,
        }
    }

    fn size(&self) -> u32 {
        self.mask + 1
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping and aligned (checked by `over`), shared as an atomic.
        unsafe { &*self.producer }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &*self.consumer }
    }

    /// Returns `true` if the kernel needs a system call.
    #[inline]
    fn needs_wakeup(&self) -> bool {
        let Some(flags) = self.flags else { return true };
        // SAFETY: inside the mapping and aligned, shared as an atomic.
        unsafe { (*flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0 }
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> *mut T {
        self.entries.wrapping_add((index & self.mask) as usize)
    }
}

/// Our side of a ring that the kernel consumes: the fill ring, the transmit ring.
#[derive(Debug)]
pub struct Producer<T> {
    shared: RingMemory<T>,
    /// Next entry to write.
    next: u32,
    /// Entries before this may be written, as of the last counter seen.
    limit: u32,
}

impl<T: Entry> Producer<T> {
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        place: u64,
        offset: XdpRingOffset,
        size: u32,
    ) -> Result<Producer<T>, Errno> {
        RingMemory::map(socket, place, Layout::of(offset, size)).map(Producer::over)
    }

    pub(crate) fn over(shared: RingMemory<T>) -> Producer<T> {
        let next = shared.producer().load(Ordering::Relaxed);
        Producer { shared, next, limit: next }
    }

    /// Number of entries, up to `wanted`, that may be [`put`](Self::put) now.
    #[inline]
    pub fn reserve(&mut self, wanted: u32) -> u32 {
        let free = self.limit.wrapping_sub(self.next);
        if free >= wanted {
            return wanted;
        }
        let filled = self.next.wrapping_sub(self.shared.consumer().load(Ordering::Acquire));
        let free = self.shared.size() - filled.min(self.shared.size());
        self.limit = self.next.wrapping_add(free);
        free.min(wanted)
    }

    /// Writes one entry; returns `false` if the ring is full. The kernel sees it after
    /// [`submit`](Self::submit).
    #[inline]
    pub fn put(&mut self, entry: T) -> bool {
        if self.reserve(1) == 0 {
            return false;
        }
        // SAFETY: the index is masked, so inside the mapping; the kernel reads none of the entries
        // between the two counters' views.
        unsafe { self.shared.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Publishes the entries put.
    #[inline]
    pub fn submit(&mut self) {
        self.shared.producer().store(self.next, Ordering::Release);
        // The kernel must see this before we test its flag; else each side could expect the other
        // to continue.
        fence(Ordering::SeqCst);
    }

    /// Returns `true` if the kernel needs a system call to continue.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }

    /// Published entries that the kernel has not consumed.
    pub fn pending(&self) -> u32 {
        let shown = self.shared.producer().load(Ordering::Relaxed);
        shown.wrapping_sub(self.shared.consumer().load(Ordering::Acquire)).min(self.size())
    }

    /// Size in entries.
    pub fn size(&self) -> u32 {
        self.shared.size()
    }
}

/// Our side of a ring that the kernel fills: the receive ring, the completion ring.
#[derive(Debug)]
pub struct Consumer<T> {
    shared: RingMemory<T>,
    /// Next entry to read.
    next: u32,
    /// Entries before this may be read, as of the last counter seen.
    limit: u32,
}

impl<T: Entry> Consumer<T> {
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        place: u64,
        offset: XdpRingOffset,
        size: u32,
    ) -> Result<Consumer<T>, Errno> {
        RingMemory::map(socket, place, Layout::of(offset, size)).map(Consumer::over)
    }

    pub(crate) fn over(shared: RingMemory<T>) -> Consumer<T> {
        let next = shared.consumer().load(Ordering::Relaxed);
        Consumer { shared, next, limit: next }
    }

    /// Number of entries, up to `wanted`, that may be [taken](Self::take) now.
    #[inline]
    pub fn peek(&mut self, wanted: u32) -> u32 {
        let ready = self.limit.wrapping_sub(self.next);
        if ready >= wanted {
            return wanted;
        }
        let filled = self.shared.producer().load(Ordering::Acquire).wrapping_sub(self.next);
        let ready = filled.min(self.shared.size());
        self.limit = self.next.wrapping_add(ready);
        ready.min(wanted)
    }

    /// Reads the next entry. The kernel does not reuse it before [`release`](Self::release).
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        if self.peek(1) == 0 {
            return None;
        }
        // SAFETY: the index is masked, so inside the mapping; every pattern is valid.
        let entry = unsafe { self.shared.entry(self.next).read_volatile() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Frees the entries taken.
    #[inline]
    pub fn release(&mut self) {
        self.shared.consumer().store(self.next, Ordering::Release);
    }

    /// Size in entries.
    pub fn size(&self) -> u32 {
        self.shared.size()
    }
}

#[cfg(any(test, feature = "kit"))]
pub(crate) mod kit;
#[cfg(test)]
mod tests;
