//! Which path each adapter of a workload is to take, and why.
//!
//! # Model
//! All adapters that are not fixed are tried on `vf` and on `vhost`, as far as the VFs of the NIC go. The best way is the one
//! on which the traffic can grow furthest, all flows alike, before a resource is full; of ways that are as good, the one that
//! leaves the switch's cores most of their time, then the one that takes fewer VFs. Up to 12 adapters all ways are tried; beyond, the
//! search begins with everything on one path or the other, and changes one adapter or exchanges two as long as that is better.
//!
//! # Limits
//! The search of more than 12 adapters may end at a way that no such change betters; [`Advice::is_exact`] says which it was.

use crate::limit::{Limit, Owner, Resource};
use crate::load::{Hop, Load};
use crate::machine::{Machine, Nic};
use crate::predict::{PathKind, Pattern, Scenario, predict};
use crate::units::FrameRate;
use crate::workload::Workload;
use crate::{frames::Frames, load::End};

/// Adapters up to which all ways are tried.
const EXACT: usize = 12;
/// Ways count as equally good if they differ by less than this share.
const ALIKE: f64 = 1e-9;
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
    /// All resources at the traffic as wanted (or at its limit, where no rates are wanted), the fullest first.
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
    /// Frames that it sends and receives a second: as wanted, or what can be had of it.
    pub rate: FrameRate,
    /// What binds what passes it first.
    pub binding: Limit,
    /// How much of that is free, as a share: negative where more is wanted than there is.
    pub margin: f64,
    /// What there would be on the other path, if it can take it.
    pub otherwise: Option<Otherwise>,
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
}

/// One way, and what it is worth.
struct Way {
    paths: Vec<PathKind>,
    load: Load,
    scale: f64,
    binding: Limit,
    functions: u32,
}

impl Way {
    fn is_better(&self, other: &Self) -> bool {
        let alike = (self.scale / other.scale - 1.0).abs() < ALIKE;
        if !alike {
            return self.scale > other.scale;
        }
        let (mine, its) = (self.load.switch_cores, other.load.switch_cores);
        if (mine - its).abs() > ALIKE * its.max(ALIKE) {
            return mine < its;
        }
        self.functions < other.functions
    }
}

struct Search<'a> {
    machine: &'a Machine,
    workload: &'a Workload,
    hops: Vec<Hop>,
    vfs: u32,
}

/// Advises for a workload on a machine.
///
/// # Errors
/// What must be on VFs does not fit the NIC.
pub fn advise(machine: &Machine, workload: &Workload) -> Result<Advice, AdviceError> {
    let Nic { vfs, title, .. } = &machine.nic;
    let vfs = if machine.host.soft_nic.is_some() { u32::MAX } else { *vfs };
    let search = Search { machine, workload, hops: workload.hops(), vfs };
    let least: Vec<_> =
        workload.adapters.iter().map(|adapter| adapter.fixed.unwrap_or(PathKind::Vhost)).collect();
    let wanted = workload.functions(&least);
    if wanted > vfs {
        return Err(AdviceError::Functions { wanted, nic: title.clone(), vfs });
    }
    let free: Vec<_> =
        (0..least.len()).filter(|at| workload.adapters[*at].fixed.is_none()).collect();
    let is_exact = free.len() <= EXACT;
    let best = match is_exact {
        true => search.exhaust(&least, &free),
        false => search.climb(&least, &free),
    };
    Ok(search.told(best, is_exact))
}

impl Search<'_> {
    /// What these paths are worth; none where they take more VFs than there are.
    fn way(&self, paths: Vec<PathKind>) -> Option<Way> {
        let functions = self.workload.functions(&paths);
        if functions > self.vfs {
            return None;
        }
        let load = Load::of(self.machine, &self.workload.company(&paths), &self.hops);
        let (what, taken) = load.fullest()?;
        Some(Way { paths, load, scale: 1.0 / taken, binding: what.limit, functions })
    }

    fn known(&self, paths: &[PathKind]) -> Way {
        // The caller has checked that these fit, and a workload has at least one hop, which takes something.
        self.way(paths.to_vec()).expect("a way that fits")
    }

    fn exhaust(&self, least: &[PathKind], free: &[usize]) -> Way {
        let mut best = self.known(least);
        for choice in 1_u32..1 << free.len() {
            let mut paths = least.to_vec();
            for (bit, &at) in free.iter().enumerate() {
                if choice >> bit & 1 == 1 {
                    paths[at] = PathKind::Vf;
                }
            }
            if let Some(way) = self.way(paths)
                && way.is_better(&best)
            {
                best = way;
            }
        }
        best
    }

    fn climb(&self, least: &[PathKind], free: &[usize]) -> Way {
        let mut most = least.to_vec();
        for &at in free {
            most[at] = PathKind::Vf;
            if self.workload.functions(&most) > self.vfs {
                most[at] = PathKind::Vhost;
            }
        }
        let (mut best, other) = (self.climb_from(least, free), self.climb_from(&most, free));
        if other.is_better(&best) {
            best = other;
        }
        best
    }

    /// Changes one adapter as long as that is better, the best change first; where none is, exchanges two.
    fn climb_from(&self, from: &[PathKind], free: &[usize]) -> Way {
        let mut best = self.known(from);
        loop {
            let flips = free.iter().filter_map(|&at| self.changed(&best, &[at]));
            let flip = flips.reduce(|a, b| if b.is_better(&a) { b } else { a });
            if let Some(flip) = flip.filter(|flip| flip.is_better(&best)) {
                best = flip;
                continue;
            }
            let pairs = free.iter().enumerate().flat_map(|(place, &one)| {
                let others = free[place + 1..].iter().map(move |&other| [one, other]);
                others.filter(|&[one, other]| best.paths[one] != best.paths[other])
            });
            let mut swaps = pairs.filter_map(|pair| self.changed(&best, &pair));
            match swaps.find(|swap| swap.is_better(&best)) {
                Some(swap) => best = swap,
                None => return best,
            }
        }
    }

    /// A way with some adapters on the other path.
    fn changed(&self, way: &Way, adapters: &[usize]) -> Option<Way> {
        let mut paths = way.paths.clone();
        for &at in adapters {
            paths[at] = flipped(paths[at]);
        }
        self.way(paths)
    }

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
        let passes: f64 = hops.iter().map(|hop| hop.rate.0).sum();
        let used = Load::of(self.machine, &self.workload.company(&best.paths), &hops);
        let needs = |what: &Resource| used.iter().any(|(used, _)| used == *what);
        // Those are sorted: the first that its frames need is the fullest.
        let binding = resources.iter().find(|(what, _)| needs(what));
        let carried = if self.workload.has_rates { times.min(best.scale) } else { times };
        let adapter = &self.workload.adapters[at];
        AdapterAdvice {
            name: adapter.name.clone(),
            path: best.paths[at],
            rate: FrameRate(passes * carried),
            binding: binding.map_or(best.binding, |(what, _)| what.limit),
            margin: binding.map_or(0.0, |(_, taken)| 1.0 - taken),
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

const fn flipped(path: PathKind) -> PathKind {
    match path {
        PathKind::Vf => PathKind::Vhost,
        PathKind::Vhost | PathKind::Virtio => PathKind::Vf,
    }
}

/// From how many guests on the switch carries more frames of a size from guest to guest than the NIC; none up to 64.
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
    use proptest::prelude::*;

    use super::*;
    use crate::validate::testbed;

    /// Services with one or two adapters, and flows through some of them.
    fn workloads() -> impl Strategy<Value = String> {
        let service = (1..=3_u32, 1..=2_usize);
        let flow = (proptest::collection::vec(0..5_usize, 1..4), 0.1..2.0_f64, 0..3_usize);
        let flows = proptest::collection::vec(flow, 1..6);
        (proptest::collection::vec(service, 5), flows).prop_map(|(services, flows)| {
            let mut text = String::new();
            for (number, (guests, adapters)) in services.into_iter().enumerate() {
                let adapters = &["\"a\"", "\"a\", \"b\""][adapters - 1];
                text += &format!(
                    "[[service]]\nname = \"s{number}\"\nguests = {guests}\nadapters = [{adapters}]\n"
                );
            }
            for (number, (mut through, mpps, frames)) in flows.into_iter().enumerate() {
                through.sort_unstable();
                through.dedup();
                let through: Vec<_> = through.iter().map(|at| format!("\"s{at}\"")).collect();
                let frames = ["64", "imix", "1518"][frames];
                text += &format!(
                    "[[flow]]\nname = \"f{number}\"\nthrough = [\"wire\", {}]\nmpps = {mpps}\nframes = \"{frames}\"\n",
                    through.join(", ")
                );
            }
            text
        })
    }

    proptest! {
        #[test]
        fn the_search_of_many_adapters_comes_near_the_best(text in workloads(), vfs in 0..12_u32) {
            let mut machine = testbed().unwrap();
            machine.nic.vfs = vfs;
            let workload = Workload::parse(&text).unwrap();
            let search = Search { machine: &machine, workload: &workload, hops: workload.hops(), vfs };
            let least = vec![PathKind::Vhost; workload.adapters.len()];
            let free: Vec<_> = (0..least.len()).collect();
            let (best, found) = (search.exhaust(&least, &free), search.climb(&least, &free));
            prop_assert!(found.functions <= vfs);
            prop_assert!(found.scale <= best.scale * (1.0 + ALIKE));
            prop_assert!(found.scale >= best.scale * 0.9, "{} of {}", found.scale, best.scale);
        }
    }

    /// Chains from which on the switch carries more, as nfv-2017 measured them.
    #[test]
    fn crossovers_are_near_those_that_were_measured() {
        let machine = testbed().unwrap();
        for bytes in [64, 128, 256, 512, 1024, 1518] {
            let measured = (2..=8).find(|&guests| {
                let rate = |path| {
                    lab::report::published::forwarding(Pattern::EastWest, path, bytes, guests)
                };
                rate(PathKind::Vhost).unwrap().mpps > rate(PathKind::Vf).unwrap().mpps
            });
            let said = crossover(&machine, &Frames::of(bytes).unwrap());
            let (measured, said) = (measured.unwrap(), said.unwrap());
            assert!(measured.abs_diff(said) <= 1, "{bytes} B: {said}, measured {measured}");
        }
    }
}
