//! The order of publishing and notifying, under every interleaving that the memory model allows
//! (loom): never is there an entry, its reader asleep, and its writer of the opinion that it need
//! not notify.

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, fence};

use crate::shared::Shared;
use crate::split::event::Wish;

impl Shared<u16> for AtomicU16 {
    fn load(&self, order: Ordering) -> u16 {
        AtomicU16::load(self, order)
    }
    fn store(&self, value: u16, order: Ordering) {
        AtomicU16::store(self, value, order);
    }
    fn full_fence() {
        fence(Ordering::SeqCst);
    }
}

/// A word without the fence, to show that the tests below would notice.
struct Unfenced(AtomicU16);

impl Shared<u16> for Unfenced {
    fn load(&self, order: Ordering) -> u16 {
        self.0.load(order)
    }
    fn store(&self, value: u16, order: Ordering) {
        self.0.store(value, order);
    }
    fn full_fence() {}
}

/// One direction of a ring: what the writer stores, and what the reader stores.
struct Direction<W> {
    idx: W,
    flags: W,
    event: W,
    event_idx: bool,
}

impl<W: Shared<u16>> Direction<W> {
    /// A direction whose reader polls: it asked not to be notified.
    fn new(word: impl Fn(u16) -> W, event_idx: bool) -> Direction<W> {
        let (idx, flags, event) = (word(0), word(1), word(0x8000));
        Direction { idx, flags, event, event_idx }
    }

    fn wish(&self) -> Wish<'_, W> {
        let (flags, event) = (&self.flags, &self.event);
        Wish { flags, event, event_idx: self.event_idx }
    }

    /// The writer's part: entry `old` is there. Says whether it must notify.
    fn publish(&self, old: u16) -> bool {
        self.idx.store(old + 1, Ordering::Release);
        self.wish().must_notify(old, old + 1)
    }
}

/// A writer publishes two entries; its reader takes what it sees, and goes to sleep.
fn sleep_while_two_are_published<W: Shared<u16> + Send + Sync + 'static>(
    word: fn(u16) -> W,
    event_idx: bool,
) {
    loom::model(move || {
        let ring = Arc::new(Direction::new(word, event_idx));
        let writer = loom::thread::spawn({
            let ring = ring.clone();
            move || [ring.publish(0), ring.publish(1)]
        });
        let taken = ring.idx.load(Ordering::Acquire);
        let awake = ring.wish().arm(taken, &ring.idx);
        let notified = writer.join().unwrap();
        if !awake && taken < 2 {
            // With an event index the notification must be that of the very next entry; without,
            // any later one will do, and the next is the first that can see the flag.
            let missed = usize::from(taken);
            assert!(notified[missed], "asleep at {taken}, notified {notified:?}");
        }
    });
}

/// Two sides publish to each other, and both go to sleep: a ping-pong that must not stop.
fn sleep_on_both_sides<W: Shared<u16> + Send + Sync + 'static>(
    word: fn(u16) -> W,
    event_idx: bool,
) {
    loom::model(move || {
        let avail = Arc::new(Direction::new(word, event_idx));
        let used = Arc::new(Direction::new(word, event_idx));
        let side = |mine: Arc<Direction<W>>, theirs: Arc<Direction<W>>| {
            move || {
                let notify = mine.publish(0);
                let awake = theirs.wish().arm(0, &theirs.idx);
                (notify, awake)
            }
        };
        let device = loom::thread::spawn(side(used.clone(), avail.clone()));
        let (kick, driver_awake) = side(avail, used)();
        let (call, device_awake) = device.join().unwrap();
        assert!(kick || device_awake, "the device sleeps and was not kicked");
        assert!(call || driver_awake, "the driver sleeps and was not called");
    });
}

/// A side that polled, slept, was woken and disarms again may be notified in vain, never missed.
fn sleep_poll_and_sleep_again<W: Shared<u16> + Send + Sync + 'static>(
    word: fn(u16) -> W,
    event_idx: bool,
) {
    loom::model(move || {
        let ring = Arc::new(Direction::new(word, event_idx));
        let writer = loom::thread::spawn({
            let ring = ring.clone();
            move || [ring.publish(0), ring.publish(1)]
        });
        let mut taken = 0;
        if ring.wish().arm(taken, &ring.idx) {
            taken = ring.idx.load(Ordering::Acquire);
            ring.wish().disarm(taken);
            let awake = ring.wish().arm(taken, &ring.idx);
            let notified = writer.join().unwrap();
            assert!(awake || taken == 2 || notified[usize::from(taken)]);
        } else {
            assert!(writer.join().unwrap()[0]);
        }
    });
}

#[test]
fn a_sleeping_reader_is_always_notified() {
    for event_idx in [false, true] {
        sleep_while_two_are_published(AtomicU16::new, event_idx);
        sleep_poll_and_sleep_again(AtomicU16::new, event_idx);
    }
}

#[test]
fn both_sides_may_sleep_at_once() {
    for event_idx in [false, true] {
        sleep_on_both_sides(AtomicU16::new, event_idx);
    }
}

// What the tests above are worth: without the fence, each finds the interleaving that loses a
// notification.

#[test]
#[should_panic = "asleep at"]
fn without_the_fence_a_flag_is_missed() {
    sleep_while_two_are_published(|value| Unfenced(AtomicU16::new(value)), false);
}

#[test]
#[should_panic = "asleep at"]
fn without_the_fence_an_event_index_is_missed() {
    sleep_while_two_are_published(|value| Unfenced(AtomicU16::new(value)), true);
}

#[test]
#[should_panic = "sleeps and was not"]
fn without_the_fence_both_sides_sleep() {
    sleep_on_both_sides(|value| Unfenced(AtomicU16::new(value)), true);
}
