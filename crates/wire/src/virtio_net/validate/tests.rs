//! Headers validated against frames that etherparse builds; attempts of a hostile guest.

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
    // Changed afterwards, as etherparse writes no extension headers from bytes.
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

fn tso(size: u16) -> NetHeader {
    NetHeader { gso_type: GSO_TCPV4, gso_size: size.into(), ..csum(34, 16) }
}

fn csum(start: u16, offset: u16) -> NetHeader {
    NetHeader {
        flags: FLAG_NEEDS_CSUM,
        csum_start: start.into(),
        csum_offset: offset.into(),
        ..NetHeader::default()
    }
}

fn validate(header: NetHeader, frame: &[u8]) -> Result<NetHeader, NetHeaderError> {
    header.validate(frame, frame.len(), OffloadSet::all())
}

#[test]
fn only_what_is_left_to_do_is_handed_on() {
    let frame = tcp_frame(3000);
    let written = NetHeader {
        flags: !super::super::FLAG_RSC_INFO,
        hdr_len: 0xffff.into(),
        num_buffers: 7.into(),
        ..tso(1448)
    };
    assert_eq!(validate(written, &frame), Ok(NetHeader { hdr_len: 54.into(), ..tso(1448) }));
    // Without segmentation or checksum, the fields for it are not passed on.
    let sum_only = NetHeader { gso_type: GSO_NONE, ..written };
    assert_eq!(validate(sum_only, &frame), Ok(csum(34, 16)));
    assert_eq!(validate(NetHeader { flags: 2, ..sum_only }, &frame), Ok(NetHeader::default()));
    // The first bytes suffice.
    assert_eq!(tso(9).validate(&frame[..54], 60, OffloadSet::all()).unwrap_err(), {
        NetHeaderError::Layers(
            crate::Truncated { header: "IP packet", need: 3054, have: 60 }.into(),
        )
    });
    assert!(tso(1448).validate(&frame[..54], frame.len(), OffloadSet::all()).is_ok());
    assert!(tso(1448).validate(&frame[..53], frame.len(), OffloadSet::all()).is_err());
}

#[test]
fn the_checksum_is_where_its_protocol_has_it() {
    let tcp = tcp_frame(100);
    for (start, offset) in [(34, 6), (34, 0), (33, 16), (35, 16), (0, 8), (14, 12), (60, 16)] {
        let refused = validate(csum(start, offset), &tcp);
        assert!(matches!(refused, Err(NetHeaderError::Place { .. })), "{start} + {offset}");
    }
    let inner = |start, offset| validate(csum(start, offset), &v6_frame(17, &[0; 60])).is_ok();
    assert!(inner(54, 6) && inner(62, 0) && inner(90, 16), "its own, or a packet's within");
    assert!(!inner(54, 16) && !inner(61, 6) && !inner(53, 7) && !inner(14, 46));
    // Protocol, and the allowed offsets of the field, from the start of the IP payload.
    for (protocol, places) in [
        (1, &[(0, 2)][..]),
        (58, &[(0, 2)]),
        (33, &[(0, 6)]),
        (136, &[(0, 6)]),
        (132, &[]),
        (47, &[(0, 0), (0, 2), (0, 6), (0, 8), (2, 6), (8, 8)]),
    ] {
        for place in [(0, 0), (0, 2), (0, 6), (0, 8), (2, 6), (8, 8)] {
            let allowed = validate(csum(54 + place.0, place.1), &v6_frame(protocol, &[0; 40]));
            assert_eq!(allowed.is_ok(), places.contains(&place), "{protocol} {place:?}");
        }
    }
    let in_the_address = validate(csum(53, 2), &v6_frame(47, &[0; 40]));
    assert!(matches!(in_the_address, Err(NetHeaderError::Place { .. })));
    // In the frame, but in its padding.
    let mut padded = tcp_frame(0);
    padded[17] = 40 - 3;
    assert!(matches!(validate(csum(34, 16), &padded), Err(NetHeaderError::Place { .. })));
}

#[test]
fn frames_without_ip_and_pieces_have_nothing_left_to_do() {
    let mut arp = tcp_frame(100);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(
        validate(csum(34, 16), &arp),
        Err(NetHeaderError::Layers(LayersError::EtherType(0x0806)))
    );
    assert_eq!(validate(NetHeader::default(), &arp), Ok(NetHeader::default()));
    let mut fragment = tcp_frame(100);
    fragment[20] = 0x20;
    assert_eq!(validate(csum(34, 16), &fragment), Err(NetHeaderError::Piece));
}

#[test]
fn segmentation_is_that_of_the_frame() {
    let frame = tcp_frame(3000);
    for gso_type in [GSO_TCPV6, GSO_UDP_L4] {
        let other = NetHeader { gso_type, ..tso(1448) };
        assert!(matches!(validate(other, &frame), Err(NetHeaderError::GsoProtocol { .. })));
    }
    let fragments = NetHeader { gso_type: GSO_UDP, ..tso(1448) };
    assert_eq!(validate(fragments, &frame), Err(NetHeaderError::GsoType(GSO_UDP)));
    let ecn = NetHeader { gso_type: GSO_TCPV4 | GSO_ECN, ..tso(1448) };
    assert!(validate(ecn, &frame).is_ok());
    let datagrams = NetHeader { gso_type: GSO_UDP_L4, gso_size: 9.into(), ..csum(54, 6) };
    assert_eq!(
        validate(datagrams, &v6_frame(17, &[0; 60])).map(|header| header.hdr_len.get()),
        Ok(62)
    );
    let within = NetHeader { csum_start: 70.into(), ..datagrams };
    assert!(matches!(validate(within, &v6_frame(17, &[0; 60])), Err(NetHeaderError::Place { .. })));

    for flags in [tcp::FLAG_SYN, tcp::FLAG_RST | tcp::FLAG_ACK] {
        let mut frame = frame.clone();
        frame[47] = flags;
        assert_eq!(validate(tso(1448), &frame), Err(NetHeaderError::TcpFlags(flags)));
        assert!(validate(csum(34, 16), &frame).is_ok());
    }
    let mut offset = frame.clone();
    offset[46] = 0x40;
    assert!(matches!(validate(tso(1448), &offset), Err(NetHeaderError::Tcp(_))));
    let mut short = tcp_frame(10);
    short[46] = 0xf0;
    assert_eq!(
        validate(tso(1448), &short),
        Err(NetHeaderError::Headers { headers_len: 94, end: 64 })
    );
}

#[test]
fn the_size_of_segments_has_limits() {
    let frame = tcp_frame(51_200);
    assert!(validate(tso(100), &frame).is_ok());
    assert_eq!(
        validate(tso(99), &frame),
        Err(NetHeaderError::Segments { segments: 518, size: 99 })
    );
    assert_eq!(validate(tso(0), &frame), Err(NetHeaderError::GsoSize(GSO_TCPV4)));
    // An IP length of 0 means more than the field can hold.
    let mut long = frame.clone();
    long[16..18].fill(0);
    long.resize(54 + 65_500, 1);
    assert_eq!(validate(tso(65_499), &long), Err(NetHeaderError::SegmentLen(65_499)));
    assert!(validate(tso(65_495), &long).is_ok());
}

/// Checksum positions: arbitrary ones, and those of known protocols.
fn places() -> impl Strategy<Value = (u16, u16)> {
    let likely = prop::sample::select(vec![34u16, 54, 62, 70]);
    let offsets = prop::sample::select(vec![0u16, 2, 6, 16]);
    prop_oneof![(0u16..120, 0u16..40), (likely, offsets)]
}

/// Protocols with a rule of their own, and extension headers.
fn protocols() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![1u8, 6, 17, 33, 58, 132, 136, 0, 43, 44, 51, 60])
}

proptest! {
    /// For every header and every frame: a header that is passed on never allows writes to fields
    /// that switches and guards decide by.
    #[test]
    fn nothing_in_front_of_the_transport_header_can_be_written(
        bytes: [u8; 12], flags in 0u8..4, place in places(),
        protocol in prop_oneof![any::<u8>(), protocols()],
        v6: bool, payload in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut header = NetHeader::from_bytes(bytes);
        header.flags = flags;
        (header.csum_start, header.csum_offset) = (place.0.into(), place.1.into());
        let frame = if v6 { v6_frame(protocol, &payload) } else { v4_frame(protocol, &payload) };
        let Ok(valid) = validate(header, &frame) else { return Ok(()) };
        let mut after = frame.clone();
        crate::virtio_net::complete_checksum(&mut after, &valid).unwrap();
        let upper = Layers::of(&frame, frame.len()).map_or(frame.len(), |layers| layers.upper);
        prop_assert_eq!(&after[..upper], &frame[..upper]);
        // Ports, and the type of ICMP.
        if [1, 6, 17, 33, 58, 132, 136].contains(&protocol) && !valid.is_plain() {
            prop_assert_eq!(&after[upper..upper + 2], &frame[upper..upper + 2]);
        }
        prop_assert_eq!(validate(valid, &frame), Ok(valid), "a validated header is valid");
    }
}
