//! Payloads as they are on the wire.
//!
//! Specification: vhost-user.rst, "Payload". A payload that is one number is a plain `u64`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bit 8 of the number in `SET_VRING_KICK`, `_CALL` and `_ERR`: no descriptor comes with it.
pub const VRING_NO_FD: u64 = 1 << 8;
/// The ring's index in the number of `SET_VRING_KICK`, `_CALL` and `_ERR`.
pub const VRING_INDEX_MASK: u64 = 0xff;

/// A number for one ring: its size, base or enabled state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VringState {
    /// Index of the ring.
    pub index: u32,
    /// The number.
    pub num: u32,
}

/// Where a ring lies, in the front-end's own (user) addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VringAddr {
    /// Index of the ring.
    pub index: u32,
    /// Bit 0: log writes to the used ring.
    pub flags: u32,
    /// Descriptor table.
    pub desc: u64,
    /// Used ring.
    pub used: u64,
    /// Available ring.
    pub avail: u64,
    /// Guest address for the dirty log.
    pub log: u64,
}

/// What stands before the regions of `SET_MEM_TABLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TableHeader {
    /// Number of regions that follow.
    pub count: u32,
    /// Unused.
    pub padding: u32,
}

/// One memory region.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RegionPayload {
    /// Guest-physical address of its first byte.
    pub guest_addr: u64,
    /// Length in bytes.
    pub size: u64,
    /// Address of its first byte in the front-end.
    pub user_addr: u64,
    /// Offset of its first byte in the file.
    pub mmap_offset: u64,
}

/// The region of `ADD_MEM_REG` and `REM_MEM_REG`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct SingleRegion {
    /// Unused.
    pub padding: u64,
    /// The region.
    pub region: RegionPayload,
}

/// What stands before the bytes of `GET_CONFIG` and `SET_CONFIG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConfigHeader {
    /// First byte of the configuration space asked for.
    pub offset: u32,
    /// Number of bytes.
    pub size: u32,
    /// 0: the guest's own write, 1: live migration.
    pub flags: u32,
}
