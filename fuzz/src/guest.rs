//! A guest's memory, and what a hostile neighbour writes to the ring in it.

mod packed;

use std::collections::VecDeque;
use std::sync::Arc;

use guestmem::{GuestMemory, GuestSlice, Mapping, Pages, Region, SharedFile};
use virtq::{Addresses, Content, DeviceQueue, Features, Position, Start};

use self::packed::Packed;

use crate::input::Input;

/// Two regions that are neighbours, so that a range may cross from one to the other.
pub(crate) const REGION: u64 = 64 << 10;
const REGIONS: u64 = 2;
/// Guest address of the first byte.
pub(crate) const BASE: u64 = 0x1000_0000;
const END: u64 = BASE + REGIONS * REGION;
/// Base of the front-end's addresses.
pub(crate) const USER: u64 = 0x7f00_0000_0000;
/// Indirect tables begin here, and buffers behind.
const TABLES: u64 = BASE + 0x2000;
const BUFFERS: u64 = BASE + 0x4000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

pub(crate) fn memory() -> Arc<GuestMemory> {
    shared_memory().0
}

/// Memory of a guest, and the files of its regions.
fn shared_memory() -> (Arc<GuestMemory>, Vec<SharedFile>) {
    let file = || SharedFile::create("fuzz", REGION, Pages::Ordinary).expect("a little memory");
    let files: Vec<SharedFile> = (0..REGIONS).map(|_| file()).collect();
    let region = |(i, file): (u64, &SharedFile)| {
        let mapping = Mapping::new(file.fd(), REGION, 0).expect("a mapping of all of the file");
        let guest_addr = BASE + i * REGION;
        Region { guest_addr, user_addr: guest_addr + USER, mapping: Arc::new(mapping) }
    };
    let regions = (0..).zip(&files).map(region).collect();
    (Arc::new(GuestMemory::new(regions).expect("regions that do not overlap")), files)
}

/// A driver that writes its ring by hand.
pub(crate) struct Guest {
    pub(crate) memory: Arc<GuestMemory>,
    /// Files of the regions.
    pub(crate) files: Vec<SharedFile>,
    pub(crate) addresses: Addresses,
    pub(crate) size: u16,
    pub(crate) features: Features,
    content: Content,
    /// The available index that an honest driver would have, and the used index it saw last.
    avail: u16,
    used: u16,
    /// Direct descriptors of each chain in flight, as an honest driver remembers them.
    in_flight: VecDeque<u16>,
    /// The next direct descriptor.
    cursor: u16,
    /// State of a packed ring, if this is one.
    packed: Option<Packed>,
    /// Of 256 acts, this many are hostile.
    temper: u8,
}

impl Guest {
    pub(crate) fn new(input: &mut Input<'_>, content: Content) -> Guest {
        let features = Features::from_bits_truncate(input.byte());
        let packed = features.contains(Features::PACKED);
        let size = if packed { 1 + input.below(128) as u16 } else { 1 << input.below(7) };
        let start = input.pick(&[0, 0, 0xfff0, 0x7ffe]);
        let temper = input.byte();
        let (memory, files) = shared_memory();
        let guest = Guest {
            memory,
            files,
            addresses: Addresses {
                desc: BASE + USER,
                avail: BASE + USER + 0x800,
                used: BASE + USER + 0x1000,
            },
            size,
            features,
            content,
            avail: start,
            used: start,
            in_flight: VecDeque::new(),
            cursor: 0,
            packed: packed.then(|| Packed::new(size, input)),
            // Low ones more often than high ones.
            temper: temper >> input.below(8),
        };
        if !packed {
            guest.poke(guest.avail_at(2), start.to_le_bytes());
            guest.poke(guest.used_at(2), start.to_le_bytes());
        }
        guest
    }

    /// The device's side of the ring, which goes on where the used index says, or at the place of
    /// a packed ring's driver.
    pub(crate) fn device(&self) -> DeviceQueue {
        let base = self.packed.as_ref().map_or(0, Packed::base);
        self.device_at(base)
    }

    /// The same, where the front-end says.
    pub(crate) fn device_at(&self, base: Position) -> DeviceQueue {
        self.device_with(Start::at(base))
    }

    /// The same, with all that a device begins with.
    pub(crate) fn device_with(&self, start: Start) -> DeviceQueue {
        let (memory, features) = (self.memory.clone(), self.features);
        DeviceQueue::new(memory, &self.addresses, self.size, features, self.content, start)
            .expect("a ring inside the memory")
    }

    /// Position at which a device begins, as the front-end says.
    pub(crate) fn base(&self) -> Position {
        self.packed.as_ref().map_or(u32::from(self.used), Packed::base)
    }

    pub(crate) fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    /// Set if one used descriptor stands for a whole publication.
    pub(crate) fn is_used_in_one(&self) -> bool {
        self.features.contains(Features::IN_ORDER) && self.content != Content::Writable
    }

    pub(crate) fn avail_at(&self, offset: u64) -> u64 {
        self.addresses.avail - USER + offset
    }

    pub(crate) fn used_at(&self, offset: u64) -> u64 {
        self.addresses.used - USER + offset
    }

    /// Writes to the guest's memory, if it is there.
    pub(crate) fn poke<const N: usize>(&self, at: u64, bytes: [u8; N]) {
        if let Some(slice) = self.memory.slice(at, N as u32) {
            slice.write(0, bytes);
        }
    }

    pub(crate) fn peek<const N: usize>(&self, at: u64) -> [u8; N] {
        self.memory.slice(at, N as u32).expect("inside the memory").read(0)
    }

    /// The used index, or the first descriptors of a packed ring: changed once a buffer was used.
    pub(crate) fn used_by_device(&self) -> [u8; 16] {
        if self.is_packed() { self.peek(BASE) } else { self.peek(self.used_at(0)) }
    }

    /// The used entry at a position: head and bytes.
    pub(crate) fn used_entry(&self, position: u16) -> (u32, u32) {
        let index = u64::from(position % self.size);
        let at = self.used_at(4 + 8 * index);
        (u32::from_le_bytes(self.peek(at)), u32::from_le_bytes(self.peek(at + 4)))
    }

    /// The id, length and flags of a packed ring's descriptor.
    pub(crate) fn used_descriptor(&self, index: u16) -> (u16, u32, u16) {
        let at = BASE + 16 * u64::from(index);
        let half = |offset| u16::from_le_bytes(self.peek(at + offset));
        (half(12), u32::from_le_bytes(self.peek(at + 8)), half(14))
    }

    /// Does one act of a driver.
    pub(crate) fn act(&mut self, input: &mut Input<'_>) {
        if self.is_packed() {
            return self.act_packed(input);
        }
        if input.byte() >= self.temper {
            return self.behave(input);
        }
        match input.below(6) {
            0 => {
                let index = u64::from(input.u16() % self.size);
                self.write_descriptor(input, BASE + 16 * index);
            }
            1 => {
                let index = u64::from(input.below(64));
                self.write_descriptor(input, TABLES + 16 * index);
            }
            2 => {
                let head = input.u16();
                self.offer(if input.flag() { head } else { head % self.size });
            }
            3 => {
                let jump = input.pick(&[1, self.size, self.size + 1, 0x8000, u16::MAX]);
                let idx = self.avail.wrapping_add(jump);
                self.poke(self.avail_at(2), idx.to_le_bytes());
            }
            4 => {
                let bytes = input.u64().to_le_bytes();
                self.poke(BASE + u64::from(input.below(0x3000)), bytes);
            }
            _ => {
                let word = input.u16().to_le_bytes();
                self.poke(self.avail_at(input.pick(&[0, 4 + 2 * u64::from(self.size)])), word);
            }
        }
    }

    /// Makes one chain available, by the rules; nothing if the ring is too full for it.
    fn behave(&mut self, input: &mut Input<'_>) {
        let pieces = input.pick(&[1, 1, 1, 2, 3, 5]);
        let indirect = self.features.contains(Features::INDIRECT) && input.flag();
        let direct = if indirect { 1 } else { pieces };
        if self.taken() + direct > self.size {
            return;
        }
        let head = self.cursor;
        self.cursor = (head + direct) % self.size;
        self.in_flight.push_back(direct);
        let table = if indirect {
            let table = TABLES + 16 * u64::from(input.below(32));
            let range = (table, 16 * u32::from(pieces));
            self.descriptor(BASE + 16 * u64::from(head), range, INDIRECT, 0);
            table
        } else {
            BASE
        };
        // In a table of its own a chain begins at zero, and never wraps.
        let (first, wrap) = if indirect { (0, u16::MAX) } else { (head, self.size) };
        for i in 0..pieces {
            let index = (first + i) % wrap;
            let len = input.pick(&[12, 60, 64, 74, 200, 1514, 4096]);
            let addr = BUFFERS + u64::from(input.below((REGION - 0x4000) as u32 - len));
            let more = if i + 1 < pieces { NEXT } else { 0 };
            let next = (index + 1) % wrap;
            self.descriptor(table + 16 * u64::from(index), (addr, len), self.right() | more, next);
        }
        self.offer(head);
    }

    /// Direct descriptors in flight, after a look at the used index.
    fn taken(&mut self) -> u16 {
        let used = u16::from_le_bytes(self.peek(self.used_at(2)));
        for _ in 0..used.wrapping_sub(self.used) {
            if self.in_flight.pop_front().is_none() {
                break;
            }
        }
        self.used = used;
        self.in_flight.iter().sum()
    }

    /// The direction flag that this ring's descriptors should have.
    fn right(&self) -> u16 {
        if self.content == Content::Writable { WRITE } else { 0 }
    }

    fn offer(&mut self, head: u16) {
        let position = u64::from(self.avail % self.size);
        self.poke(self.avail_at(4 + 2 * position), head.to_le_bytes());
        self.avail = self.avail.wrapping_add(1);
        self.poke(self.avail_at(2), self.avail.to_le_bytes());
    }

    /// Writes a descriptor of which anything may be wrong.
    fn write_descriptor(&self, input: &mut Input<'_>, at: u64) {
        let anywhere = BASE + u64::from(input.below((END - BASE) as u32));
        let addr = match input.below(8) {
            0 => BASE + REGION - u64::from(input.byte()),
            1 => END - u64::from(input.byte()),
            2 => BASE - u64::from(input.byte()),
            3 => TABLES + 16 * u64::from(input.below(64)),
            4 => input.u64(),
            _ => anywhere,
        };
        let len = match input.below(8) {
            0 => input.u32(),
            1 => input.pick(&[0, 11, 13, 17, 1 << 20, (1 << 20) + 1, 65536, u32::MAX]),
            2 => 16 * input.below(70),
            _ => input.below(2048),
        };
        let flags = match input.below(8) {
            0 => input.u16(),
            1 => INDIRECT,
            2 => INDIRECT | NEXT,
            3 => self.right() ^ WRITE,
            4 | 5 => self.right() | NEXT,
            _ => self.right(),
        };
        let next = if input.below(8) == 0 { input.u16() } else { input.u16() % self.size };
        self.descriptor(at, (addr, len), flags, next);
    }

    fn descriptor(&self, at: u64, (addr, len): (u64, u32), flags: u16, next: u16) {
        let word = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
        self.poke(at, addr.to_le_bytes());
        self.poke(at + 8, word.to_le_bytes());
    }

    /// All bytes of the memory.
    pub(crate) fn dump(&self) -> Vec<u8> {
        let mut bytes = vec![0; (REGIONS * REGION) as usize];
        for (i, part) in bytes.chunks_mut(REGION as usize).enumerate() {
            let at = BASE + i as u64 * REGION;
            self.memory.slice(at, REGION as u32).expect("a whole region").read_bytes(part);
        }
        bytes
    }

    /// Asserts that a slice is inside one region.
    pub(crate) fn assert_inside(&self, slice: GuestSlice<'_>) {
        let Some(at) = slice.aligned_array::<u8>(slice.len() as usize) else {
            return assert!(slice.is_empty());
        };
        let start = at.addr() as u64;
        let inside = (0..REGIONS).any(|i| {
            let region = self.memory.slice(BASE + i * REGION, 1).expect("a region");
            let first = region.aligned_array::<u8>(1).expect("a byte").addr() as u64;
            start >= first && start + u64::from(slice.len()) <= first + REGION
        });
        assert!(inside, "a slice outside the guest's memory");
    }
}
