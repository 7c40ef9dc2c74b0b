//! One guest's memory: regions and the translation of addresses.

use std::sync::Arc;

use crate::mapping::Mapping;
use crate::slice::{GuestSlice, LastHit, Window};

/// Largest number of regions in one guest's memory: vhost-user memory slots, several times QEMU's
/// use.
pub const REGIONS_MAX: usize = 64;

/// Reasons that a set of regions is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MemoryError {
    /// More than [`REGIONS_MAX`].
    #[error("{0} memory regions; at most {REGIONS_MAX} are allowed")]
    TooMany(usize),
    /// A region ends past the end of the address space.
    #[error("region at {guest_addr:#x} of {size:#x} bytes ends past 2^64")]
    Overflow {
        /// Guest physical address.
        guest_addr: u64,
        /// Bytes.
        size: u64,
    },
    /// Two regions share guest addresses.
    #[error("regions at {0:#x} and {1:#x} overlap")]
    Overlap(u64, u64),
}

/// A region of guest memory.
#[derive(Clone, Debug)]
pub struct Region {
    /// Guest physical address of its first byte, as in descriptors.
    pub guest_addr: u64,
    /// Address of the same byte in the front-end's address space, as in ring addresses.
    pub user_addr: u64,
    /// The memory.
    pub mapping: Arc<Mapping>,
}

impl Region {
    fn size(&self) -> u64 {
        self.mapping.size() as u64
    }
}

/// All regions of one guest; immutable, and shared by the rings that use it.
#[derive(Debug, Default)]
pub struct GuestMemory {
    regions: Vec<Region>,
    windows: Vec<Window>,
}

// SAFETY: the windows point into the mappings beside them, which any thread may use.
unsafe impl Send for GuestMemory {}
// SAFETY: as above.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// Checks and sorts the regions.
    pub fn new(mut regions: Vec<Region>) -> Result<GuestMemory, MemoryError> {
        if regions.len() > REGIONS_MAX {
            return Err(MemoryError::TooMany(regions.len()));
        }
        regions.sort_by_key(|region| region.guest_addr);
        for Region { guest_addr, user_addr, mapping } in &regions {
            let (guest_addr, size) = (*guest_addr, mapping.size() as u64);
            if guest_addr.checked_add(size).is_none() || user_addr.checked_add(size).is_none() {
                return Err(MemoryError::Overflow { guest_addr, size });
            }
        }
        for pair in regions.windows(2) {
            if pair[0].guest_addr + pair[0].size() > pair[1].guest_addr {
                return Err(MemoryError::Overlap(pair[0].guest_addr, pair[1].guest_addr));
            }
        }
        let windows = regions.iter().map(|region| Window {
            guest_addr: region.guest_addr,
            size: region.size(),
            start: region.mapping.start(),
        });
        Ok(GuestMemory { windows: windows.collect(), regions })
    }

    /// The regions, by guest address.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// `len` bytes at a guest physical address; `None` if no single region holds all of them.
    pub fn slice(&self, guest_addr: u64, len: u32) -> Option<GuestSlice<'_>> {
        self.regions.iter().find_map(|region| {
            let offset = guest_addr.checked_sub(region.guest_addr)?;
            region.mapping.slice(offset, len as usize)
        })
    }

    /// `len` bytes at an address of the front-end's address space.
    pub fn user_slice(&self, user_addr: u64, len: u32) -> Option<GuestSlice<'_>> {
        self.regions.iter().find_map(|region| {
            let offset = user_addr.checked_sub(region.user_addr)?;
            region.mapping.slice(offset, len as usize)
        })
    }

    /// The guest physical address of a slice, if all of it is in one of the regions.
    pub fn guest_addr_of(&self, slice: &GuestSlice<'_>) -> Option<u64> {
        self.regions.iter().find_map(|region| {
            let offset = region.mapping.offset_of(slice)?;
            Some(region.guest_addr + offset)
        })
    }

    /// Returns `true` if the front-end shrank a file behind any region.
    pub fn is_truncated(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_truncated())
    }
}

/// A memory with the region used last. Most guests have one region of RAM; a translation is then
/// two compares and an addition. Each ring has its own.
#[derive(Clone, Debug)]
pub struct Translator {
    /// Always one of `memory`'s windows, or [`Window::NONE`].
    last: Window,
    memory: Arc<GuestMemory>,
}

// SAFETY: `last` points into the memory beside it, which any thread may use.
unsafe impl Send for Translator {}
// SAFETY: as above.
unsafe impl Sync for Translator {}

impl Translator {
    /// A translator without a last region.
    pub fn new(memory: Arc<GuestMemory>) -> Translator {
        Translator { last: Window::NONE, memory }
    }

    /// The memory.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// The region used last, for a loop that keeps it in registers.
    #[inline(always)]
    pub fn last_hit(&self) -> LastHit<'_> {
        // SAFETY: a window of the memory, which this translator keeps alive.
        unsafe { LastHit::new(self.last) }
    }

    /// As [`GuestMemory::slice`].
    #[inline(always)]
    pub fn slice(&mut self, guest_addr: u64, len: u32) -> Option<GuestSlice<'_>> {
        let start = match self.last.find(guest_addr, len) {
            Some(start) => start,
            None => self.search(guest_addr, len)?,
        };
        // SAFETY: the window is one of the memory's, which this translator keeps alive, and the
        // whole range is inside it.
        Some(unsafe { GuestSlice::new(start, len) })
    }

    #[cold]
    fn search(&mut self, guest_addr: u64, len: u32) -> Option<*mut u8> {
        let windows = &self.memory.windows;
        let after = windows.partition_point(|window| window.guest_addr <= guest_addr);
        let window = *windows[..after].last()?;
        let start = window.find(guest_addr, len)?;
        self.last = window;
        Some(start)
    }
}
