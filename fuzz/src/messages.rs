//! Messages of a vhost-user front-end, to the state machine and to a socket.
//!
//! [`messages`] takes the input as a sequence of requests to a [`Backend`], most of them nearly
//! right so that they get past the first checks; [`CheckedDevice`] asserts what the state machine
//! promises. [`frames`] takes it as what a peer writes into a socket, piece by piece.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use vhost_user::backend::RingDirection;
use vhost_user::checked::CheckedDevice;
use vhost_user::message::{FDS_MAX, PAYLOAD_SIZE_MAX};
use vhost_user::payload::{
    ConfigHeader, Inflight, LogArea, RegionPayload, SingleRegion, StateTransfer, TableHeader,
    VringAddr, VringState,
};
use vhost_user::{
    Backend, BackendConfig, Features, Flags, Message, ProtocolFeatures, Receiver, Request,
};
use zerocopy::IntoBytes;

use crate::Reached;
use crate::input::Input;

const QUEUE_PAIRS: u16 = 2;
const FEATURES: Features = Features::VERSION_1.union(Features::MRG_RXBUF);

/// The requests, the ones that matter for rings more often.
const REQUESTS: [Request; 39] = [
    Request::SetVringNum,
    Request::SetVringNum,
    Request::SetVringAddr,
    Request::SetVringAddr,
    Request::SetVringBase,
    Request::GetVringBase,
    Request::SetVringKick,
    Request::SetVringKick,
    Request::SetVringKick,
    Request::SetVringCall,
    Request::SetVringErr,
    Request::SetVringEnable,
    Request::SetVringEnable,
    Request::SetVringEnable,
    Request::SetMemTable,
    Request::SetMemTable,
    Request::AddMemReg,
    Request::RemMemReg,
    Request::SetFeatures,
    Request::SetFeatures,
    Request::SetProtocolFeatures,
    Request::GetFeatures,
    Request::ResetOwner,
    Request::ResetDevice,
    Request::SetStatus,
    Request::GetStatus,
    Request::NetSetMtu,
    Request::SendRarp,
    Request::GetConfig,
    Request::SetConfig,
    Request::SetLogBase,
    Request::SetLogBase,
    Request::SetBackendReqFd,
    Request::GetInflightFd,
    Request::SetInflightFd,
    Request::SetDeviceStateFd,
    Request::CheckDeviceState,
    Request::GetMaxMemSlots,
    Request::VringKick,
];

fn region(input: &mut Input<'_>) -> RegionPayload {
    let guest_addr = input.mostly(&[0, 0x1000, 0x2000, 0x3000]);
    RegionPayload {
        guest_addr,
        size: input.mostly(&[0x1000, 0x1000, 0x1000, 0x2000, 0]),
        user_addr: guest_addr.wrapping_add(input.mostly(&[0x10_0000])),
        mmap_offset: input.mostly(&[0]),
    }
}

/// The payload of a request, and how many descriptors belong to it.
fn payload(request: Request, input: &mut Input<'_>) -> (Vec<u8>, usize) {
    use Request::*;
    match request {
        SetVringNum | SetVringBase | GetVringBase | SetVringEnable => {
            let index = input.mostly(&[0, 1, 2, 3]) as u32;
            let num = match request {
                SetVringEnable => input.mostly(&[1, 1, 1, 0]),
                _ => input.mostly(&[256, 1, 32768, 0, 65535]),
            } as u32;
            (VringState { index, num }.as_bytes().to_vec(), 0)
        }
        SetVringAddr => {
            let address = VringAddr {
                index: input.mostly(&[0, 1, 2, 3]) as u32,
                flags: input.mostly(&[0, 0, 1]) as u32,
                desc: input.mostly(&[0x10_0000, 0x10_0010]),
                used: input.mostly(&[0x10_0100, 0x10_0104]),
                avail: input.mostly(&[0x10_0200, 0x10_0202]),
                log: input.mostly(&[0, 0x10_0100]),
            };
            (address.as_bytes().to_vec(), 0)
        }
        SetVringKick | SetVringCall | SetVringErr => {
            let value = input.mostly(&[0, 1, 2, 3, 0x100, 0x101, 0x102, 0x103]);
            (value.as_bytes().to_vec(), usize::from(value & 0x100 == 0))
        }
        SetMemTable => {
            let count = input.mostly(&[1, 2, 3, 0, 8, 9]) as u32;
            let mut payload = TableHeader { count, padding: 0 }.as_bytes().to_vec();
            for _ in 0..count.min(9) {
                payload.extend_from_slice(region(input).as_bytes());
            }
            (payload, count.min(8) as usize)
        }
        AddMemReg | RemMemReg => {
            let payload = SingleRegion { padding: 0, region: region(input) };
            (payload.as_bytes().to_vec(), usize::from(request == AddMemReg))
        }
        GetConfig | SetConfig => {
            let size = input.mostly(&[6, 12, 256, 257, 0]) as u32;
            let header = ConfigHeader { offset: input.mostly(&[0, 6]) as u32, size, flags: 0 };
            let mut payload = header.as_bytes().to_vec();
            payload.resize(payload.len() + size.min(300) as usize, 0);
            (payload, 0)
        }
        SetFeatures => {
            let bit = Features::PROTOCOL_FEATURES;
            let all = (FEATURES | bit).bits();
            let log = Features::LOG_ALL.bits();
            let values = [all, all | log, FEATURES.bits(), bit.bits(), 0];
            (input.mostly(&values).as_bytes().to_vec(), 0)
        }
        SetProtocolFeatures => {
            let all = ProtocolFeatures::SUPPORTED.bits();
            (input.mostly(&[all, all, all, 0]).as_bytes().to_vec(), 0)
        }
        SetStatus | NetSetMtu | SendRarp => {
            (input.mostly(&[15, 15, 1500, 2, 0]).as_bytes().to_vec(), 0)
        }
        _ => shared(request, input),
    }
}

/// The same of requests about what is shared beside memory and rings.
fn shared(request: Request, input: &mut Input<'_>) -> (Vec<u8>, usize) {
    use Request::*;
    match request {
        SetLogBase => {
            let area =
                LogArea { size: input.mostly(&[4096, 64, 0]), offset: input.mostly(&[0, 8]) };
            (area.as_bytes().to_vec(), 1)
        }
        GetInflightFd | SetInflightFd => {
            let rings = input.mostly(&[4, 2, 1, 0]) as u16;
            let (size, ring_size) =
                (input.mostly(&[320, 64, 0, 1 << 16]), input.mostly(&[256, 1, 0]) as u16);
            let inflight = Inflight { size, rings, ring_size, ..Inflight::default() };
            (inflight.as_bytes().to_vec(), usize::from(request == SetInflightFd))
        }
        SetBackendReqFd => (Vec::new(), 1),
        SetDeviceStateFd => {
            let (direction, phase) = (input.mostly(&[0, 1]) as u32, input.mostly(&[0]) as u32);
            (StateTransfer { direction, phase }.as_bytes().to_vec(), 1)
        }
        _ => (Vec::new(), 0),
    }
}

/// A request that is nearly right, with descriptors that `make` makes.
pub(crate) fn message(
    input: &mut Input<'_>,
    mut make: impl FnMut(Request, &mut Input<'_>) -> OwnedFd,
) -> Message {
    let first = input.byte();
    let request = REQUESTS[usize::from(first) % REQUESTS.len()];
    let (mut payload, mut fds) = payload(request, input);
    let mut code = request.code();
    let mut flags = Flags::empty();
    // One message in 16 is spoilt, in one of several ways.
    let second = input.byte();
    match second {
        0xf0..=0xf3 => fds = usize::from(input.byte()) % (FDS_MAX + 1),
        0xf4..=0xf7 => payload.resize(usize::from(input.byte()), 0),
        0xf8..=0xfb => code = input.u64() as u32,
        0xfc..=0xff => flags |= Flags::REPLY,
        _ => {}
    }
    flags.set(Flags::NEED_REPLY, second & 1 != 0);
    let fds = (0..fds).map(|_| make(request, input).into()).collect();
    Message { request: code, flags, payload, fds }
}

pub(crate) fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd")
}

/// Hands the input to a back-end as a sequence of requests. Panics if a promise is broken.
pub(crate) fn messages(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let config = BackendConfig {
        features: FEATURES.bits(),
        protocol_features: ProtocolFeatures::SUPPORTED,
        queue_pairs_max: QUEUE_PAIRS,
        mem_slots_max: 4,
    };
    let mut reached = Reached::default();
    let mut backend = Backend::new(config).expect("this configuration is possible");
    let offered = FEATURES | Features::PROTOCOL_FEATURES | Features::LOG_ALL;
    let mut device = CheckedDevice::new(usize::from(QUEUE_PAIRS) * 2, offered.bits());
    device.served = u16::from(input.byte());
    device.refusals = match input.byte() {
        at @ 0xc0.. => u64::from(at & 0x3f) << 20,
        _ => 0,
    };
    while !input.is_empty() {
        if input.byte() == 0xee {
            backend = hand_over(backend, config, &mut device);
            reached.add("hot restarts", 1);
        }
        let message = message(&mut input, |_, _| event());
        let request = message.request;
        match backend.handle(message, &mut device) {
            Ok(Some(reply)) => {
                assert_eq!((reply.request, reply.flags), (request, Flags::REPLY));
                assert!(reply.payload.len() <= PAYLOAD_SIZE_MAX);
                let records = request == Request::GetInflightFd.code();
                assert_eq!(reply.fds.len(), usize::from(records));
            }
            Ok(None) => {}
            // Errors must be printable, whatever they carry.
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        drop(backend.take_refusal());
        device.assert_settled();
        if device.regions().is_empty() {
            assert_eq!(device.rings_running(), 0, "a ring runs without memory");
        }
    }
    backend.disconnect(&mut device);
    assert_eq!(device.rings_running(), 0);
    assert!(device.regions().is_empty());
    let calls = device.calls();
    assert_eq!(calls.starts, calls.stops);
    reached.add("rings started", calls.starts);
    reached.add("descriptors replaced", calls.fds);
    reached.add("resets", calls.resets);
    reached
}

/// A hot restart: another process continues with the session.
fn hand_over(mut old: Backend, config: BackendConfig, device: &mut CheckedDevice) -> Backend {
    for half in [RingDirection::Transmit, RingDirection::Receive] {
        old.suspend(half, device);
    }
    assert_eq!(device.rings_running(), 0);
    let mut new = Backend::new(config).expect("this configuration is possible");
    new.restore(old.snapshot()).expect("the same is offered");
    new.set_positions(&old.positions()).expect("as many rings");
    // A ring that the device refuses stays stopped.
    let _ = new.resume(device);
    new
}

/// Writes the input into a socket, in pieces whose lengths it gives itself, and receives messages
/// at the other end after each piece. Panics if a message breaks the limits.
pub(crate) fn frames(data: &[u8]) -> Reached {
    let (mut peer, us) = UnixStream::pair().expect("socket pair");
    let mut receiver = Receiver::new();
    let mut input = Input::new(data);
    let mut reached = Reached::default();
    while !input.is_empty() {
        let length = usize::from(input.byte());
        peer.write_all(input.bytes(length)).expect("the other end is open and read");
        loop {
            match receiver.poll(&us) {
                Ok(Some(message)) => {
                    assert!(message.payload.len() <= PAYLOAD_SIZE_MAX);
                    reached.add("messages", 1);
                }
                Ok(None) => break,
                // A daemon closes the connection now.
                Err(_) => return reached,
            }
        }
    }
    reached
}
