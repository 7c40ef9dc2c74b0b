//! Probes against etherparse, and against damage.

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use super::*;
use crate::vlan::{Vid, push_tag};

fn flow() -> Probe {
    Probe {
        dst: Mac([2, 0, 0, 0, 0, 1]),
        src: Mac([2, 0, 0, 0, 0, 2]),
        dst_ip: Ipv4Addr::new(10, 0, 0, 1),
        src_ip: Ipv4Addr::new(10, 0, 0, 2),
        dst_port: 9,
        src_port: 1234,
    }
}

fn written(len: usize, mark: Mark) -> Vec<u8> {
    let mut frame = vec![0xee; len];
    flow().emit(mark, &mut frame).unwrap();
    frame
}

fn tagged(frame: &[u8]) -> Vec<u8> {
    let tag = Tag::new(Vid::new(7).unwrap()).to_bytes();
    let mut out = push_tag(frame.first_chunk().unwrap(), tag).to_vec();
    out.extend_from_slice(&frame[16..]);
    out
}

#[test]
fn lengths() {
    for len in [0, 59, FRAME_LEN_MAX + 1] {
        let refused = flow().emit(Mark::default(), &mut vec![0; len]);
        assert_eq!(refused, Err(ProbeError::Len(len)));
    }
    for len in [60, 61, 252, 1514, FRAME_LEN_MAX] {
        let mark = Mark { sequence: 3, stamp: len as u64 };
        assert_eq!(verify(&written(len, mark)), Ok(mark));
    }
    assert!(remark(&mut [0; 59], Mark::default()).is_err());
}

#[test]
fn foreign_frames_have_no_mark() {
    let mut frame = written(60, Mark::default());
    frame[42] ^= 1;
    assert_eq!(mark(&frame), None);
    assert_eq!(mark(&frame[..59]), None);
    assert_eq!(mark(&[]), None);
    assert_eq!(verify(&frame), Err(ProbeError::Checksum("UDP")));
}

#[test]
fn damage_is_named() {
    let frame = written(100, Mark { sequence: 1, stamp: 2 });
    let damaged = |at: usize| {
        let mut frame = frame.clone();
        frame[at] ^= 0x20;
        verify(&frame).unwrap_err()
    };
    assert_eq!(damaged(12), ProbeError::Foreign("the EtherType"));
    assert_eq!(damaged(22), ProbeError::Checksum("IPv4"));
    assert_eq!(damaged(50), ProbeError::Checksum("UDP"));
    let mut short = frame.clone();
    short[39] -= 1;
    assert_eq!(verify(&short), Err(ProbeError::Foreign("the UDP length")));
    let mut unsummed = frame.clone();
    unsummed[40..42].fill(0);
    assert_eq!(verify(&unsummed), Err(ProbeError::Checksum("UDP")));
    // Two words exchanged: the sum is the same.
    let mut exchanged = frame.clone();
    exchanged[60..64].rotate_left(2);
    assert_eq!(verify(&exchanged), Err(ProbeError::Filler(60)));
}

proptest! {
    #[test]
    fn emit_agrees_with_etherparse(len in 60usize..2000, sequence: u64, stamp: u64, ip: [[u8; 4]; 2], port: [u16; 2]) {
        let probe = Probe {
            src_ip: ip[0].into(), dst_ip: ip[1].into(), src_port: port[0], dst_port: port[1], ..flow()
        };
        let mut ours = vec![0xee; len];
        probe.emit(Mark { sequence, stamp }, &mut ours).unwrap();

        let mut payload = b"Sh".to_vec();
        payload.extend_from_slice(&sequence.to_be_bytes());
        payload.extend_from_slice(&stamp.to_be_bytes());
        payload.extend((60..len).map(|offset| offset as u8));
        let mut theirs = Vec::new();
        PacketBuilder::ethernet2(probe.src.0, probe.dst.0)
            .ipv4(ip[0], ip[1], 64)
            .udp(port[0], port[1])
            .write(&mut theirs, &payload)
            .unwrap();
        // etherparse sets "don't fragment"; its header checksum differs with it.
        theirs[20] = ours[20];
        theirs[24..26].copy_from_slice(&ours[24..26]);
        prop_assert_eq!(&ours, &theirs);
        prop_assert_eq!(verify(&ours), Ok(Mark { sequence, stamp }));
    }

    #[test]
    fn remark_equals_emit(len in 60usize..200, old: [u64; 2], new: [u64; 2]) {
        let old = Mark { sequence: old[0], stamp: old[1] };
        let new = Mark { sequence: new[0], stamp: new[1] };
        let mut frame = written(len, old);
        remark(&mut frame, new).unwrap();
        prop_assert_eq!(&frame, &written(len, new));
        prop_assert_eq!(mark(&frame), Some(new));
    }

    #[test]
    fn a_tag_does_not_hide_a_probe(len in 60usize..200, sequence: u64) {
        let sent = Mark { sequence, stamp: 0 };
        let frame = tagged(&written(len, sent));
        prop_assert_eq!(mark(&frame), Some(sent));
        prop_assert_eq!(verify(&frame), Ok(sent));
        let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
        prop_assert!(matches!(sliced.transport, Some(TransportSlice::Udp(_))));
    }

    #[test]
    fn every_changed_bit_behind_the_addresses_is_found(len in 60usize..120, at: usize, bit in 0..8) {
        let mut frame = written(len, Mark { sequence: 5, stamp: 6 });
        frame[12 + at % (len - 12)] ^= 1u8 << bit;
        prop_assert!(verify(&frame).is_err());
    }

    #[test]
    fn any_bytes_are_refused(mut bytes: Vec<u8>, tag: bool) {
        if tag && bytes.len() > 14 {
            bytes[12..14].copy_from_slice(&[0x81, 0]);
        }
        prop_assert!(verify(&bytes).is_err());
        prop_assert_eq!(mark(&bytes), None);
    }
}
