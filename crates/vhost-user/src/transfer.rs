//! Transfer of a device's own state through the front-end's pipe.
//!
//! Specification: vhost-user.rst, "Migrating back-end state". The front-end sends one end of a pipe
//! with `SET_DEVICE_STATE_FD`, carries the state, and asks for the result with
//! `CHECK_DEVICE_STATE`. So the state must be written at once, and can be read in full only at that
//! request.
//!
//! All holders of the same end share the pipe's flags, and a front-end that makes it block could
//! stall this process. So the pipe is reopened, which gives flags of our own. Opening, reading and
//! writing still take the pipe's mutex. Another writer holds it while its own memory stalls it. So
//! a [`Transfer`] leaves these calls to the session's [`Closer`].
//!
//! # Limits
//! A state has at most [`STATE_SIZE_MAX`] bytes, which an empty pipe takes without a reader. A pipe
//! that does not answer within [`DEADLINE`](crate::foreign::DEADLINE) ends the transfer.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::foreign::{Closer, ForeignFd, PIPE, Pending, TooLate};

/// Most bytes of a state: `PIPE_BUF`, the largest atomic write to a pipe.
pub const STATE_SIZE_MAX: usize = 4096;

/// Reasons that a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// Not a pipe, or a named one, whose file system could delay a call.
    #[error("the front-end's file for the device state is not a pipe")]
    NotAPipe,
    /// The state exceeds the limit.
    #[error("the device state has more than {STATE_SIZE_MAX} bytes, the limit")]
    TooLong,
    /// The front-end asks before it has closed its end.
    #[error("the front-end checked the state before it had closed the pipe")]
    NotWhole,
    /// Another process blocks calls on the pipe.
    #[error("the device state's pipe does not respond; another process blocks it")]
    TooLate,
    /// A system call failed.
    #[error("{call} on the device state's pipe failed")]
    System {
        /// The call.
        call: &'static str,
        /// The system's error.
        #[source]
        errno: Errno,
    },
}

/// Checks that a descriptor is an unnamed pipe, by a call that does not wait.
///
/// # Errors
/// [`TransferError::NotAPipe`].
pub fn check(pipe: &ForeignFd) -> Result<(), TransferError> {
    let failed = |errno| TransferError::System { call: "readlink", errno };
    match pipe.kind().map_err(failed)?.starts_with(PIPE) {
        true => Ok(()),
        false => Err(TransferError::NotAPipe),
    }
}

/// Reopens a pipe's end with flags of our own. May wait for the pipe's mutex.
fn open(pipe: &ForeignFd) -> Result<OwnedFd, TransferError> {
    check(pipe)?;
    let failed = |call| move |errno| TransferError::System { call, errno };
    let mode = rustix::fs::fcntl_getfl(pipe).map_err(failed("fcntl"))? & OFlags::RWMODE;
    let path = format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd());
    let flags = mode | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(failed("open"))
}

/// Writes a state, and closes the pipe. May wait for the pipe's mutex.
///
/// # Errors
/// [`TransferError`].
pub fn save(pipe: &ForeignFd, state: &[u8]) -> Result<(), TransferError> {
    if state.len() > STATE_SIZE_MAX {
        return Err(TransferError::TooLong);
    }
    let pipe = open(pipe)?;
    match rustix::io::write(&pipe, state) {
        Ok(_) => Ok(()), // so few go in one piece, or not at all
        Err(errno) => Err(TransferError::System { call: "write", errno }),
    }
}

/// Reads the state from a pipe, whose other end must be closed. May wait for the pipe's mutex.
///
/// # Errors
/// [`TransferError`].
pub fn load(pipe: &ForeignFd) -> Result<Vec<u8>, TransferError> {
    let pipe = open(pipe)?;
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

/// A transfer in progress. The session's [`Closer`] makes all calls on its pipe; none here waits.
#[derive(Debug)]
pub enum Transfer {
    /// To be read from this pipe when the front-end reports it complete.
    Awaited(Arc<ForeignFd>),
    /// Write in progress.
    Saving(Pending<Result<(), TransferError>>),
    /// Read from this pipe in progress.
    Loading(Arc<ForeignFd>, Pending<Result<Vec<u8>, TransferError>>),
    /// Finished; with the state that was read, if one was.
    Done(Result<Option<Vec<u8>>, TransferError>),
}

impl Transfer {
    /// Starts writing a state.
    ///
    /// # Errors
    /// [`TransferError::NotAPipe`].
    pub fn save(pipe: ForeignFd, state: Vec<u8>, closer: &Closer) -> Result<Self, TransferError> {
        check(&pipe)?;
        Ok(Self::Saving(closer.call(move || save(&pipe, &state))))
    }

    /// Starts waiting for a state.
    ///
    /// # Errors
    /// [`TransferError::NotAPipe`].
    pub fn load(pipe: ForeignFd) -> Result<Self, TransferError> {
        check(&pipe)?;
        Ok(Self::Awaited(pipe.into()))
    }

    /// The pipe from which a state is read, if one is.
    pub fn source(&self) -> Option<&ForeignFd> {
        match self {
            Self::Awaited(pipe) | Self::Loading(pipe, _) => Some(pipe),
            Self::Saving(_) | Self::Done(_) => None,
        }
    }

    /// Returns `true` if calls on the pipe are pending, or their result is not known yet.
    pub fn is_under_way(&mut self, closer: &Closer, now: Instant) -> bool {
        !matches!(self, Self::Awaited(_)) && !self.is_done(closer, now)
    }

    /// Returns `true` if the transfer is finished, when the front-end asks.
    pub fn is_done(&mut self, closer: &Closer, now: Instant) -> bool {
        if let Self::Awaited(pipe) = self {
            let read = pipe.clone();
            *self = Self::Loading(pipe.clone(), closer.call(move || load(&read)));
        }
        let polled = match self {
            Self::Awaited(_) => return false,
            Self::Saving(call) => call.poll(now).map(|it| it.map(|saved| saved.map(|()| None))),
            Self::Loading(_, call) => call.poll(now).map(|it| it.map(|read| read.map(Some))),
            Self::Done(_) => return true,
        };
        match polled {
            Ok(None) => return false,
            Ok(Some(result)) => *self = Self::Done(result),
            Err(TooLate) => *self = Self::Done(Err(TransferError::TooLate)),
        }
        true
    }

    /// The state that was read, if one was; an error if the transfer is not finished.
    ///
    /// # Errors
    /// [`TransferError`].
    pub fn end(self) -> Result<Option<Vec<u8>>, TransferError> {
        match self {
            Self::Done(result) => result,
            Self::Awaited(_) | Self::Saving(_) | Self::Loading(..) => Err(TransferError::NotWhole),
        }
    }
}

/// Waits until the other end of a pipe is closed, as a front-end that reads to the end.
#[cfg(test)]
pub(crate) fn wait_for_end(pipe: &std::io::PipeReader) {
    use rustix::event::{PollFd, PollFlags, poll};
    poll(&mut [PollFd::new(pipe, PollFlags::empty())], None).unwrap();
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use crate::foreign::DEADLINE;

    use super::*;

    #[test]
    fn a_state_goes_through_a_pipe() {
        for len in [0, 1, STATE_SIZE_MAX] {
            let (read, write) = std::io::pipe().unwrap();
            let state: Vec<u8> = (0..len).map(|at| at as u8).collect();
            save(&write.into(), &state).unwrap();
            wait_for_end(&read);
            assert_eq!(load(&read.into()).unwrap(), state);
        }
    }

    #[test]
    fn nothing_waits_for_a_front_end() {
        // The other end is blocking and open: missing bytes are not waited for.
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(b"half").unwrap();
        let error = load(&read.into()).unwrap_err();
        assert!(matches!(error, TransferError::NotWhole), "{error}");
        // A pipe that is full.
        let (_read, mut write) = std::io::pipe().unwrap();
        write.write_all(&[0; 65536]).unwrap();
        let error = save(&write.try_clone().unwrap().into(), b"state").unwrap_err();
        assert!(matches!(error, TransferError::System { call: "write", errno: Errno::AGAIN }));
    }

    #[test]
    fn a_transfer_goes_both_ways_without_a_wait() {
        let closer = Closer::default();
        let (read, write) = std::io::pipe().unwrap();
        let mut saving = Transfer::save(write.into(), b"state".to_vec(), &closer).unwrap();
        while !saving.is_done(&closer, Instant::now()) {
            std::thread::yield_now();
        }
        assert_eq!(saving.end().unwrap(), None);
        wait_for_end(&read);
        let mut loading = Transfer::load(read.into()).unwrap();
        while !loading.is_done(&closer, Instant::now()) {
            std::thread::yield_now();
        }
        assert_eq!(loading.end().unwrap().unwrap(), b"state");
    }

    #[test]
    fn a_pipe_that_does_not_answer_ends_the_transfer() {
        let closer = Closer::default();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let _blocked = closer.call(move || held.recv());
        let (read, _write) = std::io::pipe().unwrap();
        let mut loading = Transfer::load(read.into()).unwrap();
        let now = Instant::now();
        assert!(!loading.is_done(&closer, now), "its calls are the closer's");
        assert!(loading.is_done(&closer, now + 2 * DEADLINE));
        let error = loading.end().unwrap_err();
        assert!(matches!(error, TransferError::TooLate), "{error}");
        drop(hold);
    }

    #[test]
    fn a_transfer_is_under_way_until_its_result_is_known() {
        let closer = Closer::default();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let blocked = closer.call(move || held.recv());
        let (read, write) = std::io::pipe().unwrap();
        let mut loading = Transfer::load(read.into()).unwrap();
        let now = Instant::now();
        assert!(!loading.is_under_way(&closer, now), "not asked yet");
        assert!(loading.source().is_some());
        let mut saving = Transfer::save(write.into(), b"state".to_vec(), &closer).unwrap();
        assert!(saving.is_under_way(&closer, now));
        drop(hold);
        while saving.is_under_way(&closer, now) {
            std::thread::yield_now();
        }
        saving.end().unwrap();
        drop(blocked);
    }

    #[test]
    fn what_is_no_pipe_or_too_long_is_refused() {
        let file = std::fs::File::open("/dev/zero").unwrap();
        assert!(matches!(Transfer::load(file.into()), Err(TransferError::NotAPipe)));
        let (read, mut write) = std::io::pipe().unwrap();
        write.write_all(&[0; STATE_SIZE_MAX + 1]).unwrap();
        let held = write.try_clone().unwrap();
        let error = save(&held.into(), &[0; STATE_SIZE_MAX + 1]).unwrap_err();
        assert!(matches!(error, TransferError::TooLong), "{error}");
        drop(write);
        let error = load(&read.into()).unwrap_err();
        assert!(matches!(error, TransferError::TooLong), "{error}");
    }
}
