//! Resources shared besides memory and rings: log, inflight records, back-end requests, and the
//! back-end's state.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use zerocopy::FromBytes;

use crate::features::{Features, ProtocolFeatures};
use crate::message::{BackendRequest, Request};
use crate::payload::{Inflight, LogArea, StateTransfer};
use crate::socket::Receiver;
use crate::transfer::STATE_SIZE_MAX;

use super::exchange::{name, wrong};
use super::{EMPTY, Frontend, FrontendError};

/// Requests that the back-end sends.
#[derive(Debug)]
pub struct BackendRequests {
    stream: UnixStream,
    receiver: Receiver,
}

impl BackendRequests {
    /// The next request, if there is one. Never blocks. Unknown requests are skipped.
    ///
    /// # Errors
    /// [`SocketError`](crate::SocketError) once the back-end closed the channel.
    pub fn poll(&mut self) -> Result<Option<BackendRequest>, crate::SocketError> {
        while let Some(message) = self.receiver.poll(&self.stream)? {
            if let Some(request) = BackendRequest::from_code(message.request) {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }
}

impl Frontend {
    /// Shares a dirty log of `size` bytes from `offset` of a file. Needs `LOG_SHMFD`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn set_log(
        &mut self,
        log: BorrowedFd<'_>,
        size: u64,
        offset: u64,
    ) -> Result<(), FrontendError> {
        let request = Request::SetLogBase;
        self.need(request, ProtocolFeatures::LOG_SHMFD)?;
        // Always answered, with any payload.
        self.exchange_fds(request, &LogArea { size, offset }, &[log]).map(|_| ())
    }

    /// Switches logging of all writes on or off, while rings run. Needs `LOG_SHMFD`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn log_all(&mut self, on: bool) -> Result<(), FrontendError> {
        self.need(Request::SetFeatures, ProtocolFeatures::LOG_SHMFD)?;
        let bit = Features::LOG_ALL.bits();
        let features = if on { self.features | bit } else { self.features & !bit };
        self.set(Request::SetFeatures, &features, &[])?;
        self.features = features;
        Ok(())
    }

    /// Has the back-end create inflight records for `rings` rings of `ring_size` entries. Needs
    /// `INFLIGHT_SHMFD`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn get_inflight(
        &mut self,
        rings: u16,
        ring_size: u16,
    ) -> Result<(Inflight, OwnedFd), FrontendError> {
        let request = Request::GetInflightFd;
        self.need(request, ProtocolFeatures::INFLIGHT_SHMFD)?;
        let asked = Inflight { rings, ring_size, ..Inflight::default() };
        let mut reply = self.exchange_fds(request, &asked, &[])?;
        let given = Inflight::read_from_bytes(&reply.payload);
        match (given, reply.fds.pop()) {
            (Ok(given), Some(fd)) => Ok((given, fd.into_owned())),
            _ => Err(wrong(request, &reply)),
        }
    }

    /// Returns inflight records to the back-end, or passes them to its successor. Needs
    /// `INFLIGHT_SHMFD`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn set_inflight(
        &mut self,
        inflight: &Inflight,
        records: BorrowedFd<'_>,
    ) -> Result<(), FrontendError> {
        self.need(Request::SetInflightFd, ProtocolFeatures::INFLIGHT_SHMFD)?;
        self.set(Request::SetInflightFd, inflight, &[records])
    }

    /// Accepts requests from the back-end from now on. Needs `BACKEND_REQ`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn take_requests(&mut self) -> Result<BackendRequests, FrontendError> {
        let request = Request::SetBackendReqFd;
        self.need(request, ProtocolFeatures::BACKEND_REQ)?;
        let pipe = UnixStream::pair().map_err(|source| system(request, source))?;
        self.set(request, &EMPTY, &[pipe.1.as_fd()])?;
        Ok(BackendRequests { stream: pipe.0, receiver: Receiver::new() })
    }

    /// Saves the back-end's state, to load it into another; all rings must be stopped. Needs
    /// `DEVICE_STATE`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn save_state(&mut self) -> Result<Vec<u8>, FrontendError> {
        let request = Request::SetDeviceStateFd;
        let (read, write) = std::io::pipe().map_err(|source| system(request, source))?;
        self.transfer(StateTransfer::SAVE, write.as_fd())?;
        drop(write);
        let mut state = Vec::new();
        let mut some = read.take(STATE_SIZE_MAX as u64);
        some.read_to_end(&mut state).map_err(|source| system(request, source))?;
        self.check_state().map(|()| state)
    }

    /// Loads a state that another back-end has saved; all rings must be stopped. Needs
    /// `DEVICE_STATE`.
    ///
    /// # Errors
    /// [`FrontendError`].
    pub fn load_state(&mut self, state: &[u8]) -> Result<(), FrontendError> {
        let request = Request::SetDeviceStateFd;
        if state.len() > STATE_SIZE_MAX {
            let what = format!("{} bytes of state", state.len());
            return Err(FrontendError::TooMuch { request: name(request), what });
        }
        let (read, mut write) = std::io::pipe().map_err(|source| system(request, source))?;
        self.transfer(StateTransfer::LOAD, read.as_fd())?;
        write.write_all(state).map_err(|source| system(request, source))?;
        drop(write);
        self.check_state()
    }

    fn transfer(&mut self, direction: u32, pipe: BorrowedFd<'_>) -> Result<(), FrontendError> {
        let request = Request::SetDeviceStateFd;
        self.need(request, ProtocolFeatures::DEVICE_STATE)?;
        let transfer = StateTransfer { direction, phase: StateTransfer::STOPPED };
        let reply = self.exchange_fds(request, &transfer, &[pipe])?;
        let answer = u64::read_from_bytes(&reply.payload).map_err(|_| wrong(request, &reply))?;
        match answer & 0xff {
            0 => Ok(()),
            answer => Err(FrontendError::Refused { request: name(request), answer }),
        }
    }

    fn check_state(&mut self) -> Result<(), FrontendError> {
        let request = Request::CheckDeviceState;
        match self.get(request, &EMPTY)? {
            0u64 => Ok(()),
            answer => Err(FrontendError::Refused { request: name(request), answer }),
        }
    }
}

fn system(request: Request, source: std::io::Error) -> FrontendError {
    FrontendError::Socket { request: name(request), source: crate::SocketError::Io(source) }
}
