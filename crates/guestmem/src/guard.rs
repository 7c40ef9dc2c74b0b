//! The truncation guard: a front-end that shrinks its memory must not kill the daemon.
//!
//! Touching a page of a shared mapping past the end of its file raises SIGBUS. The handler looks
//! the address up in a fixed table of the live mappings, maps anonymous zero pages over the whole
//! mapping, marks it truncated, and returns: the access is repeated and succeeds. A lane notices by
//! one relaxed load a burst ([`truncations`]) and stops the rings that use the memory.
//!
//! A SIGBUS at any other address is a bug of ours or a failing machine, and ends the process as if
//! there were no handler.
//!
//! Only async-signal-safe things happen in the handler: atomics and raw system calls.

use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Mappings that one process may hold at a time: of 255 VFs, each with 64 memory slots, a dirty log, the front-end's
/// records, ours, and frames that wait for it while it moves; and the rest.
pub const MAPPINGS_MAX: usize = 255 * (64 + 4) + 512;

/// One guarded mapping. `start` is zero while the slot is free; `CLAIMED` while it is being filled.
struct Slot {
    start: AtomicUsize,
    size: AtomicUsize,
    truncated: AtomicBool,
}

const CLAIMED: usize = 1;

static SLOTS: [Slot; MAPPINGS_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        size: AtomicUsize::new(0),
        truncated: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];

/// Slots beyond this index have never been used: the handler need not look there.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
static TRUNCATIONS: AtomicU32 = AtomicU32::new(0);
static INSTALL: Once = Once::new();

/// Counts the mappings of this process that were found truncated. A lane compares it with the
/// value it saw last, and looks at its own memory only when it moved.
#[inline]
pub fn truncations() -> u32 {
    TRUNCATIONS.load(Ordering::Relaxed)
}

/// A place in the table, for as long as the mapping lives.
#[derive(Debug)]
pub(crate) struct Guarded {
    slot: usize,
}

impl Guarded {
    /// Enters `size` bytes from `start`; `None` when [`MAPPINGS_MAX`] mappings live already.
    pub(crate) fn enter(start: usize, size: usize) -> Option<Guarded> {
        INSTALL.call_once(install);
        let slot = SLOTS.iter().position(|slot| {
            slot.start.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })?;
        SLOTS[slot].truncated.store(false, Ordering::Relaxed);
        SLOTS[slot].size.store(size, Ordering::Relaxed);
        SLOTS[slot].start.store(start, Ordering::Release);
        SLOTS_USED.fetch_max(slot + 1, Ordering::AcqRel);
        Some(Guarded { slot })
    }

    pub(crate) fn is_truncated(&self) -> bool {
        SLOTS[self.slot].truncated.load(Ordering::Relaxed)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        SLOTS[self.slot].start.store(0, Ordering::Release);
    }
}

fn install() {
    // SAFETY: `action` is a valid sigaction whose handler has the SA_SIGINFO signature, and the
    // handler only does what is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, null_mut());
    }
}

extern "C" fn on_sigbus(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let address = unsafe { (*info).si_addr() } as usize;
    let used = SLOTS_USED.load(Ordering::Acquire);
    let found = SLOTS[..used].iter().find_map(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        let size = slot.size.load(Ordering::Acquire);
        // Both of one mapping only if the slot was not given to another one between the two.
        let same = slot.start.load(Ordering::Acquire) == start;
        let inside = start > CLAIMED && address.wrapping_sub(start) < size;
        (same && inside).then_some((slot, start, size))
    });
    let Some((slot, start, size)) = found else { return die() };
    slot.truncated.store(true, Ordering::Relaxed);
    TRUNCATIONS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the range is exactly one live mapping of ours; whoever holds a slice into it keeps
    // valid memory under it, now private zeros. errno is the interrupted thread's and is put back.
    unsafe {
        let errno = *libc::__errno_location();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(start as *mut libc::c_void, size, protection, flags, -1, 0);
        *libc::__errno_location() = errno;
        if at == libc::MAP_FAILED {
            die();
        }
    }
}

/// Puts the default action back: the faulting access is repeated and ends the process.
fn die() {
    // SAFETY: resetting a signal's action is async-signal-safe.
    unsafe {
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
    }
}
