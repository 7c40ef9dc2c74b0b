//! The truncation guard: a front-end that shrinks its memory must not kill the daemon.
//!
//! Access to a page of a shared mapping past the end of its file raises SIGBUS. The handler looks
//! the address up in a fixed table of the live mappings, maps zero pages over the whole mapping,
//! marks it truncated, and returns; the access is repeated and succeeds. A lane notices by one load
//! a burst ([`truncations`]) and stops the rings that use the memory.
//!
//! The zero pages come from one sparse file, the guard file. Each mapping uses the offset equal to
//! its own address, so no mapping sees data of another. They are freed with the mapping. Private
//! memory is no alternative: the kernel counts a private writable mapping in full against its
//! limits (`vm.overcommit_memory=2`, RLIMIT_DATA) and may refuse it. Of a shared mapping it counts
//! only the pages that are touched.
//!
//! A SIGBUS at any other address is a bug or a hardware fault, and ends the process as if there
//! were no handler.
//!
//! The handler is async-signal-safe: it uses only atomics and raw system calls.

use std::os::fd::{BorrowedFd, IntoRawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;

/// Mappings that a session may hold: 64 memory regions, a dirty log, the front-end's in-flight
/// records, ours, and frames parked during a migration. Twice, since replaced memory stays mapped
/// until the session's thread has unmapped it.
pub const SESSION_MAPPINGS_MAX: usize = 2 * (crate::REGIONS_MAX + 4);

/// Largest number of mappings in one process: sessions of 16 NICs with 255 VFs each, and 1024
/// others.
pub const MAPPINGS_MAX: usize = 16 * 255 * SESSION_MAPPINGS_MAX + 1024;

/// Size of the sparse guard file in bytes: above every user-space address.
const GUARD_FILE: u64 = 1 << 56;

/// One guarded mapping. `start` is zero while the slot is free, or is being filled.
struct Slot {
    /// Number of mappings that used the slot. The handler may read the slot during a change, and
    /// must not combine one mapping's address with another's size.
    generation: AtomicUsize,
    start: AtomicUsize,
    size: AtomicUsize,
    truncated: AtomicBool,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            generation: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            truncated: AtomicBool::new(false),
        }
    }

    /// Fills a free slot, which belongs to the caller.
    fn enter(&self, start: usize, size: usize) {
        // Release: a reader of this generation reads no earlier `start`.
        self.generation.fetch_add(1, Ordering::Release);
        // A reader of the stores below reads no earlier generation.
        fence(Ordering::Release);
        self.truncated.store(false, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
        self.start.store(start, Ordering::Release);
    }

    fn leave(&self) {
        self.start.store(0, Ordering::Release);
    }

    /// Address and size of the mapping; `None` while the slot changes hands. A mapping that is
    /// being accessed keeps its slot: the access borrows it.
    fn get(&self) -> Option<(usize, usize)> {
        let generation = self.generation.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        let size = self.size.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let same = self.generation.load(Ordering::Relaxed) == generation;
        (same && start > 0).then_some((start, size))
    }
}

static SLOTS: [Slot; MAPPINGS_MAX] = [const { Slot::new() }; MAPPINGS_MAX];

/// Slots from this index on were never used; the handler skips them.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
/// Free slots below that index.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static TRUNCATIONS: AtomicU32 = AtomicU32::new(0);
/// The guard file, open from the first mapping until the process ends.
static FILE: AtomicI32 = AtomicI32::new(-1);
static INSTALL: Mutex<()> = Mutex::new(());

/// Counts truncated mappings of this process. A lane compares it with the last value it saw, and
/// checks its own memory only when the count changed.
#[inline]
pub fn truncations() -> u32 {
    // Acquire: a reader of the count also sees the mapping's flag, since it will not check again.
    TRUNCATIONS.load(Ordering::Acquire)
}

/// Number of live mappings of this process.
pub fn mappings() -> usize {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    SLOTS_USED.load(Ordering::Acquire) - free.len()
}

/// Takes a free slot; `None` when [`MAPPINGS_MAX`] are in use.
fn take_slot() -> Option<usize> {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(slot) = free.pop() {
        return Some(slot);
    }
    let slot = SLOTS_USED.load(Ordering::Relaxed);
    (slot < MAPPINGS_MAX).then(|| SLOTS_USED.store(slot + 1, Ordering::Release))?;
    Some(slot)
}

/// A slot in the table, for the life of the mapping.
#[derive(Debug)]
pub(crate) struct Guarded {
    slot: usize,
}

impl Guarded {
    /// Enters `size` bytes from `start`; `None` when [`MAPPINGS_MAX`] mappings live already.
    ///
    /// # Errors
    /// There is no guard file.
    pub(crate) fn enter(start: usize, size: usize) -> Result<Option<Guarded>, Errno> {
        install()?;
        let Some(slot) = take_slot() else { return Ok(None) };
        SLOTS[slot].enter(start, size);
        Ok(Some(Guarded { slot }))
    }

    pub(crate) fn is_truncated(&self) -> bool {
        SLOTS[self.slot].truncated.load(Ordering::Relaxed)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let slot = &SLOTS[self.slot];
        if let (true, Some((start, size))) = (self.is_truncated(), slot.get()) {
            // SAFETY: the file is open until the process ends.
            let file = unsafe { BorrowedFd::borrow_raw(FILE.load(Ordering::Acquire)) };
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // The next mapping at this address must not see data of this one.
            let freed = rustix::fs::fallocate(file, hole, start as u64, size as u64);
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
        slot.leave();
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.slot);
    }
}

/// Opens the guard file and installs the handler, once in a process.
fn install() -> Result<(), Errno> {
    if FILE.load(Ordering::Acquire) >= 0 {
        return Ok(());
    }
    let _one = INSTALL.lock().unwrap_or_else(PoisonError::into_inner);
    if FILE.load(Ordering::Acquire) >= 0 {
        return Ok(());
    }
    let file = rustix::fs::memfd_create("shunt-guard", MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, GUARD_FILE)?;
    FILE.store(file.into_raw_fd(), Ordering::Release);
    // SAFETY: `action` is a valid sigaction whose handler has the SA_SIGINFO signature, and the
    // handler only does what is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, null_mut());
    }
    Ok(())
}

extern "C" fn on_sigbus(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let address = unsafe { (*info).si_addr() } as usize;
    let used = SLOTS_USED.load(Ordering::Acquire);
    let found = SLOTS[..used].iter().find_map(|slot| {
        let (start, size) = slot.get()?;
        (address.wrapping_sub(start) < size).then_some((slot, start, size))
    });
    let Some((slot, start, size)) = found else { return die() };
    slot.truncated.store(true, Ordering::Relaxed);
    // Release: a reader of the count also sees the flag.
    TRUNCATIONS.fetch_add(1, Ordering::Release);
    // SAFETY: the range is exactly one live mapping of ours; slices into it keep valid memory under
    // them, now zeros. errno is the interrupted thread's and is restored.
    unsafe {
        let errno = *libc::__errno_location();
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let file = FILE.load(Ordering::Relaxed);
        let (at, offset) = (start as *mut libc::c_void, start as libc::off_t);
        let mapped = libc::mmap(at, size, protection, flags, file, offset);
        // Frames may be written there, and must not appear in core dumps.
        libc::madvise(at, size, libc::MADV_DONTDUMP);
        *libc::__errno_location() = errno;
        if mapped == libc::MAP_FAILED {
            die();
        }
    }
}

/// Restores the default action: the faulting access is repeated and ends the process.
fn die() {
    // SAFETY: resetting a signal's action is async-signal-safe.
    unsafe {
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn no_address_is_taken_with_the_size_of_another_mapping() {
        let slot = Slot::new();
        let ended = AtomicBool::new(false);
        let size_of = |start| start * 16;
        std::thread::scope(|scope| {
            let reader = || {
                let mut seen = 0u32;
                while !ended.load(Ordering::Relaxed) || seen == 0 {
                    if let Some((start, size)) = slot.get() {
                        assert_eq!(size, size_of(start));
                        seen += 1;
                    }
                }
            };
            scope.spawn(reader);
            scope.spawn(reader);
            // Two addresses in turn, as the kernel reuses the one freed last.
            for i in 0..2_000_000 {
                let start = 4096 << (i % 2);
                slot.enter(start, size_of(start));
                slot.leave();
            }
            slot.enter(4096, size_of(4096));
            ended.store(true, Ordering::Relaxed);
        });
    }
}
