//! Opening a capture's file: the path is the operator's, but others may write to its directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use host::launcher::{self, Answer, Request, ask};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::CaptureError;

/// First bytes of a pcapng file (section 4.1: type of a section header, the same in both byte
/// orders).
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Opens and empties the file, or creates it. An existing file must be a capture or empty: the
/// right to name captures is not the right to empty other files of the host.
pub(super) fn open(path: &Path) -> Result<File, CaptureError> {
    let at = || path.to_owned();
    let failed = |source| CaptureError::Open { path: at(), source };
    let opened = match open_capture(path) {
        Err(Errno::ACCESS | Errno::PERM) if launcher::is_present() => {
            let asked = ask(OpenCapture { path: at() }, &[]);
            asked.map(|(opened, fds)| {
                opened.and_then(|()| fds.into_iter().next().ok_or(CaptureRefusal::NotAFile))
            })
        }
        opened => opened.map(|opened| opened.map(OwnedFd::from)),
    };
    let opened = opened.map_err(|errno| failed(errno.into()))?;
    let file = opened.map_err(|refusal| match refusal {
        CaptureRefusal::NotAFile => CaptureError::NotAFile { path: at() },
        CaptureRefusal::NotACapture => CaptureError::NotACapture { path: at() },
        CaptureRefusal::Busy => CaptureError::Busy { path: at() },
        CaptureRefusal::Name => CaptureError::Name { path: at() },
    })?;
    let file = File::from(file);
    file.set_len(0).map_err(failed)?;
    Ok(file)
}

/// Reason for which a file is no place for a capture.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum CaptureRefusal {
    /// It is of another type than a regular file.
    NotAFile,
    /// It contains something else.
    NotACapture,
    /// Another process writes to it.
    Busy,
    /// Outside the daemon's directories its name must be that of a capture.
    Name,
}

/// Opens a file for a capture, or creates it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenCapture {
    path: PathBuf,
}

impl Request for OpenCapture {
    const NAME: &'static str = "open-capture";
    const DOES: &'static str =
        "opens for writing a regular file named `*.pcapng` that is new, empty or a capture";
    type Reply = Result<(), CaptureRefusal>;

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<Result<(), CaptureRefusal>> {
        // A new file has a mode of 0600. Its name keeps it from being the configuration of a
        // program: the contents are the daemon's.
        if self.path.extension() != Some("pcapng".as_ref()) {
            return Ok((Err(CaptureRefusal::Name), Vec::new()));
        }
        match open_capture(&self.path)? {
            Ok(file) => Ok((Ok(()), vec![file.into()])),
            Err(refusal) => Ok((Err(refusal), Vec::new())),
        }
    }
}

fn open_capture(path: &Path) -> Result<Result<File, CaptureRefusal>, Errno> {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    // Checked first, because opening a device has side effects.
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => return Ok(Err(CaptureRefusal::NotAFile)),
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
        return Ok(Err(CaptureRefusal::NotAFile));
    }
    match file.try_lock() {
        Ok(()) => (),
        Err(TryLockError::WouldBlock) => return Ok(Err(CaptureRefusal::Busy)),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    let mut begins = [0; SECTION_HEADER.len()];
    match file.read_at(&mut begins, 0).map_err(failed)? {
        0 => (),
        _ if begins == SECTION_HEADER => (),
        _ => return Ok(Err(CaptureRefusal::NotACapture)),
    }
    Ok(Ok(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_opens_only_captures_by_name_and_contents() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("text.pcapng"), "precious").unwrap();
        std::os::unix::fs::symlink(path("text.pcapng"), path("link.pcapng")).unwrap();
        let refusal = |name: &str| {
            OpenCapture { path: path(name) }.serve(&[]).map(|(opened, _)| opened.err())
        };
        assert!(matches!(refusal("new"), Ok(Some(CaptureRefusal::Name))));
        assert!(matches!(refusal("new.conf"), Ok(Some(CaptureRefusal::Name))));
        assert!(matches!(refusal("text.pcapng"), Ok(Some(CaptureRefusal::NotACapture))));
        assert!(matches!(refusal("link.pcapng"), Ok(Some(CaptureRefusal::NotAFile))));
        assert!(matches!(refusal("new.pcapng"), Ok(None)));
        assert!(!path("new").exists() && path("new.pcapng").exists());
        assert_eq!(std::fs::read(path("text.pcapng")).unwrap(), b"precious");
    }
}
