//! The search for the best paths of many adapters.
//!
//! # Model
//! It begins with everything on one path or the other, and changes one adapter, or all of a flow,
//! as long as that is better, the best change first. Then it changes some at random and begins
//! again from there, so often as the size of the workload lets it in about a second, and keeps the
//! best. The random numbers are always the same ones: so is the answer.
//!
//! # Limits
//! There may be a better way; a test holds what it finds against the best of all.

use std::collections::BTreeSet;

use report::statistics::random::Random;

use crate::limit::Limit;
use crate::load::{Hop, Load};
use crate::machine::Machine;
use crate::predict::PathKind;
use crate::workload::Workload;

/// Ways count as equally good if they differ by less than this share.
const ALIKE: f64 = 1e-9;
/// Hops that are counted in all ways that are tried after the first ones.
const EFFORT: usize = 2_000_000;
/// Beginnings at random, at most.
const BEGINNINGS: usize = 200;

/// One way, and what it is worth.
pub(super) struct Way {
    pub(super) paths: Vec<PathKind>,
    pub(super) load: Load,
    pub(super) scale: f64,
    pub(super) binding: Limit,
    pub(super) functions: u32,
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

pub(super) struct Search<'a> {
    pub(super) machine: &'a Machine,
    pub(super) workload: &'a Workload,
    pub(super) hops: Vec<Hop>,
    pub(super) vfs: u32,
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
        // The caller has checked that these fit, and a workload has at least one hop, which takes
        // something.
        self.way(paths.to_vec()).expect("a way that fits")
    }

    /// A way with some adapters on the other path.
    pub(super) fn changed(&self, way: &Way, adapters: &[usize]) -> Option<Way> {
        let mut paths = way.paths.clone();
        for &at in adapters {
            paths[at] = flipped(paths[at]);
        }
        self.way(paths)
    }

    /// The best of all ways.
    pub(super) fn exhaust(&self, least: &[PathKind], free: &[usize]) -> Way {
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

    /// The best way that is found.
    pub(super) fn seek(&self, least: &[PathKind], free: &[usize]) -> Way {
        let mut most = least.to_vec();
        for &at in free {
            most[at] = PathKind::Vf;
            if self.workload.functions(&most) > self.vfs {
                most[at] = PathKind::Vhost;
            }
        }
        let mut left = usize::MAX;
        let mut best = self.climb(self.known(least), free, &mut left);
        let other = self.climb(self.known(&most), free, &mut left);
        if other.is_better(&best) {
            best = other;
        }
        let mut left = EFFORT / self.hops.len();
        let mut random = Random::new(1);
        for _ in 0..BEGINNINGS {
            let part = 2 + random.below(free.len() as u64 / 2);
            let any = |random: &mut Random| free[random.below(free.len() as u64) as usize];
            let some: BTreeSet<_> = (0..part).map(|_| any(&mut random)).collect();
            let some: Vec<_> = some.into_iter().collect();
            let Some(from) = self.changed(&best, &some) else { continue };
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

    /// Changes one adapter, or all of a flow, as long as that is better, the best change first, and
    /// as long as ways are `left` to try.
    fn climb(&self, from: Way, free: &[usize], left: &mut usize) -> Way {
        let mut best = from;
        loop {
            let changes = self.changes(&best, free);
            *left = left.saturating_sub(changes.len());
            let changed = changes.iter().filter_map(|change| self.changed(&best, change));
            let change = changed.reduce(|a, b| if b.is_better(&a) { b } else { a });
            match change.filter(|change| change.is_better(&best)) {
                Some(change) if *left > 0 => best = change,
                Some(change) => return change,
                None => return best,
            }
        }
    }

    /// What may be changed at a time: an adapter, or what of a flow is on the other path.
    fn changes(&self, way: &Way, free: &[usize]) -> Vec<Vec<usize>> {
        let mut changes: Vec<_> = free.iter().map(|&at| vec![at]).collect();
        for flow in &self.workload.flows {
            for path in [PathKind::Vf, PathKind::Vhost] {
                let ends = flow.hops.iter().flat_map(|&(from, to)| [from, to]).flatten();
                let its = ends.filter(|at| free.contains(at) && way.paths[*at] != path);
                let its: BTreeSet<_> = its.collect();
                if its.len() > 1 {
                    changes.push(its.into_iter().collect());
                }
            }
        }
        changes
    }
}

const fn flipped(path: PathKind) -> PathKind {
    match path {
        PathKind::Vf => PathKind::Vhost,
        PathKind::Vhost | PathKind::Virtio => PathKind::Vf,
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
            let (best, found) = (search.exhaust(&least, &free), search.seek(&least, &free));
            prop_assert!(found.functions <= vfs);
            prop_assert!(found.scale <= best.scale * (1.0 + ALIKE));
            prop_assert!(found.scale >= best.scale * 0.999, "{} of {}", found.scale, best.scale);
        }
    }
}
