//! Files of sockets: the operations on paths that may need rights.
//!
//! Model: each is tried with the rights of this process, and then asked of its
//! [launcher](host::launcher). None touches a file that is no socket. The launcher changes or
//! removes only the file of a socket that the daemon passes as a proof, or removes one on which no
//! process listens.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use host::launcher::{self, Answer, Request, ask_if_refused, check_socket};
use host::socket::is_bound_to;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
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
    /// Removes the file of a socket on which no process listens.
    RemoveStale,
    /// Removes this file, of the socket that is passed.
    Remove(Identity),
    /// Gives this file, of the socket that is passed, to a group, with these permissions first.
    SetGroup(Identity, u32, u32),
    /// Sets the permissions of this file, of the socket that is passed.
    SetMode(Identity, u32),
}

impl Request for SocketFile {
    const NAME: &'static str = "socket-file";
    const DOES: &'static str =
        "binds or connects a UNIX socket; changes or removes the file of a socket passed, or stale";
    type Reply = Option<Identity>;

    fn check(&self, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let (Operation::Remove(file) | Operation::SetGroup(file, ..) | Operation::SetMode(file, _)) =
            self.operation
        else {
            return check_socket(&self.path);
        };
        let [socket] = fds else { return Err(Errno::INVAL) };
        match is_bound_to(*socket, file) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Errno::STALE),
            // Without UNIX_DIAG a new socket is told by that no process listens yet.
            Err(_) => {
                check_socket(&self.path)?;
                let (opened, _) = Place::of(&self.path)?.find(Some(file))?;
                check_stale(&opened).map_err(|_| Errno::OPNOTSUPP)
            }
        }
    }

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<Self::Reply> {
        let mut made = None;
        match (self.operation, fds) {
            (Operation::Bind, [socket]) => {
                rustix::net::bind(socket, &SocketAddrUnix::new(&self.path)?)?;
                made = Place::of(&self.path)?.find(None).ok().map(|(_, is)| identity(&is));
            }
            (Operation::Connect, [socket]) => {
                // A guest may own the directory: a link in it could lead to any socket of the host.
                let (opened, _) = Place::of(&self.path)?.find(None)?;
                rustix::net::connect(socket, &SocketAddrUnix::new(itself(&opened))?)?;
            }
            (Operation::RemoveStale, []) => {
                let place = Place::of(&self.path)?;
                check_stale(&place.find(None)?.0)?;
                place.remove()?;
            }
            (Operation::Remove(file), _) => {
                let place = Place::of(&self.path)?;
                place.find(Some(file))?;
                place.remove()?;
            }
            (Operation::SetGroup(file, gid, mode), _) => {
                let (opened, is) = Place::of(&self.path)?.find(Some(file))?;
                set_group(&opened, &is, gid, mode)?;
            }
            (Operation::SetMode(file, mode), _) => {
                chmod(&Place::of(&self.path)?.find(Some(file))?.0, mode)?;
            }
            _ => return Err(Errno::INVAL),
        }
        Ok((made, Vec::new()))
    }
}

/// A name in a directory that stays the same, whatever happens to its path.
struct Place<'a> {
    directory: OwnedFd,
    name: &'a Path,
}

impl Place<'_> {
    fn of(path: &Path) -> Result<Place<'_>, Errno> {
        let (directory, name) = host::directory::of_file(path)?.ok_or(Errno::INVAL)?;
        Ok(Place { directory, name })
    }

    /// Opens the socket's file, if it is this one: `ENOTSOCK` and `ESTALE` otherwise.
    fn find(&self, file: Option<Identity>) -> Result<(OwnedFd, Stat), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.directory, self.name, flags, Mode::empty())?;
        let is = rustix::fs::fstat(&opened)?;
        if FileType::from_raw_mode(is.st_mode) != FileType::Socket {
            return Err(Errno::NOTSOCK);
        }
        match file {
            Some(file) if file != identity(&is) => Err(Errno::STALE),
            _ => Ok((opened, is)),
        }
    }

    fn remove(&self) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.directory, self.name, AtFlags::empty())
    }
}

fn identity(is: &Stat) -> Identity {
    (is.st_dev, is.st_ino)
}

/// Path of the file itself, also where others may replace its name.
fn itself(opened: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", opened.as_raw_fd())
}

/// `EADDRINUSE` if a process listens on the socket.
fn check_stale(opened: &OwnedFd) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let ours = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&ours, &SocketAddrUnix::new(itself(opened))?) {
        Err(Errno::CONNREFUSED) => Ok(()),
        _ => Err(Errno::ADDRINUSE),
    }
}

fn chmod(opened: &OwnedFd, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmod(itself(opened), Mode::from_raw_mode(mode & 0o666))
}

fn set_group(opened: &OwnedFd, is: &Stat, gid: u32, mode: u32) -> Result<(), Errno> {
    if is.st_gid == gid {
        return Ok(());
    }
    chmod(opened, mode)?; // the old group shall not have the new rights
    rustix::fs::chownat(opened, "", None, Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
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

/// Removes the file of a socket on which no process listens. `ENOTSOCK` if it is none, `EADDRINUSE`
/// if a process listens.
pub(crate) fn remove_stale(path: &Path) -> Result<(), Errno> {
    ask(path, Operation::RemoveStale, &[]).map(drop)
}

/// Removes the file of a socket. `ESTALE` if the path has another.
pub(crate) fn remove(socket: impl AsFd, path: &Path, file: Identity) -> Result<(), Errno> {
    ask(path, Operation::Remove(file), &[socket.as_fd()]).map(drop)
}

/// Gives the file of a socket to a group; if that is a change, with this `mode` first. `ESTALE` if
/// the path has another file.
pub(crate) fn give(
    socket: impl AsFd,
    path: &Path,
    file: Identity,
    gid: u32,
    mode: u32,
) -> Result<(), Errno> {
    ask(path, Operation::SetGroup(file, gid, mode), &[socket.as_fd()]).map(drop)
}

/// Sets the permissions of a socket's file. `ESTALE` if the path has another file.
pub(crate) fn set_mode(
    socket: impl AsFd,
    path: &Path,
    file: Identity,
    mode: u32,
) -> Result<(), Errno> {
    ask(path, Operation::SetMode(file, mode), &[socket.as_fd()]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    fn found(path: &Path) -> Identity {
        identity(&rustix::fs::lstat(path).unwrap())
    }

    #[test]
    fn no_other_file_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, path) = (dir.path().join("plain"), dir.path().join("socket"));
        std::fs::write(&plain, "precious").unwrap();
        let socket = UnixListener::bind(&path).unwrap();
        let mode = || std::fs::metadata(&plain).unwrap().mode();
        let before = mode();
        let file = found(&plain);
        assert_eq!(remove_stale(&plain), Err(Errno::NOTSOCK));
        assert_eq!(remove(&socket, &plain, file), Err(Errno::NOTSOCK));
        assert_eq!(set_mode(&socket, &plain, file, 0o777), Err(Errno::NOTSOCK));
        assert_eq!(give(&socket, &plain, file, 0, 0o777), Err(Errno::NOTSOCK));
        assert_eq!((std::fs::read(&plain).unwrap(), mode()), (b"precious".to_vec(), before));
        assert_eq!(remove(&socket, &path, file), Err(Errno::STALE), "another socket");
        assert_eq!(set_mode(&socket, &path, file, 0o777), Err(Errno::STALE));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let own = found(&path);
        assert_eq!(set_mode(&socket, &link, own, 0o777), Err(Errno::NOTSOCK), "a link");
        assert_eq!(set_mode(&socket, &path, own, 0o640), Ok(()));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(remove(&socket, &path, own), Ok(()));
        assert_eq!(remove_stale(&path), Err(Errno::NOENT));
    }

    #[test]
    fn a_socket_in_use_is_not_stale() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let stream = UnixListener::bind(path("stream")).unwrap();
        let datagrams = UnixDatagram::bind(path("datagrams")).unwrap();
        for name in ["stream", "datagrams"] {
            assert_eq!(remove_stale(&path(name)), Err(Errno::ADDRINUSE), "{name}");
        }
        drop((stream, datagrams));
        for name in ["stream", "datagrams"] {
            assert_eq!(remove_stale(&path(name)), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_launcher_asks_for_a_proof() {
        let dir = tempfile::tempdir().unwrap();
        let bound = |name: &str| UnixListener::bind(dir.path().join(name)).unwrap();
        let (own, other) = (bound("own"), bound("other"));
        let path = dir.path().join("own");
        let file = found(&path);
        for operation in [
            Operation::Remove(file),
            Operation::SetGroup(file, 0, 0o600),
            Operation::SetMode(file, 0o666),
        ] {
            let request = SocketFile { path: path.clone(), operation };
            assert_eq!(request.check(&[own.as_fd()]), Ok(()));
            assert_eq!(request.check(&[other.as_fd()]), Err(Errno::STALE));
            assert_eq!(request.check(&[]), Err(Errno::INVAL));
        }
        // A socket without a file proves nothing, also of one on which no process listens.
        let (unbound, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let request = SocketFile { path, operation: Operation::SetMode(file, 0o666) };
        assert_eq!(request.check(&[unbound.as_fd()]), Err(Errno::STALE));
        drop(own);
        assert_eq!(request.check(&[unbound.as_fd()]), Err(Errno::STALE));
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
