//! Offloads are passed on to receivers that accept them, and completed in software for all others.

use etherparse::{IpNumber, PacketBuilder, PacketHeaders, SlicedPacket, TransportHeader};

use super::guests::{Layout, Receiver, Sender, carry};
use crate::virtio_net::HEADER_LEN;
use crate::{NetHeader, OffloadSet, VlanEdit};

pub(super) const MSS: usize = 1000;
pub(super) const HEADERS: usize = 14 + 20 + 20;

/// A TCP segment, as a guest leaves it: with the pseudo-header's sum for a checksum.
pub(super) fn tcp(payload: usize) -> (Vec<u8>, Vec<u8>) {
    let payload: Vec<u8> = (0..payload).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(4000, 80, 100_000, 8192)
        .psh();
    builder.write(&mut frame, &payload).unwrap();
    let len = (20 + payload.len()) as u32;
    let words = [0x0a00, 1, 0x0a00, 2, 6, len & 0xffff, len >> 16];
    let sum: u32 = words.iter().sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[50..52].copy_from_slice(&(sum as u16).to_be_bytes());
    (frame, payload)
}

pub(super) fn left(gso_type: u8, gso_size: u16) -> NetHeader {
    let needs_csum = wire::virtio_net::FLAG_NEEDS_CSUM;
    NetHeader {
        flags: needs_csum,
        gso_type,
        gso_size: gso_size.into(),
        hdr_len: (HEADERS as u16).into(),
        csum_start: 34.into(),
        csum_offset: 16.into(),
        num_buffers: 0.into(),
    }
}

pub(super) const GSO: u8 = wire::virtio_net::GSO_TCPV4;

/// Payload of all frames, in order; verifies every checksum.
pub(super) fn payload_of(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for frame in frames {
        let packet = PacketHeaders::from_ethernet_slice(frame).unwrap();
        let ip = packet.net.unwrap().ipv4_ref().unwrap().0.clone();
        assert_eq!((ip.header_checksum, ip.protocol), (ip.calc_header_checksum(), IpNumber::TCP));
        let Some(TransportHeader::Tcp(tcp)) = packet.transport else { panic!("no TCP") };
        let payload = packet.payload.slice();
        assert_eq!(tcp.checksum, tcp.calc_checksum_ipv4(&ip, payload).unwrap());
        assert_eq!(tcp.sequence_number, 100_000 + all.len() as u32);
        all.extend_from_slice(payload);
    }
    all
}

fn frames(to: &mut Receiver) -> Vec<Vec<u8>> {
    to.frames().into_iter().map(|received| received.frame).collect()
}

#[test]
fn it_is_handed_on_to_who_takes_it() {
    let tag = [0x81, 0x00, 0x00, 0x05];
    for (edit, by) in [(VlanEdit::None, 0), (VlanEdit::Push(tag), 4)] {
        for layout in [Layout::chain(&[]), Layout::chain(&[12, 54, 1000])] {
            let mut from = Sender::leaving(OffloadSet::all(), 1514);
            let mut to = Receiver::taking(OffloadSet::all());
            let (frame, _) = tcp(30_000);
            from.send_with(left(GSO, MSS as u16), &frame, &layout);
            (0..20).for_each(|_| to.post(2048, &Layout::chain(&[])));
            let delivered = carry(&mut from, &mut to, &[0], edit);
            assert_eq!((delivered.frames, delivered.bytes), (1, frame.len() as u64 + by));
            let [received] = &to.frames()[..] else { panic!("one frame") };
            let header = NetHeader::from_bytes(received.header[..].try_into().unwrap());
            assert_eq!((header.gso_type, header.gso_size.get()), (GSO, MSS as u16));
            assert_eq!(u64::from(header.csum_start.get()), 34 + by);
            assert_eq!(u64::from(header.hdr_len.get()), HEADERS as u64 + by);
            assert_eq!(usize::from(header.num_buffers.get()), received.lens.len());
            assert_eq!(received.frame[received.frame.len() - 30_000..], frame[HEADERS..]);
        }
    }
}

#[test]
fn it_is_done_for_who_does_not() {
    for (gso, size, payload, count) in
        [(GSO, MSS as u16, 30_500, 31), (GSO, 536, 536, 1), (0, 0, 700, 1), (0, 0, 0, 1)]
    {
        for layout in [Layout::chain(&[]), Layout::chain(&[12, 20, 30, 100])] {
            let mut from = Sender::leaving(OffloadSet::all(), 1514);
            let mut to = Receiver::taking(OffloadSet::empty());
            let (frame, payload) = tcp(payload);
            from.send_with(left(gso, size), &frame, &layout);
            (0..40).for_each(|_| to.post(1600, &Layout::chain(&[])));
            let delivered = carry(&mut from, &mut to, &[0], VlanEdit::None);
            assert_eq!((delivered.frames, delivered.no_buffer), (count, 0));
            let frames = frames(&mut to);
            assert_eq!(frames.iter().map(Vec::len).sum::<usize>() as u64, delivered.bytes);
            assert_eq!(payload_of(&frames), payload);
        }
    }
}

#[test]
fn a_frame_to_cut_is_charged_as_it_is_on_a_wire() {
    for (size, payload, count) in [(MS_SMALL, 5120, 512), (MSS as u16, 30_500, 31), (1460, 1460, 1)]
    {
        let mut from = Sender::leaving(OffloadSet::all(), 1514);
        let (frame, _) = tcp(payload);
        from.send_with(left(GSO, size), &frame, &Layout::chain(&[]));
        from.send_with(left(0, 0), &tcp(100).0, &Layout::chain(&[]));
        let polled = from.ring.poll();
        let (whole, plain) = (frame.len() as u64, HEADERS as u64 + 100);
        assert_eq!((polled.frames, polled.bytes), (2, whole + plain));
        assert_eq!(polled.surplus_bytes, (count - 1) * HEADERS as u64);
        let on_wire = count * HEADERS as u64 + payload as u64;
        assert_eq!(polled.work(), (2, on_wire + plain));
        from.ring.complete();
    }
    // A dropped frame is charged with its own bytes only.
    let mut from = Sender::leaving(OffloadSet::all(), 1514);
    from.send_with(left(GSO, 1461), &tcp(3000).0, &Layout::chain(&[]));
    let polled = from.ring.poll();
    assert_eq!((polled.malformed(), polled.surplus_bytes), (1, 0));
    from.ring.complete();
}

/// Bytes of segments of which a frame has as many as it may.
const MS_SMALL: u16 = 10;

#[test]
fn segments_get_their_tag() {
    let mut from = Sender::leaving(OffloadSet::all(), 1514);
    let mut to = Receiver::taking(OffloadSet::CSUM);
    from.send_with(left(GSO, MSS as u16), &tcp(3000).0, &Layout::chain(&[]));
    (0..3).for_each(|_| to.post(1600, &Layout::chain(&[])));
    carry(&mut from, &mut to, &[0], VlanEdit::Push([0x81, 0x00, 0x00, 0x05]));
    let frames = frames(&mut to);
    assert_eq!(frames.len(), 3);
    for frame in frames {
        let packet = SlicedPacket::from_ethernet(&frame).unwrap();
        assert_eq!(packet.vlan_ids()[0].value(), 5);
    }
}

#[test]
fn segments_without_a_buffer_are_counted_each() {
    let mut from = Sender::leaving(OffloadSet::all(), 1514);
    let mut to = Receiver::taking(OffloadSet::empty());
    for _ in 0..2 {
        from.send_with(left(GSO, MSS as u16), &tcp(5000).0, &Layout::chain(&[]));
    }
    (0..3).for_each(|_| to.post(1600, &Layout::chain(&[])));
    let delivered = carry(&mut from, &mut to, &[0, 1], VlanEdit::None);
    // The segments of the second frame are not counted.
    assert_eq!((delivered.frames, delivered.no_buffer), (3, 3));
}

#[test]
fn what_makes_no_sense_is_dropped_and_counted() {
    let (frame, _) = tcp(3000);
    for (what, header, leaves) in [
        ("another protocol", left(wire::virtio_net::GSO_TCPV6, 1000), OffloadSet::all()),
        ("addresses", NetHeader { csum_start: 0.into(), ..left(GSO, 1000) }, OffloadSet::all()),
        ("crumbs", left(GSO, 1), OffloadSet::all()),
    ] {
        let mut from = Sender::leaving(leaves, 9000);
        from.send_with(header, &frame, &Layout::chain(&[]));
        let polled = from.ring.poll();
        assert_eq!((polled.bad_offload, polled.malformed()), (1, 1), "{what}");
        assert_eq!(from.ring.burst().malformed, 1, "{what}");
        from.ring.complete();
    }
}

/// Asserts that a frame with this header is dropped, and counted.
fn is_dropped(header: NetHeader, frame: &[u8]) {
    is_dropped_from(OffloadSet::all(), header, frame);
}

/// As [`is_dropped`], from a guest with these offloads.
fn is_dropped_from(offers: OffloadSet, header: NetHeader, frame: &[u8]) {
    let mut from = Sender::leaving(offers, 9000);
    from.send_with(header, frame, &Layout::chain(&[]));
    let polled = from.ring.poll();
    assert_eq!((polled.bad_offload, polled.malformed()), (1, 1), "{header:?}");
    assert_eq!(from.ring.burst().malformed, 1, "{header:?}");
    from.ring.complete();
}

/// CVE-2024-11614 (DPDK): the place of a checksum was not checked.
#[test]
fn checksum_start_beyond_frame() {
    let (frame, _) = tcp(3000);
    for start in [frame.len() as u16 - 17, frame.len() as u16, 4000, 0x8000, u16::MAX] {
        for gso in [GSO, wire::virtio_net::GSO_NONE] {
            is_dropped(NetHeader { csum_start: start.into(), ..left(gso, 1000) }, &frame);
        }
        is_dropped(NetHeader { csum_offset: start.into(), ..left(GSO, 1000) }, &frame);
    }
}

/// QEMU issue 3879: an offload was accepted that had not been negotiated.
#[test]
fn offload_without_an_offer() {
    let (frame, _) = tcp(3000);
    let checksum = left(wire::virtio_net::GSO_NONE, 0);
    for (header, offers) in [
        (left(GSO, 1000), OffloadSet::CSUM),
        (left(GSO, 1000), OffloadSet::all().difference(OffloadSet::TSO4)),
        (checksum, OffloadSet::all().difference(OffloadSet::CSUM)),
    ] {
        is_dropped_from(offers, header, &frame);
    }
    // A guest without any offload has no header that is read.
    let mut from = Sender::leaving(OffloadSet::empty(), 9000);
    from.send_with(left(GSO, 1000), &frame, &Layout::chain(&[]));
    assert_eq!(from.ring.poll().malformed(), 0);
    assert!(from.ring.burst().offloads.is_empty());
    from.ring.complete();
}

/// DPDK commit 7023f3e532: a length was divided by it.
#[test]
fn segment_size_zero() {
    let (frame, _) = tcp(3000);
    is_dropped(left(GSO, 0), &frame);
}

/// CVE-2026-100236 (DPDK): headers were copied that the frame did not have.
#[test]
fn segmentation_header_beyond_frame() {
    let (frame, _) = tcp(3000);
    // The frame ends within its headers, or its TCP header claims more than the packet has.
    for len in [15, 33, 34, 47, HEADERS - 1] {
        is_dropped(left(GSO, 1000), &frame[..len]);
    }
    let mut long = frame[..HEADERS].to_vec();
    long[16..18].copy_from_slice(&40u16.to_be_bytes()); // an IP packet without payload
    long[46] = 0xf0;
    is_dropped(left(GSO, 1000), &long);
    // The length in the virtio-net header is a hint, and corrected.
    let mut from = Sender::leaving(OffloadSet::all(), 1514);
    let mut to = Receiver::taking(OffloadSet::all());
    let hint = NetHeader { hdr_len: u16::MAX.into(), ..left(GSO, MSS as u16) };
    from.send_with(hint, &frame, &Layout::chain(&[]));
    to.post(4096, &Layout::chain(&[]));
    let delivered = carry(&mut from, &mut to, &[0], VlanEdit::None);
    assert_eq!(delivered.frames, 1);
    assert_eq!(to.frames()[0].header[..10], left(GSO, MSS as u16).to_bytes()[..10]);
}

#[test]
fn segments_longer_than_the_mtu_are_oversize() {
    let mut from = Sender::leaving(OffloadSet::all(), 1514);
    from.send_with(left(GSO, 1461), &tcp(3000).0, &Layout::chain(&[]));
    from.send_with(left(GSO, 1460), &tcp(3000).0, &Layout::chain(&[]));
    let polled = from.ring.poll();
    assert_eq!((polled.oversize, from.ring.burst().malformed), (1, 1));
    from.ring.complete();
}

/// DPDK commit 285e6b8b18: a virtio-net header was read again after its check.
#[test]
fn header_double_fetch() {
    let mut from = Sender::leaving(OffloadSet::all(), 1514);
    let mut to = Receiver::taking(OffloadSet::all());
    let (frame, _) = tcp(3000);
    let at = from.send_with(left(GSO, MSS as u16), &frame, &Layout::chain(&[]));
    (0..4).for_each(|_| to.post(2048, &Layout::chain(&[])));
    from.ring.poll();
    from.write(at, &[0xff; HEADERS]);
    from.write(at - u64::from(HEADER_LEN), &[0xff; HEADER_LEN as usize]);
    to.ring.deliver(&from.ring.burst(), &[0], VlanEdit::None);
    to.ring.publish();
    let [received] = &to.frames()[..] else { panic!("one frame") };
    assert_eq!(received.frame, frame);
    assert_eq!(received.header[..10], left(GSO, MSS as u16).to_bytes()[..10]);
}
