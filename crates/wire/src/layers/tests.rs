//! Layers against frames that etherparse builds, and against arbitrary bytes.

use etherparse::PacketBuilder;
use proptest::prelude::*;

use super::*;

/// A UDP frame with `tags` tags, over IPv4 or IPv6.
fn frame(tags: usize, version: IpVersion, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let mut frame = Vec::new();
    let write = |step: etherparse::PacketBuilderStep<etherparse::IpHeaders>,
                 frame: &mut Vec<u8>| {
        step.udp(7, 9).write(frame, payload).unwrap();
    };
    let step = match version {
        IpVersion::V4 => builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64),
        IpVersion::V6 => builder.ipv6([1; 16], [2; 16], 64),
    };
    write(step, &mut frame);
    for tag in 0..tags {
        let tpid = if tag == 0 { [0x81, 0x00] } else { [0x88, 0xa8] };
        frame.splice(12..12, [tpid[0], tpid[1], 0, 5]);
    }
    frame
}

#[test]
fn layers_lie_behind_the_tags() {
    for (version, header_len) in [(IpVersion::V4, 20), (IpVersion::V6, 40)] {
        for tags in 0..=2 {
            let mut frame = frame(tags, version, b"abc");
            let end = frame.len();
            frame.extend([0xee; 9]);
            let layers = Layers::of(&frame, frame.len()).unwrap();
            let network = 14 + 4 * tags;
            let upper = network + header_len;
            let expected = Layers { version, network, upper, end, protocol: 17, is_whole: true };
            assert_eq!(layers, expected);
            assert_eq!(Layers::of(&frame[..upper], frame.len()), Ok(expected), "the head will do");
            for cut in 0..upper {
                assert!(Layers::of(&frame[..cut], frame.len()).is_err());
            }
            assert!(Layers::of(&frame, end - 1).is_err());
        }
        let three = Layers::of(&frame(3, version, b""), 99);
        assert_eq!(three, Err(LayersError::EtherType(0x8100)));
    }
}

#[test]
fn a_length_of_0_goes_to_the_end() {
    for (version, field) in [(IpVersion::V4, 16..18), (IpVersion::V6, 18..20)] {
        let mut frame = frame(0, version, b"abc");
        frame[field].fill(0);
        assert_eq!(Layers::of(&frame, 70_000).unwrap().end, 70_000);
    }
}

#[test]
fn a_packet_holds_its_extension_headers() {
    let mut frame = frame(0, IpVersion::V6, &[0; 8]);
    frame[20] = 60;
    frame[54..62].copy_from_slice(&[17, 0, 0, 0, 0, 0, 0, 0]);
    frame[19] = 8;
    assert_eq!(Layers::of(&frame, frame.len()).unwrap().end, 62);
    frame[19] = 7;
    let cut = Truncated { header: "IP length", need: 62, have: 61 };
    assert_eq!(Layers::of(&frame, frame.len()), Err(cut.into()));
}

#[test]
fn fragments_and_signed_packets_are_not_whole() {
    for (at, byte) in [(20, 0x20), (20, 0x01), (21, 0x01)] {
        let mut frame = frame(0, IpVersion::V4, b"abc");
        frame[at] = byte;
        assert!(!Layers::of(&frame, frame.len()).unwrap().is_whole);
    }
    let mut unfragmentable = frame(0, IpVersion::V4, b"abc");
    unfragmentable[20] = 0x40;
    assert!(Layers::of(&unfragmentable, 99).unwrap().is_whole);
    for next in [44, 51] {
        let mut frame = frame(0, IpVersion::V6, &[0; 8]);
        frame[20] = next;
        // The UDP header is then read as an extension header, of 8 bytes or of 12.
        frame[54..62].copy_from_slice(&[17, 1, 0, 0, 0, 0, 0, 0]);
        assert!(!Layers::of(&frame, frame.len()).unwrap().is_whole);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200), ethertype in 0usize..4, more in 0usize..100,
    ) {
        let types = [[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00], [0x88, 0xa8]];
        if let Some(field) = bytes.get_mut(12..14) {
            field.copy_from_slice(&types[ethertype]);
        }
        if let Some(version) = bytes.get_mut(14) {
            *version = if ethertype == 0 { 0x45 } else { 0x60 };
        }
        let frame_len = bytes.len() + more;
        if let Ok(layers) = Layers::of(&bytes, frame_len) {
            prop_assert!(layers.network <= layers.upper && layers.upper <= layers.end);
            prop_assert!(layers.end <= frame_len && layers.upper <= bytes.len());
        }
    }
}
