//! Checked ranges of guest memory, and the only accesses to them.
//!
//! A guest may change its memory during every access, so a byte that decides anything is read once,
//! and no branch depends on a byte read by a copy. Short copies are inline, in 16-byte moves that
//! may overlap at the tail: at 64 B a call would cost more than the copy. The bytes of the overlap
//! are read and written twice, and the later ones stay. Longer copies are `memcpy`, which the C
//! library tunes for each machine.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64};

/// Longest copy done inline, bytes.
const INLINE_MAX: usize = 128;

/// `len` bytes of guest memory that stay mapped for `'a`. Cheap to copy; not a Rust reference,
/// since the guest writes to the same bytes.
#[derive(Clone, Copy, Debug)]
pub struct GuestSlice<'a> {
    start: *mut u8,
    len: u32,
    memory: PhantomData<&'a ()>,
}

// SAFETY: shared memory without references: see the accesses below, all of which any thread may do.
unsafe impl Send for GuestSlice<'_> {}
// SAFETY: as above.
unsafe impl Sync for GuestSlice<'_> {}

impl<'a> GuestSlice<'a> {
    /// No bytes.
    pub const EMPTY: GuestSlice<'static> =
        GuestSlice { start: std::ptr::dangling_mut(), len: 0, memory: PhantomData };

    /// # Safety
    /// `start..start + len` must be mapped, readable and writable for `'a`.
    #[inline]
    pub(crate) const unsafe fn new(start: *mut u8, len: u32) -> GuestSlice<'a> {
        GuestSlice { start, len, memory: PhantomData }
    }

    /// Drops the lifetime from the type.
    ///
    /// # Safety
    /// The caller must not touch the result after the memory behind it is unmapped.
    #[inline]
    pub unsafe fn forget_lifetime(self) -> GuestSlice<'static> {
        GuestSlice { start: self.start, len: self.len, memory: PhantomData }
    }

    /// Address of the first byte in this process.
    #[inline]
    pub(crate) fn address(&self) -> u64 {
        self.start as u64
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns `true` if there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes after the first `n`; empty if there are no more.
    #[inline]
    pub fn skip(self, n: u32) -> GuestSlice<'a> {
        let n = n.min(self.len);
        // SAFETY: `n <= len`, so the rest is inside what this slice covers.
        unsafe { GuestSlice::new(self.start.add(n as usize), self.len - n) }
    }

    /// The first `n` bytes, or all if there are fewer.
    #[inline]
    pub fn first(self, n: u32) -> GuestSlice<'a> {
        GuestSlice { len: self.len.min(n), ..self }
    }

    /// Reads `N` bytes from `offset`, once.
    ///
    /// # Panics
    /// If they are not inside: callers check lengths first.
    #[inline]
    pub fn read<const N: usize>(&self, offset: u32) -> [u8; N] {
        assert!(self.covers(offset, N));
        // SAFETY: inside; an array of bytes has no alignment and every pattern is valid.
        unsafe { load(self.start.add(offset as usize)) }
    }

    /// Reads the first 16 bytes, at once.
    ///
    /// # Panics
    /// If there are fewer: callers check lengths first.
    #[inline(always)]
    pub fn read_header(&self) -> [u8; 16] {
        assert!(self.len >= 16);
        // SAFETY: inside, and no alignment is needed.
        unsafe { load16(self.start) }
    }

    /// Writes `N` bytes at `offset`.
    ///
    /// # Panics
    /// If they are not inside: callers check lengths first.
    #[inline]
    pub fn write<const N: usize>(&self, offset: u32, bytes: [u8; N]) {
        assert!(self.covers(offset, N));
        // SAFETY: inside, and no alignment is needed.
        unsafe { store(self.start.add(offset as usize), bytes) }
    }

    /// Copies ordinary bytes in, from the slice's start; as many as fit both. Returns the number
    /// copied.
    pub fn write_bytes(&self, bytes: &[u8]) -> u32 {
        let n = bytes.len().min(self.len as usize);
        // SAFETY: `n` bytes are inside both.
        unsafe { copy(self.start, bytes.as_ptr(), n) };
        n as u32
    }

    /// Copies ordinary bytes out; as many as fit both. Returns the number copied.
    pub fn read_bytes(&self, bytes: &mut [u8]) -> u32 {
        let n = bytes.len().min(self.len as usize);
        // SAFETY: `n` bytes are inside both.
        unsafe { copy(bytes.as_mut_ptr(), self.start, n) };
        n as u32
    }

    /// Copies `n` bytes of another guest's memory here.
    ///
    /// # Panics
    /// If either slice is shorter: callers check lengths first.
    #[inline]
    pub fn copy_from(&self, source: GuestSlice<'_>, n: u32) {
        assert!(n <= self.len && n <= source.len);
        // SAFETY: `n` bytes are inside both. They overlap only if one guest posted the same memory
        // twice; the order of that guest's bytes is then undefined.
        unsafe { copy(self.start, source.start, n as usize) }
    }

    /// The first byte's address, for system calls.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Prefetches the cache line at `offset` for reading. Any offset is harmless.
    #[inline]
    pub fn prefetch_read(&self, offset: u32) {
        CacheLine::of(self.start.wrapping_add(offset as usize)).prefetch_read();
    }

    /// Prefetches the cache line at `offset` for writing. Any offset is harmless.
    #[inline]
    pub fn prefetch_write(&self, offset: u32) {
        CacheLine::of(self.start.wrapping_add(offset as usize)).prefetch_write();
    }

    /// The byte at `offset` as a shared atomic; `None` if outside.
    pub fn atomic_u8(self, offset: u32) -> Option<&'a AtomicU8> {
        let at = self.aligned::<AtomicU8>(offset)?;
        // SAFETY: inside, alive for 'a; an atomic tolerates concurrent writes.
        Some(unsafe { &*at })
    }

    /// Two bytes at `offset` as an atomic shared with the guest; `None` if outside or unaligned.
    pub fn atomic_u16(self, offset: u32) -> Option<&'a AtomicU16> {
        let at = self.aligned::<AtomicU16>(offset)?;
        // SAFETY: inside, aligned, alive for 'a; an atomic tolerates the guest's writes.
        Some(unsafe { &*at })
    }

    /// The whole slice as shared 64-bit words; `None` if unaligned.
    pub fn atomics_u64(self) -> Option<&'a [AtomicU64]> {
        let count = self.len as usize / size_of::<AtomicU64>();
        let at = self.aligned_array::<AtomicU64>(count)?;
        // SAFETY: inside, aligned, alive for 'a; atomics tolerate concurrent writes.
        Some(unsafe { std::slice::from_raw_parts(at, count) })
    }

    /// Address of the first byte, aligned for `T`, if `count` of them fit: for the rings.
    pub fn aligned_array<T>(self, count: usize) -> Option<*mut T> {
        let whole = self.covers(0, count.checked_mul(size_of::<T>())?);
        self.aligned::<T>(0).filter(|_| whole)
    }

    fn aligned<T>(self, offset: u32) -> Option<*mut T> {
        if !self.covers(offset, size_of::<T>()) {
            return None;
        }
        let at = self.start.wrapping_add(offset as usize).cast::<T>();
        at.is_aligned().then_some(at)
    }

    #[inline]
    fn covers(&self, offset: u32, size: usize) -> bool {
        u64::from(offset) + size as u64 <= u64::from(self.len)
    }
}

/// A region in the form used for translation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) guest_addr: u64,
    pub(crate) size: u64,
    pub(crate) start: *mut u8,
}

impl Window {
    pub(crate) const NONE: Window = Window { guest_addr: 0, size: 0, start: std::ptr::null_mut() };

    /// Address of the range in this process, if all of it is inside.
    #[inline(always)]
    pub(crate) fn find(&self, addr: u64, len: u32) -> Option<*mut u8> {
        let offset = addr.wrapping_sub(self.guest_addr);
        let is_inside = offset < self.size && self.size - offset >= u64::from(len);
        is_inside.then(|| self.start.wrapping_add(offset as usize))
    }
}

/// The region used last, for a translation without a search.
#[derive(Clone, Copy, Debug)]
pub struct LastHit<'a> {
    window: Window,
    memory: PhantomData<&'a ()>,
}

impl<'a> LastHit<'a> {
    /// # Safety
    /// The window's memory must stay mapped, readable and writable for `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(window: Window) -> LastHit<'a> {
        LastHit { window, memory: PhantomData }
    }

    /// `len` bytes at a guest physical address, if they are in this region.
    #[inline(always)]
    pub fn slice(&self, guest_addr: u64, len: u32) -> Option<GuestSlice<'a>> {
        let start = self.window.find(guest_addr, len)?;
        // SAFETY: the whole range is inside the window, which is mapped for 'a.
        Some(unsafe { GuestSlice::new(start, len) })
    }
}

/// Identifies a buffer to its ring when it is returned as used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    /// Id in the ring. Split ring: the chain's first descriptor. Packed ring: the driver's buffer
    /// id.
    pub id: u16,
    /// Ring descriptors that the chain takes; a packed ring advances by this number.
    pub descriptors: u16,
}

/// A list of slices. Nearly every frame is one slice, so the first is held inline; the others are
/// in the owner's arena.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a> {
    /// The first slice.
    pub first: GuestSlice<'a>,
    /// Total bytes of all slices.
    pub len: u32,
    /// Index of the second slice in the arena that belongs to the buffer.
    pub rest_start: u16,
    /// Number of slices after the first.
    pub rest_len: u16,
    /// Identifies the buffer to its ring.
    pub ticket: Ticket,
}

impl<'a> Buffer<'a> {
    /// A buffer of no bytes.
    pub const EMPTY: Buffer<'static> = Buffer {
        first: GuestSlice::EMPTY,
        len: 0,
        rest_start: 0,
        rest_len: 0,
        ticket: Ticket { id: 0, descriptors: 0 },
    };

    /// A buffer of one slice, which is one descriptor.
    #[inline]
    pub fn single(first: GuestSlice<'a>, id: u16) -> Buffer<'a> {
        let ticket = Ticket { id, descriptors: 1 };
        Buffer { first, len: first.len(), rest_start: 0, rest_len: 0, ticket }
    }

    /// All slices in order; `arena` is the one that belongs to the buffer.
    pub fn slices<'b>(
        &self,
        arena: &'b [GuestSlice<'a>],
    ) -> impl Iterator<Item = GuestSlice<'a>> + 'b
    where
        'a: 'b,
    {
        let start = usize::from(self.rest_start);
        let rest = arena.get(start..start + usize::from(self.rest_len)).unwrap_or(&[]);
        std::iter::once(self.first).chain(rest.iter().copied())
    }

    /// Copies bytes from `offset` on into `bytes`, across slices; returns the number copied.
    pub fn read_bytes(&self, arena: &[GuestSlice<'a>], mut offset: u32, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for slice in self.slices(arena) {
            let part = slice.skip(offset);
            offset = offset.saturating_sub(slice.len());
            done += part.read_bytes(&mut bytes[done..]) as usize;
        }
        done
    }
}

/// # Safety
/// `N` bytes from `from` must be mapped and readable.
#[inline(always)]
unsafe fn load<const N: usize>(from: *const u8) -> [u8; N] {
    // SAFETY: the caller's promise; the plain read is made opaque, so that it happens once.
    std::hint::black_box(unsafe { from.cast::<[u8; N]>().read() })
}

/// Loads the first 16 bytes of a frame at once.
///
/// # Safety
/// 16 bytes from `from` must be mapped and readable.
#[inline(always)]
unsafe fn load16(from: *const u8) -> [u8; 16] {
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
unsafe fn store<const N: usize>(to: *mut u8, bytes: [u8; N]) {
    // SAFETY: the caller's promise; [u8; N] has alignment 1. Not volatile: a guest may see a store
    // in parts anyway.
    unsafe { to.cast::<[u8; N]>().write(bytes) }
}

/// Copies `n` bytes.
///
/// # Safety
/// `n` bytes must be mapped at both ends: readable at `from`, writable at `to`.
#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, n: usize) {
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
/// As [`copy`], with `n` between `16 * HALF` and `32 * HALF`.
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

/// Address of a cache line, for prefetches only: the memory may be gone.
#[derive(Clone, Copy, Debug)]
pub struct CacheLine(*const u8);

// SAFETY: the address is never dereferenced.
unsafe impl Send for CacheLine {}

impl CacheLine {
    /// Usual length, bytes.
    pub const LEN: usize = 64;

    /// The line with the first byte of `at`.
    #[inline(always)]
    pub fn of<T: ?Sized>(at: *const T) -> CacheLine {
        CacheLine(at.cast())
    }

    /// The line `n` lines behind this one.
    #[inline(always)]
    pub fn plus(self, n: usize) -> CacheLine {
        CacheLine(self.0.wrapping_add(n * Self::LEN))
    }

    /// Prefetches it for reading.
    #[inline(always)]
    pub fn prefetch_read(self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.0.cast());
        }
    }

    /// Prefetches the lines of `bytes` bytes from here on for reading.
    #[inline(always)]
    pub fn prefetch_run(self, bytes: usize) {
        (0..bytes.div_ceil(Self::LEN)).for_each(|n| self.plus(n).prefetch_read());
    }

    /// Prefetches it for writing: this core owns it when the write comes.
    #[inline(always)]
    pub fn prefetch_write(self) {
        // SAFETY: a prefetch never faults, whatever the address. In assembly, because the intrinsic
        // is a prefetch for reading in a build for every x86-64; CPUs without the instruction skip
        // it.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                "prefetchw [{at}]",
                at = in(reg) self.0,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
}
