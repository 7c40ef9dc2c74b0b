//! Mapped files: what a front-end hands over, and what we create ourselves.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::guard::{self, Guarded};
use crate::quota::{Quota, Taken};
use crate::slice::GuestSlice;

/// Bytes of a large page.
const LARGE_PAGE: usize = 2 << 20;
/// Bytes whose page tables are taken apart at a time: 1 to 2 ms.
const UNMAP_STEP: usize = 16 << 20;
/// `MADV_COLLAPSE` of linux/mman.h, which libc does not name for every target.
const MADV_COLLAPSE: libc::c_int = 25;

/// Why a file could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The range is empty or too large to address.
    #[error(
        "a mapping of {size} bytes at file offset {offset} is not possible; sizes are 1 byte to 2^47 bytes"
    )]
    BadRange {
        /// Bytes asked for.
        size: u64,
        /// Offset in the file, bytes.
        offset: u64,
    },
    /// The file ends before the range does (CVE-2026-86561 of another data plane).
    #[error(
        "the file holds {file} bytes but {need} are to be mapped; the front-end must share all of it"
    )]
    FileTooSmall {
        /// Size of the file, bytes.
        file: u64,
        /// Offset plus size asked for, bytes.
        need: u64,
    },
    /// The process holds too many mappings.
    #[error(
        "this process maps {} regions already, its limit; end other guests, or have their \
         memory shared in fewer regions",
        guard::MAPPINGS_MAX
    )]
    TooMany,
    /// One session would have too much mapped.
    #[error(
        "this session would have {bytes} bytes mapped, and may have {max_mib} MiB; share less \
         memory with it, or raise limits.session_memory_mib and restart the daemon"
    )]
    SessionQuota {
        /// Bytes of the session, with what was asked for.
        bytes: u64,
        /// Its limit.
        max_mib: u64,
    },
    /// All sessions together would have too much mapped.
    #[error(
        "all sessions have {total} bytes mapped and may have {max_mib} MiB, so {bytes} more are \
         not possible; end other guests, or raise limits.guest_memory_mib and restart the daemon"
    )]
    TotalQuota {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes that are mapped.
        total: u64,
        /// Their limit.
        max_mib: u64,
    },
    /// The process has no addresses left, or no mappings.
    #[error(
        "no addresses are left to map {size} bytes; raise this process's limits (ulimit -v, \
         sysctl vm.max_map_count), or end other guests"
    )]
    NoAddresses {
        /// Bytes asked for.
        size: u64,
    },
    /// There is too little memory, or too few huge pages.
    #[error("no memory for {size} bytes of {pages}; {remedy}")]
    NoMemory {
        /// Bytes asked for.
        size: u64,
        /// Kind of pages asked for.
        pages: Pages,
        /// What the operator can do.
        remedy: &'static str,
    },
    /// The kernel refused for another reason.
    #[error("{call} of {size} bytes failed")]
    Kernel {
        /// System call.
        call: &'static str,
        /// Bytes asked for.
        size: u64,
        /// The kernel's word.
        #[source]
        source: Errno,
    },
}

/// Pages behind a file that we create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The machine's ordinary pages.
    Ordinary,
    /// 2 MiB pages that the kernel gathers from ordinary ones (`MADV_COLLAPSE`, Linux 6.1), which
    /// nobody needs to reserve or allow; where it does not, ordinary ones.
    Gathered,
    /// 2 MiB huge pages, which the operator has reserved.
    Huge2M,
}

impl std::fmt::Display for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Pages::Ordinary | Pages::Gathered => "ordinary pages",
            Pages::Huge2M => "2 MiB huge pages",
        })
    }
}

/// How a file is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The range must be in the file.
    Whole,
    /// As that, and nothing is written.
    ReadOnly,
    /// The file has no size.
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
    mapped: Option<Mapped>,
    /// Another thread that unmaps it, if one does.
    free: Option<Arc<dyn Free>>,
}

/// A thread that frees what takes time: unmapping 1 GiB takes 0.1 s, and the last hold on a file
/// frees its pages.
pub trait Free: fmt::Debug + Send + Sync {
    /// Drops the mapped pages there.
    fn free(&self, mapped: Mapped);
}

/// What the kernel mapped: whole pages around a [`Mapping`]. Dropping it unmaps them.
#[derive(Debug)]
pub struct Mapped {
    base: *mut libc::c_void,
    length: usize,
    /// Present until they are unmapped.
    guarded: Option<Guarded>,
    /// Its part of a quota, given back once it is unmapped.
    taken: Option<Taken>,
}

// SAFETY: an address range of the process's, which any thread may unmap.
unsafe impl Send for Mapped {}

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

    /// As [`new`](Self::new), of a file of the kernel's own that has no size: what is not there is
    /// known when it is touched, and then is as if the file had been shrunk.
    ///
    /// # Errors
    /// As there.
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
                // Memory is taken when it is touched: none can be missing here.
                Errno::NOMEM => MapError::NoAddresses { size },
                source => kernel("mmap", source),
            })?;
        let guarded = guard(base, length).map_err(|(call, source)| kernel(call, source));
        let guarded = guarded.and_then(|guarded| guarded.ok_or(MapError::TooMany));
        let guarded = guarded.inspect_err(|_| {
            // SAFETY: just mapped, and nobody else knows of it.
            let _ = unsafe { rustix::mm::munmap(base, length) };
        })?;
        // SAFETY: `lead < length`, so the result is inside the mapping.
        let start = unsafe { base.cast::<u8>().add(lead as usize) };
        let mapped = Mapped { base, length, guarded: Some(guarded), taken: None };
        Ok(Mapping { start, size: size as usize, mapped: Some(mapped), free: None })
    }

    /// The same mapping as a part of what all sessions may have.
    ///
    /// # Errors
    /// They have that already: [`MapError::TotalQuota`]. It is unmapped then.
    pub fn charged(mut self, quota: &Arc<Quota>) -> Result<Mapping, MapError> {
        let taken = quota.take(self.size as u64)?;
        self.mapped.as_mut().expect("present until it is dropped").taken = Some(taken);
        Ok(self)
    }

    /// The same, unmapped by another thread when the last hold on it is dropped.
    pub fn freed_by(mut self, free: Arc<dyn Free>) -> Mapping {
        self.free = Some(free);
        self
    }

    /// The whole pages.
    fn mapped(&self) -> &Mapped {
        self.mapped.as_ref().expect("present until it is dropped")
    }

    /// Bytes mapped.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether the file shrank under the mapping: what is left reads as zeros.
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

    /// Bytes of it that are in memory now, whole pages; the others are allocated when they are
    /// touched. Looks at every page: not for a mapping that is larger than the machine's memory.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn resident(&self) -> Result<u64, Errno> {
        const STEP: usize = 1 << 28;
        let page = rustix::param::page_size();
        let &Mapped { base, length, .. } = self.mapped();
        let mut seen = vec![0u8; STEP.min(length).div_ceil(page)];
        let mut resident = 0;
        for from in (0..length).step_by(STEP) {
            let len = STEP.min(length - from);
            // SAFETY: the range is what was mapped, or a part of it, from a page on; `seen` has a
            // byte for each of its pages. Nothing of the mapping is read.
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

    /// How far from the start a slice is, if all of it is of this mapping.
    #[inline]
    pub fn offset_of(&self, slice: &GuestSlice<'_>) -> Option<u64> {
        let offset = slice.address().checked_sub(self.address())?;
        let end = offset + u64::from(slice.len());
        (end <= self.size as u64).then_some(offset)
    }

    /// Address of the first byte in this process: what the kernel wants to know of memory that it
    /// is to share.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// First byte, for tables of regions.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Mapping {
    /// Asks the kernel to gather the memory in 2 MiB pages, now; says whether it did. All of it is
    /// allocated by this.
    fn gather(&self) -> bool {
        let &Mapped { base, length, .. } = self.mapped();
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
        if let (Some(free), Some(mapped)) = (self.free.take(), self.mapped.take()) {
            free.free(mapped);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // Page tables first, in steps: while the kernel takes them apart no other thread of the
        // process can map anything.
        for from in (0..self.length).step_by(UNMAP_STEP) {
            let len = UNMAP_STEP.min(self.length - from);
            // SAFETY: a part of the range that `new` mapped. Every slice into it borrowed the
            // mapping, so no thread reads it any more; a shared file keeps what it holds.
            let _ = unsafe {
                let start = self.base.wrapping_byte_add(from);
                rustix::mm::madvise(start, len, Advice::LinuxDontNeed)
            };
        }
        // Out of the table first: once unmapped, the address may become another mapping's.
        self.guarded = None;
        // SAFETY: exactly the range that `new` mapped, and every slice into it borrowed that.
        let _ = unsafe { rustix::mm::munmap(self.base, self.length) };
    }
}

/// Maps `length` bytes of a file of ordinary pages, so that what the kernel gathers in a large page
/// of the file can be one here: both begin at multiples of 2 MiB, or equally far behind them. Where
/// the address is lost to somebody else meanwhile, the mapping is merely slower. A file of huge
/// pages has its own alignment, which the kernel sees to.
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
        // SAFETY: a new mapping at an address of the kernel's choice, which nobody else knows of,
        // comes and goes: it shows where there is room.
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

/// Keeps what was just mapped out of core dumps, for it may hold guests' data, and enters it in the
/// table of the truncation guard; `None` if that is full.
fn guard(base: *mut libc::c_void, length: usize) -> Result<Option<Guarded>, (&'static str, Errno)> {
    // SAFETY: the advice changes nothing of what the memory holds.
    unsafe { rustix::mm::madvise(base, length, Advice::LinuxDontDump) }
        .map_err(|errno| ("madvise", errno))?;
    Guarded::enter(base as usize, length).map_err(|errno| ("memfd_create", errno))
}

/// A file of words that another process writes, mapped read-only: counters.
#[derive(Debug)]
pub struct ReadOnlyWords {
    mapping: Mapping,
}

impl ReadOnlyWords {
    /// Maps the whole file.
    pub fn open(fd: BorrowedFd<'_>) -> Result<ReadOnlyWords, MapError> {
        let size = rustix::fs::fstat(fd)
            .map_err(|source| MapError::Kernel { call: "fstat", size: 0, source })?
            .st_size as u64;
        Ok(ReadOnlyWords { mapping: Mapping::with(fd, size, 0, Kind::ReadOnly)? })
    }

    /// The word at `index`, now; `None` past the end.
    pub fn get(&self, index: usize) -> Option<u64> {
        let bytes = self.mapping.slice(index as u64 * 8, 8)?;
        bytes.atomics_u64()?.first().map(|word| word.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// The bytes `from..to`, as they are now; `None` if they are not all inside.
    pub fn bytes(&self, from: u64, to: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(to.checked_sub(from)?).ok()?];
        self.mapping.slice(from, bytes.len())?.read_bytes(&mut bytes);
        Some(bytes)
    }
}

/// A memfd of our own, mapped: the memory of a lab's guest, or counters that others may read.
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
                let remedy = "reserve some with `sysctl vm.nr_hugepages=N`, or do without";
                MapError::NoMemory { size, pages, remedy }
            }
            Errno::NOMEM | Errno::NOSPC => {
                let remedy = "free some memory, or raise the cgroup's memory.max";
                MapError::NoMemory { size, pages, remedy }
            }
            source => MapError::Kernel { call, size, source },
        };
        let flags = match pages {
            Pages::Ordinary | Pages::Gathered => MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
            Pages::Huge2M => MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        };
        let fd = rustix::fs::memfd_create(name, flags).map_err(|e| kernel("memfd_create", e))?;
        rustix::fs::ftruncate(&fd, size).map_err(|e| kernel("ftruncate", e))?;
        // Huge pages are taken now, so that too few are an error here and not a SIGBUS later.
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
            Pages::Gathered => mapping.gather(),
            Pages::Huge2M => true,
        };
        Ok(SharedFile { fd, mapping, large })
    }

    /// Whether the memory is on 2 MiB pages.
    pub fn has_large_pages(&self) -> bool {
        self.large
    }

    /// The mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The file, to hand over.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The file alone, to be handed over for good.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// A second handle of the file.
    pub fn file(&self) -> std::io::Result<File> {
        Ok(File::from(self.fd.try_clone()?))
    }
}
