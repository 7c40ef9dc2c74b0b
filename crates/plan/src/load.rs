//! Use of a machine's resources by traffic.
//!
//! # Model
//! Traffic is a set of *hops*: a frame rate from one end to another. An end is the wire or an
//! *adapter group*: the adapters that guests of one kind have for one purpose, all on one path.
//! [`MachineLoad`] sums the used share of every resource over all hops. A share above 1 is
//! overload; the fullest resource is the bottleneck. Forwarding a frame costs a guest's core and a
//! function's queue pair one half for receiving it and one half for sending it.
//!
//! Frames come from the wire in bursts. A burst of `b` splits among `sum(1 - (1 - p)^b)` guests,
//! with `p` each guest's share of the traffic from the wire. Guests send on what they got at once,
//! so every ring along the route starts as often.
//!
//! | hop | PCIe, NIC | threads of the switch |
//! |---|---|---|
//! | wire, function | writes the frame to the guest | |
//! | function, wire | reads it | |
//! | function, function | reads and writes it; the NIC's limits between functions | |
//! | wire, switch, guest | writes it to the switch's port | takes it from the wire's port, gives it to the guest |
//! | guest, switch, wire | reads it | takes it from the guest's port, gives it to the wire's |
//! | guest, switch, guest | | takes it from the guest's port, gives it to the other |
//! | function, switch, guest, or back | reads and writes it, between functions; | as from or to the wire |
//!
//! # Limits
//! Those of [`predict`](crate::predict).

use std::collections::BTreeMap;

use crate::dma::{self, Crossing, FCS};
use crate::frames::FrameMix;
use crate::limit::{Limit, Resource, Scope};
use crate::machine::{Costs, Host, Machine, Polling};
use crate::path::PlannedPath;
use crate::units::{BitRate, Bytes, Cycles, FrameRate, Seconds};

/// Share of a forwarded frame's cost that counts for receiving, and for sending.
const HALF: f64 = 0.5;
/// Preamble and gap between frames, in bytes.
const GAP: f64 = 20.0;

/// Equal guests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guests {
    /// Number of guests.
    pub count: u32,
    /// Cores of each guest.
    pub cores_each: f64,
    /// Guest cycles to receive and send on a frame; `None`: the host's figures.
    pub cycles: Option<f64>,
}

/// One adapter of each guest of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdapterGroup {
    /// Path of the adapters.
    pub path: PlannedPath,
    /// Index of the guests in [`GuestSet::guests`].
    pub guests: usize,
}

/// Guests and their adapters.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GuestSet {
    /// The guests.
    pub guests: Vec<Guests>,
    /// Their adapters.
    pub adapters: Vec<AdapterGroup>,
    /// Guests among which a burst from the wire splits; `None`: computed from the hops.
    pub receivers: Option<f64>,
}

impl GuestSet {
    /// Guests with one adapter each.
    pub fn of(guests: Guests, path: PlannedPath) -> Self {
        Self {
            guests: vec![guests],
            adapters: vec![AdapterGroup { path, guests: 0 }],
            receivers: None,
        }
    }

    /// Number of guests of an adapter group.
    fn count(&self, group: usize) -> f64 {
        f64::from(self.guests[self.adapters[group].guests].count)
    }
}

/// End of a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowEnd {
    /// The wire.
    Wire,
    /// Adapter group, by index.
    Adapters(usize),
}

/// Frames from one end to another.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowHop {
    /// Sender.
    pub from: FlowEnd,
    /// Receiver.
    pub to: FlowEnd,
    /// Frame rate, summed over the guests of a group.
    pub rate: FrameRate,
    /// Frame sizes.
    pub frames: FrameMix,
    /// The frames came from the wire, on this hop or an earlier one.
    pub by_wire: bool,
}

/// A chain of equal guests from the wire to the wire. Frames reach each guest by its first path and
/// leave by its second; equal paths share one adapter.
pub fn chain(
    each: Guests,
    paths: impl IntoIterator<Item = [PlannedPath; 2]>,
    rate: FrameRate,
    frames: &FrameMix,
) -> (GuestSet, Vec<FlowHop>) {
    let mut guest_set = GuestSet::default();
    let mut hops = Vec::new();
    let mut hop = |from, to| {
        hops.push(FlowHop { from, to, rate, frames: frames.clone(), by_wire: true });
    };
    let mut before = FlowEnd::Wire;
    for (index, [first, second]) in paths.into_iter().enumerate() {
        guest_set.guests.push(each);
        guest_set.adapters.push(AdapterGroup { path: first, guests: index });
        hop(before, FlowEnd::Adapters(guest_set.adapters.len() - 1));
        if second != first {
            guest_set.adapters.push(AdapterGroup { path: second, guests: index });
        }
        before = FlowEnd::Adapters(guest_set.adapters.len() - 1);
    }
    hop(before, FlowEnd::Wire);
    (guest_set, hops)
}

/// Used share of each resource.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MachineLoad {
    taken: BTreeMap<Resource, f64>,
    /// Bits on PCIe from the NIC to the host.
    pub up: BitRate,
    /// Bits on PCIe from the host to the NIC.
    pub down: BitRate,
    /// Busy cores of the switch.
    pub switch_cores: f64,
    /// Busy cores of guests.
    pub guest_cores: f64,
}

impl MachineLoad {
    /// Load of these hops on a machine.
    pub fn of(machine: &Machine, guest_set: &GuestSet, hops: &[FlowHop]) -> Self {
        let burst_split = BurstSplit::of(machine, guest_set, hops);
        let mut sum = LoadSum { machine, guest_set, load: Self::default(), burst_split };
        for hop in hops {
            sum.hop(hop);
        }
        sum.load
    }

    /// Used resources, each with its share.
    pub fn iter(&self) -> impl Iterator<Item = (Resource, f64)> {
        self.taken.iter().map(|(what, taken)| (*what, *taken))
    }

    /// Fullest resource, with its share.
    pub fn fullest(&self) -> Option<(Resource, f64)> {
        self.iter().max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Software costs of a path; `None` if a card carries it.
pub(crate) fn costs(host: &Host, path: PlannedPath) -> Option<&Costs> {
    match path {
        PlannedPath::Vf => host.soft_nic.as_ref(),
        PlannedPath::Synthetic => Some(&host.switch),
        PlannedPath::Kernel => Some(&host.kernel),
    }
}

/// Split of bursts from the wire among guests of the switch.
enum BurstSplit {
    /// Known number of receivers.
    Known(f64),
    /// Number of guests, and the share of traffic of each.
    Parts(Vec<(f64, f64)>),
}

impl BurstSplit {
    fn of(machine: &Machine, guest_set: &GuestSet, hops: &[FlowHop]) -> Self {
        if let Some(known) = guest_set.receivers {
            return Self::Known(known);
        }
        let switched = |end: FlowEnd| match end {
            FlowEnd::Wire => None,
            FlowEnd::Adapters(at) => costs(&machine.host, guest_set.adapters[at].path).map(|_| at),
        };
        let to_ports = hops.iter().filter(|hop| switched(hop.from).is_none());
        let mut rates = vec![0.0; guest_set.adapters.len()];
        for hop in to_ports {
            if let Some(group) = switched(hop.to) {
                rates[group] += hop.rate.0;
            }
        }
        let all: f64 = rates.iter().sum();
        let part = |(group, rate): (usize, &f64)| {
            let guests = guest_set.count(group);
            (*rate > 0.0).then(|| (guests, rate / all / guests))
        };
        Self::Parts(rates.iter().enumerate().filter_map(part).collect())
    }

    /// Number of guests that share a burst of this size, at least 1.
    fn receivers(&self, burst: f64) -> f64 {
        match self {
            Self::Known(receivers) => receivers.clamp(1.0, burst),
            Self::Parts(parts) => {
                let has_some =
                    |(guests, part): &(f64, f64)| guests * (1.0 - (1.0 - part).powf(burst));
                parts.iter().map(has_some).sum::<f64>().max(1.0)
            }
        }
    }

    /// Share of frames with another destination than the frame before.
    fn changes(&self) -> f64 {
        match self {
            Self::Known(receivers) => 1.0 - 1.0 / receivers.max(1.0),
            Self::Parts(parts) if parts.is_empty() => 0.0,
            Self::Parts(parts) => {
                1.0 - parts.iter().map(|(guests, part)| guests * part * part).sum::<f64>()
            }
        }
    }
}

/// Time of a guest's core for one frame.
pub(crate) fn guest_time(host: &Host, guests: &Guests, frames: &FrameMix) -> Seconds {
    let fixed = guests.cycles.unwrap_or(host.guest_cycles.value);
    let byte = host.guest_cycles_per_byte.value;
    frames.mean(|bytes| Cycles(fixed + byte * bytes)) / host.clock()
}

/// One side of a hop.
#[derive(Clone, Copy)]
struct HopSide<'a> {
    /// Adapter group; `None` at the wire.
    group: Option<usize>,
    /// Software costs; `None` if a card carries the frames.
    costs: Option<&'a Costs>,
}

struct LoadSum<'a> {
    machine: &'a Machine,
    guest_set: &'a GuestSet,
    load: MachineLoad,
    burst_split: BurstSplit,
}

impl<'a> LoadSum<'a> {
    fn take(&mut self, limit: Limit, scope: Scope, share: f64) {
        *self.load.taken.entry(Resource { limit, scope }).or_default() += share;
    }

    fn side(&self, end: FlowEnd) -> HopSide<'a> {
        match end {
            FlowEnd::Wire => HopSide { group: None, costs: None },
            FlowEnd::Adapters(group) => {
                let path = self.guest_set.adapters[group].path;
                HopSide { group: Some(group), costs: costs(&self.machine.host, path) }
            }
        }
    }

    fn hop(&mut self, hop: &FlowHop) {
        let (from, to) = (self.side(hop.from), self.side(hop.to));
        for group in [from.group, to.group].into_iter().flatten() {
            self.guest(group, hop);
        }
        if from.group.is_none() || to.group.is_none() {
            self.generator(hop);
        }
        let is_soft = self.machine.host.soft_nic.is_some();
        if !is_soft && (from.costs.is_none() || to.costs.is_none()) {
            self.nic(hop, from, to);
        }
        let start = |costs: &Costs| {
            let burst = f64::from(costs.burst);
            let receivers = if hop.by_wire { self.burst_split.receivers(burst) } else { 1.0 };
            costs.receiver.value * receivers / burst
        };
        match (from.costs, to.costs) {
            (None, None) => (),
            (Some(costs), Some(_)) => {
                let fixed = costs.from_guest.value + costs.to_guest.value + start(costs);
                self.switch(hop, from, costs, fixed, f64::from(costs.copies));
            }
            (Some(costs), None) => {
                let fixed = costs.from_guest.value + costs.wire.value + start(costs);
                self.switch(hop, from, costs, fixed, 1.0);
            }
            (None, Some(costs)) => {
                let lookup = costs.lookup.as_ref().map_or(0.0, |lookup| lookup.value);
                let lookup = lookup * self.burst_split.changes();
                let fixed = costs.wire.value + costs.to_guest.value + start(costs) + lookup;
                self.switch(hop, from, costs, fixed, 1.0);
            }
        }
    }

    /// Guest cores for sending or receiving.
    fn guest(&mut self, group: usize, hop: &FlowHop) {
        let host = &self.machine.host;
        let kind = self.guest_set.adapters[group].guests;
        let guests = &self.guest_set.guests[kind];
        let cores = hop.rate * guest_time(host, guests, &hop.frames) * HALF;
        let all = cores / host.guest_cores.value;
        let own = cores / (f64::from(guests.count) * guests.cores_each);
        self.take(Limit::GuestCpu, Scope::Guests(kind), own);
        self.take(Limit::GuestCpu, Scope::All, all);
        self.load.guest_cores += cores;
    }

    /// Traffic generator at the far end of the wire, if it runs on guests' cores.
    fn generator(&mut self, hop: &FlowHop) {
        let host = &self.machine.host;
        if let Some(cycles) = &host.generator_cycles {
            let cores = hop.rate * (Cycles(cycles.value) / host.clock());
            self.take(Limit::GuestCpu, Scope::All, cores / host.guest_cores.value);
        }
    }

    /// NIC, PCIe link and wire. The switch's port to the NIC is a function like others.
    fn nic(&mut self, hop: &FlowHop, from: HopSide<'_>, to: HopSide<'_>) {
        let nic = &self.machine.nic;
        let link = nic.link.tlp() * nic.link_share.value;
        let mut crossing = Crossing::default();
        if to.group.is_some() {
            crossing = crossing
                + dma::mean(&hop.frames, |bytes| dma::receive(&nic.link, &nic.batches, bytes));
        }
        if from.group.is_some() {
            crossing = crossing
                + dma::mean(&hop.frames, |bytes| dma::transmit(&nic.link, &nic.batches, bytes));
        }
        let (up, down) = (hop.rate * crossing.up, hop.rate * crossing.down);
        self.load.up = self.load.up + up;
        self.load.down = self.load.down + down;
        self.take(Limit::PcieUp, Scope::All, up / link);
        self.take(Limit::PcieDown, Scope::All, down / link);
        let time =
            |bytes: f64| Seconds::ns(nic.queue_ns.value + nic.queue_ns_per_byte.value * bytes);
        for side in [from, to] {
            if let HopSide { group: Some(group), costs: None } = side {
                let busy = hop.rate * hop.frames.mean(time) * HALF;
                let pairs = self.guest_set.count(group);
                self.take(Limit::NicQueue, Scope::Adapters(group), busy / pairs);
            }
        }
        let size = hop.frames.size();
        let scope = match (from.group, to.group) {
            (None, _) => Scope::In,
            (_, None) => Scope::Out,
            _ => {
                let share = hop.rate / FrameRate::mpps(nic.between.mpps.value);
                self.take(Limit::NicPps, Scope::In, share);
                self.take(Limit::NicPps, Scope::Out, share);
                let inside =
                    hop.rate * (size + Bytes(-FCS)) / BitRate::gbps(nic.between.gbps.value);
                self.take(Limit::NicInternal, Scope::All, inside);
                return self.memory(hop, 2.0);
            }
        };
        let line = BitRate::gbps(nic.wire.line_gbps.value) * f64::from(nic.wire.ports);
        self.take(Limit::Line, scope, hop.rate * (size + Bytes(GAP)) / line);
        self.take(Limit::NicPps, scope, hop.rate / FrameRate::mpps(nic.wire.mpps.value));
        self.memory(hop, 1.0);
    }

    /// Switch thread that carries frames from one port to another.
    fn switch(&mut self, hop: &FlowHop, from: HopSide<'_>, costs: &Costs, fixed: f64, copies: f64) {
        let host = &self.machine.host;
        let cycles = |bytes: f64| Cycles(fixed + costs.byte.value * copies * bytes);
        let threads = hop.rate * (hop.frames.mean(cycles) / host.clock());
        let cores = host.switch_cores.value;
        self.load.switch_cores += threads;
        self.take(Limit::SwitchCpu, Scope::All, threads / cores);
        self.memory(hop, 2.0 * copies);
        if host.polling == Polling::Shared {
            return;
        }
        match from {
            HopSide { group: Some(group), costs: Some(_) } => {
                let ports = self.guest_set.count(group).min(cores);
                self.take(Limit::GuestPort, Scope::Adapters(group), threads / ports);
            }
            _ => {
                let ports = f64::from(self.machine.nic.wire.ports);
                self.take(Limit::WirePort, Scope::In, threads / ports);
                let queue = BitRate::gbps(host.wire_queue_gbps.value) * ports;
                let filled = hop.rate * (hop.frames.size() + Bytes(GAP)) / queue;
                self.take(Limit::WireQueue, Scope::In, filled);
            }
        }
    }

    /// Memory bandwidth, for `touched` reads or writes of each byte.
    fn memory(&mut self, hop: &FlowHop, touched: f64) {
        let memory = BitRate::gbps(self.machine.host.memory_gbps.value);
        self.take(Limit::Memory, Scope::All, hop.rate * (hop.frames.size() * touched) / memory);
    }
}
