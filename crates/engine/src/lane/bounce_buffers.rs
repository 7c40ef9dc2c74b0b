//! Memory of the quarantine lane that frames are copied to.

use port::bounce::BounceBuffer;
use port::parked::FrameArena;

/// Memory that frames are copied to, so that only one guest's memory is touched at a time.
#[derive(Debug)]
pub(crate) struct BounceBuffers {
    /// Frames from a guest.
    pub(super) room: BounceBuffer,
    /// Frames to a guest.
    pub(crate) arena: FrameArena,
}

impl BounceBuffers {
    pub(crate) fn new() -> Option<BounceBuffers> {
        Some(BounceBuffers { room: BounceBuffer::new().ok()?, arena: FrameArena::new()? })
    }
}
