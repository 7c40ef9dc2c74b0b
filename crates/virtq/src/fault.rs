//! Faults of a ring: rules that a guest can break.

/// A ring rule that the guest or its front-end broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The available index moved by more than the ring's size.
    #[error("the available index jumped by more than the ring's size")]
    IndexJump,
    /// A head or a link is outside the descriptor table.
    #[error("a descriptor index is outside the table")]
    BadIndex,
    /// A chain does not end within [`CHAIN_MAX`](crate::CHAIN_MAX) descriptors,
    /// [`WRITABLE_CHAIN_MAX`](crate::WRITABLE_CHAIN_MAX) of a receive buffer, or the table's size:
    /// a loop.
    #[error("a descriptor chain is too long, or does not end")]
    ChainTooLong,
    /// More than [`CHAIN_BYTES_MAX`](crate::CHAIN_BYTES_MAX) bytes.
    #[error("a descriptor chain holds more than {} bytes", crate::CHAIN_BYTES_MAX)]
    ChainTooLarge,
    /// A range is outside the guest's memory, or crosses regions.
    #[error("a buffer is outside the guest's memory")]
    OutsideMemory,
    /// A buffer to read from is marked writable, or the other way round.
    #[error("a buffer has the wrong direction")]
    WrongDirection,
    /// An indirect table of a bad size, inside another, with a link behind, or not negotiated.
    #[error("an indirect descriptor table is malformed")]
    BadIndirect,
    /// The front-end shrank the file behind the guest's memory.
    #[error("the front-end truncated the guest's memory")]
    Truncated,
}

impl Fault {
    /// All faults, for counters and documentation.
    pub const ALL: [Fault; 8] = [
        Fault::IndexJump,
        Fault::BadIndex,
        Fault::ChainTooLong,
        Fault::ChainTooLarge,
        Fault::OutsideMemory,
        Fault::WrongDirection,
        Fault::BadIndirect,
        Fault::Truncated,
    ];

    /// A short name, for counters.
    pub fn name(self) -> &'static str {
        match self {
            Fault::IndexJump => "index_jump",
            Fault::BadIndex => "bad_index",
            Fault::ChainTooLong => "chain_too_long",
            Fault::ChainTooLarge => "chain_too_large",
            Fault::OutsideMemory => "outside_memory",
            Fault::WrongDirection => "wrong_direction",
            Fault::BadIndirect => "bad_indirect",
            Fault::Truncated => "truncated",
        }
    }
}
