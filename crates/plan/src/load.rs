//! What traffic uses of a machine.
//!
//! # Model
//! Traffic is a set of *hops*: so many frames a second from one *end* to another, an end being the
//! wire or a *party*: the adapters that guests of one kind have for one purpose, all on one path.
//! Each hop uses some of the *resources*: of each, [`Load`] sums up the share that is taken, 1
//! being all of it. What is taken by more than 1 is too much, and the resource of which most is
//! taken is the one that binds. What a guest's core and a function's queue pair have of a frame
//! that is taken in and sent on is counted by halves: one for who sends, one for who receives.
//!
//! Frames come by the wire in bursts. A burst of `b` is divided among `sum(1 - (1 - p)^b)` guests,
//! where `p` is each one's part of what comes by the wire, and they send on what they got at once:
//! each ring on the way is begun with as often.
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
use crate::frames::Frames;
use crate::limit::{Limit, Owner, Resource};
use crate::machine::{Costs, Host, Machine, Polling};
use crate::predict::PathKind;
use crate::units::{BitRate, Bytes, Cycles, FrameRate, Seconds};

/// The part of a frame that is taken in and sent on that each of both counts for.
const HALF: f64 = 0.5;
/// Preamble and gap between frames, in bytes.
const GAP: f64 = 20.0;

/// Guests that are alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guests {
    /// How many.
    pub count: u32,
    /// Cores of each.
    pub cores_each: f64,
    /// Cycles for which a core of theirs has a frame that it takes in and sends on; the host's
    /// figures, if none.
    pub cycles: Option<f64>,
}

/// An adapter of each of some guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Party {
    /// Its path.
    pub path: PathKind,
    /// The number of those guests.
    pub of: usize,
}

/// What traffic is between.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Company {
    /// The guests.
    pub guests: Vec<Guests>,
    /// Their adapters.
    pub parties: Vec<Party>,
    /// Among how many guests bursts by the wire are divided, if it is known; as the hops say, if
    /// not.
    pub receivers: Option<f64>,
}

impl Company {
    /// Guests with one adapter each.
    pub fn of(guests: Guests, path: PathKind) -> Self {
        Self { guests: vec![guests], parties: vec![Party { path, of: 0 }], receivers: None }
    }

    /// How many guests a party is.
    fn count(&self, party: usize) -> f64 {
        f64::from(self.guests[self.parties[party].of].count)
    }
}

/// Where a hop begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The wire.
    Wire,
    /// The party of that number.
    Party(usize),
}

/// Frames from one end to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Hop {
    /// Where they come from.
    pub from: End,
    /// Where they go.
    pub to: End,
    /// How many, all guests of a party together.
    pub rate: FrameRate,
    /// Their sizes.
    pub frames: Frames,
    /// Whether they came by the wire, on this hop or one before.
    pub by_wire: bool,
}

/// A chain from the wire to the wire, of guests like this one: by the first of its paths frames
/// come to each, by the second they leave; one adapter has both where they are the same.
pub fn chain(
    each: Guests,
    paths: impl IntoIterator<Item = [PathKind; 2]>,
    rate: FrameRate,
    frames: &Frames,
) -> (Company, Vec<Hop>) {
    let mut company = Company::default();
    let mut hops = Vec::new();
    let mut hop = |from, to| {
        hops.push(Hop { from, to, rate, frames: frames.clone(), by_wire: true });
    };
    let mut before = End::Wire;
    for (of, [first, second]) in paths.into_iter().enumerate() {
        company.guests.push(each);
        company.parties.push(Party { path: first, of });
        hop(before, End::Party(company.parties.len() - 1));
        if second != first {
            company.parties.push(Party { path: second, of });
        }
        before = End::Party(company.parties.len() - 1);
    }
    hop(before, End::Wire);
    (company, hops)
}

/// What is taken of each resource.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Load {
    taken: BTreeMap<Resource, f64>,
    /// Bits on PCIe from the NIC to the host.
    pub up: BitRate,
    /// Bits on PCIe from the host to the NIC.
    pub down: BitRate,
    /// Threads of the switch that work.
    pub switch_cores: f64,
    /// Cores of guests that work.
    pub guest_cores: f64,
}

impl Load {
    /// What hops between parties take of a machine.
    pub fn of(machine: &Machine, company: &Company, hops: &[Hop]) -> Self {
        let division = Division::of(machine, company, hops);
        let mut sum = Sum { machine, company, load: Self::default(), division };
        for hop in hops {
            sum.hop(hop);
        }
        sum.load
    }

    /// All resources that are taken from, and how much of each.
    pub fn iter(&self) -> impl Iterator<Item = (Resource, f64)> {
        self.taken.iter().map(|(what, taken)| (*what, *taken))
    }

    /// The resource of which most is taken, and how much of it.
    pub fn fullest(&self) -> Option<(Resource, f64)> {
        self.iter().max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// What software costs frames of a path; none where a card has them.
pub(crate) fn costs(host: &Host, path: PathKind) -> Option<&Costs> {
    match path {
        PathKind::Vf => host.soft_nic.as_ref(),
        PathKind::Vhost => Some(&host.switch),
        PathKind::Virtio => Some(&host.kernel),
    }
}

/// How what comes by the wire to the switch is divided among guests.
enum Division {
    /// Among so many.
    Known(f64),
    /// Guests, by the part of it that each of them gets.
    Parts(Vec<(f64, f64)>),
}

impl Division {
    fn of(machine: &Machine, company: &Company, hops: &[Hop]) -> Self {
        if let Some(known) = company.receivers {
            return Self::Known(known);
        }
        let switched = |end: End| match end {
            End::Wire => None,
            End::Party(at) => costs(&machine.host, company.parties[at].path).map(|_| at),
        };
        let to_ports = hops.iter().filter(|hop| switched(hop.from).is_none());
        let mut rates = vec![0.0; company.parties.len()];
        for hop in to_ports {
            if let Some(party) = switched(hop.to) {
                rates[party] += hop.rate.0;
            }
        }
        let all: f64 = rates.iter().sum();
        let part = |(party, rate): (usize, &f64)| {
            let guests = company.count(party);
            (*rate > 0.0).then(|| (guests, rate / all / guests))
        };
        Self::Parts(rates.iter().enumerate().filter_map(part).collect())
    }

    /// Among how many guests a burst of so many frames is divided: at least one has it.
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

    /// The share of frames that go elsewhere than the one before.
    fn elsewhere(&self) -> f64 {
        match self {
            Self::Known(receivers) => 1.0 - 1.0 / receivers.max(1.0),
            Self::Parts(parts) if parts.is_empty() => 0.0,
            Self::Parts(parts) => {
                1.0 - parts.iter().map(|(guests, part)| guests * part * part).sum::<f64>()
            }
        }
    }
}

/// How long a core of a guest has a frame.
pub(crate) fn guest_time(host: &Host, guests: &Guests, frames: &Frames) -> Seconds {
    let fixed = guests.cycles.unwrap_or(host.guest_cycles.value);
    let byte = host.guest_cycles_per_byte.value;
    frames.mean(|bytes| Cycles(fixed + byte * bytes)) / host.clock()
}

/// One side of a hop.
#[derive(Clone, Copy)]
struct Side<'a> {
    /// The party; none at the wire.
    party: Option<usize>,
    /// What software costs its frames.
    costs: Option<&'a Costs>,
}

struct Sum<'a> {
    machine: &'a Machine,
    company: &'a Company,
    load: Load,
    division: Division,
}

impl<'a> Sum<'a> {
    fn take(&mut self, limit: Limit, of: Owner, share: f64) {
        *self.load.taken.entry(Resource { limit, of }).or_default() += share;
    }

    fn side(&self, end: End) -> Side<'a> {
        match end {
            End::Wire => Side { party: None, costs: None },
            End::Party(party) => {
                let path = self.company.parties[party].path;
                Side { party: Some(party), costs: costs(&self.machine.host, path) }
            }
        }
    }

    fn hop(&mut self, hop: &Hop) {
        let (from, to) = (self.side(hop.from), self.side(hop.to));
        for party in [from.party, to.party].into_iter().flatten() {
            self.guest(party, hop);
        }
        if from.party.is_none() || to.party.is_none() {
            self.generator(hop);
        }
        let is_soft = self.machine.host.soft_nic.is_some();
        if !is_soft && (from.costs.is_none() || to.costs.is_none()) {
            self.nic(hop, from, to);
        }
        let begun = |costs: &Costs| {
            let burst = f64::from(costs.burst);
            let receivers = if hop.by_wire { self.division.receivers(burst) } else { 1.0 };
            costs.receiver.value * receivers / burst
        };
        match (from.costs, to.costs) {
            (None, None) => (),
            (Some(costs), Some(_)) => {
                let fixed = costs.from_guest.value + costs.to_guest.value + begun(costs);
                self.switch(hop, from, costs, fixed, f64::from(costs.copies));
            }
            (Some(costs), None) => {
                let fixed = costs.from_guest.value + costs.wire.value + begun(costs);
                self.switch(hop, from, costs, fixed, 1.0);
            }
            (None, Some(costs)) => {
                let lookup = costs.lookup.as_ref().map_or(0.0, |lookup| lookup.value);
                let lookup = lookup * self.division.elsewhere();
                let fixed = costs.wire.value + costs.to_guest.value + begun(costs) + lookup;
                self.switch(hop, from, costs, fixed, 1.0);
            }
        }
    }

    /// The cores of a guest that sends or receives.
    fn guest(&mut self, party: usize, hop: &Hop) {
        let host = &self.machine.host;
        let of = self.company.parties[party].of;
        let it = &self.company.guests[of];
        let cores = hop.rate * guest_time(host, it, &hop.frames) * HALF;
        let all = cores / host.guest_cores.value;
        let own = cores / (f64::from(it.count) * it.cores_each);
        self.take(Limit::GuestCpu, Owner::Guests(of), own);
        self.take(Limit::GuestCpu, Owner::All, all);
        self.load.guest_cores += cores;
    }

    /// The far end of the wire, where it runs on guests' cores.
    fn generator(&mut self, hop: &Hop) {
        let host = &self.machine.host;
        if let Some(cycles) = &host.generator_cycles {
            let cores = hop.rate * (Cycles(cycles.value) / host.clock());
            self.take(Limit::GuestCpu, Owner::All, cores / host.guest_cores.value);
        }
    }

    /// The NIC, its link and the wire. The switch's port to the NIC is a function like others.
    fn nic(&mut self, hop: &Hop, from: Side<'_>, to: Side<'_>) {
        let nic = &self.machine.nic;
        let link = nic.link.tlp() * nic.link_share.value;
        let mut crossing = Crossing::default();
        if to.party.is_some() {
            crossing = crossing
                + dma::mean(&hop.frames, |bytes| dma::receive(&nic.link, &nic.batches, bytes));
        }
        if from.party.is_some() {
            crossing = crossing
                + dma::mean(&hop.frames, |bytes| dma::transmit(&nic.link, &nic.batches, bytes));
        }
        let (up, down) = (hop.rate * crossing.up, hop.rate * crossing.down);
        self.load.up = self.load.up + up;
        self.load.down = self.load.down + down;
        self.take(Limit::PcieUp, Owner::All, up / link);
        self.take(Limit::PcieDown, Owner::All, down / link);
        let time =
            |bytes: f64| Seconds::ns(nic.queue_ns.value + nic.queue_ns_per_byte.value * bytes);
        for side in [from, to] {
            if let Side { party: Some(party), costs: None } = side {
                let busy = hop.rate * hop.frames.mean(time) * HALF;
                let pairs = self.company.count(party);
                self.take(Limit::NicQueue, Owner::Party(party), busy / pairs);
            }
        }
        let size = hop.frames.size();
        let way = match (from.party, to.party) {
            (None, _) => Owner::In,
            (_, None) => Owner::Out,
            _ => {
                let share = hop.rate / FrameRate::mpps(nic.between.mpps.value);
                self.take(Limit::NicPps, Owner::In, share);
                self.take(Limit::NicPps, Owner::Out, share);
                let inside =
                    hop.rate * (size + Bytes(-FCS)) / BitRate::gbps(nic.between.gbps.value);
                self.take(Limit::NicInternal, Owner::All, inside);
                return self.memory(hop, 2.0);
            }
        };
        let line = BitRate::gbps(nic.wire.line_gbps.value) * f64::from(nic.wire.ports);
        self.take(Limit::Line, way, hop.rate * (size + Bytes(GAP)) / line);
        self.take(Limit::NicPps, way, hop.rate / FrameRate::mpps(nic.wire.mpps.value));
        self.memory(hop, 1.0);
    }

    /// A thread of the switch, which carries frames from one port to another.
    fn switch(&mut self, hop: &Hop, from: Side<'_>, costs: &Costs, fixed: f64, copies: f64) {
        let host = &self.machine.host;
        let cycles = |bytes: f64| Cycles(fixed + costs.byte.value * copies * bytes);
        let threads = hop.rate * (hop.frames.mean(cycles) / host.clock());
        let cores = host.switch_cores.value;
        self.load.switch_cores += threads;
        self.take(Limit::SwitchCpu, Owner::All, threads / cores);
        self.memory(hop, 2.0 * copies);
        if host.polling == Polling::Shared {
            return;
        }
        match from {
            Side { party: Some(party), costs: Some(_) } => {
                let ports = self.company.count(party).min(cores);
                self.take(Limit::GuestPort, Owner::Party(party), threads / ports);
            }
            _ => {
                let ports = f64::from(self.machine.nic.wire.ports);
                self.take(Limit::WirePort, Owner::In, threads / ports);
                let queue = BitRate::gbps(host.wire_queue_gbps.value) * ports;
                let filled = hop.rate * (hop.frames.size() + Bytes(GAP)) / queue;
                self.take(Limit::WireQueue, Owner::In, filled);
            }
        }
    }

    /// The memory, which is read or written so often for each byte.
    fn memory(&mut self, hop: &Hop, touched: f64) {
        let memory = BitRate::gbps(self.machine.host.memory_gbps.value);
        self.take(Limit::Memory, Owner::All, hop.rate * (hop.frames.size() * touched) / memory);
    }
}
