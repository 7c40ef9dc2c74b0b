//! The trait of a device that the state machine drives.

use std::sync::Arc;

use crate::foreign::ForeignFd;

/// A device behind the protocol. [`Backend`](super::Backend) makes all calls, one at a time, from
/// within its own methods.
///
/// # Guarantees of the state machine
///
/// 1. Memory and dirty log may also change while rings run. Running rings continue with the old
///    ones; each is then renewed or stopped before the request is answered.
/// 2. A ring is started only when it is stopped, with memory, size, addresses, a kick (or poll
///    mode), and enabled unless it [discards](BackendDevice::discards). It is stopped only when it
///    runs.
/// 3. A refused call has no effect: the device must keep its former state.
/// 4. When the connection ends, all rings are stopped first. Then an empty table releases the
///    memory, and `None` releases the log and the inflight records.
///
/// # Left to the device
///
/// Addresses, file sizes and the type of memory are the front-end's claims. The device must check
/// that rings lie within regions, and that a file is as long as its region and cannot stall a page
/// fault.
pub trait BackendDevice {
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

    /// Returns `true` for a Tx ring of the guest: if it is disabled while it runs, it keeps running
    /// and discards frames.
    fn discards(&self, index: usize) -> bool;

    /// Starts a ring.
    ///
    /// # Errors
    /// [`Refused`] if it does not lie in memory or cannot be served. The ring stays stopped; the
    /// start is retried when one of its settings or the memory changes.
    fn start_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused>;

    /// Applies a change to a running ring: memory, log, logging, or enabled state. The ring
    /// continues at its position with this setup, whose `base` is unused; it must not be missing
    /// for a lane meanwhile. On return nothing uses the former memory or log for it.
    ///
    /// # Errors
    /// [`Refused`] if that is not possible; the ring runs on, and the state machine stops it.
    fn renew_ring(&mut self, index: usize, ring: &RingSetup) -> Result<(), Refused>;

    /// Stops a ring: on return, nothing accesses it any more. Returns its position, in the form of
    /// [`RingSetup::base`].
    fn stop_ring(&mut self, index: usize) -> u32;

    /// Replaces the descriptor that interrupts the guest, while the ring runs.
    fn set_call(&mut self, index: usize, call: Option<Arc<ForeignFd>>);

    /// Replaces the descriptor that reports a broken ring to the front-end, while the ring runs.
    fn set_err(&mut self, index: usize, err: Option<Arc<ForeignFd>>);

    /// Resets the device; rings are stopped, memory stays.
    fn reset(&mut self);

    /// The front-end sets the MTU in bytes, 68 to 65535.
    ///
    /// # Errors
    /// [`Refused`] if the device does not support this MTU.
    fn set_mtu(&mut self, mtu: u16) -> Result<(), Refused>;

    /// Announces to the network that the guest with this address arrived by migration.
    fn send_rarp(&mut self, mac: [u8; 6]);

    /// The guest's driver changed the virtio device status.
    fn set_status(&mut self, status: u8);

    /// Sets the dirty log for rings whose setup requires logging. `None` releases the log, and is
    /// never refused.
    ///
    /// # Errors
    /// [`Refused`] if it cannot be mapped; the former log stays.
    fn set_log(&mut self, log: Option<SharedArea>) -> Result<(), Refused>;

    /// Creates inflight records for the first `rings` rings, with up to `ring_size` entries each,
    /// and keeps them from now on. The front-end passes them to the next back-end.
    ///
    /// # Errors
    /// [`Refused`] if there is no memory for them.
    fn create_inflight(&mut self, rings: u16, ring_size: u16) -> Result<SharedArea, Refused>;

    /// Keeps inflight records in this area from now on; a ring that starts continues from its
    /// record, if it has one. `None` releases them, and is never refused.
    ///
    /// # Errors
    /// [`Refused`] if they cannot be mapped, or have another format; the former ones stay.
    fn set_inflight(&mut self, records: Option<InflightArea>) -> Result<(), Refused>;

    /// Clears the record of a ring: the front-end knows its position, or has reset it.
    fn clear_inflight(&mut self, index: usize);

    /// Writes the device's migration state to a pipe, and closes it. No ring runs.
    ///
    /// # Errors
    /// [`Refused`] if it cannot be written at once.
    fn save_state(&mut self, to: ForeignFd) -> Result<(), Refused>;

    /// Announces a migration state that will come from a pipe; it need not be complete yet. No ring
    /// runs.
    ///
    /// # Errors
    /// [`Refused`] if the file is not a pipe.
    fn load_state(&mut self, from: ForeignFd) -> Result<(), Refused>;

    /// Completes the transfer of the state, in either direction.
    ///
    /// # Errors
    /// [`Refused`] if it is incomplete, or does not fit this device.
    fn check_state(&mut self) -> Result<(), Refused>;

    /// The bytes of `virtio_net_config` (virtio 1.2, 5.1.4) that the device has.
    fn config(&self) -> Vec<u8>;
}

/// A request that the device could not carry out, with the cause for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Refused {
    /// Cause, for the operator.
    pub cause: String,
    /// Name of the device's limit that the request met, if that is the cause.
    pub limit: Option<&'static str>,
}

impl Refused {
    /// A refusal with this text.
    pub fn new(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), limit: None }
    }
}

/// A piece of guest memory.
#[derive(Debug)]
pub struct MemoryRegion {
    /// Guest-physical address of its first byte.
    pub guest_addr: u64,
    /// Length in bytes, not zero; no address below plus this length overflows.
    pub size: u64,
    /// Address of its first byte in the front-end, used to locate rings.
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

/// Shared memory of inflight records.
#[derive(Debug)]
pub struct InflightArea {
    /// The memory, as [`BackendDevice::create_inflight`] made it.
    pub area: SharedArea,
    /// Number of rings with a record, from the first on.
    pub rings: u16,
    /// Largest number of entries of a ring.
    pub ring_size: u16,
}

/// Selection of a ring's writes that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLog {
    /// `true`: writes to buffers and to the ring; `false`: only those to the ring.
    pub buffers: bool,
    /// Guest-physical address for logged writes to the used ring (split), or to the device's event
    /// area (packed). `None`: the address that memory has for it.
    pub used: Option<u64>,
}

/// Settings of a ring that can run.
#[derive(Clone, Debug)]
pub struct RingSetup {
    /// Number of descriptors, up to 32768; of a split ring a power of two.
    pub size: u16,
    /// Descriptor table: address in the front-end, aligned to 16 bytes.
    pub desc: u64,
    /// Available ring, or the driver's events of a packed ring: address in the front-end, aligned
    /// to 2 bytes (packed: 4).
    pub avail: u64,
    /// Used ring, or the device's events of a packed ring: address in the front-end, aligned to 4
    /// bytes.
    pub used: u64,
    /// Start position. Split: the index in the available ring to read next. Packed: bits 0 to 14
    /// the descriptor to take next, bit 15 its wrap counter, bits 16 to 31 the same of the
    /// descriptor to use next.
    pub base: u32,
    /// Readable when the guest made buffers available; `None`: the ring must be polled.
    pub kick: Option<Arc<ForeignFd>>,
    /// Eventfd to write when buffers were used; `None`: the guest polls.
    pub call: Option<Arc<ForeignFd>>,
    /// Eventfd to write when the ring is broken.
    pub err: Option<Arc<ForeignFd>>,
    /// The features negotiated, as [`Features`](crate::Features) bits.
    pub features: u64,
    /// Logging of writes; `None`: none.
    pub log: Option<RingLog>,
    /// `true` if it is enabled. Only a ring that [discards](BackendDevice::discards) runs without.
    pub enabled: bool,
}
