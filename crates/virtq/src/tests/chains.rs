//! Chains that break the rules: the test provokes each [`Fault`] of a chain, with no other effect.

use std::sync::atomic::Ordering;

use super::kit::{BASE, Forge, READABLE, memory};
use crate::ring::Descriptor;
use crate::{BURST, CHAIN_BYTES_MAX, CHAIN_MAX, Content, Fault, Features, WRITABLE_CHAIN_MAX};

const NEXT: u16 = Descriptor::NEXT;
const WRITE: u16 = Descriptor::WRITE;
const INDIRECT: u16 = Descriptor::INDIRECT;
const MEMORY: u64 = 4 << 20;
const END: u64 = BASE + MEMORY;
const ALL: Features = Features::all().difference(Features::PACKED);

/// First descriptor of a bad chain; 0 to 2 and 100 to 101 are good.
const BAD: u16 = 10;

/// Offers three good chains, a chain by `forge`, then two good ones. Only the first three must be
/// staged, and the ring must stop with `fault`, in both directions.
fn stops(fault: Fault, features: Features, forge: impl Fn(&mut Forge)) {
    for content in [READABLE, Content::Readable { header: 12, keep: false }, Content::Writable] {
        let mut guest = Forge::new(memory(MEMORY), 512, content);
        (0..3).for_each(|index| guest.offer_good(index));
        forge(&mut guest);
        (100..102).for_each(|index| guest.offer_good(index));
        let mut device = guest.device(features);
        assert_eq!(device.stage(BURST), 3);
        assert_eq!(device.fault(), Some(fault));
        let ids: Vec<_> = device.buffers().0.iter().map(|buffer| buffer.ticket.id).collect();
        assert_eq!(ids, [0, 1, 2]);
        device.add_used_all();
        device.publish();
        assert_eq!(guest.ring.used_idx().load(Ordering::Acquire), 3);
        assert_eq!(device.stage(BURST), 0, "nothing after a fault");
        assert!(!device.enable_notification(), "a stopped ring keeps no lane awake");
        assert_eq!(device.position(), 3);
    }
}

fn bad_chain(fault: Fault, forge: impl Fn(&Forge)) {
    stops(fault, ALL, |guest| {
        forge(guest);
        guest.offer(BAD);
    });
}

/// A table of `len` bytes whose entries `forge` writes.
fn bad_table(fault: Fault, len: u32, forge: impl Fn(&Forge, u64)) {
    bad_chain(fault, |guest| {
        let table = guest.data() + 0x1000;
        guest.desc(BAD, (table, len), INDIRECT, 0);
        forge(guest, table);
    });
    // The same, at the end of a chain.
    bad_chain(fault, |guest| {
        let table = guest.data() + 0x1000;
        guest.desc(BAD, (guest.data(), 64), NEXT, BAD + 1);
        guest.desc(BAD + 1, (table, len), INDIRECT, 0);
        forge(guest, table);
    });
}

#[test]
fn bad_head() {
    for head in [512, 513, 0x8000, 0xffff] {
        stops(Fault::BadIndex, ALL, |guest| guest.offer(head));
    }
}

#[test]
fn bad_link() {
    for next in [512, 513, 0xffff] {
        bad_chain(Fault::BadIndex, |guest| {
            guest.desc(BAD, (guest.data(), 64), NEXT, next);
        });
        bad_table(Fault::BadIndex, 512 * 16, |guest, table| {
            guest.entry(table, (guest.data(), 64), NEXT, next);
        });
    }
}

/// CVE-2026-86847 (DPDK): a walk had no bound.
#[test]
fn descriptor_loop() {
    bad_chain(Fault::ChainTooLong, |guest| {
        guest.desc(BAD, (guest.data(), 1), NEXT, BAD);
    });
    bad_chain(Fault::ChainTooLong, |guest| {
        guest.desc(BAD, (guest.data(), 1), NEXT, BAD + 1);
        guest.desc(BAD + 1, (guest.data(), 0), NEXT, BAD);
    });
    bad_table(Fault::ChainTooLong, 16, |guest, table| {
        guest.entry(table, (guest.data(), 1), NEXT, 0);
    });
    // In a ring of two, already the third descriptor is one too many.
    let mut guest = Forge::new(memory(MEMORY), 2, READABLE);
    guest.desc(0, (guest.data(), 1), NEXT, 1);
    guest.desc(1, (guest.data(), 1), NEXT, 0);
    guest.offer(0);
    let mut device = guest.device(ALL);
    assert_eq!(device.stage(1), 0);
    assert_eq!(device.fault(), Some(Fault::ChainTooLong));
}

/// CVE-2020-10725 (DPDK): an address that was not translated was used.
#[test]
fn zero_length_descriptors() {
    // Without bytes a range is still translated, and one outside stops the ring.
    for addr in [END + 1, END + 0x1000, BASE - 1, 0, u64::MAX] {
        bad_chain(Fault::OutsideMemory, |guest| guest.desc(BAD, (addr, 0), 0, 0));
        bad_chain(Fault::OutsideMemory, |guest| {
            guest.desc(BAD, (addr, 0), NEXT, BAD + 1);
            guest.desc(BAD + 1, (guest.data(), 64), 0, 0);
        });
    }
    for content in [READABLE, Content::Writable] {
        let mut guest = Forge::new(memory(MEMORY), 512, content);
        guest.desc(BAD, (guest.data(), 0), NEXT, BAD + 1);
        guest.desc(BAD + 1, (guest.data(), 0), 0, 0);
        guest.offer(BAD);
        let mut device = guest.device(ALL);
        assert_eq!((device.stage(BURST), device.fault()), (1, None));
        assert_eq!(device.buffers().0[0].len, 0);
    }
}

/// Writes a chain of `n` descriptors from 200 on.
fn long_chain(guest: &Forge, n: u16, piece: u32) {
    for i in 0..n {
        let flags = if i + 1 < n { NEXT } else { 0 };
        guest.desc(200 + i, (guest.data(), piece), flags, 201 + i);
    }
}

#[test]
fn too_long() {
    stops(Fault::ChainTooLong, ALL, |guest| {
        long_chain(guest, CHAIN_MAX as u16 + 1, 1);
        guest.offer(200);
    });
    bad_chain(Fault::ChainTooLong, |guest| {
        let table = guest.data() + 0x1000;
        for i in 0..=CHAIN_MAX as u16 {
            guest.entry(table + 16 * u64::from(i), (guest.data(), 1), NEXT, i + 1);
        }
        guest.desc(BAD, (table, 16 * 300), INDIRECT, 0);
    });
}

#[test]
fn a_receive_buffer_has_fewer_pieces() {
    for (pieces, staged, fault) in
        [(WRITABLE_CHAIN_MAX, 1, None), (WRITABLE_CHAIN_MAX + 1, 0, Some(Fault::ChainTooLong))]
    {
        let mut guest = Forge::new(memory(MEMORY), 512, Content::Writable);
        for i in 0..pieces as u16 {
            let flags = if usize::from(i) + 1 < pieces { NEXT } else { 0 };
            guest.desc(i, (guest.data(), 64), flags, i + 1);
        }
        guest.offer(0);
        let mut device = guest.device(ALL);
        assert_eq!((device.stage(BURST), device.fault()), (staged, fault));
    }
}

#[test]
fn the_longest_chain_is_fine() {
    let mut guest = Forge::new(memory(MEMORY), 512, READABLE);
    long_chain(&guest, CHAIN_MAX as u16, 4096);
    guest.offer(200);
    let mut device = guest.device(ALL);
    assert_eq!(device.stage(BURST), 1, "{:?}", device.fault());
    let (buffers, arena) = device.buffers();
    assert_eq!(buffers[0].len, CHAIN_BYTES_MAX);
    assert_eq!(buffers[0].slices(arena).count(), CHAIN_MAX);
}

/// OpenBSD commit 0759b25c59: a chain overflowed the device's buffer.
#[test]
fn chain_too_large() {
    bad_chain(Fault::ChainTooLarge, |guest| {
        guest.desc(BAD, (guest.data(), CHAIN_BYTES_MAX + 1), 0, 0);
    });
    bad_chain(Fault::ChainTooLarge, |guest| {
        guest.desc(BAD, (guest.data(), CHAIN_BYTES_MAX), NEXT, BAD + 1);
        guest.desc(BAD + 1, (guest.data(), 1), 0, 0);
    });
    bad_chain(Fault::ChainTooLarge, |guest| {
        guest.desc(BAD, (guest.data(), 64), NEXT, BAD + 1);
        guest.desc(BAD + 1, (guest.data(), u32::MAX), 0, 0);
    });
    bad_table(Fault::ChainTooLarge, 32, |guest, table| {
        guest.entry(table, (guest.data(), CHAIN_BYTES_MAX), NEXT, 1);
        guest.entry(table + 16, (guest.data(), CHAIN_BYTES_MAX), 0, 0);
    });
}

const OUTSIDE: [(u64, u32); 8] = [
    (BASE - 1, 64), // begins before, ends inside
    (END - 63, 64), // begins inside, ends one past the end
    (END - 1, CHAIN_BYTES_MAX - 64),
    (END, 1),
    (0, 64),
    (u64::MAX, 1),
    (u64::MAX - 31, 64),              // wraps around
    (BASE.wrapping_sub(1 << 32), 64), // equal in the lower 32 bits
];

#[test]
fn outside_memory() {
    for range in OUTSIDE {
        bad_chain(Fault::OutsideMemory, |guest| guest.desc(BAD, range, 0, 0));
        bad_chain(Fault::OutsideMemory, |guest| {
            guest.desc(BAD, (guest.data(), 64), NEXT, BAD + 1);
            guest.desc(BAD + 1, range, 0, 0);
        });
        bad_table(Fault::OutsideMemory, 16, |guest, table| {
            guest.entry(table, range, 0, 0);
        });
    }
    // The table itself.
    for addr in [BASE - 16, END - 16, END, 0, u64::MAX - 15] {
        bad_chain(Fault::OutsideMemory, |guest| {
            guest.desc(BAD, (addr, 32), INDIRECT, 0);
        });
    }
}

#[test]
fn wrong_direction() {
    bad_chain(Fault::WrongDirection, |guest| {
        guest.desc(BAD, (guest.data(), 64), WRITE, 0);
    });
    bad_chain(Fault::WrongDirection, |guest| {
        guest.desc(BAD, (guest.data(), 64), NEXT, BAD + 1);
        guest.desc(BAD + 1, (guest.data(), 64), WRITE, 0);
    });
    bad_table(Fault::WrongDirection, 32, |guest, table| {
        guest.entry(table, (guest.data(), 64), NEXT, 1);
        guest.entry(table + 16, (guest.data(), 64), WRITE, 0);
    });
}

#[test]
fn bad_indirect() {
    let good = |guest: &Forge, table: u64| {
        guest.entry(table, (guest.data(), 64), NEXT, 1);
        guest.entry(table + 16, (guest.data(), 64), 0, 0);
    };
    for len in [0, 1, 15, 17, 33, 16 * 32769, u32::MAX, u32::MAX - 15] {
        bad_table(Fault::BadIndirect, len, good);
    }
    // A table inside a table.
    bad_table(Fault::BadIndirect, 32, |guest, table| {
        guest.entry(table, (table, 32), INDIRECT, 0);
    });
    bad_table(Fault::BadIndirect, 32, |guest, table| {
        guest.entry(table, (guest.data(), 64), NEXT, 1);
        guest.entry(table + 16, (table, 32), INDIRECT, 0);
    });
    // A table with a link behind it.
    bad_chain(Fault::BadIndirect, |guest| {
        let table = guest.data() + 0x1000;
        guest.desc(BAD, (table, 32), INDIRECT | NEXT, BAD + 1);
        guest.desc(BAD + 1, (guest.data(), 64), 0, 0);
        good(guest, table);
    });
    for features in [Features::empty(), Features::EVENT_IDX] {
        stops(Fault::BadIndirect, features, |guest| {
            let table = guest.data() + 0x1000;
            guest.desc(BAD, (table, 32), INDIRECT, 0);
            good(guest, table);
            guest.offer(BAD);
        });
    }
}

#[test]
fn a_chain_may_end_in_a_table_and_the_tables_direction_has_no_meaning() {
    for content in [READABLE, Content::Writable] {
        let mut guest = Forge::new(memory(MEMORY), 512, content);
        let table = guest.data() + 0x1000;
        guest.desc(BAD, (guest.data(), 5), NEXT, BAD + 1);
        // "The device MUST ignore the write-only flag in the descriptor that refers to an indirect
        // table" (2.7.5.3.2): here it is the opposite of right.
        guest.desc(BAD + 1, (table, 32), INDIRECT | WRITE, 0);
        guest.entry(table, (guest.data() + 5, 6), NEXT, 1);
        guest.entry(table + 16, (guest.data() + 11, 7), 0, 0);
        guest.offer(BAD);
        let mut device = guest.device(ALL);
        assert_eq!(device.stage(BURST), 1, "{:?}", device.fault());
        let (buffers, arena) = device.buffers();
        let lens: Vec<_> = buffers[0].slices(arena).map(|slice| slice.len()).collect();
        assert_eq!((lens, buffers[0].len), (vec![5, 6, 7], 18));
    }
}
