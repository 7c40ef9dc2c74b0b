//! MAC addresses (IEEE 802, 48 bits), as bytes and as hash keys.

use std::fmt;
use std::str::FromStr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A 48-bit MAC address, in the order of the wire.
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// `00:00:00:00:00:00`, which no adapter may have.
    pub const ZERO: Self = Self([0; 6]);
    /// The bits of a [`key`](Self::key) that are in use.
    pub const KEY_MASK: u64 = (1 << 48) - 1;

    /// Returns `true` for group addresses, broadcast included.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns `true` if the address is all ones.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        self.key() == Self::KEY_MASK
    }

    /// Returns `true` if the address is all zeros.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.key() == 0
    }

    /// The six bytes as a little-endian number, in the low 48 bits; the group bit is bit 0.
    ///
    /// One masked load from a frame gives this on little-endian machines; see
    /// [`FrameHeader::dst_key`](crate::FrameHeader::dst_key).
    #[inline]
    pub const fn key(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// The address of a key; bits 48 and up are ignored.
    #[inline]
    pub const fn from_key(key: u64) -> Self {
        let [a, b, c, d, e, f, _, _] = key.to_le_bytes();
        Self([a, b, c, d, e, f])
    }
}

impl From<[u8; 6]> for Mac {
    fn from(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Reasons that a text is not a MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MacParseError {
    /// The text has not six parts.
    #[error(
        "\"{text}\" is not a MAC address: {parts} parts between colons, expected six, \
         as in 02:00:00:00:00:01"
    )]
    Parts {
        /// The whole text.
        text: String,
        /// Number of parts between colons.
        parts: usize,
    },
    /// One part is not a byte.
    #[error(
        "\"{text}\" is not a MAC address: part {position} is \"{part}\", expected two \
         hexadecimal digits, as in 02:00:00:00:00:01"
    )]
    Byte {
        /// The whole text.
        text: String,
        /// Position of the part, from 1.
        position: usize,
        /// The part.
        part: String,
    },
}

impl FromStr for Mac {
    type Err = MacParseError;

    /// Reads `aa:bb:cc:dd:ee:ff`, in either case; other notations are rejected.
    fn from_str(text: &str) -> Result<Self, MacParseError> {
        let parts = text.split(':').count();
        if parts != 6 {
            return Err(MacParseError::Parts { text: text.into(), parts });
        }
        let mut mac = [0; 6];
        for (index, (part, byte)) in text.split(':').zip(&mut mac).enumerate() {
            // `from_str_radix` alone would also take a sign and a single digit.
            let digits = part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| digits).ok_or_else(|| {
                MacParseError::Byte { text: text.into(), position: index + 1, part: part.into() }
            })?;
        }
        Ok(Self(mac))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kinds() {
        let unicast = Mac([0x02, 0, 0, 0, 0, 1]);
        assert!(!unicast.is_multicast() && !unicast.is_broadcast() && !unicast.is_zero());
        let group = Mac([0x33, 0x33, 0, 0, 0, 1]);
        assert!(group.is_multicast() && !group.is_broadcast());
        assert!(Mac::BROADCAST.is_multicast() && Mac::BROADCAST.is_broadcast());
        assert!(Mac::ZERO.is_zero() && !Mac::ZERO.is_multicast());
    }

    #[test]
    fn key_is_little_endian() {
        assert_eq!(Mac([1, 2, 3, 4, 5, 6]).key(), 0x0605_0403_0201);
    }

    #[test]
    fn errors_name_the_text_and_the_remedy() {
        for (text, say) in [
            ("02:00:00:00:00", ": 5 parts"),
            ("", ": 1 parts"),
            ("02-00-00-00-00-01", ": 1 parts"),
            ("02:00:00:00:00:01:", ": 7 parts"),
            ("02:00:0g:00:00:01", "part 3 is \"0g\""),
            ("02:00:00:00:00:1", "part 6 is \"1\""),
            ("02:00:00:+1:00:01", "part 4 is \"+1\""),
            ("02:00:00::00:01", "part 4 is \"\""),
        ] {
            let error = text.parse::<Mac>().unwrap_err().to_string();
            assert!(error.contains(say) && error.contains("02:00:00:00:00:01"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn text_and_key_round_trip(bytes: [u8; 6]) {
            let mac = Mac(bytes);
            prop_assert_eq!(mac.to_string().parse::<Mac>().unwrap(), mac);
            prop_assert_eq!(mac.to_string().to_uppercase().parse::<Mac>().unwrap(), mac);
            prop_assert_eq!(Mac::from_key(mac.key()), mac);
            prop_assert_eq!(mac.key() & !Mac::KEY_MASK, 0);
            prop_assert_eq!(mac.key() & 1 == 1, mac.is_multicast());
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-fA-F:g+ ]{0,20}") {
            if let Ok(mac) = text.parse::<Mac>() {
                prop_assert_eq!(mac.to_string(), text.to_lowercase());
            }
        }
    }
}
