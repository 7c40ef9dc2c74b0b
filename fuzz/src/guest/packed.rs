//! Driver of a packed ring, honest or hostile.

use std::collections::VecDeque;

use virtq::{Features, Position};

use super::{BASE, BUFFERS, Guest, INDIRECT, NEXT, REGION, TABLES};
use crate::input::Input;

const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// Position of an honest driver, in descriptors over all laps.
#[derive(Debug)]
pub(super) struct Packed {
    size: u32,
    start: u32,
    avail: u32,
    used: u32,
    /// The id and the direct descriptors of each buffer in flight.
    in_flight: VecDeque<(u16, u16)>,
    next_id: u16,
}

impl Packed {
    /// A ring in its first laps: memory of zeros is what the second finds, too.
    pub(super) fn new(size: u16, input: &mut Input<'_>) -> Packed {
        let start = input.below(3) * u32::from(size);
        let (avail, used) = (start, start);
        Packed { size: size.into(), start, avail, used, in_flight: VecDeque::new(), next_id: 0 }
    }

    fn is_odd_lap(&self, count: u32) -> bool {
        !(count / self.size).is_multiple_of(2)
    }

    fn available(&self, count: u32) -> u16 {
        if self.is_odd_lap(count) { USED } else { AVAIL }
    }

    /// Start position of a device.
    pub(super) fn base(&self) -> Position {
        let wrap = if self.is_odd_lap(self.start) { 0 } else { 0x8000 };
        let half = (self.start % self.size) | wrap;
        half | half << 16
    }
}

impl Guest {
    /// Does one act of a packed ring's driver.
    pub(super) fn act_packed(&mut self, input: &mut Input<'_>) {
        if input.byte() >= self.temper {
            return self.behave_packed(input);
        }
        match input.below(5) {
            0 => {
                let at = BASE + 16 * u64::from(input.u16() % self.size);
                self.write_packed(input, at);
            }
            1 => {
                let at = TABLES + 16 * u64::from(input.below(64));
                self.write_packed(input, at);
            }
            2 => {
                let bytes = input.u64().to_le_bytes();
                self.poke(BASE + u64::from(input.below(0x3000)), bytes);
            }
            3 => {
                let word = input.u32().to_le_bytes();
                self.poke(self.avail_at(0), word);
            }
            _ => {
                // The next descriptor, wrong in one thing.
                let Some(packed) = &self.packed else { return };
                let (index, flags) = (packed.avail % packed.size, packed.available(packed.avail));
                let at = BASE + 16 * u64::from(index);
                self.write_packed(input, at);
                let more = input.pick(&[0, self.right(), self.right() | NEXT, INDIRECT]);
                self.poke(at + 14, (flags | more).to_le_bytes());
            }
        }
    }

    /// Makes one buffer available, by the rules; nothing if the ring is too full for it.
    fn behave_packed(&mut self, input: &mut Input<'_>) {
        let pieces = input.pick(&[1, 1, 1, 2, 3, 5]);
        let indirect = self.features.contains(Features::INDIRECT) && input.flag();
        let direct = if indirect { 1 } else { pieces };
        self.look_for_used();
        let Some(packed) = &mut self.packed else { return };
        if packed.avail - packed.used + u32::from(direct) > packed.size {
            return;
        }
        let (first, id) = (packed.avail, packed.next_id);
        packed.avail += u32::from(direct);
        packed.next_id = id.wrapping_add(1);
        packed.in_flight.push_back((id, direct));
        let table = TABLES + 16 * u64::from(input.below(32));
        for i in 0..u32::from(pieces) {
            let len = input.pick(&[12, 60, 64, 74, 200, 1514, 4096]);
            let addr = BUFFERS + u64::from(input.below((REGION - 0x4000) as u32 - len));
            if indirect {
                self.packed_word(table + 16 * u64::from(i), (addr, len), self.right(), 0);
            } else {
                let more = if i + 1 < u32::from(pieces) { NEXT } else { 0 };
                self.make_available(first + i, (addr, len), self.right() | more, id);
            }
        }
        if indirect {
            self.make_available(first, (table, 16 * u32::from(pieces)), INDIRECT, id);
        }
    }

    fn make_available(&self, count: u32, range: (u64, u32), flags: u16, id: u16) {
        let Some(packed) = &self.packed else { return };
        let at = BASE + 16 * u64::from(count % packed.size);
        self.packed_word(at, range, flags | packed.available(count), id);
    }

    /// Forgets the buffers that the device has used, all up to the one it names.
    fn look_for_used(&mut self) {
        loop {
            let Some(packed) = &self.packed else { return };
            let flags = if packed.is_odd_lap(packed.used) { 0 } else { AVAIL | USED };
            let at = BASE + 16 * u64::from(packed.used % packed.size);
            let (id, found) =
                (u16::from_le_bytes(self.peek(at + 12)), u16::from_le_bytes(self.peek(at + 14)));
            let Some(packed) = &mut self.packed else { return };
            let known = packed.in_flight.iter().any(|(other, _)| *other == id);
            if found & (AVAIL | USED) != flags || !known {
                return;
            }
            while let Some((other, direct)) = packed.in_flight.pop_front() {
                packed.used += u32::from(direct);
                if other == id {
                    break;
                }
            }
        }
    }

    /// Writes a descriptor of which anything may be wrong.
    fn write_packed(&self, input: &mut Input<'_>, at: u64) {
        self.write_descriptor(input, at);
        let state = input.pick(&[0, AVAIL, USED, AVAIL | USED]);
        let direct = u16::from_le_bytes(self.peek(at + 12));
        self.packed_flags(at, direct & !(AVAIL | USED) | state);
    }

    /// A split ring's descriptor has its flags where a packed one has its id.
    fn packed_flags(&self, at: u64, flags: u16) {
        self.poke(at + 14, flags.to_le_bytes());
    }

    fn packed_word(&self, at: u64, (addr, len): (u64, u32), flags: u16, id: u16) {
        self.poke(at, addr.to_le_bytes());
        self.poke(at + 8, len.to_le_bytes());
        self.poke(at + 12, id.to_le_bytes());
        self.packed_flags(at, flags);
    }
}
