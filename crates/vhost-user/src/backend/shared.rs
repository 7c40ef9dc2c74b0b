//! What front-end and back-end share beside memory and rings: the dirty log, the records of what is
//! in flight, a socket for requests of ours, and the pipe of a device's state.
//!
//! Specification: vhost-user.rst, "Migration", "Inflight I/O tracking", "Back-end communication".

use std::sync::Arc;

use rustix::net::{AddressFamily, SocketType, sockopt};
use zerocopy::{FromBytes, IntoBytes};

use crate::features::{Features, ProtocolFeatures};
use crate::foreign::ForeignFd;
use crate::message::{Message, RING_SIZE_MAX, Request, RequestName};
use crate::payload::{Inflight, LogArea, STATE_NO_FD, StateTransfer};

use super::device::{Device, InflightArea, SharedArea};
use super::error::{ProtocolError, Reason};
use super::shape::prefix;
use super::{Answer, Backend};

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
    /// Whether all writes are to be logged. Who has not agreed on a shared log has none to read,
    /// and sets the bit because it sets every one that is offered.
    pub(super) fn logs_all(&self) -> bool {
        self.features & Features::LOG_ALL.bits() != 0
            && self.protocol_features.contains(ProtocolFeatures::LOG_SHMFD)
    }

    /// A new log. When this is answered nothing is written to the former one any more: the
    /// front-end looks at that for the last time then.
    ///
    /// It is answered whether or not that was asked for, and with the payload of the request: QEMU
    /// takes any, Rust's `vhost` crate this one.
    pub(super) fn set_log_base(
        &mut self,
        mut message: Message,
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
        self.require(ProtocolFeatures::LOG_SHMFD)?;
        let LogArea { size, offset } = prefix(&message)?;
        let area = SharedArea::new(size, offset, &mut message.fds)?;
        device.set_log(Some(area)).map_err(Reason::Device)?;
        self.has_log = true;
        self.renew_all(device);
        // That a ring cannot start, which may wait for other memory, is no fault of the log.
        let started = self.start_all(device);
        self.note(Request::SetLogBase, started);
        Ok(Answer::Reply(message.payload))
    }

    /// Lets go of a log to which nothing is written any more.
    pub(super) fn release_unused_log(&mut self, device: &mut impl Device) {
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
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
        self.require(ProtocolFeatures::INFLIGHT_SHMFD)?;
        let asked = self.inflight(message)?;
        let area = device.create_inflight(asked.rings, asked.ring_size).map_err(Reason::Device)?;
        self.renew_all(device);
        let given = Inflight { size: area.size, offset: area.offset, ..asked };
        // As long as the question was.
        let mut payload = given.as_bytes().to_vec();
        payload.truncate(message.payload.len());
        Ok(Answer::ReplyWith(payload, area.fd))
    }

    pub(super) fn set_inflight(
        &mut self,
        mut message: Message,
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
        self.require(ProtocolFeatures::INFLIGHT_SHMFD)?;
        let Inflight { size, offset, rings, ring_size, .. } = self.inflight(&message)?;
        let area = SharedArea::new(size, offset, &mut message.fds)?;
        let records = InflightArea { area, rings, ring_size };
        device.set_inflight(Some(records)).map_err(Reason::Device)?;
        self.renew_all(device);
        self.start_all(device).map(|()| Answer::Done)
    }

    /// What a message says of records.
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

    pub(super) fn set_channel(&mut self, mut message: Message) -> Result<Answer, Reason> {
        self.require(ProtocolFeatures::BACKEND_REQ)?;
        let fd = message.fds.pop().ok_or(Reason::FdCount { expected: 1, got: 0 })?;
        let is_stream = sockopt::socket_type(&fd) == Ok(SocketType::STREAM)
            && sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX);
        if !is_stream {
            return Err(Reason::NotASocket);
        }
        self.channel = Some(Arc::new(fd));
        Ok(Answer::Done)
    }

    /// Answered by a number: an error in its low byte, and whether we give a descriptor of our own,
    /// which we never do.
    pub(super) fn transfer_state(
        &mut self,
        mut message: Message,
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
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
        Ok(Answer::number(STATE_NO_FD | u64::from(failed)))
    }

    pub(super) fn check_state(&mut self, device: &mut impl Device) -> Result<Answer, Reason> {
        self.require(ProtocolFeatures::DEVICE_STATE)?;
        let checked = device.check_state().map_err(Reason::Device);
        let failed = self.note(Request::CheckDeviceState, checked);
        Ok(Answer::number(failed.into()))
    }

    /// Keeps why a request failed whose answer has a place for that; says whether it did.
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
