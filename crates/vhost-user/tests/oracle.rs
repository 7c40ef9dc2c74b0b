//! Our back-end against an independent front-end: `Frontend` of the `vhost` crate.
//!
//! Its calls that pass an event take a type of a crate that is no dependency here. So our own code
//! sends kicks and calls over the same socket, between its calls.

mod common;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags,
    VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData};
use vhost_user::checked::CheckedDevice;
use vhost_user::socket::send_before;
use vhost_user::{Features, Flags, Message, ProtocolFeatures, Reason, Receiver, Request};

use common::{FEATURES, SessionEnd, config, serve};

const LOG_ALL: u64 = Features::LOG_ALL.bits();
/// Features that the front-end takes, without the log.
const OFFERED: u64 = FEATURES | Features::PROTOCOL_FEATURES.bits();

struct Peer {
    frontend: Frontend,
    /// The same socket again, for messages that `Frontend` cannot send.
    stream: UnixStream,
    server: JoinHandle<(CheckedDevice, SessionEnd)>,
}

impl Peer {
    fn new() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stream = theirs.try_clone().unwrap();
        let server = serve(ours, config());
        Self { frontend: Frontend::from_stream(theirs, 8), stream, server }
    }

    /// With all features negotiated and acknowledgements asked for.
    fn negotiated() -> Self {
        let mut peer = Self::new();
        let frontend = &mut peer.frontend;
        frontend.set_owner().unwrap();
        assert_eq!(frontend.get_features().unwrap(), OFFERED | LOG_ALL);
        let offered = frontend.get_protocol_features().unwrap();
        assert_eq!(offered.bits(), ProtocolFeatures::SUPPORTED.bits());
        frontend.set_protocol_features(offered).unwrap();
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        frontend.set_features(OFFERED).unwrap();
        peer
    }

    fn event(&self, request: Request, ring: u64) -> OwnedFd {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut message = Message::request(request, &ring);
        message.flags = Flags::NEED_REPLY;
        send_before(&self.stream, &message, &[event.as_fd()], deadline).unwrap();
        let reply = Receiver::new().receive(&self.stream, deadline).unwrap();
        assert_eq!(reply.payload, [0; 8]);
        event
    }

    /// Starts rings 0 and 1.
    fn start_rings(&mut self) {
        for ring in [0, 1] {
            self.frontend.set_vring_num(ring, 256).unwrap();
            self.frontend.set_vring_base(ring, 40).unwrap();
            self.frontend.set_vring_addr(ring, &vring()).unwrap();
            self.event(Request::SetVringCall, ring as u64);
            self.event(Request::SetVringKick, ring as u64);
            self.frontend.set_vring_enable(ring, true).unwrap();
        }
    }

    /// Closes the connection and returns the back-end's result.
    fn finish(self) -> (CheckedDevice, SessionEnd) {
        drop((self.frontend, self.stream));
        self.server.join().unwrap()
    }
}

fn memory() -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(0x1_0000).unwrap();
    file
}

fn region(file: &File, guest_phys_addr: u64) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr,
        memory_size: 0x1_0000,
        userspace_addr: guest_phys_addr + 0x7000_0000,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    }
}

fn vring() -> VringConfigData {
    VringConfigData {
        queue_max_size: 256,
        queue_size: 256,
        flags: 0,
        desc_table_addr: 0x7000_0000,
        used_ring_addr: 0x7000_3000,
        avail_ring_addr: 0x7000_2000,
        log_addr: None,
    }
}

#[test]
fn negotiation() {
    let mut peer = Peer::negotiated();
    assert_eq!(peer.frontend.get_queue_num().unwrap(), 4);
    assert_eq!(peer.frontend.get_max_mem_slots().unwrap(), 16);
    let (_, end) = peer.finish();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
}

#[test]
fn rings_live_and_stop() {
    let mut peer = Peer::negotiated();
    let files = [memory(), memory()];
    let regions = [region(&files[0], 0), region(&files[1], 0x1_0000)];
    peer.frontend.set_mem_table(&regions).unwrap();
    peer.start_rings();
    // The device of these tests reports 5 served entries whenever it is stopped or renewed.
    peer.frontend.set_mem_table(&regions[..1]).unwrap();
    assert_eq!(peer.frontend.get_vring_base(0).unwrap(), 50);
    assert_eq!(peer.frontend.get_vring_base(0).unwrap(), 50);
    peer.frontend.set_vring_enable(1, false).unwrap();
    peer.frontend.set_vring_enable(1, true).unwrap();
    assert_eq!(peer.frontend.get_vring_base(1).unwrap(), 60, "it ran on");
    let (device, end) = peer.finish();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
    let calls = device.calls();
    assert_eq!((calls.starts, calls.stops, calls.renewals), (2, 2, 4));
    // Two tables, and the release at the end.
    assert_eq!(calls.memory, 3);
}

#[test]
fn memory_slots() {
    let mut peer = Peer::negotiated();
    let file = memory();
    for at in 0..16 {
        assert!(peer.frontend.add_mem_region(&region(&file, at << 20)).unwrap().is_none());
    }
    assert!(peer.frontend.add_mem_region(&region(&file, 16 << 20)).is_err(), "all are taken");
    peer.frontend.remove_mem_region(&region(&file, 3 << 20)).unwrap();
    assert!(peer.frontend.remove_mem_region(&region(&file, 3 << 20)).is_err(), "it is gone");
    peer.frontend.add_mem_region(&region(&file, 16 << 20)).unwrap();
    let (device, end) = peer.finish();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
    assert_eq!(device.calls().memory, 19);
}

#[test]
fn configuration_space() {
    let mut peer = Peer::negotiated();
    let flags = VhostUserConfigFlags::empty();
    let (_, bytes) = peer.frontend.get_config(0, 12, flags, &[0; 12]).unwrap();
    assert_eq!(bytes, common::device().config);
    let (_, mtu) = peer.frontend.get_config(10, 2, flags, &[0; 2]).unwrap();
    assert_eq!(mtu, 1500u16.to_le_bytes());
    peer.frontend.set_config(10, flags, &1500u16.to_le_bytes()).unwrap();
    assert!(peer.frontend.set_config(10, flags, &9000u16.to_le_bytes()).is_err(), "read-only");
    let (_, end) = peer.finish();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
}

#[test]
fn refusals_are_acknowledged_and_the_session_goes_on() {
    let mut peer = Peer::negotiated();
    assert!(peer.frontend.set_vring_num(0, 3).is_err());
    assert!(peer.frontend.set_features(1 << 50).is_err());
    let misaligned = VringConfigData { desc_table_addr: 8, ..vring() };
    assert!(peer.frontend.set_vring_addr(0, &misaligned).is_err());
    let file = memory();
    let twice = [region(&file, 0), region(&file, 0x1000)];
    assert!(peer.frontend.set_mem_table(&twice).is_err());
    assert!(peer.frontend.set_log_fd(file.as_raw_fd()).is_err());
    peer.frontend.set_vring_num(0, 4).unwrap();
    peer.frontend.reset_owner().unwrap();
    peer.frontend.reset_device().unwrap();
    let (device, end) = peer.finish();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
    assert_eq!((device.calls().resets, device.calls().memory), (1, 0));
}

#[test]
fn without_acknowledgements_a_refusal_ends_the_session() {
    let mut peer = Peer::new();
    let frontend = &mut peer.frontend;
    frontend.set_owner().unwrap();
    frontend.get_features().unwrap();
    let offered = frontend.get_protocol_features().unwrap();
    let silent = offered - VhostUserProtocolFeatures::REPLY_ACK;
    frontend.set_protocol_features(silent).unwrap();
    frontend.set_features(OFFERED).unwrap();
    frontend.set_vring_num(0, 3).unwrap();
    assert!(frontend.get_vring_base(0).is_err(), "the back-end must have closed the connection");
    let (_, end) = peer.finish();
    let SessionEnd::Protocol(error) = end else { panic!("{end:?}") };
    assert_eq!(error.reason, Reason::RingSize { index: 0, size: 3 });
}

#[test]
fn a_log_is_shared_while_rings_run() {
    let mut peer = Peer::negotiated();
    let file = memory();
    peer.frontend.set_mem_table(&[region(&file, 0)]).unwrap();
    peer.start_rings();
    let log = memory();
    let mmap_handle = log.as_raw_fd();
    let area = VhostUserDirtyLogRegion { mmap_size: 4096, mmap_offset: 0, mmap_handle };
    peer.frontend.set_log_base(0, Some(area)).unwrap();
    peer.frontend.set_features(OFFERED | LOG_ALL).unwrap();
    let logged = VringConfigData { flags: 1, log_addr: Some(0x3000), ..vring() };
    for ring in [0, 1] {
        peer.frontend.set_vring_addr(ring, &logged).unwrap();
    }
    peer.frontend.set_features(OFFERED).unwrap();
    for ring in [0, 1] {
        peer.frontend.set_vring_addr(ring, &vring()).unwrap();
    }
    let (device, end) = peer.finish();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
    let calls = device.calls();
    assert_eq!((calls.starts, calls.stops, calls.logs), (2, 2, 3), "set, not needed, the end");
}

#[test]
fn records_of_what_is_in_flight_are_made_and_given_back() {
    let mut peer = Peer::negotiated();
    let asked = VhostUserInflight::new(0, 0, 4, 256);
    let (given, file) = peer.frontend.get_inflight_fd(&asked).unwrap();
    assert_eq!((given.num_queues, given.queue_size, given.mmap_offset), (4, 256, 0));
    assert!(given.mmap_size > 0);
    peer.frontend.set_inflight_fd(&given, file.as_raw_fd()).unwrap();
    let bad = VhostUserInflight { num_queues: 9, ..given };
    assert!(peer.frontend.set_inflight_fd(&bad, file.as_raw_fd()).is_err());
    let (_, end) = peer.finish();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
}

#[test]
fn a_channel_for_requests_is_taken() {
    let mut peer = Peer::negotiated();
    let (_ours, theirs) = UnixStream::pair().unwrap();
    peer.frontend.set_backend_request_fd(&theirs).unwrap();
    assert!(peer.frontend.set_backend_request_fd(&memory()).is_err(), "no socket");
    let (_, end) = peer.finish();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
}

#[test]
fn a_state_goes_there_and_back() {
    let peer = Peer::negotiated();
    let (save, load) = (VhostTransferStateDirection::SAVE, VhostTransferStateDirection::LOAD);
    let stopped = VhostTransferStatePhase::STOPPED;
    let (read, write) = std::io::pipe().unwrap();
    assert!(peer.frontend.set_device_state_fd(save, stopped, write.into()).unwrap().is_none());
    peer.frontend.check_device_state().unwrap();
    let state = std::io::read_to_string(read).unwrap();
    assert_eq!(state.as_bytes(), common::device().state);
    let (read, mut write) = std::io::pipe().unwrap();
    assert!(peer.frontend.set_device_state_fd(load, stopped, read.into()).unwrap().is_none());
    write.write_all(b"another").unwrap();
    assert!(peer.frontend.check_device_state().is_err(), "the pipe is still open");
    let (device, end) = peer.finish();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
    assert_eq!(device.state, common::device().state, "what did not come whole changes nothing");
}
