//! Rings over plain memory: the kernel's side is simulated by hand, or by the other handle.

use super::kit::{layout, other_end, ring};
use super::*;

#[test]
fn entries_are_seen_when_they_are_shown() {
    let shared = ring::<u64>(4);
    let mut consumer = Consumer::over(other_end(&shared));
    let mut producer = Producer::over(shared);
    assert!(producer.put(7) && producer.put(8));
    assert_eq!((consumer.peek(4), producer.pending()), (0, 0));
    producer.submit();
    assert_eq!((consumer.peek(4), producer.pending()), (2, 2));
    assert_eq!((consumer.take(), consumer.take(), consumer.take()), (Some(7), Some(8), None));
    assert_eq!(producer.pending(), 2);
    consumer.release();
    assert_eq!(producer.pending(), 0);
}

#[test]
fn a_full_ring_takes_nothing_until_its_consumer_gives_back() {
    let shared = ring::<Descriptor>(4);
    let mut consumer = Consumer::over(other_end(&shared));
    let mut producer = Producer::over(shared);
    let frame = |addr| Descriptor { addr, len: 60, options: 0 };
    assert_eq!(producer.reserve(9), 4);
    assert!((0..4).all(|addr| producer.put(frame(addr))));
    assert!(!producer.put(frame(4)));
    producer.submit();
    assert_eq!((consumer.take(), consumer.take()), (Some(frame(0)), Some(frame(1))));
    assert_eq!(producer.reserve(4), 0);
    consumer.release();
    assert_eq!(producer.reserve(4), 2);
}

#[test]
fn counters_wrap() {
    let shared = ring::<u64>(8);
    let near = u32::MAX - 3;
    shared.producer().store(near, Ordering::Relaxed);
    shared.consumer().store(near, Ordering::Relaxed);
    let mut consumer = Consumer::over(other_end(&shared));
    let mut producer = Producer::over(shared);
    for value in 0..100 {
        assert!(producer.put(value));
        producer.submit();
        assert_eq!(consumer.take(), Some(value));
        consumer.release();
    }
    assert_eq!(producer.reserve(100), 8);
}

#[test]
fn counters_that_cannot_be_true_are_bounded() {
    let shared = ring::<u64>(4);
    shared.producer().store(1000, Ordering::Relaxed);
    let mut consumer = Consumer::over(other_end(&shared));
    assert_eq!(consumer.peek(100), 4);
    let taken = std::iter::from_fn(|| consumer.take()).take(1000).count();
    assert_eq!(taken, 1000, "as often as the kernel claims, each from inside the ring");

    let shared = ring::<u64>(4);
    shared.consumer().store(77, Ordering::Relaxed);
    let mut producer = Producer::over(shared);
    assert_eq!(producer.reserve(4), 0, "consumed what was never produced");
    assert_eq!(producer.pending(), 4);
}

#[test]
fn the_kernel_asks_for_a_wake_up() {
    let shared = ring::<u64>(4);
    let flags = shared.flags.unwrap();
    let producer = Producer::over(shared);
    assert!(!producer.needs_wakeup());
    // SAFETY: the flags of the ring that `producer` owns.
    unsafe { (*flags).store(NEED_WAKEUP, Ordering::Relaxed) };
    assert!(producer.needs_wakeup());
}

#[test]
fn layouts_that_overlap_are_refused() {
    let good = layout(4);
    assert!(good.is_sound::<Descriptor>());
    for bad in [
        Layout { size: 3, ..good },
        Layout { producer: 2, ..good },
        Layout { consumer: 192, ..good },
        Layout { flags: Some(1000), ..good },
        Layout { entries: 196, ..good },
    ] {
        assert!(!bad.is_sound::<Descriptor>(), "{bad:?}");
    }
}

#[test]
fn two_threads_pass_entries_in_order() {
    const ENTRIES: u64 = 20_000;
    let shared = ring::<u64>(64);
    let mut consumer = Consumer::over(other_end(&shared));
    let mut producer = Producer::over(shared);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = 0;
            while next < ENTRIES {
                let n = producer.reserve(16);
                for _ in 0..n {
                    producer.put(next);
                    next += 1;
                }
                producer.submit();
                std::thread::yield_now();
            }
        });
        let mut want = 0;
        while want < ENTRIES {
            while let Some(got) = consumer.take() {
                assert_eq!(got, want);
                want += 1;
            }
            consumer.release();
            std::thread::yield_now();
        }
    });
}
