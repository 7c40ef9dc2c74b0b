//! Which path each adapter of a workload is to take, and why.
//!
//! # Model
//! All adapters that are not fixed are tried on `vf` and on `vhost`, as far as the VFs of the NIC
//! go. The best way is the one on which the traffic can grow furthest, all flows alike, before a
//! resource is full; of ways that are as good, the one that leaves the switch's cores most of their
//! time, then the one that takes fewer VFs. Up to 12 adapters all ways are tried; beyond, the best
//! of many is sought ([`search`]), and [`Advice::is_exact`] is false.

mod search;

use search::{Search, Way};

use crate::dma::FCS;
use crate::frames::Frames;
use crate::limit::{Limit, Owner, Resource};
use crate::load::{End, Hop, Load};
use crate::machine::Machine;
use crate::predict::{PathKind, Pattern, Scenario, predict};
use crate::units::{BitRate, Bytes, FrameRate};
use crate::workload::{Service, Workload};

/// Adapters up to which all ways are tried.
const EXACT: usize = 12;
/// What is left of rounding errors where cores are summed up.
const ROUNDING: f64 = 1e-9;
/// The longest chain in which a crossover is looked for.
const CHAIN_MAX: u32 = 64;

/// What is advised.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The paths, in the workload's order of adapters.
    pub adapters: Vec<AdapterAdvice>,
    /// How far the traffic can grow: beyond 1 all of it is carried.
    pub scale: f64,
    /// What is full first.
    pub binding: Limit,
    /// All resources at the traffic as wanted (or at its limit, where no rates are wanted), the
    /// fullest first.
    pub resources: Vec<(Resource, f64)>,
    /// VFs that it takes.
    pub functions: u32,
    /// Threads of the switch that work.
    pub switch_cores: f64,
    /// Whether all ways were tried.
    pub is_exact: bool,
}

/// What is advised for one adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterAdvice {
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: PathKind,
    /// How many guests have it.
    pub guests: u32,
    /// What all of them receive: as wanted, or what can be had of it.
    pub received: Traffic,
    /// What all of them send.
    pub sent: Traffic,
    /// What of it is full first, and how much of that is free, as a share: negative where more is
    /// wanted than there is. None where nothing passes it.
    pub binding: Option<(Limit, f64)>,
    /// What there would be on the other path, if it can take it.
    pub otherwise: Option<Otherwise>,
}

/// Frames, and their bits without FCS.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Traffic {
    /// Frames a second.
    pub rate: FrameRate,
    /// Bits a second.
    pub bits: BitRate,
}

/// The same workload with one adapter on another path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Otherwise {
    /// That path.
    pub path: PathKind,
    /// How far all traffic could grow then, against now: 0.8 is a fifth less.
    pub against: f64,
    /// What would be full first.
    pub binding: Limit,
}

/// Why there is no advice.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AdviceError {
    /// Adapters that must be VFs, and are too many.
    #[error(
        "adapters with path = \"vf\" take {wanted} VFs: {nic} has {vfs}; take `path` away from some, or give another NIC"
    )]
    Functions {
        /// How many they take.
        wanted: u32,
        /// The NIC.
        nic: String,
        /// What it has.
        vfs: u32,
    },
    /// Guests that take more cores than there are.
    #[error(
        "its guests take {wanted} cores: the host has {cores} for guests; give services fewer `cores`, or another host"
    )]
    Cores {
        /// How many they take.
        wanted: f64,
        /// What the host has.
        cores: f64,
    },
}

/// Advises for a workload on a machine.
///
/// # Errors
/// What must be on VFs does not fit the NIC.
pub fn advise(machine: &Machine, workload: &Workload) -> Result<Advice, AdviceError> {
    let vfs = machine.vfs();
    let search = Search { machine, workload, hops: workload.hops(), vfs };
    let least: Vec<_> =
        workload.adapters.iter().map(|adapter| adapter.fixed.unwrap_or(PathKind::Vhost)).collect();
    let wanted = workload.functions(&least);
    if wanted > vfs {
        return Err(AdviceError::Functions { wanted, nic: machine.card().to_owned(), vfs });
    }
    let cores = machine.host.guest_cores.value;
    let of = |service: &Service| f64::from(service.guests.count) * service.guests.cores_each;
    let wanted: f64 = workload.services.iter().map(of).sum();
    if wanted > cores * (1.0 + ROUNDING) {
        return Err(AdviceError::Cores { wanted, cores });
    }
    let free: Vec<_> =
        (0..least.len()).filter(|at| workload.adapters[*at].fixed.is_none()).collect();
    let is_exact = free.len() <= EXACT;
    let best = match is_exact {
        true => search.exhaust(&least, &free),
        false => search.seek(&least, &free),
    };
    Ok(search.told(best, is_exact))
}

impl Search<'_> {
    fn told(&self, best: Way, is_exact: bool) -> Advice {
        // Without wanted rates the traffic is what the machine can carry of it.
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
        best: &Way,
        at: usize,
        resources: &[(Resource, f64)],
        times: f64,
    ) -> AdapterAdvice {
        let its = |hop: &&Hop| [hop.from, hop.to].contains(&End::Party(at));
        let hops: Vec<_> = self.hops.iter().filter(its).cloned().collect();
        let used = Load::of(self.machine, &self.workload.company(&best.paths), &hops);
        let needs = |what: &Resource| used.iter().any(|(used, _)| used == *what);
        // Those are sorted: the first that its frames need is the fullest.
        let binding = resources.iter().find(|(what, _)| needs(what));
        let carried = if self.workload.has_rates { times.min(best.scale) } else { times };
        let traffic = |end: fn(&Hop) -> End| {
            let its = hops.iter().filter(|hop| end(hop) == End::Party(at));
            its.fold(Traffic::default(), |sum, hop| {
                let rate = hop.rate * carried;
                let bits = rate * (hop.frames.size() + Bytes(-FCS));
                Traffic { rate: sum.rate + rate, bits: sum.bits + bits }
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
            otherwise: self.otherwise(best, at),
        }
    }

    fn otherwise(&self, best: &Way, at: usize) -> Option<Otherwise> {
        if self.workload.adapters[at].fixed.is_some() {
            return None;
        }
        let way = self.changed(best, &[at])?;
        Some(Otherwise {
            path: way.paths[at],
            against: way.scale / best.scale,
            binding: way.binding,
        })
    }
}

/// From how many guests on the switch carries more frames of a size from guest to guest than the
/// NIC; none up to 64.
pub fn crossover(machine: &Machine, frames: &Frames) -> Option<u32> {
    let rate = |path, guests| {
        let pattern = Pattern::EastWest;
        let frames = frames.clone();
        let scenario = Scenario { pattern, path, frames, guests, cores_each: 1.0 };
        predict(machine, &scenario).ok().map(|prediction| prediction.rate)
    };
    (2..=CHAIN_MAX).find(|&guests| {
        match (rate(PathKind::Vf, guests), rate(PathKind::Vhost, guests)) {
            (Some(vf), Some(switch)) => switch > vf,
            (None, Some(_)) => true, // more guests than functions
            _ => false,
        }
    })
}

impl Advice {
    /// The resources whose owner is an adapter or a service, by a name for people.
    pub fn owner(&self, workload: &Workload, of: Owner) -> String {
        match of {
            Owner::All => String::new(),
            Owner::In => "in".to_owned(),
            Owner::Out => "out".to_owned(),
            Owner::Party(at) => workload.adapters[at].name.clone(),
            Owner::Guests(at) => workload.services[at].name.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::testbed;

    fn advice(text: &str) -> Result<Advice, AdviceError> {
        advise(&testbed().unwrap(), &Workload::parse(text).unwrap())
    }

    /// Half of what a frame takes is for who receives it, half for who sends it on.
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
        assert_eq!(sink.adapters[0].sent, Traffic::default());
        assert!((sink.adapters[0].received.rate.as_mpps() - sink.scale).abs() < 1e-9);
    }

    /// A burst is divided by what guests get of it, not by how many there are; between guests it is
    /// not divided by what others get.
    #[test]
    fn guests_that_hardly_receive_anything_slow_nobody_down() {
        let chain = "frames = \"64\"\n[[service]]\nname = \"a\"\npath = \"vhost\"\n\
                     [[service]]\nname = \"b\"\npath = \"vhost\"\n\
                     [[flow]]\nname = \"f\"\nthrough = [\"wire\", \"a\", \"b\"]\nmpps = 2.0\n";
        let idle = "[[service]]\nname = \"idle\"\nguests = 32\ncores = 0.01\npath = \"vhost\"\n\
                    [[flow]]\nname = \"drops\"\nthrough = [\"wire\", \"idle\"]\nmpps = 0.000001\n";
        let (alone, beside) = (advice(chain).unwrap(), advice(&format!("{chain}{idle}")).unwrap());
        assert!((beside.scale / alone.scale - 1.0).abs() < 0.01, "{alone:?} {beside:?}");
    }

    #[test]
    fn guests_have_no_more_cores_than_there_are() {
        let text = "frames = \"64\"\n[[service]]\nname = \"a\"\nguests = 9\n\
                    [[flow]]\nname = \"f\"\nthrough = [\"wire\", \"a\"]\n";
        let error = advice(text).unwrap_err();
        assert_eq!(error, AdviceError::Cores { wanted: 9.0, cores: 8.0 });
    }

    /// Chains from which on the switch carries more, as nfv-2017 measured them.
    #[test]
    fn crossovers_are_near_those_that_were_measured() {
        let machine = testbed().unwrap();
        for bytes in [64, 128, 256, 512, 1024, 1518] {
            let measured = (2..=8).find(|&guests| {
                let rate =
                    |path| report::published::forwarding(Pattern::EastWest, path, bytes, guests);
                rate(PathKind::Vhost).unwrap().mpps > rate(PathKind::Vf).unwrap().mpps
            });
            let said = crossover(&machine, &Frames::of(bytes).unwrap());
            let (measured, said) = (measured.unwrap(), said.unwrap());
            assert!(measured.abs_diff(said) <= 1, "{bytes} B: {said}, measured {measured}");
        }
    }
}
