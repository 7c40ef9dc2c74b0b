//! Test for files that are memory: tmpfs (memfd) and hugetlbfs.

use std::os::fd::BorrowedFd;

/// Returns `true` if a file is on tmpfs (as a memfd is) or hugetlbfs. Their pages come from the
/// kernel alone. A disk's, a network's or a user-space file system could withhold a page for ever.
///
/// Access to such a page may still take long: a fault waits while the file's owner punches a hole
/// (hundreds of milliseconds for 1 GiB), and a swapped-out page is read from disk. No call predicts
/// that; threads that touch such memory are watched (`host::stall`).
///
/// The test asks only the kernel, not the file's own file system, which might not answer. Only
/// these files have seals (`F_GET_SEALS` in fcntl(2)), even if none may be set.
pub fn is_memory_file(fd: BorrowedFd<'_>) -> bool {
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
        assert!(is_memory_file(memory.fd()));
        for path in ["/dev/zero", "/proc/self/maps", "/sys"] {
            assert!(!is_memory_file(File::open(path).unwrap().as_fd()), "{path}");
        }
    }

    #[test]
    fn a_file_of_a_directory_is_memory_where_its_file_system_is() {
        let nameless = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open("/dev/shm", nameless, Mode::RUSR).unwrap();
        assert!(is_memory_file(file.as_fd()));
    }
}
