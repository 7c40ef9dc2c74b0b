//! The three parts of a packed ring in memory: virtio 1.2, sections 2.8.10, 2.8.13 and 2.8.14.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use guestmem::GuestMemory;

use super::position::PackedPosition;
use crate::ring::{Addresses, Descriptor, RING_SIZE_MAX, SetupError, part};

/// Flags of a descriptor that depend on the wrap counter (section 2.8.1).
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// Second word of a descriptor: length, id and flags. Written last and whole, since it passes the
/// descriptor to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    #[inline(always)]
    pub(crate) fn new(len: u32, id: u16, flags: u16) -> Word {
        Word(u64::from(len) | u64::from(id) << 32 | u64::from(flags) << 48)
    }

    /// A descriptor that the driver makes available at `place`.
    #[inline(always)]
    pub(crate) fn available(len: u32, id: u16, flags: u16, place: PackedPosition) -> Word {
        Word::new(len, id, flags | Word::available_flags(place))
    }

    /// A used descriptor at `place`, with `len` bytes written into its buffer: "the device ... sets
    /// the VIRTQ_DESC_F_WRITE flag" if there are any, else `len` has no meaning (2.8.5).
    #[inline(always)]
    pub(crate) fn used(len: u32, id: u16, place: PackedPosition) -> Word {
        let write = if len > 0 { Descriptor::WRITE } else { 0 };
        Word::new(len, id, write | Word::used_flags(place))
    }

    /// AVAIL and USED flags of a descriptor that is available at `place`.
    #[inline(always)]
    pub(crate) fn available_flags(place: PackedPosition) -> u16 {
        if place.wrap() { AVAIL } else { USED }
    }

    #[inline(always)]
    fn used_flags(place: PackedPosition) -> u16 {
        if place.wrap() { AVAIL | USED } else { 0 }
    }

    #[inline(always)]
    pub(crate) fn len(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) fn id(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline(always)]
    pub(crate) fn flags(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Flags that the device must check.
    #[inline(always)]
    pub(crate) fn telling_flags(self) -> u16 {
        const DIRECT: u16 = Descriptor::NEXT | Descriptor::WRITE | Descriptor::INDIRECT;
        self.flags() & (AVAIL | USED | DIRECT)
    }

    #[inline(always)]
    pub(crate) fn is_available(self, place: PackedPosition) -> bool {
        self.flags() & (AVAIL | USED) == Word::available_flags(place)
    }

    #[inline(always)]
    pub(crate) fn is_used(self, place: PackedPosition) -> bool {
        self.flags() & (AVAIL | USED) == Word::used_flags(place)
    }

    /// Bytes written, as the device claims.
    #[inline(always)]
    pub(crate) fn written(self) -> u32 {
        if self.flags() & Descriptor::WRITE != 0 { self.len() } else { 0 }
    }
}

/// Pointers to a ring's parts, every access within bounds: callers' indices are below the size.
///
/// The memory behind must outlive it: its owner keeps the memory beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedRing {
    size: u16,
    desc: *mut [u64; 2],
    /// Event suppression areas of the driver and of the device.
    driver: *mut u32,
    device: *mut u32,
}

// SAFETY: shared memory, accessed by volatile and atomic accesses only.
unsafe impl Send for PackedRing {}

impl PackedRing {
    /// Checks size, ranges and alignment.
    pub(crate) fn new(
        memory: &GuestMemory,
        addresses: &Addresses,
        size: u16,
    ) -> Result<PackedRing, SetupError> {
        if size == 0 || size > RING_SIZE_MAX {
            return Err(SetupError::PackedSize(size));
        }
        let bytes = Descriptor::SIZE * usize::from(size);
        let part = |name, addr, bytes, align| part(memory, (name, addr), (bytes, align));
        Ok(PackedRing {
            size,
            desc: part("descriptor ring", addresses.desc, bytes, 16)?.cast(),
            driver: part("driver event area", addresses.avail, 4, 4)?.cast(),
            device: part("device event area", addresses.used, 4, 4)?.cast(),
        })
    }

    /// Entries.
    #[inline(always)]
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Address of the descriptor at `index`.
    #[inline(always)]
    fn at(&self, index: u16) -> *mut u64 {
        assert!(index < self.size);
        // SAFETY: inside the ring that `new` checked.
        unsafe { self.desc.add(usize::from(index)).cast() }
    }

    /// Second word of the descriptor at `index`, with acquire order: read the first word after it.
    #[inline(always)]
    pub(crate) fn word(&self, index: u16) -> Word {
        Word(self.shared(index).load(Ordering::Acquire))
    }

    /// Passes the descriptor at `index`, and all earlier stores, to the other side (release order).
    #[inline(always)]
    pub(crate) fn hand_over(&self, index: u16, word: Word) {
        self.shared(index).store(word.0, Ordering::Release);
    }

    /// Writes the second word of a descriptor that the other side does not read before a later
    /// [`hand_over`](Self::hand_over).
    #[inline(always)]
    pub(crate) fn set_word(&self, index: u16, word: Word) {
        self.shared(index).store(word.0, Ordering::Relaxed);
    }

    #[inline(always)]
    fn shared(&self, index: u16) -> &AtomicU64 {
        // SAFETY: the second word is inside the descriptor, which `at` checks, and aligned.
        unsafe { AtomicU64::from_ptr(self.at(index).add(1)) }
    }

    /// The address in the descriptor at `index`.
    #[inline(always)]
    pub(crate) fn addr(&self, index: u16) -> u64 {
        // SAFETY: as in `at`; aligned.
        unsafe { self.at(index).read_volatile() }
    }

    #[inline(always)]
    pub(crate) fn set_addr(&self, index: u16, addr: u64) {
        // SAFETY: as in `at`; aligned.
        unsafe { self.at(index).write_volatile(addr) }
    }

    /// Event suppression area of the driver.
    #[inline(always)]
    pub(crate) fn driver_events(&self) -> &AtomicU32 {
        // SAFETY: `new` checked size and alignment.
        unsafe { AtomicU32::from_ptr(self.driver) }
    }

    /// Event suppression area of the device.
    #[inline(always)]
    pub(crate) fn device_events(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.device) }
    }
}
