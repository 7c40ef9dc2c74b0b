//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! Model: [`Sum`] gathers words in a wide accumulator and folds once. Bytes are added in memory
//! order, four at a time in sixteen parallel sums, which compilers vectorize; RFC 1071, section
//! 2(B), allows the byte order to be corrected at the end.
//!
//! Limits: only the last piece added may have an odd length, as the next would start in the middle
//! of a word. Cannot panic, and cannot overflow below 2^32 pieces of 2^32 words.

/// Parallel sums.
const LANES: usize = 16;
/// Bytes that all of them take at once.
const BLOCK: usize = LANES * 4;

/// A partial ones'-complement sum.
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

    /// The sum folded to 16 bits: contents of a checksum field that another party completes.
    #[inline]
    #[must_use]
    pub const fn folded(self) -> u16 {
        fold(self.0)
    }

    /// The sum folded to 16 bits and complemented: the contents of a checksum field.
    ///
    /// Over data whose field is already filled in, 0 means a correct checksum.
    #[inline]
    #[must_use]
    pub const fn finish(self) -> u16 {
        !fold(self.0)
    }
}

/// The sum of whole blocks, in native byte order.
fn sum_blocks(blocks: &[[u8; BLOCK]]) -> u64 {
    let mut lanes = [0u64; LANES];
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    lanes.iter().sum()
}

/// Adds carries until 16 bits are left.
#[inline]
const fn fold(sum: u64) -> u16 {
    // At most 0x1_ffff_fffe, then 0x1_fffe, so that the last step leaves no carry.
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The sum over an IPv4 pseudo-header (RFC 768, RFC 9293 section 3.1) without its length; add that
/// with [`Sum::word`].
#[inline]
pub fn pseudo_v4(src: [u8; 4], dst: [u8; 4], protocol: u8) -> Sum {
    Sum::new().bytes(&src).bytes(&dst).word(u16::from(protocol))
}

/// The sum over an IPv6 pseudo-header (RFC 8200, section 8.1) without its length; add that with
/// [`Sum::word`]. `dst` is the final destination, behind any routing header.
#[inline]
pub fn pseudo_v6(src: [u8; 16], dst: [u8; 16], protocol: u8) -> Sum {
    Sum::new().bytes(&src).bytes(&dst).word(u16::from(protocol))
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
