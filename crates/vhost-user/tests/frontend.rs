//! Our front-end against our back-end.

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use vhost_user::{
    BackendConfig, Features, Frontend, FrontendError, Listener, ProtocolFeatures, Reason,
    RingConfig, SharedRegion, SocketError,
};

use common::{FEATURES, SessionEnd, config, serve};

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

fn region<'a>(fd: &'a OwnedFd, guest_addr: u64) -> SharedRegion<'a> {
    let user_addr = guest_addr + 0x7000_0000;
    SharedRegion { guest_addr, size: 0x1000, user_addr, mmap_offset: 0, fd: fd.as_fd() }
}

fn ring<'a>(events: &'a [OwnedFd; 2], base: u32) -> RingConfig<'a> {
    RingConfig {
        size: 512,
        desc: 0x7000_0000,
        avail: 0x7000_2000,
        used: 0x7000_3000,
        base,
        kick: Some(events[0].as_fd()),
        call: Some(events[1].as_fd()),
        err: None,
        log: None,
    }
}

#[test]
fn negotiation_and_settings() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = serve(ours, config());
    let mut frontend = Frontend::from_stream(theirs);
    // More is wanted than offered; the intersection is returned.
    let wanted = Features::VERSION_1 | Features::MTU | Features::RSS;
    let agreed = frontend.negotiate(wanted.bits(), ProtocolFeatures::all()).unwrap();
    let expected = Features::VERSION_1 | Features::MTU | Features::PROTOCOL_FEATURES;
    assert_eq!(agreed.features, expected.bits());
    assert_eq!(agreed.protocol_features, ProtocolFeatures::SUPPORTED);
    assert_eq!(agreed.queue_pairs_max, 4);

    assert_eq!(frontend.config(0, 6).unwrap(), common::device().config[..6]);
    assert!(matches!(frontend.config(250, 16), Err(FrontendError::Refused { .. })));
    assert!(matches!(frontend.config(0, 5000), Err(FrontendError::TooMuch { .. })));
    frontend.set_mtu(9000).unwrap();
    assert!(matches!(frontend.set_mtu(20), Err(FrontendError::Refused { answer: 1, .. })));
    frontend.send_rarp([2, 0, 0, 0, 0, 9]).unwrap();
    frontend.set_status(0xf).unwrap();
    assert_eq!(frontend.status().unwrap(), 0xf);
    drop(frontend);
    let (device, end) = server.join().unwrap();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
    let rarp = Some([2, 0, 0, 0, 0, 9]);
    assert_eq!((device.mtu, device.rarp, device.status), (Some(9000), rarp, Some(0xf)));
}

#[test]
fn memory_and_rings() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = serve(ours, config());
    let mut frontend = Frontend::from_stream(theirs);
    frontend.negotiate(FEATURES, ProtocolFeatures::SUPPORTED).unwrap();
    let memory = event();
    frontend.set_memory(&[region(&memory, 0), region(&memory, 0x1000)]).unwrap();
    let nine = [region(&memory, 0); 9];
    assert!(matches!(frontend.set_memory(&nine), Err(FrontendError::TooMuch { .. })));
    assert_eq!(frontend.mem_slots_max().unwrap(), 16);
    frontend.add_region(&region(&memory, 0x2000)).unwrap();
    frontend.remove_region(&region(&memory, 0x1000)).unwrap();

    let events = [event(), event()];
    frontend.start_ring(1, &ring(&events, 100)).unwrap();
    frontend.enable_ring(1, true).unwrap();
    assert_eq!(frontend.stop_ring(1).unwrap(), 105);
    frontend.start_ring(1, &RingConfig { kick: None, ..ring(&events, 105) }).unwrap();
    assert_eq!(frontend.stop_ring(1).unwrap(), 110);
    frontend.reset_device().unwrap();
    assert!(!frontend.is_closed());

    drop(frontend);
    let (device, end) = server.join().unwrap();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
    assert_eq!((device.calls().starts, device.calls().resets), (2, 1));
}

#[test]
fn a_back_end_of_few_features() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let protocol_features = ProtocolFeatures::empty();
    let server = serve(ours, BackendConfig { protocol_features, ..config() });
    let mut frontend = Frontend::from_stream(theirs);
    let agreed = frontend.negotiate(FEATURES, ProtocolFeatures::SUPPORTED).unwrap();
    assert_eq!((agreed.features, agreed.queue_pairs_max), (FEATURES, 1));
    let error = frontend.set_mtu(1500).unwrap_err().to_string();
    assert!(error.contains("NET_SET_MTU (20) needs ProtocolFeatures(NET_MTU)"), "{error}");
    let memory = event();
    frontend.set_memory(&[region(&memory, 0)]).unwrap();
    let events = [event(), event()];
    frontend.start_ring(0, &ring(&events, 1)).unwrap();
    frontend.enable_ring(0, true).unwrap();
    assert!(frontend.enable_ring(0, false).is_err());
    assert_eq!(frontend.stop_ring(0).unwrap(), 6, "it ran without being enabled");
    drop(frontend);
    assert!(matches!(server.join().unwrap().1, SessionEnd::Closed));
}

#[test]
fn a_refusal_without_acknowledgements_shows_as_a_lost_connection() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = serve(ours, config());
    let mut frontend = Frontend::from_stream(theirs);
    frontend.negotiate(FEATURES, ProtocolFeatures::MQ).unwrap();
    let events = [event(), event()];
    let ring = RingConfig { size: 3, ..ring(&events, 0) };
    // The call that fails depends on the time at which the back-end closes.
    let error = match frontend.start_ring(0, &ring) {
        Err(error) => error,
        Ok(()) => frontend.stop_ring(0).unwrap_err(),
    };
    assert!(matches!(error, FrontendError::Socket { source: SocketError::Closed, .. }), "{error}");
    let (_, end) = server.join().unwrap();
    let SessionEnd::Protocol(error) = end else { panic!("{end:?}") };
    assert_eq!(error.reason, Reason::RingSize { index: 0, size: 3 });
    assert!(frontend.is_closed());
}

#[test]
fn a_silent_back_end_times_out() {
    let (_ours, theirs) = UnixStream::pair().unwrap();
    let mut frontend = Frontend::from_stream(theirs);
    frontend.set_timeout(Duration::from_millis(20));
    let error = frontend.negotiate(FEATURES, ProtocolFeatures::SUPPORTED).unwrap_err();
    assert!(error.to_string().starts_with("GET_FEATURES (1) failed"), "{error}");
    assert!(matches!(error, FrontendError::Socket { source: SocketError::TimedOut, .. }));
}

#[test]
fn connects_to_a_back_end_that_comes_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vf0.sock");
    let error = Frontend::connect(&path, Duration::from_millis(30)).unwrap_err();
    assert!(error.to_string().contains("is the daemon running"), "{error}");
    let client = thread::spawn({
        let path = path.clone();
        move || Frontend::connect(path, Duration::from_secs(5)).unwrap()
    });
    let listener = Listener::bind(&path).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    let stream = loop {
        if let Some(stream) = listener.accept().unwrap() {
            break stream;
        }
        assert!(Instant::now() < deadline, "no back-end connected");
        thread::sleep(Duration::from_millis(1));
    };
    let server = serve(stream, config());
    let mut frontend = client.join().unwrap();
    frontend.negotiate(FEATURES, ProtocolFeatures::SUPPORTED).unwrap();
    drop(frontend);
    assert!(matches!(server.join().unwrap().1, SessionEnd::Closed));
}

#[test]
fn accepts_a_back_end_in_client_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vf0.sock");
    let listener = Listener::bind(&path).unwrap();
    let error = Frontend::accept(&listener, Duration::from_millis(10)).unwrap_err();
    assert!(matches!(error, FrontendError::NoBackend { .. }), "{error}");
    let server = serve(UnixStream::connect(&path).unwrap(), config());
    let mut frontend = Frontend::accept(&listener, Duration::from_secs(5)).unwrap();
    frontend.negotiate(FEATURES, ProtocolFeatures::SUPPORTED).unwrap();
    drop(frontend);
    assert!(matches!(server.join().unwrap().1, SessionEnd::Closed));
}

#[test]
fn log_records_requests_and_state() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = serve(ours, config());
    let mut frontend = Frontend::from_stream(theirs);
    frontend.negotiate(FEATURES, ProtocolFeatures::SUPPORTED).unwrap();
    assert_eq!(frontend.save_state().unwrap(), common::device().state);
    frontend.load_state(b"a guest that came").unwrap();
    assert!(matches!(frontend.load_state(&[0; 5000]), Err(FrontendError::TooMuch { .. })));

    let memory = event();
    frontend.set_memory(&[region(&memory, 0)]).unwrap();
    let (inflight, records) = frontend.get_inflight(2, 512).unwrap();
    frontend.set_inflight(&inflight, records.as_fd()).unwrap();
    let mut requests = frontend.take_requests().unwrap();
    assert_eq!(requests.poll().unwrap(), None);

    let events = [event(), event()];
    let plain = ring(&events, 0);
    frontend.start_ring(0, &plain).unwrap();
    frontend.enable_ring(0, true).unwrap();
    frontend.set_log(memory.as_fd(), 4096, 0).unwrap();
    frontend.log_all(true).unwrap();
    frontend.set_ring_addresses(0, &RingConfig { log: Some(0x3000), ..plain }).unwrap();
    let refused = frontend.save_state();
    assert!(matches!(refused, Err(FrontendError::Refused { .. })), "a ring runs");
    frontend.log_all(false).unwrap();
    frontend.set_ring_addresses(0, &plain).unwrap();
    drop(frontend);
    let (device, end) = server.join().unwrap();
    assert!(matches!(end, SessionEnd::Closed), "{end:?}");
    assert_eq!(device.state, b"a guest that came");
    assert_eq!((device.calls().starts, device.calls().logs), (1, 3));
}
