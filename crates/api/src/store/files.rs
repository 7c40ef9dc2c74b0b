//! File operations of the store, as a trait: tests can make each one fail.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::StoreError;

/// Largest file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// A directory of files that are replaced as a whole.
pub trait Files {
    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    /// As the system reports, or the file is larger than [`MAX_FILE_BYTES`].
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Writes a new file. After a crash its content is undefined.
    ///
    /// # Errors
    /// As the system reports.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Waits until the file's bytes are on disk.
    ///
    /// # Errors
    /// As the system reports.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Renames a file, replacing an existing one.
    ///
    /// # Errors
    /// As the system reports.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; a missing one is no error.
    ///
    /// # Errors
    /// As the system reports.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Waits until all names are on disk.
    ///
    /// # Errors
    /// As the system reports.
    fn sync_directory(&self) -> io::Result<()>;

    /// Name of the file for messages.
    fn shown(&self, name: &str) -> String;
}

/// A real directory, locked by this process while the value lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Open directory: files are reached through it, so no link in the path is followed twice.
    dir: OwnedFd,
    /// Held until the end.
    lock: OwnedFd,
}

/// Lock file; it stays in the directory after the lock is gone.
const LOCK: &str = "lock";

impl Directory {
    /// Creates the directory if needed, for its owner only, and locks it.
    ///
    /// # Errors
    /// It cannot be created or written to, or another process has it.
    pub fn open(path: &Path) -> Result<Directory, StoreError> {
        create(path)?;
        let dir = open_dir(path, OFlags::empty());
        let dir = dir.map_err(|errno| failed("open the state directory", path, errno))?;
        Directory::lock_in(path, dir)
    }

    /// Like [`open`](Self::open), in a directory where other users may create files.
    ///
    /// # Errors
    /// As [`open`](Self::open), or `path` is a symbolic link or another user's.
    pub fn open_own(path: &Path) -> Result<Directory, StoreError> {
        create(path)?;
        Directory::lock_in(path, open_own_dir(path)?)
    }

    fn lock_in(path: &Path, dir: OwnedFd) -> Result<Directory, StoreError> {
        // NONBLOCK: opening a FIFO of this name must not block.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let lock = open_file(&dir, LOCK, flags)
            .map_err(|errno| failed("write to the state directory", path, errno))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Directory { path: path.to_owned(), dir, lock: lock.into() }),
            Err(Errno::AGAIN) => Err(StoreError::InUse { directory: path.display().to_string() }),
            Err(errno) => Err(failed("lock the state directory", path, errno)),
        }
    }

    /// Continues with a directory and its lock, inherited from another process.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn inherit(path: &Path, lock: OwnedFd) -> Result<Directory, StoreError> {
        let dir = open_dir(path, OFlags::empty());
        let dir = dir.map_err(|errno| failed("open the state directory", path, errno))?;
        Ok(Directory { path: path.to_owned(), dir, lock })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `true` if `lock` is the lock of the directory at `path`.
    pub fn is_locked_by(path: &Path, lock: &OwnedFd) -> bool {
        let ours = rustix::fs::fstat(lock).map(|lock| (lock.st_dev, lock.st_ino));
        let there = rustix::fs::stat(path.join(LOCK)).map(|lock| (lock.st_dev, lock.st_ino));
        ours.is_ok() && ours == there
    }

    /// The lock, for a process that continues with the directory.
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }
}

fn failed(what: &'static str, path: &Path, errno: Errno) -> StoreError {
    StoreError::Io { what, file: path.display().to_string(), source: errno.into() }
}

fn create(path: &Path) -> Result<(), StoreError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|source| {
        let (what, file) = ("create the state directory", path.display().to_string());
        StoreError::Io { what, file, source }
    })
}

fn open_dir(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC | flags, Mode::empty())
}

/// Opens a directory that must be this user's and no symbolic link.
fn open_own_dir(path: &Path) -> Result<OwnedFd, StoreError> {
    let not_ours = |why| StoreError::NotOurs { directory: path.display().to_string(), why };
    let dir = open_dir(path, OFlags::NOFOLLOW).map_err(|errno| match errno {
        Errno::NOTDIR | Errno::LOOP => not_ours("is a symbolic link".to_owned()),
        other => failed("open the state directory", path, other),
    })?;
    let owner = rustix::fs::fstat(&dir);
    let owner = owner.map_err(|errno| failed("look at the state directory", path, errno))?.st_uid;
    if owner != rustix::process::geteuid().as_raw() {
        return Err(not_ours(format!("belongs to user {owner}")));
    }
    Ok(dir)
}

/// Opens a file; a new one is readable by its owner only.
fn open_file(dir: &OwnedFd, name: &str, flags: OFlags) -> rustix::io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, mode)?.into())
}

impl Files for Directory {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match open_file(&self.dir, name, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Some(bytes))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
        open_file(&self.dir, name, flags)?.write_all(bytes)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        open_file(&self.dir, name, OFlags::RDONLY)?.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.dir, from, &self.dir, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    fn shown(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}
