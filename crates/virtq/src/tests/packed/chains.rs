//! Lists and tables that break the rules: the test provokes each [`Fault`], with no other effect.

use super::book::{AVAIL, Book, INDIRECT, NEXT, Range, USED, WRITE};
use crate::tests::kit::{BASE, READABLE, memory};
use crate::{BURST, CHAIN_BYTES_MAX, CHAIN_MAX, Content, Fault, Features, WRITABLE_CHAIN_MAX};

const MEMORY: u64 = 4 << 20;
const END: u64 = BASE + MEMORY;
const SIZE: u16 = 500;

/// Offers three good buffers, one by `forge`, then two good ones. Only the first three must be
/// staged, and the ring must stop with `fault`, in both directions and at any position.
fn stops(fault: Fault, features: Features, forge: impl Fn(&mut Book)) {
    for content in [READABLE, Content::Readable { header: 12, keep: true }, Content::Writable] {
        let mut guest = Book::new(memory(MEMORY), SIZE, content);
        (0..3).for_each(|id| guest.offer_good(id));
        forge(&mut guest);
        (100..102).for_each(|id| guest.offer_good(id));
        let mut device = guest.device(features);
        assert_eq!(device.stage(BURST), 3, "{fault:?}");
        assert_eq!(device.fault(), Some(fault));
        let ids: Vec<_> = device.buffers().0.iter().map(|buffer| buffer.ticket.id).collect();
        assert_eq!(ids, [0, 1, 2]);
        device.add_used_all();
        device.publish();
        assert!(guest.is_used(0, 0) && guest.is_used(2, 0) && !guest.is_used(3, 0));
        assert_eq!(device.stage(BURST), 0, "nothing after a fault");
        assert!(!device.enable_notification(), "a stopped ring keeps no lane awake");
        assert_eq!(device.position(), 0x8003_8003);
    }
}

fn bad_list(fault: Fault, list: impl Fn(&Book) -> Vec<(Range, u16)>) {
    stops(fault, Features::INDIRECT, |guest| {
        let list = list(guest);
        guest.offer(&list, 7);
    });
}

/// A table of `len` bytes whose entries `forge` writes.
fn bad_table(fault: Fault, len: u32, forge: impl Fn(&Book, u64)) {
    bad_list(fault, |guest| {
        let table = guest.data() + 0x1000;
        forge(guest, table);
        vec![((table, len), INDIRECT)]
    });
}

#[test]
fn too_long() {
    bad_list(Fault::ChainTooLong, |guest| vec![((guest.data(), 1), NEXT); CHAIN_MAX + 1]);
    bad_table(Fault::ChainTooLong, 16 * (CHAIN_MAX as u32 + 1), |guest, table| {
        for i in 0..=CHAIN_MAX as u64 {
            guest.entry(table + 16 * i, (guest.data(), 1), 0);
        }
    });
    // All of the ring, and more.
    for size in [1, 2, 3] {
        let mut guest = Book::new(memory(MEMORY), size, READABLE);
        let list = vec![((guest.data(), 1), NEXT); size.into()];
        guest.offer(&list, 0);
        let mut device = guest.device(Features::empty());
        assert_eq!(device.stage(1), 0);
        assert_eq!(device.fault(), Some(Fault::ChainTooLong));
    }
}

#[test]
fn the_longest_list_and_the_longest_table_are_fine() {
    let mut guest = Book::new(memory(MEMORY), SIZE, READABLE);
    let (data, table) = (guest.data(), guest.data() + 0x2000);
    let mut list = vec![((data, 4096), NEXT); CHAIN_MAX];
    list[CHAIN_MAX - 1].1 = 0;
    guest.offer(&list, 77);
    for i in 0..CHAIN_MAX as u64 {
        // Flags other than that of the direction have no meaning there.
        guest.entry(table + 16 * i, (data, 4096), if i % 2 == 0 { NEXT | AVAIL } else { USED });
    }
    guest.offer(&[((table, 16 * CHAIN_MAX as u32), INDIRECT | WRITE)], 78);
    let mut device = guest.device(Features::INDIRECT);
    assert_eq!(device.stage(1), 1, "{:?}", device.fault());
    let (buffers, arena) = device.buffers();
    let lens = (buffers[0].len, buffers[0].slices(arena).count());
    assert_eq!(lens, (CHAIN_BYTES_MAX, CHAIN_MAX));
    assert_eq!((buffers[0].ticket.id, buffers[0].ticket.descriptors), (77, CHAIN_MAX as u16));
    device.add_used_all();
    device.publish();
    assert_eq!(device.stage(1), 1, "{:?}", device.fault());
    let (buffers, arena) = device.buffers();
    assert_eq!(buffers[0].slices(arena).count(), CHAIN_MAX);
    assert_eq!((buffers[0].ticket.id, buffers[0].ticket.descriptors), (78, 1));
    device.add_used_all();
    device.publish();
    let (id, _, flags) = guest.read(CHAIN_MAX as u32);
    assert_eq!((id, flags), (78, AVAIL | USED), "behind all of the list");
    assert_eq!(guest.read(0).0, 77);
    assert!(!guest.is_used(1, 0), "a list is used by its first descriptor alone");
}

#[test]
fn a_receive_buffer_has_fewer_pieces() {
    for (pieces, staged, fault) in
        [(WRITABLE_CHAIN_MAX, 1, None), (WRITABLE_CHAIN_MAX + 1, 0, Some(Fault::ChainTooLong))]
    {
        for is_table in [false, true] {
            let mut guest = Book::new(memory(MEMORY), SIZE, Content::Writable);
            let (data, table) = (guest.data(), guest.data() + 0x2000);
            let mut list = vec![((data, 64), NEXT); pieces];
            list[pieces - 1].1 = 0;
            for i in 0..pieces as u64 {
                guest.entry(table + 16 * i, (data, 64), 0);
            }
            if is_table {
                list = vec![((table, 16 * pieces as u32), INDIRECT)];
            }
            guest.offer(&list, 0);
            let mut device = guest.device(Features::INDIRECT);
            assert_eq!((device.stage(1), device.fault()), (staged, fault), "{is_table}");
        }
    }
}

#[test]
fn too_large() {
    bad_list(Fault::ChainTooLarge, |guest| vec![((guest.data(), CHAIN_BYTES_MAX + 1), 0)]);
    bad_list(Fault::ChainTooLarge, |guest| {
        vec![((guest.data(), CHAIN_BYTES_MAX), NEXT), ((guest.data(), 1), 0)]
    });
    bad_list(Fault::ChainTooLarge, |guest| {
        vec![((guest.data(), 64), NEXT), ((guest.data(), u32::MAX), 0)]
    });
    bad_table(Fault::ChainTooLarge, 32, |guest, table| {
        guest.entry(table, (guest.data(), CHAIN_BYTES_MAX), 0);
        guest.entry(table + 16, (guest.data(), CHAIN_BYTES_MAX), 0);
    });
}

#[test]
fn outside_memory() {
    for range in [
        (BASE - 1, 64),
        (END - 63, 64),
        (END, 1),
        (0, 64),
        (u64::MAX, 1),
        (u64::MAX - 31, 64),
        (BASE.wrapping_sub(1 << 32), 64),
    ] {
        bad_list(Fault::OutsideMemory, |_| vec![(range, 0)]);
        bad_list(Fault::OutsideMemory, |guest| vec![((guest.data(), 64), NEXT), (range, 0)]);
        bad_table(Fault::OutsideMemory, 16, |guest, table| guest.entry(table, range, 0));
    }
    for addr in [BASE - 16, END - 16, END, 0, u64::MAX - 15] {
        bad_list(Fault::OutsideMemory, |_| vec![((addr, 32), INDIRECT)]);
    }
}

#[test]
fn wrong_direction() {
    bad_list(Fault::WrongDirection, |guest| vec![((guest.data(), 64), WRITE)]);
    bad_list(Fault::WrongDirection, |guest| {
        vec![((guest.data(), 64), NEXT), ((guest.data(), 64), WRITE)]
    });
    bad_table(Fault::WrongDirection, 32, |guest, table| {
        guest.entry(table, (guest.data(), 64), 0);
        guest.entry(table + 16, (guest.data(), 64), WRITE);
    });
}

#[test]
fn bad_indirect() {
    let good = |guest: &Book, table: u64| {
        guest.entry(table, (guest.data(), 64), 0);
        guest.entry(table + 16, (guest.data(), 64), 0);
    };
    for len in [0, 1, 15, 17, 33, 16 * 32769, u32::MAX, u32::MAX - 15] {
        bad_table(Fault::BadIndirect, len, good);
    }
    // A table inside a table.
    bad_table(Fault::BadIndirect, 32, |guest, table| {
        guest.entry(table, (guest.data(), 64), 0);
        guest.entry(table + 16, (table, 32), INDIRECT);
    });
    // A table with something behind it, and a table behind something.
    bad_list(Fault::BadIndirect, |guest| {
        let table = guest.data() + 0x1000;
        good(guest, table);
        vec![((table, 32), INDIRECT | NEXT), ((guest.data(), 64), 0)]
    });
    bad_list(Fault::BadIndirect, |guest| {
        let table = guest.data() + 0x1000;
        good(guest, table);
        vec![((guest.data(), 64), NEXT), ((table, 32), INDIRECT)]
    });
    for features in [Features::empty(), Features::EVENT_IDX] {
        stops(Fault::BadIndirect, features, |guest| {
            let table = guest.data() + 0x1000;
            good(guest, table);
            guest.offer(&[((table, 32), INDIRECT)], 5);
        });
    }
}
