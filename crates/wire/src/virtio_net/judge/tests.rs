//! Headers judged by frames that etherparse builds; what a hostile guest might try.

use etherparse::{IpNumber, PacketBuilder};
use proptest::prelude::*;

use super::super::{GSO_TCPV6, GSO_UDP};
use super::*;

/// For experiments (RFC 3692).
const PROTOCOL_TEST: u8 = 253;

fn tcp_frame(payload_len: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10; 4], [11; 4], 64);
    let mut frame = Vec::new();
    builder.tcp(1, 2, 3, 4).write(&mut frame, &vec![5; payload_len]).unwrap();
    frame
}

/// A frame of any protocol over IPv6.
fn v6_frame(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64);
    let mut frame = Vec::new();
    builder.write(&mut frame, IpNumber(PROTOCOL_TEST), payload).unwrap();
    // Afterwards, as etherparse writes no extension headers from bytes.
    frame[20] = protocol;
    frame
}

/// As [`v6_frame`], over IPv4.
fn v4_frame(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10; 4], [11; 4], 64);
    let mut frame = Vec::new();
    builder.write(&mut frame, IpNumber(PROTOCOL_TEST), payload).unwrap();
    frame[23] = protocol;
    frame
}

fn tso(size: u16) -> Header {
    Header { gso_type: GSO_TCPV4, gso_size: size.into(), ..csum(34, 16) }
}

fn csum(start: u16, offset: u16) -> Header {
    Header {
        flags: FLAG_NEEDS_CSUM,
        csum_start: start.into(),
        csum_offset: offset.into(),
        ..Header::default()
    }
}

fn judge(header: Header, frame: &[u8]) -> Result<Header, HeaderError> {
    header.judge(frame, frame.len(), Accepts::all())
}

#[test]
fn only_what_is_left_to_do_is_handed_on() {
    let frame = tcp_frame(3000);
    let written = Header {
        flags: !super::super::FLAG_RSC_INFO,
        hdr_len: 0xffff.into(),
        num_buffers: 7.into(),
        ..tso(1448)
    };
    assert_eq!(judge(written, &frame), Ok(Header { hdr_len: 54.into(), ..tso(1448) }));
    // Without segmentation its fields are not handed on, nor those of the checksum without it.
    let sum_only = Header { gso_type: GSO_NONE, ..written };
    assert_eq!(judge(sum_only, &frame), Ok(csum(34, 16)));
    assert_eq!(judge(Header { flags: 2, ..sum_only }, &frame), Ok(Header::default()));
    // The head will do.
    assert_eq!(tso(9).judge(&frame[..54], 60, Accepts::all()).unwrap_err(), {
        HeaderError::Layers(crate::Truncated { header: "IP packet", need: 3054, have: 60 }.into())
    });
    assert!(tso(1448).judge(&frame[..54], frame.len(), Accepts::all()).is_ok());
    assert!(tso(1448).judge(&frame[..53], frame.len(), Accepts::all()).is_err());
}

#[test]
fn the_checksum_is_where_its_protocol_has_it() {
    let tcp = tcp_frame(100);
    for (start, offset) in [(34, 6), (34, 0), (33, 16), (35, 16), (0, 8), (14, 12), (60, 16)] {
        let refused = judge(csum(start, offset), &tcp);
        assert!(matches!(refused, Err(HeaderError::Place { .. })), "{start} + {offset}");
    }
    let inner = |start, offset| judge(csum(start, offset), &v6_frame(17, &[0; 60])).is_ok();
    assert!(inner(54, 6) && inner(62, 0) && inner(90, 16), "its own, or a packet's within");
    assert!(!inner(54, 16) && !inner(61, 6) && !inner(53, 7) && !inner(14, 46));
    // Protocol, and where the field may be, from the start of what IP carries.
    for (protocol, places) in [
        (1, &[(0, 2)][..]),
        (58, &[(0, 2)]),
        (33, &[(0, 6)]),
        (136, &[(0, 6)]),
        (132, &[]),
        (47, &[(0, 0), (0, 2), (0, 6), (0, 8), (2, 6), (8, 8)]),
    ] {
        for place in [(0, 0), (0, 2), (0, 6), (0, 8), (2, 6), (8, 8)] {
            let allowed = judge(csum(54 + place.0, place.1), &v6_frame(protocol, &[0; 40]));
            assert_eq!(allowed.is_ok(), places.contains(&place), "{protocol} {place:?}");
        }
    }
    let in_the_address = judge(csum(53, 2), &v6_frame(47, &[0; 40]));
    assert!(matches!(in_the_address, Err(HeaderError::Place { .. })));
    // In the frame, but in its padding.
    let mut padded = tcp_frame(0);
    padded[17] = 40 - 3;
    assert!(matches!(judge(csum(34, 16), &padded), Err(HeaderError::Place { .. })));
}

#[test]
fn frames_without_ip_and_pieces_have_nothing_left_to_do() {
    let mut arp = tcp_frame(100);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(judge(csum(34, 16), &arp), Err(HeaderError::Layers(LayersError::EtherType(0x0806))));
    assert_eq!(judge(Header::default(), &arp), Ok(Header::default()));
    let mut fragment = tcp_frame(100);
    fragment[20] = 0x20;
    assert_eq!(judge(csum(34, 16), &fragment), Err(HeaderError::Piece));
}

#[test]
fn segmentation_is_that_of_the_frame() {
    let frame = tcp_frame(3000);
    for gso_type in [GSO_TCPV6, GSO_UDP_L4] {
        let other = Header { gso_type, ..tso(1448) };
        assert!(matches!(judge(other, &frame), Err(HeaderError::GsoProtocol { .. })));
    }
    let fragments = Header { gso_type: GSO_UDP, ..tso(1448) };
    assert_eq!(judge(fragments, &frame), Err(HeaderError::GsoType(GSO_UDP)));
    let ecn = Header { gso_type: GSO_TCPV4 | GSO_ECN, ..tso(1448) };
    assert!(judge(ecn, &frame).is_ok());
    let datagrams = Header { gso_type: GSO_UDP_L4, gso_size: 9.into(), ..csum(54, 6) };
    assert_eq!(
        judge(datagrams, &v6_frame(17, &[0; 60])).map(|header| header.hdr_len.get()),
        Ok(62)
    );
    let within = Header { csum_start: 70.into(), ..datagrams };
    assert!(matches!(judge(within, &v6_frame(17, &[0; 60])), Err(HeaderError::Place { .. })));

    for flags in [tcp::FLAG_SYN, tcp::FLAG_RST | tcp::FLAG_ACK] {
        let mut frame = frame.clone();
        frame[47] = flags;
        assert_eq!(judge(tso(1448), &frame), Err(HeaderError::TcpFlags(flags)));
        assert!(judge(csum(34, 16), &frame).is_ok());
    }
    let mut offset = frame.clone();
    offset[46] = 0x40;
    assert!(matches!(judge(tso(1448), &offset), Err(HeaderError::Tcp(_))));
    let mut short = tcp_frame(10);
    short[46] = 0xf0;
    assert_eq!(judge(tso(1448), &short), Err(HeaderError::Headers { headers_len: 94, end: 64 }));
}

#[test]
fn the_size_of_segments_has_limits() {
    let frame = tcp_frame(51_200);
    assert!(judge(tso(100), &frame).is_ok());
    assert_eq!(judge(tso(99), &frame), Err(HeaderError::Segments { segments: 518, size: 99 }));
    assert_eq!(judge(tso(0), &frame), Err(HeaderError::GsoSize(GSO_TCPV4)));
    // An IP length of 0 stands for what a field cannot say.
    let mut long = frame.clone();
    long[16..18].fill(0);
    long.resize(54 + 65_500, 1);
    assert_eq!(judge(tso(65_499), &long), Err(HeaderError::SegmentLen(65_499)));
    assert!(judge(tso(65_495), &long).is_ok());
}

/// Where checksums are asked for: anywhere, and where some are.
fn places() -> impl Strategy<Value = (u16, u16)> {
    let likely = prop::sample::select(vec![34u16, 54, 62, 70]);
    let offsets = prop::sample::select(vec![0u16, 2, 6, 16]);
    prop_oneof![(0u16..120, 0u16..40), (likely, offsets)]
}

/// Those with a rule of their own, and extension headers.
fn protocols() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![1u8, 6, 17, 33, 58, 132, 136, 0, 43, 44, 51, 60])
}

proptest! {
    /// Whatever a guest writes in front of whatever frame: what is handed on never lets anybody
    /// write to what switches and guards decide by.
    #[test]
    fn nothing_in_front_of_the_transport_header_can_be_written(
        bytes: [u8; 12], flags in 0u8..4, place in places(),
        protocol in prop_oneof![any::<u8>(), protocols()],
        v6: bool, payload in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut header = Header::from_bytes(bytes);
        header.flags = flags;
        (header.csum_start, header.csum_offset) = (place.0.into(), place.1.into());
        let frame = if v6 { v6_frame(protocol, &payload) } else { v4_frame(protocol, &payload) };
        let Ok(judged) = judge(header, &frame) else { return Ok(()) };
        let mut after = frame.clone();
        crate::checksum::complete(&mut after, &judged).unwrap();
        let upper = Layers::of(&frame, frame.len()).map_or(frame.len(), |layers| layers.upper);
        prop_assert_eq!(&after[..upper], &frame[..upper]);
        // Ports, and the type of ICMP.
        if [1, 6, 17, 33, 58, 132, 136].contains(&protocol) && !judged.is_plain() {
            prop_assert_eq!(&after[upper..upper + 2], &frame[upper..upper + 2]);
        }
        prop_assert_eq!(judge(judged, &frame), Ok(judged), "what was judged is right");
    }
}
