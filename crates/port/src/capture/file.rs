//! Opening a capture's file: the path is the operator's, but others may write to its directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::CaptureError;

/// First bytes of a pcapng file (section 4.1: type of a section header, the same in both byte
/// orders).
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Opens and empties the file, or creates it. An existing file must be a capture or empty: the
/// right to name captures is not the right to empty other files of the host.
pub(super) fn open(path: &Path) -> Result<File, CaptureError> {
    let failed = |source| CaptureError::Open { path: path.to_owned(), source };
    let not_a_file = || CaptureError::NotAFile { path: path.to_owned() };
    // Checked first, because opening a device has side effects.
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return Err(not_a_file()),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => (),
    }
    // If the file is replaced meanwhile, no link is followed and nothing blocks.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(not_a_file());
    }
    match file.try_lock() {
        Ok(()) => (),
        Err(TryLockError::WouldBlock) => {
            return Err(CaptureError::Busy { path: path.to_owned() });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let mut begins = [0; SECTION_HEADER.len()];
    match file.read_at(&mut begins, 0).map_err(failed)? {
        0 => (),
        _ if begins == SECTION_HEADER => (),
        _ => return Err(CaptureError::NotACapture { path: path.to_owned() }),
    }
    file.set_len(0).map_err(failed)?;
    Ok(file)
}
