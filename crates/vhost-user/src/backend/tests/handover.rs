//! A session handed over to another process.

use super::*;

/// The memory of [`Session::ready`].
fn memory() -> Vec<MemoryRegion> {
    let RegionPayload { guest_addr, size, user_addr, mmap_offset } = region(0, 0x1000);
    vec![MemoryRegion { guest_addr, size, user_addr, mmap_offset, fd: event().into() }]
}

/// Another process's back-end, with the same offer.
fn successor(session: &Session) -> Session {
    let mut successor = Session::new(*session.backend.config());
    successor.device.set_memory(memory()).unwrap();
    successor
}

fn busy() -> Session {
    let mut session = Session::ready();
    for index in 0..3 {
        session.set_up(index, 7 * index);
        session.enable(index, true);
    }
    session.done(message(Request::SetVringNum, &state(3, 128), 0));
    session
}

#[test]
fn rings_run_where_they_ran_and_from_where_they_stopped() {
    let mut old = busy();
    let mut new = successor(&old);
    new.backend.restore(old.backend.snapshot()).unwrap();
    assert!((0..4).all(|index| !new.runs(index)), "not before they are told to");
    old.backend.suspend(RingDirection::Transmit, &mut old.device);
    assert_eq!([0, 1, 2].map(|index| old.runs(index)), [true, false, true]);
    old.backend.suspend(RingDirection::Receive, &mut old.device);
    assert!((0..4).all(|index| !old.runs(index)));

    let positions = old.backend.positions();
    new.backend.set_positions(&positions).unwrap();
    new.backend.resume(&mut new.device).unwrap();
    assert_eq!([0, 1, 2, 3].map(|index| new.runs(index)), [true, true, true, false]);
    for (index, position) in positions.iter().enumerate().take(3) {
        let ring = new.device.ring(index).unwrap();
        assert_eq!((ring.base, ring.size), (*position, 256));
        assert!(ring.kick.is_some() && ring.call.is_some() && ring.err.is_some());
    }
    assert_eq!(new.backend.features(), old.backend.features());
    assert_eq!(new.backend.protocol_features(), old.backend.protocol_features());

    // The session is complete: memory is known, and a half-configured ring can be finished.
    new.done(message(Request::SetVringEnable, &state(0, 0), 0));
    assert!(!new.runs(0));
    new.backend.disconnect(&mut new.device);
    // The old one could have continued.
    old.backend.resume(&mut old.device).unwrap();
    assert!(old.runs(0) && old.runs(1) && old.runs(2));
    assert_eq!(old.device.ring(2).unwrap().base, positions[2]);
    old.backend.disconnect(&mut old.device);
}

#[test]
fn what_is_not_offered_is_not_taken_over() {
    let old = busy();
    let snapshot = || old.backend.snapshot();
    let refused = |change: fn(&mut BackendConfig)| {
        let mut config = CONFIG;
        change(&mut config);
        Backend::new(config).unwrap().restore(snapshot()).unwrap_err()
    };
    let error = refused(|config| config.features = Features::VERSION_1.bits());
    assert!(matches!(error, RestoreError::Features(bits) if bits & Features::MTU.bits() != 0));
    let error = refused(|config| config.protocol_features -= ProtocolFeatures::MQ);
    assert_eq!(error, RestoreError::ProtocolFeatures(ProtocolFeatures::MQ));
    let error = refused(|config| config.queue_pairs_max = 1);
    assert_eq!(error, RestoreError::Rings { expected: 2, got: 4 });
}

#[test]
fn a_ring_that_stood_is_neither_tried_nor_judged() {
    let mut old = busy();
    old.enable(0, false);
    old.device.refusals = 1;
    let reply = old.handle(asked(message(Request::SetVringEnable, &state(0, 1), 0)));
    assert!(reply.is_ok_and(|reply| reply.is_some()), "refused, and the session goes on");
    old.device.refusals = 0;
    let ran = [false, true, true, false];
    let run = |session: &Session| [0, 1, 2, 3].map(|index| session.runs(index));
    assert_eq!(run(&old), ran);

    let mut snapshot = old.backend.snapshot();
    snapshot.rings[3].base = 1 << 16; // of a packed ring, in a session that has split ones now
    let mut new = successor(&old);
    new.backend.restore(snapshot.clone()).unwrap();
    for half in [RingDirection::Transmit, RingDirection::Receive] {
        old.backend.suspend(half, &mut old.device);
    }
    let mut positions = old.backend.positions();
    positions[3] = 1 << 16;
    new.backend.set_positions(&positions).unwrap();
    new.backend.resume(&mut new.device).unwrap();
    assert_eq!(run(&new), ran);
    new.backend.disconnect(&mut new.device);
    old.backend.resume(&mut old.device).unwrap();
    assert_eq!(run(&old), ran);

    // A ring that ran is checked like any that starts.
    snapshot.rings[1].base = 1 << 16;
    let mut new = successor(&old);
    new.backend.restore(snapshot).unwrap();
    assert!(new.backend.resume(&mut new.device).is_err());
    assert_eq!(run(&new), [false, false, true, false]);
    new.backend.disconnect(&mut new.device);
    old.backend.disconnect(&mut old.device);
}
