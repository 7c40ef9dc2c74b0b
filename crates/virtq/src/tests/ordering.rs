//! Order of publication and notification, under every interleaving that the memory model allows
//! (loom). The failure to exclude: an entry is there, its reader sleeps, and its writer sends no
//! notification.

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, AtomicU32, fence};

use crate::packed::PackedPosition;
use crate::packed::event::EventSuppression as PackedWish;
use crate::shared::Shared;
use crate::split::event::EventSuppression as SplitWish;

macro_rules! shared {
    ($atomic:ident, $value:ty) => {
        impl Shared<$value> for $atomic {
            fn load(&self, order: Ordering) -> $value {
                $atomic::load(self, order)
            }
            fn store(&self, value: $value, order: Ordering) {
                $atomic::store(self, value, order);
            }
            fn full_fence() {
                fence(Ordering::SeqCst);
            }
        }
    };
}
shared!(AtomicU16, u16);
shared!(AtomicU32, u32);

/// An atomic without the fence, to prove that the tests below detect its absence.
struct Unfenced<A>(A);

impl<T, A: Shared<T>> Shared<T> for Unfenced<A> {
    fn load(&self, order: Ordering) -> T {
        self.0.load(order)
    }
    fn store(&self, value: T, order: Ordering) {
        self.0.store(value, order);
    }
    fn full_fence() {}
}

/// One direction of a ring: stores of the writer, and stores of the reader.
trait Direction: Send + Sync + 'static {
    /// A direction whose reader polls, with notifications disabled.
    fn new(event_idx: bool) -> Self;
    /// Writer: makes entry `old` available. Returns `true` if it must notify.
    fn publish(&self, old: u16) -> bool;
    /// Number of entries that the reader sees.
    fn seen(&self) -> u16;
    /// Reader: wants to sleep until the entry `next` is there.
    fn enable_notification(&self, next: u16) -> bool;
    fn disable_notification(&self, next: u16);
}

struct Split<W> {
    idx: AtomicU16,
    flags: W,
    event: W,
    event_idx: bool,
}

/// An atomic of the model, with its fence or without.
trait Model<T>: Shared<T> + Send + Sync + 'static {
    fn make(value: T) -> Self;
}

impl Model<u16> for AtomicU16 {
    fn make(value: u16) -> Self {
        AtomicU16::new(value)
    }
}

impl Model<u32> for AtomicU32 {
    fn make(value: u32) -> Self {
        AtomicU32::new(value)
    }
}

impl<T: 'static, A: Model<T>> Model<T> for Unfenced<A> {
    fn make(value: T) -> Self {
        Unfenced(A::make(value))
    }
}

impl<W: Model<u16>> Split<W> {
    fn event_suppression(&self) -> SplitWish<'_, W> {
        SplitWish { flags: &self.flags, event: &self.event, event_idx: self.event_idx }
    }
}

impl<W: Model<u16>> Direction for Split<W> {
    fn new(event_idx: bool) -> Self {
        Split { idx: AtomicU16::new(0), flags: W::make(1), event: W::make(0x8000), event_idx }
    }
    fn publish(&self, old: u16) -> bool {
        self.idx.store(old + 1, Ordering::Release);
        self.event_suppression().needs_notification(old, old + 1)
    }
    fn seen(&self) -> u16 {
        self.idx.load(Ordering::Acquire)
    }
    fn enable_notification(&self, next: u16) -> bool {
        self.event_suppression().enable_notification(next, || self.idx.load(Ordering::Acquire))
    }
    fn disable_notification(&self, next: u16) {
        self.event_suppression().disable_notification(next);
    }
}

/// A count stands for the flags of the descriptors: they are seen in order.
struct Packed<W> {
    there: AtomicU16,
    area: W,
    event_idx: bool,
}

/// Two descriptors, so that the wrap counter turns within a test.
const SIZE: u16 = 2;

fn place(count: u16) -> PackedPosition {
    PackedPosition::FIRST.advance(count, SIZE)
}

impl<W: Model<u32>> Packed<W> {
    fn event_suppression(&self) -> PackedWish<'_, W> {
        PackedWish { area: &self.area, event_idx: self.event_idx }
    }
}

impl<W: Model<u32>> Direction for Packed<W> {
    fn new(event_idx: bool) -> Self {
        Packed { there: AtomicU16::new(0), area: W::make(1 << 16), event_idx }
    }
    fn publish(&self, old: u16) -> bool {
        self.there.store(old + 1, Ordering::Release);
        self.event_suppression().needs_notification(place(old), place(old + 1), SIZE)
    }
    fn seen(&self) -> u16 {
        self.there.load(Ordering::Acquire)
    }
    fn enable_notification(&self, next: u16) -> bool {
        self.event_suppression()
            .enable_notification(place(next), || self.there.load(Ordering::Acquire) > next)
    }
    fn disable_notification(&self, _: u16) {
        self.event_suppression().disable_notification();
    }
}

/// A writer publishes two entries; its reader takes those that it sees, then sleeps.
fn sleep_while_two_are_published<D: Direction>(event_idx: bool) {
    loom::model(move || {
        let ring = Arc::new(D::new(event_idx));
        let writer = loom::thread::spawn({
            let ring = ring.clone();
            move || [ring.publish(0), ring.publish(1)]
        });
        let taken = ring.seen();
        let awake = ring.enable_notification(taken);
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
fn sleep_on_both_sides<D: Direction>(event_idx: bool) {
    loom::model(move || {
        let avail = Arc::new(D::new(event_idx));
        let used = Arc::new(D::new(event_idx));
        let side = |mine: Arc<D>, theirs: Arc<D>| {
            move || {
                let notify = mine.publish(0);
                let awake = theirs.enable_notification(0);
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

/// A side that polled, slept, was woken and disables notifications again may get one too many, but
/// misses none.
fn sleep_poll_and_sleep_again<D: Direction>(event_idx: bool) {
    loom::model(move || {
        let ring = Arc::new(D::new(event_idx));
        let writer = loom::thread::spawn({
            let ring = ring.clone();
            move || [ring.publish(0), ring.publish(1)]
        });
        let mut taken = 0;
        if ring.enable_notification(taken) {
            taken = ring.seen();
            ring.disable_notification(taken);
            let awake = ring.enable_notification(taken);
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
        sleep_while_two_are_published::<Split<AtomicU16>>(event_idx);
        sleep_poll_and_sleep_again::<Split<AtomicU16>>(event_idx);
        sleep_while_two_are_published::<Packed<AtomicU32>>(event_idx);
        sleep_poll_and_sleep_again::<Packed<AtomicU32>>(event_idx);
    }
}

#[test]
fn both_sides_may_sleep_at_once() {
    for event_idx in [false, true] {
        sleep_on_both_sides::<Split<AtomicU16>>(event_idx);
        sleep_on_both_sides::<Packed<AtomicU32>>(event_idx);
    }
}

// Value of the tests above: without the fence, each finds the interleaving that loses a
// notification.

#[test]
#[should_panic = "asleep at"]
fn without_the_fence_a_flag_is_missed() {
    sleep_while_two_are_published::<Split<Unfenced<AtomicU16>>>(false);
}

#[test]
#[should_panic = "asleep at"]
fn without_the_fence_a_packed_rings_flag_is_missed() {
    sleep_while_two_are_published::<Packed<Unfenced<AtomicU32>>>(false);
}

#[test]
#[should_panic = "asleep at"]
fn without_the_fence_an_event_index_is_missed() {
    sleep_while_two_are_published::<Split<Unfenced<AtomicU16>>>(true);
}

#[test]
#[should_panic = "asleep at"]
fn without_the_fence_an_event_of_a_packed_ring_is_missed() {
    sleep_while_two_are_published::<Packed<Unfenced<AtomicU32>>>(true);
}

#[test]
#[should_panic = "sleeps and was not"]
fn without_the_fence_both_sides_sleep() {
    sleep_on_both_sides::<Split<Unfenced<AtomicU16>>>(true);
}

#[test]
#[should_panic = "sleeps and was not"]
fn without_the_fence_both_sides_of_packed_rings_sleep() {
    sleep_on_both_sides::<Packed<Unfenced<AtomicU32>>>(true);
}
