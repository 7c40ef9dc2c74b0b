//! A guest is interrupted when it asked for that, and told of a broken ring.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use host::tsc;
use rustix::event::{EventfdFlags, eventfd};
use vhost_user::ForeignFd;

use super::guests::{Layout, Receiver, Sender, carry, frame};
use crate::notifier::Timer;
use crate::virtio_net::{HEADER_LEN, RingEvents};
use crate::{GuestRing, Transmit, VlanEdit, notifier};

fn one_piece() -> Layout {
    Layout::chain(&[])
}

fn descriptor() -> Arc<ForeignFd> {
    Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap().into())
}

/// Number of interrupts since the last call.
fn calls(fd: impl AsFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(fd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

#[test]
fn a_guest_is_interrupted_only_when_it_asked() {
    let call = descriptor();
    let events =
        RingEvents { kick: Some(descriptor()), call: Some(call.clone()), ..RingEvents::default() };
    let mut from = Sender::with(HEADER_LEN, 1514, events.clone());
    assert!(from.ring.half.kick().is_some());
    let mut to = Receiver::with(HEADER_LEN, false, events);
    let mut round = |ask: bool| {
        if ask {
            from.driver.enable_notification();
            to.driver.enable_notification();
        }
        from.send(&frame(0, 60), &one_piece());
        to.post(200, &one_piece());
        from.ring.poll();
        to.ring.deliver(&from.ring.burst(), &[0], VlanEdit::None);
        assert_eq!((to.ring.publish(), calls(&call)), (ask, u64::from(ask)));
        assert_eq!((from.ring.complete(), calls(&call)), (ask, u64::from(ask)));
        assert!(!to.ring.publish(), "nothing new");
        (from.reap().len(), to.frames().len())
    };
    for ask in [false, true, false, true, true, false] {
        assert_eq!(round(ask), (1, 1));
    }
    // A guest without a call descriptor cannot be interrupted.
    let mut mute = Sender::new(HEADER_LEN, 1514);
    assert!(mute.ring.half.kick().is_none());
    mute.driver.enable_notification();
    mute.send(&frame(0, 60), &one_piece());
    mute.ring.poll();
    assert!(!mute.ring.complete());
}

#[test]
fn event_descriptors_can_be_replaced_while_the_ring_runs() {
    let (call, error) = (descriptor(), descriptor());
    let mut from = Sender::new(HEADER_LEN, 1514);
    let mut to = Receiver::new(HEADER_LEN, false);
    from.ring.half.events().raise_error(); // no descriptor
    from.ring.half.events().set_call(Some(call.clone()));
    from.ring.half.events().set_error(Some(error.clone()));
    to.ring.half.events().set_call(Some(call.clone()));
    to.ring.half.events().set_error(Some(error.clone()));
    from.driver.enable_notification();
    to.driver.enable_notification();
    from.send(&frame(0, 60), &one_piece());
    to.post(200, &one_piece());
    carry(&mut from, &mut to, &[0], VlanEdit::None);
    assert_eq!((calls(&call), calls(&error)), (2, 0));
    from.ring.half.events().raise_error();
    assert_eq!(calls(&error), 1);
    to.ring.half.events().raise_error();
    assert_eq!((calls(&call), calls(&error)), (0, 1));
}

#[test]
fn who_lets_a_write_wait_is_not_written_to_again() {
    // Blocking, with a full counter; one more that is as it should be.
    let full = Arc::new(ForeignFd::from(eventfd(0, EventfdFlags::empty()).unwrap()));
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let good = descriptor();
    let call = Some(full.clone());
    let events = RingEvents { call, error: Some(good.clone()), ..RingEvents::default() };
    let other = RingEvents { call: Some(good.clone()), ..events.clone() };
    assert!(other.notify());
    assert_eq!(calls(&good), 1);

    assert!(!events.notify(), "it waited, and was ended");
    assert!(events.stalled.load(Ordering::Relaxed));
    assert!(!other.notify(), "the same front-end's");
    events.raise_error();
    assert_eq!(calls(&good), 0);

    // Full alone is no offence: the signal is pending.
    let flags = rustix::fs::fcntl_getfl(&full).unwrap();
    rustix::fs::fcntl_setfl(&full, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    let events = RingEvents { call: Some(full), ..RingEvents::default() };
    assert!(!events.notify());
    assert!(!events.stalled.load(Ordering::Relaxed));
}

/// An eventfd, and events that signal it.
fn watched() -> (Arc<ForeignFd>, RingEvents) {
    notifier::start().unwrap();
    let call = descriptor();
    (call.clone(), RingEvents { call: Some(call), ..RingEvents::default() })
}

#[test]
fn interrupts_are_sent_off_the_lanes_once_several_were_slow() {
    let (call, events) = watched();
    let (now, ms) = (tsc::now(), tsc::duration_to_cycles(Duration::from_millis(1)));
    let charge = |cost| events.budget.charge(&events.call_state, now + cost, cost);
    // A thread that loses its CPU in a write: the next one is not slow.
    for _ in 0..100 {
        charge(4 * ms);
        charge(0);
    }
    assert!(!events.budget.is_moved());
    charge(2 * ms);
    charge(2 * ms);
    assert!(events.budget.is_moved());
    assert_eq!(events.budget.moves(), 1);
    for _ in 0..3 {
        assert!(events.notify());
        let end = Instant::now() + Duration::from_secs(10);
        while rustix::io::read(&call, &mut [0; 8]).is_err() {
            assert!(Instant::now() < end, "the notifier writes");
            std::thread::yield_now();
        }
    }
}

/// A busy machine may take the CPU from a lane in most writes, for the guest that it wakes. Where a
/// hypervisor takes it instead, the time counts as the thread's: so one pair of many is enough.
#[test]
fn time_without_a_cpu_is_not_charged() {
    let (_, events) = watched();
    let ms = tsc::duration_to_cycles(Duration::from_millis(1));
    let slept = || {
        let timer = Timer::start(&events.call_state);
        std::thread::sleep(Duration::from_millis(4));
        let (now, cost) = timer.stop();
        events.budget.charge(&events.call_state, now, cost);
        cost / ms
    };
    let mut pairs = Vec::new();
    while pairs.last().is_none_or(|&(first, second)| first < 4 || second > 0) {
        assert!(pairs.len() < 200, "it is charged: {pairs:?} ms");
        events.budget.charge(&events.call_state, tsc::now(), 0); // a fast one: nothing is suspected
        pairs.push((slept(), slept()));
    }
}

#[test]
fn few_slow_interrupts_or_old_ones_move_none() {
    let (_, events) = watched();
    let [second, slow] =
        [Duration::from_secs(1), Duration::from_micros(90)].map(tsc::duration_to_cycles);
    let now = tsc::now();
    // Each second less than 1 ms.
    for i in 0..100 {
        let at = now + i * second / 10;
        events.budget.charge(&events.call_state, at + slow, slow);
    }
    assert!(!events.budget.is_moved());
    let past = now - 62 * second;
    for _ in 0..2 {
        events.budget.charge(&events.call_state, past + second, second);
    }
    assert_eq!(events.budget.moves(), 1);
    assert!(!events.budget.is_moved(), "it was fast for 60 s");
}
