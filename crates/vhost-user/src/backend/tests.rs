//! Effects of each request, and the guarantees of the state machine on every input.

mod handover;
mod hostile;
mod properties;
mod rings;
mod session;
mod shared;

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::*;
use crate::checked::CheckedDevice;
use crate::payload::{
    LogArea, RegionPayload, SingleRegion, TableHeader, VRING_LOG, VringAddr, VringState,
};

const FEATURES: u64 = Features::VERSION_1.union(Features::MRG_RXBUF).union(Features::MTU).bits();
const LOG_ALL: u64 = Features::LOG_ALL.bits();
/// Features that the front-end negotiates first: all offered ones except the log.
const OFFERED: u64 = FEATURES | Features::PROTOCOL_FEATURES.bits();

const CONFIG: BackendConfig = BackendConfig {
    features: FEATURES,
    protocol_features: ProtocolFeatures::SUPPORTED,
    queue_pairs_max: 2,
    mem_slots_max: 4,
};

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

fn region(guest_addr: u64, size: u64) -> RegionPayload {
    RegionPayload { guest_addr, size, user_addr: guest_addr + 0x10_0000, mmap_offset: 0 }
}

fn state(index: u32, num: u32) -> VringState {
    VringState { index, num }
}

fn addresses(index: u32) -> VringAddr {
    let at = 0x1_0000 * (u64::from(index) + 1);
    VringAddr { index, flags: 0, desc: at, avail: at + 0x1000, used: at + 0x2000, log: 0 }
}

fn message(
    request: Request,
    payload: &(impl IntoBytes + Immutable + ?Sized),
    fds: usize,
) -> Message {
    let mut message = Message::request(request, payload);
    message.fds.extend((0..fds).map(|_| event().into()));
    message
}

/// Adds a request for an acknowledgement.
fn asked(mut message: Message) -> Message {
    message.flags = Flags::NEED_REPLY;
    message
}

fn table(regions: &[RegionPayload]) -> Message {
    let mut payload = TableHeader { count: regions.len() as u32, padding: 0 }.as_bytes().to_vec();
    payload.extend(regions.iter().flat_map(|region| region.as_bytes()));
    message(Request::SetMemTable, &payload[..], regions.len())
}

/// A back-end and its device.
struct Session {
    backend: Backend,
    device: CheckedDevice,
}

impl Session {
    fn new(config: BackendConfig) -> Self {
        let rings = usize::from(config.queue_pairs_max) * 2;
        let backend = Backend::new(config).unwrap();
        let device = CheckedDevice::new(rings, backend.offered_features());
        Self { backend, device }
    }

    /// With features negotiated and one region of memory.
    fn ready() -> Self {
        let mut session = Self::new(CONFIG);
        session.done(message(Request::SetProtocolFeatures, &CONFIG.protocol_features.bits(), 0));
        session.done(message(Request::SetFeatures, &OFFERED, 0));
        session.done(table(&[region(0, 0x1000)]));
        session
    }

    fn handle(&mut self, message: Message) -> Result<Option<Message>, ProtocolError> {
        let result = self.backend.handle(message, &mut self.device);
        self.device.assert_settled();
        result
    }

    /// A request that succeeds without a reply.
    fn done(&mut self, message: Message) {
        let name = message.name();
        let reply = self.handle(message).unwrap();
        assert!(reply.is_none(), "{name} must not be answered");
    }

    /// A request with a reply.
    fn ask<T: FromBytes>(&mut self, message: Message) -> T {
        let request = message.request;
        let reply = self.handle(message).unwrap().expect("an answer");
        assert_eq!((reply.request, reply.flags), (request, Flags::REPLY));
        T::read_from_bytes(&reply.payload).expect("an answer of the right size")
    }

    /// A request that fails.
    fn fail(&mut self, message: Message) -> Reason {
        let name = message.name();
        let error = self.handle(message).expect_err("this must fail");
        assert_eq!(error.request, name);
        error.reason
    }

    /// All settings of a ring except enabled.
    fn set_up(&mut self, index: u32, base: u32) {
        self.done(message(Request::SetVringNum, &state(index, 256), 0));
        self.done(message(Request::SetVringBase, &state(index, base), 0));
        self.done(message(Request::SetVringAddr, &addresses(index), 0));
        self.done(message(Request::SetVringCall, &u64::from(index), 1));
        self.done(message(Request::SetVringErr, &u64::from(index), 1));
        self.done(message(Request::SetVringKick, &u64::from(index), 1));
    }

    fn enable(&mut self, index: u32, enabled: bool) {
        self.done(message(Request::SetVringEnable, &state(index, enabled.into()), 0));
    }

    fn runs(&self, index: usize) -> bool {
        self.device.ring(index).is_some()
    }
}
