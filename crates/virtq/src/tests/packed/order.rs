//! Used descriptors: position, order and contents.

use super::book::{AVAIL, Book, NEXT, USED, WRITE};
use crate::tests::kit::{READABLE, memory};
use crate::{BURST, Content, DriverQueue, Features, Segment, SetupError, Start, Used};

/// A guest with buffers of one, three and one descriptors, with ids out of order.
fn guest(content: Content) -> Book {
    let mut guest = Book::new(memory(1 << 20), 7, content);
    guest.offer_good(4);
    let piece = (guest.data(), 64);
    guest.offer(&[(piece, NEXT), (piece, NEXT), (piece, 0)], 0xbeef);
    guest.offer_good(1);
    guest
}

#[test]
fn nothing_is_written_before_it_is_published_and_lists_are_skipped() {
    let guest = guest(Content::Writable);
    let before: Vec<_> = (0..7).map(|index| guest.read(index)).collect();
    let mut device = guest.device(Features::empty());
    assert_eq!(device.stage(BURST), 3);
    device.add_used(10);
    device.add_used_batch(&[20, 0]);
    let after: Vec<_> = (0..7).map(|index| guest.read(index)).collect();
    assert_eq!(before, after, "a later owner must find it as it was");
    device.publish();
    assert_eq!(guest.read(0), (4, 10, AVAIL | USED | WRITE));
    assert_eq!(guest.read(1), (0xbeef, 20, AVAIL | USED | WRITE));
    assert_eq!(guest.read(4), (1, 0, AVAIL | USED), "nothing written: not marked as written");
    assert_eq!([2, 3].map(|i| guest.read(i)), [before[2], before[3]]);
    assert_eq!(device.position(), 0x8005_8005);
}

#[test]
fn one_descriptor_stands_for_a_burst_that_is_sent_in_order() {
    for (content, one) in [(READABLE, true), (Content::Writable, false)] {
        let guest = guest(content);
        let mut device = guest.device(Features::IN_ORDER);
        device.stage(BURST);
        device.add_used(0);
        device.add_used_batch(&[0, 0]);
        device.publish();
        // Id of the last buffer, position of the first.
        let expected = if one { [1, 0, 0] } else { [4, 0xbeef, 1] };
        assert!(guest.is_used(0, 0) && guest.read(0).0 == expected[0]);
        assert_eq!(guest.is_used(1, 0), !one, "lengths of what was received are told");
        assert_eq!(guest.is_used(4, 0), !one);
        assert_eq!(device.position(), 0x8005_8005);
    }
}

#[test]
fn laps_turn_the_flags_round() {
    let mut guest = Book::new(memory(1 << 20), 3, READABLE);
    let mut device = guest.device(Features::empty());
    for lap in 0..5 {
        for index in 0..3 {
            assert_eq!(device.stage(1), 0);
            guest.offer_good(9);
            assert!(device.has_backlog());
            assert_eq!(device.stage(2), 1);
            device.add_used_all();
            assert!(!guest.is_used(index, lap));
            device.publish();
            assert!(guest.is_used(index, lap), "{lap}, {index}");
        }
    }
}

#[test]
fn a_ring_taken_over_at_any_place_goes_on_there() {
    for at in 0..21 {
        let mut guest = Book::new(memory(1 << 20), 7, READABLE);
        let mut device = guest.device(Features::empty());
        for id in 0..at {
            guest.offer_good(id);
            device.stage(1);
            device.add_used_all();
            device.publish();
        }
        (30..34).for_each(|id| guest.offer_good(id));
        assert_eq!(device.stage(BURST), 4);
        device.add_used(0); // and not published
        let start = Start::at(device.position());
        let mut next = guest.device_at(Features::empty(), start);
        assert_eq!(next.stage(BURST), 4, "{at}");
        assert_eq!(next.buffers().0[0].ticket.id, 30);
    }
}

#[test]
fn buffers_are_taken_by_the_last_flags_that_are_written() {
    let memory = memory(1 << 20);
    let features = Features::PACKED | Features::INDIRECT;
    let mut driver =
        DriverQueue::new(memory.clone(), crate::tests::kit::BASE, 5, features).unwrap();
    let book =
        Book { memory, addresses: driver.addresses(), size: 5, content: READABLE, written: 0 };
    let piece = Segment { addr: book.data(), len: 64, writable: false };
    driver.post_chain(&[piece; 2]).unwrap();
    driver.post(piece).unwrap();
    assert_eq!(book.read(0).2 & (AVAIL | USED), 0, "the first is written last");
    assert_eq!(book.read(1).2, AVAIL);
    assert_eq!(book.read(2).2, AVAIL);
    driver.publish();
    assert_eq!(book.read(0), (0, 64, AVAIL | NEXT));
    // A device by the book uses them the other way round: a driver knows them by their ids.
    book.raw(book.desc_at(0), (0, 0), 2, AVAIL | USED);
    book.raw(book.desc_at(1), (0, 99), 0, AVAIL | USED | WRITE);
    let mut used = [Used::default(); 5];
    assert_eq!((driver.used_len(), driver.reap(&mut used)), (2, 2));
    assert_eq!(used[..2], [Used { id: 2, len: 0 }, Used { id: 0, len: 99 }]);
    assert_eq!((driver.room(), driver.strays()), (5, 0));
}

#[test]
fn sizes_and_places_that_are_none() {
    let guest = Book::new(memory(1 << 20), 256, READABLE);
    let memory = guest.memory.clone();
    let at = guest.addresses;
    let new = |at: &crate::Addresses, size, base| {
        let (memory, start) = (memory.clone(), Start::at(base));
        crate::DeviceQueue::new(memory, at, size, Features::PACKED, READABLE, start).err()
    };
    for size in [1, 3, 255, 256, 257, 32768] {
        let error = new(&at, size, 0x8000_8000);
        assert_eq!(error, None, "{size}");
    }
    for size in [0, 32769, 65535] {
        assert_eq!(new(&at, size, 0x8000_8000), Some(SetupError::PackedSize(size)));
    }
    let base = 0x8100_8100;
    assert_eq!(new(&at, 256, base), Some(SetupError::Base { size: 256, base }));
    for (part, bad) in [
        ("descriptor ring", crate::Addresses { desc: at.desc + 8, ..at }),
        ("driver event area", crate::Addresses { avail: at.avail + 2, ..at }),
        ("device event area", crate::Addresses { used: at.used + 2, ..at }),
    ] {
        let error = new(&bad, 256, 0x8000_8000);
        assert!(
            matches!(error, Some(SetupError::Alignment { part: found, .. }) if found == part),
            "{error:?}"
        );
    }
}
