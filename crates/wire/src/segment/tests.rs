//! Segments parsed and summed by etherparse, reassembled, and compared with the frame they were cut
//! from; two cut by hand; and hostile input.

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;
use crate::virtio_net::{FLAG_NEEDS_CSUM, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4};

/// A frame to cut.
#[derive(Clone, Debug)]
struct Case {
    v6: bool,
    udp: bool,
    tags: usize,
    /// Bytes of TCP options; for UDP, if not 0, an IPv6 options header of one unit.
    options: usize,
    flags: u8,
    seq: u32,
    size: u16,
    payload_len: usize,
    padding: usize,
}

impl Case {
    const PLAIN: Self = Self {
        v6: false,
        udp: false,
        tags: 0,
        options: 0,
        flags: tcp::FLAG_ACK,
        seq: 1,
        size: 1448,
        payload_len: 4000,
        padding: 0,
    };

    fn payload(&self) -> Vec<u8> {
        (0..self.payload_len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    /// Offset of the transport header.
    fn upper(&self) -> usize {
        let extension = if self.v6 && self.udp && self.options > 0 { 8 } else { 0 };
        14 + 4 * self.tags + if self.v6 { 40 } else { 20 } + extension
    }

    fn header(&self) -> NetHeader {
        let (gso_type, offset) = match (self.udp, self.v6) {
            (true, _) => (GSO_UDP_L4, 6),
            (false, true) => (GSO_TCPV6, 16),
            (false, false) => (GSO_TCPV4, 16),
        };
        NetHeader {
            flags: FLAG_NEEDS_CSUM,
            gso_type,
            gso_size: self.size.into(),
            csum_start: (self.upper() as u16).into(),
            csum_offset: offset.into(),
            ..NetHeader::default()
        }
    }

    /// The frame, with garbage in the checksums that a guest leaves to the device.
    fn frame(&self) -> Vec<u8> {
        // The lengths are patched in below, as etherparse knows no packets beyond 64 KiB.
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let step = match self.v6 {
            false => builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
            true => builder.ipv6([0xfe; 16], [0x20; 16], 64),
        };
        let mut frame = Vec::new();
        if self.udp {
            step.udp(1000, 2000).write(&mut frame, &[]).unwrap();
            if self.upper() == 14 + 4 * self.tags + 48 {
                frame[20] = 60;
                frame.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            let options = vec![1; self.options];
            let mut tcp = etherparse::TcpHeader::new(1000, 2000, self.seq, 512);
            tcp.set_options_raw(&options).unwrap();
            step.tcp_header(tcp).write(&mut frame, &[]).unwrap();
            let upper = self.upper() - 4 * self.tags;
            frame[upper + 13] = self.flags;
            frame[upper + 16..upper + 18].fill(0x77);
        }
        frame.extend(self.payload());
        let len = frame.len() - 14 - if self.v6 { 40 } else { 0 };
        let field = if self.v6 { 18..20 } else { 16..18 };
        frame[field].copy_from_slice(&u16::try_from(len).unwrap_or(0).to_be_bytes());
        if !self.v6 {
            // Its checksum is garbage as well; identifications wrap.
            frame[18..20].copy_from_slice(&0xfffeu16.to_be_bytes());
            frame[24..26].fill(0x77);
        }
        for _ in 0..self.tags {
            frame.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
        }
        frame.resize(frame.len() + self.padding, 0xee);
        frame
    }

    /// Cuts the frame, and checks every segment completely.
    fn check(&self) {
        let frame = self.frame();
        let payload = self.payload();
        let mut segments = Segments::new(&frame, &self.header()).unwrap();
        let count = self.payload_len.div_ceil(self.size.into()).max(1);
        let mut joined = Vec::new();
        for index in 0..count {
            assert_eq!((segments.len(), segments.is_empty()), (count - index, false));
            let segment = segments.next().unwrap();
            let bytes = [segment.headers, segment.payload].concat();
            assert_eq!(segment.frame_len(), bytes.len());
            let carried = self.check_one(&bytes, &frame, index, index + 1 == count);
            assert_eq!(carried, segment.payload);
            let expected = usize::from(self.size).min(payload.len() - joined.len());
            assert_eq!(carried.len(), expected);
            joined.extend(carried);
        }
        assert!(segments.is_empty() && segments.next().is_none() && segments.next().is_none());
        assert_eq!(joined, payload);
    }

    /// Checks a segment, by etherparse; returns its payload.
    fn check_one(&self, bytes: &[u8], frame: &[u8], index: usize, is_last: bool) -> Vec<u8> {
        let network = 14 + 4 * self.tags;
        assert_eq!(bytes[..network], frame[..network], "Ethernet and tags are as they were");
        let sliced = SlicedPacket::from_ethernet(bytes).unwrap();
        assert_eq!(sliced.link_exts.len(), self.tags);
        match sliced.net.as_ref().unwrap() {
            NetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                assert_eq!(usize::from(header.total_len), bytes.len() - network);
                assert_eq!(header.identification, 0xfffeu16.wrapping_add(index as u16));
                assert_eq!(header.header_checksum, header.calc_header_checksum());
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header().to_header();
                assert_eq!(usize::from(header.payload_length), bytes.len() - network - 40);
            }
            other => panic!("{other:?}"),
        }
        let ip = match sliced.net.unwrap() {
            NetSlice::Ipv4(ip) => Ok(ip.header().to_header()),
            NetSlice::Ipv6(ip) => Err(ip.header().to_header()),
            other => panic!("{other:?}"),
        };
        match sliced.transport.unwrap() {
            TransportSlice::Tcp(slice) => {
                let (tcp, payload) = (slice.to_header(), slice.payload());
                let sum = match &ip {
                    Ok(ip) => tcp.calc_checksum_ipv4(ip, payload),
                    Err(ip) => tcp.calc_checksum_ipv6(ip, payload),
                };
                assert_eq!(tcp.checksum, sum.unwrap());
                let before = (index * usize::from(self.size)) as u32;
                assert_eq!(tcp.sequence_number, self.seq.wrapping_add(before));
                let flag = |flag| self.flags & flag != 0;
                assert_eq!(tcp.fin, flag(tcp::FLAG_FIN) && is_last);
                assert_eq!(tcp.psh, flag(tcp::FLAG_PSH) && is_last);
                assert_eq!(tcp.cwr, flag(tcp::FLAG_CWR) && index == 0);
                assert_eq!(tcp.ack, flag(tcp::FLAG_ACK));
                assert_eq!(tcp.options.as_slice(), vec![1; self.options.next_multiple_of(4)]);
                payload.to_vec()
            }
            TransportSlice::Udp(slice) => {
                let (udp, payload) = (slice.to_header(), slice.payload());
                let sum = match &ip {
                    Ok(ip) => udp.calc_checksum_ipv4(ip, payload),
                    Err(ip) => udp.calc_checksum_ipv6(ip, payload),
                };
                assert_eq!(udp.checksum, sum.unwrap());
                assert_eq!(usize::from(udp.length), 8 + payload.len());
                payload.to_vec()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Remaining checksum error of `bytes`: 0 if it is correct.
fn unsettled(pseudo: Sum, bytes: &[u8]) -> u16 {
    pseudo.word(bytes.len() as u16).bytes(bytes).finish()
}

/// All segments of a frame, each as one piece.
fn cut(frame: &[u8], header: &NetHeader) -> Vec<Vec<u8>> {
    let mut segments = Segments::new(frame, header).unwrap();
    let mut all = Vec::new();
    while let Some(segment) = segments.next() {
        all.push([segment.headers, segment.payload].concat());
    }
    all
}

#[test]
fn all_sizes() {
    // Around multiples of the maximum segment size, odd lengths, and the longest that IP allows.
    for payload_len in [0, 1, 2, 3, 99, 100, 101, 199, 200, 201, 1447, 1448, 1449, 2896, 9001] {
        for size in [100, 101, 1448] {
            for (v6, udp) in [(false, false), (true, false), (false, true), (true, true)] {
                Case { v6, udp, size, payload_len, ..Case::PLAIN }.check();
            }
        }
    }
    for payload_len in [65_495, 65_535, 65_536] {
        for (v6, udp) in [(false, false), (true, false)] {
            Case { v6, udp, payload_len, ..Case::PLAIN }.check();
        }
    }
}

#[test]
fn flags_and_sequence_numbers() {
    let flags = tcp::FLAG_FIN | tcp::FLAG_PSH | tcp::FLAG_CWR | tcp::FLAG_ACK;
    Case { flags, seq: u32::MAX - 1000, ..Case::PLAIN }.check();
    Case { flags, payload_len: 10, ..Case::PLAIN }.check();
}

#[test]
fn the_urgent_pointer_counts_from_each_segment() {
    let mut frame = Case { flags: tcp::FLAG_URG, ..Case::PLAIN }.frame();
    for (urgent, expected) in [
        (0, [Some(0), None, None]),
        (1000, [Some(1000), None, None]),
        (1448, [Some(1448), None, None]),
        (1449, [Some(1449), Some(1), None]),
        (4000, [Some(4000), Some(2552), Some(1104)]),
    ] {
        frame[52..54].copy_from_slice(&u16::to_be_bytes(urgent));
        let found: Vec<_> = cut(&frame, &Case::PLAIN.header())
            .iter()
            .map(|bytes| {
                let tcp = tcp::Segment::new(&bytes[34..]).unwrap();
                let is_urgent = tcp.flags() & tcp::FLAG_URG != 0;
                assert!(is_urgent || tcp.urgent() == 0);
                is_urgent.then_some(tcp.urgent())
            })
            .collect();
        assert_eq!(found, expected);
    }
}

/// Computed independently of this code: sums of the words by hand.
#[test]
fn two_datagrams_by_hand() {
    let frame = [
        // Ethernet; IPv4 of 33 bytes, identification 1, TTL 64, UDP, 10.0.0.1 to 10.0.0.2.
        &[2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0][..],
        &[0x45, 0, 0, 33, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2],
        // 1000 to 2000; "hello" as 3 bytes and 2; padding.
        &[0x03, 0xe8, 0x07, 0xd0, 0, 13, 0, 0],
        b"hello\xff\xff\xff",
    ]
    .concat();
    let header = NetHeader { gso_size: 3.into(), ..Case { udp: true, ..Case::PLAIN }.header() };
    let segments = cut(&frame, &header);
    // 4500 + 001f + 0001 + 4000 + 4011 + 0a00 + 0001 + 0a00 + 0002 = d934; ~ = 26cb.
    // 0a00 + 0001 + 0a00 + 0002 + 0011 + 000b + 03e8 + 07d0 + 000b + 6865 + 6c00 = f447; ~ = 0bb8.
    assert_eq!(
        segments[0][14..34],
        [0x45, 0, 0, 31, 0, 1, 0x40, 0, 64, 17, 0x26, 0xcb, 10, 0, 0, 1, 10, 0, 0, 2]
    );
    assert_eq!(segments[0][34..], *b"\x03\xe8\x07\xd0\x00\x0b\x0b\xb8hel");
    // One byte less and one identification more: the same sum.
    // 1400 + 0003 + 0011 + 000a + 0bb8 + 000a + 6c6f = 8c4f; ~ = 73b0.
    assert_eq!(
        segments[1][14..34],
        [0x45, 0, 0, 30, 0, 2, 0x40, 0, 64, 17, 0x26, 0xcb, 10, 0, 0, 1, 10, 0, 0, 2]
    );
    assert_eq!(segments[1][34..], *b"\x03\xe8\x07\xd0\x00\x0a\x73\xb0lo");
    assert_eq!(segments.len(), 2);
}

#[test]
fn a_sum_of_zero_is_sent_as_ones() {
    // The payload is what the sum lacks, so that the checksum comes out as 0.
    let case = Case { udp: true, payload_len: 2, ..Case::PLAIN };
    let mut frame = case.frame();
    frame[42..44].fill(0);
    let sum = cut(&frame, &case.header())[0][40..42].to_vec();
    frame[42..44].copy_from_slice(&sum);
    assert_eq!(cut(&frame, &case.header())[0][40..42], [0xff, 0xff]);
}

#[test]
fn a_routing_header_moves_the_destination() {
    let mut frame = Case { v6: true, udp: true, ..Case::PLAIN }.frame();
    frame[20] = 43;
    let mut routing = vec![17, 2, 4, 1, 0, 0, 0, 0];
    routing.extend([9; 16]);
    frame.splice(54..54, routing);
    let len = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&len.to_be_bytes());
    let case = Case { v6: true, udp: true, ..Case::PLAIN };
    let header = NetHeader { csum_start: (54 + 24).into(), ..case.header() };
    for segment in cut(&frame, &header) {
        assert_eq!(unsettled(pseudo_v6([0xfe; 16], [9; 16], 17), &segment[78..]), 0);
    }
    // Of a kind without a final destination.
    frame[56] = 0;
    assert_eq!(Segments::new(&frame, &header).unwrap_err(), SegmentError::Route);
    // Within the field's range, or it would be a jumbogram.
    frame[56] = 4;
    frame[18..20].fill(0);
    assert_eq!(Segments::new(&frame, &header).unwrap_err(), SegmentError::Jumbogram);
}

#[test]
fn refusals() {
    let frame = Case::PLAIN.frame();
    let header = Case::PLAIN.header();
    assert_eq!(Segments::new(&frame, &NetHeader::default()).unwrap_err(), SegmentError::NotAsked);
    let sum_only = NetHeader { gso_type: 0, ..header };
    assert_eq!(Segments::new(&frame, &sum_only).unwrap_err(), SegmentError::NotAsked);
    assert!(matches!(Segments::new(&frame[..60], &header), Err(SegmentError::Header(_))));
    assert!(matches!(Segments::new(&[], &header), Err(SegmentError::Header(_))));

    let mut long = Case { v6: true, udp: true, ..Case::PLAIN }.frame();
    long[20] = 60;
    let mut options = vec![17, 24];
    options.resize(200, 0);
    long.splice(54..54, options);
    let len = (long.len() - 54) as u16;
    long[18..20].copy_from_slice(&len.to_be_bytes());
    let header = NetHeader {
        csum_start: 254.into(),
        ..Case { v6: true, udp: true, ..Case::PLAIN }.header()
    };
    assert_eq!(Segments::new(&long, &header).unwrap_err(), SegmentError::HeadersTooLong(262));
}

/// A packet within UDP is only payload: the outer checksum is made, and it stays as it is.
#[test]
fn a_packet_within_a_packet_is_left_alone() {
    let inner = Case { payload_len: 100, ..Case::PLAIN }.frame();
    let mut outer = Vec::new();
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &inner].concat();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 1, 0, 1], [10, 1, 0, 2], 64);
    builder.udp(50_000, 4789).write(&mut outer, &vxlan).unwrap();
    let finished = outer.clone();

    let own =
        NetHeader { gso_type: 0, gso_size: 0.into(), ..Case { udp: true, ..Case::PLAIN }.header() };
    let pseudo = pseudo_v4([10, 1, 0, 1], [10, 1, 0, 2], 17).word((outer.len() - 34) as u16);
    outer[40..42].copy_from_slice(&pseudo.folded().to_be_bytes());
    let own = own.validate(&outer, outer.len(), OffloadSet::CSUM).unwrap();
    crate::virtio_net::complete_checksum(&mut outer, &own).unwrap();
    assert_eq!(outer, finished);

    // The inner frame's segmentation is not that of the outer one.
    let inner_gso = NetHeader { csum_start: (50 + 34).into(), ..Case::PLAIN.header() };
    assert!(matches!(Segments::new(&outer, &inner_gso), Err(SegmentError::Header(_))));
    // Taken out of the outer one, it can be cut.
    let bare = inner_gso.moved_by(-50).unwrap();
    assert_eq!(cut(&outer[50..], &bare).len(), 1);
}

fn case() -> impl Strategy<Value = Case> {
    let kind = (any::<bool>(), any::<bool>(), 0usize..=2, 0usize..=10, 0usize..20);
    let flags = any::<u8>().prop_map(|flags| flags & 0b1001_1001);
    let lengths = (1u16..9000, prop_oneof![0usize..300, 0usize..65_000]);
    (kind, flags, any::<u32>(), lengths).prop_map(
        |((v6, udp, tags, options, padding), flags, seq, (size, payload_len))| Case {
            v6,
            udp,
            tags,
            options: options * 4,
            flags,
            seq,
            // No more than the allowed number of segments.
            size: size.max(payload_len.div_ceil(512) as u16),
            payload_len,
            padding,
        },
    )
}

proptest! {
    #[test]
    fn every_segment_is_right(case in case()) {
        case.check();
    }

    /// The charge before a frame is cut equals the segments that come out of it.
    #[test]
    fn segments_are_counted_before_they_are_cut(case in case()) {
        let frame = case.frame();
        let frame = &frame[..frame.len() - case.padding];
        let valid = case.header().validate(frame, frame.len(), OffloadSet::all()).unwrap();
        let (count, more) = valid.segments(frame.len() as u32);
        let segments = cut(frame, &case.header());
        prop_assert_eq!(count as usize, segments.len());
        let bytes: usize = segments.iter().map(Vec::len).sum();
        prop_assert_eq!(frame.len() + more as usize, bytes);
    }

    /// A frame without payload needs only its checksum: both ways agree.
    #[test]
    fn completing_and_cutting_agree(case in case()) {
        let mut frame = case.frame();
        let whole = NetHeader { gso_size: u16::MAX.into(), ..case.header() };
        prop_assume!(case.payload_len < 65_000 - 100);
        let upper = case.upper();
        let end = frame.len() - case.padding;
        let (protocol, offset) = if case.udp { (17, 6) } else { (6, 16) };
        let pseudo = match case.v6 {
            false => pseudo_v4([10, 0, 0, 1], [10, 0, 0, 2], protocol),
            true => pseudo_v6([0xfe; 16], [0x20; 16], protocol),
        };
        // As a guest leaves it.
        if case.udp {
            let len = ((end - upper) as u16).to_be_bytes();
            frame[upper + 4..upper + 6].copy_from_slice(&len);
        }
        let sum = pseudo.word((end - upper) as u16).folded().to_be_bytes();
        frame[upper + offset..upper + offset + 2].copy_from_slice(&sum);
        let segments = cut(&frame, &whole);
        prop_assert_eq!(segments.len(), 1);
        crate::virtio_net::complete_checksum(&mut frame, &whole).unwrap();
        prop_assert_eq!(&segments[0][upper..], &frame[upper..end]);
    }

    /// Arbitrary bytes, and right frames with some bytes changed, behind arbitrary headers.
    #[test]
    fn nothing_makes_it_panic(
        case in case(), changes in prop::collection::vec((0usize..160, any::<u8>()), 0..6),
        bytes: [u8; 12], of_case in 0u8..4, length: prop::sample::Index,
    ) {
        let mut frame = case.frame();
        for (at, byte) in changes {
            if let Some(to) = frame.get_mut(at) {
                *to = byte;
            }
        }
        if of_case & 1 != 0 {
            frame.truncate(length.index(frame.len() + 1));
        }
        let header = if of_case & 2 != 0 { case.header() } else { NetHeader::from_bytes(bytes) };
        let Ok(mut segments) = Segments::new(&frame, &header) else { return Ok(()) };
        let (count, mut sum) = (segments.len(), 0);
        prop_assert!(count <= crate::virtio_net::SEGMENTS_MAX);
        for _ in 0..count {
            let segment = segments.next().unwrap();
            prop_assert!(segment.headers.len() <= HEADERS_LEN_MAX);
            sum += segment.payload.len();
        }
        prop_assert!(segments.next().is_none() && sum <= frame.len());
    }

    #[test]
    fn arbitrary_bytes(frame in prop::collection::vec(any::<u8>(), 0..400), bytes: [u8; 12]) {
        if let Ok(mut segments) = Segments::new(&frame, &NetHeader::from_bytes(bytes)) {
            while segments.next().is_some() {}
        }
    }
}
