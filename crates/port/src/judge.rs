//! Whether what came is a frame, and whether what is left to do on it can be done.

use wire::ethernet::OVERHEAD_MAX;
use wire::virtio_net::Accepts;

use crate::Offload;
use crate::burst::Polled;

/// Shortest frame: two addresses and a type. Shorter ones are runts.
const FRAME_MIN: u32 = 14;
/// A tagged frame has a type behind its tag.
pub(crate) const FRAME_MIN_TAGGED: u32 = 18;
/// Longest frame that is to be segmented: an IP packet's 65535 bytes, two addresses, two tags and a
/// type.
pub(crate) const FRAME_MAX: u32 = 65535 + OVERHEAD_MAX;
/// What may come from a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Longest frame, or segment of one, bytes.
    pub(crate) frame_bytes_max: u32,
    /// What may be left to be done.
    pub(crate) leaves: Accepts,
}

impl Rules {
    /// Judges a frame of `len` bytes that begins with `head`, on which `offload` is left to do;
    /// what of that can be handed on, or `None` if the frame must be dropped, which is counted.
    /// `head` is 16 bytes, and of a frame on which something is left to do as many as its headers
    /// have.
    pub(crate) fn judge(
        &self,
        (head, len): (&[u8], u32),
        offload: Offload,
        polled: &mut Polled,
    ) -> Option<Offload> {
        if len < FRAME_MIN || len < FRAME_MIN_TAGGED && is_tagged(head) {
            polled.runts += 1;
            return None;
        }
        let Ok(offload) = offload.judge(head, len as usize, self.leaves) else {
            polled.bad_offload += 1;
            return None;
        };
        let (longest, on_wire) = match u32::from(offload.gso_size.get()) {
            0 => (self.frame_bytes_max, len),
            size => (FRAME_MAX, u32::from(offload.hdr_len.get()) + size),
        };
        if len > longest || on_wire > self.frame_bytes_max {
            polled.oversize += 1;
            return None;
        }
        let (_, more) = offload.segments(len);
        polled.surplus_bytes += u64::from(more);
        Some(offload)
    }
}

fn is_tagged(head: &[u8]) -> bool {
    head.get(12..14).is_some_and(|tpid| wire::vlan::is_tpid(u16::from_be_bytes([tpid[0], tpid[1]])))
}
