//! Resources shared besides memory and rings: the dirty log, inflight records, the socket for
//! back-end requests, and the pipe of a device's state.
//!
//! Specification: vhost-user.rst, "Migration", "Inflight I/O tracking", "Back-end communication".

use std::sync::Arc;

use rustix::net::{AddressFamily, SocketType, sockopt};
use zerocopy::{FromBytes, IntoBytes};

use crate::features::{Features, ProtocolFeatures};
use crate::foreign::ForeignFd;
use crate::message::{Message, RING_SIZE_MAX, Request, RequestName};
use crate::payload::{Inflight, LogArea, STATE_NO_FD, StateTransfer};

use super::device::{BackendDevice, InflightArea, SharedArea};
use super::error::{ProtocolError, Reason};
use super::format::prefix;
use super::{Backend, Reply};

impl SharedArea {
    fn new(size: u64, offset: u64, fds: &mut Vec<ForeignFd>) -> Result<Self, Reason> {
        let fd = fds.pop().ok_or(Reason::FdCount { expected: 1, got: 0 })?;
        if size == 0 || offset.checked_add(size).is_none() {
            return Err(Reason::BadArea { size, offset });
        }
        Ok(Self { size, offset, fd })
    }
}

impl Backend {
    /// Returns `true` if all writes must be logged. Without a negotiated log (`LOG_SHMFD`) the bit
    /// is ignored: some front-ends set every bit that is offered.
    pub(super) fn logs_all(&self) -> bool {
        self.features & Features::LOG_ALL.bits() != 0
            && self.protocol_features.contains(ProtocolFeatures::LOG_SHMFD)
    }

    /// Sets a new log. After the reply nothing is written to the former one: the front-end then
    /// reads that for the last time.
    ///
    /// The reply is sent always, with the payload of the request: QEMU accepts any payload, Rust's
    /// `vhost` crate only this one.
    pub(super) fn set_log_base(
        &mut self,
        mut message: Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require(ProtocolFeatures::LOG_SHMFD)?;
        let LogArea { size, offset } = prefix(&message)?;
        let area = SharedArea::new(size, offset, &mut message.fds)?;
        device.set_log(Some(area)).map_err(Reason::Device)?;
        self.has_log = true;
        self.renew_all(device);
        // A ring that cannot start, perhaps for lack of memory, is no error of the log.
        let started = self.start_all(device);
        self.note(Request::SetLogBase, started);
        Ok(Reply::Payload(message.payload))
    }

    /// Releases a log that no ring uses any more.
    pub(super) fn release_unused_log(&mut self, device: &mut impl BackendDevice) {
        let all = self.logs_all();
        if self.has_log && self.rings.iter().all(|ring| ring.logs(all).is_none()) {
            let released = device.set_log(None);
            debug_assert!(released.is_ok(), "a release was refused");
            self.has_log = false;
        }
    }

    pub(super) fn get_inflight(
        &mut self,
        message: &Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require(ProtocolFeatures::INFLIGHT_SHMFD)?;
        let asked = self.inflight(message)?;
        let area = device.create_inflight(asked.rings, asked.ring_size).map_err(Reason::Device)?;
        self.renew_all(device);
        let given = Inflight { size: area.size, offset: area.offset, ..asked };
        // As long as the request.
        let mut payload = given.as_bytes().to_vec();
        payload.truncate(message.payload.len());
        Ok(Reply::PayloadAndFd(payload, area.fd))
    }

    pub(super) fn set_inflight(
        &mut self,
        mut message: Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require(ProtocolFeatures::INFLIGHT_SHMFD)?;
        let Inflight { size, offset, rings, ring_size, .. } = self.inflight(&message)?;
        let area = SharedArea::new(size, offset, &mut message.fds)?;
        let records = InflightArea { area, rings, ring_size };
        device.set_inflight(Some(records)).map_err(Reason::Device)?;
        self.renew_all(device);
        self.start_all(device).map(|()| Reply::Done)
    }

    /// The inflight area that a message describes.
    fn inflight(&self, message: &Message) -> Result<Inflight, Reason> {
        let mut bytes = [0; size_of::<Inflight>()];
        bytes[..message.payload.len()].copy_from_slice(&message.payload);
        let (inflight, _) = Inflight::read_from_prefix(&bytes).expect("as long as that");
        let Inflight { rings, ring_size, .. } = inflight;
        let has = self.rings.len();
        let possible =
            (1..=has).contains(&rings.into()) && (1..=RING_SIZE_MAX).contains(&ring_size.into());
        match possible {
            true => Ok(inflight),
            false => Err(Reason::InflightRings { rings, ring_size, has }),
        }
    }

    pub(super) fn set_channel(&mut self, mut message: Message) -> Result<Reply, Reason> {
        self.require(ProtocolFeatures::BACKEND_REQ)?;
        let fd = message.fds.pop().ok_or(Reason::FdCount { expected: 1, got: 0 })?;
        let is_stream = sockopt::socket_type(&fd) == Ok(SocketType::STREAM)
            && sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX);
        if !is_stream {
            return Err(Reason::NotASocket);
        }
        self.channel = Some(Arc::new(fd));
        Ok(Reply::Done)
    }

    /// The reply is a number: an error in its low byte, and a flag for a descriptor of ours, which
    /// we never send.
    pub(super) fn transfer_state(
        &mut self,
        mut message: Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require(ProtocolFeatures::DEVICE_STATE)?;
        let fd = message.fds.pop().ok_or(Reason::FdCount { expected: 1, got: 0 })?;
        let done = match prefix(&message)? {
            _ if self.rings.iter().any(|ring| ring.is_running()) => Err(Reason::StateWhileRunning),
            StateTransfer { direction: StateTransfer::SAVE, phase: StateTransfer::STOPPED } => {
                device.save_state(fd).map_err(Reason::Device)
            }
            StateTransfer { direction: StateTransfer::LOAD, phase: StateTransfer::STOPPED } => {
                device.load_state(fd).map_err(Reason::Device)
            }
            StateTransfer { direction, phase } => Err(Reason::StateTransfer { direction, phase }),
        };
        let failed = self.note(Request::SetDeviceStateFd, done);
        Ok(Reply::number(STATE_NO_FD | u64::from(failed)))
    }

    pub(super) fn check_state(&mut self, device: &mut impl BackendDevice) -> Result<Reply, Reason> {
        self.require(ProtocolFeatures::DEVICE_STATE)?;
        let checked = device.check_state().map_err(Reason::Device);
        let failed = self.note(Request::CheckDeviceState, checked);
        Ok(Reply::number(failed.into()))
    }

    /// Stores the error of a request whose reply has a field for it; returns `true` on success.
    pub(super) fn note(&mut self, request: Request, result: Result<(), Reason>) -> bool {
        let error = result.err();
        let failed = error.is_some();
        let request = RequestName(request.code());
        if let Some(reason) = error {
            self.refusal = Some(ProtocolError { request, reason });
        }
        failed
    }
}
