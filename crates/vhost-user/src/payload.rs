//! Payloads in wire format.
//!
//! Specification: vhost-user.rst, "Payload". A payload that is one number is a plain `u64`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bit 8 of the number in `SET_VRING_KICK`, `_CALL` and `_ERR`: no descriptor.
pub const VRING_NO_FD: u64 = 1 << 8;
/// The ring's index in the number of `SET_VRING_KICK`, `_CALL` and `_ERR`.
pub const VRING_INDEX_MASK: u64 = 0xff;

/// Bit 0 of a ring address's flags: writes to the used ring are logged (`VHOST_VRING_F_LOG`).
pub const VRING_LOG: u32 = 1 << 0;
/// Bit 8 of the number in the reply to `SET_DEVICE_STATE_FD`: no descriptor.
pub const STATE_NO_FD: u64 = 1 << 8;

/// A number for one ring: its size, base or enabled state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VringState {
    /// Index of the ring.
    pub index: u32,
    /// The number.
    pub num: u32,
}

/// Addresses of a ring, in the front-end (user addresses).
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

/// Header before the regions of `SET_MEM_TABLE`.
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

/// The file of `SET_LOG_BASE`: a dirty log in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LogArea {
    /// Bytes.
    pub size: u64,
    /// Offset of its first byte in the file.
    pub offset: u64,
}

/// The file of `GET_INFLIGHT_FD` and `SET_INFLIGHT_FD`. In the specification `queue_size` is the
/// last field; front-ends send the padding of a C compiler.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Inflight {
    /// Bytes.
    pub size: u64,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// Number of rings, from the first on.
    pub rings: u16,
    /// Entries of each ring.
    pub ring_size: u16,
    /// Unused.
    pub padding: u32,
}

impl Inflight {
    /// Bytes without the padding.
    pub const UNPADDED: usize = 20;
}

/// The direction and phase of `SET_DEVICE_STATE_FD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StateTransfer {
    /// [`SAVE`](Self::SAVE) or [`LOAD`](Self::LOAD).
    pub direction: u32,
    /// [`STOPPED`](Self::STOPPED), the only one defined.
    pub phase: u32,
}

impl StateTransfer {
    /// The back-end writes its state.
    pub const SAVE: u32 = 0;
    /// The back-end reads its state.
    pub const LOAD: u32 = 1;
    /// All rings are stopped.
    pub const STOPPED: u32 = 0;
}

/// Header before the bytes of `GET_CONFIG` and `SET_CONFIG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ConfigHeader {
    /// First byte of the configuration space.
    pub offset: u32,
    /// Number of bytes.
    pub size: u32,
    /// 0: the guest's own write, 1: live migration.
    pub flags: u32,
}
