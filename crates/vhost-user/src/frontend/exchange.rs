//! One request and its answer.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::features::ProtocolFeatures;
use crate::message::{Flags, Message, Request, RequestName};
use crate::payload::VRING_NO_FD;
use crate::socket;

use super::{Frontend, FrontendError};

impl Frontend {
    pub(super) fn set_ring_fd(
        &mut self,
        request: Request,
        index: u32,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), FrontendError> {
        let index = u64::from(index);
        match fd {
            Some(fd) => self.set(request, &index, &[fd]),
            None => self.set(request, &(index | VRING_NO_FD), &[]),
        }
    }

    pub(super) fn need(
        &self,
        request: Request,
        feature: ProtocolFeatures,
    ) -> Result<(), FrontendError> {
        if self.protocol_features.contains(feature) {
            return Ok(());
        }
        let feature = format!("{feature:?}");
        Err(FrontendError::NotNegotiated { request: name(request), feature })
    }

    /// Sends a setting, and with `REPLY_ACK` waits for its acknowledgement.
    pub(super) fn set(
        &mut self,
        request: Request,
        payload: &(impl IntoBytes + Immutable + ?Sized),
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), FrontendError> {
        let mut message = Message::request(request, payload);
        if !self.protocol_features.contains(ProtocolFeatures::REPLY_ACK) {
            return self.send(request, &message, fds);
        }
        message.flags = Flags::NEED_REPLY;
        self.send(request, &message, fds)?;
        let reply = self.receive(request)?;
        match u64::read_from_bytes(&reply.payload) {
            Ok(0) => Ok(()),
            Ok(answer) => Err(FrontendError::Refused { request: name(request), answer }),
            Err(_) => Err(wrong(request, &reply)),
        }
    }

    /// Asks for a value.
    pub(super) fn get<T: FromBytes + KnownLayout>(
        &mut self,
        request: Request,
        payload: &(impl IntoBytes + Immutable + ?Sized),
    ) -> Result<T, FrontendError> {
        let reply = self.exchange(request, payload)?;
        T::read_from_bytes(&reply.payload).map_err(|_| wrong(request, &reply))
    }

    pub(super) fn exchange(
        &mut self,
        request: Request,
        payload: &(impl IntoBytes + Immutable + ?Sized),
    ) -> Result<Message, FrontendError> {
        self.send(request, &Message::request(request, payload), &[])?;
        self.receive(request)
    }

    /// As [`exchange`](Self::exchange), with descriptors in the request, and optionally one in the
    /// answer.
    pub(super) fn exchange_fds(
        &mut self,
        request: Request,
        payload: &(impl IntoBytes + Immutable + ?Sized),
        fds: &[BorrowedFd<'_>],
    ) -> Result<Message, FrontendError> {
        self.send(request, &Message::request(request, payload), fds)?;
        self.receive_fds(request)
    }

    fn send(
        &mut self,
        request: Request,
        message: &Message,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), FrontendError> {
        let deadline = Instant::now() + self.timeout;
        socket::send_before(&self.stream, message, fds, deadline)
            .map_err(|source| FrontendError::Socket { request: name(request), source })
    }

    fn receive(&mut self, request: Request) -> Result<Message, FrontendError> {
        let reply = self.receive_fds(request)?;
        if reply.fds.is_empty() { Ok(reply) } else { Err(wrong(request, &reply)) }
    }

    fn receive_fds(&mut self, request: Request) -> Result<Message, FrontendError> {
        let deadline = Instant::now() + self.timeout;
        let reply = self
            .receiver
            .receive(&self.stream, deadline)
            .map_err(|source| FrontendError::Socket { request: name(request), source })?;
        let answers = reply.request == request.code() && reply.flags.contains(Flags::REPLY);
        if answers { Ok(reply) } else { Err(wrong(request, &reply)) }
    }
}

pub(super) fn name(request: Request) -> RequestName {
    RequestName(request.code())
}

pub(super) fn wrong(request: Request, reply: &Message) -> FrontendError {
    let bytes = reply.payload.len();
    FrontendError::WrongReply { request: name(request), got: reply.name(), bytes }
}
