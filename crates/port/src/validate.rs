//! Validation of frames: their length, and the offloads requested for them.

use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net::OffloadSet;

use crate::burst::{NetHeader, Polled};

/// Shortest frame, bytes: two addresses and a type. Shorter ones are runts.
const FRAME_MIN: u32 = 14;
/// Shortest tagged frame, bytes: a type follows the tag.
pub(crate) const FRAME_MIN_TAGGED: u32 = 18;
/// Longest frame to be segmented, bytes: an IP packet of 65535 bytes, two addresses, two tags and a
/// type.
pub(crate) const FRAME_MAX: u32 = 65535 + OVERHEAD_MAX;

/// Reason for which a frame is dropped before it is classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Too short to be Ethernet.
    Runt,
    /// Longer than the port's MTU allows.
    Oversize,
    /// An invalid offload, or one that was not negotiated.
    Offload,
    /// The guest's device has disabled the ring.
    Disabled,
}

/// Limits of frames from a port.
#[derive(Clone, Copy, Debug)]
pub struct FrameRules {
    /// Longest frame, or segment of one, bytes.
    pub(crate) frame_bytes_max: u32,
    /// Offloads that may be requested.
    pub(crate) leaves: OffloadSet,
}

impl FrameRules {
    /// Allows frames up to the longest that Ethernet and IP can express, without offloads.
    pub const LARGEST: FrameRules =
        FrameRules { frame_bytes_max: FRAME_MAX, leaves: OffloadSet::empty() };

    /// Bytes of the longest frame that is not segmented; 0 for a disabled ring, which discards all
    /// frames.
    pub fn frame_bytes_max(&self) -> u32 {
        self.frame_bytes_max
    }

    /// Validates a frame of `len` bytes that begins with `header` and requests `offload`. Returns
    /// the offload to pass on, or the reason for which the frame must be dropped, and counts it.
    /// `header` has 16 bytes; for a frame with an offload it covers all of the frame's headers.
    pub(crate) fn validate(
        &self,
        (header, len): (&[u8], u32),
        offload: NetHeader,
        polled: &mut Polled,
    ) -> Result<NetHeader, Malformed> {
        if len < FRAME_MIN || len < FRAME_MIN_TAGGED && is_tagged(header) {
            polled.runts += 1;
            return Err(Malformed::Runt);
        }
        let Ok(offload) = offload.validate(header, len as usize, self.leaves) else {
            polled.bad_offload += 1;
            return Err(Malformed::Offload);
        };
        let (longest, on_wire) = match u32::from(offload.gso_size.get()) {
            0 => (self.frame_bytes_max, len),
            size => (FRAME_MAX, u32::from(offload.hdr_len.get()) + size),
        };
        if len > longest || on_wire > self.frame_bytes_max {
            polled.oversize += 1;
            return Err(Malformed::Oversize);
        }
        let (_, more) = offload.segments(len);
        polled.surplus_bytes += u64::from(more);
        Ok(offload)
    }
}

fn is_tagged(header: &[u8]) -> bool {
    header
        .get(12..14)
        .is_some_and(|tpid| wire::vlan::is_tpid(u16::from_be_bytes([tpid[0], tpid[1]])))
}
