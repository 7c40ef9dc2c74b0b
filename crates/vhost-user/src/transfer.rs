//! A device's own state, through the pipe that a front-end gives for it.
//!
//! Specification: vhost-user.rst, "Migrating back-end state". The front-end gives us one end of a
//! pipe with `SET_DEVICE_STATE_FD`, moves what comes out or puts in what goes in, and asks with
//! `CHECK_DEVICE_STATE` how it went. So the state must be written at once, and can be read as a whole
//! only when that question comes.
//!
//! The pipe's flags are shared with whoever holds the same end, and a front-end that makes it block
//! could hold us up. So the pipe is opened once more, which gives flags of our own.
//!
//! # Limits
//! A state has at most [`STATE_SIZE_MAX`] bytes, which every pipe takes without anybody reading.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::foreign::{ForeignFd, PIPE};

/// Most bytes of a state: what a pipe takes in one piece or not at all (`PIPE_BUF`).
pub const STATE_SIZE_MAX: usize = 4096;

/// Why a state did not go through.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// No pipe, or one that has a name: what its file system is asked for may take time.
    #[error("a device's state goes through a pipe, and the front-end gave another kind of file")]
    NotAPipe,
    /// More than there may be.
    #[error("a device's state of more than {STATE_SIZE_MAX} bytes; ours never has so many")]
    TooLong,
    /// The front-end asks before it has closed its end.
    #[error("the front-end asked whether the state is whole before it had closed the pipe")]
    NotWhole,
    /// The system failed.
    #[error("{call} of the state's pipe failed")]
    System {
        /// The call.
        call: &'static str,
        /// The system's word.
        #[source]
        errno: Errno,
    },
}

/// Opens a pipe's end once more, with flags of our own.
///
/// # Errors
/// [`TransferError`].
pub fn open(pipe: impl Into<ForeignFd>) -> Result<OwnedFd, TransferError> {
    let failed = |call| move |errno| TransferError::System { call, errno };
    let pipe = pipe.into();
    if !pipe.kind().map_err(failed("readlink"))?.starts_with(PIPE) {
        return Err(TransferError::NotAPipe);
    }
    let mode = rustix::fs::fcntl_getfl(&pipe).map_err(failed("fcntl"))? & OFlags::RWMODE;
    let path = format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd());
    let flags = mode | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(failed("open"))
}

/// Writes a state, and closes the pipe.
///
/// # Errors
/// [`TransferError`].
pub fn save(pipe: impl Into<ForeignFd>, state: &[u8]) -> Result<(), TransferError> {
    if state.len() > STATE_SIZE_MAX {
        return Err(TransferError::TooLong);
    }
    let pipe = open(pipe)?;
    match rustix::io::write(&pipe, state) {
        Ok(_) => Ok(()), // so few go in one piece, or not at all
        Err(errno) => Err(TransferError::System { call: "write", errno }),
    }
}

/// Reads the state that is in a pipe, which must be [opened](open) and closed at its other end.
///
/// # Errors
/// [`TransferError`].
pub fn load(pipe: OwnedFd) -> Result<Vec<u8>, TransferError> {
    let mut state = vec![0; STATE_SIZE_MAX + 1];
    let mut len = 0;
    loop {
        match rustix::io::read(&pipe, &mut state[len..]) {
            Ok(0) if len > STATE_SIZE_MAX => return Err(TransferError::TooLong),
            Ok(0) => break,
            Ok(n) => len += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(TransferError::NotWhole),
            Err(errno) => return Err(TransferError::System { call: "read", errno }),
        }
    }
    state.truncate(len);
    Ok(state)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_state_goes_through_a_pipe() {
        for len in [0, 1, STATE_SIZE_MAX] {
            let (read, write) = std::io::pipe().unwrap();
            let state: Vec<u8> = (0..len).map(|at| at as u8).collect();
            save(write, &state).unwrap();
            assert_eq!(load(open(read).unwrap()).unwrap(), state);
        }
    }

    #[test]
    fn nothing_waits_for_a_front_end() {
        // Its end is blocking, and open: what is not there yet is not waited for.
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(b"half").unwrap();
        let error = load(open(read).unwrap()).unwrap_err();
        assert!(matches!(error, TransferError::NotWhole), "{error}");
        // A pipe that is full.
        let (_read, mut write) = std::io::pipe().unwrap();
        write.write_all(&[0; 65536]).unwrap();
        let error = save(write.try_clone().unwrap(), b"state").unwrap_err();
        assert!(matches!(error, TransferError::System { call: "write", errno: Errno::AGAIN }));
    }

    #[test]
    fn what_is_no_pipe_or_too_long_is_refused() {
        let file = std::fs::File::open("/dev/zero").unwrap();
        assert!(matches!(open(file), Err(TransferError::NotAPipe)));
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(&[0; STATE_SIZE_MAX + 1]).unwrap();
        let held = write.try_clone().unwrap();
        let error = save(held, &[0; STATE_SIZE_MAX + 1]).unwrap_err();
        assert!(matches!(error, TransferError::TooLong), "{error}");
        drop(write);
        let error = load(open(read).unwrap()).unwrap_err();
        assert!(matches!(error, TransferError::TooLong), "{error}");
    }
}
