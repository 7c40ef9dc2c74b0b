//! Front-ends that connect, leave, reconnect, and misbehave.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use vhost_user::{Listener, Message, Request};

use crate::guest::*;
use crate::host::*;

/// One VF to which the daemon connects, and one to which guests connect.
const CLIENT: &str = r#"
    [[nic]]
    name = "n"
    kind = "soft"
    [[nic.vf]]
    mac = "02:00:00:00:00:01"
    attachment.socket = "vf0"
    attachment.mode = "client"
    [[nic.vf]]
    mac = "02:00:00:00:00:02"
    attachment.socket = "vf1"
"#;

/// Sends a frame each way.
fn exchange(a: &mut Guest, b: &mut Guest, number: u32) {
    let (there, back) = (frame(mac(1), mac(0), number), frame(mac(0), mac(1), number));
    a.send(&there);
    assert_eq!(b.wait_for(1), [there]);
    b.send(&back);
    assert_eq!(a.wait_for(1), [back]);
}

#[test]
fn a_guest_that_dies_leaves_its_place_to_the_next() {
    let host = Host::start(TWO);
    let [mut b] = host.guests(["vf1"]);
    for i in 0..5 {
        let [mut a] = host.guests(["vf0"]);
        exchange(&mut a, &mut b, i);
        drop(a);
        host.wait_for_rings("n/vf0", 0);
        b.send(&frame(mac(0), mac(1), i));
        b.settle();
        assert_eq!(host.port("n/vf0").drops["rx_down"], u64::from(i) + 1);
    }
}

#[test]
fn sessions_leave_nothing_open() {
    alone("sessions::sessions_leave_nothing_open", || {
        let host = Host::start(TWO);
        let session = |number| {
            let [mut a, mut b] = host.guests(["vf0", "vf1"]);
            exchange(&mut a, &mut b, number);
        };
        session(0); // creates what is allocated once
        host.wait_for_rings("n/vf0", 0);
        host.wait_for_rings("n/vf1", 0);
        let before = Resources::now();
        (1..20).for_each(session);
        before.wait_for_return();
    });
}

#[test]
fn a_guest_that_came_and_went_while_nobody_asked_is_an_event_of_that_time() {
    let host = Host::start(TWO);
    let now_ms = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let before = host.events(0).last;
    for _ in 0..2 {
        let [guest] = host.guests(["vf0"]);
        host.wait_for_rings("n/vf0", 2);
        drop(guest);
        host.wait_for_rings("n/vf0", 0);
        std::thread::sleep(Duration::from_millis(20));
    }
    let asked = now_ms();
    let events = host.events(before).events;
    let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts, ["attached", "left", "attached", "left"], "{events:?}");
    assert!(events.iter().all(|event| event.subject == events[0].subject), "{events:?}");
    // Each state has its own time, which a query does not change.
    let times: Vec<u64> = events.iter().map(|event| event.time_ms).collect();
    assert!(times.is_sorted() && times[2] >= times[1] + 15 && times[3] + 15 <= asked, "{times:?}");
}

#[test]
fn a_guest_keeps_what_it_posted_while_its_front_end_was_away() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    exchange(&mut a, &mut b, 0);
    a.disconnect();
    host.wait_for_rings("n/vf0", 0);
    for i in 0..20 {
        a.send(&frame(mac(1), mac(0), i));
    }
    a.connect(&host.socket("vf0"));
    let numbers: Vec<u32> = b.wait_for(20).iter().map(|frame| number(frame)).collect();
    assert!(numbers.into_iter().eq(0..20));
}

#[test]
fn a_daemon_in_client_mode_finds_its_guest_again_and_again() {
    let host = Host::start(CLIENT);
    let [mut b] = host.guests(["vf1"]);
    for i in 0..3 {
        // The VMM creates the socket each time, later than the daemon looks for it.
        std::thread::sleep(Duration::from_millis(30));
        let listener = Listener::bind(host.socket("vf0")).unwrap();
        let mut a = Guest::new();
        a.accept(&listener);
        exchange(&mut a, &mut b, i);
        // Only the connection breaks.
        a.disconnect();
        a.accept(&listener);
        exchange(&mut a, &mut b, i);
    }
}

#[test]
fn a_daemon_in_client_mode_says_once_why_it_cannot_connect() {
    let mut host = Host::stopped(&CLIENT.replace("\"vf0\"", "\"vm/vf0\""));
    // A file where there should be a directory.
    let dir = host.path().join("vm");
    std::fs::write(&dir, "").unwrap();
    host.restart();
    host.log.wait_for("n/vf0: cannot connect to ");
    // Time for several attempts.
    let pause = || std::thread::sleep(Duration::from_millis(400));
    pause();
    std::fs::remove_file(&dir).unwrap();
    std::fs::create_dir(&dir).unwrap();
    host.log.wait_for("n/vf0: nothing listens on ");
    pause();
    assert_eq!(host.log.count("cannot connect to "), 1);
    assert_eq!(host.log.count("nothing listens on "), 1);
    // It keeps trying, and a repeated error is logged again.
    let listener = Listener::bind(dir.join("vf0")).unwrap();
    let mut a = Guest::new();
    a.accept(&listener);
    drop(listener);
    drop(a);
    until("the daemon to say so again", || host.log.count("nothing listens on ") == 2);
}

#[test]
fn a_peer_that_hangs_up_at_once_is_not_called_without_a_pause() {
    let mut host = Host::stopped(CLIENT);
    let listener = Listener::bind(host.socket("vf0")).unwrap();
    host.restart();
    let start = Instant::now();
    for _ in 0..6 {
        until("the daemon to connect", || listener.accept().unwrap().is_some());
    }
    assert!(start.elapsed() >= Duration::from_millis(5 * 20));
}

#[test]
fn a_second_front_end_is_turned_away() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    for i in 0..3 {
        let mut second = UnixStream::connect(host.socket("vf0")).unwrap();
        second.set_read_timeout(Some(WAIT)).unwrap();
        assert_eq!(second.read(&mut [0; 8]).unwrap(), 0, "it is hung up on");
        exchange(&mut a, &mut b, i);
    }
    let line = "n/vf0: a second front-end was rejected";
    host.log.wait_for(line);
    assert_eq!(host.log.count(line), 1, "three of them, in less than a minute");
}

/// As QEMU without shared memory: it drops the regions without a file, and gives up.
#[test]
fn a_front_end_that_shares_no_memory_is_told_what_to_write() {
    let host = Host::start(TWO);
    let mut front = UnixStream::connect(host.socket("vf0")).unwrap();
    let features = (1_u64 << 32 | 1 << 30).to_ne_bytes();
    front.write_all(&Message::request(Request::SetOwner, &[0_u8; 0]).to_bytes()).unwrap();
    front.write_all(&Message::request(Request::SetFeatures, &features).to_bytes()).unwrap();
    drop(front);
    host.log.wait_for("n/vf0: front-end disconnected: it has shared no memory");
    assert!(host.log.says("memory-backend-memfd,share=on"));
    let [a] = host.guests(["vf1"]);
    drop(a);
    host.log.wait_for("n/vf1: front-end disconnected");
    assert_eq!(host.log.count("it has shared no memory"), 1, "only of the one without");
}

#[test]
fn a_dead_guest_does_not_keep_its_successor_out() {
    let host = Host::start(TWO);
    let [mut b] = host.guests(["vf1"]);
    for i in 0..30 {
        let mut dead = UnixStream::connect(host.socket("vf0")).unwrap();
        // More requests than are served per turn, all with valid replies.
        let request = Message::request(Request::SetOwner, &[0_u8; 0]).to_bytes();
        for _ in 0..100 {
            dead.write_all(&request).unwrap();
        }
        drop(dead);
        let [mut a] = host.guests(["vf0"]);
        exchange(&mut a, &mut b, i);
        drop(a);
    }
    assert!(!host.log.says("was rejected"));
}

#[test]
fn half_a_message_holds_up_nobody() {
    let host = Host::start(TWO);
    let mut slow = UnixStream::connect(host.socket("uplink")).unwrap();
    slow.set_read_timeout(Some(WAIT)).unwrap();
    let request = Message::request(Request::GetFeatures, &[0_u8; 0]).to_bytes();
    let (first, rest) = request.split_at(5);
    slow.write_all(first).unwrap();
    // Others connect, work, and leave.
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    exchange(&mut a, &mut b, 0);
    drop(a);
    let [mut a] = host.guests(["vf0"]);
    exchange(&mut a, &mut b, 1);
    for byte in rest {
        slow.write_all(&[*byte]).unwrap();
        exchange(&mut a, &mut b, 2);
    }
    let mut reply = [0; 20];
    slow.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], request[..4]);
}

#[test]
fn who_breaks_the_protocol_loses_the_connection_and_nothing_else() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    for garbage in [&[0xff; 64][..], &[0; 12], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut bad = UnixStream::connect(host.socket("uplink")).unwrap();
        bad.set_read_timeout(Some(WAIT)).unwrap();
        bad.write_all(garbage).unwrap();
        assert_eq!(bad.read(&mut [0; 8]).unwrap_or(0), 0, "it is hung up on");
        exchange(&mut a, &mut b, 1);
    }
    host.log.wait_for("n/uplink: connection closed");
    // The socket works as before.
    let [mut uplink] = host.guests(["uplink"]);
    a.send(&frame([2, 9, 9, 9, 9, 9], mac(0), 7));
    uplink.wait_for(1);
}

#[test]
fn one_guest_may_leave_while_others_are_busy() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    let (mut sent, mut next) = (0, 0);
    for _ in 0..30 {
        let [mut uplink] = host.guests(["uplink"]);
        while a.in_flight() < 60 && sent - next < 100 {
            a.send(&frame(mac(1), mac(0), sent));
            a.send(&frame([2, 9, 9, 9, 9, 9], mac(0), sent));
            sent += 1;
        }
        uplink.receive();
        drop(uplink);
        for got in b.receive() {
            assert_eq!(number(&got), next);
            next += 1;
        }
    }
    a.settle();
    next += b.receive().len() as u32;
    assert_eq!(next, sent);
}
