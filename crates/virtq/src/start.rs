//! Start of a ring: position, in-flight record and log of a new owner.

use crate::inflight::InflightRecord;
use crate::log::Log;

/// Position in a ring, as in vhost-user's vring base. In a split ring the low 16 bits are the
/// available index. In a packed ring bits 0 to 14 are the next descriptor to take and bit 15 its
/// wrap counter. Bits 16 to 30 and bit 31 are the same for the next descriptor to use.
///
/// Buffers are used in order, and a later owner takes unused ones again. So both halves are equal.
pub type Position = u32;

/// Start of a new owner of a ring.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Position from the front-end. A split ring ignores it: its used index is newer.
    pub base: Position,
    /// Record of former owners of a packed ring, which may have died at any moment. It overrides
    /// `base`, and this owner continues it. A split ring has none.
    pub inflight: Option<InflightRecord>,
    /// Dirty log for this owner's writes.
    pub log: Option<Log>,
}

impl Start {
    /// Starts at `base`, without a record.
    pub fn at(base: Position) -> Start {
        Start { base, ..Start::default() }
    }
}
