//! Layouts against the specification's tables, checks against random headers.

use proptest::prelude::*;

use super::feature::*;
use super::*;

#[test]
fn header_layout() {
    let header = NetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: 0x0102.into(),
        gso_size: 0x0304.into(),
        csum_start: 0x0506.into(),
        csum_offset: 0x0708.into(),
        num_buffers: 0x090a.into(),
    };
    let bytes = [1, 1, 2, 1, 4, 3, 6, 5, 8, 7, 0x0a, 9];
    assert_eq!(header.to_bytes(), bytes);
    assert_eq!(NetHeader::from_bytes(bytes), header);
    let legacy = NetHeader::from_legacy_bytes(*bytes.first_chunk().unwrap());
    assert_eq!(legacy, NetHeader { num_buffers: 0.into(), ..header });
    assert_eq!(NetHeader::PLAIN.to_bytes(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert!(NetHeader::PLAIN.is_plain() && !header.is_plain());
}

#[test]
fn header_length_follows_features() {
    assert_eq!(header_len(0), 10);
    assert_eq!(header_len(1 << 15), 12);
    assert_eq!(header_len(1 << 32), 12);
    assert_eq!(header_len(!(1 << 15 | 1 << 32)), 10);
}

#[test]
fn config_layout() {
    assert_eq!(CONFIG_LEN, 24);
    let config = Config {
        mac: Mac([1, 2, 3, 4, 5, 6]),
        status: STATUS_LINK_UP.into(),
        max_virtqueue_pairs: 2.into(),
        mtu: 1500.into(),
        speed: 25_000.into(),
        duplex: DUPLEX_FULL,
        ..Config::default()
    };
    let bytes = config.to_bytes();
    assert_eq!(bytes[..8], [1, 2, 3, 4, 5, 6, 1, 0]);
    assert_eq!(bytes[8..18], [2, 0, 0xdc, 5, 0xa8, 0x61, 0, 0, 1, 0]);
    assert_eq!(bytes[18..], [0; 6]);
    assert_eq!(Config::from_bytes(bytes), config);
}

#[test]
fn features_are_in_order_and_named() {
    assert!(ALL.is_sorted_by(|a, b| a.0 < b.0), "each bit once, in order");
    assert_eq!(name(VIRTIO_NET_F_MRG_RXBUF), Some("VIRTIO_NET_F_MRG_RXBUF"));
    assert_eq!(name(4), None);
    let set = mask(&[VIRTIO_F_VERSION_1, VIRTIO_NET_F_MAC, 64]);
    assert_eq!(set, 1 << 32 | 1 << 5);
    assert!(has(set, VIRTIO_NET_F_MAC) && !has(set, VIRTIO_NET_F_MQ) && !has(set, 64));
}

#[test]
fn what_is_accepted_follows_features() {
    let all = u64::MAX;
    assert_eq!(OffloadSet::of_transmit(all), OffloadSet::all());
    assert_eq!(OffloadSet::of_receive(all), OffloadSet::all());
    assert_eq!(OffloadSet::of_transmit(0) | OffloadSet::of_receive(0), OffloadSet::empty());
    // Each direction has bits of its own.
    let host = mask(&[VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_USO]);
    assert_eq!(
        OffloadSet::of_transmit(host),
        OffloadSet::CSUM | OffloadSet::TSO4 | OffloadSet::USO
    );
    assert_eq!(OffloadSet::of_receive(host), OffloadSet::empty());
    let guest = mask(&[VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_ECN]);
    assert_eq!(
        OffloadSet::of_receive(guest),
        OffloadSet::CSUM | OffloadSet::TSO6 | OffloadSet::ECN
    );
    assert_eq!(OffloadSet::of_transmit(guest), OffloadSet::empty());
    // Nothing without the checksum, no ECN without TCP, no UDP with half of it.
    assert_eq!(OffloadSet::of_transmit(all & !1), OffloadSet::empty());
    assert_eq!(OffloadSet::of_receive(all & !2), OffloadSet::empty());
    let ecn = mask(&[VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_ECN]);
    assert_eq!(OffloadSet::of_transmit(ecn), OffloadSet::CSUM);
    for half in [VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6] {
        let without = OffloadSet::of_receive(all & !mask(&[half]));
        assert_eq!(without, OffloadSet::all().difference(OffloadSet::USO));
    }
}

#[test]
fn a_header_fits_who_takes_all_it_asks_for() {
    let plain = NetHeader { flags: FLAG_DATA_VALID, num_buffers: 3.into(), ..NetHeader::default() };
    assert!(plain.is_plain() && plain.fits(OffloadSet::empty()));
    for (flags, gso_type, asked) in [
        (FLAG_NEEDS_CSUM, GSO_NONE, OffloadSet::CSUM),
        (FLAG_NEEDS_CSUM, GSO_TCPV4, OffloadSet::CSUM | OffloadSet::TSO4),
        (
            FLAG_NEEDS_CSUM,
            GSO_TCPV6 | GSO_ECN,
            OffloadSet::CSUM | OffloadSet::TSO6 | OffloadSet::ECN,
        ),
        (FLAG_NEEDS_CSUM, GSO_UDP_L4, OffloadSet::CSUM | OffloadSet::USO),
        (0, GSO_TCPV6, OffloadSet::TSO6),
    ] {
        let header = NetHeader { flags, gso_type, ..NetHeader::default() };
        assert_eq!(header.offloads(), Ok(asked));
        assert!(header.fits(asked) && header.fits(OffloadSet::all()) && !header.is_plain());
        for missing in asked {
            assert!(!header.fits(OffloadSet::all().difference(missing)), "{missing:?}");
        }
    }
    let fragments = NetHeader { gso_type: GSO_UDP, ..NetHeader::default() };
    assert!(!fragments.fits(OffloadSet::all()) && !fragments.is_plain());
}

#[test]
fn a_header_moves_with_what_the_frame_carries() {
    let header = NetHeader {
        flags: FLAG_NEEDS_CSUM,
        csum_start: 34.into(),
        csum_offset: 16.into(),
        hdr_len: 54.into(),
        ..NetHeader::default()
    };
    let pushed = header.moved_by(4).unwrap();
    assert_eq!(pushed, NetHeader { csum_start: 38.into(), hdr_len: 58.into(), ..header });
    assert_eq!(pushed.moved_by(-4), Some(header));
    assert_eq!(header.moved_by(-35), None);
    assert_eq!(header.moved_by(65536 - 34), None);
    assert_eq!(header.moved_by(i32::MIN), None);
    assert_eq!(header.moved_by(i32::MAX), None);
    // In a header without offloads only the hint moves, and 0 is no hint.
    assert_eq!(NetHeader::default().moved_by(i32::MIN), Some(NetHeader::default()));
    assert_eq!(NetHeader::default().moved_by(4), Some(NetHeader::default()));
    let hint = NetHeader { hdr_len: 2.into(), ..NetHeader::default() };
    assert_eq!(hint.moved_by(-4), Some(NetHeader::default()));
    assert_eq!(hint.moved_by(i32::MAX), Some(NetHeader { hdr_len: u16::MAX.into(), ..hint }));
}

#[test]
fn checks_name_what_is_wrong() {
    let tso = NetHeader {
        flags: FLAG_NEEDS_CSUM,
        gso_type: GSO_TCPV6,
        gso_size: 1448.into(),
        csum_start: 54.into(),
        csum_offset: 16.into(),
        ..NetHeader::default()
    };
    assert_eq!(tso.check(72, OffloadSet::all()), Ok(()));
    assert_eq!(
        tso.check(71, OffloadSet::all()),
        Err(NetHeaderError::Checksum { start: 54, offset: 16, frame_len: 71 })
    );
    assert_eq!(
        NetHeader { gso_type: GSO_TCPV4 | GSO_ECN, ..tso }.check(72, OffloadSet::all()),
        Ok(())
    );
    for gso_type in [2, 6, GSO_ECN, GSO_UDP, GSO_UDP | GSO_ECN, GSO_UDP_L4 | GSO_ECN] {
        assert_eq!(
            NetHeader { gso_type, ..tso }.check(72, OffloadSet::all()),
            Err(NetHeaderError::GsoType(gso_type))
        );
    }
    assert_eq!(
        NetHeader { gso_size: 0.into(), ..tso }.check(72, OffloadSet::all()),
        Err(NetHeaderError::GsoSize(4))
    );
    assert_eq!(
        NetHeader { flags: 0, ..tso }.check(72, OffloadSet::all()),
        Err(NetHeaderError::GsoWithoutChecksum(4))
    );
    let csum_only = NetHeaderError::NotNegotiated {
        asked: OffloadSet::CSUM | OffloadSet::TSO6,
        accepts: OffloadSet::CSUM,
    };
    assert_eq!(tso.check(72, OffloadSet::CSUM), Err(csum_only));
    let coalesced = NetHeader { flags: FLAG_RSC_INFO, ..NetHeader::default() };
    assert_eq!(coalesced.check(72, OffloadSet::all()), Err(NetHeaderError::RscInfo));
    assert_eq!(NetHeader { flags: 0xf8, ..coalesced }.check(0, OffloadSet::empty()), Ok(()));
    assert_eq!(NetHeader::default().check(0, OffloadSet::empty()), Ok(()));
}

proptest! {
    #[test]
    fn what_passes_the_check_stays_inside_the_frame(bytes: [u8; 12], frame_len in 0usize..70_000) {
        let header = NetHeader::from_bytes(bytes);
        prop_assert_eq!(header.to_bytes(), bytes);
        if header.check(frame_len, OffloadSet::all()).is_ok() && header.flags & FLAG_NEEDS_CSUM != 0 {
            let at = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]))
                + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
            prop_assert!(at + 2 <= frame_len);
        }
    }
}
