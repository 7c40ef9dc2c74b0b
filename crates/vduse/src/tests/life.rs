//! Start and stop of rings, and the answers to requests.

use std::time::Duration;

use proptest::prelude::*;
use rustix::io::Errno;

use super::kernel::{Bench, Fake, OFFERED, PLAIN, is_same};
use crate::message::Position;
use crate::{DRIVER_OK, FAILED, FEATURES_OK, VduseError};

#[test]
fn every_request_is_answered_once() {
    let mut bench = Bench::new(Fake::new());
    bench.kernel().set_status(1);
    bench.kernel().tell_memory();
    bench.kernel().ask_position(1);
    bench.serve();
    let answers = &bench.kernel().answers;
    let ids: Vec<u8> = answers.iter().map(|answer| answer[0]).collect();
    assert_eq!(ids, [0, 1, 2]);
    assert!(answers.iter().all(|answer| answer[4..8] == [0; 4]));
    assert_eq!(bench.session.wait(), None, "nothing is due");
}

#[test]
fn what_is_not_known_fails() {
    let mut bench = Bench::new(Fake::new());
    bench.kernel().ask_unknown();
    bench.serve();
    assert!(!bench.kernel().last_answer().0);
    bench.kernel().ask_position(2);
    bench.serve();
    assert!(!bench.kernel().last_answer().0, "there are two rings");
}

#[test]
fn rings_begin_when_the_kernel_has_noted_it() {
    let mut kernel = Fake::new();
    kernel.map(0, 1 << 20);
    let mut bench = Bench::new(kernel);
    for status in [0, 1, 3, 11, 15] {
        bench.kernel().set_status(status);
    }
    bench.serve();
    assert_eq!(bench.kernel().answers.len(), 5);
    assert!(!bench.guest.runs, "an interrupt would be lost");
    assert_eq!(bench.session.wait(), Some(Duration::from_millis(1)));
    bench.serve();
    assert!(!bench.guest.runs);
    bench.kernel().driver_runs.set(true);
    bench.serve();
    assert!(bench.guest.runs && bench.session.is_running());
    assert_eq!(bench.session.wait(), None);
    assert_eq!(bench.kernel().asked_for_driver.get(), 3);
    let rings = &bench.guest.starts[0];
    let ours: Vec<_> = rings.iter().map(|ring| (ring.index, ring.features, ring.resumes)).collect();
    assert_eq!(ours, [(0, PLAIN, false), (1, PLAIN, false)]);
    assert_eq!(rings[1].info, bench.session.kernel().rings[1]);
}

#[test]
fn a_kernel_that_never_notes_it_is_asked_more_rarely() {
    let mut bench = Bench::new(Fake::new());
    bench.begin();
    bench.kernel().driver_runs.set(false);
    for _ in 0..200 {
        bench.serve();
    }
    assert_eq!(bench.session.wait(), Some(Duration::from_millis(100)));
}

#[test]
fn rings_begin_when_there_is_memory_for_buffers() {
    let mut kernel = Fake::new();
    kernel.map(1 << 30, 0x3000);
    kernel.map(2 << 30, 0x3000);
    let mut bench = Bench::new(kernel);
    bench.begin();
    bench.serve();
    assert!(!bench.guest.runs, "there are rings alone");
    assert_eq!(bench.session.wait(), None, "there will be a sign");
    assert_eq!(bench.session.awaited().len(), 2);
    bench.serve();
    assert!(!bench.guest.runs);
    // The driver maps its first buffer, and kicks.
    bench.kernel().map(0, 1 << 20);
    bench.kernel().kick(0);
    bench.serve();
    assert!(bench.guest.runs);
    assert_eq!(bench.guest.regions, [0, 1 << 30, 2 << 30]);
    assert!(bench.session.awaited().is_empty());
    let kick = bench.guest.starts[0][0].kick.clone();
    assert_eq!(rustix::io::read(&kick, &mut [0; 8]), Ok(8), "the lane finds the kick");
}

#[test]
fn memory_of_a_guest_need_not_begin_at_zero() {
    let mut kernel = Fake::new();
    kernel.map(4 << 30, 2 << 20);
    let mut bench = Bench::new(kernel);
    bench.begin();
    bench.serve();
    assert!(bench.guest.runs, "so much is no ring");
}

#[test]
fn rings_wait_until_all_are_enabled() {
    let mut kernel = Fake::new();
    kernel.rings[1].ready = false;
    kernel.map(0, 1 << 20);
    let mut bench = Bench::new(kernel);
    bench.begin();
    bench.kernel().kick(0);
    bench.serve();
    assert!(!bench.guest.runs);
    assert_eq!(bench.session.wait(), Some(Duration::from_millis(100)));
    bench.kernel().rings[1].ready = true;
    bench.serve();
    assert!(bench.guest.runs);
}

#[test]
fn a_reset_stops_rings_before_it_is_answered() {
    for status in [0, FEATURES_OK, DRIVER_OK | FEATURES_OK | FAILED] {
        let mut bench = Bench::running(Fake::new());
        bench.kernel().set_status(status);
        bench.serve();
        assert!(!bench.guest.runs && !bench.session.is_running(), "status {status:#x}");
        assert!(bench.kernel().last_answer().0);
        bench.begin();
        bench.serve();
        assert!(bench.guest.runs, "the next driver");
        assert!(!bench.guest.starts[1][0].resumes, "it has no past");
    }
}

#[test]
fn the_same_status_again_changes_nothing() {
    let mut bench = Bench::running(Fake::new());
    bench.kernel().set_status(15);
    bench.serve();
    assert!(bench.guest.runs);
    assert_eq!(bench.guest.starts.len(), 1);
}

#[test]
fn kicks_of_a_former_life_are_forgotten() {
    let mut bench = Bench::running(Fake::new());
    bench.kernel().kick(0);
    bench.kernel().kick(1);
    bench.kernel().set_status(0);
    bench.kernel().ranges.clear();
    bench.begin();
    bench.serve();
    assert!(!bench.guest.runs, "the new driver has not kicked");
}

#[test]
fn features_that_were_not_offered_are_refused() {
    for features in [OFFERED | 1 << 17, PLAIN & !(1 << 32), u64::MAX] {
        let mut kernel = Fake::new();
        kernel.features = features;
        let mut bench = Bench::new(kernel);
        bench.kernel().set_status(FEATURES_OK | 3);
        bench.serve();
        assert!(!bench.kernel().last_answer().0, "{features:#x}");
        assert!(bench.session.take_problem().is_some_and(|why| why.contains("features")));
        bench.kernel().set_status(15);
        bench.serve();
        assert!(!bench.kernel().last_answer().0, "nor when it goes on regardless");
        assert!(!bench.guest.runs);
    }
}

#[test]
fn a_change_of_memory_lets_the_old_go() {
    let mut bench = Bench::running(Fake::new());
    bench.kernel().map(8 << 30, 1 << 20);
    bench.kernel().tell_memory();
    bench.serve();
    assert!(bench.guest.runs);
    assert_eq!(bench.guest.regions, [0, 8 << 30]);
    assert!(bench.guest.starts[1][0].resumes, "it goes on where it was");
    bench.kernel().ranges.remove(1);
    bench.kernel().tell_memory();
    bench.serve();
    assert_eq!(bench.guest.regions, [0]);
}

#[test]
fn memory_that_may_only_be_read_is_not_mapped() {
    let mut kernel = Fake::new();
    kernel.map(8 << 30, 1 << 20);
    kernel.ranges[0].perm = 1;
    let bench = Bench::running(kernel);
    assert_eq!(bench.guest.regions, [0]);
}

#[test]
fn the_last_address_ends_the_walk() {
    let mut kernel = Fake::new();
    // A region may not end at 2^64 itself, so this one is refused, once.
    kernel.map(u64::MAX - 0xfff, 0x1000);
    kernel.map(0, 1 << 20);
    let mut bench = Bench::new(kernel);
    bench.begin();
    bench.serve();
    assert!(!bench.guest.runs);
    assert!(bench.session.take_problem().is_some_and(|why| why.contains("2^64")));
}

#[test]
fn more_regions_than_there_can_be_are_refused() {
    let mut kernel = Fake::new();
    for i in 0..=guestmem::REGIONS_MAX as u64 {
        kernel.map(i << 20, 0x1000);
    }
    let mut bench = Bench::new(kernel);
    bench.begin();
    bench.serve();
    assert!(!bench.guest.runs);
    assert!(bench.session.take_problem().is_some_and(|why| why.contains("65 memory regions")));
}

#[test]
fn rings_that_cannot_run_wait_for_a_reset() {
    let mut kernel = Fake::new();
    kernel.map(0, 1 << 20);
    let mut bench = Bench::new(kernel);
    bench.guest.refuses = true;
    bench.begin();
    bench.serve();
    assert_eq!(bench.session.take_problem().as_deref(), Some("no such ring"));
    bench.guest.refuses = false;
    bench.serve();
    assert!(!bench.guest.runs, "it is as the driver left it");
    bench.begin();
    bench.serve();
    assert!(bench.guest.runs);
}

#[test]
fn positions_are_the_rings_own_or_else_the_drivers() {
    let mut kernel = Fake::new();
    kernel.rings[1].position = Position([77, 0, 0, 0]);
    let mut bench = Bench::running(kernel);
    bench.kernel().ask_position(1);
    bench.serve();
    assert_eq!(bench.kernel().last_answer(), (true, [77, 0, 0, 0]), "it never ran");
    bench.guest.position = Some(0x1234);
    bench.kernel().ask_position(1);
    bench.serve();
    assert_eq!(bench.kernel().last_answer(), (true, [0x1234, 0, 0, 0]));
}

#[test]
fn positions_of_packed_rings_have_four_parts() {
    let mut kernel = Fake::new();
    kernel.features = PLAIN | 1 << 34;
    let mut bench = Bench::running(kernel);
    bench.guest.position = Some(0x8003_0005);
    bench.kernel().ask_position(0);
    bench.serve();
    assert_eq!(bench.kernel().last_answer(), (true, [0, 5, 1, 3]));
}

#[test]
fn a_device_with_a_driver_is_taken_over() {
    let mut kernel = Fake::new();
    kernel.map(0, 1 << 20);
    kernel.driver_runs.set(true);
    let mut bench = Bench::new(kernel);
    bench.session.take_over().unwrap();
    bench.serve();
    assert!(bench.guest.runs);
    let ring = &bench.guest.starts[0][1];
    assert!(ring.resumes);
    let kicks = bench.session.kernel().kicks.borrow();
    assert!(is_same(kicks[1].as_ref().unwrap(), &ring.kick), "the kernel kicks the new daemon");
}

#[test]
fn a_device_without_one_waits_for_it() {
    let mut kernel = Fake::new();
    kernel.map(0, 1 << 20);
    let mut bench = Bench::new(kernel);
    bench.session.take_over().unwrap();
    bench.serve();
    assert!(!bench.guest.runs);
    bench.begin();
    bench.serve();
    assert!(bench.guest.runs);
}

#[test]
fn a_device_that_was_given_up_is_lost() {
    let mut bench = Bench::running(Fake::new());
    bench.kernel().broken = Some(Errno::PERM);
    assert_eq!(bench.session.serve(&mut bench.guest), Err(Errno::PERM));
    let mut bench = Bench::new(Fake::new());
    bench.kernel().broken = Some(Errno::PERM);
    assert_eq!(bench.session.take_over(), Err(Errno::PERM));
}

#[test]
fn a_wrong_name_is_refused_before_the_kernel_is_asked() {
    let error = VduseError::Name("a/b".to_owned()).to_string();
    assert!(error.contains("\"a/b\"") && error.contains("letters"), "{error}");
}

/// An event of a device.
#[derive(Clone, Debug)]
enum Event {
    Status(u8),
    Memory,
    Position(u32),
    Unknown,
    Noted(bool),
    Ready(bool),
    Range(u8),
    Kick(usize),
    Features(u64),
    Serve,
}

fn event() -> impl Strategy<Value = Event> {
    let status = prop_oneof![Just(0), Just(11), Just(15), Just(0x8f), any::<u8>()];
    prop_oneof![
        status.prop_map(Event::Status),
        Just(Event::Memory),
        (0u32..4).prop_map(Event::Position),
        Just(Event::Unknown),
        any::<bool>().prop_map(Event::Noted),
        any::<bool>().prop_map(Event::Ready),
        (0u8..8).prop_map(Event::Range),
        (0usize..2).prop_map(Event::Kick),
        prop_oneof![Just(PLAIN), Just(OFFERED), any::<u64>()].prop_map(Event::Features),
        Just(Event::Serve),
    ]
}

proptest! {
    /// The guest itself asserts that it is not started twice.
    #[test]
    fn whatever_happens_is_answered_and_nothing_runs_without_a_driver(
        events in proptest::collection::vec(event(), 1..60),
    ) {
        let mut bench = Bench::new(Fake::new());
        let (mut asked, mut status) = (0, 0);
        for event in events {
            let kernel = bench.kernel();
            match event {
                Event::Status(value) => { kernel.set_status(value); asked += 1; status = value; }
                Event::Memory => { kernel.tell_memory(); asked += 1; }
                Event::Position(ring) => { kernel.ask_position(ring); asked += 1; }
                Event::Unknown => { kernel.ask_unknown(); asked += 1; }
                Event::Noted(noted) => kernel.driver_runs.set(noted),
                Event::Ready(ready) => kernel.rings[1].ready = ready,
                Event::Range(at) => {
                    let start = u64::from(at) << 32;
                    match kernel.ranges.iter().position(|range| range.start == start) {
                        Some(i) => drop(kernel.ranges.remove(i)),
                        None => kernel.map(start, 0x4000),
                    }
                }
                Event::Kick(ring) if kernel.kicks.borrow()[ring].is_some() => kernel.kick(ring),
                Event::Kick(_) => {}
                Event::Features(features) => kernel.features = features,
                Event::Serve => {
                    bench.serve();
                    let runs = bench.guest.runs;
                    prop_assert_eq!(runs, bench.session.is_running());
                    prop_assert!(!runs || status & DRIVER_OK != 0 && status & FAILED == 0);
                    prop_assert_eq!(bench.kernel().answers.len(), asked);
                }
            }
        }
    }
}
