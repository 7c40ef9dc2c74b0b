//! Files of sockets: the operations on paths that may need rights.
//!
//! Model: each is tried with the rights of this process, and then asked of its
//! [launcher](host::launcher). None touches a file that is no socket.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use host::launcher::{self, Answer, Request, ask_if_refused};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use serde::{Deserialize, Serialize};

/// Device and inode of a file.
pub(crate) type Identity = (u64, u64);

/// An operation on the file of a socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketFile {
    path: PathBuf,
    operation: Operation,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Operation {
    /// Binds the socket that is passed.
    Bind,
    /// Connects the socket that is passed.
    Connect,
    /// Removes a socket: this one, or any.
    Remove(Option<Identity>),
    /// Gives this socket to a group, with these permissions first.
    SetGroup(Identity, u32, u32),
    /// Sets the permissions of this socket.
    SetMode(Identity, u32),
}

impl Request for SocketFile {
    const NAME: &'static str = "socket-file";
    const DOES: &'static str =
        "binds or connects a UNIX socket; removes the file of a socket, or sets its group and mode";
    type Reply = Option<Identity>;

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<Self::Reply> {
        let address = || SocketAddrUnix::new(&self.path);
        let reply = match (self.operation, fds) {
            (Operation::Bind, [socket]) => {
                rustix::net::bind(socket, &address()?)?;
                identity(&self.path).ok()
            }
            (Operation::Connect, [socket]) => {
                rustix::net::connect(socket, &address()?)?;
                None
            }
            (Operation::Remove(file), []) => {
                let is = rustix::fs::lstat(&self.path)?;
                check(&is, file)?;
                rustix::fs::unlink(&self.path)?;
                None
            }
            (Operation::SetGroup(file, gid, mode), []) => {
                set_group(&self.path, file, gid, mode)?;
                None
            }
            (Operation::SetMode(file, mode), []) => {
                chmod(&open(&self.path, file)?.0, mode)?;
                None
            }
            _ => return Err(Errno::INVAL),
        };
        Ok((reply, Vec::new()))
    }
}

/// Checks that it is a socket, and the file, if one is given: `ENOTSOCK` and `ESTALE`.
fn check(is: &Stat, file: Option<Identity>) -> Result<(), Errno> {
    if FileType::from_raw_mode(is.st_mode) != FileType::Socket {
        return Err(Errno::NOTSOCK);
    }
    match file {
        Some(file) if file != (is.st_dev, is.st_ino) => Err(Errno::STALE),
        _ => Ok(()),
    }
}

/// Opens the file, if it still is this socket.
fn open(path: &Path, file: Identity) -> Result<(OwnedFd, Stat), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty())?;
    let is = rustix::fs::fstat(&opened)?;
    check(&is, Some(file))?;
    Ok((opened, is))
}

/// Sets permissions, also where others may replace the path.
fn chmod(opened: &OwnedFd, mode: u32) -> Result<(), Errno> {
    let at = format!("/proc/self/fd/{}", opened.as_raw_fd());
    rustix::fs::chmod(&at, Mode::from_raw_mode(mode))
}

fn set_group(path: &Path, file: Identity, gid: u32, mode: u32) -> Result<(), Errno> {
    let (opened, is) = open(path, file)?;
    if is.st_gid == gid {
        return Ok(());
    }
    chmod(&opened, mode)?; // the old group shall not have the new rights
    rustix::fs::chownat(&opened, "", None, Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
}

fn identity(path: &Path) -> Result<Identity, Errno> {
    let is = rustix::fs::lstat(path)?;
    Ok((is.st_dev, is.st_ino))
}

fn ask(
    path: &Path,
    operation: Operation,
    fds: &[BorrowedFd<'_>],
) -> Result<Option<Identity>, Errno> {
    let request = SocketFile { path: path.to_owned(), operation };
    let answer = match operation {
        // The sandbox leaves no process that has a launcher the right to change permissions: it
        // could make its files executable.
        Operation::SetGroup(..) | Operation::SetMode(..) => launcher::ask(request, fds),
        _ => ask_if_refused(request, fds),
    };
    Ok(answer?.0)
}

/// Binds a socket to a path; returns the identity of its file.
pub(crate) fn bind(socket: impl AsFd, path: &Path) -> Result<Option<Identity>, Errno> {
    ask(path, Operation::Bind, &[socket.as_fd()])
}

/// Connects a socket to the one at a path.
pub(crate) fn connect(socket: impl AsFd, path: &Path) -> Result<(), Errno> {
    ask(path, Operation::Connect, &[socket.as_fd()]).map(drop)
}

/// Removes a socket: this one, or any. `ENOTSOCK` if it is none, `ESTALE` if it is another.
pub(crate) fn remove(path: &Path, file: Option<Identity>) -> Result<(), Errno> {
    ask(path, Operation::Remove(file), &[]).map(drop)
}

/// Gives a socket to a group; if that is a change, with this `mode` first. `ESTALE` if the path has
/// another file.
pub(crate) fn give(path: &Path, file: Identity, gid: u32, mode: u32) -> Result<(), Errno> {
    ask(path, Operation::SetGroup(file, gid, mode), &[]).map(drop)
}

/// Sets the permissions of a socket. `ESTALE` if the path has another file.
pub(crate) fn set_mode(path: &Path, file: Identity, mode: u32) -> Result<(), Errno> {
    ask(path, Operation::SetMode(file, mode), &[]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn no_other_file_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, path) = (dir.path().join("plain"), dir.path().join("socket"));
        std::fs::write(&plain, "precious").unwrap();
        let mode = || std::fs::metadata(&plain).unwrap().mode();
        let before = mode();
        let file = identity(&plain).unwrap();
        assert_eq!(remove(&plain, None), Err(Errno::NOTSOCK));
        assert_eq!(remove(&plain, Some(file)), Err(Errno::NOTSOCK));
        assert_eq!(set_mode(&plain, file, 0o777), Err(Errno::NOTSOCK));
        assert_eq!(give(&plain, file, 0, 0o777), Err(Errno::NOTSOCK));
        assert_eq!((std::fs::read(&plain).unwrap(), mode()), (b"precious".to_vec(), before));
        let _socket = UnixListener::bind(&path).unwrap();
        assert_eq!(remove(&path, Some(file)), Err(Errno::STALE), "another socket");
        assert_eq!(set_mode(&path, file, 0o777), Err(Errno::STALE));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let own = identity(&path).unwrap();
        assert_eq!(set_mode(&link, own, 0o777), Err(Errno::NOTSOCK), "no link is followed");
        assert_eq!(set_mode(&path, own, 0o640), Ok(()));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(remove(&path, Some(own)), Ok(()));
        assert_eq!(remove(&path, None), Err(Errno::NOENT));
    }

    #[test]
    fn an_operation_without_its_socket_is_refused() {
        let path = PathBuf::from("/nowhere/socket");
        for operation in [Operation::Bind, Operation::Connect] {
            let request = SocketFile { path: path.clone(), operation };
            assert_eq!(request.serve(&[]).unwrap_err(), Errno::INVAL);
        }
    }
}
