//! Parked frames for a guest that is stopped: in order, delivered later, bounded, and counted once.

use port::parked::{FRAMES_MAX, ParkedFrames};

use super::kit::*;

/// Two adapters, and a guest on the first; frames for the second are parked.
fn net(path: Path) -> (Net, Guest, ParkedFrames) {
    let net = Net::of(&[Path::Vf, path].map(Adapter::plain), 1);
    let sender = Guest::new();
    sender.attach(net.port(0));
    let parked = ParkedFrames::default();
    net.port(1).park_frames(Some(parked.clone()));
    (net, sender, parked)
}

fn numbered(numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    numbers.map(|number| frame(mac(1), mac(0), number, 60 + number as usize % 900)).collect()
}

/// Sends all of these, as the ring has room.
fn send(sender: &mut Guest, frames: &[Vec<u8>]) {
    for some in frames.chunks(64) {
        some.iter().for_each(|frame| sender.post(frame));
        sender.flush();
        sender.settle();
    }
}

/// Receives frames and delivers parked ones, until none waits.
fn drain(net: &Net, guest: &mut Guest, want: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    until("all frames", || {
        net.port(1).deliver_parked();
        got.extend(guest.receive());
        got.len() >= want
    });
    got
}

#[test]
fn frames_wait_for_a_guest_and_come_in_order_before_new_ones() {
    for path in [Path::Vf, Path::Synthetic] {
        let (net, mut sender, parked) = net(path);
        let frames = numbered(0..900); // more than a ring has buffers
        send(&mut sender, &frames[..700]);
        assert_eq!(parked.frames(), 700);
        assert!(!net.port(1).is_attached());
        assert_eq!(net.bench.count("n/a1", "rx_frames"), 0, "they are counted when they arrive");
        assert_eq!(net.bench.count("n/a1", "rings_attached"), 0);
        let mut guest = Guest::new();
        guest.attach(net.port(1));
        // New ones wait behind the old ones, though the ring has buffers by then.
        send(&mut sender, &frames[700..]);
        assert_eq!(drain(&net, &mut guest, 900), frames);
        assert!(!parked.is_waiting() && !net.port(1).deliver_parked());
        net.bench.expect("n/a1", "rx_frames", 900);
        net.bench.expect("n/a1", "rx_drop_down", 0);
        net.bench.expect("n/a1", "rx_drop_no_buffer", 0);
    }
}

/// The ring is taken out while frames come, and put back: no frame is lost in between.
#[test]
fn a_guest_that_stops_and_starts_misses_nothing() {
    let (net, mut sender, _kept) = net(Path::Vf);
    let mut guest = Guest::new();
    let (mut sent, mut got) = (0, Vec::new());
    for round in 0..40 {
        guest.attach(net.port(1));
        for some in numbered(sent..sent + 100).chunks(20) {
            send(&mut sender, some);
        }
        sent += 100;
        if round % 2 == 0 {
            got.extend(drain(&net, &mut guest, (sent as usize - got.len()).min(50)));
        }
        net.port(1).detach_receive(0).unwrap();
        assert!(net.port(1).detach_receive(0).is_none(), "what keeps frames is no ring");
        got.extend(guest.receive());
    }
    guest.attach(net.port(1));
    let left = sent as usize - got.len();
    got.extend(drain(&net, &mut guest, left));
    assert_eq!(got, numbered(0..sent));
}

#[test]
fn frames_from_elsewhere_come_first() {
    let (net, mut sender, parked) = net(Path::Vf);
    let frames = numbered(0..30);
    send(&mut sender, &frames[20..]);
    parked.put_first(frames[..10].to_vec());
    parked.put_first(frames[10..20].to_vec());
    let mut guest = Guest::new();
    guest.attach(net.port(1));
    assert_eq!(drain(&net, &mut guest, 30), frames);
}

#[test]
fn parked_frames_can_be_taken_and_without_parking_frames_are_dropped() {
    let (net, mut sender, parked) = net(Path::Vf);
    let frames = numbered(0..40);
    send(&mut sender, &frames);
    parked.put_first(frames[..3].to_vec());
    let all = [&frames[..3], &frames[..]].concat();
    assert_eq!(parked.take(), (all, 3));
    assert_eq!((parked.frames(), parked.is_waiting()), (0, false));
    send(&mut sender, &frames[..5]);
    net.port(1).park_frames(None);
    send(&mut sender, &frames[..7]);
    net.bench.expect("n/a1", "rx_drop_down", 7);
    let mut guest = Guest::new();
    guest.attach(net.port(1));
    send(&mut sender, &frames[..1]);
    assert_eq!(guest.wait_for(1), frames[..1]);
}

/// Frames that waited for too long are dropped; later ones find a ring like any other.
#[test]
fn a_ring_that_had_no_buffers_is_not_stuck_when_nothing_is_kept_any_more() {
    let (net, mut sender, parked) = net(Path::Vf);
    let frames = numbered(0..900);
    send(&mut sender, &frames[..800]);
    let mut guest = Guest::new();
    guest.attach(net.port(1));
    assert!(net.port(1).deliver_parked(), "it has not buffers for all of them");
    net.port(1).park_frames(None);
    assert!(!parked.is_waiting());
    assert_eq!(guest.wait_for(256), frames[..256]);
    send(&mut sender, &frames[800..850]);
    assert_eq!(guest.wait_for(50), frames[800..850]);
}

#[test]
fn frames_beyond_the_limit_are_counted() {
    let (net, mut sender, parked) = net(Path::Vf);
    let few = numbered(0..64);
    for _ in 0..FRAMES_MAX / 64 {
        send(&mut sender, &few);
    }
    assert_eq!(parked.lost(), 0);
    send(&mut sender, &few);
    assert_eq!((parked.frames(), parked.lost()), (FRAMES_MAX, 64));
    net.bench.expect("n/a1", "rx_drop_no_buffer", 64);
    parked.put_first(few.clone());
    assert_eq!((parked.frames(), parked.lost()), (FRAMES_MAX, 128));
}

/// A guest that runs before the daemon knows of it: its frames wait until then.
#[test]
fn a_guest_that_is_held_sends_nothing_and_loses_nothing() {
    let net = Net::of(&[Path::Vf, Path::Vf].map(Adapter::plain), 1);
    let (mut listener, mut sender) = (Guest::new(), Guest::new());
    listener.attach(net.port(0));
    net.port(1).pause_tx();
    sender.attach(net.port(1));
    assert!(net.port(1).is_attached(), "its rings run");
    let frames: Vec<Vec<u8>> = (0..50).map(|number| frame(mac(0), mac(1), number, 60)).collect();
    frames.iter().for_each(|frame| sender.post(frame));
    sender.flush();
    net.bench.wait_for_rounds(3);
    assert_eq!(sender.in_flight(), 50);
    // Attaching and detaching during the pause changes nothing.
    net.port(1).detach_transmit(0).unwrap();
    assert!(!net.port(1).is_attached());
    sender.attach_transmit(net.port(1), 0);
    net.port(1).resume_tx();
    assert_eq!(listener.wait_for(50), frames);
    net.bench.expect("n/a1", "tx_drop_unplugged", 0);
    net.bench.expect("n/a1", "rings_attached", 2);
}
