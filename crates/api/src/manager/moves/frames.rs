//! Frames as text: two hexadecimal digits a byte.

use super::wrong;
use crate::error::ApiError;
use crate::hex::from_hex;

/// Decodes frames, each at least an Ethernet header.
///
/// # Errors
/// The first invalid frame.
pub(super) fn whole(frames: &[String]) -> Result<Vec<Vec<u8>>, ApiError> {
    let frame = |(at, text): (usize, &String)| {
        from_hex(text).filter(|bytes| (14..=65_535).contains(&bytes.len())).ok_or_else(|| {
            let allowed = "write 14 to 65535 bytes as pairs of hexadecimal digits";
            wrong(&format!("frames[{at}]"), text.as_str(), "is not a frame", allowed)
        })
    };
    frames.iter().enumerate().map(frame).collect()
}
