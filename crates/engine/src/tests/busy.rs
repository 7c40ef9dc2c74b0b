//! Busy cycles of a lane: those of visits that found frames.

use bridge::PortId;
use host::tsc;

use super::instructions::worker;
use super::kit::*;
use crate::lane::counter;

/// Cycles before the first visit: more than a test takes.
const BEFORE: u64 = 1 << 44;

/// Busy cycles of a round that began long before its first visit, when this VF of two has a frame.
fn busy_cycles(sends: u8) -> u64 {
    let bench = Bench::new(vec![plain(0), plain(1)], 0);
    let ports = [0, 1].map(|vf| bench.port(PortId::vf(vf)));
    let mut guests = ports.each_ref().map(|port| {
        let guest = Guest::new();
        guest.attach(port);
        guest
    });
    let (mut worker, _counters) = worker(&bench, ports);
    guests[usize::from(sends)].post(&frame(mac(1 - sends), mac(sends), 0, 64));
    guests[usize::from(sends)].flush();
    let begin = tsc::now().wrapping_sub(BEFORE);
    assert_eq!(worker.poll_all::<false>(begin, 0), 1);
    let all = tsc::now().wrapping_sub(begin);
    worker.account(1, all);
    let [busy, idle] = [counter::BUSY_CYCLES, counter::IDLE_CYCLES].map(|n| worker.block.get(n));
    assert_eq!(busy + idle, all);
    busy
}

#[test]
fn a_visit_that_finds_frames_is_busy_from_the_begin_of_the_round_on() {
    assert!(busy_cycles(0) >= BEFORE);
}

#[test]
fn a_visit_that_finds_nothing_is_idle() {
    let busy = busy_cycles(1);
    assert!(0 < busy && busy < BEFORE, "{busy}");
}
