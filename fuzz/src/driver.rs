//! A hostile device against the driver's side.

use std::collections::BTreeMap;

use virtq::{DriverQueue, Features, Segment, Used};

use crate::Reached;
use crate::guest::{BASE, USER, memory};
use crate::input::Input;

struct Ring {
    queue: DriverQueue,
    memory: std::sync::Arc<guestmem::GuestMemory>,
    packed: bool,
    /// Heads in flight, and how many descriptors each has.
    in_flight: BTreeMap<u16, usize>,
    next_used: u16,
    reached: Reached,
}

impl Ring {
    fn new(input: &mut Input<'_>) -> Ring {
        let memory = memory();
        let features = Features::from_bits_truncate(input.byte());
        let packed = features.contains(Features::PACKED);
        let size = if packed { 1 + input.below(255) as u16 } else { 1 << input.below(8) };
        let queue = DriverQueue::new(memory.clone(), BASE + USER, size, features)
            .expect("a ring inside the memory");
        let in_flight = BTreeMap::new();
        Ring { queue, memory, packed, in_flight, next_used: 0, reached: Reached::default() }
    }

    fn room(&self) -> usize {
        usize::from(self.queue.size()) - self.in_flight.values().sum::<usize>()
    }

    /// Posts a buffer in one of the three ways.
    fn post(&mut self, input: &mut Input<'_>) {
        let room = self.room();
        assert_eq!(self.queue.room(), room, "a descriptor was lost, or is free twice");
        let piece = Segment { addr: BASE, len: 64, writable: input.flag() };
        let pieces = vec![piece; input.below(6) as usize];
        let (head, descriptors) = match input.below(4) {
            0 => (self.queue.post_chain(&pieces), pieces.len()),
            1 => {
                let table = input.pick(&[BASE + 0x8000, BASE + 0x8008, u64::MAX - 7, 0]);
                let head = self.queue.post_indirect(&pieces, table);
                assert!(head.is_none() || !pieces.is_empty() && table >= BASE);
                (head, 1)
            }
            _ => (self.queue.post(piece), 1),
        };
        if let Some(head) = head {
            assert!(descriptors <= room);
            assert_eq!(self.in_flight.insert(head, descriptors), None, "handed out twice");
            self.reached.add("buffers", 1);
            self.reached.add("buffers in pieces", u64::from(descriptors > 1));
        }
    }

    /// A packed ring's: each buffer in flight comes back once, whatever else there is.
    fn reap_packed(&mut self, most: usize) {
        let strays = self.queue.strays();
        self.queue.used_len(); // which may be wrong where the device lies
        let mut used = [Used::default(); 300];
        let n = self.queue.reap(&mut used[..most]);
        for used in &used[..n] {
            assert!(self.in_flight.remove(&used.id).is_some(), "reaped what was not in flight");
        }
        self.reached.add("done", n as u64);
        self.reached.add("refused", self.queue.strays() - strays);
    }

    fn reap(&mut self, most: usize) {
        if self.packed {
            return self.reap_packed(most);
        }
        let (strays, waiting) = (self.queue.strays(), u64::from(self.queue.used_len()));
        let mut used = [Used::default(); 300];
        let n = self.queue.reap(&mut used[..most]);
        let skipped = self.queue.strays() - strays;
        let looked_at = n as u64 + skipped;
        assert!(looked_at <= waiting && (looked_at == waiting || n == most));
        let mut reaped = used[..n].iter();
        for _ in 0..looked_at {
            let (id, len) = self.used_entry(self.next_used);
            self.next_used = self.next_used.wrapping_add(1);
            let known = u16::try_from(id).is_ok_and(|id| self.in_flight.remove(&id).is_some());
            if known {
                let id = id as u16;
                assert_eq!(reaped.next(), Some(&Used { id, len }));
            }
        }
        assert!(reaped.next().is_none(), "reaped what was not in flight");
        self.reached.add("done", n as u64);
        self.reached.add("refused", skipped);
    }

    fn recycle(&mut self) {
        if self.packed {
            let strays = self.queue.strays();
            let count = usize::from(self.queue.recycle());
            assert!(count <= usize::from(self.queue.size()));
            self.reached.add("refused", self.queue.strays() - strays);
            return;
        }
        let (strays, waiting) = (self.queue.strays(), self.queue.used_len());
        let in_flight =
            |id: u32| u16::try_from(id).is_ok_and(|id| self.in_flight.contains_key(&id));
        let positions = (0..waiting).map(|i| self.next_used.wrapping_add(i));
        let known = positions.filter(|at| in_flight(self.used_entry(*at).0)).count();
        assert_eq!(usize::from(self.queue.recycle()), known, "recycled what was not in flight");
        self.next_used = self.next_used.wrapping_add(waiting);
        let skipped = self.queue.strays() - strays;
        assert_eq!(known as u64 + skipped, u64::from(waiting));
        self.reached.add("refused", skipped);
    }

    /// Reads an entry of the used ring.
    fn used_entry(&self, position: u16) -> (u32, u32) {
        let entry = u64::from(position % self.queue.size());
        let at = self.queue.addresses().used - USER + 4 + 8 * entry;
        let word = u64::from_le_bytes(self.memory.slice(at, 8).expect("the used ring").read(0));
        (word as u32, (word >> 32) as u32)
    }

    fn poke<const N: usize>(&self, user_addr: u64, bytes: [u8; N]) {
        if let Some(slice) = self.memory.slice(user_addr - USER, N as u32) {
            slice.write(0, bytes);
        }
    }

    /// Uses one buffer: one in flight if there is one, or any other.
    fn use_one(&self, input: &mut Input<'_>, position: u16) {
        let mut heads = self.in_flight.keys();
        let honest = heads.nth(usize::from(input.byte()) % self.in_flight.len().max(1));
        let id = match (honest, input.below(8)) {
            (Some(head), 1..) => u32::from(*head),
            (_, 0) if input.flag() => input.u32(),
            _ => u32::from(input.u16() % self.queue.size()),
        };
        let entry = u64::from(position % self.queue.size());
        if self.packed {
            // Used in one lap or another: a position counts on through all of them.
            let odd = !(position / self.queue.size()).is_multiple_of(2);
            let flags: u64 = if odd { input.pick(&[0, 2]) } else { input.pick(&[0x8080, 0x8082]) };
            let word = u64::from(input.u16()) | u64::from(id as u16) << 32 | flags << 48;
            self.poke(self.queue.addresses().desc + 16 * entry + 8, word.to_le_bytes());
            return;
        }
        let word = u64::from(id) | u64::from(input.u16()) << 32;
        self.poke(self.queue.addresses().used + 4 + 8 * entry, word.to_le_bytes());
    }

    fn set_used_idx(&self, idx: u16) {
        if self.packed {
            return;
        }
        self.poke(self.queue.addresses().used + 2, idx.to_le_bytes());
    }

    /// Writes anything anywhere in the ring.
    fn scribble(&self, input: &mut Input<'_>) {
        let bytes = DriverQueue::bytes(self.queue.size()) as u32;
        let at = BASE + USER + u64::from(input.below(bytes));
        self.poke(at, input.u64().to_le_bytes());
    }
}

/// `data` is a hostile device's acts, and what the driver does.
pub(crate) fn driver_ring(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut ring = Ring::new(&mut input);
    let mut used = 0u16;
    while !input.is_empty() {
        match input.below(24) {
            0..=7 => ring.post(&mut input),
            8 | 9 => {
                ring.queue.publish();
            }
            10 | 11 => {
                let most = input.pick(&[0, 1, 2, 64, 300]);
                ring.reap(most);
            }
            12 if input.below(4) == 0 => ring.recycle(),
            13 => {
                ring.queue.enable_notification();
            }
            14 => ring.queue.disable_notification(),
            15..=20 => {
                ring.use_one(&mut input, used);
                used = used.wrapping_add(1);
                ring.set_used_idx(used);
            }
            21 if input.below(8) == 0 => {
                let size = ring.queue.size();
                let jump = input.pick(&[1, 2, size, size + 1, 500, u16::MAX]);
                used = used.wrapping_add(jump);
                ring.set_used_idx(used);
            }
            22 => ring.scribble(&mut input),
            _ => (),
        }
    }
    // Whatever the device did, the driver's own books are in order.
    ring.reap(300);
    assert_eq!(ring.queue.room(), ring.room());
    ring.reached
}
