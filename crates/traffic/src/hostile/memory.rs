//! Memory of the hostile guest, and rings in it, written without checks.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Result;
use guestmem::{GuestSlice, Mapping};
use rustix::fs::MemfdFlags;
use vhost_user::payload::RegionPayload;

/// Bytes of the memory, and of its first part, which holds the rings.
pub(super) const SIZE: u64 = 4 << 20;
pub(super) const RINGS: u64 = 1 << 20;
/// Guest addresses of the two regions.
pub(super) const LOW: u64 = 0x1000_0000;
pub(super) const HIGH: u64 = 0x4000_0000;
/// Front-end address of the memory.
pub(super) const USER: u64 = 0x7f00_0000_0000;

/// Maximum entries of a ring.
pub(super) const SIZE_MAX: u16 = 4096;
/// Bytes reserved for a ring, and offsets of its parts.
const PLACE: u64 = 256 << 10;
const AVAIL: u64 = 64 << 10;
const USED: u64 = 96 << 10;

/// Buffers: 2 KiB each, from the second region's start; the last 256 KiB are indirect tables.
pub(super) const SLOT: u64 = 2048;
const TABLES: u64 = 256 << 10;
pub(super) const SLOTS: u64 = (SIZE - RINGS - TABLES) / SLOT;
/// Slots of frames to send; the others are receive buffers.
pub(super) const SEND_SLOTS: u64 = SLOTS / 2;
pub(super) const TABLE: u64 = 4096;
pub(super) const TABLE_COUNT: u64 = TABLES / TABLE;

/// Descriptor flags of virtio 1.2, section 2.7.5.
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;

/// A memfd without seals, so that it can be truncated while the daemon uses it.
#[derive(Debug)]
pub(super) struct Memory {
    fd: OwnedFd,
    mapping: Mapping,
}

impl Memory {
    pub(super) fn new() -> Result<Memory> {
        let fd = rustix::fs::memfd_create("shunt-lab-hostile", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&fd, SIZE)?;
        let mapping = Mapping::new(fd.as_fd(), SIZE, 0)?;
        Ok(Memory { fd, mapping })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Both memory regions.
    pub(super) fn regions() -> [RegionPayload; 2] {
        let region = |guest_addr, offset, size| RegionPayload {
            guest_addr,
            size,
            user_addr: USER + offset,
            mmap_offset: offset,
        };
        [region(LOW, 0, RINGS), region(HIGH, RINGS, SIZE - RINGS)]
    }

    /// The memory from `offset` on.
    pub(super) fn at(&self, offset: u64) -> GuestSlice<'_> {
        let offset = offset.min(SIZE);
        self.mapping.slice(offset, (SIZE - offset) as usize).expect("inside, as was just seen to")
    }

    /// A buffer and its guest address.
    pub(super) fn slot(&self, slot: u64) -> (GuestSlice<'_>, u64) {
        let offset = (slot % SLOTS) * SLOT;
        (self.at(RINGS + offset).first(SLOT as u32), HIGH + offset)
    }

    /// An indirect table and its guest address.
    pub(super) fn table(&self, table: u64) -> (GuestSlice<'_>, u64) {
        let offset = SLOTS * SLOT + (table % TABLE_COUNT) * TABLE;
        (self.at(RINGS + offset).first(TABLE as u32), HIGH + offset)
    }
}

/// A split-ring descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Descriptor {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
    pub(super) next: u16,
}

impl Descriptor {
    /// Writes the descriptor as entry `index` of a table.
    pub(super) fn write(self, table: GuestSlice<'_>, index: u32) {
        let word = u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.next) << 48;
        table.write(index * 16, self.addr.to_le_bytes());
        table.write(index * 16 + 8, word.to_le_bytes());
    }
}

/// A ring of the hostile guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRing {
    /// Ring index; even ones receive.
    pub(super) index: u8,
    /// Entries, a power of two.
    pub(super) size: u16,
    /// Offset of the ring's parts from their default, bytes.
    pub(super) shift: u64,
    /// Latest published available index.
    pub(super) avail: u16,
    /// `true` if the daemon was told to start the ring.
    pub(super) runs: bool,
}

impl RawRing {
    pub(super) fn new(index: u8, size: u16) -> RawRing {
        RawRing { index, size, shift: 0, avail: 0, runs: false }
    }

    pub(super) fn receives(&self) -> bool {
        self.index.is_multiple_of(2)
    }

    fn place(&self) -> u64 {
        u64::from(self.index % 4) * PLACE + self.shift
    }

    /// Offsets of descriptor table, available ring and used ring.
    pub(super) fn parts(&self) -> [u64; 3] {
        let place = self.place();
        [place, place + AVAIL, place + USED]
    }

    /// Guest address of the descriptor table.
    pub(super) fn guest_addr(&self) -> u64 {
        LOW + self.place()
    }

    pub(super) fn set(&self, memory: &Memory, index: u16, descriptor: Descriptor) {
        let table = memory.at(self.place());
        descriptor.write(table, u32::from(index & (self.size - 1)));
    }

    /// Writes a head `ahead` entries after the published ones.
    pub(super) fn set_head(&self, memory: &Memory, ahead: u16, head: u16) {
        let entry = self.avail.wrapping_add(ahead) & (self.size - 1);
        memory.at(self.parts()[1]).write(4 + 2 * u32::from(entry), head.to_le_bytes());
    }

    /// Publishes an available index.
    pub(super) fn publish(&mut self, memory: &Memory, avail: u16) {
        self.avail = avail;
        self.word(memory, 1, 2).store(avail, Ordering::Release);
    }

    pub(super) fn used(&self, memory: &Memory) -> u16 {
        self.word(memory, 2, 2).load(Ordering::Acquire)
    }

    /// Resets the ring at `start`: no entry available, none used.
    pub(super) fn reset(&mut self, memory: &Memory, start: u16) {
        self.avail = start;
        for (part, at, value) in [(1, 0, 0), (1, 2, start), (2, 0, 0), (2, 2, start)] {
            self.word(memory, part, at).store(value, Ordering::Release);
        }
    }

    fn word<'a>(&self, memory: &'a Memory, part: usize, at: u32) -> &'a AtomicU16 {
        memory.at(self.parts()[part]).atomic_u16(at).expect("all parts are aligned")
    }
}

// The parts of the largest ring do not overlap at any offset.
const _: () = assert!(16 * SIZE_MAX as u64 <= AVAIL && AVAIL + 6 + 2 * SIZE_MAX as u64 <= USED);

/// Ring and memory that a burst is written to.
#[derive(Clone, Copy, Debug)]
pub(super) struct BurstTarget<'a> {
    pub(super) memory: &'a Memory,
    /// Bytes of the frame in each slot.
    pub(super) lens: &'a [u32],
    pub(super) ring: RawRing,
}
