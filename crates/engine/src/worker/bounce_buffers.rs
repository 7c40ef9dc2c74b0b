//! Memory of the quarantine lane that frames are copied to.

use port::bounce::Room;
use port::kept::Arena;

/// Memory that frames are copied to, so that only one guest's is touched at a time.
#[derive(Debug)]
pub(crate) struct BounceBuffers {
    /// Frames on their way from a guest.
    pub(super) room: Room,
    /// Frames on their way to one.
    pub(crate) arena: Arena,
}

impl BounceBuffers {
    pub(crate) fn new() -> Option<BounceBuffers> {
        Some(BounceBuffers { room: Room::new().ok()?, arena: Arena::new()? })
    }
}
