//! Frames as texts: each byte as two hexadecimal digits.

use super::super::fault::Fault;
use super::wrong;
use crate::hex::from_hex;

/// Frames as they were, each at least an Ethernet header.
///
/// # Errors
/// The first that is none.
pub(super) fn whole(frames: &[String]) -> Result<Vec<Vec<u8>>, Fault> {
    let frame = |(at, text): (usize, &String)| {
        from_hex(text).filter(|bytes| (14..=65_535).contains(&bytes.len())).ok_or_else(|| {
            let allowed = "write 14 to 65535 bytes as pairs of hexadecimal digits";
            wrong(&format!("frames[{at}]"), text.as_str(), "is no frame", allowed)
        })
    };
    frames.iter().enumerate().map(frame).collect()
}
