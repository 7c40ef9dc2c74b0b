//! Errors of mapping a file.

use rustix::io::Errno;

use crate::guard;
use crate::pages::Pages;

/// Reasons that a file could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The range is empty or too large to address.
    #[error("cannot map {size} bytes at file offset {offset}; allowed: 1 byte to 2^47 bytes")]
    BadRange {
        /// Bytes asked for.
        size: u64,
        /// Offset in the file, bytes.
        offset: u64,
    },
    /// The file ends before the range does.
    #[error("the file has {file} bytes, {need} are needed; the front-end must share all of it")]
    FileTooSmall {
        /// Size of the file, bytes.
        file: u64,
        /// Offset plus size asked for, bytes.
        need: u64,
    },
    /// The process holds too many mappings.
    #[error(
        "this process maps {} regions, its limit; stop other guests, or share their memory \
         in fewer regions",
        guard::MAPPINGS_MAX
    )]
    TooMany,
    /// A session would exceed its limit of mapped memory.
    #[error(
        "this session would map {bytes} bytes, its limit is {max_mib} MiB; share less memory, or \
         raise limits.session_memory_mib and restart the daemon"
    )]
    SessionQuota {
        /// Bytes of the session, with those asked for.
        bytes: u64,
        /// Its limit.
        max_mib: u64,
    },
    /// All sessions together would exceed their limit of mapped memory.
    #[error(
        "all sessions map {total} bytes of at most {max_mib} MiB, too many for {bytes} more; stop \
         other guests, or raise limits.guest_memory_mib and restart the daemon"
    )]
    TotalQuota {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes mapped already.
        total: u64,
        /// Limit of all sessions.
        max_mib: u64,
    },
    /// The process has no addresses or mappings left.
    #[error(
        "no address space left to map {size} bytes; raise this process's limits (ulimit -v, \
         sysctl vm.max_map_count), or stop other guests"
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
        /// Action for the operator.
        remedy: &'static str,
    },
    /// The kernel refused for another reason.
    #[error("{call} of {size} bytes failed")]
    Kernel {
        /// System call.
        call: &'static str,
        /// Bytes asked for.
        size: u64,
        /// The kernel's error.
        #[source]
        source: Errno,
    },
}
