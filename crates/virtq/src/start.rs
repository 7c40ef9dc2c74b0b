//! Where an owner of a ring begins, and where it leaves off.

use crate::inflight::Inflight;
use crate::log::Log;

/// A place in a ring, as vhost-user's vring base has it. In a split ring the low 16 bits are the
/// available index. In a packed ring bits 0 to 14 are the next descriptor to take and bit 15 the
/// wrap counter there; bits 16 to 30 and 31 are the same of the next to use.
///
/// Buffers are used in order and a later owner takes again what was not used, so the two halves
/// that a queue gives are equal.
pub type Position = u32;

/// Where an owner of a ring begins.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Where the front-end says. A split ring does not need it: its used index says more.
    pub base: Position,
    /// What former owners of a packed ring, which may have died at any moment, wrote down; it says
    /// more than `base`, and this owner goes on with it. A split ring needs none.
    pub inflight: Option<Inflight>,
    /// Where this owner says what it writes, if it is to.
    pub log: Option<Log>,
}

impl Start {
    /// Begins at `base`, and writes nothing down.
    pub fn at(base: Position) -> Start {
        Start { base, ..Start::default() }
    }
}
