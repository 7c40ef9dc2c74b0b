//! The few file operations that persistence needs, so that tests can fail each of them.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::StoreError;

/// The largest file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 << 20;

/// A directory with files that are replaced as a whole.
pub trait Files {
    /// The file's bytes; `None` if there is no such file.
    ///
    /// # Errors
    /// What the system says, or that the file is larger than [`MAX_FILE_BYTES`].
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Writes a file anew. Nothing is promised about what a crash leaves of it.
    ///
    /// # Errors
    /// What the system says.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Returns once the file's bytes are on the disk.
    ///
    /// # Errors
    /// What the system says.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name, in the place of whatever had it.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; that there is none is no error.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns once all names are on the disk as they are now.
    ///
    /// # Errors
    /// What the system says.
    fn sync_directory(&self) -> io::Result<()>;

    /// What errors call the file.
    fn shown(&self, name: &str) -> String;
}

/// A real directory, which is this process's alone while the value lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Held until the end.
    lock: File,
    /// Whether what is written is to outlive the machine's crash.
    durable: bool,
}

impl Directory {
    /// Makes the directory if need be, for its owner only, and locks it.
    ///
    /// # Errors
    /// It cannot be made or written to, or another process has it.
    pub fn open(path: &Path) -> Result<Directory, StoreError> {
        let failed =
            |what, source| StoreError::Io { what, file: path.display().to_string(), source };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|source| failed("create the state directory", source))?;
        let lock = options().open(path.join("lock"));
        let lock = lock.map_err(|source| failed("write to the state directory", source))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Directory { path: path.to_owned(), lock, durable: true }),
            Err(rustix::io::Errno::AGAIN) => {
                Err(StoreError::InUse { directory: path.display().to_string() })
            }
            Err(errno) => Err(failed("lock the state directory", errno.into())),
        }
    }
}

impl Directory {
    /// Goes on with a directory that another process has locked, by that lock.
    pub fn inherit(path: &Path, lock: OwnedFd) -> Directory {
        Directory { path: path.to_owned(), lock: lock.into(), durable: true }
    }

    /// The same for what need not outlive this process: nobody waits for the disk.
    pub fn fleeting(self) -> Directory {
        Directory { durable: false, ..self }
    }

    /// The lock, for a process that goes on with the directory.
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }
}

fn options() -> fs::OpenOptions {
    let mut options = File::options();
    options.create(true).write(true).truncate(true).mode(0o600);
    options
}

impl Files for Directory {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(Some(bytes))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        options().open(self.path.join(name))?.write_all(bytes)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        if self.durable { File::open(self.path.join(name))?.sync_all() } else { Ok(()) }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn sync_directory(&self) -> io::Result<()> {
        if self.durable { File::open(&self.path)?.sync_all() } else { Ok(()) }
    }

    fn shown(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}
