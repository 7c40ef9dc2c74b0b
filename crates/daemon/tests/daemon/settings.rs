//! Settings of NICs and functions, enforced on guests' frames.

use crate::honest::HonestPair;
use crate::host::*;

/// A NIC with an uplink and two VFs, with additional lines for the NIC and for VF 0.
fn with(nic: &str, vf0: &str) -> String {
    format!(
        "[[nic]]\nname = \"n\"\nkind = \"soft\"\n{nic}\n\
         [nic.uplink]\nkind = \"vhost-user\"\nsocket = \"uplink\"\n\
         [[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment.socket = \"vf0\"\n{vf0}\n\
         [[nic.vf]]\nmac = \"02:00:00:00:00:02\"\nattachment.socket = \"vf1\"\n"
    )
}

/// A MAC that no function has.
const ELSEWHERE: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
const BROADCAST: [u8; 6] = [0xff; 6];

/// The frame with a tag after its addresses.
fn tagged(frame: &[u8], tag: [u8; 4]) -> Vec<u8> {
    [&frame[..12], &tag[..], &frame[12..]].concat()
}

#[test]
fn the_tag_has_the_priority_and_the_protocol_that_were_set() {
    for (protocol, tpid) in [("802.1q", [0x81, 0x00]), ("802.1ad", [0x88, 0xa8])] {
        let vlan = format!("vlan = {{ id = 100, qos = 5, proto = \"{protocol}\" }}");
        let host = Host::start(&with("", &vlan));
        let [mut vf, mut uplink] = host.guests(["vf0", "uplink"]);
        let out = frame(ELSEWHERE, mac(0), 1);
        vf.send(&out);
        let tag = [tpid[0], tpid[1], 5 << 5, 100];
        assert_eq!(uplink.wait_for(1), [tagged(&out, tag)]);
        let back = frame(mac(0), ELSEWHERE, 2);
        uplink.send(&tagged(&back, tag));
        assert_eq!(vf.wait_for(1), [back]);
    }
}

#[test]
fn a_trunk_carries_the_tags_of_its_list_and_no_others() {
    let host = Host::start(&with("", "trunks = [\"10\", \"20\"]"));
    let [mut vf, mut uplink] = host.guests(["vf0", "uplink"]);
    let out = |vid: u8| tagged(&frame(ELSEWHERE, mac(0), vid.into()), [0x81, 0, 0, vid]);
    vf.send(&out(10));
    vf.send(&out(30));
    vf.send(&out(20));
    assert_eq!(uplink.wait_for(2), [out(10), out(20)]);
    vf.settle();
    assert_eq!(host.port("n/vf0").drops["tx_vlan_forbidden"], 1);
}

/// The attack with others beside it: a guest without a VLAN tries to reach VLAN 10.
#[test]
fn a_priority_tag_takes_nobody_into_another_vlan() {
    let more = "[[nic.vf]]\nmac = \"02:00:00:00:00:03\"\nattachment.socket = \"vf2\"\n\
                [[nic.vf]]\nmac = \"02:00:00:00:00:04\"\nattachment.socket = \"vf3\"\ntrunks = [\"10\"]\n";
    let host = Host::start(&format!("{TWO}{more}"));
    let [mut hostile, mut trunk, mut uplink] = host.guests(["vf2", "vf3", "uplink"]);
    let pair = HonestPair::start(&host);
    let mut tried = 0;
    for round in 0..50 {
        for (to, first) in [
            (BROADCAST, [0x81, 0, 0, 0]),
            (mac(3), [0x81, 0, 0xe0, 0]),
            (ELSEWHERE, [0x88, 0xa8, 0, 0]),
        ] {
            let inner = tagged(&frame(to, mac(2), round), [0x81, 0, 0, 10]);
            hostile.send(&tagged(&inner, first));
            hostile.send(&tagged(&tagged(&inner, [0x81, 0, 0, 0]), first));
            tried += 2;
        }
        hostile.settle();
        assert!(trunk.receive().is_empty() && uplink.receive().is_empty());
        pair.wait_for_progress(10);
    }
    assert_eq!(host.port("n/vf2").drops["tx_vlan_forbidden"], tried);
    pair.stop();
}

#[test]
fn without_a_link_nothing_passes() {
    let host = Host::start(&with("", "link_state = \"disable\""));
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    a.send(&frame(mac(1), mac(0), 1));
    b.send(&frame(mac(0), mac(1), 2));
    a.settle();
    b.settle();
    assert_eq!((a.receive().len(), b.receive().len()), (0, 0));
    assert_eq!(host.port("n/vf0").drops["tx_link_down"], 1);
}

#[test]
fn a_vepa_sends_everything_out_and_an_isolated_bridge_keeps_functions_apart() {
    let there = frame(mac(1), mac(0), 1);
    let host = Host::start(&with("bridging = \"vepa\"", ""));
    let [mut a, mut b, mut uplink] = host.guests(["vf0", "vf1", "uplink"]);
    a.send(&there);
    assert_eq!(uplink.wait_for(1), std::slice::from_ref(&there));
    assert!(b.receive().is_empty());
    uplink.send(&there);
    assert_eq!(b.wait_for(1), std::slice::from_ref(&there));

    let host = Host::start(&with("bridging = \"isolated\"", ""));
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    a.send(&there);
    a.settle();
    assert!(b.receive().is_empty());
    assert_eq!(host.port("n/vf0").drops["tx_isolated"], 1);
}

#[test]
fn a_promiscuous_function_gets_what_is_for_nobody() {
    let stray = frame(ELSEWHERE, [2, 0, 0, 0, 0, 0x77], 1);
    let host = Host::start(&with("", "trust = true\npromiscuous = true"));
    let [mut a, mut b, mut uplink] = host.guests(["vf0", "vf1", "uplink"]);
    uplink.send(&stray);
    assert_eq!(a.wait_for(1), [stray]);
    assert!(b.receive().is_empty());
}

#[test]
fn broadcasts_beyond_the_limit_are_dropped() {
    // A burst of one, then one a second: of 50 in a row within seconds, nearly all are dropped.
    let host = Host::start(&with("", "storm_limit_pps = 1"));
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    let begin = std::time::Instant::now();
    for n in 0..50 {
        a.send(&frame(BROADCAST, mac(0), n));
    }
    a.settle();
    let most = 2 + begin.elapsed().as_secs() as usize;
    let passed = b.wait_for(1).len() + b.receive().len();
    assert!(passed <= most, "{passed} passed, at most {most} may");
    let dropped = host.port("n/vf0").drops["tx_storm"];
    assert_eq!(passed as u64 + dropped, 50);
}

#[test]
fn a_maximum_is_kept_in_the_long_run() {
    // 1 Mbit/s: 125 bytes a millisecond, with 16 KiB and a burst of 64 frames ahead.
    let host = Host::start(&with("", "max_tx_mbps = 1"));
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    let begin = std::time::Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < 1000 {
        while a.in_flight() < 64 {
            a.send(&frame(mac(1), mac(0), sent));
            sent += 1;
        }
        received += b.receive().len();
    }
    let most = 125_000.0 * begin.elapsed().as_secs_f64() + 16384.0 + 64.0 * 60.0;
    assert!(received as f64 * 60.0 <= most + 64.0 * 60.0, "{received} frames of 60 bytes, {most}");
}
