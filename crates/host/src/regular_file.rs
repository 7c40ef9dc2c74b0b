//! Regular files of untrusted paths. Opening a file of another type can have effects: a FIFO waits,
//! and a watchdog starts.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Opens a regular file for reading; `None` if it is of another type, which is not opened.
///
/// # Errors
/// The kernel's.
pub fn open(path: &Path) -> Result<Option<File>, Errno> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
    if kind != FileType::RegularFile {
        return Ok(None);
    }
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    let opened = rustix::fs::open(itself, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Some(opened.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("file"), "text").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        for name in ["file", "link"] {
            assert_eq!(
                std::io::read_to_string(open(&path(name)).unwrap().unwrap()).unwrap(),
                "text"
            );
        }
        assert!(open(&path("fifo")).unwrap().is_none(), "and nothing waits");
        assert!(open(dir.path()).unwrap().is_none());
        assert_eq!(open(&path("missing")).unwrap_err(), Errno::NOENT);
    }
}
