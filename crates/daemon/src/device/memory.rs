//! Memory of a front-end: accepted files, and their mapping.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use engine::limits::Limit;
use guestmem::{MapError, MappedPages, Mapping, Quota, Region, Unmapper};
use vhost_user::{Closer, MemoryRegion, Refused, SharedArea};

/// Converts an error.
pub(super) fn refused(error: impl std::fmt::Display) -> Refused {
    Refused::new(error.to_string())
}

/// The limit that a mapping met, if any.
pub(in super::super) fn limit_met(error: &MapError) -> Option<Limit> {
    match error {
        MapError::SessionQuota { .. } => Some(Limit::SessionMemory),
        MapError::TotalQuota { .. } => Some(Limit::GuestMemory),
        MapError::TooMany | MapError::NoAddresses { .. } => Some(Limit::Mappings),
        MapError::BadRange { .. }
        | MapError::FileTooSmall { .. }
        | MapError::NoMemory { .. }
        | MapError::Kernel { .. } => None,
    }
}

/// Converts an error of mapping.
pub(super) fn unmapped(error: &MapError) -> Refused {
    let limit = limit_met(error).map(|limit| limit.entry().name);
    Refused { limit, ..refused_chain(error) }
}

/// Converts an error with its causes, in one line.
pub(super) fn refused_chain(error: &dyn std::error::Error) -> Refused {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    Refused::new(text)
}

/// Accepts only files that cannot stall a lane.
fn check_kind(fd: BorrowedFd<'_>) -> Result<(), Refused> {
    if guestmem::is_memory_file(fd) {
        return Ok(());
    }
    Err(Refused::new(
        "guest memory must be a memfd, or a file in /dev/shm or on hugetlbfs; \
         with QEMU: -object memory-backend-memfd,share=on",
    ))
}

/// Maps a region of a guest's memory.
pub(super) fn map(
    region: &MemoryRegion,
    quota: &Arc<Quota>,
    closer: &Closer,
) -> Result<Region, Refused> {
    let MemoryRegion { guest_addr, size, user_addr, mmap_offset, fd } = region;
    let mapping = Arc::new(mapped(fd.as_fd(), [*size, *mmap_offset], quota, closer)?);
    Ok(Region { guest_addr: *guest_addr, user_addr: *user_addr, mapping })
}

/// Maps the first `size` bytes of a dirty log or of in-flight records.
pub(super) fn map_area(
    area: &SharedArea,
    size: u64,
    quota: &Arc<Quota>,
    closer: &Closer,
) -> Result<Mapping, Refused> {
    mapped(area.fd.as_fd(), [size, area.offset], quota, closer)
}

fn mapped(
    fd: BorrowedFd<'_>,
    [size, offset]: [u64; 2],
    quota: &Arc<Quota>,
    closer: &Closer,
) -> Result<Mapping, Refused> {
    check_kind(fd)?;
    let mapping = Mapping::new(fd, size, offset).and_then(|mapping| mapping.charged(quota));
    let mapping = mapping.map_err(|error| unmapped(&error))?;
    Ok(mapping.unmapped_by(Arc::new(FreedThere(closer.clone()))))
}

/// Unmaps in the session's thread, whichever thread drops the mapping last.
#[derive(Debug)]
struct FreedThere(Closer);

impl Unmapper for FreedThere {
    fn unmap(&self, pages: MappedPages) {
        self.0.free(pages);
    }
}
