//! Rounds of a lane in the test's own thread, for a tracer that counts instructions
//! (`tests/instructions`): nothing else runs between two rounds.

use std::sync::Arc;
use std::time::Duration;

use bridge::PortId;
use port::BURST;
use virtq::Features;

use super::kit::{Bench, Guest, Shape, frame, mac, plain};
use crate::IdlePolicy;
use crate::counters::Counters;
use crate::lane::counter;
use crate::lane::queue_list::{QueueList, TxRing};
use crate::lane::wake::Wake;
use crate::lane::worker::Worker;

/// Rounds of 64 frames each.
const ROUNDS: u32 = 200;
/// Bytes of a frame.
const LEN: usize = 64;

/// One round of a lane; the tracer counts what runs below this function.
#[inline(never)]
fn round(worker: &mut Worker) -> u64 {
    worker.poll_all::<false>(0)
}

/// Forwards full bursts from VF 0 to VF 1 and checks that each frame arrives.
fn forward_bursts(features: Features) {
    let bench = Bench::new(vec![plain(0), plain(1)], 0);
    let shape = Shape { features, ..Shape::default() };
    let (mut sender, mut receiver) = (Guest::with(shape), Guest::with(shape));
    sender.attach(bench.vf(0));
    receiver.attach(bench.vf(1));
    let mut counters = Counters::create(None, vec![("lane", counter::schema())]).unwrap();
    let block = counters.add("lane", "0").unwrap();
    let queue_list = Arc::new(QueueList::default());
    let nic = bench.fabric.nics()[0].clone();
    for vf in [0, 1] {
        let port = bench.port(PortId::vf(vf)).clone();
        queue_list.add(TxRing { nic: nic.clone(), port, pair: 0 });
    }
    let idle = IdlePolicy { poll: Duration::ZERO, yielding: Duration::ZERO, sleep: false };
    let wake = Arc::new(Wake::new().unwrap());
    let quarantine = bench.fabric.quarantine.clone();
    let mut worker = Worker::new(idle, queue_list, block, wake, Arc::default(), quarantine);
    for burst in 0..ROUNDS {
        for number in 0..BURST as u32 {
            sender.post(&frame(mac(1), mac(0), burst * BURST as u32 + number, LEN));
        }
        sender.flush();
        assert_eq!(round(&mut worker), BURST as u64);
        assert_eq!(receiver.receive().len(), BURST);
        assert_eq!(sender.in_flight(), 0);
    }
}

#[test]
fn split_bursts_are_forwarded_in_one_round() {
    forward_bursts(Shape::default().features);
}

#[test]
fn packed_bursts_are_forwarded_in_one_round() {
    forward_bursts(Features::all());
}
