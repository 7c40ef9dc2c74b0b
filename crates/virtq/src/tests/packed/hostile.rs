//! Neighbours that break the rules of a packed ring itself, or fill it with anything.

use std::os::fd::AsFd;
use std::sync::Arc;

use guestmem::{GuestMemory, GuestSlice, Mapping, Region};
use proptest::prelude::*;

use super::book::{AVAIL, Book, NEXT, USED, WRITE};
use crate::tests::kit::{BASE, READABLE, bytes_of, is_alone, memory};
use crate::{BURST, CHAIN_BYTES_MAX, Content, DriverQueue, Fault, Features, Segment, Used};

/// CVE-2016-5403 (QEMU): more buffers were taken than the ring has.
#[test]
fn unbounded_pop() {
    for size in [1, 3, 64] {
        let mut guest = Book::new(memory(1 << 20), size, READABLE);
        (0..size).for_each(|id| guest.offer_good(id));
        let mut device = guest.device(Features::empty());
        let staged = device.stage(BURST);
        assert_eq!(staged, usize::from(size));
        device.add_used_batch(&vec![0; staged]); // and not published: all is still ours
        // The next lap, though no buffer of the last was given back.
        guest.written = size.into();
        (0..size).for_each(|id| guest.offer_good(id));
        assert_eq!(device.stage(BURST), 0);
        assert!(!device.has_backlog() && !device.enable_notification());
        device.publish();
        // Now they are valid, except those that were just overwritten.
        assert_eq!(device.stage(BURST), 0);
        assert_eq!(device.fault(), None);
    }
}

/// CVE-2020-10725 (DPDK): an address that was not translated was used.
#[test]
fn zero_length_descriptors_in_a_packed_ring() {
    let end = BASE + (1 << 20);
    for (addr, fault) in [
        (BASE - 1, Some(Fault::OutsideMemory)),
        (end + 1, Some(Fault::OutsideMemory)),
        (u64::MAX, Some(Fault::OutsideMemory)),
        (end - 64, None),
    ] {
        let mut guest = Book::new(memory(1 << 20), 8, Content::Writable);
        let data = guest.data();
        guest.offer(&[((addr, 0), NEXT), ((data, 64), 0)], 3);
        let mut device = guest.device(Features::empty());
        assert_eq!(device.stage(BURST), usize::from(fault.is_none()), "{addr:#x}");
        assert_eq!(device.fault(), fault, "{addr:#x}");
    }
}

#[test]
fn buffers_in_hand_are_not_taken_twice() {
    let mut guest = Book::new(memory(1 << 20), 8, Content::Writable);
    (0..8).for_each(|id| guest.offer_good(id));
    let mut device = guest.device(Features::empty());
    assert_eq!(device.stage(BURST), 8);
    let tickets: Vec<_> = device.buffers().0.iter().map(|buffer| buffer.ticket).collect();
    device.set_aside(8);
    guest.written = 8;
    (0..8).for_each(|id| guest.offer_good(id));
    assert_eq!(device.stage(BURST), 0);
    // Each that is used makes room for one, and no more, once it is shown.
    for ticket in &tickets[..3] {
        device.add_used_set_aside(*ticket, 64);
    }
    assert_eq!(device.stage(BURST), 0);
    device.publish();
    guest.written = 8;
    guest.offer_good(50);
    assert_eq!(device.stage(BURST), 1);
    assert_eq!(device.buffers().0[0].ticket.id, 50);
}

#[test]
fn truncated() {
    if !is_alone("tests::packed::hostile::truncated") {
        return;
    }
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let fd = rustix::fs::memfd_create("shrinks", flags).unwrap();
    rustix::fs::ftruncate(&fd, 1 << 20).unwrap();
    let mapping = Arc::new(Mapping::new(fd.as_fd(), 1 << 20, 0).unwrap());
    let region = Region { guest_addr: BASE, user_addr: BASE, mapping };
    let shrinks = Arc::new(GuestMemory::new(vec![region]).unwrap());
    let mut guest = Book::new(shrinks, 64, READABLE);
    (0..5).for_each(|id| guest.offer_good(id));
    let mut device = guest.device(Features::empty());
    assert_eq!(device.stage(3), 3);
    rustix::fs::ftruncate(&fd, 0).unwrap();
    // The ring is gone, and reads as zeros, which is an empty one: it must be noticed all the same.
    device.add_used_all();
    device.publish();
    assert_eq!(device.stage(BURST), 0);
    assert_eq!(device.fault(), Some(Fault::Truncated));
    assert!(!device.enable_notification());
}

/// A driver with buffers 0, 1 (of three descriptors) and 4 in flight, and the ring.
fn driver_with_three(features: Features) -> (DriverQueue, Book) {
    let memory = memory(1 << 20);
    let features = features | Features::PACKED;
    let mut driver = DriverQueue::new(memory.clone(), BASE, 8, features).unwrap();
    let piece = Segment { addr: BASE + 0x1000, len: 64, writable: true };
    let ids = [driver.post(piece), driver.post_chain(&[piece; 3]), driver.post(piece)];
    assert_eq!(ids, [Some(0), Some(1), Some(4)]);
    driver.publish();
    let addresses = driver.addresses();
    (driver, Book { memory, addresses, size: 8, content: READABLE, written: 0 })
}

#[test]
fn used_entries_without_a_buffer_in_flight_are_ignored() {
    for features in [Features::empty(), Features::IN_ORDER] {
        let (mut driver, ring) = driver_with_three(features);
        // Free; in a list but not its first; outside; in flight; and the same again.
        for (place, id) in [7, 2, 8, 0xffff, 0, 0].into_iter().enumerate() {
            ring.raw(ring.desc_at(place as u32), (0, 12), id, AVAIL | USED | WRITE);
        }
        let mut used = [Used::default(); 8];
        assert_eq!(driver.reap(&mut used), 1, "{features:?}");
        assert_eq!((used[0], driver.strays()), (Used { id: 0, len: 12 }, 5));
        assert_eq!(driver.room(), 4);
        assert_eq!(driver.recycle(), 0);
    }
}

#[test]
fn a_batch_is_reaped_in_parts_and_recycled() {
    let batch = || {
        let (driver, ring) = driver_with_three(Features::IN_ORDER);
        ring.raw(ring.desc_at(0), (0, 12), 4, AVAIL | USED | WRITE);
        (driver, ring)
    };
    let (mut driver, _) = batch();
    let mut used = [Used::default(); 2];
    assert_eq!(driver.used_len(), 3);
    assert_eq!(driver.reap(&mut used), 2);
    assert_eq!(used.map(|used| used.id), [0, 1]);
    assert_eq!((driver.used_len(), driver.enable_notification()), (1, true));
    assert_eq!(driver.reap(&mut used), 1);
    assert_eq!(used[0], Used { id: 4, len: 12 });
    assert_eq!((driver.room(), driver.strays(), driver.enable_notification()), (8, 0, false));

    let (mut driver, ring) = batch();
    assert_eq!((driver.recycle(), driver.room()), (3, 3));
    driver.publish();
    // Behind the earlier ones: one, a list of three that wraps round the end, and one.
    let again: Vec<_> = (5..8).map(|at| (ring.read(at).0, ring.read(at).2)).collect();
    assert_eq!(again, [(0, AVAIL | WRITE), (1, AVAIL | WRITE | NEXT), (1, AVAIL | WRITE | NEXT)]);
    let again: Vec<_> = (0..2).map(|at| (ring.read(at).0, ring.read(at).2)).collect();
    assert_eq!(again, [(1, USED | WRITE), (4, USED | WRITE)]);
}

/// Range of addresses of `slice` in this process.
fn range_of(slice: GuestSlice<'_>) -> std::ops::Range<usize> {
    let start = slice.aligned_array::<u8>(slice.len() as usize).unwrap().addr();
    start..start + slice.len() as usize
}

/// Words with valid addresses, mixed with words without.
fn word() -> impl Strategy<Value = u64> {
    let flags = prop_oneof![Just(AVAIL), Just(USED), Just(AVAIL | USED), Just(0), any::<u16>()];
    prop_oneof![
        (0..64u64 << 10).prop_map(|offset| BASE + offset),
        any::<u64>(),
        (0..300u64, 0..8u16, flags)
            .prop_map(|(len, direct, flags)| { len | u64::from(direct | flags) << 48 }),
        0..4u64,
    ]
}

proptest! {
    #[test]
    fn arbitrary_memory_never_panics_and_lends_nothing_outside(
        words in prop::collection::vec(word(), 600),
        size in 1..40u16,
        place in 0..80u16,
        bits in 0..=Features::all().bits(),
        writable: bool,
        wants in prop::collection::vec((1..80usize, 0..70usize, any::<bool>()), 1..12),
    ) {
        let memory = memory(64 << 10);
        let all = memory.slice(BASE, 64 << 10).unwrap();
        for (i, word) in words.iter().enumerate() {
            all.write(8 * i as u32, word.to_le_bytes());
        }
        let content = if writable { Content::Writable } else { Content::Readable { header: 12, keep: true } };
        let guest = Book::new(memory.clone(), size, content);
        let half = u32::from(place % size) | if place >= size { 0x8000 } else { 0 };
        let start = crate::Start::at(half | half << 16);
        let mut device = guest.device_at(Features::from_bits_truncate(bits), start);
        let inside = range_of(all);
        let mut used = 0;
        for (want, uses, publish) in wants {
            let n = device.stage(want);
            prop_assert!(n <= BURST && used + n <= usize::from(size));
            let (buffers, arena) = device.buffers();
            prop_assert_eq!(buffers.len(), n);
            let descriptors: u32 = buffers.iter().map(|b| u32::from(b.ticket.descriptors)).sum();
            prop_assert!(descriptors <= u32::from(size));
            for buffer in buffers {
                prop_assert!(buffer.len <= CHAIN_BYTES_MAX);
                for slice in buffer.slices(arena).filter(|slice| !slice.is_empty()) {
                    let range = range_of(slice);
                    prop_assert!(inside.start <= range.start && range.end <= inside.end);
                }
                bytes_of(buffer, arena);
            }
            for _ in 0..uses.min(n) {
                device.add_used(1);
                used += 1;
            }
            if publish {
                device.publish();
                used = 0;
            }
            device.enable_notification();
            device.disable_notification();
        }
    }
}
