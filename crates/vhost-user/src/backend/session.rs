//! Requests on the session and the device as a whole: features, status, configuration.

use zerocopy::{FromBytes, IntoBytes};

use crate::features::{Features, ProtocolFeatures};
use crate::message::{CONFIG_SIZE_MAX, Message};
use crate::payload::ConfigHeader;

use super::device::BackendDevice;
use super::error::Reason;
use super::format::prefix;
use super::ring::RingState;
use super::{Backend, Reply};

impl Reply {
    /// A reply that is one number.
    pub(super) fn number(value: u64) -> Self {
        Self::Payload(value.as_bytes().to_vec())
    }
}

impl Backend {
    /// The features offered, including the bits for protocol features and the log.
    pub(super) fn offered_features(&self) -> u64 {
        let mut features = Features::from_bits_retain(self.config.features);
        let protocol = self.config.protocol_features;
        features.set(Features::PROTOCOL_FEATURES, !protocol.is_empty());
        features.set(Features::LOG_ALL, protocol.contains(ProtocolFeatures::LOG_SHMFD));
        features.bits()
    }

    /// Checks that a protocol feature was negotiated.
    pub(super) fn require(&self, feature: ProtocolFeatures) -> Result<(), Reason> {
        match self.protocol_features.contains(feature) {
            true => Ok(()),
            false => Err(Reason::NotNegotiated(feature)),
        }
    }

    /// Checks that a protocol feature was offered. Front-ends use some requests as soon as they
    /// know of the offer, as the specification allows.
    pub(super) fn require_offered(&self, feature: ProtocolFeatures) -> Result<(), Reason> {
        match self.config.protocol_features.contains(feature) {
            true => Ok(()),
            false => Err(Reason::NotOffered),
        }
    }

    pub(super) fn set_features(
        &mut self,
        message: &Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        let features: u64 = prefix(message)?;
        let unknown = features & !self.offered_features();
        if unknown != 0 {
            return Err(Reason::FeaturesNotOffered(unknown));
        }
        let former = std::mem::replace(&mut self.features, features);
        // A migration begins and ends while rings run, and must not disturb them.
        match (former ^ features) & !Features::LOG_ALL.bits() {
            0 if former != features => self.renew_all(device),
            0 => {}
            _ => self.stop_all(device),
        }
        // "Upon receiving a SET_FEATURES message without PROTOCOL_FEATURES set, the back-end must
        // enable all rings immediately." With the bit, rings stay as they are: a front-end may
        // repeat the request while they run.
        if features & Features::PROTOCOL_FEATURES.bits() == 0 {
            for index in 0..self.rings.len() {
                self.enable(index, true, device);
            }
        }
        let started = self.start_all(device);
        if former & Features::LOG_ALL.bits() != 0 {
            self.release_unused_log(device);
        }
        started.map(|()| Reply::Done)
    }

    pub(super) fn set_protocol_features(
        &mut self,
        message: &Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        let bits: u64 = prefix(message)?;
        let unknown = bits & !self.config.protocol_features.bits();
        if unknown != 0 {
            return Err(Reason::FeaturesNotOffered(unknown));
        }
        let former = self.logs_all();
        self.protocol_features = ProtocolFeatures::from_bits_truncate(bits);
        if former != self.logs_all() {
            self.renew_all(device);
        }
        self.start_all(device).map(|()| Reply::Done)
    }

    /// "It is recommended that back-ends either ignore this message, or use it to disable all
    /// rings."
    pub(super) fn reset_owner(&mut self, device: &mut impl BackendDevice) -> Result<Reply, Reason> {
        for index in 0..self.rings.len() {
            self.enable(index, false, device);
        }
        Ok(Reply::Done)
    }

    /// "Disable all rings and reset all internal device state to the initial state, ready to be
    /// reinitialized." Memory and the protocol features belong to the session and stay.
    pub(super) fn reset_device(
        &mut self,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require_offered(ProtocolFeatures::RESET_DEVICE)?;
        self.quiesce(device);
        self.rings.fill_with(RingState::default);
        self.features = 0;
        self.status = 0;
        device.reset();
        Ok(Reply::Done)
    }

    pub(super) fn set_status(
        &mut self,
        message: &Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require(ProtocolFeatures::STATUS)?;
        let status: u64 = prefix(message)?;
        let status = u8::try_from(status).map_err(|_| Reason::Status(status))?;
        // virtio 1.2, 2.1: writing 0 resets the device, so it must stop using the rings. Front-ends
        // usually stop them first; this is for one that does not.
        if status == 0 {
            self.quiesce(device);
        }
        self.status = status;
        device.set_status(status);
        Ok(Reply::Done)
    }

    pub(super) fn set_mtu(
        &mut self,
        message: &Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require_offered(ProtocolFeatures::NET_MTU)?;
        let mtu: u64 = prefix(message)?;
        // 68: the minimum of IPv4 (RFC 791) and virtio-net (virtio 1.2, 5.1.4.1).
        match u16::try_from(mtu) {
            Ok(mtu @ 68..) => device.set_mtu(mtu).map_err(Reason::Device)?,
            _ => return Err(Reason::Mtu(mtu)),
        }
        Ok(Reply::Done)
    }

    pub(super) fn send_rarp(
        &mut self,
        message: &Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require_offered(ProtocolFeatures::RARP)?;
        // "The first 6 bytes of the payload contain the mac address of the guest."
        let mac: [u8; 6] = prefix(message)?;
        if mac[0] & 1 != 0 || mac == [0; 6] {
            return Err(Reason::RarpAddress);
        }
        device.send_rarp(mac);
        Ok(Reply::Done)
    }

    /// Bytes that the device does not have read as zero, because front-ends ask for the length of
    /// their own version of the structure.
    pub(super) fn get_config(
        &self,
        mut message: Message,
        device: &impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require(ProtocolFeatures::CONFIG)?;
        let Ok(range) = config_range(&message) else {
            // "The back-end uses zero length of payload to indicate an error."
            return Ok(Reply::Payload(Vec::new()));
        };
        let mut config = device.config();
        config.resize(CONFIG_SIZE_MAX as usize, 0);
        message.payload[size_of::<ConfigHeader>()..].copy_from_slice(&config[range]);
        Ok(Reply::Payload(message.payload))
    }

    /// "Back-ends MUST NOT accept `SET_CONFIG` for read-only configuration space fields": all
    /// fields are, since the operator sets them. A write of the current value is accepted.
    pub(super) fn check_config(
        &self,
        message: &Message,
        device: &impl BackendDevice,
    ) -> Result<Reply, Reason> {
        self.require(ProtocolFeatures::CONFIG)?;
        let range = config_range(message)?;
        let mut config = device.config();
        config.resize(CONFIG_SIZE_MAX as usize, 0);
        match message.payload[size_of::<ConfigHeader>()..] == config[range] {
            true => Ok(Reply::Done),
            false => Err(Reason::ConfigReadOnly),
        }
    }
}

/// The range of the configuration space in a message.
fn config_range(message: &Message) -> Result<std::ops::Range<usize>, Reason> {
    let (header, _) = ConfigHeader::read_from_prefix(&message.payload).map_err(|_| {
        Reason::PayloadSize { expected: size_of::<ConfigHeader>(), got: message.payload.len() }
    })?;
    let end = u64::from(header.offset) + u64::from(header.size);
    if header.size == 0 || end > u64::from(CONFIG_SIZE_MAX) {
        return Err(Reason::ConfigRange { offset: header.offset, end });
    }
    Ok(header.offset as usize..end as usize)
}
