//! A driver by the book: virtio 1.2, section 2.8, byte by byte. It may also lie.

use std::sync::Arc;

use guestmem::GuestMemory;

use crate::ring::Descriptor;
use crate::tests::kit::BASE;
use crate::{Addresses, Content, DeviceQueue, Features, Start};

/// "The driver's ... VIRTQ_DESC_F_AVAIL ... bit 7, VIRTQ_DESC_F_USED ... bit 15" (2.8.1).
pub(super) const AVAIL: u16 = 1 << 7;
pub(super) const USED: u16 = 1 << 15;
pub(super) const NEXT: u16 = Descriptor::NEXT;
pub(super) const WRITE: u16 = Descriptor::WRITE;
pub(super) const INDIRECT: u16 = Descriptor::INDIRECT;

/// An address and a length.
pub(super) type Range = (u64, u32);

/// A driver, and the ring it writes.
pub(super) struct Book {
    pub(super) memory: Arc<GuestMemory>,
    pub(super) addresses: Addresses,
    pub(super) size: u16,
    pub(super) content: Content,
    /// Descriptors written so far, in all laps.
    pub(super) written: u32,
}

impl Book {
    /// A ring at the beginning of `memory`, which is zeros.
    pub(super) fn new(memory: Arc<GuestMemory>, size: u16, content: Content) -> Book {
        let behind = BASE + 16 * u64::from(size);
        let addresses = Addresses { desc: BASE, avail: behind, used: behind + 4 };
        Book { memory, addresses, size, content, written: 0 }
    }

    pub(super) fn device(&self, features: Features) -> DeviceQueue {
        self.device_at(features, Start::at(0x8000_8000))
    }

    pub(super) fn device_at(&self, features: Features, start: Start) -> DeviceQueue {
        let (memory, features) = (self.memory.clone(), features | Features::PACKED);
        let (at, size) = (&self.addresses, self.size);
        DeviceQueue::new(memory, at, size, features, self.content, start).unwrap()
    }

    /// First address for buffers.
    pub(super) fn data(&self) -> u64 {
        (self.addresses.used + 64).next_multiple_of(64)
    }

    /// The flag of the right direction.
    fn right(&self) -> u16 {
        if self.content == Content::Writable { WRITE } else { 0 }
    }

    /// Writes a descriptor's fields; `flags` as they are.
    pub(super) fn raw(&self, at: u64, (addr, len): Range, id: u16, flags: u16) {
        let place = self.memory.slice(at, 16).unwrap();
        place.write(0, addr.to_le_bytes());
        place.write(8, len.to_le_bytes());
        place.write(12, id.to_le_bytes());
        place.write(14, flags.to_le_bytes());
    }

    pub(super) fn desc_at(&self, index: u32) -> u64 {
        BASE + 16 * u64::from(index)
    }

    /// Makes a list of descriptors available, each with more flags; the direction is right unless
    /// [`WRITE`] is among them, and the last has the id.
    pub(super) fn offer(&mut self, list: &[(Range, u16)], id: u16) {
        for (i, (range, flags)) in list.iter().enumerate() {
            let lap = self.written / u32::from(self.size);
            let available = if lap.is_multiple_of(2) { AVAIL } else { USED };
            let index = self.written % u32::from(self.size);
            // Only the last id of a list has a meaning.
            let id = if i + 1 == list.len() { id } else { !id };
            let flags = (flags ^ self.right()) | available;
            self.raw(self.desc_at(index), *range, id, flags);
            self.written += 1;
        }
    }

    /// Makes a buffer available that breaks no rule.
    pub(super) fn offer_good(&mut self, id: u16) {
        self.offer(&[((self.data(), 64), 0)], id);
    }

    /// An entry of a table, of the right direction unless `flags` has another.
    pub(super) fn entry(&self, at: u64, range: Range, flags: u16) {
        self.raw(at, range, 0xffff, flags ^ self.right());
    }

    /// The id, length and flags of the descriptor at `index`.
    pub(super) fn read(&self, index: u32) -> (u16, u32, u16) {
        let place = self.memory.slice(self.desc_at(index), 16).unwrap();
        let half = |offset| u16::from_le_bytes(place.read(offset));
        (half(12), u32::from_le_bytes(place.read(8)), half(14))
    }

    /// Returns `true` if the descriptor at `index` was used in this lap.
    pub(super) fn is_used(&self, index: u32, lap: u32) -> bool {
        let used = if lap.is_multiple_of(2) { AVAIL | USED } else { 0 };
        self.read(index).2 & (AVAIL | USED) == used
    }
}
