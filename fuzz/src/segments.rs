//! Frames with offloads: validation, segmentation and checksums against a plain model, which
//! rewrites each header field by its definition and sums words one by one.

use wire::segment::Segments;
use wire::virtio_net::{NetHeader, OffloadSet, SEGMENTS_MAX, complete_checksum};
use wire::{HeaderSnapshot, IpVersion, Layers};

use crate::Reached;
use crate::input::Input;

const NEEDS_CSUM: u8 = 1;
/// TCP over IPv4 and IPv6, UDP, and their mark for ECN.
const GSO_TYPES: [u8; 5] = [1, 4, 5, 0x81, 0x84];

/// `data` is a virtio-net header and a frame, both nearly right.
pub(crate) fn segments(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let (frame, header) = frame(&mut input);
    let mut reached = Reached::default();
    let snapshot = HeaderSnapshot::of_frame(&frame);
    assert_eq!(snapshot.bytes(), &frame[..frame.len().min(HeaderSnapshot::LEN)]);
    let layers = Layers::of(&frame, frame.len());
    let whole = header.validate(&frame, frame.len(), OffloadSet::all());
    // Without all headers in the snapshot a frame is refused, and never judged otherwise.
    if let Ok(valid) = header.validate(snapshot.bytes(), frame.len(), OffloadSet::all()) {
        assert_eq!(whole, Ok(valid));
    }
    let Ok(valid) = whole else {
        assert!(Segments::new(&frame, &header).is_err());
        reached.add("refused", 1);
        return reached;
    };
    if valid.is_plain() {
        return reached;
    }
    let layers = layers.expect("an offload is of IP");
    if valid.gso_size.get() > 0 {
        // Headers of more than its limit are not cut.
        if let Ok(mut segments) = Segments::new(&frame, &header) {
            check_segments(&frame, &valid, layers, &mut segments);
            reached.add("segmented", 1);
        }
    } else {
        check_checksum(&frame, &valid, layers);
        reached.add("summed", 1);
    }
    reached
}

/// A frame of the kinds that have offloads, then some bytes changed.
fn frame(input: &mut Input<'_>) -> (Vec<u8>, NetHeader) {
    let kind = input.byte();
    let (is_v6, is_udp, tags) = (kind & 1 != 0, kind & 2 != 0, usize::from(kind >> 2 & 3) % 3);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for _ in 0..tags {
        frame.extend([0x81, 0, 0, 5]);
    }
    let network = frame.len() + 2;
    let protocol = if is_udp { 17 } else { 6 };
    let options = usize::from(input.byte() % 11) * 4;
    let payload = input.u16() as usize % 3000;
    let transport_bytes = if is_udp { 8 } else { 20 + options };
    let ip_payload = transport_bytes + payload;
    if is_v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((ip_payload as u16).to_be_bytes());
        frame.extend([protocol, 64]);
        frame.extend([0xfe; 32]);
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + ip_payload as u16).to_be_bytes());
        frame.extend(input.u16().to_be_bytes());
        frame.extend([0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    let upper = frame.len();
    if is_udp {
        frame.extend([4, 0, 8, 0]);
        frame.extend((ip_payload as u16).to_be_bytes());
        frame.extend([0, 0]);
    } else {
        frame.extend([4, 0, 8, 0]);
        frame.extend(input.u32().to_be_bytes());
        frame.extend([0, 0, 0, 0, (5 + options as u8 / 4) << 4, input.byte() & 0xf9, 1, 0, 0, 0]);
        frame.extend((input.byte() as u16).to_be_bytes());
        frame.extend(vec![1; options]);
    }
    frame.extend((0..payload).map(|i| (i * 7) as u8));
    frame.extend(vec![0xee; usize::from(input.byte() % 20)]); // padding
    let offset = if is_udp { 6 } else { 16 };
    let mut header = NetHeader {
        flags: NEEDS_CSUM,
        gso_type: if is_udp { 5 } else { 1 + 3 * u8::from(is_v6) },
        gso_size: (1 + input.u16() % 1500).into(),
        csum_start: (upper as u16).into(),
        csum_offset: offset.into(),
        ..NetHeader::default()
    };
    for _ in 0..input.byte() % 4 {
        match input.byte() % 8 {
            0 => header.flags = input.byte(),
            1 => header.gso_type = input.pick(&GSO_TYPES),
            2 => header.gso_size = input.u16().into(),
            3 => header.csum_start = input.u16().into(),
            4 => header.csum_offset = input.u16().into(),
            5 => (header.gso_type, header.gso_size) = (0, 0.into()),
            6 => frame.truncate(usize::from(input.u16())),
            _ => {
                let at = network.saturating_sub(2) + usize::from(input.byte());
                if let Some(byte) = frame.get_mut(at) {
                    *byte = input.byte();
                }
            }
        }
    }
    (frame, header)
}

/// The ones' complement sum of 16-bit words, RFC 1071.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for word in part.chunks(2) {
            sum += u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low));
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    sum as u16
}

/// A checksum field over data whose field is zeros; UDP has no 0.
fn checksum(parts: &[&[u8]], is_udp: bool) -> [u8; 2] {
    match !sum(parts) {
        0 if is_udp => [0xff, 0xff],
        sum => sum.to_be_bytes(),
    }
}

/// One segment by the definition: the headers of the frame, with its own lengths and numbers.
fn model(frame: &[u8], valid: &NetHeader, layers: Layers, index: usize) -> Vec<u8> {
    let headers_len = usize::from(valid.hdr_len.get());
    let size = usize::from(valid.gso_size.get());
    let payload = &frame[headers_len..layers.end];
    let (begin, end) = (index * size, payload.len().min((index + 1) * size));
    let (is_first, is_last) = (index == 0, end == payload.len());
    let mut segment = frame[..headers_len].to_vec();
    segment.extend_from_slice(&payload[begin..end]);
    let (network, upper) = (layers.network, layers.upper);
    let ip_len = (segment.len() - network) as u16;
    if layers.version == IpVersion::V4 {
        segment[network + 2..network + 4].copy_from_slice(&ip_len.to_be_bytes());
        let id = u16::from_be_bytes([frame[network + 4], frame[network + 5]]);
        let id = id.wrapping_add(index as u16);
        segment[network + 4..network + 6].copy_from_slice(&id.to_be_bytes());
        segment[network + 10..network + 12].fill(0);
        let sum = checksum(&[&segment[network..upper]], false);
        segment[network + 10..network + 12].copy_from_slice(&sum);
    } else {
        segment[network + 4..network + 6].copy_from_slice(&(ip_len - 40).to_be_bytes());
    }
    let is_udp = layers.protocol == 17;
    let field = if is_udp {
        let len = (segment.len() - upper) as u16;
        segment[upper + 4..upper + 6].copy_from_slice(&len.to_be_bytes());
        upper + 6
    } else {
        let tcp = &mut segment[upper..];
        let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(begin as u32);
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        let urgent = u16::from_be_bytes([tcp[18], tcp[19]]);
        tcp[13] &= if is_last { 0xff } else { !9 }; // FIN, PSH
        tcp[13] &= if is_first { 0xff } else { !0x80 }; // CWR
        if tcp[13] & 0x20 != 0 && !is_first {
            // The urgent pointer counts from each segment's own number.
            let left = usize::from(urgent).saturating_sub(begin) as u16;
            tcp[18..20].copy_from_slice(&left.to_be_bytes());
            tcp[13] &= if left == 0 { !0x20 } else { 0xff };
        }
        upper + 16
    };
    segment[field..field + 2].fill(0);
    let addresses = match layers.version {
        IpVersion::V4 => network + 12..network + 20,
        IpVersion::V6 => network + 8..network + 40,
    };
    let len = ((segment.len() - upper) as u16).to_be_bytes();
    let protocol = [0, layers.protocol];
    let sum = checksum(&[&segment[addresses], &protocol, &len, &segment[upper..]], is_udp);
    segment[field..field + 2].copy_from_slice(&sum);
    segment
}

fn check_segments(frame: &[u8], valid: &NetHeader, layers: Layers, segments: &mut Segments<'_>) {
    // The last header of a source route is the destination; the model has no such list.
    let has_extensions = layers.version == IpVersion::V6 && layers.upper != layers.network + 40;
    let payload = layers.end - usize::from(valid.hdr_len.get());
    let count = payload.div_ceil(usize::from(valid.gso_size.get())).max(1);
    assert!(segments.len() == count && count <= SEGMENTS_MAX);
    for index in 0..count {
        let segment = segments.next().expect("as many as announced");
        let bytes = [segment.headers, segment.payload].concat();
        if !has_extensions {
            assert_eq!(bytes, model(frame, valid, layers, index), "segment {index} of {count}");
        }
    }
    assert!(segments.next().is_none());
}

fn check_checksum(frame: &[u8], valid: &NetHeader, layers: Layers) {
    let start = usize::from(valid.csum_start.get());
    let offset = usize::from(valid.csum_offset.get());
    let mut completed = frame.to_vec();
    complete_checksum(&mut completed, valid).expect("a valid header");
    let sum = checksum(&[&frame[start..layers.end]], offset == 6);
    let mut expected = frame.to_vec();
    expected[start + offset..start + offset + 2].copy_from_slice(&sum);
    assert_eq!(completed, expected);
}
