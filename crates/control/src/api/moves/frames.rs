//! Frames as texts: each byte as two hexadecimal digits.

use super::super::fault::Fault;
use super::wrong;

/// A frame as text.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Frames as they were, each at least an Ethernet header.
///
/// # Errors
/// The first that is none.
pub(super) fn whole(frames: &[String]) -> Result<Vec<Vec<u8>>, Fault> {
    let frame = |(at, text): (usize, &String)| {
        let bytes = text.as_bytes().chunks(2).map(|pair| {
            let text = std::str::from_utf8(pair).ok().filter(|text| text.len() == 2);
            text.filter(|text| !text.starts_with('+'))
                .and_then(|text| u8::from_str_radix(text, 16).ok())
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        bytes.filter(|bytes| (14..=65_535).contains(&bytes.len())).ok_or_else(|| {
            let allowed = "write 14 to 65535 bytes as pairs of hexadecimal digits";
            wrong(&format!("frames[{at}]"), text.as_str(), "is no frame", allowed)
        })
    };
    frames.iter().enumerate().map(frame).collect()
}
