//! Latency of a frame.
//!
//! # Model
//! A route is a row of stations, one for each limit of the prediction. A station of `c` servers
//! with capacity `m` frames per second serves a frame in `s = c / m`. At the rate `r` each server
//! is busy for the share `u = r / m`, and a frame waits `u s / (2 (1 - u))` (M/D/1, arrivals split
//! evenly among servers). Polled stations work in bursts: the next burst gathers while one is
//! served. At share `u` a burst has `b = min(burst, 1 / (1 - u))` frames, and a frame waits for
//! half of the others: `(b - 1) s / 2`. DMA adds a fixed time: one read and one write for each
//! passage of the NIC.
//!
//! # Limits
//! Means, not tails. Waits at stations are added as if independent; wake-ups of sleeping threads
//! are not modelled. At the predicted maximum rate the mean is infinite: ask below it.

use super::{Pattern, PlannedPath, Scenario, Term};
use crate::limit::Limit;
use crate::machine::{Machine, Polling};
use crate::units::{FrameRate, Seconds};

/// A queueing station on a frame's route.
#[derive(Debug, Clone, PartialEq)]
pub struct Station {
    /// Limit that it models.
    pub limit: Limit,
    /// Capacity, in frames that guests send, summed over guests.
    pub full: FrameRate,
    /// Number of servers.
    pub servers: f64,
    /// Maximum burst in frames; 1 if not polled.
    pub burst: f64,
    /// Passages of a frame from end to end: in a chain, one for each hop.
    pub passes: f64,
    /// The service time counts. `false` for parts of other stations and for pipelines, which add
    /// only waiting time.
    pub holds: bool,
    /// Load-independent time.
    pub fixed: Seconds,
}

/// Mean end-to-end latency of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// Without waiting.
    pub unloaded: Seconds,
    /// Waiting for others.
    pub queued: Seconds,
}

impl Station {
    /// Service time of one frame.
    fn service(&self) -> Seconds {
        Seconds(self.servers / self.full.0)
    }

    /// Waiting time of a frame at `rate`, summed over guests; infinite at a full station.
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
    /// Latency along these stations at `rate`.
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
        // Pipelines, and times that PCIe and memory already count.
        Limit::NicPps | Limit::NicInternal | Limit::WireQueue | Limit::Memory => false,
        _ => true,
    };
    let is_polled = matches!(
        term.limit,
        Limit::GuestCpu | Limit::GuestPort | Limit::WirePort | Limit::SwitchCpu
    );
    let burst = match path {
        _ if !(is_polled && holds) => 1,
        PlannedPath::Vf => host.soft_nic.as_ref().map_or(host.switch.burst, |soft| soft.burst),
        PlannedPath::Synthetic => host.switch.burst,
        PlannedPath::Kernel => host.kernel.burst,
    };
    // North/south, a frame meets one guest, with the wire on both sides. In a chain it meets all
    // guests and the hops between.
    let passes = match (pattern, term.limit) {
        (Pattern::NorthSouth, _) => 1.0,
        (Pattern::EastWest, Limit::GuestCpu) => guests,
        (Pattern::EastWest, _) => guests - 1.0,
    };
    let fixed = match term.limit {
        // Every frame that crosses PCIe goes up once.
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
