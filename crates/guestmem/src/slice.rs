//! A checked range of guest memory, and the only accesses to it.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64};

use crate::copy;

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
        unsafe { copy::load(self.start.add(offset as usize)) }
    }

    /// Reads the first 16 bytes, at once.
    ///
    /// # Panics
    /// If there are fewer: callers check lengths first.
    #[inline(always)]
    pub fn read_header(&self) -> [u8; 16] {
        assert!(self.len >= 16);
        // SAFETY: inside, and no alignment is needed.
        unsafe { copy::load16(self.start) }
    }

    /// Writes `N` bytes at `offset`.
    ///
    /// # Panics
    /// If they are not inside: callers check lengths first.
    #[inline]
    pub fn write<const N: usize>(&self, offset: u32, bytes: [u8; N]) {
        assert!(self.covers(offset, N));
        // SAFETY: inside, and no alignment is needed.
        unsafe { copy::store(self.start.add(offset as usize), bytes) }
    }

    /// Copies ordinary bytes in, from the slice's start; as many as fit both. Returns the number
    /// copied.
    pub fn write_bytes(&self, bytes: &[u8]) -> u32 {
        let n = bytes.len().min(self.len as usize);
        // SAFETY: `n` bytes are inside both.
        unsafe { copy::bytes(self.start, bytes.as_ptr(), n) };
        n as u32
    }

    /// Copies ordinary bytes out; as many as fit both. Returns the number copied.
    pub fn read_bytes(&self, bytes: &mut [u8]) -> u32 {
        let n = bytes.len().min(self.len as usize);
        // SAFETY: `n` bytes are inside both.
        unsafe { copy::bytes(bytes.as_mut_ptr(), self.start, n) };
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
        unsafe { copy::bytes(self.start, source.start, n as usize) }
    }

    /// The first byte's address, for system calls.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Prefetches the cache line at `offset` for reading. Any offset is harmless.
    #[inline]
    pub fn prefetch_read(&self, offset: u32) {
        copy::prefetch_read(self.start.wrapping_add(offset as usize));
    }

    /// Prefetches the cache line at `offset` for writing. Any offset is harmless.
    #[inline]
    pub fn prefetch_write(&self, offset: u32) {
        copy::prefetch_write(self.start.wrapping_add(offset as usize));
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
