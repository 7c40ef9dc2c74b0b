//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! Model: [`Sum`] gathers words in a wide accumulator and folds once. Bytes are added as they lie
//! in memory, four at a time and sixteen sums side by side, which compilers make vector code of;
//! RFC 1071, section 2(B), lets the order of bytes be put right at the end. [`complete`] makes the
//! checksum that a virtio-net header leaves to do.
//!
//! Limits: only the last piece added may have an odd length, as the next would start in the middle
//! of a word. Cannot panic, and cannot overflow below 2^32 pieces of 2^32 words.

use crate::virtio_net::{FLAG_NEEDS_CSUM, Header, HeaderError};
use crate::{Layers, udp};

/// Sums side by side.
const LANES: usize = 16;
/// Bytes that all of them take at once.
const BLOCK: usize = LANES * 4;

/// A ones'-complement sum in the making.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// An empty sum.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds one word.
    #[inline]
    #[must_use]
    pub const fn word(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds bytes; an odd last one counts as the high half of a word.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        let mut sum = if blocks.is_empty() { 0 } else { sum_blocks(blocks) };
        let (words, rest) = rest.as_chunks::<4>();
        for word in words {
            sum += u64::from(u32::from_ne_bytes(*word));
        }
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        sum += u64::from(u32::from_ne_bytes(last));
        Self(self.0 + u64::from(u16::from_be(fold(sum))))
    }

    /// The sum folded to 16 bits: what the field of a checksum holds that someone else completes.
    #[inline]
    #[must_use]
    pub const fn folded(self) -> u16 {
        fold(self.0)
    }

    /// The sum folded to 16 bits and complemented: what a checksum field holds.
    ///
    /// Over data whose field is already filled in, 0 means that it is right.
    #[inline]
    #[must_use]
    pub const fn finish(self) -> u16 {
        !fold(self.0)
    }
}

/// The sum of whole blocks, in the machine's order of bytes.
fn sum_blocks(blocks: &[[u8; BLOCK]]) -> u64 {
    let mut lanes = [0u64; LANES];
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    lanes.iter().sum()
}

/// Adds the carries back in until 16 bits are left.
#[inline]
const fn fold(sum: u64) -> u16 {
    // At most 0x1_ffff_fffe, then 0x1_fffe, so that the last step leaves no carry.
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The sum over an IPv4 pseudo-header (RFC 768, RFC 9293 section 3.1) but for its length, which is
/// added with [`Sum::word`].
#[inline]
pub fn pseudo_v4(src: [u8; 4], dst: [u8; 4], protocol: u8) -> Sum {
    Sum::new().bytes(&src).bytes(&dst).word(u16::from(protocol))
}

/// The sum over an IPv6 pseudo-header (RFC 8200, section 8.1) but for its length, which is added
/// with [`Sum::word`]. `dst` is where the packet ends up, behind any routing header.
#[inline]
pub fn pseudo_v6(src: [u8; 16], dst: [u8; 16], protocol: u8) -> Sum {
    Sum::new().bytes(&src).bytes(&dst).word(u16::from(protocol))
}

/// Makes the checksum that `header` leaves to do, if any: over the frame from `csum_start` to the
/// end of the IP packet, with the pseudo-header's sum that the field holds already.
///
/// # Errors
/// The field lies outside the frame; the frame is unchanged. That the field is a checksum at all is
/// for [`Header::judge`] to say, before.
pub fn complete(frame: &mut [u8], header: &Header) -> Result<(), HeaderError> {
    if header.flags & FLAG_NEEDS_CSUM == 0 {
        return Ok(());
    }
    let frame_len = frame.len();
    let (start, offset) = (header.csum_start.get(), header.csum_offset.get());
    let outside = HeaderError::Checksum { start, offset, frame_len };
    // What follows the packet pads the frame, and need not be zeros.
    let end = Layers::of(frame, frame_len).map_or(frame_len, |layers| layers.end);
    let data = frame.get_mut(usize::from(start)..end).ok_or(outside)?;
    let checksum = Sum::new().bytes(data).finish();
    let checksum = if offset == udp::CHECKSUM_OFFSET { udp::stored(checksum) } else { checksum };
    let field = data.get_mut(usize::from(offset)..).and_then(<[u8]>::first_chunk_mut);
    *field.ok_or(outside)? = checksum.to_be_bytes();
    Ok(())
}

/// The checksum after `old` bytes of the data were replaced by `new`, of the same even length and
/// at an even offset (RFC 1624, equation 3).
#[must_use]
pub fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let removed = Sum::new().bytes(old).finish();
    Sum::new().word(!checksum).word(removed).bytes(new).finish()
}

#[cfg(test)]
mod tests;
