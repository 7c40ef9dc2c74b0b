//! The three parts of a split ring in memory: virtio 1.2, sections 2.7.5 to 2.7.8.

use std::sync::atomic::AtomicU16;

use guestmem::{GuestMemory, GuestSlice};

/// Most entries of a split ring (virtio 1.2, section 2.7).
pub const RING_SIZE_MAX: u16 = 32768;

bitflags::bitflags! {
    /// The ring features of virtio (section 6) that change what happens here.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Features: u8 {
        /// `VIRTIO_F_INDIRECT_DESC`: a descriptor may name a table of descriptors.
        const INDIRECT = 1;
        /// `VIRTIO_F_EVENT_IDX`: each side says at which index it wants to be notified.
        const EVENT_IDX = 2;
    }
}

/// Where a ring's parts are, in the front-end's own addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Descriptor table; 16-byte aligned.
    pub desc: u64,
    /// Available ring (driver area); 2-byte aligned.
    pub avail: u64,
    /// Used ring (device area); 4-byte aligned.
    pub used: u64,
}

/// Why a ring cannot be used at all.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SetupError {
    /// Not a power of two, or out of range.
    #[error("a ring of {0} entries is not possible; a power of two up to {RING_SIZE_MAX} is")]
    Size(u16),
    /// A part lies outside the guest's memory.
    #[error("the {part} at {addr:#x} is not inside one region of the guest's memory")]
    Outside {
        /// Which of the three.
        part: &'static str,
        /// Its address, the front-end's own.
        addr: u64,
    },
    /// A part is not aligned as the specification demands.
    #[error("the {part} at {addr:#x} is not aligned to {align} bytes")]
    Alignment {
        /// Which of the three.
        part: &'static str,
        /// Its address, the front-end's own.
        addr: u64,
        /// Bytes.
        align: usize,
    },
}

/// One descriptor, as read: a snapshot that the guest cannot change any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

impl Descriptor {
    pub(crate) const SIZE: usize = 16;
    /// The chain goes on at `next`.
    pub(crate) const NEXT: u16 = 1;
    /// The device may write here (else it may read).
    pub(crate) const WRITE: u16 = 2;
    /// `addr` and `len` name a table of descriptors.
    pub(crate) const INDIRECT: u16 = 4;

    /// The table's form: two little-endian words.
    #[inline(always)]
    pub(crate) fn from_words(addr: u64, word: u64) -> Descriptor {
        let (len, flags, next) = (word as u32, (word >> 32) as u16, (word >> 48) as u16);
        Descriptor { addr, len, flags, next }
    }

    #[inline(always)]
    pub(crate) fn to_words(self) -> [u64; 2] {
        let word = u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.next) << 48;
        [self.addr, word]
    }
}

/// Pointers to a ring's parts, every access within bounds: an entry's index is masked by the size.
///
/// The memory behind must outlive it: its owner keeps the memory beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    mask: u16,
    desc: *mut [u64; 2],
    /// flags, idx, ring[size], used_event.
    avail: *mut u16,
    /// flags, idx, then the entries, then avail_event.
    used: *mut u16,
}

// SAFETY: shared memory, accessed by volatile and atomic accesses only.
unsafe impl Send for Ring {}

impl Ring {
    /// Checks size, ranges and alignment.
    pub(crate) fn new(
        memory: &GuestMemory,
        addresses: &Addresses,
        size: u16,
    ) -> Result<Ring, SetupError> {
        if !size.is_power_of_two() || size > RING_SIZE_MAX {
            return Err(SetupError::Size(size));
        }
        let entries = usize::from(size);
        let find = |part, addr, bytes: usize| {
            memory.user_slice(addr, bytes as u32).ok_or(SetupError::Outside { part, addr })
        };
        let desc = find("descriptor table", addresses.desc, Descriptor::SIZE * entries)?;
        let avail = find("available ring", addresses.avail, 6 + 2 * entries)?;
        let used = find("used ring", addresses.used, 6 + 8 * entries)?;
        let array = |part, addr, align: usize, slice: GuestSlice<'_>| {
            let aligned = slice.aligned_array::<u8>(0).filter(|at| at.addr().is_multiple_of(align));
            aligned.ok_or(SetupError::Alignment { part, addr, align })
        };
        Ok(Ring {
            mask: size - 1,
            desc: array("descriptor table", addresses.desc, 16, desc)?.cast(),
            avail: array("available ring", addresses.avail, 2, avail)?.cast(),
            used: array("used ring", addresses.used, 4, used)?.cast(),
        })
    }

    /// The highest descriptor index.
    #[inline(always)]
    pub(crate) fn mask(&self) -> u16 {
        self.mask
    }

    /// Entries; a power of two.
    #[inline(always)]
    pub(crate) fn size(&self) -> u16 {
        // The mask of 32768 entries plus one still fits.
        self.mask + 1
    }

    /// A snapshot of the descriptor at `index` modulo the size: each word is read once.
    #[inline(always)]
    pub(crate) fn descriptor(&self, index: u16) -> Descriptor {
        // SAFETY: the masked index is inside the table that `new` checked; words are aligned.
        let (addr, word) = unsafe {
            let at = self.desc.add(usize::from(index & self.mask)).cast::<u64>();
            (at.read_volatile(), at.add(1).read_volatile())
        };
        Descriptor::from_words(addr, word)
    }

    #[inline(always)]
    pub(crate) fn set_descriptor(&self, index: u16, descriptor: Descriptor) {
        let [addr, word] = descriptor.to_words();
        // SAFETY: as in `descriptor`.
        unsafe {
            let at = self.desc.add(usize::from(index & self.mask)).cast::<u64>();
            at.write_volatile(addr);
            at.add(1).write_volatile(word);
        }
    }

    /// Asks the cache for a descriptor. Any index is harmless.
    #[inline(always)]
    pub(crate) fn prefetch_descriptor(&self, index: u16) {
        guestmem::prefetch(self.desc.wrapping_add(usize::from(index & self.mask)).cast());
    }

    /// The available ring's entry for position `index`.
    #[inline(always)]
    pub(crate) fn avail_entry(&self, index: u16) -> u16 {
        // SAFETY: two words of flags and index, then the entry, inside what `new` checked.
        unsafe { self.avail.add(2 + usize::from(index & self.mask)).read_volatile() }
    }

    #[inline(always)]
    pub(crate) fn set_avail_entry(&self, index: u16, head: u16) {
        // SAFETY: as in `avail_entry`.
        unsafe { self.avail.add(2 + usize::from(index & self.mask)).write_volatile(head) }
    }

    /// The used ring's entry for position `index`: chain's head and bytes written.
    #[inline(always)]
    pub(crate) fn used_entry(&self, index: u16) -> (u32, u32) {
        // SAFETY: inside what `new` checked; the used ring is aligned to 4 bytes, so its words are.
        unsafe {
            let at = self.used.cast::<u32>().add(1 + 2 * usize::from(index & self.mask));
            (at.read_volatile(), at.add(1).read_volatile())
        }
    }

    #[inline(always)]
    pub(crate) fn set_used_entry(&self, index: u16, head: u16, len: u32) {
        let entry = u64::from(head) | u64::from(len) << 32;
        // SAFETY: as in `used_entry`; one unaligned word instead of two. Plain, for the compiler
        // keeps it before the index's release store, and nobody looks earlier.
        unsafe {
            let at = self.used.cast::<u32>().add(1 + 2 * usize::from(index & self.mask));
            at.cast::<u64>().write_unaligned(entry);
        }
    }

    #[inline(always)]
    pub(crate) fn avail_flags(&self) -> &AtomicU16 {
        self.word(self.avail, 0)
    }

    #[inline(always)]
    pub(crate) fn avail_idx(&self) -> &AtomicU16 {
        self.word(self.avail, 1)
    }

    /// The used index at which the driver wants an interrupt (section 2.7.7).
    #[inline(always)]
    pub(crate) fn used_event(&self) -> &AtomicU16 {
        self.word(self.avail, 2 + usize::from(self.size()))
    }

    #[inline(always)]
    pub(crate) fn used_flags(&self) -> &AtomicU16 {
        self.word(self.used, 0)
    }

    #[inline(always)]
    pub(crate) fn used_idx(&self) -> &AtomicU16 {
        self.word(self.used, 1)
    }

    /// The available index at which the device wants a kick (section 2.7.10).
    #[inline(always)]
    pub(crate) fn avail_event(&self) -> &AtomicU16 {
        self.word(self.used, 2 + 4 * usize::from(self.size()))
    }

    #[inline(always)]
    fn word(&self, part: *mut u16, index: usize) -> &AtomicU16 {
        // SAFETY: every caller's index is inside the part, whose size and alignment `new` checked.
        unsafe { AtomicU16::from_ptr(part.add(index)) }
    }
}
