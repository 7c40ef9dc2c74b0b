//! Local search for the paths of many adapters.
//!
//! # Model
//! The search starts from all adapters on `synthetic`, and from as many as possible on `vf`. It
//! flips one adapter, or all of a flow, and takes the best improvement until none is left. Then it
//! restarts from random changes to the best result, within a budget of about a second. The random
//! sequence is fixed, so results are reproducible.
//!
//! # Limits
//! The result may not be optimal; a test compares it with the exhaustive search.

use std::collections::BTreeSet;

use report::statistics::random::Random;

use crate::limit::Limit;
use crate::load::{FlowHop, MachineLoad};
use crate::machine::Machine;
use crate::predict::PlannedPath;
use crate::workload::Workload;

/// Relative difference below which two candidates are equally good.
const TOLERANCE: f64 = 1e-9;
/// Budget of the random restarts: evaluated candidates times hops.
const RESTART_BUDGET: usize = 2_000_000;
/// Maximum number of random restarts.
const RESTARTS_MAX: usize = 200;

/// Paths of all adapters, and their evaluation.
pub(super) struct Candidate {
    pub(super) paths: Vec<PlannedPath>,
    pub(super) load: MachineLoad,
    pub(super) scale: f64,
    pub(super) binding: Limit,
    pub(super) functions: u32,
}

impl Candidate {
    fn is_better(&self, other: &Self) -> bool {
        let alike = (self.scale / other.scale - 1.0).abs() < TOLERANCE;
        if !alike {
            return self.scale > other.scale;
        }
        let (mine, its) = (self.load.switch_cores, other.load.switch_cores);
        if (mine - its).abs() > TOLERANCE * its.max(TOLERANCE) {
            return mine < its;
        }
        self.functions < other.functions
    }
}

pub(super) struct PathSearch<'a> {
    pub(super) machine: &'a Machine,
    pub(super) workload: &'a Workload,
    pub(super) hops: Vec<FlowHop>,
    pub(super) vfs: u32,
}

impl PathSearch<'_> {
    /// Evaluates these paths; `None` if they need more VFs than the NIC has.
    fn evaluate(&self, paths: Vec<PlannedPath>) -> Option<Candidate> {
        let functions = self.workload.functions(&paths);
        if functions > self.vfs {
            return None;
        }
        let load = MachineLoad::of(self.machine, &self.workload.guest_set(&paths), &self.hops);
        let (what, taken) = load.fullest()?;
        Some(Candidate { paths, load, scale: 1.0 / taken, binding: what.limit, functions })
    }

    fn must_evaluate(&self, paths: &[PlannedPath]) -> Candidate {
        // The caller has checked that these fit, and a workload has at least one hop with a cost.
        self.evaluate(paths.to_vec()).expect("the paths fit")
    }

    /// The candidate with some adapters moved to the other path.
    pub(super) fn flip(&self, candidate: &Candidate, adapters: &[usize]) -> Option<Candidate> {
        let mut paths = candidate.paths.clone();
        for &at in adapters {
            paths[at] = flipped(paths[at]);
        }
        self.evaluate(paths)
    }

    /// Best of all combinations.
    pub(super) fn search_all(&self, fewest_vf: &[PlannedPath], free: &[usize]) -> Candidate {
        let mut best = self.must_evaluate(fewest_vf);
        for choice in 1_u32..1 << free.len() {
            let mut paths = fewest_vf.to_vec();
            for (bit, &at) in free.iter().enumerate() {
                if choice >> bit & 1 == 1 {
                    paths[at] = PlannedPath::Vf;
                }
            }
            if let Some(candidate) = self.evaluate(paths)
                && candidate.is_better(&best)
            {
                best = candidate;
            }
        }
        best
    }

    /// Best candidate that the local search finds.
    pub(super) fn search_local(&self, fewest_vf: &[PlannedPath], free: &[usize]) -> Candidate {
        let mut most_vf = fewest_vf.to_vec();
        for &at in free {
            most_vf[at] = PlannedPath::Vf;
            if self.workload.functions(&most_vf) > self.vfs {
                most_vf[at] = PlannedPath::Synthetic;
            }
        }
        let mut left = usize::MAX;
        let mut best = self.climb(self.must_evaluate(fewest_vf), free, &mut left);
        let other = self.climb(self.must_evaluate(&most_vf), free, &mut left);
        if other.is_better(&best) {
            best = other;
        }
        let mut left = RESTART_BUDGET / self.hops.len();
        let mut random = Random::new(1);
        for _ in 0..RESTARTS_MAX {
            let part = 2 + random.below(free.len() as u64 / 2);
            let any = |random: &mut Random| free[random.below(free.len() as u64) as usize];
            let some: BTreeSet<_> = (0..part).map(|_| any(&mut random)).collect();
            let some: Vec<_> = some.into_iter().collect();
            let Some(from) = self.flip(&best, &some) else { continue };
            let next = self.climb(from, free, &mut left);
            if next.is_better(&best) {
                best = next;
            }
            if left == 0 {
                break;
            }
        }
        best
    }

    /// Steepest ascent: flips one adapter, or all of a flow, until nothing improves or the budget
    /// `left` is used up.
    fn climb(&self, from: Candidate, free: &[usize], left: &mut usize) -> Candidate {
        let mut best = from;
        loop {
            let changes = self.moves(&best, free);
            *left = left.saturating_sub(changes.len());
            let changed = changes.iter().filter_map(|change| self.flip(&best, change));
            let change = changed.reduce(|a, b| if b.is_better(&a) { b } else { a });
            match change.filter(|change| change.is_better(&best)) {
                Some(change) if *left > 0 => best = change,
                Some(change) => return change,
                None => return best,
            }
        }
    }

    /// Moves to try: each free adapter, and for each flow all its adapters not yet on one path.
    fn moves(&self, candidate: &Candidate, free: &[usize]) -> Vec<Vec<usize>> {
        let mut changes: Vec<_> = free.iter().map(|&at| vec![at]).collect();
        for flow in &self.workload.flows {
            for path in [PlannedPath::Vf, PlannedPath::Synthetic] {
                let ends = flow.hops.iter().flat_map(|&(from, to)| [from, to]).flatten();
                let its = ends.filter(|at| free.contains(at) && candidate.paths[*at] != path);
                let its: BTreeSet<_> = its.collect();
                if its.len() > 1 {
                    changes.push(its.into_iter().collect());
                }
            }
        }
        changes
    }
}

const fn flipped(path: PlannedPath) -> PlannedPath {
    match path {
        PlannedPath::Vf => PlannedPath::Synthetic,
        PlannedPath::Synthetic | PlannedPath::Kernel => PlannedPath::Vf,
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
            let search = PathSearch { machine: &machine, workload: &workload, hops: workload.hops(), vfs };
            let fewest_vf = vec![PlannedPath::Synthetic; workload.adapters.len()];
            let free: Vec<_> = (0..fewest_vf.len()).collect();
            let (best, found) = (search.search_all(&fewest_vf, &free), search.search_local(&fewest_vf, &free));
            prop_assert!(found.functions <= vfs);
            prop_assert!(found.scale <= best.scale * (1.0 + TOLERANCE));
            prop_assert!(found.scale >= best.scale * 0.999, "{} of {}", found.scale, best.scale);
        }
    }
}
