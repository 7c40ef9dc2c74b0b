//! Completion of the checksum that a virtio-net header leaves to the device.

use crate::checksum::Sum;
use crate::{Layers, udp};

use super::{FLAG_NEEDS_CSUM, NetHeader, NetHeaderError};

/// Completes the checksum that `header` asks for, if any: over the frame from `csum_start` to the
/// end of the IP packet. The field holds the pseudo-header's sum already.
///
/// # Errors
/// The field lies outside the frame; the frame is unchanged. [`NetHeader::validate`] must have
/// checked that the field is a checksum.
pub fn complete_checksum(frame: &mut [u8], header: &NetHeader) -> Result<(), NetHeaderError> {
    if header.flags & FLAG_NEEDS_CSUM == 0 {
        return Ok(());
    }
    let frame_len = frame.len();
    let (start, offset) = (header.csum_start.get(), header.csum_offset.get());
    let outside = NetHeaderError::Checksum { start, offset, frame_len };
    // Bytes behind the packet are padding, and need not be zeros.
    let end = Layers::of(frame, frame_len).map_or(frame_len, |layers| layers.end);
    let data = frame.get_mut(usize::from(start)..end).ok_or(outside)?;
    let checksum = Sum::new().bytes(data).finish();
    let checksum = if offset == udp::CHECKSUM_OFFSET { udp::stored(checksum) } else { checksum };
    let field = data.get_mut(usize::from(offset)..).and_then(<[u8]>::first_chunk_mut);
    *field.ok_or(outside)? = checksum.to_be_bytes();
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sum_of_zero_is_ones_in_udp_only() {
        for (offset, expected) in [(6, 0xffff), (16, 0)] {
            // All ones except the field, which is zeros: their sum is ones, its complement 0.
            let mut data = [0xff; 20];
            data[usize::from(offset)..][..2].fill(0);
            let header = NetHeader {
                flags: FLAG_NEEDS_CSUM,
                csum_offset: offset.into(),
                ..NetHeader::default()
            };
            complete_checksum(&mut data, &header).unwrap();
            let field = data[usize::from(offset)..].first_chunk().copied().unwrap();
            assert_eq!(u16::from_be_bytes(field), expected);
        }
    }

    proptest! {
        #[test]
        fn completing_writes_two_bytes_or_none(
            frame in prop::collection::vec(any::<u8>(), 0..300), flags: u8, start in 0u16..320, offset in 0u16..40,
        ) {
            let header = NetHeader {
                flags, csum_start: start.into(), csum_offset: offset.into(), ..NetHeader::default()
            };
            let mut after = frame.clone();
            let at = usize::from(start) + usize::from(offset);
            match complete_checksum(&mut after, &header) {
                Ok(()) if flags & FLAG_NEEDS_CSUM != 0 => {
                    prop_assert!(at + 2 <= frame.len());
                    after[at..at + 2].copy_from_slice(&frame[at..at + 2]);
                }
                Ok(()) => (),
                Err(_) => prop_assert!(at + 2 > frame.len() || Layers::of(&frame, frame.len()).is_ok()),
            }
            prop_assert_eq!(after, frame);
        }
    }
}
