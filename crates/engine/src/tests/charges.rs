//! Charges for segments and copies, with a clock of the test's own.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use host::stall::BurstMarker;
use port::virtio_net::{HEADER_LEN, TransmitRing};
use port::vxlan;
use wire::Mac;
use wire::virtio_net::{FLAG_NEEDS_CSUM, GSO_TCPV4, NetHeader};

use super::kit::*;
use crate::forward::forward;
use crate::lane::queue_list::TxRing;
use crate::lane::sender::Sender;
use crate::lane::stage_clock::StageClock;
use crate::slow::scratch::Scratch;

/// Floods a second, of which a tenth may come at once.
const LIMIT: u32 = 100;
const AT_ONCE: u64 = 10;
/// Start time of a test.
const BEGIN_NS: u64 = 1_000_000_000_000;
const MS: u64 = 1_000_000;

const HEADERS: u64 = 14 + 20 + 20;
/// Payload bytes of a segment.
const SIZE: u64 = 10;
const UNKNOWN: Mac = Mac([2, 0xee, 0, 0, 0, 1]);

/// TCP to be cut into so many segments.
fn large(dst: Mac, src: Mac, segments: u64) -> Vec<u8> {
    let payload = segments * SIZE;
    let mut frame = [dst.0, src.0].concat();
    frame.extend([0x08, 0, 0x45, 0]);
    frame.extend((40 + payload as u16).to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x10, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    frame.resize((HEADERS + payload) as usize, 0x5a);
    frame
}

fn left_to_cut() -> [u8; HEADER_LEN as usize] {
    let header = NetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: (HEADERS as u16).into(),
        gso_size: (SIZE as u16).into(),
        csum_start: 34.into(),
        csum_offset: 16.into(),
        num_buffers: 0.into(),
    };
    header.to_bytes()
}

/// Adapter 0's guest, whose bursts the test forwards as a lane does.
struct Direct {
    guest: Guest,
    transmit: TransmitRing,
    ring: TxRing,
    sender: Sender,
    scratch: Scratch,
}

impl Direct {
    fn new(net: &Net) -> Direct {
        let guest = Guest::new();
        let mut sender = Sender::new();
        let nic = net.bench.fabric.nics()[0].clone();
        sender.limit_storms(nic.snapshot().storm_limit(net.port(0)), BEGIN_NS);
        Direct {
            transmit: guest.leaving(),
            guest,
            ring: TxRing { nic, port: net.port(0).clone(), pair: 0 },
            sender,
            scratch: Scratch::new(),
        }
    }

    /// Forwards the posted frames at a time; returns the bytes that are charged.
    fn forward(&mut self, now_ns: u64) -> u64 {
        self.guest.flush();
        self.sender.now_ns = now_ns;
        let marker = BurstMarker::default(); // a test has no watchdog
        let mut snapshot = self.ring.nic.lane_snapshot();
        let (sender, scratch) = (&mut self.sender, &mut self.scratch);
        let polled = forward(
            &self.ring,
            &mut snapshot,
            &mut self.transmit,
            sender,
            scratch,
            &marker,
            &StageClock::off(),
        );
        assert_eq!(polled.malformed(), 0);
        polled.work().1
    }

    /// Sends frames as they are.
    fn send(&mut self, frames: &[Vec<u8>], now_ns: u64) -> u64 {
        frames.iter().for_each(|frame| self.guest.post_with([0; HEADER_LEN as usize], frame));
        self.forward(now_ns)
    }

    /// Sends a frame that is to be cut.
    fn send_large(&mut self, frame: &[u8], now_ns: u64) -> u64 {
        self.guest.post_with(left_to_cut(), frame);
        self.forward(now_ns)
    }
}

/// The adapter under test on a path with its limit, a VF, and one in the switch.
fn limited(net: &Net, path: Path) {
    let adapters = [path, Path::Vf, Path::Synthetic].map(Adapter::plain);
    net.apply_with(&adapters, |settings| limit(settings, path));
}

fn limit(settings: &mut Settings, path: Path) {
    if path == Path::Vf {
        settings.nic.vfs[0].as_mut().unwrap().storm_limit = LIMIT;
    } else {
        let port = settings.switch.ports[1].as_mut().unwrap();
        let rate = Some(LIMIT);
        port.storm = bridge::switch::Storm { broadcast: rate, multicast: rate, unknown: rate };
    }
}

/// Counter of drops by a limit.
fn stopped(path: Path, kind: &str) -> String {
    if path == Path::Vf { "tx_drop_storm".into() } else { format!("tx_drop_switch_storm_{kind}") }
}

#[test]
fn a_flood_is_charged_for_each_receiver_that_has_it_cut() {
    let (segments, plain) = (100, frame(Mac::BROADCAST, mac(0), 1, 60));
    let on_wire = segments * (HEADERS + SIZE);
    for path in [Path::Vf, Path::Synthetic] {
        let net = Net::new(3, 1, 1);
        limited(&net, path);
        let mut guests: Vec<Guest> = (1..4).map(|_| Guest::new()).collect();
        guests.iter().enumerate().for_each(|(n, guest)| guest.attach(net.port(n + 1)));
        let mut direct = Direct::new(&net);

        // To one receiver it is cut once, and the limit does not count it.
        let charged = direct.send_large(&large(mac(1), mac(0), segments), BEGIN_NS);
        assert_eq!(charged, on_wire, "{path:?}");
        assert_eq!(guests[0].wait_for(segments as usize).len(), segments as usize);

        let all = large(Mac::BROADCAST, mac(0), segments);
        assert_eq!(direct.send_large(&all, BEGIN_NS), 3 * on_wire, "{path:?}");
        for guest in &mut guests {
            let got = guest.wait_for(segments as usize);
            assert!(got.iter().all(|frame| frame.len() as u64 == HEADERS + SIZE));
        }
        // 300 frames, less those that may come at once, have to be paid.
        let paid_ns = BEGIN_NS + (3 * segments - AT_ONCE) * 10 * MS;
        let what = stopped(path, "broadcast");
        for now_ns in [BEGIN_NS, BEGIN_NS + 500 * MS, paid_ns - 20 * MS] {
            assert_eq!(direct.send(std::slice::from_ref(&plain), now_ns), 60);
        }
        assert_eq!(net.bench.count("n/a0", &what), 3, "{path:?}");
        assert_eq!(direct.send(std::slice::from_ref(&plain), paid_ns + 20 * MS), 3 * 60);
        guests.iter_mut().for_each(|guest| assert_eq!(guest.wait_for(1), [&plain[..]]));
        assert_eq!(net.bench.count("n/a0", &what), 3, "{path:?}");
    }
}

/// A tunnel with three peers on a port of the switch, and the peers.
fn tunnel(net: &mut Net, host: u8) -> Vec<UdpSocket> {
    let ip = |n: u8| IpAddr::from(Ipv4Addr::new(127, 84, host, n));
    let port = UdpSocket::bind((ip(1), 0)).unwrap().local_addr().unwrap().port();
    let peers: Vec<IpAddr> = (2..5).map(ip).collect();
    let listen = |peer: &IpAddr| {
        let socket = UdpSocket::bind((*peer, port)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let sockets = peers.iter().map(listen).collect();
    let spec = vxlan::VxlanSpec { vni: 7, local: Some(ip(1)), port, peers, mtu: None };
    let mut opened = vxlan::open(&spec).unwrap();
    let nic = net.bench.fabric.nics()[0].clone();
    let far = net.bench.fabric.add_monitor(&nic, "far").unwrap();
    far.attach_receive(0, opened.pairs.remove(0).receive);
    net.taps.push((switch_port(3), far));
    sockets
}

/// Datagrams that came to all of them.
fn arrived(sockets: &[UdpSocket]) -> usize {
    let mut count = 0;
    for socket in sockets {
        while socket.recv(&mut [0; 4096]).is_ok() {
            count += 1;
        }
    }
    count
}

#[test]
fn copies_for_the_peers_of_a_tunnel_are_charged() {
    for (host, path) in [(1, Path::Vf), (2, Path::Synthetic)] {
        let mut net = Net::new(3, 1, 1);
        // Addresses unknown to a VF may be in the switch, and there behind the tunnel.
        net.floods_unknown = true;
        let sockets = tunnel(&mut net, host);
        let adapters = [path, Path::Vf, Path::Synthetic].map(Adapter::plain);
        net.apply_with(&adapters, |settings| {
            limit(settings, path);
            settings.switch.ports.push(Some(bridge::switch::PortConfig::access(None)));
        });
        let mut direct = Direct::new(&net);

        // Unknown addresses: two copies more of each. A VF may send them without end to its wire,
        // but not have them copied; in the switch each counts for itself as well.
        let unknown: Vec<_> = (0..20).map(|n| frame(UNKNOWN, mac(0), n, 60)).collect();
        let (copied, over) = if path == Path::Vf { (5, 15) } else { (11, 9) };
        let charged = direct.send(&unknown, BEGIN_NS);
        assert_eq!(charged, (3 * copied).max(20) * 60, "{path:?}");
        assert_eq!(arrived(&sockets) as u64, 3 * copied, "{path:?}");
        assert_eq!(net.bench.count("n/a0", &stopped(path, "unknown")), over);
        let again_ns = if path == Path::Vf { 10 } else { (33 - AT_ONCE) * 10 } * MS;
        for (after_ns, passed) in [(again_ns - 5 * MS, 0), (again_ns + 5 * MS, 1)] {
            direct.send(&unknown[..1], BEGIN_NS + after_ns);
            assert_eq!(arrived(&sockets), 3 * passed, "{path:?} after {after_ns} ns");
        }

        // A group: as above, and no flood passes before all is paid.
        let later_ns = BEGIN_NS + 60_000 * MS;
        let group: Vec<_> = (0..20).map(|n| frame(Mac::BROADCAST, mac(0), n, 60)).collect();
        let before = net.bench.count("n/a0", &stopped(path, "broadcast"));
        let passed = if path == Path::Vf { 4 } else { 11 };
        assert_eq!(direct.send(&group, later_ns), (3 * passed).max(20) * 60, "{path:?}");
        assert_eq!(arrived(&sockets) as u64, 3 * passed, "{path:?}");
        let dropped = net.bench.count("n/a0", &stopped(path, "broadcast")) - before;
        assert_eq!(dropped, 20 - passed, "{path:?}");
    }
}

#[test]
fn segments_are_copied_for_the_peers_of_a_tunnel_and_charged_each() {
    let mut net = Net::new(3, 1, 1);
    let sockets = tunnel(&mut net, 3);
    let adapters = [Path::Synthetic, Path::Vf, Path::Synthetic].map(Adapter::plain);
    net.apply_with(&adapters, |settings| {
        limit(settings, Path::Synthetic);
        settings.switch.ports.push(Some(bridge::switch::PortConfig::access(None)));
    });
    let mut direct = Direct::new(&net);
    let segments = 20;
    let charged = direct.send_large(&large(Mac::BROADCAST, mac(0), segments), BEGIN_NS);
    assert_eq!(charged, 3 * segments * (HEADERS + SIZE), "no other receiver needs segments");
    assert_eq!(arrived(&sockets) as u64, 3 * segments);
    let paid_ns = BEGIN_NS + (3 * segments - AT_ONCE) * 10 * MS;
    for (now_ns, passed) in [(paid_ns - 5 * MS, 0), (paid_ns + 5 * MS, 1)] {
        direct.send(&[frame(Mac::BROADCAST, mac(0), 1, 60)], now_ns);
        assert_eq!(arrived(&sockets), 3 * passed);
    }
}

#[test]
fn each_copy_of_a_flood_costs_its_bytes() {
    let net = Net::new(3, 1, 1);
    limited(&net, Path::Vf);
    let mut guests: Vec<Guest> = (1..4).map(|_| Guest::new()).collect();
    guests.iter().enumerate().for_each(|(n, guest)| guest.attach(net.port(n + 1)));
    let mut direct = Direct::new(&net);
    let group: Vec<_> = (0..20).map(|n| frame(Mac::BROADCAST, mac(0), n, 60)).collect();
    assert_eq!(direct.send(&group, BEGIN_NS), 3 * AT_ONCE * 60);
    assert_eq!(direct.send(&group, BEGIN_NS), 20 * 60, "of frames that are dropped");
    guests.iter_mut().for_each(|guest| drop(guest.wait_for(AT_ONCE as usize)));
    net.bench.expect("n/a0", "tx_drop_storm", 40 - AT_ONCE);
}

#[test]
fn the_copy_for_a_mirror_costs_its_bytes() {
    let mut net = Net::new(2, 1, 1);
    let (port, mut capture) = net.listener("capture");
    net.captures.push(port);
    net.apply_with(&[Path::Vf, Path::Vf].map(Adapter::plain), |settings| {
        let to = bridge::nic::MirrorTarget::Capture(0);
        let way = bridge::nic::MirroredFrames::Both;
        settings.nic.vfs[0].as_mut().unwrap().mirror =
            Some(bridge::nic::FunctionMirror { way, to });
    });
    let mut other = Guest::new();
    other.attach(net.port(1));
    let sent = frame(mac(1), mac(0), 1, 60);
    assert_eq!(Direct::new(&net).send(std::slice::from_ref(&sent), BEGIN_NS), 2 * 60);
    assert_eq!([other.wait_for(1), capture.receive()], [[sent.clone()], [sent]]);
}
