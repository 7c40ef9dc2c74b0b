//! Files that are memory.

use std::os::fd::BorrowedFd;

/// Whether a file is on tmpfs, memfds among them, or on hugetlbfs: its pages come from the kernel
/// alone, never from a disk's file system, a network or a file system in user space, which could
/// withhold a page for ever.
///
/// Touching such a page may still take long: a fault waits while its owner punches a hole where it
/// is (hundreds of milliseconds for one of 1 GiB), and a page that was swapped out is read from
/// disk. Nothing tells that beforehand; whoever touches such memory is watched (`host::standing`).
///
/// Nobody but the kernel is asked, and not the file's own file system, which could be one that does
/// not answer: such files alone have seals (`F_GET_SEALS` in fcntl(2)), whether or not any may be
/// set.
pub fn is_memory(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(fd).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::{Pages, SharedFile};

    #[test]
    fn memory_is_told_from_other_files() {
        let memory = SharedFile::create("memory", 4096, Pages::Ordinary).unwrap();
        assert!(is_memory(memory.fd()));
        for path in ["/dev/zero", "/proc/self/maps", "/sys"] {
            assert!(!is_memory(File::open(path).unwrap().as_fd()), "{path}");
        }
    }

    #[test]
    fn a_file_of_a_directory_is_memory_where_its_file_system_is() {
        let nameless = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open("/dev/shm", nameless, Mode::RUSR).unwrap();
        assert!(is_memory(file.as_fd()));
    }
}
