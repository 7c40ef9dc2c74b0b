//! Tunnels over the loopback interface: each host has an address of its own there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use super::guests::{Layout, Sender, frame};
use super::lent::Lent;
use super::offload::{GSO, HEADERS, MSS, left, payload_of, tcp};
use crate::vxlan::{VxlanError, VxlanSpec, open, overhead, resume};
use crate::{BURST, Delivered, OffloadSet, OpenedDevice, PortHandover, Transmit, VlanEdit};

fn ip(host: u8) -> IpAddr {
    Ipv4Addr::new(127, 83, 0, host).into()
}

/// A UDP port that is free on all hosts' addresses; each test has its own hosts.
fn free_port(host: u8) -> u16 {
    UdpSocket::bind((ip(host), 0)).unwrap().local_addr().unwrap().port()
}

fn spec(vni: u32, host: u8, port: u16, peers: &[u8]) -> VxlanSpec {
    let peers = peers.iter().map(|peer| ip(*peer)).collect();
    VxlanSpec { vni, local: Some(ip(host)), port, peers, mtu: None }
}

/// A tunnel's end.
struct End(OpenedDevice);

impl End {
    fn new(spec: &VxlanSpec) -> End {
        End(open(spec).unwrap())
    }

    fn transmit(&mut self) -> Lent<&mut dyn Transmit> {
        Lent::new(self.0.pairs[0].transmit.as_mut())
    }

    /// The frames that are there.
    fn poll(&mut self) -> Vec<Vec<u8>> {
        let mut transmit = self.transmit();
        transmit.poll();
        let frames = transmit.frames();
        transmit.complete();
        frames
    }

    fn send(&mut self, frames: &[Vec<u8>]) -> Delivered {
        let mut from = Sender::new(12, 70_000);
        for frame in frames {
            from.send(frame, &Layout::chain(&[12, 20]));
        }
        self.carry(&mut from, frames.len())
    }

    fn carry(&mut self, from: &mut Sender, count: usize) -> Delivered {
        let indices: Vec<u8> = (0..count as u8).collect();
        from.ring.poll();
        let mut receive = Lent::new(self.0.pairs[0].receive.as_mut());
        let delivered = receive.deliver(&from.ring.burst(), &indices, VlanEdit::None);
        receive.publish();
        from.ring.complete();
        delivered
    }
}

/// A frame from one address to another.
fn between(to: u8, from: u8, number: usize, len: usize) -> Vec<u8> {
    let mut bytes = frame(number, len);
    bytes[..6].copy_from_slice(&if to == 0xff { [0xff; 6] } else { [2, 0, 0, 0, 0, to] });
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    bytes
}

#[test]
fn frames_go_to_every_peer_until_their_address_is_known() {
    let port = free_port(1);
    let mut hosts = [1, 2, 3].map(|host| {
        let others: Vec<u8> = [1, 2, 3].into_iter().filter(|other| *other != host).collect();
        End::new(&spec(77, host, port, &others))
    });
    let unknown = between(2, 1, 0, 100);
    let delivered = hosts[0].send(std::slice::from_ref(&unknown));
    assert_eq!((delivered.frames, delivered.bytes), (1, 100), "it counts once");
    for host in [1, 2] {
        assert_eq!(hosts[host].poll(), [&unknown[..]]);
    }
    assert!(hosts[0].poll().is_empty());

    // Now the others know where address 1 is, and, once 2 has answered, host 1 knows that.
    let answer = between(1, 2, 1, 60);
    hosts[1].send(std::slice::from_ref(&answer));
    assert!(hosts[0].transmit().enable_notification());
    assert_eq!(hosts[0].poll(), [answer]);
    assert!(hosts[2].poll().is_empty(), "it is not this one's");
    let known: Vec<_> = (0..BURST).map(|i| between(2, 1, i, 60 + i)).collect();
    assert_eq!(hosts[0].send(&known).frames as usize, BURST);
    assert_eq!(hosts[1].poll(), known);
    assert!(hosts[2].poll().is_empty());

    let group = between(0xff, 1, 2, 60);
    hosts[0].send(std::slice::from_ref(&group));
    for host in [1, 2] {
        assert_eq!(hosts[host].poll(), [&group[..]]);
    }
}

#[test]
fn copies_are_counted_and_those_of_unknown_addresses_limited() {
    let port = free_port(71);
    let mut end = End::new(&spec(7, 71, port, &[72, 73, 74]));
    let mut far = [72, 73, 74].map(|host| End::new(&spec(7, host, port, &[71])));
    far[0].send(&[between(0xff, 2, 0, 60)]);
    assert_eq!(end.poll().len(), 1, "now it knows that address 2 is at host 72");
    assert!(end.0.pairs[0].receive.replicates() && !far[0].0.pairs[0].receive.replicates());
    let frames = [
        between(2, 1, 0, 60),
        between(9, 1, 1, 100),
        between(0xff, 1, 2, 200),
        between(9, 1, 3, 300),
        between(2, 1, 4, 60),
        between(0xff, 1, 5, 400),
    ];
    // Without a limit; then with one that the first unknown frame uses up, and with none left.
    for (allowed, unknown, bytes) in [(None, 2, 1000), (Some(1), 1, 700), (Some(0), 0, 600)] {
        if let Some(allowed) = allowed {
            end.0.pairs[0].receive.allow_copies(allowed);
        }
        let delivered = end.send(&frames);
        assert_eq!((delivered.frames, delivered.over_limit), (4 + unknown, 2 - unknown));
        assert_eq!((delivered.copies, delivered.copied_bytes), (2 * (2 + unknown), 2 * bytes));
        let passes = |frame: &&Vec<u8>| match frame[5] {
            9 => unknown == 2 || unknown == 1 && frame.len() == 100,
            _ => true,
        };
        let passed: Vec<Vec<u8>> = frames.iter().filter(passes).cloned().collect();
        assert_eq!(far[0].poll(), passed);
        let copied: Vec<Vec<u8>> = passed.into_iter().filter(|frame| frame[5] != 2).collect();
        assert_eq!(far[1].poll(), copied);
        assert_eq!(far[2].poll(), copied);
    }

    // Segments are stopped one by one, and those behind the first are counted with it.
    let mut from = Sender::leaving(OffloadSet::all(), 1514);
    let (mut large, _) = tcp(5000);
    large[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    from.send_with(left(GSO, MSS as u16), &large, &Layout::chain(&[]));
    end.0.pairs[0].receive.allow_copies(3);
    let delivered = end.carry(&mut from, 1);
    assert_eq!((delivered.frames, delivered.copies, delivered.over_limit), (2, 4, 3));
    assert_eq!(delivered.copied_bytes, 4 * (HEADERS + MSS) as u64);
}

#[test]
fn networks_on_one_address_and_port_are_kept_apart() {
    let port = free_port(11);
    let mut red = [End::new(&spec(1, 11, port, &[12])), End::new(&spec(1, 12, port, &[11]))];
    let mut blue =
        [End::new(&spec(0xff_ffff, 11, port, &[12])), End::new(&spec(0xff_ffff, 12, port, &[11]))];
    let (for_red, for_blue) = (between(9, 1, 1, 100), between(9, 1, 2, 200));
    for _ in 0..3 {
        red[0].send(std::slice::from_ref(&for_red));
        blue[0].send(std::slice::from_ref(&for_blue));
    }
    // The port that polls first receives both frames, and parks the other's.
    assert_eq!(blue[1].poll(), [for_blue.clone(), for_blue.clone(), for_blue]);
    assert!(red[1].transmit().enable_notification(), "it is told");
    assert_eq!(red[1].poll(), [for_red.clone(), for_red.clone(), for_red]);
    assert!(!red[1].transmit().enable_notification());
    assert!(!blue[1].transmit().enable_notification());

    let taken = open(&spec(1, 11, port, &[13])).unwrap_err();
    assert!(matches!(taken, VxlanError::Taken { vni: 1, .. }), "{taken}");
    drop(red);
    let _again = End::new(&spec(1, 11, port, &[13]));
}

#[test]
fn strangers_and_what_is_no_vxlan_are_dropped() {
    let port = free_port(21);
    let mut end = End::new(&spec(0x01_02_03, 21, port, &[22]));
    let peer = UdpSocket::bind((ip(22), 0)).unwrap();
    let stranger = UdpSocket::bind((ip(23), 0)).unwrap();
    let good = |number| [&[8, 0, 0, 0, 1, 2, 3, 0][..], &between(1, 9, number, 60)].concat();
    let with = |at: usize, byte: u8| {
        let mut bytes = good(7);
        bytes[at] = byte;
        bytes
    };
    let bad = [with(0, 0), with(0, 0xf7), with(4, 9), with(6, 0), good(7)[..7].to_vec(), vec![]];
    for datagram in bad {
        peer.send_to(&datagram, (ip(21), port)).unwrap();
    }
    stranger.send_to(&good(7), (ip(21), port)).unwrap();
    peer.send_to(&good(1), (ip(21), port)).unwrap();
    // Reserved bits are to be overlooked (section 5).
    let mut reserved = good(2);
    (reserved[0], reserved[1], reserved[7]) = (0xff, 0xaa, 0xaa);
    peer.send_to(&reserved, (ip(21), port)).unwrap();
    assert_eq!(end.poll(), [between(1, 9, 1, 60), between(1, 9, 2, 60)]);

    peer.send_to(&good(3)[..8 + 13], (ip(21), port)).unwrap();
    let polled = end.transmit().poll();
    assert_eq!((polled.frames, polled.runts), (1, 1));
}

#[test]
fn datagrams_are_as_others_expect_them() {
    let port = free_port(31);
    let mut end = End::new(&spec(0x01_02_03, 31, port, &[32]));
    let peer = UdpSocket::bind((ip(32), port)).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let sent = between(1, 2, 1, 300);
    end.send(std::slice::from_ref(&sent));
    let mut bytes = [0; 2000];
    let (len, from) = peer.recv_from(&mut bytes).unwrap();
    assert_eq!(from, (ip(31), port).into());
    assert_eq!(bytes[..8], [8, 0, 0, 0, 1, 2, 3, 0]);
    assert_eq!(bytes[8..len], sent);
}

#[test]
fn what_does_not_fit_is_counted_and_what_was_left_to_do_is_done() {
    let port = free_port(41);
    let spec = VxlanSpec { mtu: Some(1600), ..spec(5, 41, port, &[42, 43]) };
    let mut end = End::new(&spec);
    let mut peer = End::new(&VxlanSpec { mtu: None, ..self::spec(5, 42, port, &[41]) });
    assert_eq!(overhead(ip(42)), 50);
    // 1600 bytes of a packet less 36 of headers are a frame's.
    let sent = [60, 1565, 1564, 1565, 61].map(|len| between(1, 2, len, len));
    let delivered = end.send(&sent);
    assert_eq!((delivered.frames, delivered.too_small), (3, 2));
    assert_eq!(peer.poll(), [sent[0].clone(), sent[2].clone(), sent[4].clone()]);

    let mut from = Sender::leaving(OffloadSet::all(), 1514);
    let (large, payload) = tcp(30_500);
    from.send_with(left(GSO, MSS as u16), &large, &Layout::chain(&[]));
    assert_eq!(end.carry(&mut from, 1).frames, 31);
    assert_eq!(payload_of(&peer.poll()), payload);

    // A segment that does not fit takes those behind it along.
    let mut from = Sender::leaving(OffloadSet::all(), 9014);
    let (large, _) = tcp(4000);
    from.send_with(left(GSO, 1600), &large, &Layout::chain(&[]));
    let delivered = end.carry(&mut from, 1);
    assert_eq!((delivered.frames, delivered.too_small), (0, 3));
    assert!(HEADERS + 1600 > 1564 && peer.poll().is_empty());

    // The kernel rejects frames that no datagram can hold.
    let mut wide = End::new(&self::spec(6, 41, port, &[42]));
    assert_eq!(wide.send(&[between(1, 2, 1, 65_520)]).too_small, 1);
}

#[test]
fn ipv6_carries_them_too() {
    let local: IpAddr = Ipv6Addr::LOCALHOST.into();
    let Ok(socket) = UdpSocket::bind((local, 0)) else {
        return; // a machine without IPv6
    };
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let spec = VxlanSpec { vni: 9, local: Some(local), port, peers: vec![local], mtu: Some(1500) };
    let mut end = End::new(&spec);
    assert_eq!(overhead(local), 70);
    let sent: Vec<_> = [60, 1444, 1445].map(|len| between(1, 2, len, len)).to_vec();
    let delivered = end.send(&sent);
    assert_eq!((delivered.frames, delivered.too_small), (2, 1));
    assert_eq!(end.poll(), sent[..2]);
}

#[test]
fn what_cannot_be_is_refused() {
    let good = spec(1, 51, 4789, &[52]);
    for (bad, what) in [
        (VxlanSpec { vni: 0, ..good.clone() }, "not a VNI"),
        (VxlanSpec { vni: 1 << 24, ..good.clone() }, "not a VNI"),
        (VxlanSpec { peers: vec![], ..good.clone() }, "no peer"),
        (VxlanSpec { peers: vec![ip(1); 65], ..good.clone() }, "more than 64"),
        (
            VxlanSpec { peers: vec![ip(1), Ipv6Addr::LOCALHOST.into()], ..good.clone() },
            "one family",
        ),
        (VxlanSpec { mtu: Some(500), ..good.clone() }, "MTU"),
        (VxlanSpec { port: 0, ..good.clone() }, "port 0"),
        (VxlanSpec { local: Some(Ipv4Addr::new(203, 0, 113, 1).into()), ..good }, "of this host"),
    ] {
        let error = open(&bad).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn another_process_has_its_frames_and_knows_its_addresses() {
    let port = free_port(61);
    let mut far = [62, 63].map(|host| End::new(&spec(7, host, port, &[61])));
    let near = [spec(7, 61, port, &[62, 63]), spec(8, 61, port, &[62, 63])];
    let mut end = End::new(&near[0]);
    let other = End::new(&near[1]);
    assert_eq!(far[0].send(&[between(0xff, 2, 0, 100)]).frames, 1);
    assert_eq!(end.poll().len(), 1, "now it knows that address 2 is at host 62");
    // A frame of the other network, which this one's lane takes from the socket for it.
    let mut far_other = End::new(&spec(8, 62, port, &[61]));
    far_other.send(&[between(0xff, 4, 1, 100)]);
    assert!(end.poll().is_empty());
    // And one that waits in the socket.
    far[1].send(&[between(0xff, 3, 2, 100)]);

    let legacies =
        [end, other].map(|end| end.0.housekeeping.unwrap().handover(&[Vec::new()]).unwrap());
    let [first, second] = legacies;
    let mut end = End(resume(&near[0], first.clone()).unwrap());
    let mut other = End(resume(&near[1], second).unwrap());
    assert_eq!(end.poll(), [between(0xff, 3, 2, 100)]);
    assert_eq!(other.poll(), [between(0xff, 4, 1, 100)]);
    assert_eq!(end.send(&[between(2, 1, 3, 100)]).frames, 1);
    assert_eq!(far[0].poll().len(), 1, "where its address is");
    assert!(far[1].poll().is_empty(), "and nowhere else");
    let cut_off = PortHandover { state: first.state[..12].to_vec(), ..first };
    assert!(matches!(resume(&near[0], cut_off), Err(VxlanError::IncompleteHandover(_))));
}
