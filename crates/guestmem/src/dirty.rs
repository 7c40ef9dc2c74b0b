//! The dirty log: pages of a guest that were written, for a front-end that migrates the guest.
//!
//! # Model
//! The front-end shares a bitmap file, one bit for each [`PAGE`] bytes of guest-physical addresses,
//! from address 0 on. Page `n` is bit `n % 8` of byte `n / 8`. A writer sets the page's bit AFTER
//! the write; the front-end clears bits and then sends the pages.
//!
//! # Why nothing is missed
//! An atomic read-modify-write with release order sets the bit, even if it is set already. If the
//! front-end cleared the bit before, it finds it set again on its next pass; if after, it sees the
//! write. Testing the bit first would be cheaper and wrong: a processor may read the bit before its
//! write is visible to others.
//!
//! # Limits
//! A page whose bit is outside the file is not logged, but counted. Front-ends shrink a log only
//! after they removed the memory that it covered.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::MapError;
use crate::mapping::Mapping;
use crate::memory::GuestMemory;
use crate::slice::GuestSlice;

/// Bytes of memory that one bit stands for, on every machine (vhost-user.rst, "Migration":
/// `VHOST_LOG_PAGE`).
pub const PAGE: u64 = 4096;

/// A front-end's dirty log, mapped.
#[derive(Debug)]
pub struct DirtyLog {
    bits: Mapping,
    outside: AtomicU64,
}

impl DirtyLog {
    /// Maps `size` bytes of `fd` from `offset`: one bit for each page of the guest.
    ///
    /// # Errors
    /// As [`Mapping::new`].
    pub fn new(fd: BorrowedFd<'_>, size: u64, offset: u64) -> Result<DirtyLog, MapError> {
        Mapping::new(fd, size, offset).map(DirtyLog::of)
    }

    /// A log in memory that is already mapped.
    pub fn of(bits: Mapping) -> DirtyLog {
        DirtyLog { bits, outside: AtomicU64::new(0) }
    }

    /// Logs a write of `len` bytes at this guest-physical address. Call it after the write.
    pub fn mark(&self, guest_addr: u64, len: u64) {
        if len == 0 {
            return;
        }
        let last = guest_addr.saturating_add(len - 1) / PAGE;
        for page in guest_addr / PAGE..=last {
            let bits = self.bits.slice(page / 8, 1).and_then(|byte| byte.atomic_u8(0));
            match bits {
                Some(bits) => {
                    bits.fetch_or(1 << (page % 8), Ordering::Release);
                }
                None => {
                    self.outside.fetch_add(1, Ordering::Relaxed);
                    return; // nor is any page behind it inside
                }
            }
        }
    }

    /// Logs a write of the first `len` bytes of a slice of `memory`. Call it after the write.
    pub fn mark_slice(&self, memory: &GuestMemory, slice: GuestSlice<'_>, len: u32) {
        let written = slice.first(len);
        match memory.guest_addr_of(&written) {
            Some(guest_addr) => self.mark(guest_addr, written.len().into()),
            // The slice is of another memory: a bug in the caller.
            None => debug_assert!(false, "a slice of no region was logged"),
        }
    }

    /// Number of writes to pages outside the log.
    pub fn outside(&self) -> u64 {
        self.outside.load(Ordering::Relaxed)
    }

    /// Bytes of the log.
    pub fn size(&self) -> usize {
        self.bits.size()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::sync::Arc;

    use super::*;
    use crate::{Pages, Region, SharedFile};

    /// A log of `size` bytes, and the file behind it.
    fn log(size: u64) -> (SharedFile, DirtyLog) {
        let file = SharedFile::create("log", size, Pages::Ordinary).unwrap();
        let log = DirtyLog::new(file.fd(), size, 0).unwrap();
        (file, log)
    }

    fn pages(file: &SharedFile) -> Vec<u64> {
        let mut bits = vec![0; file.mapping().size()];
        file.mapping().slice(0, bits.len()).unwrap().read_bytes(&mut bits);
        let set = |page: &u64| bits[(page / 8) as usize] >> (page % 8) & 1 == 1;
        (0..bits.len() as u64 * 8).filter(set).collect()
    }

    proptest! {
        #[test]
        fn exactly_the_pages_of_a_range_are_marked(at in 0u64..60 * PAGE, len in 0u64..5 * PAGE) {
            let (file, log) = log(16);
            log.mark(at, len);
            let touched = |page: &u64| page * PAGE < at + len && at < (page + 1) * PAGE && len > 0;
            prop_assert_eq!(pages(&file), (0..128).filter(touched).collect::<Vec<_>>());
            prop_assert_eq!(log.outside(), 0);
        }
    }

    #[test]
    fn what_is_outside_is_counted_and_nothing_else_touched() {
        let (file, log) = log(1);
        log.mark(7 * PAGE, 2 * PAGE);
        log.mark(8 * PAGE, 1);
        log.mark(u64::MAX, 1);
        log.mark(u64::MAX - 10, u64::MAX);
        assert_eq!((pages(&file), log.outside()), (vec![7], 4));
    }

    /// CVE-2020-10722 (DPDK): size and offset of the log were added without a check.
    #[test]
    fn log_offset_overflow() {
        let file = SharedFile::create("log", 4096, Pages::Ordinary).unwrap();
        for (size, offset) in [
            (4096, u64::MAX),
            (4096, u64::MAX - 4095),
            (u64::MAX, 1),
            (u64::MAX, u64::MAX),
            (1 << 63, 1 << 63),
            (1, 4096),
        ] {
            assert!(DirtyLog::new(file.fd(), size, offset).is_err(), "{size:#x} at {offset:#x}");
        }
        let log = DirtyLog::new(file.fd(), 4096, 0).unwrap();
        log.mark(u64::MAX, u64::MAX);
        assert_eq!((pages(&file), log.outside()), (vec![], 1));
    }

    #[test]
    fn a_log_may_lie_anywhere_in_its_file() {
        let file = SharedFile::create("log", 8192, Pages::Ordinary).unwrap();
        let log = DirtyLog::new(file.fd(), 3, 4099).unwrap();
        log.mark(9 * PAGE, 1);
        assert_eq!(file.mapping().slice(4099, 3).unwrap().read::<3>(0), [0, 2, 0]);
        assert_eq!(pages(&file), [4100 * 8 + 1]);
    }

    #[test]
    fn a_slice_is_marked_where_the_guest_sees_it() {
        let (file, log) = log(64);
        let region = |guest_addr, pages: u64| {
            let file = SharedFile::create("ram", pages * PAGE, Pages::Ordinary).unwrap();
            let mapping = Arc::new(Mapping::new(file.fd(), pages * PAGE, 0).unwrap());
            Region { guest_addr, user_addr: 0x7000_0000_0000 + guest_addr, mapping }
        };
        let regions = vec![region(0, 2), region(100 * PAGE, 4)];
        let memory = GuestMemory::new(regions).unwrap();
        let slice = memory.slice(101 * PAGE - 10, 2 * PAGE as u32).unwrap();
        log.mark_slice(&memory, slice, 10);
        assert_eq!(pages(&file), [100]);
        log.mark_slice(&memory, slice, 11);
        assert_eq!(pages(&file), [100, 101]);
        log.mark_slice(&memory, slice, u32::MAX);
        log.mark_slice(&memory, memory.slice(0, 0).unwrap(), 5);
        assert_eq!(pages(&file), [100, 101, 102]);
    }

    #[test]
    fn bits_set_by_many_at_once_all_stay() {
        let (file, log) = log(1);
        std::thread::scope(|scope| {
            for page in 0..8 {
                let log = &log;
                scope.spawn(move || (0..1000).for_each(|_| log.mark(page * PAGE, PAGE)));
            }
        });
        assert_eq!(pages(&file), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
