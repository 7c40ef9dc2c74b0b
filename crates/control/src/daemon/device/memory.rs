//! What a front-end hands over as memory: which files are taken, and how they are mapped.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use guestmem::{Mapping, Region};
use vhost_user::{MemoryRegion, Refused};

/// An error as a refusal.
pub(super) fn refused(error: impl std::fmt::Display) -> Refused {
    Refused::new(error.to_string())
}

/// An error with its causes, in one line.
pub(super) fn refused_chain(error: &dyn std::error::Error) -> Refused {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    Refused::new(text)
}

/// Only what cannot stall a lane is taken.
pub(super) fn check_kind(fd: BorrowedFd<'_>) -> Result<(), Refused> {
    if guestmem::is_memory(fd) {
        return Ok(());
    }
    Err(Refused::new(
        "guest memory must be a memfd, or a file in /dev/shm or on hugetlbfs; \
         with QEMU: -object memory-backend-memfd,share=on",
    ))
}

/// A region of a guest's memory, mapped.
pub(super) fn map(region: &MemoryRegion) -> Result<Region, Refused> {
    check_kind(region.fd.as_fd())?;
    let mapping = Mapping::new(region.fd.as_fd(), region.size, region.mmap_offset);
    let mapping = Arc::new(mapping.map_err(|error| refused_chain(&error))?);
    Ok(Region { guest_addr: region.guest_addr, user_addr: region.user_addr, mapping })
}
