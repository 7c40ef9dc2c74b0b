//! Lanes that learn, look up, age and flush at the same time.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::switch::fdb::Learned;

const ADDRESSES: u16 = 96;

/// Each address is seen at two ports only; a lookup with another port mixed up entries.
fn homes(n: u16) -> [u16; 2] {
    [1 + n % 3, 4 + n % 3]
}

#[test]
fn nobody_sees_an_entry_that_never_was() {
    let table = Table::build(&switch((0..8).map(|_| access(0)))).unwrap();
    let state = State::new(Fdb::new(1024, 99).unwrap());
    let stop = AtomicBool::new(false);
    let learn = |turn: usize| {
        let (mut flows, mut out) = (Flows::new(), SwitchVerdicts::new());
        for round in 0..3_000_u32 {
            for port in 1..=6 {
                let mine = (0..ADDRESSES).filter(|n| homes(*n)[turn] == port);
                let headers: Vec<_> = mine
                    .skip(round as usize % 20)
                    .map(|n| *frame(mac((n + 1) % ADDRESSES), mac(n), None).first_chunk().unwrap())
                    .collect();
                let burst =
                    Burst { from: PortId(port), headers: &headers, snapshots: None, now_ns: 0 };
                table.classify(&state, &burst, &mut flows, &mut [], &mut out);
                for (header, verdict) in headers.iter().zip(out.iter()) {
                    let dst = u16::from(header[5]);
                    if let Action::Port(to) = verdict.action() {
                        assert!(homes(dst).contains(&to.0), "{dst} at {to}");
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let lanes = [0, 1].map(|turn| scope.spawn(move || learn(turn)));
        let janitor = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                state.fdb.tick();
                state.fdb.flush(Flush { port: Some(PortId(2)), vid: None });
                for entry in state.fdb.entries() {
                    let n = u16::from_be_bytes([entry.mac.0[4], entry.mac.0[5]]);
                    assert!(n < ADDRESSES && entry.vid == 0, "{entry:?}");
                    assert!(homes(n).contains(&entry.port.0), "{entry:?}");
                }
            }
        });
        let lanes = lanes.map(|lane| lane.join());
        stop.store(true, Ordering::Relaxed);
        janitor.join().unwrap();
        lanes.into_iter().for_each(|lane| lane.unwrap());
    });
    // After all threads end, the counts match the entries.
    let entries: Vec<_> = state.fdb.entries().collect();
    assert_eq!(entries.len(), state.fdb.len());
    for port in 0..8 {
        let of_port = entries.iter().filter(|entry| entry.port == PortId(port)).count();
        assert_eq!(of_port, state.fdb.len_of(PortId(port)));
    }
    let distinct: std::collections::HashSet<_> = entries.iter().map(|entry| entry.mac).collect();
    assert_eq!(distinct.len(), entries.len());
}

/// Two lanes may both have seen room for one more, but only one has the lock.
#[test]
fn whoever_has_the_lock_looks_at_the_limit_again() {
    let fdb = Fdb::new(1024, 1).unwrap();
    assert_eq!(fdb.learn(1, PortId(3), 1), Learned::Changed);
    assert_eq!(fdb.learn(1, PortId(3), 1), Learned::Unchanged);
    assert_eq!(fdb.learn(2, PortId(3), 1), Learned::Limit);
    assert_eq!(fdb.learn(1, PortId(4), 0), Learned::Limit);
    assert_eq!((fdb.len(), fdb.len_of(PortId(3)), fdb.len_of(PortId(4))), (1, 1, 0));
}

/// Two lanes that poll one port bring it no more than it may have.
#[test]
fn limits_hold_for_all_lanes_together() {
    let learning = Learning { limit: 5, beyond: Beyond::Forward };
    let table = Table::build(&switch([PortConfig { learning, ..access(0) }, access(0)])).unwrap();
    for round in 0..300 {
        let state = State::new(Fdb::new(1024, round).unwrap());
        let start = std::sync::Barrier::new(2);
        let lane = |first: u16| {
            let (mut flows, mut out) = (Flows::new(), SwitchVerdicts::new());
            let headers = |n| [*frame(Mac::BROADCAST, mac(first + n), None).first_chunk().unwrap()];
            start.wait();
            for n in 0..12 {
                let burst =
                    Burst { from: PortId(0), headers: &headers(n), snapshots: None, now_ns: 0 };
                table.classify(&state, &burst, &mut flows, &mut [], &mut out);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| lane(0));
            scope.spawn(|| lane(100));
        });
        let len = state.fdb.len_of(PortId(0));
        assert!((1..=5).contains(&len), "{len}");
    }
}

/// Lanes share a port's meter, too.
#[test]
fn storm_control_holds_for_all_lanes_together() {
    let storm = Storm { broadcast: Some(1000), ..Storm::default() };
    let table = Table::build(&switch([PortConfig { storm, ..access(0) }, access(0)])).unwrap();
    let state = State::new(Fdb::new(1024, 1).unwrap());
    let headers = [*frame(Mac::BROADCAST, mac(1), None).first_chunk().unwrap(); 8];
    let lane = || {
        let (mut flows, mut out) = (Flows::new(), SwitchVerdicts::new());
        let bursts = (0..2_000_u64).map(|n| {
            let now_ns = 1_000_000_000 + n * 1_000_000;
            let burst = Burst { from: PortId(0), headers: &headers, snapshots: None, now_ns };
            table.classify(&state, &burst, &mut flows, &mut [], &mut out);
            out.iter().filter(|verdict| verdict.is_flood()).count()
        });
        bursts.sum::<usize>()
    };
    let passed: usize = std::thread::scope(|scope| {
        [0, 1].map(|_| scope.spawn(lane)).map(|lane| lane.join().unwrap()).iter().sum()
    });
    // Two seconds' worth, and the tenth of a second that a quiet port may send at once.
    assert!((2000..=2102).contains(&passed), "{passed}");
}
