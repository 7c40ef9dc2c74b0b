//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! Model: [`Sum`] gathers 16-bit words in a wide accumulator and folds once. Limits: only the last
//! piece added may have an odd length, as the next would start in the middle of a word.
//! Cannot panic, and cannot overflow below 2^48 words.

/// A ones'-complement sum in the making.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// An empty sum.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds one word.
    #[must_use]
    pub const fn word(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds bytes; an odd last one counts as the high half of a word.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<2>();
        let sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
        let last = rest.first().map_or(0, |byte| u64::from(*byte) << 8);
        Self(self.0 + sum + last)
    }

    /// The sum folded to 16 bits and complemented: what a checksum field holds.
    ///
    /// Over data whose field is already filled in, 0 means that it is right.
    #[must_use]
    pub const fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

/// The checksum after `old` bytes of the data were replaced by `new`, of the same even length and
/// at an even offset (RFC 1624, equation 3).
#[must_use]
pub fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let removed = Sum::new().bytes(old).finish();
    Sum::new().word(!checksum).word(removed).bytes(new).finish()
}

#[cfg(test)]
mod tests {
    use etherparse::checksum::u32_16bit_word as theirs;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn example_of_rfc_1071() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::new().bytes(&data).finish(), !0xddf2);
        assert_eq!(Sum::new().finish(), 0xffff);
    }

    proptest! {
        #[test]
        fn agrees_with_etherparse(data: Vec<u8>) {
            let expected = theirs::ones_complement(theirs::add_slice(0, &data)).to_be();
            prop_assert_eq!(Sum::new().bytes(&data).finish(), expected);
        }

        #[test]
        fn update_equals_a_new_sum(mut data in prop::collection::vec(1u8.., 8..64), new: [u8; 4]) {
            let before = Sum::new().bytes(&data).finish();
            let old: [u8; 4] = data[2..6].try_into().unwrap();
            data[2..6].copy_from_slice(&new);
            prop_assert_eq!(update(before, &old, &new), Sum::new().bytes(&data).finish());
        }
    }
}
