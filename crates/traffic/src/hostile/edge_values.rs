//! Edge values for addresses and lengths, and writes to the daemon's fields.

use super::memory::{BurstTarget, HIGH, LOW, RINGS, SIZE, USER};
use report::statistics::random::Random;

/// Guest addresses at the edges of regions, rings and the address space.
pub(super) fn address(random: &mut Random, place: &BurstTarget<'_>) -> u64 {
    let high_end = HIGH + SIZE - RINGS;
    let edges = [
        0,
        1,
        LOW - 1,
        LOW + RINGS - 8,
        LOW + RINGS - 1,
        LOW + RINGS,
        HIGH - 1,
        high_end - 2047,
        high_end - 1,
        high_end,
        USER,
        u64::from(u32::MAX),
        1 << 47,
        1 << 63,
        u64::MAX - 2047,
        u64::MAX,
        place.ring.guest_addr(),
        random.bits(),
    ];
    random.pick(&edges)
}

/// Lengths at the edges of headers, frames and chains.
pub(super) fn length(random: &mut Random) -> u32 {
    const EDGES: [u32; 24] = [
        0,
        1,
        2,
        9,
        10,
        11,
        12,
        13,
        16,
        25,
        26,
        27,
        28,
        29,
        1534,
        1535,
        0xffff,
        0x1_0000,
        1 << 20,
        (1 << 20) + 1,
        (1 << 20) + 12,
        1 << 31,
        u32::MAX - 11,
        u32::MAX,
    ];
    if random.one_in(6) { random.bits() as u32 } else { random.pick(&EDGES) }
}

/// Overwrites the daemon's fields: used ring, used index, flags and events of both sides.
pub(super) fn scribble(place: &BurstTarget<'_>, random: &mut Random) {
    let [_, avail, used] = place.ring.parts();
    let size = u64::from(place.ring.size);
    for _ in 0..random.between(1, 32) {
        let bits = (random.bits() as u16).to_le_bytes();
        let at = match random.below(7) {
            0 => avail,                              // flags
            1 => avail + 4 + 2 * size,               // used event
            2 => avail + 4 + 2 * random.below(size), // an entry
            3 => used,                               // flags
            4 => used + 2,                           // the index
            5 => used + 4 + 8 * size,                // available event
            _ => used + 4 + 8 * random.below(size),  // an entry
        };
        place.memory.at(at).write(0, bits);
    }
}
