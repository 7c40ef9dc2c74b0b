//! Front-ends whose event descriptors make who writes to them wait.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use vhost_user::{Message, Request};

use crate::guest::*;
use crate::host::*;

const AT_UPLINK: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// An eventfd that is full, blocks, and has others waiting to fill it whenever it is read: so
/// reading it in a writer's stead would not help the writer.
struct Trap {
    event: Arc<OwnedFd>,
    fillers: Vec<JoinHandle<()>>,
    open: Arc<AtomicBool>,
}

impl Trap {
    /// Springs the trap; the daemon has `event` already, and has made it non-blocking.
    fn spring(event: OwnedFd) -> Trap {
        let (event, open) = (Arc::new(event), Arc::new(AtomicBool::new(true)));
        let flags = rustix::fs::fcntl_getfl(&event).unwrap();
        rustix::fs::fcntl_setfl(&event, flags - OFlags::NONBLOCK).unwrap();
        let _ = rustix::io::read(&event, &mut [0; 8]); // the daemon signals when a ring starts
        fill(&event);
        let filler = || {
            let (event, open) = (event.clone(), open.clone());
            std::thread::spawn(move || {
                while open.load(Ordering::Relaxed) {
                    fill(&event);
                }
            })
        };
        let fillers = (0..4).map(|_| filler()).collect();
        Trap { event, fillers, open }
    }
}

fn fill(event: &OwnedFd) {
    rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.open.store(false, Ordering::Relaxed);
        let flags = rustix::fs::fcntl_getfl(&self.event).unwrap();
        rustix::fs::fcntl_setfl(&self.event, flags | OFlags::NONBLOCK).unwrap();
        until("the fillers to end", || {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
            self.fillers.iter().all(JoinHandle::is_finished)
        });
    }
}

/// An eventfd with one signal, so that taking it does not wait.
fn signalled() -> OwnedFd {
    let event = event();
    rustix::io::write(&event, &1u64.to_ne_bytes()).unwrap();
    event
}

/// Sends frames both ways; fails if one takes longer than a moment.
fn exchange(a: &mut Guest, b: &mut Guest, count: u32) {
    for i in 0..count {
        let (there, back) = (frame(mac(1), mac(0), i), frame(mac(0), mac(1), i));
        a.send(&there);
        b.send(&back);
        assert_eq!(b.wait_for(1), [there]);
        assert_eq!(a.wait_for(1), [back]);
    }
}

/// Whether a connection to this socket is served.
fn is_served(host: &Host, socket: &str) -> bool {
    let mut stream = UnixStream::connect(host.socket(socket)).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let request = Message::request(Request::GetFeatures, &[0_u8; 0]).to_bytes();
    stream.write_all(&request).is_ok() && stream.read(&mut [0; 20]).is_ok_and(|n| n > 0)
}

#[test]
fn a_call_that_blocks_holds_up_neither_lane_nor_others() {
    let host = Host::start(TWO);
    let [mut a, mut b, mut bad] = host.guests(["vf0", "vf1", "uplink"]);
    exchange(&mut a, &mut b, 1);
    let call = signalled();
    bad.set_call(RX, &call);
    let trap = Trap::spring(call);
    bad.rx.arm();
    // This frame's receiver asked for an interrupt.
    a.send(&frame(AT_UPLINK, mac(0), 7));
    exchange(&mut a, &mut b, 100);
    host.log.wait_for("n/uplink: connection closed: its call or err eventfd blocks and is full");
    // Who comes at once could do the same again; other sockets are as open as before.
    let banned = Instant::now();
    assert!(!is_served(&host, "uplink"));
    host.log.wait_for("n/uplink: a front-end was turned away so soon after one that blocked");
    drop(a);
    let [mut a] = host.guests(["vf0"]);
    exchange(&mut a, &mut b, 10);
    drop(trap);
    // It is not for ever.
    until("the uplink to be served again", || {
        std::thread::sleep(Duration::from_millis(50));
        is_served(&host, "uplink")
    });
    assert!(banned.elapsed() > Duration::from_secs(4), "{:?}", banned.elapsed());
    let [mut uplink] = host.guests(["uplink"]);
    a.send(&frame(AT_UPLINK, mac(0), 8));
    assert_eq!(number(&uplink.wait_for(1)[0]), 8);
}

#[test]
fn a_call_that_blocks_when_its_ring_starts_holds_up_no_session() {
    let host = Host::start(TWO);
    let [mut a, mut bad] = host.guests(["vf0", "uplink"]);
    bad.frontend().enable_ring(RX, false).unwrap();
    let call = signalled();
    bad.set_call(RX, &call);
    let _trap = Trap::spring(call);
    // The thread that serves all sessions signals once for a new ring.
    let _ = bad.frontend().enable_ring(RX, true);
    let [mut b] = host.guests(["vf1"]);
    exchange(&mut a, &mut b, 10);
    host.log.wait_for("n/uplink: connection closed: its call or err eventfd blocks and is full");
}
