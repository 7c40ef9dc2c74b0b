//! Advice: a path for each adapter of a workload, with the reason.
//!
//! # Model
//! Every adapter without a fixed path is tried on `vf` and `synthetic`, within the VFs of the NIC.
//! The best candidate lets all flows grow furthest, by the same factor, before a resource is full.
//! Among equals, fewer switch cores win, then fewer VFs. Up to 12 free adapters, all combinations
//! are tried. Beyond that a local search ([`search`]) runs, and [`Advice::is_exact`] is false.

mod search;

use search::{Candidate, PathSearch};

use model::state::{Problem, Problems};

use crate::dma::FCS;
use crate::frames::FrameMix;
use crate::limit::{Limit, Resource, Scope};
use crate::load::{FlowEnd, FlowHop, MachineLoad};
use crate::machine::Machine;
use crate::predict::{Pattern, PlannedPath, Scenario, predict};
use crate::units::{BitRate, Bytes, FrameRate};
use crate::workload::{Service, Workload};

/// Maximum number of free adapters for an exhaustive search.
const EXACT_MAX: usize = 12;
/// Rounding tolerance for sums of cores.
const ROUNDING: f64 = 1e-9;
/// Longest chain that the search for a crossover tries, in guests.
const CHAIN_MAX: u32 = 64;

/// Advice for a workload on a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// Advice for each adapter, in the workload's order.
    pub adapters: Vec<AdapterAdvice>,
    /// Factor by which the traffic can grow; from 1 up, all wanted traffic is carried.
    pub scale: f64,
    /// Bottleneck: the first resource to be full.
    pub binding: Limit,
    /// Used share of every resource, the fullest first: at the wanted traffic, or at the maximum if
    /// the workload wants no rates.
    pub resources: Vec<(Resource, f64)>,
    /// VFs in use.
    pub functions: u32,
    /// Busy cores of the switch.
    pub switch_cores: f64,
    /// All combinations were tried.
    pub is_exact: bool,
}

/// Advice for one adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterAdvice {
    /// Name of the adapter.
    pub name: String,
    /// Recommended path.
    pub path: PlannedPath,
    /// Number of guests with this adapter.
    pub guests: u32,
    /// Traffic received by all its guests: the wanted rate, or the part of it that can be carried.
    pub received: TrafficRate,
    /// Traffic sent by all its guests.
    pub sent: TrafficRate,
    /// Fullest resource on its path, and the free share of it: negative under overload. `None`
    /// without traffic.
    pub binding: Option<(Limit, f64)>,
    /// Result on the other path, if the adapter can use it.
    pub alternative: Option<Alternative>,
}

/// Frame rate and bit rate, without FCS.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TrafficRate {
    /// Frames per second.
    pub rate: FrameRate,
    /// Bits per second.
    pub bits: BitRate,
}

/// The same workload with one adapter on another path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alternative {
    /// The other path.
    pub path: PlannedPath,
    /// Growth of all traffic, relative to the recommendation: 0.8 is a fifth less.
    pub relative_scale: f64,
    /// Bottleneck on that path.
    pub binding: Limit,
}

/// Recommends paths for a workload on a machine.
///
/// # Errors
/// Adapters fixed to `vf` exceed the NIC's VFs, or guests exceed the host's cores.
pub fn advise(machine: &Machine, workload: &Workload) -> Result<Advice, Problems> {
    let vfs = machine.vfs();
    let search = PathSearch { machine, workload, hops: workload.hops(), vfs };
    let fewest_vf: Vec<_> = workload
        .adapters
        .iter()
        .map(|adapter| adapter.fixed.unwrap_or(PlannedPath::Synthetic))
        .collect();
    let wanted = workload.functions(&fewest_vf);
    if wanted > vfs {
        let message =
            format!("= \"vf\" of adapters needs {wanted} VFs, and {} has {vfs}", machine.card());
        let remedy = "remove some `path`, or choose another NIC";
        return Err(Problem::new("path", (), message, remedy).into());
    }
    let cores = machine.host.guest_cores.value;
    let of = |service: &Service| f64::from(service.guests.count) * service.guests.cores_each;
    let wanted: f64 = workload.services.iter().map(of).sum();
    if wanted > cores * (1.0 + ROUNDING) {
        let message = format!("of guests are {wanted} in all, and the host has {cores} for guests");
        let remedy = "reduce `cores`, or choose another host";
        return Err(Problem::new("cores", (), message, remedy).into());
    }
    let free: Vec<_> =
        (0..fewest_vf.len()).filter(|at| workload.adapters[*at].fixed.is_none()).collect();
    let is_exact = free.len() <= EXACT_MAX;
    let best = match is_exact {
        true => search.search_all(&fewest_vf, &free),
        false => search.search_local(&fewest_vf, &free),
    };
    Ok(search.advice(best, is_exact))
}

impl PathSearch<'_> {
    fn advice(&self, best: Candidate, is_exact: bool) -> Advice {
        // Without wanted rates, the traffic is the maximum that the machine carries.
        let times = if self.workload.has_rates { 1.0 } else { best.scale };
        let mut resources: Vec<_> =
            best.load.iter().map(|(what, taken)| (what, taken * times)).collect();
        resources.sort_by(|a, b| b.1.total_cmp(&a.1));
        let adapters = (0..best.paths.len()).map(|at| self.adapter(&best, at, &resources, times));
        Advice {
            adapters: adapters.collect(),
            scale: best.scale,
            binding: best.binding,
            functions: best.functions,
            switch_cores: best.load.switch_cores * times,
            resources,
            is_exact,
        }
    }

    fn adapter(
        &self,
        best: &Candidate,
        at: usize,
        resources: &[(Resource, f64)],
        times: f64,
    ) -> AdapterAdvice {
        let its = |hop: &&FlowHop| [hop.from, hop.to].contains(&FlowEnd::Adapters(at));
        let hops: Vec<_> = self.hops.iter().filter(its).cloned().collect();
        let used = MachineLoad::of(self.machine, &self.workload.guest_set(&best.paths), &hops);
        let needs = |what: &Resource| used.iter().any(|(used, _)| used == *what);
        // The list is sorted: the first resource that this adapter uses is its fullest.
        let binding = resources.iter().find(|(what, _)| needs(what));
        let carried = if self.workload.has_rates { times.min(best.scale) } else { times };
        let traffic = |end: fn(&FlowHop) -> FlowEnd| {
            let its = hops.iter().filter(|hop| end(hop) == FlowEnd::Adapters(at));
            its.fold(TrafficRate::default(), |sum, hop| {
                let rate = hop.rate * carried;
                let bits = rate * (hop.frames.size() + Bytes(-FCS));
                TrafficRate { rate: sum.rate + rate, bits: sum.bits + bits }
            })
        };
        let adapter = &self.workload.adapters[at];
        AdapterAdvice {
            name: adapter.name.clone(),
            path: best.paths[at],
            guests: self.workload.services[adapter.service].guests.count,
            received: traffic(|hop| hop.to),
            sent: traffic(|hop| hop.from),
            binding: binding.map(|(what, taken)| (what.limit, 1.0 - taken)),
            alternative: self.alternative(best, at),
        }
    }

    fn alternative(&self, best: &Candidate, at: usize) -> Option<Alternative> {
        if self.workload.adapters[at].fixed.is_some() {
            return None;
        }
        let candidate = self.flip(best, &[at])?;
        Some(Alternative {
            path: candidate.paths[at],
            relative_scale: candidate.scale / best.scale,
            binding: candidate.binding,
        })
    }
}

/// Smallest chain, in guests, in which the switch carries more frames of this size between guests
/// than the NIC; `None` up to 64.
pub fn crossover(machine: &Machine, frames: &FrameMix) -> Option<u32> {
    let rate = |path, guests| {
        let pattern = Pattern::EastWest;
        let frames = frames.clone();
        let scenario = Scenario { pattern, path, frames, guests, cores_each: 1.0 };
        predict(machine, &scenario).ok().map(|prediction| prediction.rate)
    };
    (2..=CHAIN_MAX).find(|&guests| {
        match (rate(PlannedPath::Vf, guests), rate(PlannedPath::Synthetic, guests)) {
            (Some(vf), Some(switch)) => switch > vf,
            (None, Some(_)) => true, // more guests than functions
            _ => false,
        }
    })
}

impl Advice {
    /// Result in two sentences: the carried traffic with its bottleneck, and the VFs and cores that
    /// it takes.
    pub fn verdict(&self, workload: &Workload) -> [String; 2] {
        let Self { scale, binding, functions, switch_cores, .. } = self;
        let said = match (workload.has_rates, *scale >= 1.0) {
            (true, true) if *scale > 1000.0 => {
                format!("All traffic is carried; headroom over 1000x before {binding} is full.")
            }
            (true, true) => {
                format!("All traffic is carried; headroom {scale:.2}x before {binding} is full.")
            }
            (true, false) => {
                format!("{:.0} % of the traffic can be carried: {binding} is full.", scale * 100.0)
            }
            (false, _) => format!("{binding} is full first."),
        };
        let search = if self.is_exact { "" } else { " Not all combinations were tried." };
        let taken =
            format!("It takes {functions} VFs and {switch_cores:.1} cores of the switch.{search}");
        [said, taken]
    }

    /// Name of the adapter or service to which a resource belongs; empty for a shared resource.
    pub fn owner(&self, workload: &Workload, of: Scope) -> String {
        match of {
            Scope::All => String::new(),
            Scope::In => "in".to_owned(),
            Scope::Out => "out".to_owned(),
            Scope::Adapters(at) => workload.adapters[at].name.clone(),
            Scope::Guests(at) => workload.services[at].name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::testbed;

    fn advice(text: &str) -> Result<Advice, Problems> {
        advise(&testbed().unwrap(), &Workload::parse(text).unwrap())
    }

    /// Half of a frame's guest cycles are for receiving it, half for sending it on.
    #[test]
    fn a_guest_that_only_receives_takes_half_of_one_that_forwards() {
        let of = |through: &str| {
            let text = format!(
                "frames = \"64\"\n[[service]]\nname = \"ids\"\ncycles = 100000.0\n\
                 [[flow]]\nname = \"f\"\nthrough = [{through}]\nmpps = 1.0\n"
            );
            advice(&text).unwrap()
        };
        let (sink, forwarder) = (of("\"wire\", \"ids\""), of("\"wire\", \"ids\", \"wire\""));
        assert_eq!((sink.binding, forwarder.binding), (Limit::GuestCpu, Limit::GuestCpu));
        assert!((sink.scale / forwarder.scale - 2.0).abs() < 1e-9, "{sink:?} {forwarder:?}");
        assert_eq!(sink.adapters[0].sent, TrafficRate::default());
        assert!((sink.adapters[0].received.rate.as_mpps() - sink.scale).abs() < 1e-9);
    }

    /// A burst splits by the traffic of guests, not by their number. Traffic between guests does
    /// not split.
    #[test]
    fn guests_with_little_traffic_do_not_slow_others_down() {
        let chain = "frames = \"64\"\n[[service]]\nname = \"a\"\npath = \"synthetic\"\n\
                     [[service]]\nname = \"b\"\npath = \"synthetic\"\n\
                     [[flow]]\nname = \"f\"\nthrough = [\"wire\", \"a\", \"b\"]\nmpps = 2.0\n";
        let idle = "[[service]]\nname = \"idle\"\nguests = 32\ncores = 0.01\npath = \"synthetic\"\n\
                    [[flow]]\nname = \"drops\"\nthrough = [\"wire\", \"idle\"]\nmpps = 0.000001\n";
        let (alone, beside) = (advice(chain).unwrap(), advice(&format!("{chain}{idle}")).unwrap());
        assert!((beside.scale / alone.scale - 1.0).abs() < 0.01, "{alone:?} {beside:?}");
    }

    #[test]
    fn guests_have_no_more_cores_than_there_are() {
        let text = "frames = \"64\"\n[[service]]\nname = \"a\"\nguests = 9\n\
                    [[flow]]\nname = \"f\"\nthrough = [\"wire\", \"a\"]\n";
        let error = advice(text).unwrap_err();
        let told = "cores: of guests are 9 in all, and the host has 8 for guests; reduce";
        assert!(error.to_string().starts_with(told), "{error}");
    }

    /// Compares the predicted crossover with that of nfv-2017's measurements.
    #[test]
    fn crossovers_are_near_those_that_were_measured() {
        let machine = testbed().unwrap();
        for bytes in [64, 128, 256, 512, 1024, 1518] {
            let measured = (2..=8).find(|&guests| {
                let rate = |path: PlannedPath| {
                    report::published::forwarding(Pattern::EastWest, path.measured(), bytes, guests)
                };
                rate(PlannedPath::Synthetic).unwrap().mpps > rate(PlannedPath::Vf).unwrap().mpps
            });
            let said = crossover(&machine, &FrameMix::of(bytes).unwrap());
            let (measured, said) = (measured.unwrap(), said.unwrap());
            assert!(measured.abs_diff(said) <= 1, "{bytes} B: {said}, measured {measured}");
        }
    }
}
