//! Rings and memory that a front-end starts, stops and replaces while frames flow.

use vhost_user::Features;

use crate::guest::*;
use crate::host::*;

#[test]
fn frames_pass_between_guests_that_agreed_on_different_things() {
    let host = Host::start(TWO);
    let wishes = [
        Features::VERSION_1,
        Features::VERSION_1 | Features::MRG_RXBUF,
        Features::VERSION_1 | Features::EVENT_IDX,
        Features::VERSION_1 | Features::EVENT_IDX | Features::INDIRECT_DESC | Features::MRG_RXBUF,
    ];
    for (i, (a, b)) in wishes.iter().zip(wishes.iter().rev()).enumerate() {
        let (mut a, mut b) = (Guest::wanting(*a), Guest::wanting(*b));
        a.connect(&host.socket("vf0"));
        b.connect(&host.socket("vf1"));
        for round in 0..3 {
            let n = i as u32 * 10 + round;
            let (there, back) = (frame(mac(1), mac(0), n), frame(mac(0), mac(1), n));
            a.send(&there);
            assert_eq!(b.wait_for(1), [there]);
            b.send(&back);
            assert_eq!(a.wait_for(1), [back]);
        }
    }
}

#[test]
fn a_stopped_ring_stands_and_goes_on_where_it_stopped() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    let mut sent = 0;
    let mut send = |a: &mut Guest, n: u32| {
        for _ in 0..n {
            a.send(&frame(mac(1), mac(0), sent));
            sent += 1;
        }
    };
    send(&mut a, 10);
    b.wait_for(10);
    a.settle();
    // The transmit ring.
    assert_eq!(a.frontend().stop_ring(TX).unwrap(), 10);
    host.wait_for_rings("n/vf0", 1);
    send(&mut a, 5);
    assert_eq!((a.in_flight(), b.receive().len()), (5, 0));
    a.start_ring_at(TX, 10);
    let numbers =
        |frames: Vec<Vec<u8>>| frames.iter().map(|frame| number(frame)).collect::<Vec<_>>();
    assert_eq!(numbers(b.wait_for(5)), [10, 11, 12, 13, 14]);
    // The receive ring: no receiver meanwhile.
    assert_eq!(b.frontend().stop_ring(RX).unwrap(), 15);
    send(&mut a, 3);
    a.settle();
    assert_eq!(host.port("n/vf1").drops["rx_down"], 3);
    b.start_ring_at(RX, 15);
    send(&mut a, 2);
    assert_eq!(numbers(b.wait_for(2)), [18, 19]);
    // A repeated query returns the same.
    assert_eq!(a.frontend().stop_ring(TX).unwrap(), 20);
    assert_eq!(a.frontend().stop_ring(TX).unwrap(), 20);
}

#[test]
fn what_is_sent_by_a_disabled_ring_is_discarded_and_counted() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    a.frontend().enable_ring(TX, false).unwrap();
    for seq in 0..3 {
        a.send(&frame(mac(1), mac(0), seq));
    }
    until("the counter", || host.port("n/vf0").drops.get("tx_disabled") == Some(&3));
    until("its buffers back", || a.in_flight() == 0);
    a.frontend().enable_ring(TX, true).unwrap();
    let passes = frame(mac(1), mac(0), 3);
    a.send(&passes);
    assert_eq!(b.wait_for(1), [passes]);
}

/// Sends from `a` to `b` with a change after each few frames, and checks that all arrive in order.
fn under_load(a: &mut Guest, b: &mut Guest, mut change: impl FnMut(&mut Guest, &mut Guest, u32)) {
    let (mut sent, mut next) = (0, 0);
    let check = |b: &mut Guest, next: &mut u32| {
        for got in b.receive() {
            assert_eq!(number(&got), *next, "lost, repeated or overtaken");
            *next += 1;
        }
    };
    for round in 0..60 {
        let before = next;
        // As many as the ring has room for, with a burst arrived and not returned yet.
        while sent - next < 180 {
            a.send(&frame(mac(1), mac(0), sent));
            sent += 1;
        }
        // More frames are in flight than have arrived, so the change happens while frames flow.
        until("the first frames", || {
            check(b, &mut next);
            next > before
        });
        change(a, b, round);
    }
    a.settle();
    check(b, &mut next);
    assert_eq!(next, sent);
}

#[test]
fn a_sender_whose_memory_is_replaced_under_load_loses_nothing() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    let low = 1 << 32;
    under_load(&mut a, &mut b, |a, _, round| match round % 3 {
        0 => a.set_memory(&[low, MORE_GUEST]),
        1 => a.set_memory(&[low]),
        _ => a.set_memory(&[low]),
    });
}

#[test]
fn memory_that_comes_and_goes_under_load_loses_nothing() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    assert_eq!(a.frontend().mem_slots_max().unwrap(), guestmem::REGIONS_MAX as u64);
    under_load(&mut a, &mut b, |a, _, round| match round % 2 {
        0 => a.add_more(),
        _ => a.remove_more(),
    });
}

#[test]
fn a_receiver_whose_memory_comes_and_goes_under_load_loses_nothing() {
    let host = Host::start(TWO);
    for more in [Features::empty(), Features::RING_PACKED] {
        let [mut a, mut b] = ["vf0", "vf1"].map(|socket| {
            let mut guest = Guest::wanting(Features::VERSION_1 | Features::EVENT_IDX | more);
            guest.connect(&host.socket(socket));
            guest
        });
        under_load(&mut a, &mut b, |_, b, round| match round % 4 {
            0 => b.add_more(),
            1 => b.remove_more(),
            2 => b.set_memory(&[1 << 32, MORE_GUEST]),
            _ => b.set_memory(&[1 << 32]),
        });
        assert!(host.port("n/vf1").drops.is_empty(), "it was there all the time");
    }
}

#[test]
fn a_sender_whose_rings_restart_under_load_loses_nothing() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    under_load(&mut a, &mut b, |a, _, _| {
        let base = a.frontend().stop_ring(TX).unwrap();
        a.start_ring_at(TX, base);
    });
}

#[test]
fn added_memory_can_be_sent_from_and_removed_memory_cannot() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    a.add_more();
    // The last bytes of it.
    let there = frame(mac(1), mac(0), 1);
    let addr = MORE_GUEST + MORE - 12 - there.len() as u64;
    a.send_from(addr, &there);
    assert_eq!(b.wait_for(1), [&there[..]]);
    a.remove_more();
    a.send(&there);
    assert_eq!(b.wait_for(1), [&there[..]]);
    a.send_from(addr, &there);
    until("the front-end to be told", || is_signalled(&a.pair.error));
    assert_eq!(host.port("n/vf0").faults["tx_outside_memory"], 1);
    host.log.wait_for("n/vf0: transmit ring stopped");
    assert!(b.receive().is_empty());
    // Its other ring, and other guests' rings, continue.
    b.send(&frame(mac(0), mac(1), 2));
    a.wait_for(1);
}

#[test]
fn a_call_replaced_while_the_ring_runs_is_the_one_that_is_used() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    let interrupts = |a: &mut Guest, b: &mut Guest, call: &std::os::fd::OwnedFd| {
        is_signalled(call); // earlier signals
        assert!(!b.pair.rx.enable_notification());
        a.send(&frame(mac(1), mac(0), 1));
        b.wait_for(1);
        a.settle(); // the interrupt was sent by now
        is_signalled(call)
    };
    let old = b.pair.call.try_clone().unwrap();
    assert!(interrupts(&mut a, &mut b, &old));
    let new = event();
    b.set_call(RX, &new);
    assert!(interrupts(&mut a, &mut b, &new));
    assert!(!is_signalled(&old));
}

#[test]
fn a_ring_that_starts_interrupts_once() {
    // The previous daemon may have died between using a buffer and notifying.
    let host = Host::start(TWO);
    let [a] = host.guests(["vf0"]);
    until("the interrupt", || is_signalled(&a.pair.call));
}

#[test]
fn a_reset_device_stands_until_it_is_set_up_again() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    a.send(&frame(mac(1), mac(0), 1));
    b.wait_for(1);
    a.settle();
    a.frontend().set_status(7).unwrap();
    assert_eq!(a.frontend().status().unwrap(), 7);
    a.frontend().reset_device().unwrap();
    assert_eq!(a.frontend().status().unwrap(), 0);
    host.wait_for_rings("n/vf0", 0);
    a.send(&frame(mac(1), mac(0), 2));
    b.send(&frame(mac(0), mac(1), 1));
    b.settle();
    assert_eq!(host.port("n/vf0").drops["rx_down"], 1);
    assert_eq!(a.in_flight(), 1);
    a.set_up();
    assert_eq!(b.wait_for(1), [frame(mac(1), mac(0), 2)]);
}

#[test]
fn a_guest_whose_memory_shrinks_stops_itself_only() {
    let host = Host::start(TWO);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    let mut uplink = Guest::new();
    uplink.connect(&host.socket("uplink"));
    // A file without seals.
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("shrinks", flags).unwrap();
    rustix::fs::ftruncate(&file, MORE).unwrap();
    a.add_region(&file);
    rustix::fs::ftruncate(&file, 0).unwrap();
    // The first frame may already be zeros; the next one shows it.
    for _ in 0..2 {
        assert_eq!(a.in_flight(), 0);
        a.post_at(MORE_GUEST, 100);
        until("the frame to be taken", || a.in_flight() == 0 || is_signalled(&a.pair.error));
    }
    assert_eq!(host.port("n/vf0").faults["tx_truncated"], 1);
    b.send(&frame([2, 9, 9, 9, 9, 9], mac(1), 1));
    uplink.wait_for(1);
}
