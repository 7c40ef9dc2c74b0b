//! Mapped files: memory that a front-end shares, and files of our own.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::MapError;
use crate::guard::Guarded;
use crate::pages::Pages;
use crate::quota::{Quota, Reservation};
use crate::slice::GuestSlice;

/// Bytes of a large page.
const LARGE_PAGE: usize = 2 << 20;
/// Bytes unmapped at a time: tearing down their page tables takes 1 to 2 ms.
const UNMAP_STEP: usize = 16 << 20;
/// `MADV_COLLAPSE` of linux/mman.h, which libc lacks for some targets.
const MADV_COLLAPSE: libc::c_int = 25;

/// Access and size check of a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Read and write; the range must be in the file.
    Whole,
    /// Read only; the range must be in the file.
    ReadOnly,
    /// Read and write; the file has no size.
    Endless,
}

impl Kind {
    fn protection(self) -> ProtFlags {
        match self {
            Kind::ReadOnly => ProtFlags::READ,
            Kind::Whole | Kind::Endless => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

/// A shared, readable and writable mapping of a part of a file, guarded against truncation.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    size: usize,
    /// Present until the mapping is dropped.
    mapped: Option<MappedPages>,
    /// Thread that unmaps it, if not the one that drops it.
    unmapper: Option<Arc<dyn Unmapper>>,
}

/// A thread that does slow unmapping: 1 GiB takes 0.1 s, and dropping the last reference to a file
/// frees its pages.
pub trait Unmapper: fmt::Debug + Send + Sync {
    /// Drops the mapped pages on that thread.
    fn unmap(&self, pages: MappedPages);
}

/// Whole pages that the kernel mapped, around a [`Mapping`]. Dropping it unmaps them.
#[derive(Debug)]
pub struct MappedPages {
    base: *mut libc::c_void,
    length: usize,
    /// Present until they are unmapped.
    guarded: Option<Guarded>,
    /// Share of a quota, returned after unmapping.
    reservation: Option<Reservation>,
}

// SAFETY: an address range of the process, which any thread may unmap.
unsafe impl Send for MappedPages {}

// SAFETY: a mapping is plain shared memory. Every access through it is volatile, atomic or a copy
// (see GuestSlice), from whichever thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method needs exclusive access.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `size` bytes of `fd` from `offset` (any alignment, bytes).
    pub fn new(fd: BorrowedFd<'_>, size: u64, offset: u64) -> Result<Mapping, MapError> {
        Mapping::with(fd, size, offset, Kind::Whole)
    }

    /// As [`new`](Self::new), for a kernel file that has no size. A missing page shows on access,
    /// and then counts as a truncated file.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_driver(fd: BorrowedFd<'_>, size: u64, offset: u64) -> Result<Mapping, MapError> {
        Mapping::with(fd, size, offset, Kind::Endless)
    }

    fn with(fd: BorrowedFd<'_>, size: u64, offset: u64, kind: Kind) -> Result<Mapping, MapError> {
        let need = offset.checked_add(size).filter(|need| size > 0 && *need < 1 << 47);
        let need = need.ok_or(MapError::BadRange { size, offset })?;
        let kernel = |call, source| MapError::Kernel { call, size, source };
        if kind != Kind::Endless {
            let file = rustix::fs::fstat(fd).map_err(|e| kernel("fstat", e))?.st_size as u64;
            if file < need {
                return Err(MapError::FileTooSmall { file, need });
            }
        }
        // Offsets are aligned to the file's own page size: 2 MiB for hugetlbfs.
        let block = rustix::fs::fstatfs(fd).map_err(|e| kernel("fstatfs", e))?.f_bsize as u64;
        let page = block.max(rustix::param::page_size() as u64);
        let lead = offset % page;
        let length = (lead + size).next_multiple_of(page) as usize;
        let base =
            map(fd, length, offset - lead, kind.protection(), page).map_err(|e| match e {
                // Memory is allocated on access, so none can be missing here.
                Errno::NOMEM => MapError::NoAddresses { size },
                source => kernel("mmap", source),
            })?;
        let guarded = guard(base, length).map_err(|(call, source)| kernel(call, source));
        let guarded = guarded.and_then(|guarded| guarded.ok_or(MapError::TooMany));
        let guarded = guarded.inspect_err(|_| {
            // SAFETY: just mapped, and not yet visible to other code.
            let _ = unsafe { rustix::mm::munmap(base, length) };
        })?;
        // SAFETY: `lead < length`, so the result is inside the mapping.
        let start = unsafe { base.cast::<u8>().add(lead as usize) };
        let mapped = MappedPages { base, length, guarded: Some(guarded), reservation: None };
        Ok(Mapping { start, size: size as usize, mapped: Some(mapped), unmapper: None })
    }

    /// Counts the mapping against the limit of all sessions.
    ///
    /// # Errors
    /// The limit is reached: [`MapError::TotalQuota`]. The memory is unmapped.
    pub fn charged(mut self, quota: &Arc<Quota>) -> Result<Mapping, MapError> {
        let reservation = quota.reserve(self.size as u64)?;
        self.mapped.as_mut().expect("present until it is dropped").reservation = Some(reservation);
        Ok(self)
    }

    /// Has another thread unmap it when the last reference is dropped.
    pub fn unmapped_by(mut self, unmapper: Arc<dyn Unmapper>) -> Mapping {
        self.unmapper = Some(unmapper);
        self
    }

    /// The whole pages around the mapping.
    fn mapped(&self) -> &MappedPages {
        self.mapped.as_ref().expect("present until it is dropped")
    }

    /// Bytes mapped.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns `true` if the file shrank under the mapping; the mapping then reads as zeros.
    pub fn is_truncated(&self) -> bool {
        self.mapped().guarded.as_ref().is_some_and(Guarded::is_truncated)
    }

    /// `size` bytes from `offset`, or `None` if they are not all inside, or 4 GiB or more.
    #[inline]
    pub fn slice(&self, offset: u64, size: usize) -> Option<GuestSlice<'_>> {
        let room = (self.size as u64).checked_sub(offset)?;
        let len = u32::try_from(size).ok().filter(|len| u64::from(*len) <= room)?;
        // SAFETY: `offset + len <= self.size`, and the mapping lives as long as the borrow.
        Some(unsafe { GuestSlice::new(self.start.add(offset as usize), len) })
    }

    /// Resident bytes, in whole pages; others are allocated on access. It visits every page: do not
    /// call it for a mapping larger than the machine's memory.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn resident(&self) -> Result<u64, Errno> {
        const STEP: usize = 1 << 28;
        let page = rustix::param::page_size();
        let &MappedPages { base, length, .. } = self.mapped();
        let mut seen = vec![0u8; STEP.min(length).div_ceil(page)];
        let mut resident = 0;
        for from in (0..length).step_by(STEP) {
            let len = STEP.min(length - from);
            // SAFETY: the range is the mapping or a part of it, from a page boundary on; `seen` has
            // a byte for each of its pages. Nothing of the mapping is read.
            let result = unsafe {
                let start = base.wrapping_byte_add(from);
                libc::mincore(start, len, seen.as_mut_ptr().cast())
            };
            if result != 0 {
                let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
                return Err(Errno::from_raw_os_error(errno));
            }
            let pages = seen[..len.div_ceil(page)].iter().filter(|page| **page & 1 == 1).count();
            resident += (pages * page) as u64;
        }
        Ok(resident)
    }

    /// Offset of a slice from the start, if all of it is in this mapping.
    #[inline]
    pub fn offset_of(&self, slice: &GuestSlice<'_>) -> Option<u64> {
        let offset = slice.address().checked_sub(self.address())?;
        let end = offset + u64::from(slice.len());
        (end <= self.size as u64).then_some(offset)
    }

    /// Address of the first byte in this process, for memory registered with the kernel.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// First byte, for tables of regions.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Mapping {
    /// Asks the kernel to collapse the memory into 2 MiB pages now; returns `true` if it did. This
    /// allocates all of it.
    fn collapse(&self) -> bool {
        let &MappedPages { base, length, .. } = self.mapped();
        // SAFETY: neither call changes what the memory holds: the first touches every page, the
        // second moves them together.
        unsafe {
            rustix::mm::madvise(base, length, Advice::LinuxPopulateWrite).is_ok()
                && libc::madvise(base, length, MADV_COLLAPSE) == 0
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let (Some(unmapper), Some(mapped)) = (self.unmapper.take(), self.mapped.take()) {
            unmapper.unmap(mapped);
        }
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        // Page tables first, in steps: while the kernel tears them down no other thread of the
        // process can map anything.
        for from in (0..self.length).step_by(UNMAP_STEP) {
            let len = UNMAP_STEP.min(self.length - from);
            // SAFETY: a part of the range that `new` mapped. Every slice into it borrowed the
            // mapping, so no thread reads it any more; a shared file keeps its contents.
            let _ = unsafe {
                let start = self.base.wrapping_byte_add(from);
                rustix::mm::madvise(start, len, Advice::LinuxDontNeed)
            };
        }
        // Leaves the table first: after unmapping, the address may become another mapping's.
        self.guarded = None;
        // SAFETY: exactly the range that `new` mapped, and every slice into it borrowed that.
        let _ = unsafe { rustix::mm::munmap(self.base, self.length) };
    }
}

/// Maps `length` bytes of a file of ordinary pages, aligned so that 2 MiB pages of the file can be
/// 2 MiB pages here. File offset and address are equal modulo 2 MiB. If another thread takes the
/// address meanwhile, the mapping is merely slower. The kernel aligns files of huge pages itself.
fn map(
    fd: BorrowedFd<'_>,
    length: usize,
    offset: u64,
    protection: ProtFlags,
    page: u64,
) -> Result<*mut libc::c_void, Errno> {
    let mut hint = std::ptr::null_mut();
    if length >= LARGE_PAGE && page < LARGE_PAGE as u64 {
        let nothing = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let reserved = length + LARGE_PAGE;
        // SAFETY: a new mapping at an address of the kernel's choice, not visible to other code, is
        // made and removed: it shows a free range.
        let start = unsafe {
            let none = ProtFlags::empty();
            let start = rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved, none, nothing)?;
            rustix::mm::munmap(start, reserved)?;
            start
        };
        let want = offset as usize % LARGE_PAGE;
        let head = (want + LARGE_PAGE - start.addr() % LARGE_PAGE) % LARGE_PAGE;
        hint = start.wrapping_byte_add(head);
    }
    // SAFETY: without MAP_FIXED a hint is only that: a new mapping replaces none.
    unsafe {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        rustix::mm::mmap(hint, length, protection, flags, fd, offset)
    }
}

/// Excludes a new mapping from core dumps, since it may hold guests' data, and enters it in the
/// table of the truncation guard; `None` if that is full.
fn guard(base: *mut libc::c_void, length: usize) -> Result<Option<Guarded>, (&'static str, Errno)> {
    // SAFETY: the advice does not change the contents of the memory.
    unsafe { rustix::mm::madvise(base, length, Advice::LinuxDontDump) }
        .map_err(|errno| ("madvise", errno))?;
    Guarded::enter(base as usize, length).map_err(|errno| ("memfd_create", errno))
}

/// A file of 64-bit counters that another process writes, mapped read-only.
#[derive(Debug)]
pub struct CounterMapping {
    mapping: Mapping,
}

impl CounterMapping {
    /// Maps the whole file.
    pub fn open(fd: BorrowedFd<'_>) -> Result<CounterMapping, MapError> {
        let size = rustix::fs::fstat(fd)
            .map_err(|source| MapError::Kernel { call: "fstat", size: 0, source })?
            .st_size as u64;
        Ok(CounterMapping { mapping: Mapping::with(fd, size, 0, Kind::ReadOnly)? })
    }

    /// The current value of the counter at `index`; `None` past the end.
    pub fn get(&self, index: usize) -> Option<u64> {
        let bytes = self.mapping.slice(index as u64 * 8, 8)?;
        bytes.atomics_u64()?.first().map(|word| word.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// The current bytes `from..to`; `None` if they are not all inside.
    pub fn bytes(&self, from: u64, to: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(to.checked_sub(from)?).ok()?];
        self.mapping.slice(from, bytes.len())?.read_bytes(&mut bytes);
        Some(bytes)
    }
}

/// A memfd of our own, mapped: memory of a lab guest, or counters that others may read.
#[derive(Debug)]
pub struct SharedFile {
    fd: OwnedFd,
    mapping: Mapping,
    large: bool,
}

impl SharedFile {
    /// Creates and maps `size` bytes of zeros on `pages`.
    pub fn create(name: &str, size: u64, pages: Pages) -> Result<SharedFile, MapError> {
        let kernel = |call, source| match source {
            Errno::NOMEM | Errno::NOSPC | Errno::INVAL if pages == Pages::Huge2M => {
                let remedy = "reserve some with `sysctl vm.nr_hugepages=N`, or use ordinary pages";
                MapError::NoMemory { size, pages, remedy }
            }
            Errno::NOMEM | Errno::NOSPC => {
                let remedy = "free some memory, or raise the cgroup's memory.max";
                MapError::NoMemory { size, pages, remedy }
            }
            source => MapError::Kernel { call, size, source },
        };
        let flags = match pages {
            Pages::Ordinary | Pages::Collapsed => MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
            Pages::Huge2M => MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        };
        let fd = rustix::fs::memfd_create(name, flags).map_err(|e| kernel("memfd_create", e))?;
        rustix::fs::ftruncate(&fd, size).map_err(|e| kernel("ftruncate", e))?;
        // Huge pages are allocated now, so that too few are an error here and not a SIGBUS later.
        if pages == Pages::Huge2M {
            let all = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&fd, all, 0, size).map_err(|e| kernel("fallocate", e))?;
        } else {
            let seals = SealFlags::SHRINK | SealFlags::GROW;
            rustix::fs::fcntl_add_seals(&fd, seals).map_err(|e| kernel("F_ADD_SEALS", e))?;
        }
        let mapping = Mapping::new(fd.as_fd(), size, 0)?;
        let large = match pages {
            Pages::Ordinary => false,
            Pages::Collapsed => mapping.collapse(),
            Pages::Huge2M => true,
        };
        Ok(SharedFile { fd, mapping, large })
    }

    /// Returns `true` if the memory is on 2 MiB pages.
    pub fn has_large_pages(&self) -> bool {
        self.large
    }

    /// The mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The file, to share.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The file alone, without the mapping.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// A second handle of the file.
    pub fn file(&self) -> std::io::Result<File> {
        Ok(File::from(self.fd.try_clone()?))
    }
}
