//! Offers to a front-end, configuration, and rejections.

use vhost_user::{Features, FrontendError, ProtocolFeatures, SharedRegion};

use crate::guest::*;
use crate::host::*;

/// Features offered by every port.
const ALWAYS: Features = Features::VERSION_1
    .union(Features::ANY_LAYOUT)
    .union(Features::MTU)
    .union(Features::STATUS)
    .union(Features::CTRL_VQ)
    .union(Features::GUEST_ANNOUNCE)
    .union(Features::LOG_ALL)
    .union(Features::PROTOCOL_FEATURES);

/// Offload features offered.
const OFFLOADS: Features = Features::CSUM
    .union(Features::HOST_TSO4)
    .union(Features::HOST_TSO6)
    .union(Features::HOST_ECN)
    .union(Features::HOST_USO)
    .union(Features::GUEST_CSUM)
    .union(Features::GUEST_TSO4)
    .union(Features::GUEST_TSO6)
    .union(Features::GUEST_ECN)
    .union(Features::GUEST_USO4)
    .union(Features::GUEST_USO6);

/// A NIC whose only VF has additional settings.
fn one(settings: &str) -> String {
    format!(
        "[[nic]]\nname = \"n\"\nkind = \"soft\"\n[[nic.vf]]\nmac = \"02:00:00:00:00:01\"\n\
         attachment.socket = \"vf0\"\n{settings}\n"
    )
}

/// Features offered to a front-end that accepts all.
fn offered(host: &Host, socket: &str) -> vhost_user::Negotiated {
    let mut guest = Guest::wanting(Features::all());
    guest.reach(&host.socket(socket));
    guest.negotiate()
}

#[test]
fn the_offer_follows_the_configuration() {
    let all = ALWAYS | Features::MAC;
    let (merge, indirect, event) =
        (Features::MRG_RXBUF, Features::INDIRECT_DESC, Features::EVENT_IDX);
    let packed = Features::RING_PACKED;
    let multiqueue = Features::MQ;
    for (settings, features) in [
        ("", merge | indirect | event | packed | OFFLOADS),
        ("attachment.mergeable = false", indirect | event | packed | OFFLOADS),
        ("attachment.indirect = false", merge | event | packed | OFFLOADS),
        ("attachment.event_index = false", merge | indirect | packed | OFFLOADS),
        ("attachment.packed = false", merge | indirect | event | OFFLOADS),
        ("attachment.offload = false", merge | indirect | event | packed),
        (
            "attachment.in_order = true",
            merge | indirect | event | packed | OFFLOADS | Features::IN_ORDER,
        ),
        ("attachment.queue_pairs = 16", merge | indirect | event | packed | OFFLOADS | multiqueue),
        (
            "attachment.mergeable = false\nattachment.indirect = false\nattachment.event_index = false\nattachment.packed = false",
            OFFLOADS,
        ),
    ] {
        let host = Host::start(&one(settings));
        let got = offered(&host, "vf0");
        let expected = all | features;
        assert_eq!(Features::from_bits_retain(got.features), expected, "{settings}");
        assert_eq!(got.protocol_features, PROTOCOL);
        let pairs = if settings.contains("queue_pairs") { 16 } else { 1 };
        assert_eq!(got.queue_pairs_max, pairs);
    }
}

#[test]
fn an_uplink_offers_no_mac() {
    let host = Host::start(TWO);
    let got = Features::from_bits_retain(offered(&host, "uplink").features);
    assert!(got.contains(ALWAYS) && !got.contains(Features::MAC));
}

#[test]
fn the_configuration_space_holds_what_the_file_says() {
    let host = Host::start(&one("attachment.mtu = 9000\nattachment.queue_pairs = 3"));
    let mut guest = Guest::wanting(Features::all());
    guest.reach(&host.socket("vf0"));
    guest.negotiate();
    let config = guest.frontend().config(0, 12).unwrap();
    assert_eq!(config[..6], mac(0));
    assert_eq!(config[6..], [1, 0, 3, 0, 0x28, 0x23], "link up, three pairs, MTU 9000");
    assert_eq!(guest.frontend().config(10, 2).unwrap(), [0x28, 0x23]);
    // Reads beyond the device's configuration return zeros; beyond the maximum they are rejected.
    assert_eq!(guest.frontend().config(64, 4).unwrap(), [0; 4]);
    assert!(matches!(guest.frontend().config(255, 2), Err(FrontendError::Refused { .. })));
}

#[test]
fn an_mtu_above_the_ports_is_refused() {
    let host = Host::start(&one("attachment.mtu = 2000"));
    let mut guest = Guest::new();
    guest.connect(&host.socket("vf0"));
    for good in [68, 1500, 2000] {
        guest.frontend().set_mtu(good).unwrap();
    }
    for bad in [67, 2001, u16::MAX] {
        let refusal = guest.frontend().set_mtu(bad);
        assert!(matches!(refusal, Err(FrontendError::Refused { .. })), "{bad}: {refusal:?}");
    }
    host.log.wait_for("MTU 2001 is above the port's maximum 2000");
    // The session continues.
    guest.frontend().set_mtu(1500).unwrap();
}

#[test]
fn an_mtu_that_is_set_limits_frames_until_the_session_ends() {
    let host = Host::start(TWO);
    let mut a = Guest::new();
    a.reach(&host.socket("vf0"));
    a.negotiate();
    a.frontend().set_mtu(68).unwrap();
    a.set_up();
    let [mut b] = host.guests(["vf1"]);
    let mut long = frame(mac(1), mac(0), 1);
    long.resize(14 + 8 + 69, 0);
    let fits = long[..14 + 8 + 68].to_vec();
    a.send(&long);
    a.send(&fits);
    assert_eq!(b.wait_for(1), [fits]);
    until("the counter", || host.port("n/vf0").drops.get("tx_oversize") == Some(&1));
    a.disconnect();
    a.connect(&host.socket("vf0"));
    a.send(&long);
    assert_eq!(b.wait_for(1), [long]);
}

#[test]
fn memory_that_could_stall_a_lane_is_refused_with_the_remedy() {
    let host = Host::start(TWO);
    let mut guest = Guest::new();
    guest.reach(&host.socket("vf0"));
    guest.negotiate();
    // Of all other file systems, this one is on every machine.
    let file = std::fs::File::open("/proc/self/status").unwrap();
    let region = SharedRegion {
        guest_addr: 0,
        size: 4096,
        user_addr: 0,
        mmap_offset: 0,
        fd: std::os::fd::AsFd::as_fd(&file),
    };
    let refusal = guest.frontend().set_memory(&[region]);
    assert!(matches!(refusal, Err(FrontendError::Refused { .. })), "{refusal:?}");
    let refusal = guest.frontend().add_region(&region);
    assert!(matches!(refusal, Err(FrontendError::Refused { .. })), "{refusal:?}");
    host.log.wait_for("n/vf0: SET_MEM_TABLE (5): refused by the device: guest memory must be a memfd, or a file in /dev/shm");
    host.log.wait_for("-object memory-backend-memfd,share=on");
    // With valid memory the same session works.
    guest.set_up();
}

#[test]
fn memory_that_is_not_all_there_is_refused() {
    let host = Host::start(TWO);
    let mut guest = Guest::new();
    guest.reach(&host.socket("vf0"));
    guest.negotiate();
    let file = rustix::fs::memfd_create("small", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 4096).unwrap();
    let region = SharedRegion {
        guest_addr: 0,
        size: 8192,
        user_addr: 0,
        mmap_offset: 0,
        fd: std::os::fd::AsFd::as_fd(&file),
    };
    let refusal = guest.frontend().set_memory(&[region]);
    assert!(matches!(refusal, Err(FrontendError::Refused { .. })), "{refusal:?}");
    host.log.wait_for("the file has 4096 bytes, 8192 are needed");
    guest.set_up();
}

#[test]
fn an_announcement_goes_out_as_a_broadcast() {
    let host = Host::start(TWO);
    let [mut uplink, mut a, mut b] = host.guests(["uplink", "vf0", "vf1"]);
    a.frontend().send_rarp(mac(0)).unwrap();
    let announcement = wire::rarp::announcement(wire::Mac(mac(0)));
    assert_eq!(uplink.wait_for(1), [announcement]);
    assert_eq!(b.wait_for(1), [announcement]);
    assert!(a.receive().is_empty());
    assert_eq!(announcement[..6], [0xff; 6]);
    // A guest cannot announce another's address.
    a.frontend().send_rarp(mac(1)).unwrap();
    a.frontend().send_rarp(mac(0)).unwrap();
    assert_eq!(uplink.wait_for(1), [announcement]);
    assert_eq!(b.wait_for(1), [announcement]);
    // The uplink may: it carries many addresses.
    uplink.frontend().send_rarp([2, 9, 9, 9, 9, 9]).unwrap();
    let announcement = wire::rarp::announcement(wire::Mac([2, 9, 9, 9, 9, 9]));
    assert_eq!(
        (a.wait_for(1), b.wait_for(1)),
        (vec![announcement.to_vec()], vec![announcement.to_vec()])
    );
}

#[test]
fn several_pairs_each_carry_their_flows() {
    let settings = "attachment.queue_pairs = 2\n[[nic.vf]]\nmac = \"02:00:00:00:00:02\"\nattachment.socket = \"vf1\"";
    let host = Host::start(&one(settings));
    let mut a = Guest::wanting(Features::VERSION_1 | Features::MRG_RXBUF | Features::MQ);
    a.connect(&host.socket("vf0"));
    let [mut b] = host.guests(["vf1"]);
    assert_eq!(host.port("n/vf0").rings_attached, 2, "a guest may use fewer than there are");
    a.send(&frame(mac(1), mac(0), 1));
    b.wait_for(1);
    b.send(&frame(mac(0), mac(1), 1));
    a.wait_for(1);
    assert!(PROTOCOL.contains(ProtocolFeatures::MQ));
}

#[test]
fn announcements_are_no_storm() {
    let host = Host::start(TWO);
    let [mut uplink, mut a] = host.guests(["uplink", "vf0"]);
    let begin = std::time::Instant::now();
    let mut got = 0;
    for _ in 0..200 {
        a.frontend().send_rarp(mac(0)).unwrap();
        got += uplink.receive().len();
    }
    a.frontend().config(0, 6).unwrap(); // the reply shows that all were handled
    got += uplink.receive().len();
    let most = 11.0 + 100.0 * begin.elapsed().as_secs_f64();
    assert!((1.0..most).contains(&(got as f64)), "{got} of 200 passed, and {most} may");
}
