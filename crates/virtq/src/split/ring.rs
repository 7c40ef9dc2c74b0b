//! The three parts of a split ring in memory: virtio 1.2, sections 2.7.5 to 2.7.8.

use std::sync::atomic::AtomicU16;

use guestmem::GuestMemory;

use crate::ring::{Addresses, Descriptor, RING_SIZE_MAX, SetupError, part};

/// Pointers to a ring's parts, every access within bounds: an entry's index is masked by the size.
///
/// The memory behind must outlive it: its owner keeps the memory beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitRing {
    mask: u16,
    desc: *mut [u64; 2],
    /// `flags`, `idx`, `ring[size]`, `used_event`.
    avail: *mut u16,
    /// `flags`, `idx`, the entries, `avail_event`.
    used: *mut u16,
}

// SAFETY: shared memory, accessed by volatile and atomic accesses only.
unsafe impl Send for SplitRing {}

impl SplitRing {
    /// Checks size, ranges and alignment.
    pub(crate) fn new(
        memory: &GuestMemory,
        addresses: &Addresses,
        size: u16,
    ) -> Result<SplitRing, SetupError> {
        if !size.is_power_of_two() || size > RING_SIZE_MAX {
            return Err(SetupError::Size(size));
        }
        let entries = usize::from(size);
        let part = |name, addr, bytes, align| part(memory, (name, addr), (bytes, align));
        Ok(SplitRing {
            mask: size - 1,
            desc: part("descriptor table", addresses.desc, Descriptor::SIZE * entries, 16)?.cast(),
            avail: part("available ring", addresses.avail, 6 + 2 * entries, 2)?.cast(),
            used: part("used ring", addresses.used, 6 + 8 * entries, 4)?.cast(),
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

    /// Snapshot of the descriptor at `index` modulo the size. Each word is read once.
    #[inline(always)]
    pub(crate) fn descriptor(&self, index: u16) -> Descriptor {
        // SAFETY: the masked index is inside the table that `new` checked; words are aligned.
        let words = unsafe {
            let at = self.desc.add(usize::from(index & self.mask)).cast::<u64>();
            [at.read_volatile(), at.add(1).read_volatile()]
        };
        Descriptor::from_words(words)
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
        // SAFETY: two words of flags and index, then the entry, inside the part that `new` checked.
        unsafe { self.avail.add(2 + usize::from(index & self.mask)).read_volatile() }
    }

    /// Entries from position `index` on that follow without a wrap, at most `n`.
    #[inline(always)]
    pub(crate) fn run(&self, index: u16, n: usize) -> usize {
        n.min(usize::from(self.mask) + 1 - usize::from(index & self.mask))
    }

    /// The entries of the available ring from position `index` on, as [`run`](Self::run) of `n`
    /// counts them. Each is read once.
    #[inline(always)]
    pub(crate) fn avail_run(&self, index: u16, n: usize) -> impl Iterator<Item = u16> {
        let n = self.run(index, n);
        let first = self.avail.wrapping_add(2 + usize::from(index & self.mask));
        // SAFETY: the run ends at the latest with the last entry, inside the part that `new`
        // checked.
        (0..n).map(move |i| unsafe { first.add(i).read_volatile() })
    }

    #[inline(always)]
    pub(crate) fn set_avail_entry(&self, index: u16, head: u16) {
        // SAFETY: as in `avail_entry`.
        unsafe { self.avail.add(2 + usize::from(index & self.mask)).write_volatile(head) }
    }

    /// The used ring's entry at `index`: head of the chain and bytes written.
    #[inline(always)]
    pub(crate) fn used_entry(&self, index: u16) -> (u32, u32) {
        // SAFETY: inside the part that `new` checked, which is aligned to 4 bytes, as are its
        // words.
        unsafe {
            let at = self.used.cast::<u32>().add(1 + 2 * usize::from(index & self.mask));
            (at.read_volatile(), at.add(1).read_volatile())
        }
    }

    #[inline(always)]
    pub(crate) fn set_used_entry(&self, index: u16, head: u16, len: u32) {
        let entry = u64::from(head) | u64::from(len) << 32;
        // SAFETY: as in `used_entry`; one unaligned word instead of two. A plain store: the
        // compiler keeps it before the release store of the index, and no reader looks earlier.
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
