//! Receivers of a frame, its bytes there, and the counters of drops.

use bridge::PortId;
use bridge::nic::NicConfig;

use super::kit::*;

const VF0: PortId = PortId::vf(0);
const VF1: PortId = PortId::vf(1);

#[test]
fn unicast_arrives_byte_for_byte_and_nowhere_else() {
    let bench = Bench::new(vec![plain(0), plain(1), plain(2)], 1);
    let [mut a, mut b, mut c] = bench.guests([VF0, VF1, PortId::vf(2)]);
    let mut uplink = Guest::new();
    uplink.attach(bench.uplink());
    let lengths = (14..140).chain([255, 256, 1518, 1519, 1522]);
    let frames: Vec<_> =
        lengths.enumerate().map(|(i, len)| frame(mac(1), mac(0), i as u32, len)).collect();
    for frame in &frames {
        a.send(frame);
    }
    assert_eq!(b.wait_for(frames.len()), frames);
    a.settle();
    assert!(a.receive().is_empty() && c.receive().is_empty() && uplink.receive().is_empty());

    let bytes: usize = frames.iter().map(Vec::len).sum();
    bench.expect("n/vf0", "tx_frames", frames.len() as u64);
    bench.expect("n/vf0", "tx_bytes", bytes as u64);
    bench.expect("n/vf1", "rx_frames", frames.len() as u64);
    bench.expect("n/vf1", "rx_bytes", bytes as u64);
    bench.expect("0", "frames", frames.len() as u64);
}

#[test]
fn small_merged_buffers_get_the_same_bytes() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut a] = bench.guests([VF0]);
    let shape = Shape { buffer: 100, ..Shape::default() };
    let mut b = Guest::with(shape);
    b.attach(bench.vf(1));
    for (i, len) in [60, 88, 89, 500, 1522, 14].into_iter().enumerate() {
        let frame = frame(mac(1), mac(0), i as u32, len);
        a.send(&frame);
        assert_eq!(b.wait_for(1), [frame]);
    }
}

#[test]
fn an_access_port_sees_no_tag_and_the_uplink_always_one() {
    let bench = Bench::new(vec![access(0, 100), access(1, 100), access(2, 200)], 1);
    let [mut a, mut b, mut c, mut uplink] = bench.guests([VF0, VF1, PortId::vf(2), PortId::UPLINK]);

    // Within the VLAN: as it is.
    let inside = frame(mac(1), mac(0), 1, 60);
    a.send(&inside);
    assert_eq!(b.wait_for(1), [inside]);

    // To an address of another VLAN: out, with the tag of its own.
    let out = frame(mac(2), mac(0), 2, 60);
    a.send(&out);
    assert_eq!(uplink.wait_for(1), [tagged(&out, 0x8100, 100)]);
    assert!(c.receive().is_empty());

    // And in again: by VLAN, whatever the priority and the kind of the tag.
    let answer = frame(mac(1), OUTSIDE, 3, 1000);
    for (tpid, tci) in [(0x8100, 100), (0x8100, 0xe000 | 100), (0x88a8, 100)] {
        uplink.send(&tagged(&answer, tpid, tci));
        assert_eq!(b.wait_for(1), [&answer[..]]);
    }

    // The shortest and the longest frame that a tag can be put on.
    for len in [14, 15, 16, 17, 1518] {
        let out = frame(OUTSIDE, mac(2), 4, len);
        c.send(&out);
        assert_eq!(uplink.wait_for(1), [tagged(&out, 0x8100, 200)]);
        let back = frame(mac(2), OUTSIDE, 5, len);
        uplink.send(&tagged(&back, 0x8100, 200));
        assert_eq!(c.wait_for(1), [back]);
    }

    // Without its tag, or in another VLAN, it has no receiver here.
    uplink.send(&answer);
    uplink.send(&tagged(&answer, 0x8100, 200));
    uplink.settle();
    bench.expect("n/uplink", "tx_drop_no_match", 2);
    assert!(b.receive().is_empty());
}

#[test]
fn groups_go_to_all_of_the_vlan_but_the_sender() {
    let vfs = vec![plain(0), plain(1), plain(2), access(3, 7), access(4, 7)];
    let bench = Bench::new(vfs, 1);
    let ids = [0, 1, 2, 3, 4].map(PortId::vf);
    let mut guests = bench.guests(ids);
    let mut uplink = Guest::new();
    uplink.attach(bench.uplink());
    for (i, dst) in
        [wire::Mac::BROADCAST, wire::Mac([0x33, 0x33, 0, 0, 0, 1])].into_iter().enumerate()
    {
        let group = frame(dst, mac(0), i as u32, 200);
        guests[0].send(&group);
        for receiver in [1, 2] {
            assert_eq!(guests[receiver].wait_for(1), [&group[..]]);
        }
        assert_eq!(uplink.wait_for(1), [group]);

        let group = frame(dst, mac(3), i as u32, 200);
        guests[3].send(&group);
        assert_eq!(guests[4].wait_for(1), [&group[..]]);
        assert_eq!(uplink.wait_for(1), [tagged(&group, 0x8100, 7)]);

        let group = frame(dst, OUTSIDE, i as u32, 200);
        uplink.send(&tagged(&group, 0x8100, 7));
        for receiver in [3, 4] {
            assert_eq!(guests[receiver].wait_for(1), [&group[..]]);
        }
    }
    uplink.settle();
    assert!(guests.iter_mut().all(|guest| guest.receive().is_empty()));
    assert!(uplink.receive().is_empty());
}

#[test]
fn a_nic_without_an_uplink_floods_without_a_drop() {
    let vfs = vec![Some(plain(0)), Some(plain(1))];
    let bench = Bench::without_uplink(NicConfig { vfs, ..NicConfig::default() });
    let [mut a, mut b] = bench.guests([VF0, VF1]);
    let group = frame(wire::Mac::BROADCAST, mac(0), 1, 60);
    a.send(&group);
    assert_eq!(b.wait_for(1), [group]);
    a.settle();
    bench.expect("n/vf0", "tx_frames", 1);
    assert_eq!(bench.count("n/vf0", "tx_drop_no_match"), 0);
    assert_eq!(
        bench.fabric.nics()[0].inject(bench.vf(0), &frame(wire::Mac::BROADCAST, mac(0), 2, 60)),
        1
    );
    b.wait_for(1);
    assert_eq!(bench.count("n/vf0", "tx_drop_no_match"), 0);
    // One frame for an address that is nowhere is a drop.
    a.send(&frame(OUTSIDE, mac(0), 3, 60));
    bench.expect("n/vf0", "tx_drop_no_match", 1);
}

#[test]
fn unknown_unicast_goes_to_the_uplink_only() {
    let bench = Bench::new(vec![plain(0), plain(1)], 1);
    let [mut a, mut b, mut uplink] = bench.guests([VF0, VF1, PortId::UPLINK]);
    let unknown = frame(OUTSIDE, mac(0), 1, 60);
    a.send(&unknown);
    assert_eq!(uplink.wait_for(1), [unknown]);
    assert!(b.receive().is_empty());
    // From there it would only come back.
    uplink.send(&frame(mac(9), OUTSIDE, 2, 60));
    uplink.settle();
    bench.expect("n/uplink", "tx_drop_no_match", 1);
}

#[test]
fn forbidden_frames_are_dropped_and_counted() {
    let bench = Bench::new(vec![plain(0), plain(1), access(2, 5)], 1);
    let [mut a, mut b, mut c, mut uplink] = bench.guests([VF0, VF1, PortId::vf(2), PortId::UPLINK]);
    let good = |i| frame(mac(1), mac(0), i, 60);
    // One of each among good ones, in one burst.
    a.post(&good(0));
    a.post(&frame(mac(1), mac(1), 1, 60)); // another's address
    a.post(&frame(mac(1), OUTSIDE, 2, 60));
    a.post(&good(3));
    a.post(&tagged(&good(4), 0x8100, 5));
    a.post(&frame(mac(0), mac(0), 5, 60)); // to itself
    a.post(&frame(mac(1), mac(0), 6, 13)); // a runt
    a.post(&tagged(&good(7), 0x8100, 0)[..17]); // a tag without a type
    a.post(&frame(mac(1), mac(0), 8, FRAME_MAX as usize + 1));
    a.post(&good(9));
    a.flush();
    let arrived: Vec<u32> = b.wait_for(3).iter().map(|frame| number(frame)).collect();
    assert_eq!(arrived, [0, 3, 9]);
    a.settle();
    bench.expect("n/vf0", "tx_drop_spoofed_mac", 2);
    bench.expect("n/vf0", "tx_drop_vlan_forbidden", 1);
    bench.expect("n/vf0", "tx_drop_hairpin", 1);
    bench.expect("n/vf0", "tx_drop_runt", 2);
    bench.expect("n/vf0", "tx_drop_oversize", 1);
    bench.expect("n/vf0", "tx_frames", 10);

    c.send(&tagged(&frame(OUTSIDE, mac(2), 1, 60), 0x8100, 5));
    c.settle();
    bench.expect("n/vf2", "tx_drop_vlan_forbidden", 1);
    uplink.send(&frame(mac(1), wire::Mac([3, 0, 0, 0, 0, 1]), 1, 60));
    uplink.settle();
    bench.expect("n/uplink", "tx_drop_source_multicast", 1);
    assert!(b.receive().is_empty() && uplink.receive().is_empty());
}

#[test]
fn without_spoof_check_any_source_passes() {
    let vf0 = bridge::nic::Function { spoof_check: false, ..plain(0) };
    let bench = Bench::new(vec![vf0, plain(1)], 1);
    let [mut a, mut b] = bench.guests([VF0, VF1]);
    let spoofed = frame(mac(1), OUTSIDE, 1, 60);
    a.send(&spoofed);
    assert_eq!(b.wait_for(1), [spoofed]);
    bench.expect("n/vf0", "tx_drop_spoofed_mac", 0);
}

#[test]
fn frames_without_a_buffer_are_counted_at_the_receiver() {
    let bench = Bench::new(vec![plain(0), plain(1), plain(2)], 1);
    let [mut a] = bench.guests([VF0]);
    let shape = Shape { mergeable: false, buffer: 12 + 100, ..Shape::default() };
    let mut b = Guest::empty(shape);
    b.pair.refill_with(4);
    b.attach(bench.vf(1));
    let to_b = |i, len| frame(mac(1), mac(0), i, len);
    // Two fit, one is too long for its buffer (which the next frame then gets), two find none.
    a.post(&to_b(0, 100));
    a.post(&to_b(1, 101));
    for i in 2..7 {
        a.post(&to_b(i, 60));
    }
    // VF 2 and the uplink have no guest.
    a.post(&frame(mac(2), mac(0), 7, 60));
    a.post(&frame(OUTSIDE, mac(0), 8, 60));
    a.flush();
    a.settle();
    let arrived: Vec<u32> = b.frames().iter().map(|frame| number(frame)).collect();
    assert_eq!(arrived, [0, 2, 3, 4]);
    bench.expect("n/vf1", "rx_drop_too_small", 1);
    bench.expect("n/vf1", "rx_drop_no_buffer", 2);
    bench.expect("n/vf1", "rx_frames", 4);
    bench.expect("n/vf2", "rx_drop_down", 1);
    bench.expect("n/uplink", "rx_drop_down", 1);
    // Once there are buffers again, frames arrive again.
    b.pair.refill();
    a.send(&to_b(9, 60));
    assert_eq!(b.wait_for(1), [to_b(9, 60)]);
}
