//! Ports that are added and removed while others run, and their counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wire::Mac;

use super::kit::*;
use super::paths::{Stop, Traffic};
use crate::snapshot::ForwardingSnapshot;
use crate::soft_nic::SoftNic;

const PATHS: [Path; 3] = [Path::Vf, Path::Vmq, Path::Synthetic];
/// Ports that are added and removed.
const PORTS_ADDED: usize = 60;

/// Returns `true` if a port of this name has counters.
fn is_counted(net: &Net, label: &str) -> bool {
    net.bench.labels().iter().any(|known| known == label)
}

/// Adds adapter 3, lets it send frames to adapter 2, and removes it again.
fn visit(net: &mut Net, way: usize, listener: &mut Guest) {
    let mut adapters = vec![Adapter::plain(Path::Vf), Adapter::plain(Path::Synthetic)];
    adapters.push(Adapter::plain(PATHS[way / 3 % 3]));
    let without = adapters.clone();
    adapters.push(Adapter::plain(PATHS[way % 3]));
    let label = format!("n/new{way}");
    let nic = net.bench.fabric.nics()[0].clone();
    let port = net.bench.fabric.add_port(&nic, &label, 1 + way % 2).unwrap();
    net.ports.push(port.clone());
    for name in ["tx_frames", "rx_frames", "rings_attached", "rx_drop_down"] {
        assert_eq!(net.bench.count(&label, name), 0, "it has no past");
    }
    let mut guest = Guest::new();
    guest.attach(&port);
    // Before it has a location no guest receives its frames.
    guest.send(&frame(mac(2), mac(3), 0, 60));
    guest.settle();
    net.bench.expect(&label, "tx_drop_unplugged", 1);
    net.apply(&adapters);
    let frames: Vec<Vec<u8>> = (0..20).map(|i| frame(mac(2), mac(3), i, 60)).collect();
    frames.iter().for_each(|frame| guest.post(frame));
    guest.flush();
    assert_eq!(listener.wait_for(20), frames);
    guest.settle();
    net.bench.expect(&label, "tx_frames", 21);

    net.apply(&without);
    // No lane works by the snapshot before when each has begun two more rounds.
    net.bench.wait_for_rounds(2);
    assert_eq!(net.bench.count(&label, "rx_frames"), guest.frames().len() as u64);
    net.ports.pop();
    net.bench.fabric.remove_port(&nic, &port);
    assert!(!is_counted(net, &label));
    assert_eq!(nic.ports().len(), 4);
    net.bench.fabric.remove_port(&nic, &port); // has no receiver
    assert_eq!(nic.ports().len(), 4);
}

#[test]
fn ports_come_and_go_and_others_lose_nothing() {
    for lanes in [1, 2] {
        let mut net = Net::new(3, lanes, 1);
        net.apply(&[Path::Vf, Path::Synthetic, Path::Vf].map(Adapter::plain));
        let mut traffic = Traffic::new(&net, 1);
        traffic.stream(0, mac(1), &[1]);
        traffic.stream(1, mac(0), &[0]);
        let mut sender = traffic.guests.remove(2).remove(0);
        let mut uplink = traffic.guests.remove(2).remove(0);
        // Another thread's guest listens for adapter 2, whose first one only sends.
        let mut listener = Guest::new();
        listener.attach_receive(net.port(2), 0);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let traffic = &mut traffic;
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    traffic.send();
                    traffic.receive();
                    // To any port of this name, to the uplink, or to none.
                    while sender.in_flight() < 20 {
                        sender.post(&frame(mac(3), mac(2), 0, 60));
                    }
                    sender.flush();
                    uplink.receive();
                    std::thread::yield_now();
                }
            });
            let _stop = Stop(&stop);
            for way in 0..PORTS_ADDED {
                visit(&mut net, way, &mut listener);
            }
        });
        traffic.finish();
        let sent = |n: usize| u64::from(traffic.streams[n].sent);
        for (n, other) in [(0, 1), (1, 0)] {
            net.bench.expect(&format!("n/a{n}"), "tx_frames", sent(n));
            net.bench.expect(&format!("n/a{n}"), "rx_frames", sent(other));
        }
    }
}

#[test]
fn a_port_that_went_leaves_nothing_to_the_next() {
    let mut net = Net::new(2, 1, 1);
    net.apply(&[Path::Vf, Path::Vf].map(Adapter::plain));
    let nic = net.bench.fabric.nics()[0].clone();
    let old = nic.snapshot();
    let gone = net.ports.pop().unwrap();
    net.bench.fabric.remove_port(&nic, &gone);
    // It has its predecessor's number and counters, and the current snapshot still has that one's
    // location.
    let port = net.bench.fabric.add_port(&nic, "n/next", 1).unwrap();
    assert_eq!(port.number, gone.number);
    let mut guest = Guest::new();
    guest.attach(&port);
    guest.send(&frame(mac(0), mac(1), 1, 60));
    guest.settle();
    net.bench.expect("n/next", "tx_drop_unplugged", 1);
    assert_eq!((nic.snapshot().location(&port), nic.snapshot().is_up(&port)), (None, false));
    // A lane that still works by an older snapshot has frames for the one before.
    let all = frame(Mac::BROADCAST, mac(0), 2, 60);
    crate::inject::inject(&old, net.port(0), &all);
    assert_eq!(net.bench.count("n/next", "rx_drop_down"), 0);
    assert!(guest.receive().is_empty());
}

#[test]
fn a_nic_goes_with_all_its_ports() {
    let mut net = Net::of(&[Path::Vf, Path::Synthetic].map(Adapter::plain), 2);
    let mut guests = net.guests();
    let nic = net.bench.fabric.nics()[0].clone();
    net.bench.fabric.remove_nic(&nic);
    assert!(net.bench.fabric.nics().is_empty() && nic.ports().is_empty());
    assert!(!net.bench.labels().iter().any(|label| label.starts_with("n/")));
    guests[0].post(&frame(mac(1), mac(0), 1, 60));
    guests[0].flush();
    net.bench.wait_for_rounds(2);
    assert_eq!(guests[0].in_flight(), 1, "no lane takes it");
    // Another of the same name starts from zero.
    let nic = net.bench.fabric.add_nic("n");
    net.uplink = net.bench.fabric.add_port(&nic, "n/uplink", 1).unwrap();
    let add = |n| net.bench.fabric.add_port(&nic, &format!("n/a{n}"), 1).unwrap();
    net.ports = (0..2).map(add).collect();
    net.apply(&[Path::Vf, Path::Synthetic].map(Adapter::plain));
    let mut guests = net.guests();
    let there = frame(mac(1), mac(0), 1, 60);
    guests[0].send(&there);
    assert_eq!(guests[1].wait_for(1), [there]);
}

/// A lane holds the snapshot by which it last forwarded, and would free a replaced one as its last
/// holder.
#[test]
fn a_lane_frees_no_snapshot() {
    let nic = SoftNic::new("n");
    let mut lane = nic.lane_snapshot();
    let first = Arc::downgrade(lane.load());
    nic.set_snapshot(ForwardingSnapshot::empty());
    let second = lane.load().number();
    assert!(first.upgrade().is_some_and(|first| first.number() != second));
    nic.set_snapshot(ForwardingSnapshot::empty());
    assert!(first.upgrade().is_none(), "the next change frees it");
}
