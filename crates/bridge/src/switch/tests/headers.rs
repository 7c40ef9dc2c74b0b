//! Parsing of headers: compared with etherparse, and cases without a key.

use etherparse::{LaxSlicedPacket, NetSlice, TransportSlice};
use proptest::prelude::*;

use super::packet::{Ip, Packet, Payload, Upper, any_packet};
use super::*;
use crate::matching::{Key, PlainMask, Words, has};

fn key(bytes: &[u8]) -> Option<Key> {
    let (header, snapshot) =
        (FrameHeader::of_frame(bytes).unwrap(), HeaderSnapshot::of_frame(bytes));
    let key = Key::of(header, &snapshot, 9);
    // The fast parser returns the same key.
    let words = Key::words_of(header, &snapshot, 9);
    assert_eq!(words, key.map(|key| key.words()));
    assert_eq!(words.map(|words| Key::from_words(&words)), key);
    key
}

fn udp(fragment: Option<u16>, extras: u8, v6: bool) -> Packet {
    let addr = if v6 { "fe80::1" } else { "10.0.0.1" }.parse().unwrap();
    let upper = Upper::Ports { protocol: 17, src: 1, dst: 2, flags: 0 };
    let ip = Ip { src: addr, dst: addr, extras, fragment, upper };
    Packet::new(mac(1), mac(2), Payload::Ip(ip))
}

/// Bits of a key that rules might examine; whole words more often than chance would have it.
fn any_mask() -> impl Strategy<Value = Words> {
    let word = prop_oneof![3 => Just(0_u64), 1 => Just(u64::MAX), 1 => any::<u64>()];
    prop::collection::vec(word, 8).prop_map(|words| words.try_into().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn frames_alike_under_a_mask_have_the_same_key_under_it(
        packet in any_packet(), mask in any_mask(), len in 14_usize..140,
        flipped in prop::collection::vec((0_usize..80, 0_u8..8), 0..3),
    ) {
        let first = packet.bytes();
        let mut other = first.clone();
        other.truncate(len);
        for (at, bit) in flipped {
            if let Some(byte) = other.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        let parse = |bytes: &[u8]| {
            let snapshot = HeaderSnapshot::of_frame(bytes);
            let header = FrameHeader::of_frame(bytes).unwrap();
            (Key::words_and_layout(header, &snapshot, 9), snapshot)
        };
        let ((parsed, first), (of_other, other)) = (parse(&first), parse(&other));
        // Behind the other's end there may be bytes of another frame, such as those of the first.
        let rest = |at: usize| if at < usize::from(other.len) { other.bytes[at] } else { first.bytes[at] };
        let other = HeaderSnapshot { bytes: std::array::from_fn(rest), ..other };
        let Some((words, Some(layout))) = parsed else { return Ok(()) };
        let masks = PlainMask::all(&mask);
        prop_assert!(masks[layout as usize].is_like(&first, &first));
        if masks[layout as usize].is_like(&first, &other) {
            let masked = |words: Words| -> Words { std::array::from_fn(|n| words[n] & mask[n]) };
            let (of_other, its_layout) = of_other.unwrap();
            prop_assert_eq!((masked(of_other), its_layout), (masked(words), Some(layout)));
            prop_assert_eq!(&other.bytes[..12], &first.bytes[..12]);
        }
    }
}

/// Bytes that no rule examines are no reason to parse a frame.
#[test]
fn plain_frames_with_another_payload_are_alike() {
    let ports = Upper::Ports { protocol: 6, src: 1, dst: 2, flags: 0x10 };
    for v6 in [false, true] {
        for tags in [vec![], vec![(0x8100, 5)]] {
            let mut packet = Packet { tags, ..udp(None, 0, v6) };
            if let Payload::Ip(ip) = &mut packet.payload {
                ip.upper = ports.clone();
            }
            let bytes = packet.bytes();
            let (ip, ip_len) = (14 + 4 * packet.tags.len(), if v6 { 40 } else { 20 });
            // Sequence number; priority; identification and TTL of IPv4, or flow label.
            let ignored: &[usize] = if v6 { &[1, 2, 3, 7] } else { &[1, 4, 5, 8, 10, 11] };
            let ignored = ignored.iter().map(|at| ip + at).chain(ip + ip_len + 4..ip + ip_len + 13);
            let mut other = bytes.clone();
            ignored.for_each(|at| other[at] ^= 0xff);
            let [first, other] = [&bytes, &other].map(|bytes| HeaderSnapshot::of_frame(bytes));
            let header = FrameHeader::of_frame(&bytes).unwrap();
            let (_, layout) = Key::words_and_layout(header, &first, 0).unwrap();
            let mask = PlainMask::all(&[u64::MAX; 8])[layout.unwrap() as usize];
            assert!(mask.is_like(&first, &other), "{packet:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn agrees_with_etherparse(mut packet in any_packet()) {
        packet.snap = false;
        let bytes = packet.bytes();
        let ours = key(&bytes).unwrap();
        let theirs = LaxSlicedPacket::from_ethernet(&bytes).unwrap();
        let mac = |mac: Mac| mac.0.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        prop_assert_eq!((ours.src_mac, ours.dst_mac, ours.vid), (mac(packet.src), mac(packet.dst), 9));
        prop_assert_eq!(ours.ethertype, packet.ethertype());
        let (has, src, dst) = match theirs.net.as_ref() {
            Some(etherparse::LaxNetSlice::Ipv4(ip)) => {
                let header = ip.header();
                (has::IPV4 | has::IP, header.source_addr().to_bits().into(), header.destination_addr().to_bits().into())
            }
            Some(etherparse::LaxNetSlice::Ipv6(ip)) => {
                let header = ip.header();
                (has::IPV6 | has::IP, header.source_addr().to_bits(), header.destination_addr().to_bits())
            }
            _ => (0, 0, 0),
        };
        prop_assert_eq!((ours.has & (has::IPV4 | has::IPV6 | has::IP), ours.src_ip, ours.dst_ip), (has, src, dst));
        let ports = match &theirs.transport {
            Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
            Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
            Some(TransportSlice::Icmpv4(icmp)) => Some((0, u16::from_be_bytes([icmp.type_u8(), icmp.code_u8()]))),
            Some(TransportSlice::Icmpv6(icmp)) => Some((0, u16::from_be_bytes([icmp.type_u8(), icmp.code_u8()]))),
            // etherparse looks into no fragment, and we into all that are the first.
            _ => None,
        };
        if let Some(ports) = ports {
            prop_assert_eq!((ours.src_port, ours.dst_port), ports);
        }
        let fragment = matches!(&packet.payload, Payload::Ip(ip) if ip.is_later());
        prop_assert_eq!(ours.has & has::LATER_FRAGMENT != 0, fragment);
    }

    #[test]
    fn snap_hides_nothing(packet in any_packet()) {
        let plain = Packet { snap: false, ..packet.clone() };
        let hidden = Packet { snap: true, ..packet };
        prop_assert_eq!(key(&plain.bytes()), key(&hidden.bytes()));
    }

    #[test]
    fn what_is_cut_off_is_not_guessed(packet in any_packet(), len in 14_usize..128) {
        let bytes = packet.bytes();
        let whole = key(&bytes);
        prop_assert!(whole.is_some());
        // A shorter frame has the same key or none.
        let cut = key(&bytes[..len.min(bytes.len())]);
        prop_assert!(cut.is_none() || cut == whole, "{:?}", cut);
    }
}

#[test]
fn snapshots() {
    let snapshot = HeaderSnapshot::of_frame(&[7; 200]);
    assert_eq!((snapshot.len, snapshot.bytes), (128, [7; 128]));
    let snapshot = HeaderSnapshot::of_frame(&[7; 3]);
    assert_eq!((snapshot.len, &snapshot.bytes[..4]), (3, &[7, 7, 7, 0][..]));
    // A length that cannot be is no reason to panic.
    let bytes = udp(None, 0, false).bytes();
    let snapshot = HeaderSnapshot { len: 255, ..HeaderSnapshot::of_frame(&bytes) };
    assert!(Key::of(FrameHeader::of_frame(&bytes).unwrap(), &snapshot, 0).is_some());
}

#[test]
fn etherparse_reads_what_the_tests_write() {
    for v6 in [false, true] {
        let bytes = udp(None, 1, v6).bytes();
        let packet = etherparse::SlicedPacket::from_ethernet(&bytes).unwrap();
        assert_eq!(matches!(packet.net, Some(NetSlice::Ipv6(_))), v6);
        assert!(matches!(packet.transport, Some(TransportSlice::Udp(_))));
    }
}

#[test]
fn malformed_ipv4() {
    let good = udp(None, 0, false).bytes();
    assert!(key(&good).is_some());
    for (at, byte) in [
        (14, 0x65), // version
        (14, 0x44), // a header of 16 bytes
        (14, 0x4f), // of 60, which is longer than the packet
        (17, 19),   // a packet shorter than its header
        (17, 23),   // one that ends before the ports
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(key(&bad), None, "{at}");
    }
    // No length, as segmentation offload has it: as far as there are bytes.
    let mut long = good.clone();
    long[17] = 0;
    assert_eq!(key(&long), key(&good));
}

#[test]
fn malformed_ipv6() {
    for extras in 0..=8 {
        let found = key(&udp(None, extras, true).bytes());
        // Eight headers are 64 bytes, and 14 + 40 + 64 + 8 are within 128.
        assert_eq!(found.unwrap().dst_port, 2, "{extras}");
    }
    assert_eq!(key(&udp(None, 9, true).bytes()), None);
    let good = udp(None, 1, true).bytes();
    for (at, byte) in [(14, 0x45), (55, 9), (55, 255)] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(key(&bad), None, "{at}");
    }
    // AH counts in words of 4 bytes, from 2.
    let mut ah = udp(None, 0, true).bytes();
    ah[20] = 51;
    ah.splice(54..54, [17, 4, 0, 0].into_iter().chain([0; 20]));
    assert_eq!(key(&ah).unwrap().dst_port, 2);
}

#[test]
fn fragments() {
    for v6 in [false, true] {
        let first = key(&udp(Some(0), 0, v6).bytes()).unwrap();
        assert_eq!((first.dst_port, first.has & has::PORTS), (2, has::PORTS));
        let later = key(&udp(Some(9), 0, v6).bytes()).unwrap();
        assert_eq!((later.dst_port, later.protocol), (0, 17));
        let of_ip = later.has & !(has::IPV4 | has::IPV6);
        assert_eq!(of_ip, has::IP | has::LATER_FRAGMENT);
        // Over TCP's flags nothing may be written.
        let mut tcp = udp(Some(1), 0, v6);
        assert!(key(&tcp.bytes()).is_some());
        if let Payload::Ip(ip) = &mut tcp.payload {
            ip.upper = Upper::Ports { protocol: 6, src: 1, dst: 2, flags: 0 };
        }
        assert_eq!(key(&tcp.bytes()), None);
    }
}

#[test]
fn tags_and_snap_in_any_order() {
    let packet = udp(None, 0, false).bytes();
    let (addresses, rest) = packet.split_at(12);
    let tag = [0x81, 0, 0, 0];
    let snap = [0, 50, 0xaa, 0xaa, 3, 0, 0, 0];
    let bridge = [0, 50, 0xaa, 0xaa, 3, 0, 0, 0xf8];
    let wrap = |parts: &[&[u8]]| key(&[addresses, &parts.concat(), rest].concat());
    let plain = key(&packet);
    assert!(plain.is_some());
    assert_eq!(wrap(&[&tag, &tag]), plain);
    assert_eq!(wrap(&[&tag, &snap, &tag]), plain);
    assert_eq!(wrap(&[&snap, &tag, &tag]), plain);
    assert_eq!(wrap(&[&tag, &tag, &bridge]), plain);
    assert_eq!(wrap(&[&tag, &tag, &tag]), None);
    assert_eq!(wrap(&[&snap, &snap]), None);
    // Plain LLC, such as STP has it, is no IP.
    let llc = wrap(&[&[0, 50, 0x42, 0x42, 3]]).unwrap();
    assert_eq!((llc.ethertype, llc.has), (0, 0));
}
