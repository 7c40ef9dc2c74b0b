//! Copies of frames to groups, which the host gets too.
//!
//! # Model
//! XDP cannot give one frame to two. So the program passes a frame to a group, and writes a copy to
//! a ring (`BPF_MAP_TYPE_RINGBUF`), which is read here. Two counters of bytes run free: the
//! kernel's says where the next record begins, ours what we have read. A record is a header of 8
//! bytes, whose first 31 bits are its length and whose top bits say that it is not ready, or not
//! meant; then what the program wrote. The ring's memory is mapped twice in a row, so that no
//! record is cut.
//!
//! Follows the kernel's Documentation/bpf/ringbuf.rst.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::bpf::Map;
use crate::program::RECORD_HEADER;

/// The ring of copies. Frames are dropped while it is full; the host has them all the same.
#[derive(Debug)]
pub struct Groups {
    map: Map,
    memory: Memory,
    /// What we have read, and not yet said so.
    next: u64,
}

/// Not written to the end yet.
const BUSY: u32 = 1 << 31;
/// Given up by the program.
const DISCARDED: u32 = 1 << 30;
/// Bytes of a record's own header.
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

// SAFETY: the pointers go to mappings that this owns. Counters and headers are accessed as atomics;
// a record that is ready is not written until we give it back, for which exclusive access is
// needed.
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
                    // Just mapped, and nobody else knows of it.
                    let _ = rustix::mm::munmap(ours, page);
                },
            )?
        };
        let memory = Memory { ours, kernels, page, data };
        let next = memory.read().load(Ordering::Relaxed);
        Ok(Groups { map, memory, next })
    }

    /// Hands the next copy to `take`; says whether there was one. [`release`](Self::release) gives
    /// the room back.
    #[inline]
    pub fn next(&mut self, take: impl FnOnce(&[u8])) -> bool {
        while self.next < self.memory.written().load(Ordering::Acquire) {
            let header = self.memory.header(self.next).load(Ordering::Acquire);
            let len = u64::from(header & !(BUSY | DISCARDED));
            if header & BUSY != 0 || len > self.memory.data - HEADER {
                return false; // not yet, or a bug of the kernel's, which ends the copies
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

    /// Gives the kernel the room of what was taken.
    #[inline]
    pub fn release(&mut self) {
        self.memory.read().store(self.next, Ordering::Release);
        // The kernel wakes only who has read everything: it sees this before we look again.
        fence(Ordering::SeqCst);
    }

    /// Whether a copy may be there.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        self.next < self.memory.written().load(Ordering::Acquire)
    }
}

impl AsFd for Groups {
    /// Readable when a copy is there.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Memory {
    /// What we have read.
    fn read(&self) -> &AtomicU64 {
        // SAFETY: the first word of a mapped page, shared as an atomic.
        unsafe { &*self.ours.cast::<AtomicU64>() }
    }

    /// What the kernel has begun to write.
    fn written(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*self.kernels.cast::<AtomicU64>() }
    }

    /// The byte at a free-running count: never in the mapping's last half but for what begins in
    /// the first.
    fn place(&self, at: u64) -> *const u8 {
        let offset = self.page + (at & (self.data - 1)) as usize;
        self.kernels.cast::<u8>().wrapping_add(offset)
    }

    fn header(&self, at: u64) -> &AtomicU32 {
        // SAFETY: inside, for the place is; records begin at multiples of 8. The kernel writes it
        // as an atomic.
        unsafe { &*self.place(at).cast::<AtomicU32>() }
    }

    /// The frame in a record of `len` bytes, which is at most the ring's data less its header; cut
    /// to the record if it says that it is longer.
    fn frame(&self, at: u64, len: u64) -> &[u8] {
        let record = self.place(at + HEADER);
        // SAFETY: `len` bytes from there are inside, for the data is mapped twice; the record is
        // ready, so nobody writes to it until `release`, which needs `&mut`.
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
        // SAFETY: exactly what `map` mapped; whatever was lent borrowed this.
        unsafe {
            let _ = rustix::mm::munmap(self.ours, self.page);
            let _ = rustix::mm::munmap(self.kernels, self.page + 2 * self.data as usize);
        }
    }
}
