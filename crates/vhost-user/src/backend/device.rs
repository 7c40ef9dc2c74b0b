//! What the state machine drives.

use std::sync::Arc;

use crate::foreign::ForeignFd;

/// A device behind the protocol. All calls are made by [`Backend`](super::Backend) from within
/// one of its own calls, one at a time.
///
/// # What the state machine promises
///
/// 1. Memory and dirty log change also while rings run. Rings that run go on with what they had,
///    and each of them is then renewed or stopped, before the front-end hears that it is done.
/// 2. A ring is started only when it is stopped, with memory, size, addresses, a kick (or poll
///    mode), and enabled unless it [discards](Device::discards); it is stopped only when it runs.
/// 3. A refused call is as if it had not been made: the device must keep what it had.
/// 4. When the connection ends, all rings are stopped first, then the memory is released by an
///    empty table, and log and records of buffers in flight by `None`.
///
/// # What it does not promise
///
/// Addresses, sizes of files and the kind of memory are as the front-end says: that the rings lie
/// within regions, that a file is as long as its region and cannot stall a page fault is for the
/// device to check.
pub trait Device {
    /// Replaces the whole memory table. An empty table releases all memory and is never refused.
    ///
    /// # Errors
    /// [`Refused`] if a region cannot be mapped; the former table stays.
    fn set_memory(&mut self, regions: Vec<MemoryRegion>) -> Result<(), Refused>;

    /// Adds one region.
    ///
    /// # Errors
    /// [`Refused`] if it cannot be mapped.
    fn add_region(&mut self, region: MemoryRegion) -> Result<(), Refused>;

    /// Removes the region with this guest address, front-end address and size in bytes, which was
    /// set or added before.
    fn remove_region(&mut self, guest_addr: u64, user_addr: u64, size: u64);

    /// Whether the guest sends by this ring: one that is disabled while it runs goes on, and
    /// discards what comes.
    fn discards(&self, index: usize) -> bool;

    /// Starts a ring.
    ///
    /// # Errors
    /// [`Refused`] if it does not lie in memory or cannot be served; the ring stays stopped, and
    /// the start is tried again when one of its settings or the memory changes.
    fn start_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused>;

    /// Something about a ring that runs changed: memory, log, whether it logs, or whether it is
    /// enabled. It goes on where it is, by this setup, whose `base` means nothing; no lane must
    /// find it missing meanwhile. When this returns nobody uses the former memory or log for it any
    /// more.
    ///
    /// # Errors
    /// [`Refused`] if that is not possible; the ring runs as it did, and is stopped.
    fn renew_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused>;

    /// Stops a ring: when this returns, nobody touches it any more. Returns where it stopped, in
    /// the form of [`RingSetup::base`].
    fn stop_ring(&mut self, index: usize) -> u32;

    /// The descriptor that interrupts the guest changed while the ring runs.
    fn set_call(&mut self, index: usize, call: Option<Arc<ForeignFd>>);

    /// The descriptor that tells the front-end of a broken ring changed while the ring runs.
    fn set_err(&mut self, index: usize, err: Option<Arc<ForeignFd>>);

    /// The device was reset; rings are stopped, memory stays.
    fn reset(&mut self);

    /// The front-end sets the MTU in bytes, 68 to 65535.
    ///
    /// # Errors
    /// [`Refused`] if the device does not do this MTU.
    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused>;

    /// The guest with this address arrived by migration: tell the network.
    fn send_rarp(&mut self, mac: [u8; 6]);

    /// The guest's driver changed the virtio device status.
    fn set_status(&mut self, status: u8);

    /// From now on rings whose setup says so log their writes there. `None` releases the log, and
    /// is never refused.
    ///
    /// # Errors
    /// [`Refused`] if it cannot be mapped; the former log stays.
    fn set_log(&mut self, log: Option<SharedArea>) -> Result<(), Refused>;

    /// Makes records of what is in flight, for so many rings from the first on with up to so many
    /// entries each, and keeps them from now on. The front-end hands them to our successor.
    ///
    /// # Errors
    /// [`Refused`] if there is no memory for them.
    fn create_inflight(&mut self, rings: u16, ring_size: u16) -> Result<SharedArea, Refused>;

    /// Keeps the records there from now on; a ring that starts goes on where its
    /// record says, if it has one. `None` releases them, and is never refused.
    ///
    /// # Errors
    /// [`Refused`] if they cannot be mapped, or are not ours; the former ones stay.
    fn set_inflight(&mut self, records: Option<InflightArea>) -> Result<(), Refused>;

    /// The front-end knows where this ring stopped, or had it reset: its record is no more.
    fn clear_inflight(&mut self, index: usize);

    /// Writes what the device has to carry to where its guest moves, to a pipe, and closes it.
    /// No ring runs.
    ///
    /// # Errors
    /// [`Refused`] if it cannot be written at once.
    fn save_state(&mut self, to: ForeignFd) -> Result<(), Refused>;

    /// Such a state will come from a pipe; not all of it need be there yet. No ring runs.
    ///
    /// # Errors
    /// [`Refused`] if this is no pipe.
    fn load_state(&mut self, from: ForeignFd) -> Result<(), Refused>;

    /// All of the state was handed over, in either direction.
    ///
    /// # Errors
    /// [`Refused`] if it did not arrive whole, or does not suit this device.
    fn check_state(&mut self) -> Result<(), Refused>;

    /// The bytes of `virtio_net_config` (virtio 1.2, 5.1.4), as many as the device has.
    fn config(&self) -> Vec<u8>;
}

/// A request that the device could not carry out, and why, for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

impl Refused {
    /// A refusal with this text.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// A piece of guest memory.
#[derive(Debug)]
pub struct MemoryRegion {
    /// Guest-physical address of its first byte.
    pub guest_addr: u64,
    /// Length in bytes, not zero; no address below plus this length overflows.
    pub size: u64,
    /// Address of its first byte in the front-end, by which rings are found.
    pub user_addr: u64,
    /// Offset of its first byte in the file.
    pub mmap_offset: u64,
    /// The file.
    pub fd: ForeignFd,
}

/// A part of a file that front-end and back-end share.
#[derive(Debug)]
pub struct SharedArea {
    /// Bytes.
    pub size: u64,
    /// Offset of its first byte in the file.
    pub offset: u64,
    /// The file.
    pub fd: ForeignFd,
}

/// Where records of what is in flight are kept.
#[derive(Debug)]
pub struct InflightArea {
    /// The memory, as [`Device::create_inflight`] made it.
    pub area: SharedArea,
    /// Rings that have one, from the first on.
    pub rings: u16,
    /// Entries that a ring may have.
    pub ring_size: u16,
}

/// Which writes of a ring are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLog {
    /// All of them, in buffers and in the ring; else only those to the ring.
    pub buffers: bool,
    /// Guest-physical address at which writes to the used ring (split), or to the device's event
    /// area (packed), are logged; `None`: at the address where memory has it.
    pub used: Option<u64>,
}

/// All that is needed to run a ring.
#[derive(Clone, Debug)]
pub struct RingSetup {
    /// Number of descriptors, up to 32768; of a split ring a power of two.
    pub size: u16,
    /// Descriptor table: address in the front-end, aligned to 16 bytes.
    pub desc: u64,
    /// Available ring, or the driver's events of a packed ring: address in the front-end, aligned
    /// to 2 bytes, or 4.
    pub avail: u64,
    /// Used ring, or the device's events of a packed ring: address in the front-end, aligned to 4
    /// bytes.
    pub used: u64,
    /// Where to start. Split: the index in the available ring to read next. Packed: bits 0 to 14
    /// the descriptor to take next, bit 15 its wrap counter, bits 16 to 31 the same of the
    /// descriptor to use next.
    pub base: u32,
    /// Readable when the guest made buffers available; `None`: the ring must be polled.
    pub kick: Option<Arc<ForeignFd>>,
    /// To be written when buffers were used; `None`: the guest polls.
    pub call: Option<Arc<ForeignFd>>,
    /// To be written when the ring is broken.
    pub err: Option<Arc<ForeignFd>>,
    /// The features negotiated, as [`Features`](crate::Features) bits.
    pub features: u64,
    /// What is logged; `None`: nothing.
    pub log: Option<RingLog>,
    /// Whether it is enabled. Only a ring that [discards](Device::discards) runs without.
    pub enabled: bool,
}
