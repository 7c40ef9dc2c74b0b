//! The arithmetic of places, against plain counting.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::packed::PackedPosition;
use crate::packed::event::EventSuppression;

/// Position of the `count`th descriptor of all laps.
fn place(count: u32, size: u16) -> PackedPosition {
    let (lap, index) = (count / u32::from(size), count % u32::from(size));
    PackedPosition(index as u16 | if lap.is_multiple_of(2) { 0x8000 } else { 0 })
}

const SIZES: [u16; 8] = [1, 2, 3, 7, 256, 1000, 32767, 32768];

/// Steps that matter in a ring of `size`.
fn steps(size: u16) -> impl Iterator<Item = u16> {
    [0, 1, 2, size / 2, size - 1, size].into_iter().filter(move |n| *n <= size)
}

/// Places that matter in a ring of `size`, in three laps.
fn counts(size: u16) -> impl Iterator<Item = u32> {
    (1..=3).flat_map(move |lap| {
        let start = lap * u32::from(size);
        [start - 1, start, start + 1, start + u32::from(size) / 2]
    })
}

#[test]
fn places_advance_and_are_apart_as_counts_are() {
    for size in SIZES {
        for count in counts(size) {
            for n in steps(size) {
                let (from, to) = (place(count, size), place(count + u32::from(n), size));
                assert_eq!(from.advance(n, size), to, "{count} + {n} of {size}");
                assert_eq!(from.distance(to, size), n, "{count} to {n} more of {size}");
            }
        }
    }
}

#[test]
fn an_event_is_passed_when_its_descriptor_is_among_those_published() {
    for size in [1, 2, 3, 7, 256] {
        for count in counts(size) {
            for n in steps(size).filter(|n| *n > 0) {
                let end = count + u32::from(n);
                // All positions, by counts from a lap before to a lap after.
                for event in end.saturating_sub(2 * u32::from(size))..end {
                    let area = AtomicU32::new(u32::from(place(event, size).0) | 2 << 16);
                    let suppression = EventSuppression { area: &area, event_idx: true };
                    let told =
                        suppression.needs_notification(place(count, size), place(end, size), size);
                    assert_eq!(told, event >= count, "{event}: {count}..{end} of {size}");
                }
            }
        }
    }
}

#[test]
fn flags_of_an_event_area() {
    let notifies = |word: u32, event_idx| {
        let area = AtomicU32::new(word);
        EventSuppression { area: &area, event_idx }.needs_notification(place(3, 8), place(4, 8), 8)
    };
    let at = |index: u32, flags: u32| 0x8000 | index | flags << 16;
    for event_idx in [false, true] {
        assert!(notifies(at(0, 0), event_idx), "enabled");
        assert!(!notifies(at(3, 1), event_idx), "disabled");
        assert!(notifies(at(0, 3), event_idx), "reserved: better once too often");
        assert!(notifies(at(3, 2), event_idx), "that very descriptor");
        assert!(notifies(at(0, 0xfff0), event_idx), "bits that have no meaning yet");
    }
    assert!(!notifies(at(4, 2), true), "the next descriptor");
    assert!(notifies(at(4, 2), false), "not negotiated: as enabled");
    // A descriptor outside of the ring: whatever is said, it is said.
    notifies(at(0x7fff, 2), true);

    let area = AtomicU32::new(0);
    let suppression = |event_idx| EventSuppression { area: &area, event_idx };
    assert!(!suppression(true).enable_notification(place(13, 8), || false));
    assert_eq!(area.load(Ordering::Relaxed), 2 << 16 | 5, "the wrap counter is zero in lap two");
    assert!(suppression(false).enable_notification(place(13, 8), || true));
    assert_eq!(area.load(Ordering::Relaxed) >> 16, 0);
    suppression(true).disable_notification();
    assert_eq!(area.load(Ordering::Relaxed) >> 16, 1);
}

#[test]
fn a_base_is_where_to_use_next_or_else_where_to_take_next() {
    for (base, size, expected) in [
        (0x8000_8000, 256, Some(0x8000)),
        (0x0005_0005, 256, Some(5)),
        (0x8003_8005, 256, Some(0x8003)), // two were taken and not used
        (0x80ff_0001, 256, Some(0x80ff)), // the same across the end
        (0x0000_8000, 256, Some(0x8000)), // a half only
        (0x0000_0007, 256, Some(7)),
        (0, 256, Some(0)),
        (0x8100_8100, 256, None),
        (0x0000_0100, 256, None),
        (0x7fff_7fff, 32768, Some(0x7fff)),
    ] {
        assert_eq!(PackedPosition::of(base, size).map(|place| place.0), expected, "{base:#x}");
    }
    assert_eq!(PackedPosition::FIRST.position(), 0x8000_8000);
}
