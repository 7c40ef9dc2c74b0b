//! Bursts of descriptors, most of them mutated.

use super::edge_values;
use super::memory::{
    BurstTarget, Descriptor, HIGH, INDIRECT, NEXT, RINGS, RawRing, SEND_SLOTS, SIZE, SLOTS, WRITE,
};
use report::statistics::random::Random;

/// Maximum descriptors in a batch.
const BATCH: u64 = 64;
/// Writes during the daemon's reading in one race.
const RACE: u32 = 300;

/// Mutation of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// No mutation.
    Good,
    /// One descriptor.
    One,
    /// About a quarter of the descriptors.
    Many,
    /// Chains: long ones, loops, empty pieces.
    Chains,
    /// Indirect tables.
    Tables,
    /// Random bits in all descriptors and heads.
    Garbage,
    /// The available index.
    Jump,
    /// Fields that the daemon writes: used ring, flags, event indices.
    Scribble,
    /// Valid when published, and changed while the daemon reads.
    Race,
    /// Receive buffers of a few bytes, overlapping ones, and the ring itself as a buffer.
    Crumbs,
}

impl Style {
    const ALL: [Style; 10] = [
        Style::Good,
        Style::One,
        Style::Many,
        Style::Chains,
        Style::Tables,
        Style::Garbage,
        Style::Jump,
        Style::Scribble,
        Style::Race,
        Style::Crumbs,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Style::Good => "burst good",
            Style::One => "burst one descriptor",
            Style::Many => "burst many descriptors",
            Style::Chains => "burst chains",
            Style::Tables => "burst indirect tables",
            Style::Garbage => "burst garbage",
            Style::Jump => "burst index jump",
            Style::Scribble => "burst scribbled rings",
            Style::Race => "burst race",
            Style::Crumbs => "burst crumbs",
        }
    }
}

/// Writes a batch and publishes it; returns its mutation.
pub(super) fn write(place: &BurstTarget<'_>, random: &mut Random, ring: &mut RawRing) -> Style {
    let style = random.pick(&Style::ALL);
    let n = random.between(1, BATCH.min(ring.size.into())) as u16;
    let mut avail = ring.avail.wrapping_add(n);
    match style {
        Style::Chains => chains(place, random, n),
        Style::Tables => tables(place, random, n),
        Style::Garbage => garbage(place, random, n),
        Style::Crumbs if ring.receives() => crumbs(place, random, n),
        _ => good(place, random, n),
    }
    match style {
        Style::One => mutate(place, random, 0, n.into()),
        Style::Many => (0..u64::from(n)).for_each(|at| {
            if random.one_in(4) {
                mutate(place, random, at, 1);
            }
        }),
        Style::Jump => avail = jump(random, ring),
        Style::Scribble => edge_values::scribble(place, random),
        _ => {}
    }
    ring.publish(place.memory, avail);
    style
}

/// Changes descriptors and frames while the daemon reads them, after a burst of [`Style::Race`].
pub(super) fn race(style: Style, place: &BurstTarget<'_>, random: &mut Random) {
    if style != Style::Race {
        return;
    }
    for _ in 0..RACE {
        let at = random.below(place.ring.size.into());
        match random.below(4) {
            0 => mutate(place, random, at, 1),
            1 => place.ring.set(place.memory, at as u16, simple(place, random)),
            2 => place.ring.set_head(place.memory, at as u16, random.bits() as u16),
            _ => {
                let (slot, _) = place.memory.slot(random.below(SEND_SLOTS));
                slot.write(12 + random.below(3) as u32 * 6, random.bits().to_le_bytes());
            }
        }
    }
}

/// A valid descriptor.
pub(super) fn simple(place: &BurstTarget<'_>, random: &mut Random) -> Descriptor {
    if place.ring.receives() {
        let slot = random.between(SEND_SLOTS, SLOTS - 1);
        Descriptor { addr: place.memory.slot(slot).1, len: 2048, flags: WRITE, next: 0 }
    } else {
        let slot = random.below(SEND_SLOTS);
        let len = place.lens[slot as usize];
        Descriptor { addr: place.memory.slot(slot).1, len, flags: 0, next: 0 }
    }
}

/// Writes `n` heads, each a valid single descriptor, from a random one on.
fn good(place: &BurstTarget<'_>, random: &mut Random, n: u16) {
    let first = random.bits() as u16;
    for i in 0..n {
        let head = first.wrapping_add(i) & (place.ring.size - 1);
        place.ring.set(place.memory, head, simple(place, random));
        place.ring.set_head(place.memory, i, head);
    }
}

/// Mutates one of the `n` heads from `from` on, or its descriptor.
fn mutate(place: &BurstTarget<'_>, random: &mut Random, from: u64, n: u64) {
    let at = (from + random.below(n)) as u16;
    let head = random.bits() as u16;
    if random.one_in(12) {
        return place.ring.set_head(place.memory, at, head);
    }
    let good = simple(place, random);
    place.ring.set(place.memory, head, spoil(place, random, good));
    place.ring.set_head(place.memory, at, head & (place.ring.size - 1));
}

/// Mutates one field of a valid descriptor.
pub(super) fn spoil(place: &BurstTarget<'_>, random: &mut Random, good: Descriptor) -> Descriptor {
    let mut bad = good;
    let (size, any) = (place.ring.size, random.bits());
    match random.below(12) {
        0 | 1 => bad.addr = edge_values::address(random, place),
        2 | 3 => bad.len = edge_values::length(random),
        4 => bad.flags ^= WRITE,
        5 => bad.flags = any as u16,
        6 => {
            bad.flags |= NEXT;
            bad.next = random.pick(&[0, size - 1, size, u16::MAX, any as u16]);
        }
        7 => bad.flags |= random.pick(&[INDIRECT, INDIRECT | NEXT, INDIRECT | WRITE]),
        8 => bad.addr = place.ring.guest_addr() + random.below(128 << 10),
        9 => bad.addr = 0u64.wrapping_sub(random.below(u64::from(bad.len) + 16)),
        10 => bad.len = 0,
        _ => {
            bad = Descriptor {
                addr: random.bits(),
                len: random.bits() as u32,
                flags: random.bits() as u16,
                next: random.bits() as u16,
            }
        }
    }
    bad
}

/// Chains through the whole table; a few are valid.
fn chains(place: &BurstTarget<'_>, random: &mut Random, n: u16) {
    let size = place.ring.size;
    let mut next = random.bits() as u16;
    for i in 0..n {
        let head = next & (size - 1);
        place.ring.set_head(place.memory, i, head);
        let pieces = match random.below(8) {
            0 => random.between(1, 300) as u16,
            _ => random.between(1, 5) as u16,
        };
        for piece in 0..pieces {
            let here = next & (size - 1);
            next = next.wrapping_add(1);
            let mut descriptor = simple(place, random);
            descriptor.len = if random.one_in(8) { 0 } else { descriptor.len / u32::from(pieces) };
            if piece + 1 < pieces {
                descriptor.flags |= NEXT;
                descriptor.next = next & (size - 1);
            } else if random.one_in(8) {
                descriptor.flags |= NEXT;
                descriptor.next = random.pick(&[here, head]); // a loop
            }
            if random.one_in(64) {
                descriptor = spoil(place, random, descriptor);
            }
            place.ring.set(place.memory, here, descriptor);
        }
    }
}

/// Indirect tables, valid and invalid.
fn tables(place: &BurstTarget<'_>, random: &mut Random, n: u16) {
    for i in 0..n {
        let head = random.bits() as u16 & (place.ring.size - 1);
        let (table, addr) = place.memory.table(u64::from(i));
        let entries = match random.below(8) {
            0 => random.between(1, 256) as u32,
            _ => random.between(1, 6) as u32,
        };
        for entry in 0..entries {
            let mut piece = simple(place, random);
            piece.len /= entries;
            if entry + 1 < entries {
                piece.flags |= NEXT;
                piece.next = entry as u16 + 1;
            }
            if random.one_in(32) {
                piece = spoil(place, random, piece);
            }
            piece.write(table, entry);
        }
        let mut outer = Descriptor { addr, len: entries * 16, flags: INDIRECT, next: 0 };
        if random.one_in(8) {
            outer.len = random.pick(&[0, 8, 15, 17, 16 * 257, 16 * 32768, 16 * 32769, u32::MAX]);
        }
        if random.one_in(16) {
            outer.addr =
                random.pick(&[place.ring.guest_addr(), HIGH + SIZE - RINGS - 16, addr + 1]);
        }
        if random.one_in(32) {
            outer = spoil(place, random, outer);
        }
        place.ring.set(place.memory, head, outer);
        place.ring.set_head(place.memory, i, head);
    }
}

fn garbage(place: &BurstTarget<'_>, random: &mut Random, n: u16) {
    for i in 0..n {
        let descriptor = Descriptor {
            addr: random.bits(),
            len: random.bits() as u32,
            flags: random.bits() as u16,
            next: random.bits() as u16,
        };
        place.ring.set(place.memory, random.bits() as u16, descriptor);
        place.ring.set_head(place.memory, i, random.bits() as u16);
    }
}

/// Receive buffers that are valid and useless.
fn crumbs(place: &BurstTarget<'_>, random: &mut Random, n: u16) {
    let first = random.bits() as u16;
    let tiny = random.between(1, 64) as u32;
    for i in 0..n {
        let head = first.wrapping_add(i) & (place.ring.size - 1);
        let mut buffer = simple(place, random);
        match random.below(4) {
            0 => buffer.addr = place.ring.guest_addr() + random.below(128 << 10),
            1 => buffer.addr = place.memory.slot(0).1 + random.below(4096),
            _ => buffer.len = tiny,
        }
        place.ring.set(place.memory, head, buffer);
        place.ring.set_head(place.memory, i, head);
    }
}

/// An available index that no valid driver publishes.
fn jump(random: &mut Random, ring: &RawRing) -> u16 {
    let (size, any) = (ring.size, random.bits() as u16);
    let by = random.pick(&[0, size, size + 1, 0x8000, 0xffff, 0xfff0, any]);
    ring.avail.wrapping_add(by)
}
