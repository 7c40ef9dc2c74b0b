//! Copies from and to guest memory. The guest may change it during every copy, so no byte is read
//! twice and no branch depends on a byte read here.
//!
//! Short copies are inline, in 16-byte moves that may overlap at the tail: at 64 B a call would
//! cost more than the copy. Longer ones are `memcpy`, which the C library tunes for each machine.

/// Longest copy done inline, bytes.
const INLINE_MAX: usize = 128;

/// # Safety
/// `N` bytes from `from` must be mapped and readable.
#[inline(always)]
pub(crate) unsafe fn load<const N: usize>(from: *const u8) -> [u8; N] {
    // SAFETY: the caller's promise; the plain read is made opaque, so that it happens once.
    std::hint::black_box(unsafe { from.cast::<[u8; N]>().read() })
}

/// Loads the first 16 bytes of a frame at once.
///
/// # Safety
/// 16 bytes from `from` must be mapped and readable.
#[inline(always)]
pub(crate) unsafe fn load16(from: *const u8) -> [u8; 16] {
    #[cfg(target_arch = "x86_64")]
    {
        let value: std::arch::x86_64::__m128i;
        // SAFETY: the caller's promise; the instruction reads 16 bytes of any alignment, and being
        // assembly it is neither repeated nor merged by the compiler.
        unsafe {
            std::arch::asm!(
                "movdqu {value}, [{from}]",
                value = out(xmm_reg) value,
                from = in(reg) from,
                options(nostack, preserves_flags, readonly),
            );
            std::mem::transmute(value)
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
        load::<16>(from)
    }
}

/// # Safety
/// `N` bytes from `to` must be mapped and writable.
#[inline(always)]
pub(crate) unsafe fn store<const N: usize>(to: *mut u8, bytes: [u8; N]) {
    // SAFETY: the caller's promise; [u8; N] has alignment 1. Not volatile: a guest may see a store
    // in parts anyway.
    unsafe { to.cast::<[u8; N]>().write(bytes) }
}

/// Copies `n` bytes.
///
/// # Safety
/// `n` bytes must be mapped at both ends: readable at `from`, writable at `to`.
#[inline(always)]
pub(crate) unsafe fn bytes(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise covers every branch: each moves bytes `0..n` only.
    unsafe {
        match n {
            ..16 => {
                for at in 0..n {
                    store(to.add(at), load::<1>(from.add(at)));
                }
            }
            16..=32 => ends::<1>(to, from, n),
            33..=64 => ends::<2>(to, from, n),
            65..=INLINE_MAX => ends::<4>(to, from, n),
            _ => {
                libc::memcpy(to.cast(), from.cast(), n);
            }
        }
    }
}

/// Copies the first and the last `16 * HALF` of `n` bytes; they meet or overlap in the middle.
///
/// # Safety
/// As [`bytes`], with `n` between `16 * HALF` and `32 * HALF`.
#[inline(always)]
unsafe fn ends<const HALF: usize>(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: all offsets are below `n - 15`.
    unsafe {
        for i in 0..HALF {
            move16(to.add(16 * i), from.add(16 * i));
        }
        for i in (1..=HALF).rev() {
            move16(to.add(n - 16 * i), from.add(n - 16 * i));
        }
    }
}

/// # Safety
/// 16 bytes must be mapped at both ends.
#[inline(always)]
unsafe fn move16(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise; unaligned accesses.
    unsafe { to.cast::<u128>().write_unaligned(from.cast::<u128>().read_unaligned()) }
}

/// Prefetches the cache line at `at` for reading. Any address is harmless.
#[inline(always)]
pub fn prefetch_read(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches the cache line at `at` for writing: this core owns it when the write comes. Any
/// address is harmless.
#[inline(always)]
pub(crate) fn prefetch_write(at: *const u8) {
    // SAFETY: a prefetch never faults, whatever the address. In assembly, because the intrinsic is
    // a prefetch for reading in a build for every x86-64; CPUs without the instruction skip it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "prefetchw [{at}]",
            at = in(reg) at,
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
