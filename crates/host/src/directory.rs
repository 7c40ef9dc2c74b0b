//! Directories of untrusted paths.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Opens the directory of a file, which stays the same whatever happens to its path; returns it
/// with the file's name. `None` if the path has no name.
///
/// # Errors
/// The kernel's.
pub fn of_file(path: &Path) -> Result<Option<(OwnedFd, &Path)>, Errno> {
    let Some(name) = path.file_name() else { return Ok(None) };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Some((rustix::fs::open(directory, flags, Mode::empty())?, name.as_ref())))
}
