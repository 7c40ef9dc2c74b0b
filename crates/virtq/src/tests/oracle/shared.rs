//! One memory that both implementations map, and a ring of the mock's parts in it.

use std::sync::Arc;

use guestmem::{GuestMemory, GuestSlice, Mapping, Pages, Region, SharedFile};
use virtio_queue::desc::RawDescriptor;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::mock::{AvailRing, DescriptorTable, UsedRing};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap};

use crate::{Addresses, Content, DeviceQueue, Features, Start};

/// Two regions; the mock puts indirect tables at a fixed address, in the second one.
pub(super) const REGIONS: [(u64, u64); 2] = [(0, 1 << 20), (0x3000_0000, 1 << 18)];
/// The front-end's own addresses are elsewhere.
pub(super) const USER: u64 = 0x7f12_0000_0000;
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// One memory, as both implementations see it.
pub(super) struct Shared {
    pub(super) ours: Arc<GuestMemory>,
    pub(super) theirs: GuestMemoryMmap,
}

impl Shared {
    pub(super) fn new() -> Shared {
        let mut regions = Vec::new();
        let mut ranges = Vec::new();
        for (guest_addr, size) in REGIONS {
            let file = SharedFile::create("both", size, Pages::Ordinary).unwrap();
            let mapping = Arc::new(Mapping::new(file.fd(), size, 0).unwrap());
            let user_addr = guest_addr + USER;
            regions.push(Region { guest_addr, user_addr, mapping });
            let offset = FileOffset::new(file.file().unwrap(), 0);
            ranges.push((GuestAddress(guest_addr), size as usize, Some(offset)));
        }
        let theirs = GuestMemoryMmap::from_ranges_with_files(ranges).unwrap();
        let ours = Arc::new(GuestMemory::new(regions).unwrap());
        Shared { ours, theirs }
    }

    pub(super) fn device(&self, at: &Addresses, size: u16, content: Content) -> DeviceQueue {
        DeviceQueue::new(self.ours.clone(), at, size, Features::INDIRECT, content, Start::default())
            .unwrap()
    }

    /// The guest address of a slice, which is in this memory.
    pub(super) fn guest_addr(&self, slice: GuestSlice<'_>) -> u64 {
        let at = |slice: GuestSlice<'_>| slice.aligned_array::<u8>(0).unwrap().addr() as u64;
        let region = REGIONS.iter().find_map(|&(guest_addr, size)| {
            let start = at(self.ours.slice(guest_addr, 1).unwrap());
            let offset = at(slice).checked_sub(start)?;
            (offset + u64::from(slice.len()) <= size).then_some(guest_addr + offset)
        });
        region.expect("a slice inside the memory")
    }

    /// Staged chains: heads, and the ranges of each.
    pub(super) fn staged(&self, device: &DeviceQueue) -> Vec<Chain> {
        let (buffers, arena) = device.buffers();
        let chain = |buffer: &guestmem::Buffer<'_>| Chain {
            head: buffer.ticket.id,
            ranges: buffer
                .slices(arena)
                .map(|slice| (self.guest_addr(slice), slice.len()))
                .collect(),
        };
        buffers.iter().map(chain).collect()
    }

    /// Chains that the other implementation takes.
    pub(super) fn popped(&self, queue: &mut Queue) -> Vec<Chain> {
        let chains = queue.iter(&self.theirs).unwrap();
        chains
            .map(|chain| Chain {
                head: chain.head_index(),
                ranges: chain.map(|desc| (desc.addr().0, desc.len())).collect(),
            })
            .collect()
    }

    pub(super) fn bytes(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.ours.slice(addr, len as u32).unwrap().read_bytes(&mut bytes);
        bytes
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) head: u16,
    pub(super) ranges: Vec<(u64, u32)>,
}

pub(super) fn oracle(at: &Addresses, size: u16) -> Queue {
    let mut queue = Queue::new(size).unwrap();
    queue.set_size(size);
    queue.try_set_desc_table_address(GuestAddress(at.desc - USER)).unwrap();
    queue.try_set_avail_ring_address(GuestAddress(at.avail - USER)).unwrap();
    queue.try_set_used_ring_address(GuestAddress(at.used - USER)).unwrap();
    queue.set_ready(true);
    queue
}

pub(super) fn raw((addr, len): (u64, u32), flags: u16, next: u16) -> RawDescriptor {
    RawDescriptor::from(Descriptor::new(addr, len, flags, next))
}

/// A ring of the mock's parts, placed as the specification says.
pub(super) struct MockRing<'a> {
    shared: &'a Shared,
    desc: DescriptorTable<'a, GuestMemoryMmap>,
    avail: AvailRing<'a, GuestMemoryMmap>,
    pub(super) used: UsedRing<'a, GuestMemoryMmap>,
    pub(super) at: Addresses,
    size: u16,
    free: u16,
    tables: u64,
}

impl<'a> MockRing<'a> {
    pub(super) fn new(shared: &'a Shared, size: u16) -> MockRing<'a> {
        let entries = u64::from(size);
        let (desc, avail) = (0x1000, 0x1000 + 16 * entries);
        let used = avail + (6 + 2 * entries).next_multiple_of(4);
        MockRing {
            desc: DescriptorTable::new(&shared.theirs, GuestAddress(desc), size),
            avail: AvailRing::new(&shared.theirs, GuestAddress(avail), size),
            used: UsedRing::new(&shared.theirs, GuestAddress(used), size),
            at: Addresses { desc: desc + USER, avail: avail + USER, used: used + USER },
            shared,
            size,
            free: 0,
            tables: REGIONS[1].0,
        }
    }

    /// Writes a chain: `direct` pieces in the ring's table, then `indirect` ones in a table.
    pub(super) fn add(&mut self, direct: &[(u64, u32)], indirect: &[(u64, u32)], flags: u16) {
        let head = self.free;
        let last = direct.len() + usize::from(!indirect.is_empty());
        assert!(usize::from(self.size - head) >= last);
        let next_flag = |i: usize, n: usize| if i + 1 < n { NEXT } else { 0 };
        for (i, &range) in direct.iter().enumerate() {
            let flags = flags | next_flag(i, last);
            self.desc.store(self.free, raw(range, flags, self.free + 1)).unwrap();
            self.free += 1;
        }
        if !indirect.is_empty() {
            let n = indirect.len();
            let address = GuestAddress(self.tables);
            let table = DescriptorTable::new(&self.shared.theirs, address, n as u16);
            for (i, &range) in indirect.iter().enumerate() {
                let next = i as u16 + 1;
                table.store(i as u16, raw(range, flags | next_flag(i, n), next)).unwrap();
            }
            let range = (self.tables, table.total_size() as u32);
            self.desc.store(self.free, raw(range, INDIRECT, 0)).unwrap();
            self.tables += table.total_size();
            self.free += 1;
        }
        let idx = self.avail.idx().load();
        self.avail.ring().ref_at(usize::from(idx)).unwrap().store(head);
        self.avail.idx().store(idx + 1);
    }
}
