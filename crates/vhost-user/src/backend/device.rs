//! What the state machine drives.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A device behind the protocol. All calls are made by [`Backend`](super::Backend) from within
/// one of its own calls, one at a time.
///
/// # What the state machine promises
///
/// 1. Memory changes only while no ring runs, so a device may forget all translations then.
/// 2. A ring is started only when it is stopped, with memory, size, addresses, a kick (or poll
///    mode), and enabled; it is stopped only when it runs.
/// 3. A refused call is as if it had not been made: the device must keep what it had.
/// 4. When the connection ends, all rings are stopped first, then the memory is released by an
///    empty table.
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

    /// Starts a ring.
    ///
    /// # Errors
    /// [`Refused`] if it does not lie in memory or cannot be served; the ring stays stopped, and
    /// the start is tried again when one of its settings or the memory changes.
    fn start_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused>;

    /// Stops a ring: when this returns, nobody touches it any more. Returns where it stopped, in
    /// the form of [`RingSetup::base`].
    fn stop_ring(&mut self, index: usize) -> u32;

    /// The descriptor that interrupts the guest changed while the ring runs.
    fn set_call(&mut self, index: usize, call: Option<Arc<OwnedFd>>);

    /// The descriptor that tells the front-end of a broken ring changed while the ring runs.
    fn set_err(&mut self, index: usize, err: Option<Arc<OwnedFd>>);

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
    pub fd: OwnedFd,
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
    pub kick: Option<Arc<OwnedFd>>,
    /// To be written when buffers were used; `None`: the guest polls.
    pub call: Option<Arc<OwnedFd>>,
    /// To be written when the ring is broken.
    pub err: Option<Arc<OwnedFd>>,
    /// The features negotiated, as [`Features`](crate::Features) bits.
    pub features: u64,
}
