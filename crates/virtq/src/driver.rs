//! The driver's side of a ring of either kind: for the lab's guests and for tests.
//!
//! The device is not trusted. The driver keeps its list of buffers in flight in private memory. A
//! used entry that names no buffer in flight is counted ([`DriverQueue::strays`]) and skipped.

use std::sync::Arc;

use guestmem::{GuestMemory, SharedFile};

use crate::packed::PackedDriver;
use crate::packed::PackedPosition;
use crate::pool::{DescriptorPool, Segment, Used};
use crate::ring::{Addresses, Descriptor, Features, SetupError};
use crate::split::SplitDriver;
use crate::start::Position;

/// A guest's own end of a ring.
#[derive(Debug)]
pub struct DriverQueue {
    kind: Kind,
    pool: DescriptorPool,
    addresses: Addresses,
    memory: Arc<GuestMemory>,
}

#[derive(Debug)]
enum Kind {
    Split(SplitDriver),
    Packed(PackedDriver),
}

/// Calls a method of the ring's own kind.
macro_rules! each {
    ($kind:expr, $driver:ident => $call:expr) => {
        match $kind {
            Kind::Split($driver) => $call,
            Kind::Packed($driver) => $call,
        }
    };
}

impl DriverQueue {
    /// Bytes that a ring of `size` entries takes, up to the next page.
    pub fn bytes(size: u16) -> u64 {
        let entries = u64::from(size);
        // Size of a split ring, which is the larger.
        let (desc, avail, used) = (16 * entries, 6 + 2 * entries, 6 + 8 * entries);
        (desc + avail.next_multiple_of(64) + used).next_multiple_of(4096)
    }

    /// A new ring of `size` entries at the front-end's address `at`. The memory there must be
    /// zeros, or an old ring that is no longer used.
    pub fn new(
        memory: Arc<GuestMemory>,
        at: u64,
        size: u16,
        features: Features,
    ) -> Result<DriverQueue, SetupError> {
        let behind = at + 16 * u64::from(size);
        let (kind, addresses) = if features.contains(Features::PACKED) {
            let addresses = Addresses { desc: at, avail: behind, used: behind + 64 };
            (Kind::Packed(PackedDriver::new(&memory, &addresses, size, features)?), addresses)
        } else {
            let used = behind + (6 + 2 * u64::from(size)).next_multiple_of(64);
            let addresses = Addresses { desc: at, avail: behind, used };
            (Kind::Split(SplitDriver::new(&memory, &addresses, size, features)?), addresses)
        };
        let pool = DescriptorPool::new(size, features.contains(Features::IN_ORDER));
        let mut queue = DriverQueue { kind, pool, addresses, memory };
        queue.disable_notification();
        Ok(queue)
    }

    /// Position for a device that takes over a new ring. A packed ring's wrap counters are set.
    pub fn first_position(&self) -> Position {
        match self.kind {
            Kind::Split(_) => 0,
            Kind::Packed(_) => PackedPosition::FIRST.position(),
        }
    }

    /// Addresses of the ring, as the device must be told.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.pool.size()
    }

    /// The memory that the ring and its buffers are in.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Descriptors that are free.
    #[inline]
    pub fn room(&self) -> usize {
        self.pool.free_len()
    }

    /// Makes a buffer of one piece available, at the next [`publish`](Self::publish); `None` when
    /// the ring is full.
    #[inline]
    pub fn post(&mut self, piece: Segment) -> Option<u16> {
        let head = self.pool.take_one()?;
        each!(&mut self.kind, driver => driver.offer(head, piece.descriptor()));
        Some(head)
    }

    /// Makes a buffer of several pieces available as a chain; `None` when the ring is too full, or
    /// there are no pieces.
    pub fn post_chain(&mut self, pieces: &[Segment]) -> Option<u16> {
        let heads = self.pool.take(pieces.len())?;
        each!(&mut self.kind, driver => driver.offer_chain(&heads, pieces));
        Some(heads[0])
    }

    /// Makes a buffer of several pieces available as an indirect table, which is written to the
    /// guest's memory at `table` (16 bytes a piece); `None` when the ring is full, there are no
    /// pieces, or the table does not fit there.
    pub fn post_indirect(&mut self, pieces: &[Segment], table: u64) -> Option<u16> {
        let len = (pieces.len() * Descriptor::SIZE) as u32;
        let place = self.memory.slice(table, len).filter(|_| !pieces.is_empty())?;
        let head = self.pool.take_one()?;
        for (i, piece) in pieces.iter().enumerate() {
            let is_last = i + 1 == pieces.len();
            let next = (i + 1) as u16;
            let words =
                each!(&self.kind, driver => driver.entry(piece.descriptor(), next, is_last));
            place.write((i * Descriptor::SIZE) as u32, words[0].to_le_bytes());
            place.write((i * Descriptor::SIZE + 8) as u32, words[1].to_le_bytes());
        }
        let outer = Descriptor { addr: table, len, flags: Descriptor::INDIRECT, next: 0 };
        each!(&mut self.kind, driver => driver.offer(head, outer));
        Some(head)
    }

    /// Publishes the posted buffers; returns `true` if the device wants a kick.
    #[inline]
    pub fn publish(&mut self) -> bool {
        each!(&mut self.kind, driver => driver.publish())
    }

    /// Number of used buffers. An estimate if the device names buffers that are not in flight.
    #[inline]
    pub fn used_len(&self) -> u16 {
        each!(&self.kind, driver => driver.used_len(&self.pool))
    }

    /// Takes back up to `out.len()` buffers; returns their number.
    #[inline]
    pub fn reap(&mut self, out: &mut [Used]) -> usize {
        each!(&mut self.kind, driver => driver.reap(&mut self.pool, out))
    }

    /// Posts every used buffer again, unchanged; returns their number. The cheapest possible guest,
    /// for measurements of rings.
    #[inline]
    pub fn recycle(&mut self) -> u16 {
        each!(&mut self.kind, driver => driver.recycle(&mut self.pool))
    }

    /// Used entries skipped since they name no buffer in flight: the device is broken.
    pub fn strays(&self) -> u64 {
        self.pool.strays
    }

    /// Asks the device for an interrupt at the next used buffer; returns `true` if there is one
    /// already.
    pub fn enable_notification(&mut self) -> bool {
        each!(&mut self.kind, driver => driver.enable_notification())
    }

    /// Asks the device not to interrupt: the ring is polled.
    pub fn disable_notification(&mut self) {
        each!(&mut self.kind, driver => driver.disable_notification());
    }
}

/// One region of guest memory backed by `file`. Guest and front-end addresses are both `base` plus
/// the file's offset.
pub fn guest_memory(file: &SharedFile, base: u64) -> Result<Arc<GuestMemory>, guestmem::MapError> {
    let size = file.mapping().size() as u64;
    let mapping = Arc::new(guestmem::Mapping::new(file.fd(), size, 0)?);
    let region = guestmem::Region { guest_addr: base, user_addr: base, mapping };
    Ok(Arc::new(GuestMemory::new(vec![region]).expect("one region overlaps nothing")))
}
