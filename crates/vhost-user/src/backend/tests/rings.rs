//! Start and stop of rings.

use super::*;

#[test]
fn a_ring_starts_once_all_is_there_in_any_order() {
    let steps: [fn() -> Message; 5] = [
        || table(&[region(0, 0x1000)]),
        || message(Request::SetVringNum, &state(1, 128), 0),
        || message(Request::SetVringAddr, &addresses(1), 0),
        || message(Request::SetVringKick, &1u64, 1),
        || message(Request::SetVringEnable, &state(1, 1), 0),
    ];
    for first in 0..steps.len() {
        let mut session = Session::new(CONFIG);
        session.done(message(Request::SetFeatures, &OFFERED, 0));
        for step in 0..steps.len() {
            assert!(!session.runs(1), "order {first}: the ring must not run before step {step}");
            let make = steps[(first + step) % steps.len()];
            session.done(make());
        }
        assert!(session.runs(1), "order {first}");
        assert_eq!(session.device.rings_running(), 1);
    }
}

#[test]
fn the_setup_is_as_the_front_end_said() {
    let mut session = Session::ready();
    session.set_up(2, 77);
    session.enable(2, true);
    let ring = session.device.ring(2).unwrap();
    let VringAddr { desc, avail, used, .. } = addresses(2);
    assert_eq!((ring.size, ring.base, ring.features), (256, 77, OFFERED));
    assert_eq!((ring.desc, ring.avail, ring.used), (desc, avail, used));
    assert!(ring.kick.is_some() && ring.call.is_some() && ring.err.is_some());
}

#[test]
fn without_a_kick_descriptor_the_ring_is_polled() {
    let mut session = Session::ready();
    session.done(message(Request::SetVringNum, &state(0, 256), 0));
    session.done(message(Request::SetVringAddr, &addresses(0), 0));
    session.done(message(Request::SetVringCall, &0x100u64, 0));
    session.enable(0, true);
    assert!(!session.runs(0));
    session.done(message(Request::SetVringKick, &0x100u64, 0));
    let ring = session.device.ring(0).unwrap();
    assert!(ring.kick.is_none() && ring.call.is_none() && ring.err.is_none());
}

#[test]
fn rings_are_enabled_at_once_without_protocol_features() {
    let mut session = Session::new(CONFIG);
    session.done(table(&[region(0, 0x1000)]));
    session.set_up(0, 0);
    assert!(!session.runs(0), "no features were negotiated yet");
    session.done(message(Request::SetFeatures, &FEATURES, 0));
    assert!(session.runs(0));
    // And SET_FEATURES with the bit, as when a migration starts, does not disable them.
    session.done(message(Request::SetFeatures, &OFFERED, 0));
    assert!(session.runs(0));
    assert_eq!(session.device.ring(0).unwrap().features, OFFERED);
}

#[test]
fn disabling_stops_and_enabling_goes_on() {
    let mut session = Session::ready();
    session.set_up(0, 65_530);
    session.enable(0, true);
    session.device.served = 10;
    session.enable(0, false);
    assert!(!session.runs(0));
    session.enable(0, false);
    session.enable(0, true);
    assert_eq!(session.device.ring(0).unwrap().base, 4, "the index wraps at 65536");
    session.enable(0, true);
    assert_eq!(session.device.calls().starts, 2, "enabling twice starts once");
}

#[test]
fn what_the_guest_sends_by_a_disabled_ring_is_discarded() {
    let mut session = Session::ready();
    session.set_up(1, 5);
    let enabled = |session: &Session| session.device.ring(1).map(|ring| ring.enabled);
    assert_eq!(enabled(&session), None, "not before it was enabled");
    session.enable(1, true);
    session.device.served = 2;
    session.enable(1, false);
    assert_eq!((enabled(&session), session.device.ring(1).unwrap().base), (Some(false), 7));
    session.enable(1, true);
    assert_eq!(enabled(&session), Some(true));
    let calls = session.device.calls();
    assert_eq!((calls.starts, calls.renewals, calls.stops), (1, 2, 0), "it is never missing");
    session.enable(1, false);
    session.done(message(Request::SetVringKick, &1u64, 1));
    assert!(!session.runs(1), "it starts over");
}

#[test]
fn get_vring_base_stops_until_the_next_kick() {
    let mut session = Session::ready();
    session.set_up(1, 5);
    // Never started: the configured position.
    let base: VringState = session.ask(message(Request::GetVringBase, &state(1, 0), 0));
    assert_eq!(base, state(1, 5));
    session.enable(1, true);
    assert!(!session.runs(1), "the kick was forgotten");
    session.done(message(Request::SetVringKick, &1u64, 1));
    assert!(session.runs(1));
    session.device.served = 3;
    let base: VringState = session.ask(message(Request::GetVringBase, &state(1, 0), 0));
    assert_eq!(base, state(1, 8));
    assert!(!session.runs(1));
    session.done(message(Request::SetVringKick, &1u64, 1));
    assert_eq!(session.device.ring(1).unwrap().base, 8);
    assert!(session.device.ring(1).unwrap().call.is_some(), "the call stays");
}

#[test]
fn rings_go_on_with_new_memory() {
    let mut session = Session::ready();
    for index in [0, 1] {
        session.set_up(index, 100);
        session.enable(index, true);
    }
    session.device.served = 7;
    session.done(table(&[region(0, 0x1000), region(0x1000, 0x1000)]));
    assert_eq!(session.device.regions().len(), 2);
    for index in [0, 1] {
        assert_eq!(session.device.ring(index).unwrap().base, 107);
    }
    session.done(message(
        Request::AddMemReg,
        &SingleRegion { padding: 0, region: region(0x9000, 0x1000) },
        1,
    ));
    assert_eq!(session.device.ring(1).unwrap().base, 114);
    assert_eq!(session.device.regions().len(), 3);
    let calls = session.device.calls();
    assert_eq!((calls.stops, calls.renewals), (0, 4), "they never stood");
    // Without memory they stop, and continue with the next table.
    session.done(table(&[]));
    assert_eq!(session.device.rings_running(), 0);
    session.done(table(&[region(0, 0x1000)]));
    assert_eq!(session.device.ring(0).unwrap().base, 121);
}

#[test]
fn new_features_restart_rings() {
    let mut session = Session::ready();
    session.set_up(0, 0);
    session.enable(0, true);
    session.device.served = 1;
    session.done(message(Request::SetFeatures, &OFFERED, 0));
    assert_eq!(session.device.calls().starts, 1, "nothing changed");
    let fewer = OFFERED & !Features::MRG_RXBUF.bits();
    session.done(message(Request::SetFeatures, &fewer, 0));
    let ring = session.device.ring(0).unwrap();
    assert_eq!((ring.features, ring.base), (fewer, 1));
}

#[test]
fn changes_to_a_running_ring() {
    let mut session = Session::ready();
    session.set_up(0, 0);
    session.enable(0, true);
    session.device.served = 1;
    // A new kick: stop and start.
    session.done(message(Request::SetVringKick, &0x100u64, 0));
    let ring = session.device.ring(0).unwrap();
    assert!(ring.kick.is_none() && ring.base == 1);
    // A new call or err: told.
    session.done(message(Request::SetVringCall, &0x100u64, 0));
    session.done(message(Request::SetVringErr, &0x100u64, 0));
    let ring = session.device.ring(0).unwrap();
    assert!(ring.call.is_none() && ring.err.is_none());
    assert_eq!((session.device.calls().starts, session.device.calls().fds), (2, 2));
    // The same addresses: nothing; new ones: stop and start.
    session.done(message(Request::SetVringAddr, &addresses(0), 0));
    assert_eq!(session.device.calls().starts, 2);
    session.done(message(Request::SetVringAddr, &VringAddr { used: 0x40, ..addresses(0) }, 0));
    assert_eq!(session.device.ring(0).unwrap().used, 0x40);
    assert_eq!(session.device.ring(0).unwrap().base, 2);
    // A base: an error.
    let reason = session.fail(message(Request::SetVringBase, &state(0, 0), 0));
    assert_eq!(reason, Reason::RingRuns { index: 0 });
    assert!(session.runs(0));
}

/// QEMU issue 3882: buffers in flight had indices of the old size.
#[test]
fn resize_of_a_running_ring() {
    let mut session = Session::ready();
    session.set_up(0, 0);
    session.enable(0, true);
    session.done(message(Request::SetVringNum, &state(0, 256), 0)); // its size
    for size in [128, 512, 1] {
        let reason = session.fail(message(Request::SetVringNum, &state(0, size), 0));
        assert_eq!(reason, Reason::RingRuns { index: 0 });
    }
    assert!(session.runs(0));
    assert_eq!(session.device.ring(0).unwrap().size, 256);
}

#[test]
fn resets_stop_rings() {
    let mut session = Session::ready();
    let start = |session: &mut Session| {
        session.done(message(Request::SetFeatures, &OFFERED, 0));
        session.set_up(0, 0);
        session.enable(0, true);
        assert!(session.runs(0));
    };
    start(&mut session);
    session.done(message(Request::ResetOwner, &[0u8; 0], 0));
    assert!(!session.runs(0));
    session.enable(0, true);
    assert!(session.runs(0), "RESET_OWNER only disables");

    session.done(message(Request::ResetDevice, &[0u8; 0], 0));
    assert!(!session.runs(0));
    assert_eq!(session.device.calls().resets, 1);
    assert_eq!(session.backend.features(), 0);
    session.enable(0, true);
    session.done(message(Request::SetVringKick, &0u64, 1));
    assert!(!session.runs(0), "RESET_DEVICE forgets the settings");
    start(&mut session);

    session.done(message(Request::SetStatus, &0u64, 0));
    assert!(!session.runs(0));
    session.done(message(Request::SetVringKick, &0u64, 1));
    assert!(session.runs(0), "status 0 only wants a new kick");
}

#[test]
fn disconnecting_leaves_nothing() {
    let mut session = Session::ready();
    for index in 0..4 {
        session.set_up(index, 9);
        session.enable(index, true);
    }
    assert_eq!(session.device.rings_running(), 4);
    session.backend.disconnect(&mut session.device);
    assert_eq!(session.device.rings_running(), 0);
    assert!(session.device.regions().is_empty());
    assert_eq!(session.backend.protocol_features(), ProtocolFeatures::empty());
    let base: VringState = session.ask(message(Request::GetVringBase, &state(0, 0), 0));
    assert_eq!(base.num, 0, "the next front-end finds nothing of the last");
}

#[test]
fn a_refused_start_is_tried_again() {
    let mut session = Session::ready();
    session.set_up(0, 3);
    session.set_up(1, 3);
    session.enable(1, true);
    session.device.refusals = 1;
    let reason = session.fail(message(Request::SetVringEnable, &state(0, 1), 0));
    assert!(matches!(reason, Reason::Device(_)), "{reason}");
    assert!(!session.runs(0) && session.runs(1));
    session.device.refusals = 0;
    session.enable(0, true);
    assert!(session.runs(0));
    // A ring that is refused after a change of memory does not stop the other.
    session.device.refusals = 0b1010;
    assert!(matches!(session.fail(table(&[region(0, 0x2000)])), Reason::Device(_)));
    assert!(!session.runs(0) && session.runs(1));
    session.device.refusals = 0;
    session.done(table(&[region(0, 0x2000)]));
    assert!(session.runs(0) && session.runs(1));
}

#[test]
fn refused_memory_leaves_the_old() {
    let mut session = Session::ready();
    session.set_up(0, 3);
    session.enable(0, true);
    session.device.refusals = 1;
    assert!(matches!(session.fail(table(&[region(0x5000, 0x1000)])), Reason::Device(_)));
    assert!(session.runs(0), "the ring goes on with the memory it had");
    session.device.refusals = 0;
    assert_eq!(session.device.regions()[0].guest_addr, 0);
    let single = |region| SingleRegion { padding: 0, region };
    let gone = session.fail(message(Request::RemMemReg, &single(region(0x5000, 0x1000)), 0));
    assert!(matches!(gone, Reason::NoSuchRegion { .. }));
    session.done(message(Request::RemMemReg, &single(region(0, 0x1000)), 0));
    assert!(!session.runs(0));
}

#[test]
fn a_ring_waits_for_the_region_it_lies_in() {
    let mut session = Session::ready();
    for index in [0, 1] {
        session.set_up(index, 0);
        session.enable(index, true);
    }
    let single = |at| SingleRegion { padding: 0, region: region(at, 0x1000) };
    let add = |at| asked(message(Request::AddMemReg, &single(at), 1));
    assert_eq!(session.ask::<u64>(add(0x1000)), 0);
    // Ring 0 lies in removed memory: it stops, the other continues, and the request succeeds.
    session.device.refusals = 0b1;
    let remove = asked(message(Request::RemMemReg, &single(0x1000), 0));
    assert_eq!(session.ask::<u64>(remove), 0);
    assert!(!session.runs(0) && session.runs(1));
    assert_eq!(session.backend.take_refusal(), None);
    // Another region comes first: it is added, and the refusal of the stopped ring is reported.
    session.device.refusals = 0b100;
    assert_eq!(session.ask::<u64>(add(0x2000)), 0);
    assert!(!session.runs(0) && session.runs(1));
    assert!(session.backend.take_refusal().is_some());
    session.device.refusals = 0;
    assert_eq!(session.ask::<u64>(add(0x1000)), 0);
    assert!(session.runs(0) && session.runs(1));
    assert_eq!(session.device.calls().stops, 1, "only the one");
}
