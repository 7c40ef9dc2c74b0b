//! Paths that change under traffic: no loss, no duplicates, each flow in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use wire::Mac;

use super::kit::*;
use crate::ForwardingSnapshot;

/// Scenes that are put in force while frames flow.
const SWAPS: u32 = 2000;
/// Frames of each stream that arrive meanwhile, at least.
const FRAMES: u32 = 2000;
/// Frames of a stream under way: those of all streams fit into a receiver's ring.
const WINDOW: u32 = 40;

/// Numbered frames from one queue pair to an address, and with it to these members.
pub(super) struct Stream {
    from: usize,
    pair: usize,
    dst: Mac,
    /// Each with the next number that it is to get.
    to: Vec<(usize, u32)>,
    pub(super) sent: u32,
}

impl Stream {
    /// Frames that have arrived at all.
    fn arrived(&self) -> u32 {
        self.to.iter().map(|(_, next)| *next).min().unwrap_or(0)
    }
}

/// Guests of all adapters, and their streams.
pub(super) struct Traffic {
    /// By member and queue pair; the uplink is the member after the last adapter.
    pub(super) guests: Vec<Vec<Guest>>,
    pub(super) streams: Vec<Stream>,
    /// The VLAN that the uplink speaks in; 0 for untagged.
    vlan: u16,
}

impl Traffic {
    pub(super) fn new(net: &Net, pairs: usize) -> Traffic {
        let guests = (0..=net.ports.len()).map(|member| {
            let guests: Vec<Guest> = (0..pairs).map(|_| Guest::new()).collect();
            for (pair, guest) in guests.iter().enumerate() {
                guest.attach_receive(net.port(member), pair);
                guest.attach_transmit(net.port(member), pair);
            }
            guests
        });
        Traffic { guests: guests.collect(), streams: Vec::new(), vlan: 0 }
    }

    /// Adds a stream from each queue pair of an adapter.
    pub(super) fn stream(&mut self, from: usize, dst: Mac, to: &[usize]) {
        for pair in 0..self.guests[from].len() {
            let to = to.iter().map(|to| (*to, 0)).collect();
            self.streams.push(Stream { from, pair, dst, to, sent: 0 });
        }
    }

    /// Sends as much as the windows allow.
    pub(super) fn send(&mut self) {
        let uplink = self.guests.len() - 1;
        for stream in &mut self.streams {
            let guest = &mut self.guests[stream.from][stream.pair];
            while stream.sent - stream.arrived() < WINDOW {
                let len = 60 + (stream.sent % 5) as usize * 30;
                let plain = frame(stream.dst, mac(stream.from as u8), stream.sent, len);
                let has_tag = self.vlan > 0 && stream.from == uplink;
                guest.post(&if has_tag { tagged(&plain, 0x8100, self.vlan) } else { plain });
                stream.sent += 1;
            }
            guest.flush();
        }
    }

    /// Waits until all is carried: then all has arrived.
    pub(super) fn finish(&mut self) {
        self.guests.iter_mut().flatten().for_each(Guest::settle);
        self.receive();
        for stream in &self.streams {
            let all = stream.to.iter().all(|(_, next)| *next == stream.sent);
            assert!(all, "the last frames are lost");
        }
    }

    /// Receives frames; each must be the next of its stream.
    pub(super) fn receive(&mut self) {
        for (member, guests) in self.guests.iter_mut().enumerate() {
            for (pair, guest) in guests.iter_mut().enumerate() {
                for got in guest.receive() {
                    take(&mut self.streams, (member, pair), &got);
                }
            }
        }
    }
}

fn take(streams: &mut [Stream], (member, pair): (usize, usize), got: &[u8]) {
    let (dst, src) = (Mac(got[..6].try_into().unwrap()), Mac(got[6..12].try_into().unwrap()));
    let is = |stream: &&mut Stream| {
        (stream.dst, mac(stream.from as u8), stream.pair) == (dst, src, pair)
    };
    let stream = streams.iter_mut().find(is).expect("a frame of a stream");
    let to = stream.to.iter_mut().find(|(to, _)| *to == member);
    let (_, next) = to.expect("a frame that is for this member");
    let is_tagged = got[12..14] == [0x81, 0];
    let number = number(&got[if is_tagged { 4 } else { 0 }..]);
    assert_eq!(number, *next, "lost, repeated or overtaken: {src} to {dst} at {member}");
    *next += 1;
}

/// All assignments of adapters to paths.
fn all_snapshots(net: &Net, tags: &Tags, guarded: bool) -> Vec<Arc<ForwardingSnapshot>> {
    let paths = [Path::Vf, Path::Vmq, Path::Synthetic];
    let ways = 0..paths.len().pow(net.ports.len() as u32);
    let snapshot = |way: usize| {
        let path = |n: usize| paths[way / paths.len().pow(n as u32) % paths.len()];
        let adapters: Vec<Adapter> =
            (0..net.ports.len()).map(|n| Adapter::new(path(n), tags.clone())).collect();
        let mut settings = net.settings(&adapters);
        let ports = settings.switch.ports.iter_mut().flatten();
        ports.for_each(|port| port.dhcp_guard = guarded);
        Arc::new(net.snapshot(&adapters, settings))
    };
    ways.map(snapshot).collect()
}

/// Puts one snapshot after the other in force, in no order, while all send.
fn change_under(net: &Net, snapshots: &[Arc<ForwardingSnapshot>], traffic: &mut Traffic) {
    let nic = net.bench.fabric.nics()[0].clone();
    let swaps = AtomicU32::new(0);
    nic.set_snapshot(snapshots[0].clone());
    let is_done = |traffic: &Traffic| {
        let arrived = traffic.streams.iter().map(Stream::arrived).min();
        arrived >= Some(FRAMES) && swaps.load(Ordering::Relaxed) >= SWAPS
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 1_u32;
            while !stop.load(Ordering::Relaxed) {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                nic.set_snapshot(snapshots[(random >> 16) as usize % snapshots.len()].clone());
                swaps.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        // Ends the other thread also if this one panics.
        let _stop = Stop(&stop);
        while !is_done(traffic) {
            traffic.send();
            traffic.receive();
            std::thread::yield_now();
        }
    });
    traffic.finish();
    for port in net.ports.iter().chain([&net.uplink]) {
        for none in ["rx_drop_no_buffer", "rx_drop_down", "tx_drop_unplugged"] {
            assert_eq!(net.bench.count(&port.label, none), 0, "{none} of {}", port.label);
        }
    }
}

/// Ends the other thread, also after a failed assertion.
pub(super) struct Stop<'a>(pub(super) &'a std::sync::atomic::AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two adapters that send each other frames.
fn two(lanes: usize, pairs: usize, tags: &Tags, guarded: bool) {
    let net = Net::new(2, lanes, pairs);
    let mut traffic = Traffic::new(&net, pairs);
    traffic.stream(0, mac(1), &[1]);
    traffic.stream(1, mac(0), &[0]);
    change_under(&net, &all_snapshots(&net, tags, guarded), &mut traffic);
}

/// Three, and the uplink; all send to each other and broadcast too.
fn three(lanes: usize, pairs: usize, tags: &Tags, guarded: bool) {
    let net = Net::new(3, lanes, pairs);
    let mut traffic = Traffic::new(&net, pairs);
    traffic.vlan = match tags {
        Tags::Access(vlan) | Tags::Trunk { native: vlan, .. } => *vlan,
    };
    for from in 0..4 {
        let others: Vec<usize> = (0..4).filter(|to| *to != from).collect();
        // A ring has room for three unicast and three broadcast streams.
        let to = (from + 1) % 4;
        traffic.stream(from, mac(to as u8), &[to]);
        traffic.stream(from, mac((to as u8 + 1) % 4), &[(to + 1) % 4]);
        traffic.stream(from, Mac::BROADCAST, &others);
    }
    change_under(&net, &all_snapshots(&net, tags, guarded), &mut traffic);
}

#[test]
fn two_adapters_on_one_lane() {
    two(1, 1, &Tags::Access(0), false);
    two(1, 2, &Tags::Access(5), true);
}

#[test]
fn two_adapters_on_two_lanes() {
    two(2, 1, &Tags::Access(0), false);
    two(2, 2, &Tags::Access(5), false);
}

#[test]
fn three_adapters_and_broadcasts_on_one_lane() {
    three(1, 1, &Tags::Access(5), false);
    three(1, 2, &Tags::Access(0), false);
}

#[test]
fn three_adapters_and_broadcasts_on_two_lanes() {
    three(2, 1, &Tags::Trunk { native: 5, vids: vec![6] }, true);
    three(2, 2, &Tags::Access(0), true);
}
