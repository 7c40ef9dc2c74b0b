//! How long a frame takes.
//!
//! # Model
//! A frame's way is a row of stations, one for each limit of the prediction: the line, either
//! direction of PCIe, the NIC, threads of the switch, guests, the memory. A station of `c` servers
//! that is full at `m` frames a second has a frame for `s = c / m`; under a load of `r` each server
//! is busy for the share `u = r / m`, and a frame waits `u s / (2 (1 - u))`: deterministic service,
//! random arrivals, M/D/1, each server with its part of the arrivals. What is polled works in
//! bursts: while a burst is on its way the next one gathers. At share `u` a burst has
//! `b = min(burst, 1 / (1 - u))` frames, and a frame waits for half of the others in it:
//! `(b - 1) s / 2`. On top are the fixed times of DMA (a read and a write for each passage of the
//! NIC).
//!
//! # Limits
//! Means, not tails; waits at stations are added as if independent; wake-ups of sleeping threads
//! are not in it. At the rate that the model predicts a queue has no finite mean: ask below it.

use super::{PathKind, Pattern, Scenario, Term};
use crate::limit::Limit;
use crate::machine::{Machine, Polling};
use crate::units::{FrameRate, Seconds};

/// A station of a frame's way.
#[derive(Debug, Clone, PartialEq)]
pub struct Station {
    /// What it is.
    pub limit: Limit,
    /// The rate at which it is full.
    pub full: FrameRate,
    /// Servers.
    pub servers: f64,
    /// Frames of a burst; 1 where nothing polls.
    pub burst: f64,
    /// How often a frame passes it between coming and going: in a chain once for each hop.
    pub passes: f64,
    /// Whether a frame is held there: what other stations are parts of, and what takes many at a
    /// time, only makes it wait.
    pub holds: bool,
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
    /// How long a server has a frame.
    fn service(&self) -> Seconds {
        Seconds(self.servers / self.full.0)
    }

    /// The wait of a frame where guests send `rate` frames a second, summed; without end where the
    /// station is full.
    pub fn wait(&self, rate: FrameRate) -> Seconds {
        let busy = rate / self.full;
        if busy >= 1.0 {
            return Seconds(f64::INFINITY);
        }
        let burst = self.burst.min(1.0 / (1.0 - busy));
        self.service() * (busy / (2.0 * (1.0 - busy)) + (burst - 1.0) / 2.0)
    }
}

impl Latency {
    /// Of a way at a rate.
    pub fn at(stations: &[Station], rate: FrameRate) -> Self {
        let held = |one: &Station| {
            let service = if one.holds { one.service() } else { Seconds(0.0) };
            (service + one.fixed) * one.passes
        };
        let unloaded = stations.iter().map(held).sum();
        let queued = stations.iter().map(|one| one.wait(rate) * one.passes).sum();
        Self { unloaded, queued }
    }
}

/// The stations of a scenario.
pub(super) fn stations(machine: &Machine, scenario: &Scenario, terms: &[Term]) -> Vec<Station> {
    terms.iter().map(|term| station(machine, scenario, term)).collect()
}

fn station(machine: &Machine, scenario: &Scenario, term: &Term) -> Station {
    let Machine { nic, host } = machine;
    let &Scenario { pattern, path, guests, cores_each, .. } = scenario;
    let guests = f64::from(guests);
    let cores = host.switch_cores.value;
    let ports = f64::from(nic.wire.ports);
    let servers = match term.limit {
        Limit::GuestCpu => (guests * cores_each).min(host.guest_cores.value),
        Limit::GuestPort => guests.min(cores),
        Limit::SwitchCpu => cores,
        Limit::NicQueue => guests,
        Limit::Line | Limit::WirePort | Limit::WireQueue => ports,
        Limit::PcieUp | Limit::PcieDown | Limit::NicPps | Limit::NicInternal | Limit::Memory => 1.0,
    };
    let holds = match term.limit {
        // The port's threads are those of the switch.
        Limit::SwitchCpu => host.polling == Polling::Shared,
        // Pipelines, and what a frame is on its way through PCIe and memory anyway.
        Limit::NicPps | Limit::NicInternal | Limit::WireQueue | Limit::Memory => false,
        _ => true,
    };
    let is_polled = matches!(
        term.limit,
        Limit::GuestCpu | Limit::GuestPort | Limit::WirePort | Limit::SwitchCpu
    );
    let burst = match path {
        _ if !(is_polled && holds) => 1,
        PathKind::Vf => host.soft_nic.as_ref().map_or(host.switch.burst, |soft| soft.burst),
        PathKind::Vhost => host.switch.burst,
        PathKind::Virtio => host.kernel.burst,
    };
    // North/south a frame meets one guest, and the wire on both sides of it; in a chain, all guests
    // and the hops between.
    let passes = match (pattern, term.limit) {
        (Pattern::NorthSouth, _) => 1.0,
        (Pattern::EastWest, Limit::GuestCpu) => guests,
        (Pattern::EastWest, _) => guests - 1.0,
    };
    let fixed = match term.limit {
        // Whatever crosses PCIe goes up at some time.
        Limit::PcieUp => Seconds::ns(nic.read_ns.value + nic.write_ns.value),
        _ => Seconds(0.0),
    };
    Station {
        limit: term.limit,
        full: term.rate,
        servers,
        burst: f64::from(burst),
        passes,
        holds,
        fixed,
    }
}
