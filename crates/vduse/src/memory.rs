//! The driver's memory: the files behind the device's addresses.
//!
//! # Files
//! - A driver of this kernel (virtio-vdpa) never shares its own memory. The kernel has a domain of
//!   pages for the device: rings, and *bounce pages* through which it copies the driver's data. All
//!   of that is one file, `[vduse-domain]`. Its pages appear when the driver maps a buffer; access
//!   to another one is a SIGBUS, which the truncation guard turns into a stopped ring.
//! - A driver behind vhost-vdpa (a QEMU guest) has memory of its own, in files of the VMM's choice:
//!   they are checked like those of a vhost-user front-end.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use guestmem::{GuestMemory, Mapping, Quota, REGIONS_MAX, Region};
use rustix::io::Errno;

use crate::{IotlbEntry, Kernel, VduseError};

/// `VDUSE_ACCESS_RW`.
const READ_WRITE: u8 = 3;

/// Longer than all parts of a ring; guest memory that does not begin at 0 is longer.
const NO_RING: u64 = 1 << 20;

/// Returns `true` if there is memory for buffers, not only for rings. A driver of this kernel has
/// only rings before it maps its first buffer; its bounce pages begin at address 0.
pub(crate) fn has_buffers(kernel: &impl Kernel) -> Result<bool, Errno> {
    let mut from = Some(0);
    while let Some(at) = from {
        let Some((entry, _)) = kernel.region(at)? else { break };
        if entry.start == 0 || entry.last.wrapping_sub(entry.start) >= NO_RING {
            return Ok(true);
        }
        from = next(&entry, at);
    }
    Ok(false)
}

/// The first address behind a range that was found from `at` on.
fn next(entry: &IotlbEntry, at: u64) -> Option<u64> {
    entry.last.checked_add(1).filter(|next| *next > at)
}

/// Maps all of the device's memory. Read-only ranges are left out; a ring in one counts as broken,
/// since a driver maps nothing as always read-only.
pub(crate) fn map(
    name: &str,
    kernel: &impl Kernel,
    quota: &Arc<Quota>,
) -> Result<Arc<GuestMemory>, VduseError> {
    let mut regions: Vec<Region> = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let region = kernel.region(at).map_err(|source| {
            let (call, name) = ("VDUSE_IOTLB_GET_FD", name.to_owned());
            VduseError::Call { call, name, source }
        })?;
        let Some((entry, file)) = region else { break };
        from = next(&entry, at);
        if entry.perm == READ_WRITE {
            let size = entry.last.wrapping_sub(entry.start).saturating_add(1);
            let start = entry.start;
            let sizes = regions.iter().map(|region| region.mapping.size() as u64);
            quota
                .check_session(sizes.chain([size]))
                .map_err(|source| VduseError::Map { start, source })?;
            let mapping = map_file(file.as_fd(), start, size, entry.offset)?
                .charged(quota)
                .map_err(|source| VduseError::Map { start, source })?;
            let (guest_addr, user_addr) = (entry.start, entry.start);
            regions.push(Region { guest_addr, user_addr, mapping: Arc::new(mapping) });
        }
        if regions.len() > REGIONS_MAX {
            break; // which is then refused
        }
    }
    Ok(Arc::new(GuestMemory::new(regions)?))
}

fn map_file(
    file: BorrowedFd<'_>,
    start: u64,
    size: u64,
    offset: u64,
) -> Result<Mapping, VduseError> {
    let mapping = match guestmem::is_memory_file(file) {
        true => Mapping::new(file, size, offset),
        false if is_domain(file) => Mapping::of_driver(file, size, offset),
        false => return Err(VduseError::Kind { start }),
    };
    mapping.map_err(|source| VduseError::Map { start, source })
}

/// Returns `true` if a file is the kernel's own domain of a device; no other file can have that
/// name.
fn is_domain(file: BorrowedFd<'_>) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    link.is_ok_and(|name| name.as_os_str() == "anon_inode:[vduse-domain]")
}
