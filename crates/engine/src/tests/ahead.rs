//! Receive buffers that a lane stages ahead of the next burst.

use bridge::PortId;
use virtq::Features;

use super::instructions::worker;
use super::kit::*;
use crate::lane::queue_list::TxRing;
use crate::lane::worker::Worker;

/// Counter of broken buffers, which shows how far a ring was staged.
const FAULTS: &str = "rx_fault_outside_memory";
/// VFs that receive.
const RECEIVERS: [u8; 2] = [1, 2];

/// A lane in this thread with a sender on VF 0, and receivers that have posted one buffer and
/// behind it a broken one.
struct Few {
    bench: Bench,
    worker: Worker,
    sender: Guest,
    receivers: [Guest; 2],
    _counters: crate::counters::Counters,
}

impl Few {
    /// With so many rings, at least two.
    fn with_rings(rings: u8) -> Few {
        let bench = Bench::new((0..rings.max(3)).map(plain).collect(), 0);
        let sender = Guest::new();
        sender.attach(bench.vf(0));
        let receivers = RECEIVERS.map(|vf| {
            let mut guest = Guest::empty(Shape::default());
            guest.pair.refill_with(1);
            guest.break_receive();
            guest.attach_receive(bench.vf(vf), 0);
            guest
        });
        let (worker, _counters) = worker(&bench, [0, 1].map(|vf| bench.vf(vf)));
        for vf in 2..rings {
            let (nic, port) = (bench.fabric.nics()[0].clone(), bench.vf(vf).clone());
            worker.queue_list.add(TxRing { nic, port, pair: 0 });
        }
        Few { bench, worker, sender, receivers, _counters }
    }

    /// Sends a frame to each receiver in one burst; returns the numbers of frames that arrived.
    fn send(&mut self) -> [usize; 2] {
        for vf in RECEIVERS {
            self.sender.post(&frame(mac(vf), mac(0), 0, 64));
        }
        self.sender.flush();
        assert_eq!(self.worker.poll_all::<false>(0, 0), 2);
        self.receivers.each_mut().map(|guest| guest.frames().len())
    }

    fn faults(&self) -> [u64; 2] {
        RECEIVERS.map(|vf| self.bench.count(&format!("n/vf{vf}"), FAULTS))
    }
}

#[test]
fn a_lane_with_few_rings_stages_ahead_for_each_receiver() {
    for rings in 2..8 {
        let mut few = Few::with_rings(rings);
        assert_eq!(few.send(), [1, 1]);
        let ahead = if rings <= 4 { [1, 1] } else { [0, 0] };
        assert_eq!(few.faults(), ahead, "after the first of two bursts, {rings} rings");
        assert_eq!(few.send(), [0, 0]);
        assert_eq!(few.faults(), [1, 1], "counted once, {rings} rings");
    }
}

#[test]
fn a_lane_stages_ahead_once_enough_rings_have_left() {
    let mut few = Few::with_rings(5);
    few.worker.poll_all::<false>(0, 0);
    few.worker.queue_list.remove(few.bench.vf(4));
    assert_eq!((few.send(), few.faults()), ([1, 1], [1, 1]));
}

/// A ring that leaves after each burst: buffers staged ahead are still the guest's.
fn a_ring_leaves(features: Features) {
    const FRAMES: u32 = 8;
    let bench = Bench::new(vec![plain(0), plain(1)], 0);
    let shape = Shape { features, ..Shape::default() };
    let [mut sender, mut receiver] = [(); 2].map(|()| Guest::with(shape));
    sender.attach(bench.vf(0));
    let (mut worker, _counters) = worker(&bench, [0, 1].map(|vf| bench.port(PortId::vf(vf))));
    // Were one burst's buffers lost each time, the ring would be empty after a third of these.
    for burst in 0..3 * u32::from(testguest::RING) / FRAMES {
        receiver.attach_receive(bench.vf(1), 0);
        let frames: Vec<_> =
            (0..FRAMES).map(|i| frame(mac(1), mac(0), burst * FRAMES + i, 64)).collect();
        frames.iter().for_each(|frame| sender.post(frame));
        sender.flush();
        assert_eq!(worker.poll_all::<false>(0, 0), u64::from(FRAMES));
        let mut ring = bench.vf(1).detach_receive(0).unwrap();
        let position = ring.stop();
        assert_eq!(receiver.receive(), frames);
        sender.post(&frames[0]);
        sender.flush();
        assert_eq!(worker.poll_all::<false>(0, 0), 1);
        assert_eq!((ring.stop(), receiver.receive().len()), (position, 0));
        assert_eq!(sender.in_flight(), 0);
    }
}

#[test]
fn a_split_ring_that_leaves_keeps_what_was_staged_ahead() {
    a_ring_leaves(Shape::default().features);
}

#[test]
fn a_packed_ring_that_leaves_keeps_what_was_staged_ahead() {
    a_ring_leaves(Features::all());
}
