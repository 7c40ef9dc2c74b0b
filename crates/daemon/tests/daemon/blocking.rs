//! Front-ends whose descriptors block writers, or block on close.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use vhost_user::testing::{drain, lingering};
use vhost_user::{Message, Request};

use crate::guest::*;
use crate::honest::HonestPair;
use crate::host::*;

const AT_UPLINK: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// A full, blocking eventfd, with other threads waiting to fill it after each read: draining it on
/// behalf of a writer would not help.
struct Trap {
    event: Arc<OwnedFd>,
    fillers: Vec<JoinHandle<()>>,
    open: Arc<AtomicBool>,
}

impl Trap {
    /// Springs the trap. The daemon has `event` already, and has made it non-blocking.
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

/// An eventfd with one signal, so that reading it does not block.
fn signalled() -> OwnedFd {
    let event = event();
    rustix::io::write(&event, &1u64.to_ne_bytes()).unwrap();
    event
}

/// Sends frames both ways; fails if one is late.
fn exchange(a: &mut Guest, b: &mut Guest, count: u32) {
    for i in 0..count {
        let (there, back) = (frame(mac(1), mac(0), i), frame(mac(0), mac(1), i));
        a.send(&there);
        b.send(&back);
        assert_eq!(b.wait_for(1), [there]);
        assert_eq!(a.wait_for(1), [back]);
    }
}

/// Returns `true` if a connection to this socket is served.
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
    bad.pair.rx.enable_notification();
    // The receiver of this frame asked for an interrupt.
    a.send(&frame(AT_UPLINK, mac(0), 7));
    exchange(&mut a, &mut b, 100);
    host.log.wait_for("n/uplink: connection closed: its call or err eventfd blocks and is full");
    // An immediate reconnect could repeat the attack; other sockets stay open.
    let banned = Instant::now();
    assert!(!is_served(&host, "uplink"));
    host.log.wait_for("n/uplink: a front-end was rejected: banned for 5 s after one that blocked");
    drop(a);
    let [mut a] = host.guests(["vf0"]);
    exchange(&mut a, &mut b, 10);
    drop(trap);
    // The ban ends.
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

/// Sends bytes with descriptors attached.
pub(crate) fn send_beside(stream: &UnixStream, bytes: &[u8], files: &[OwnedFd]) {
    let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let none = SendFlags::empty();
    rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, none).unwrap();
}

/// Sends an invalid request with descriptors attached, and leaves only the daemon holding them.
pub(crate) fn send_stray(host: &Host, socket: &str, files: Vec<OwnedFd>) {
    let mut stream = UnixStream::connect(host.socket(socket)).unwrap();
    let message = Message::request(Request::GetFeatures, &[0_u8; 0]).to_bytes();
    let (head, rest) = message.split_at(1);
    send_beside(&stream, head, &files);
    drop(files); // before the daemon does: it keeps a partial message
    stream.write_all(rest).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "it is hung up on");
}

#[test]
fn descriptors_that_do_not_close_hold_up_nobody() {
    let host = Host::start(TWO);
    let pair = HonestPair::start(&host);
    let (slow, peer) = lingering();
    send_stray(&host, "uplink", vec![slow]);
    pair.wait_for_progress(100);
    let (a, mut b, _) = pair.stop();
    drop(a);
    let [mut a] = host.guests(["vf0"]);
    exchange(&mut a, &mut b, 2);
    // A front-end with too many descriptors to be closed is not served until they are; others are.
    for _ in 0..7 {
        send_stray(
            &host,
            "uplink",
            (0..8).map(|_| File::open("/dev/null").unwrap().into()).collect(),
        );
    }
    let mut waits = UnixStream::connect(host.socket("uplink")).unwrap();
    let request = Message::request(Request::GetFeatures, &[0_u8; 0]).to_bytes();
    waits.write_all(&request).unwrap();
    waits.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let unserved = waits.read(&mut [0; 20]).unwrap_err();
    assert_eq!(unserved.kind(), std::io::ErrorKind::WouldBlock);
    exchange(&mut a, &mut b, 3);
    let reader = std::thread::spawn(move || drain(peer));
    waits.set_read_timeout(Some(WAIT)).unwrap();
    assert_eq!(waits.read(&mut [0; 20]).unwrap(), 20);
    reader.join().unwrap();
}

#[test]
fn descriptors_to_a_stream_port_hold_up_neither_lane_nor_the_next_peer() {
    let third = "[[nic.vf]]\nmac = \"02:00:00:00:00:03\"\nattachment = \"stream:vf2\"\n";
    let host = Host::start(&format!("{TWO}{third}"));
    let pair = HonestPair::start(&host);
    let mut peers = Vec::new();
    for round in 0..4 {
        let mut stream = UnixStream::connect(host.socket("vf2")).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let (slow, peer) = lingering();
        peers.push(peer);
        // With the first bytes; within a message; and with more data after an invalid length.
        let (before, bytes): (&[u8], &[u8]) = match round {
            0 => (&[], &[0]),
            1 => (&[0, 0, 0, 60, 1, 2], &[3]),
            2 => (&[0xff; 4], &[0; 64]),
            _ => (&[], &[0xff; 4]),
        };
        stream.write_all(before).unwrap();
        send_beside(&stream, bytes, std::slice::from_ref(&slow));
        // The peer waits, if the daemon has closed its own already.
        std::thread::spawn(|| drop(slow));
        // Earlier frames may have gone to all ports.
        while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
        pair.wait_for_progress(100);
    }
    let end = |peer| std::thread::spawn(move || drain(peer));
    let readers: Vec<_> = peers.into_iter().map(end).collect();
    for reader in readers {
        reader.join().expect("the daemon has closed what it was sent");
    }
    pair.stop();
}

#[test]
fn memory_is_freed_by_the_thread_of_its_session() {
    let host = Host::start(TWO);
    let pair = HonestPair::start(&host);
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.contains("/memfd:freed-by-its-session")
    };
    let flags = MemfdFlags::CLOEXEC;
    let memory = rustix::fs::memfd_create("freed-by-its-session", flags).unwrap();
    rustix::fs::ftruncate(&memory, MORE).unwrap();
    // The thread waits until the peer reads.
    let (slow, peer) = lingering();
    send_stray(&host, "uplink", vec![slow]);
    let [mut bad] = host.guests(["uplink"]);
    bad.add_region(&memory);
    assert!(is_mapped());
    bad.disconnect();
    drop(memory);
    assert!(is_served(&host, "uplink"), "the session's end is past");
    assert!(is_mapped(), "the thread of all sessions has freed it");
    pair.wait_for_progress(100);
    drain(peer);
    until("the memory to be freed", || !is_mapped());
    pair.stop();
}
