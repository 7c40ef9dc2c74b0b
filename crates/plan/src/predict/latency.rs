//! How long a frame takes.
//!
//! # Model
//! A frame's way is a row of stations: the NIC's DMA, threads of the switch, the guest. At a station of `c` servers that take `s` a
//! frame, under a load of `r` frames a second each server is busy for the share `u = r s / c`, and a frame waits
//! `u s / (2 (1 - u))`: deterministic service, random arrivals, M/D/1, each server with its part of the arrivals.
//! What is polled works in bursts: while a burst is on its way the next one gathers. At share `u` a burst has
//! `b = min(burst, 1 / (1 - u))` frames, and a frame waits for half of the others in it: `(b - 1) s / 2`. On top are the fixed
//! times of DMA (a read and a write for each crossing).
//!
//! # Limits
//! Means, not tails; waits at stations are added as if independent; wake-ups of sleeping threads are not in it. At the rate that the
//! model predicts a queue has no finite mean: ask below it.

use super::{PathKind, Pattern, Scenario};
use crate::load::{Guests, Load, guest_time};
use crate::machine::Machine;
use crate::units::{FrameRate, Seconds};

/// A station of a frame's way.
#[derive(Debug, Clone, PartialEq)]
pub struct Station {
    /// What it is.
    pub name: &'static str,
    /// How long a server has a frame.
    pub service: Seconds,
    /// Servers.
    pub servers: f64,
    /// Frames of a burst; 1 where nothing polls.
    pub burst: f64,
    /// How often a frame passes it between coming and going: in a chain once for each hop.
    pub passes: f64,
    /// What it takes besides, whatever the load.
    pub fixed: Seconds,
}

/// A frame's mean time from end to end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// Without waiting.
    pub unloaded: Seconds,
    /// Waiting for others.
    pub queued: Seconds,
}

impl Station {
    /// The wait of a frame where guests send `rate` frames a second, summed; without end where the station is full.
    pub fn wait(&self, rate: FrameRate) -> Seconds {
        let busy = rate * self.service / self.servers;
        if busy >= 1.0 {
            return Seconds(f64::INFINITY);
        }
        let burst = self.burst.min(1.0 / (1.0 - busy));
        self.service * (busy / (2.0 * (1.0 - busy)) + (burst - 1.0) / 2.0)
    }
}

impl Latency {
    /// Of a way at a rate.
    pub fn at(stations: &[Station], rate: FrameRate) -> Self {
        let unloaded = stations.iter().map(|one| (one.service + one.fixed) * one.passes).sum();
        let queued = stations.iter().map(|one| one.wait(rate) * one.passes).sum();
        Self { unloaded, queued }
    }
}

/// The stations of a scenario, with what one frame a second takes of each.
pub(super) fn stations(machine: &Machine, scenario: &Scenario, load: &Load) -> Vec<Station> {
    let Machine { nic, host } = machine;
    let &Scenario { pattern, path, guests, cores_each, .. } = scenario;
    let each = Guests { count: guests, cores_each, cycles: None };
    let guests = f64::from(guests);
    let is_chain = pattern == Pattern::EastWest;
    // North/south a frame meets one guest, and the wire on both sides of it; in a chain, all guests and the hops between.
    let (met, hops) = if is_chain { (guests, guests - 1.0) } else { (1.0, 1.0) };
    let is_card = path == PathKind::Vf && host.soft_nic.is_none();
    let burst = match path {
        _ if is_card => 32,
        PathKind::Vf | PathKind::Vhost => host.switch.burst,
        PathKind::Virtio => host.kernel.burst,
    };
    let burst = f64::from(burst);
    let mut stations = vec![Station {
        name: "guest",
        service: guest_time(host, &each, &scenario.frames),
        servers: (guests * cores_each).min(host.guest_cores.value),
        burst,
        passes: met,
        fixed: Seconds(0.0),
    }];
    if is_card || !is_chain && host.soft_nic.is_none() {
        let time =
            |bytes: f64| Seconds::ns(nic.queue_ns.value + nic.queue_ns_per_byte.value * bytes);
        stations.push(Station {
            name: "nic",
            service: scenario.frames.mean(time),
            servers: if is_card { guests } else { f64::from(nic.wire.ports) },
            burst: 1.0,
            passes: hops,
            fixed: Seconds::ns(nic.read_ns.value + nic.write_ns.value),
        });
    }
    let threads = load.switch_cores;
    if threads > 0.0 {
        let passed = if is_chain { 1.0 } else { 2.0 };
        stations.push(Station {
            name: "switch",
            service: Seconds(threads) / passed,
            servers: host.switch_cores.value / passed,
            burst,
            passes: hops * passed,
            fixed: Seconds(0.0),
        });
    }
    stations
}
