//! Shared parts of the tests: memory, and rings that are written entry by entry.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use guestmem::{Buffer, GuestMemory, GuestSlice, Pages, SharedFile};

use crate::ring::Descriptor;
use crate::split::SplitRing;
use crate::{Addresses, Content, DeviceQueue, Features, Start, guest_memory};

/// Base of a test's memory: guest and front-end addresses alike.
pub(super) const BASE: u64 = 0x1_0000_0000;

pub(super) const READABLE: Content = Content::Readable { header: 0, keep: false };

pub(super) fn memory(bytes: u64) -> Arc<GuestMemory> {
    let file = SharedFile::create("test", bytes, Pages::Ordinary).unwrap();
    guest_memory(&file, BASE).unwrap()
}

/// Returns `true` if this process runs the test `name` alone; else runs it in a process of its own.
/// The model checker's threads have their own handler for the signal of truncated memory.
pub(super) fn is_alone(name: &str) -> bool {
    const ALONE: &str = "SHUNT_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(program);
    let output = command.args(["--exact", name]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// Bytes that distinguish the buffer with this number from all others.
pub(super) fn pattern(number: u64, len: usize) -> Vec<u8> {
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).to_le_bytes();
    (0..len).map(|i| seed[i % 8].wrapping_add(i as u8)).collect()
}

/// All bytes of a staged buffer.
pub(super) fn bytes_of(buffer: &Buffer<'_>, arena: &[GuestSlice<'_>]) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len as usize];
    assert_eq!(buffer.read_bytes(arena, 0, &mut bytes), bytes.len());
    let sum: u32 = buffer.slices(arena).map(|slice| slice.len()).sum();
    assert_eq!(sum, buffer.len, "a buffer is as long as its slices");
    bytes
}

/// A ring that is written entry by entry, as a hostile guest may do.
pub(super) struct Forge {
    pub(super) memory: Arc<GuestMemory>,
    pub(super) ring: SplitRing,
    pub(super) addresses: Addresses,
    pub(super) next: u16,
    pub(super) content: Content,
}

impl Forge {
    /// A ring of `size` entries at the beginning of `memory`.
    pub(super) fn new(memory: Arc<GuestMemory>, size: u16, content: Content) -> Forge {
        let entries = u64::from(size);
        let addresses = Addresses {
            desc: BASE,
            avail: BASE + 16 * entries,
            used: BASE + 16 * entries + (6 + 2 * entries).next_multiple_of(4),
        };
        let ring = SplitRing::new(&memory, &addresses, size).unwrap();
        Forge { memory, ring, addresses, next: 0, content }
    }

    pub(super) fn device(&self, features: Features) -> DeviceQueue {
        let (memory, size) = (self.memory.clone(), self.ring.size());
        DeviceQueue::new(memory, &self.addresses, size, features, self.content, Start::default())
            .unwrap()
    }

    /// The direction flag that this ring's descriptors should have.
    pub(super) fn right(&self) -> u16 {
        match self.content {
            Content::Readable { .. } => 0,
            Content::Writable => Descriptor::WRITE,
        }
    }

    /// Writes a descriptor of the right direction, with more `flags`.
    pub(super) fn desc(&self, index: u16, (addr, len): (u64, u32), flags: u16, next: u16) {
        let flags = flags ^ self.right();
        let descriptor = Descriptor { addr, len, flags, next };
        self.ring.set_descriptor(index, descriptor);
    }

    /// Writes a descriptor of an indirect table.
    pub(super) fn entry(&self, at: u64, (addr, len): (u64, u32), flags: u16, next: u16) {
        let flags = flags ^ self.right();
        let descriptor = Descriptor { addr, len, flags, next };
        let [addr, word] = descriptor.to_words();
        let place = self.memory.slice(at, 16).unwrap();
        place.write(0, addr.to_le_bytes());
        place.write(8, word.to_le_bytes());
    }

    /// Makes the chain at `head` available.
    pub(super) fn offer(&mut self, head: u16) {
        self.ring.set_avail_entry(self.next, head);
        self.next = self.next.wrapping_add(1);
        self.ring.avail_idx().store(self.next, Ordering::Release);
    }

    /// Makes a chain available that breaks no rule.
    pub(super) fn offer_good(&mut self, index: u16) {
        self.desc(index, (self.data(), 64), 0, 0);
        self.offer(index);
    }

    /// First address for buffers: behind the ring.
    pub(super) fn data(&self) -> u64 {
        self.addresses.used + 8 * u64::from(self.ring.size()) + 8
    }
}
