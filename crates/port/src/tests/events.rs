//! A guest is interrupted when it asked to be, and told of what it broke.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{EventfdFlags, eventfd};

use super::guests::{Layout, Receiver, Sender, carry, frame};
use crate::virtio_net::{Events, HEADER_LEN};
use crate::{Receive, Transmit, VlanEdit};

fn one_piece() -> Layout {
    Layout::chain(&[])
}

fn descriptor() -> Arc<OwnedFd> {
    Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap())
}

/// How often the guest was interrupted since the last look.
fn calls(fd: impl AsFd) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(fd, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

#[test]
fn a_guest_is_interrupted_only_when_it_asked() {
    let call = descriptor();
    let events = Events { kick: Some(descriptor()), call: Some(call.clone()), ..Events::default() };
    let mut from = Sender::with(HEADER_LEN, 1514, events.clone());
    assert!(from.ring.kick().is_some());
    let mut to = Receiver::with(HEADER_LEN, false, events);
    let mut round = |ask: bool| {
        if ask {
            from.driver.arm();
            to.driver.arm();
        }
        from.send(&frame(0, 60), &one_piece());
        to.post(200, &one_piece());
        from.ring.poll();
        to.ring.deliver(&from.ring.burst(), &[0], VlanEdit::None);
        assert_eq!((to.ring.publish(), calls(&call)), (ask, u64::from(ask)));
        assert_eq!((from.ring.complete(), calls(&call)), (ask, u64::from(ask)));
        assert!(!from.ring.complete() && !to.ring.publish(), "nothing new");
        (from.reap().len(), to.frames().len())
    };
    for ask in [false, true, false, true, true, false] {
        assert_eq!(round(ask), (1, 1));
    }
    // A guest that asked but gave no descriptor cannot be interrupted.
    let mut mute = Sender::new(HEADER_LEN, 1514);
    assert!(mute.ring.kick().is_none());
    mute.driver.arm();
    mute.send(&frame(0, 60), &one_piece());
    mute.ring.poll();
    assert!(!mute.ring.complete());
}

#[test]
fn event_descriptors_can_be_replaced_while_the_ring_runs() {
    let (call, error) = (descriptor(), descriptor());
    let mut from = Sender::new(HEADER_LEN, 1514);
    let mut to = Receiver::new(HEADER_LEN, false);
    from.ring.raise_error(); // nobody listens
    from.ring.set_call(Some(call.clone()));
    from.ring.set_error(Some(error.clone()));
    to.ring.set_call(Some(call.clone()));
    to.ring.set_error(Some(error.clone()));
    from.driver.arm();
    to.driver.arm();
    from.send(&frame(0, 60), &one_piece());
    to.post(200, &one_piece());
    carry(&mut from, &mut to, &[0], VlanEdit::None);
    assert_eq!((calls(&call), calls(&error)), (2, 0));
    from.ring.raise_error();
    assert_eq!(calls(&error), 1);
    to.ring.raise_error();
    assert_eq!((calls(&call), calls(&error)), (0, 1));
}

#[test]
fn who_lets_a_write_wait_is_not_written_to_again() {
    // Blocking, with a full counter; one more that is as it should be.
    let full = Arc::new(eventfd(0, EventfdFlags::empty()).unwrap());
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let good = descriptor();
    let call = Some(full.clone());
    let events = Events { call, error: Some(good.clone()), ..Events::default() };
    let other = Events { call: Some(good.clone()), ..events.clone() };
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
    let events = Events { call: Some(full), ..Events::default() };
    assert!(!events.notify());
    assert!(!events.stalled.load(Ordering::Relaxed));
}
