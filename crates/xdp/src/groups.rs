//! Copies of multicast and broadcast frames, which the host receives as well.
//!
//! # Model
//! XDP cannot deliver one frame twice. So the program passes a group frame to the host, and writes
//! a copy to a ring (`BPF_MAP_TYPE_RINGBUF`), which is read here. Two free-running byte counters
//! delimit it: the kernel's producer position and our consumer position. A record has a header of 8
//! bytes: its first 31 bits are the length, and its top bits mark a record that is not ready or
//! discarded. The program's data follows. The ring's memory is mapped twice in a row, so that every
//! record is contiguous.
//!
//! Follows the kernel's Documentation/bpf/ringbuf.rst.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::bpf::Map;
use crate::program::RECORD_HEADER;

/// The ring of copies. Frames are dropped from it while it is full; the host still receives them.
#[derive(Debug)]
pub struct Groups {
    map: Map,
    memory: Memory,
    /// Our position, not yet published.
    next: u64,
}

/// Not complete yet.
const BUSY: u32 = 1 << 31;
/// Discarded by the program.
const DISCARDED: u32 = 1 << 30;
/// Bytes of a record's header.
const HEADER: u64 = 8;

/// The mapped ring.
#[derive(Debug)]
struct Memory {
    /// One page, written by us.
    ours: *mut libc::c_void,
    /// One page and twice the data, written by the kernel and read by us.
    kernels: *mut libc::c_void,
    page: usize,
    data: u64,
}

// SAFETY: the pointers refer to mappings that this owns. Counters and headers are accessed as
// atomics; the kernel does not write a ready record before we release it, which needs exclusive
// access.
unsafe impl Send for Memory {}

impl Groups {
    /// Maps a ring of `len` bytes of data: a power of two, of whole pages.
    pub(crate) fn map(map: Map, len: u32) -> Result<Groups, Errno> {
        let page = rustix::param::page_size();
        let data = u64::from(len);
        let (fd, shared, hint) = (map.as_fd(), MapFlags::SHARED, std::ptr::null_mut());
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new mappings at addresses of the kernel's choice.
        let ours = unsafe { rustix::mm::mmap(hint, page, both, shared, fd, 0)? };
        let whole = page + 2 * data as usize;
        // SAFETY: as above.
        let kernels = unsafe {
            rustix::mm::mmap(hint, whole, ProtFlags::READ, shared, fd, page as u64).inspect_err(
                |_| {
                    // Just mapped, with no other user.
                    let _ = rustix::mm::munmap(ours, page);
                },
            )?
        };
        let memory = Memory { ours, kernels, page, data };
        let next = memory.read().load(Ordering::Relaxed);
        Ok(Groups { map, memory, next })
    }

    /// Passes the next copy to `take`; returns `false` if there is none. [`release`](Self::release)
    /// frees its space.
    #[inline]
    pub fn next(&mut self, take: impl FnOnce(&[u8])) -> bool {
        while self.next < self.memory.written().load(Ordering::Acquire) {
            let header = self.memory.header(self.next).load(Ordering::Acquire);
            let len = u64::from(header & !(BUSY | DISCARDED));
            if header & BUSY != 0 || len > self.memory.data - HEADER {
                return false; // not ready, or a kernel bug, which ends the copies
            }
            let at = self.next;
            self.next += (HEADER + len).next_multiple_of(8);
            if header & DISCARDED == 0 {
                take(self.memory.frame(at, len));
                return true;
            }
        }
        false
    }

    /// Frees the space of the copies taken.
    #[inline]
    pub fn release(&mut self) {
        self.memory.read().store(self.next, Ordering::Release);
        // The kernel wakes only a reader that has read everything, so it must see this store first.
        fence(Ordering::SeqCst);
    }

    /// Returns `true` if there may be a copy.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.next < self.memory.written().load(Ordering::Acquire)
    }
}

impl AsFd for Groups {
    /// Readable when there is a copy.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Memory {
    /// Our consumer position.
    fn read(&self) -> &AtomicU64 {
        // SAFETY: the first word of a mapped page, shared as an atomic.
        unsafe { &*self.ours.cast::<AtomicU64>() }
    }

    /// The kernel's producer position.
    fn written(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*self.kernels.cast::<AtomicU64>() }
    }

    /// Address of the byte at a free-running count: in the first half of the mapping, so that a
    /// record there is contiguous.
    fn place(&self, at: u64) -> *const u8 {
        let offset = self.page + (at & (self.data - 1)) as usize;
        self.kernels.cast::<u8>().wrapping_add(offset)
    }

    fn header(&self, at: u64) -> &AtomicU32 {
        // SAFETY: inside, since the position is; records begin at multiples of 8. The kernel writes
        // it as an atomic.
        unsafe { &*self.place(at).cast::<AtomicU32>() }
    }

    /// The frame in a record of `len` bytes, at most the ring's data less its header; cut to the
    /// record if its length is larger.
    fn frame(&self, at: u64, len: u64) -> &[u8] {
        let record = self.place(at + HEADER);
        // SAFETY: `len` bytes from there are inside, since the data is mapped twice; the record is
        // ready, so it is not written until `release`, which needs `&mut`.
        let record = unsafe { std::slice::from_raw_parts(record, len as usize) };
        let Some((head, frame)) = record.split_at_checked(RECORD_HEADER as usize) else {
            return &[];
        };
        let len = head.first_chunk().map_or(0, |len| u32::from_ne_bytes(*len));
        &frame[..frame.len().min(len as usize)]
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the ranges that `map` mapped; slices borrow this value.
        unsafe {
            let _ = rustix::mm::munmap(self.ours, self.page);
            let _ = rustix::mm::munmap(self.kernels, self.page + 2 * self.data as usize);
        }
    }
}
