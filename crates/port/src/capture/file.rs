//! Opening a capture's file: the path is the operator's, but others may write to its directory.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use host::launcher::{self, Answer, Request, ask, check_file};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::CaptureError;
use crate::pcap::SECTION_HEADER;

/// Opens and empties the file, or creates it. An existing file must be a capture or empty: the
/// right to name captures is not the right to empty other files of the host.
pub(super) fn open(path: &Path) -> Result<File, CaptureError> {
    let at = || path.to_owned();
    let failed = |source| CaptureError::Open { path: at(), source };
    let opened = match Directory::of(path).and_then(|directory| directory.open_capture()) {
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
        CaptureRefusal::Place => CaptureError::Place { path: at() },
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
    /// Outside the daemon's directories a program may read it as its configuration.
    Place,
}

/// Opens a file for a capture, or creates it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenCapture {
    path: PathBuf,
}

impl Request for OpenCapture {
    const NAME: &'static str = "open-capture";
    const DOES: &'static str =
        "opens for writing a file `*.pcapng`, new, empty or a capture, in no directory of settings";
    type Reply = Result<(), CaptureRefusal>;

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        check_file(&self.path)
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<Result<(), CaptureRefusal>> {
        let directory = Directory::of(&self.path)?;
        // A new file has a mode of 0600, but its contents are the daemon's.
        if self.path.extension() != Some("pcapng".as_ref()) || directory.has_settings()? {
            return Ok((Err(CaptureRefusal::Place), Vec::new()));
        }
        match directory.open_capture()? {
            Ok(file) => Ok((Ok(()), vec![file.into()])),
            Err(refusal) => Ok((Err(refusal), Vec::new())),
        }
    }
}

/// Directories in which programs read all files as their settings, some of which name commands.
const SETTINGS: [&str; 8] =
    ["/bin", "/boot", "/etc", "/lib", "/lib64", "/sbin", "/usr", "/var/spool"];

/// A file's name, and its directory, which stays the same whatever happens to its path.
struct Directory<'a> {
    directory: OwnedFd,
    name: &'a Path,
}

impl Directory<'_> {
    fn of(path: &Path) -> Result<Directory<'_>, Errno> {
        let (directory, name) = host::directory::of_file(path)?.ok_or(Errno::ISDIR)?;
        Ok(Directory { directory, name })
    }

    /// `true` for a directory of settings, or one in a hidden directory.
    fn has_settings(&self) -> Result<bool, Errno> {
        let itself = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        let real = rustix::fs::readlink(itself, Vec::new())?;
        let real = Path::new(OsStr::from_bytes(real.as_bytes()));
        let is_hidden = |part: &OsStr| part.as_bytes().starts_with(b".");
        Ok(SETTINGS.iter().any(|one| real.starts_with(one)) || real.iter().any(is_hidden))
    }

    fn open_capture(&self) -> Result<Result<File, CaptureRefusal>, Errno> {
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let kind = |is: Stat| FileType::from_raw_mode(is.st_mode);
        // Checked first, because opening a device has side effects.
        let found = rustix::fs::statat(&self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW);
        match found.map(kind) {
            Ok(FileType::RegularFile) | Err(Errno::NOENT) => {}
            Ok(_) => return Ok(Err(CaptureRefusal::NotAFile)),
            Err(errno) => return Err(errno),
        }
        // If the file is replaced meanwhile, no link is followed and nothing blocks.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.directory, self.name, flags, mode)?;
        if kind(rustix::fs::fstat(&file)?) != FileType::RegularFile {
            return Ok(Err(CaptureRefusal::NotAFile));
        }
        let file = File::from(file);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_opens_only_captures_by_name_and_contents() {
        let dir = tempfile::Builder::new().prefix("captures").tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path(".hidden")).unwrap();
        std::os::unix::fs::symlink("/etc", path("settings")).unwrap();
        std::fs::write(path("text.pcapng"), "precious").unwrap();
        std::os::unix::fs::symlink(path("text.pcapng"), path("link.pcapng")).unwrap();
        let refusal = |name: &str| {
            OpenCapture { path: path(name) }.serve(&[]).map(|(opened, _)| opened.err())
        };
        assert!(matches!(refusal("new"), Ok(Some(CaptureRefusal::Place))));
        for name in ["new.conf", "settings/new.pcapng", ".hidden/new.pcapng"] {
            assert!(matches!(refusal(name), Ok(Some(CaptureRefusal::Place))), "{name}");
        }
        assert!(matches!(refusal("missing/new.pcapng"), Err(Errno::NOENT)));
        assert!(matches!(refusal("text.pcapng"), Ok(Some(CaptureRefusal::NotACapture))));
        assert!(matches!(refusal("link.pcapng"), Ok(Some(CaptureRefusal::NotAFile))));
        assert!(matches!(refusal("new.pcapng"), Ok(None)));
        assert!(!path("new").exists() && path("new.pcapng").exists());
        assert_eq!(std::fs::read(path("text.pcapng")).unwrap(), b"precious");
    }
}
