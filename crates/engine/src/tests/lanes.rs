//! Several lanes, and several queue pairs: no loss, no duplicates, each flow in order.

use std::sync::atomic::{AtomicBool, Ordering};

use bridge::PortId;
use bridge::nic::NicConfig;
use virtq::Features;

use super::kit::*;
use super::paths::Stop;
use crate::Port;
use crate::port::counter;

const FRAMES: u32 = 20_000;
/// Frames of one flow in flight: two flows fit into a ring, with a burst that has arrived and whose
/// buffers have not come back.
const WINDOW: u32 = 90;

/// A flow of numbered frames between two of a test's guests.
struct Flow {
    from: usize,
    to: usize,
    sent: u32,
    arrived: u32,
}

impl Flow {
    fn new(from: usize, to: usize) -> Flow {
        Flow { from, to, sent: 0, arrived: 0 }
    }

    /// Fills the window. The first part of a number names the flow, the rest its order.
    fn send(&mut self, guests: &mut [Guest]) {
        let guest = &mut guests[self.from];
        while self.sent < FRAMES && self.sent - self.arrived < WINDOW {
            let len = 60 + (self.sent % 7) as usize * 20;
            let (dst, src) = (mac(self.to as u8), mac(self.from as u8));
            guest.post(&frame(dst, src, self.sent, len));
            self.sent += 1;
        }
        guest.flush();
    }
}

/// Carries all flows, each from VF `from` to VF `to`, and checks every frame.
fn carry(guests: &mut [Guest], flows: &mut [Flow]) {
    until("all frames to arrive", || {
        for flow in &mut *flows {
            flow.send(guests);
        }
        for (to, guest) in guests.iter_mut().enumerate() {
            for got in guest.receive() {
                let from = usize::from(got[11] - 1); // the source address's last byte
                let of = |flow: &&mut Flow| (flow.from, flow.to) == (from, to);
                let flow = flows.iter_mut().find(of).expect("a frame of a flow");
                assert_eq!(number(&got), flow.arrived, "lost, repeated or overtaken");
                flow.arrived += 1;
            }
        }
        flows.iter().all(|flow| flow.arrived == FRAMES)
    });
    for guest in guests {
        guest.settle();
        assert!(guest.receive().is_empty(), "a frame too many");
    }
}

#[test]
fn crossing_traffic_on_two_lanes() {
    // The uplink has the first lane, then ports alternate.
    let bench = Bench::new(vec![plain(0), plain(1)], 2);
    let mut guests = bench.guests([PortId::vf(0), PortId::vf(1)]);
    carry(&mut guests, &mut [Flow::new(0, 1), Flow::new(1, 0)]);
    bench.expect("0", "frames", FRAMES.into());
    bench.expect("1", "frames", FRAMES.into());
}

#[test]
fn many_to_one_from_two_lanes() {
    let bench = Bench::new(vec![plain(0), plain(1), plain(2)], 2);
    let mut guests = bench.guests([0, 1, 2].map(PortId::vf));
    carry(&mut guests, &mut [Flow::new(0, 2), Flow::new(1, 2)]);
    bench.expect("0", "frames", FRAMES.into());
    bench.expect("1", "frames", FRAMES.into());
    // Two lanes wrote these counters in turn, each under the receive ring's lock.
    bench.expect("n/vf2", "rx_frames", 2 * u64::from(FRAMES));
    bench.expect("n/vf2", "rx_drop_no_buffer", 0);
}

#[test]
fn all_to_all_on_three_lanes() {
    let bench = Bench::new((0..4).map(plain).collect(), 3);
    let mut guests = bench.guests([0, 1, 2, 3].map(PortId::vf));
    let mut flows = [
        Flow::new(0, 1),
        Flow::new(1, 2),
        Flow::new(2, 3),
        Flow::new(3, 0),
        Flow::new(0, 2),
        Flow::new(2, 0),
    ];
    carry(&mut guests, &mut flows);
}

/// CVE-2019-3900 (Linux): two guests kept a thread busy for ever.
#[test]
fn colluding_guests() {
    // Two guests send to each other as fast as they can, from a thread of their own, so that their
    // rings are never empty; the frames of two honest ones pass all the same.
    let bench = Bench::new((0..4).map(plain).collect(), 1);
    let mut guests = bench.guests([0, 1, 2, 3].map(PortId::vf));
    let stop = AtomicBool::new(false);
    let (colluding, honest) = guests.split_at_mut(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (from, guest) in colluding.iter_mut().enumerate() {
                    guest.receive();
                    while guest.in_flight() < WINDOW as usize {
                        let (dst, src) = (mac(1 - from as u8), mac(from as u8));
                        guest.post(&frame(dst, src, 0, 60));
                    }
                    guest.flush();
                }
            }
        });
        let _stop = Stop(&stop);
        let [from, to] = honest else { panic!("two guests") };
        for number in 0..1000 {
            from.send(&frame(mac(3), mac(2), number, 60));
            let [got] = &to.wait_for(1)[..] else { panic!("one frame") };
            assert_eq!(self::number(got), number);
        }
    });
    assert!(bench.count("n/vf1", "rx_frames") > 0, "no colluding guest received a frame");
}

/// Two functions with `pairs` pairs each.
fn multiqueue(pairs: usize, lanes: usize) -> Bench {
    let vfs = vec![Some(plain(0)), Some(plain(1))];
    Bench::of(NicConfig { vfs, ..NicConfig::default() }, lanes, pairs)
}

#[test]
fn a_flow_keeps_to_one_ring() {
    let bench = multiqueue(4, 2);
    let (from, to) = (bench.vf(0), bench.vf(1));
    let mut senders: Vec<Guest> = (0..4).map(|_| Guest::new()).collect();
    let mut receivers: Vec<Guest> = (0..4).map(|_| Guest::new()).collect();
    for (pair, guest) in senders.iter().enumerate() {
        guest.attach_transmit(from, pair);
    }
    let numbers = |guest: &mut Guest| -> Vec<u32> {
        guest.receive().iter().map(|frame| number(frame)).collect()
    };
    // Number of the receiver's rings; a frame goes to the sender's pair modulo this.
    for rings in 1..=4 {
        receivers[rings - 1].attach_receive(to, rings - 1);
        for round in 0..3 {
            for (pair, sender) in senders.iter_mut().enumerate() {
                for i in 0..10 {
                    sender.send(&frame(mac(1), mac(0), pair as u32 * 1000 + round * 10 + i, 60));
                }
            }
        }
        for sender in &mut senders {
            sender.settle();
        }
        for (ring, receiver) in receivers.iter_mut().enumerate() {
            let got = numbers(receiver);
            for pair in 0..4 {
                let flow: Vec<u32> = got.iter().copied().filter(|n| n / 1000 == pair).collect();
                let here = ring < rings && pair as usize % rings == ring;
                let all: Vec<u32> = (0..30).map(|i| pair * 1000 + i).collect();
                assert_eq!(flow, if here { all } else { vec![] });
            }
        }
    }
    // A ring in the middle goes: only those before the gap are used.
    drop(to.detach_receive(1));
    for sender in &mut senders {
        sender.send(&frame(mac(1), mac(0), 7, 60));
        sender.settle();
    }
    let counts = [0, 1, 2, 3].map(|i: usize| numbers(&mut receivers[i]).len());
    assert_eq!(counts, [4, 0, 0, 0]);
}

#[test]
fn sixteen_pairs_share_three_lanes() {
    const PAIRS: usize = 16; // the most that an attachment may have
    const FRAMES: u32 = 400;
    for features in [Features::empty(), Features::PACKED] {
        let bench = multiqueue(PAIRS, 3);
        let shape = Shape { features, ..Shape::default() };
        let guests = || (0..PAIRS).map(|_| Guest::with(shape)).collect::<Vec<_>>();
        let (mut senders, mut receivers) = (guests(), guests());
        for pair in 0..PAIRS {
            receivers[pair].attach_receive(bench.vf(1), pair);
            senders[pair].attach_transmit(bench.vf(0), pair);
        }
        bench.expect("n/vf0", "rings_attached", PAIRS as u64);
        let mut next = [0; PAIRS];
        for i in 0..FRAMES {
            for (pair, sender) in senders.iter_mut().enumerate() {
                sender.send(&frame(mac(1), mac(0), pair as u32 * FRAMES + i, 60));
            }
            // Less often than a receive ring fills.
            if i % 100 == 99 {
                senders.iter_mut().for_each(Guest::settle);
                for (pair, receiver) in receivers.iter_mut().enumerate() {
                    for frame in receiver.receive() {
                        assert_eq!(number(&frame), pair as u32 * FRAMES + next[pair]);
                        next[pair] += 1;
                    }
                }
            }
        }
        assert_eq!(next, [FRAMES; PAIRS], "{features:?}");
    }
}

#[test]
fn is_attached_once_one_pair_has_both_directions() {
    let bench = multiqueue(2, 1);
    let guest = Guest::new();
    let port = bench.vf(0);
    assert_eq!(port.pairs(), 2);
    assert!(!port.is_attached());
    guest.attach_receive(port, 0);
    assert!(!port.is_attached());
    guest.attach_transmit(port, 1);
    assert!(!port.is_attached(), "halves of different pairs");
    guest.attach_transmit(port, 0);
    assert!(port.is_attached());
    assert_eq!(bench.count("n/vf0", "rings_attached"), 3);
    drop(port.detach_receive(0));
    assert!(!port.is_attached());
    assert!(port.detach_receive(0).is_none(), "it is gone");
    assert_eq!(bench.count("n/vf0", "rings_attached"), 2);
}

#[test]
fn each_pair_has_counters_of_its_own_and_readers_see_the_sum() {
    // Two lanes may have two pairs of one port in hand, and a counter has one writer.
    let bench = multiqueue(2, 2);
    let mut senders = [Guest::new(), Guest::new()];
    let receivers = [Guest::new(), Guest::new()];
    for (pair, (sender, receiver)) in senders.iter().zip(&receivers).enumerate() {
        receiver.attach_receive(bench.vf(1), pair);
        sender.attach_transmit(bench.vf(0), pair);
    }
    for (sender, frames) in senders.iter_mut().zip([3, 5]) {
        for i in 0..frames {
            sender.send(&frame(mac(1), mac(0), i, 60));
        }
        sender.settle();
    }
    bench.expect("n/vf0", "tx_frames", 8);
    bench.expect("n/vf1", "rx_frames", 8);
    bench.expect("n/vf1", "rings_attached", 2);
    let of = |port: &Port, word| [0, 1].map(|pair| port.block(pair).get(word));
    assert_eq!(of(bench.vf(0), counter::TX_FRAMES), [3, 5]);
    assert_eq!(of(bench.vf(1), counter::RX_FRAMES), [3, 5]);
}
