//! The back-end's state machine: takes one message, calls a device, returns at most one reply.
//!
//! No clock, and no I/O on the session's socket: the caller receives messages (with
//! [`Receiver`](crate::Receiver)), passes them to [`Backend::handle`] and sends the replies (with
//! [`send`](crate::socket::send)).
//!
//! # Model
//!
//! A [`Backend`] is one session with one front-end. Two checks precede every change: the request's
//! format (size, descriptors; `format.rs`), and its meaning. An invalid request changes nothing. If
//! a setting is valid but the device refuses to start the ring, the setting is kept and the ring
//! stays stopped until a later setting makes it possible. A request that fails is
//!
//! * malformed: always a [`ProtocolError`], and the caller closes the connection;
//! * refused: with an acknowledgement requested (`REPLY_ACK`) the front-end gets a non-zero one,
//!   the session continues, and [`Backend::take_refusal`] gives the cause for the operator. Without
//!   one the front-end would never know, so this is a [`ProtocolError`] too.
//!
//! # Life of a session
//!
//! 1. `GET_FEATURES`, `GET_PROTOCOL_FEATURES`, `SET_PROTOCOL_FEATURES`, `SET_OWNER`
//! 2. `SET_FEATURES`, `SET_MEM_TABLE`
//! 3. per ring `SET_VRING_NUM`, `_BASE`, `_ADDR`, `_KICK`, `_CALL`, `_ENABLE`: it starts
//! 4. per ring `GET_VRING_BASE`: it stops; 2 to 4 repeat as the guest's driver comes and goes
//! 5. a migration: `SET_LOG_BASE`, `SET_FEATURES` and `SET_VRING_ADDR` while rings run, finally
//!    without the log again, or 4
//! 6. optionally [`Backend::snapshot`]: another process continues the session (`snapshot.rs`)
//! 7. [`Backend::disconnect`]: rings stop, memory is released, ready for the next front-end

mod device;
mod error;
mod format;
mod layout;
mod memory;
mod ring;
mod session;
mod shared;
mod snapshot;
#[cfg(test)]
mod tests;

pub use device::{
    BackendDevice, InflightArea, MemoryRegion, Refused, RingLog, RingSetup, SharedArea,
};
pub use error::{ConfigError, ProtocolError, Reason};
pub use snapshot::{KickSnapshot, RestoreError, RingDirection, RingSnapshot, Snapshot};

use std::sync::Arc;

use crate::features::{Features, ProtocolFeatures};
use crate::foreign::ForeignFd;
use crate::message::{BackendRequest, Flags, MEM_SLOTS_MAX, Message, QUEUE_PAIRS_MAX, Request};

use zerocopy::IntoBytes;

use memory::MemorySlot;
use ring::{RingFd, RingState};

/// Features that this state machine does not support: an IOMMU. `LOG_ALL` is added with
/// `LOG_SHMFD`.
const FEATURES_UNSERVED: Features = Features::LOG_ALL.union(Features::ACCESS_PLATFORM);

/// Limits and features that a back-end offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// Features offered, as [`Features`] bits. `PROTOCOL_FEATURES` is added automatically, and
    /// `LOG_ALL` if the dirty log is among the protocol features.
    pub features: u64,
    /// Protocol features offered, of [`ProtocolFeatures::SUPPORTED`].
    pub protocol_features: ProtocolFeatures,
    /// Queue pairs, 1 to 128. A pair is two rings: 2n is the guest's Rx, 2n + 1 its Tx.
    pub queue_pairs_max: u16,
    /// Most memory regions with `CONFIGURE_MEM_SLOTS`, 1 to 512.
    pub mem_slots_max: u64,
}

/// Reply to a request.
#[derive(Debug)]
enum Reply {
    /// None, or an acknowledgement if one was requested.
    Done,
    /// This payload.
    Payload(Vec<u8>),
    /// This payload, with a descriptor.
    PayloadAndFd(Vec<u8>, ForeignFd),
}

/// One session of the vhost-user protocol, on the back-end's side.
#[derive(Debug)]
pub struct Backend {
    config: BackendConfig,
    /// Features the guest's driver accepted.
    features: u64,
    protocol_features: ProtocolFeatures,
    status: u8,
    slots: Vec<MemorySlot>,
    rings: Vec<RingState>,
    /// `true` if the device has a dirty log.
    has_log: bool,
    /// Socket for requests to the front-end.
    channel: Option<Arc<ForeignFd>>,
    refusal: Option<ProtocolError>,
}

impl Backend {
    /// A back-end without a connection.
    ///
    /// # Errors
    /// [`ConfigError`] for features or limits that are not supported.
    pub fn new(config: BackendConfig) -> Result<Self, ConfigError> {
        if !(1..=QUEUE_PAIRS_MAX).contains(&config.queue_pairs_max) {
            return Err(ConfigError::QueuePairs(config.queue_pairs_max));
        }
        if !(1..=MEM_SLOTS_MAX).contains(&config.mem_slots_max) {
            return Err(ConfigError::MemSlots(config.mem_slots_max));
        }
        let unserved = Features::from_bits_retain(config.features) & FEATURES_UNSERVED;
        if !unserved.is_empty() {
            return Err(ConfigError::Features(unserved));
        }
        let unserved = config.protocol_features - ProtocolFeatures::SUPPORTED;
        if !unserved.is_empty() {
            return Err(ConfigError::ProtocolFeatures(unserved));
        }
        Ok(Self::fresh(config))
    }

    fn fresh(config: BackendConfig) -> Self {
        let mut rings = Vec::new();
        rings.resize_with(usize::from(config.queue_pairs_max) * 2, RingState::default);
        Self {
            config,
            features: 0,
            protocol_features: ProtocolFeatures::empty(),
            status: 0,
            slots: Vec::new(),
            rings,
            has_log: false,
            channel: None,
            refusal: None,
        }
    }

    /// Handles one request and returns the reply to send, if there is one.
    ///
    /// # Errors
    /// [`ProtocolError`]: close this connection and call [`disconnect`](Self::disconnect).
    pub fn handle(
        &mut self,
        message: Message,
        device: &mut impl BackendDevice,
    ) -> Result<Option<Message>, ProtocolError> {
        let code = message.request;
        let name = message.name();
        let ask = message.flags.contains(Flags::NEED_REPLY);
        let outcome = self.dispatch(message, device);
        // After the request, which may itself have negotiated acknowledgements.
        let ack = ask && self.protocol_features.contains(ProtocolFeatures::REPLY_ACK);
        match outcome {
            Ok(Reply::Payload(payload)) => Ok(Some(Message::reply(code, payload))),
            Ok(Reply::PayloadAndFd(payload, fd)) => {
                Ok(Some(Message { fds: vec![fd], ..Message::reply(code, payload) }))
            }
            Ok(Reply::Done) => Ok(ack.then(|| acknowledge(code, 0))),
            Err(reason) => {
                let has_reply = Request::from_code(code).is_some_and(Request::has_reply);
                let fatal = !ack || has_reply || reason.is_malformed();
                let error = ProtocolError { request: name, reason };
                if fatal {
                    return Err(error);
                }
                self.refusal = Some(error);
                Ok(Some(acknowledge(code, 1)))
            }
        }
    }

    /// Ends the session after a disconnect: stops all rings, releases the memory, clears all state.
    pub fn disconnect(&mut self, device: &mut impl BackendDevice) {
        self.stop_all(device);
        if !self.slots.is_empty() {
            // The device's contract: an empty table is never refused.
            let released = device.set_memory(Vec::new());
            debug_assert!(released.is_ok(), "an empty table was refused");
        }
        let released = device.set_log(None).and(device.set_inflight(None));
        debug_assert!(released.is_ok(), "a release was refused");
        *self = Self::fresh(self.config);
    }

    /// The cause of the last negative acknowledgement, for the operator's log; returned once.
    pub fn take_refusal(&mut self) -> Option<ProtocolError> {
        self.refusal.take()
    }

    /// Limits and features offered.
    pub fn config(&self) -> &BackendConfig {
        &self.config
    }

    /// The features negotiated, as [`Features`] bits.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// The protocol features negotiated.
    pub fn protocol_features(&self) -> ProtocolFeatures {
        self.protocol_features
    }

    /// The virtio device status last set, 0 if the front-end does not send it.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Socket and message for a change of the configuration space; `None` if the front-end does not
    /// want it. If sending fails, call [`close_channel`](Self::close_channel).
    pub fn config_change(&self) -> Option<(&ForeignFd, Message)> {
        let wanted = ProtocolFeatures::CONFIG | ProtocolFeatures::BACKEND_REQ;
        let channel = self.channel.as_deref()?;
        let message = || Message::of_backend(BackendRequest::ConfigChangeMsg);
        self.protocol_features.contains(wanted).then(|| (channel, message()))
    }

    /// Sends no more requests to the front-end in this session.
    pub fn close_channel(&mut self) {
        self.channel = None;
    }

    fn dispatch(
        &mut self,
        message: Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        if message.flags.contains(Flags::REPLY) {
            return Err(Reason::IsReply);
        }
        let request = Request::from_code(message.request).ok_or(Reason::UnknownRequest)?;
        if !is_served(request) {
            return Err(Reason::NotOffered);
        }
        format::check(request, &message)?;
        use Request::*;
        match request {
            GetFeatures => Ok(Reply::number(self.offered_features())),
            SetFeatures => self.set_features(&message, device),
            // Only one front-end can be connected, so it owns the session anyway.
            SetOwner => Ok(Reply::Done),
            ResetOwner => self.reset_owner(device),
            SetMemTable => self.set_mem_table(message, device),
            SetLogBase => self.set_log_base(message, device),
            SetVringNum => self.set_vring_num(&message, device),
            SetVringAddr => self.set_vring_addr(&message, device),
            SetVringBase => self.set_vring_base(&message),
            GetVringBase => self.get_vring_base(&message, device),
            SetVringKick => self.set_vring_fd(RingFd::Kick, message, device),
            SetVringCall => self.set_vring_fd(RingFd::Call, message, device),
            SetVringErr => self.set_vring_fd(RingFd::Err, message, device),
            GetProtocolFeatures => Ok(Reply::number(self.config.protocol_features.bits())),
            SetProtocolFeatures => self.set_protocol_features(&message, device),
            GetQueueNum => {
                self.require_offered(ProtocolFeatures::MQ)?;
                Ok(Reply::number(self.config.queue_pairs_max.into()))
            }
            SetVringEnable => self.set_vring_enable(&message, device),
            SendRarp => self.send_rarp(&message, device),
            NetSetMtu => self.set_mtu(&message, device),
            SetBackendReqFd => self.set_channel(message),
            GetConfig => self.get_config(message, device),
            SetConfig => self.check_config(&message, device),
            GetInflightFd => self.get_inflight(&message, device),
            SetInflightFd => self.set_inflight(message, device),
            ResetDevice => self.reset_device(device),
            GetMaxMemSlots => {
                self.require(ProtocolFeatures::CONFIGURE_MEM_SLOTS)?;
                Ok(Reply::number(self.config.mem_slots_max))
            }
            AddMemReg => self.add_region(message, device),
            RemMemReg => self.remove_region(message, device),
            SetStatus => self.set_status(&message, device),
            GetStatus => {
                self.require(ProtocolFeatures::STATUS)?;
                Ok(Reply::number(self.status.into()))
            }
            SetDeviceStateFd => self.transfer_state(message, device),
            CheckDeviceState => self.check_state(device),
            _ => Err(Reason::NotOffered),
        }
    }
}

/// "The payload should be set to zero on success or non-zero on failure."
fn acknowledge(request: u32, result: u64) -> Message {
    Message::reply(request, result.as_bytes().to_vec())
}

/// Returns `false` for requests of features that this back-end never offers. They are rejected
/// before the check of their format, which is not known for all of them.
fn is_served(request: Request) -> bool {
    use Request::*;
    !matches!(
        request,
        SetLogFd
            | IotlbMsg
            | SetVringEndian
            | CreateCryptoSession
            | CloseCryptoSession
            | PostcopyAdvise
            | PostcopyListen
            | PostcopyEnd
            | GpuSetSocket
            | VringKick
            | GetSharedObject
            | GetShmemConfig
    )
}
