//! Placement of chains on single hosts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::solve::LpBound;
use super::{
    ChainCount, ChainLayout, Demand, Demands, Fleet, HostChains, PlacedChains, Placement, SHARED,
    UnplacedChains, Utilization,
};

/// Rounding tolerance for a full host.
const SLACK: f64 = 1e-9;

/// Factors on the program's number of hosts; all are tried.
const HOST_FACTORS: [f64; 6] = [1.0, 1.02, 1.05, 1.1, 1.15, 1.2];

/// Budget for emptying hosts, in hosts examined.
const EMPTYING_BUDGET: usize = 2_000_000;

/// Chain kind and layout, as indices.
type ChainKey = (usize, usize);

/// One host and its chains.
struct HostRoom {
    kind: usize,
    class: usize,
    number: u32,
    taken: Demand,
    /// Number of chains by kind and layout.
    holds: BTreeMap<ChainKey, u32>,
}

impl HostRoom {
    fn has(&self, demand: &Demand) -> bool {
        self.taken.iter().zip(demand).all(|(taken, demand)| taken + demand <= 1.0 + SLACK)
    }

    fn is_used(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Share of the fullest resource.
    fn fullest(&self) -> f64 {
        self.taken.iter().copied().fold(0.0, f64::max)
    }

    /// Share of the fullest resource after one more chain.
    fn after(&self, demand: &Demand) -> f64 {
        self.taken.iter().zip(demand).map(|(taken, demand)| taken + demand).fold(0.0, f64::max)
    }

    fn take(&mut self, what: ChainKey, demand: &Demand) {
        for (taken, demand) in self.taken.iter_mut().zip(demand) {
            *taken += demand;
        }
        *self.holds.entry(what).or_default() += 1;
    }

    fn clear(&mut self) {
        self.taken = [0.0; SHARED.len()];
        self.holds.clear();
    }

    /// Layout that fits and fills the host least, and the resulting share; `None` if none fits.
    fn best(&self, layouts: &[Option<Demand>; 3]) -> Option<(usize, f64)> {
        let fits = |(layout, demand): (usize, &Option<Demand>)| {
            let demand = demand.as_ref()?;
            self.has(demand).then(|| (layout, self.after(demand)))
        };
        layouts.iter().enumerate().filter_map(fits).min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// All hosts; `classes` has the class of each host kind.
fn rooms(fleet: &Fleet, classes: &[usize]) -> Vec<HostRoom> {
    let of_kind = |(kind, class): (usize, &usize)| {
        let class = *class;
        let (taken, holds) = ([0.0; SHARED.len()], BTreeMap::new());
        let room = move |number| HostRoom { kind, class, number, taken, holds: holds.clone() };
        (0..fleet.hosts[kind].count).map(room)
    };
    classes.iter().enumerate().flat_map(of_kind).collect()
}

/// Rounds the program's result with each factor of [`HOST_FACTORS`] and keeps the best. Also
/// returns the greedy placement, which replaces the result if it is better.
pub(super) fn place_all(
    fleet: &Fleet,
    classes: &[usize],
    demands: &Demands,
    bound: &LpBound,
) -> (Placement, Placement) {
    let order = by_size(demands);
    let worth = |rooms: &[HostRoom]| {
        let placed: u32 = rooms.iter().flat_map(|room| room.holds.values()).sum();
        (placed, Reverse(rooms.iter().filter(|room| room.is_used()).count()))
    };
    let greedy = greedy(fleet, rooms(fleet, classes), demands, &order);
    let trials =
        HOST_FACTORS.into_iter().flat_map(|more| [false, true].map(|at_once| (more, at_once)));
    let all = trials.map(|(more, at_once)| {
        let task = PartialPlacement::of(rooms(fleet, classes), demands, bound, more);
        spread(fleet, task, bound, &order, at_once)
    });
    let better = |best: Vec<HostRoom>, next: Vec<HostRoom>| {
        if worth(&next) > worth(&best) { next } else { best }
    };
    let solved = all.reduce(better).filter(|solved| worth(solved) >= worth(&greedy));
    let greedy = answer(fleet, demands, &greedy);
    (solved.map_or_else(|| greedy.clone(), |solved| answer(fleet, demands, &solved)), greedy)
}

/// Places all chains, the largest first, each on the first host that has room.
fn greedy(
    fleet: &Fleet,
    mut rooms: Vec<HostRoom>,
    demands: &Demands,
    order: &[usize],
) -> Vec<HostRoom> {
    for &chain in order {
        let mut left = fleet.chains[chain].count;
        // A host without room for one chain has none for the next of the same kind.
        for room in &mut rooms {
            let layouts = &demands[chain][room.class];
            while left > 0
                && let Some((layout, _)) = room.best(layouts)
                && let Some(demand) = &layouts[layout]
            {
                room.take((chain, layout), demand);
                left -= 1;
            }
        }
    }
    rooms
}

/// Spreads the program's mix over hosts. Chains that do not fit open more hosts, `at_once` or after
/// all others are placed. At the end, hosts whose chains fit elsewhere are emptied.
fn spread(
    fleet: &Fleet,
    mut task: PartialPlacement<'_>,
    bound: &LpBound,
    order: &[usize],
    at_once: bool,
) -> Vec<HostRoom> {
    let mut later = Vec::new();
    for &chain in order {
        let left = task.place_as_solved(chain, fleet.chains[chain].count, &bound.wanted[chain]);
        match at_once {
            true => task.place_anywhere(chain, left),
            false => later.push((chain, left)),
        }
    }
    for (chain, left) in later {
        task.place_anywhere(chain, left);
    }
    empty_hosts(&mut task.rooms, task.demands);
    task.rooms
}

/// A placement under construction.
struct PartialPlacement<'a> {
    demands: &'a Demands,
    rooms: Vec<HostRoom>,
    /// Indices of hosts in use.
    open: Vec<usize>,
    /// Indices of the other hosts, the next to open last.
    closed: Vec<usize>,
}

impl<'a> PartialPlacement<'a> {
    /// Opens the program's number of hosts times `more`.
    fn of(rooms: Vec<HostRoom>, demands: &'a Demands, bound: &LpBound, more: f64) -> Self {
        let opened = |used: &f64| (used * more - SLACK).ceil().max(0.0);
        let mut to_open: Vec<_> = bound.used.iter().map(opened).collect();
        let (mut open, mut closed) = (Vec::new(), Vec::new());
        for (at, room) in rooms.iter().enumerate() {
            let of_class = &mut to_open[room.class];
            match *of_class > 0.0 {
                true => open.push(at),
                false => closed.push(at),
            }
            *of_class -= 1.0;
        }
        closed.reverse();
        Self { demands, rooms, open, closed }
    }

    /// Places up to `many` chains of a kind on open hosts, by the program's mix; returns the number
    /// left over.
    fn place_as_solved(&mut self, chain: usize, many: u32, wanted: &[[f64; 3]]) -> u32 {
        let demands = self.demands;
        let mut left = many;
        for (class, layouts) in wanted.iter().enumerate() {
            for (layout, many) in layouts.iter().enumerate() {
                let Some(demand) = &demands[chain][class][layout] else { continue };
                let only = |room: &HostRoom| {
                    let fits = room.class == class && room.has(demand);
                    fits.then(|| (layout, room.after(demand)))
                };
                left -= self.put(chain, ((many + SLACK).floor() as u32).min(left), only);
            }
        }
        left
    }

    /// Places `many` chains of a kind on any host with room; opens hosts as needed.
    fn place_anywhere(&mut self, chain: usize, many: u32) {
        let layouts = &self.demands[chain];
        let any = |room: &HostRoom| room.best(&layouts[room.class]);
        let mut left = many;
        loop {
            left -= self.put(chain, left, any);
            let fits = |&at: &usize| any(&self.rooms[at]).is_some();
            let next = self.closed.iter().rposition(fits).filter(|_| left > 0);
            let Some(next) = next else { break };
            self.open.push(self.closed.remove(next));
        }
    }

    /// Places up to `many` chains of a kind, each on the open host that stays emptiest; returns the
    /// number placed.
    fn put(
        &mut self,
        chain: usize,
        many: u32,
        fits: impl Fn(&HostRoom) -> Option<(usize, f64)>,
    ) -> u32 {
        if many == 0 {
            return 0;
        }
        // Shares are never negative, so their bits sort like their values.
        let key = |room: &HostRoom, at| {
            fits(room).map(|(layout, after)| Reverse((after.to_bits(), at, layout)))
        };
        let all = self.open.iter().filter_map(|&at| key(&self.rooms[at], at));
        let mut emptiest: BinaryHeap<_> = all.collect();
        let mut placed = 0;
        while placed < many
            && let Some(Reverse((_, at, layout))) = emptiest.pop()
            && let Some(demand) = &self.demands[chain][self.rooms[at].class][layout]
        {
            self.rooms[at].take((chain, layout), demand);
            emptiest.extend(key(&self.rooms[at], at));
            placed += 1;
        }
        placed
    }
}

/// Empties hosts, the emptiest first, while all chains of the host fit on others.
fn empty_hosts(rooms: &mut [HostRoom], demands: &Demands) {
    for _ in 0..EMPTYING_BUDGET / rooms.len() {
        let used = (0..rooms.len()).filter(|&at| rooms[at].is_used());
        let mut used: Vec<_> = used.collect();
        used.sort_by(|a, b| rooms[*a].fullest().total_cmp(&rooms[*b].fullest()));
        let Some((&least, others)) = used.split_first() else { return };
        let leaving: Vec<_> =
            rooms[least].holds.iter().map(|(what, many)| (*what, *many)).collect();
        let before: Vec<_> =
            others.iter().map(|&at| (at, rooms[at].taken, rooms[at].holds.clone())).collect();
        let mut has_room = true;
        'all: for ((chain, _), many) in leaving {
            for _ in 0..many {
                // Best fit: the fullest host with room.
                let fits = |&at: &usize| {
                    let (layout, after) = rooms[at].best(&demands[chain][rooms[at].class])?;
                    Some((at, layout, after))
                };
                let fitting = others.iter().filter_map(fits);
                let Some((at, layout, _)) = fitting.max_by(|a, b| a.2.total_cmp(&b.2)) else {
                    has_room = false;
                    break 'all;
                };
                if let Some(demand) = &demands[chain][rooms[at].class][layout] {
                    rooms[at].take((chain, layout), demand);
                }
            }
        }
        if !has_room {
            for (at, taken, holds) in before {
                (rooms[at].taken, rooms[at].holds) = (taken, holds);
            }
            return;
        }
        rooms[least].clear();
    }
}

/// Chain kinds by their smallest demand of the scarcest resource, the largest first.
fn by_size(demands: &Demands) -> Vec<usize> {
    let most = |demand: &Demand| demand.iter().copied().fold(0.0, f64::max);
    let size = |on: &Vec<[Option<Demand>; 3]>| {
        on.iter().flatten().flatten().map(most).fold(f64::INFINITY, f64::min)
    };
    let mut order: Vec<_> = demands.iter().map(size).enumerate().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    order.into_iter().map(|(chain, _)| chain).collect()
}

/// Chains without a place, with the smallest shortage over all hosts and layouts.
fn unplaced(fleet: &Fleet, demands: &Demands, rooms: &[HostRoom]) -> Vec<UnplacedChains> {
    let mut left: Vec<_> = fleet.chains.iter().map(|chain| chain.count).collect();
    for (&(chain, _), many) in rooms.iter().flat_map(|room| &room.holds) {
        left[chain] -= many;
    }
    let shortest = |chain: usize| {
        let short = |room: &HostRoom, demand: &Demand| {
            let after = room.taken.iter().zip(demand).map(|(taken, demand)| taken + demand - 1.0);
            SHARED.into_iter().zip(after).max_by(|a, b| a.1.total_cmp(&b.1))
        };
        let on = |room: &HostRoom| {
            let layouts = demands[chain][room.class].iter().flatten();
            layouts.filter_map(|demand| short(room, demand)).min_by(|a, b| a.1.total_cmp(&b.1))
        };
        rooms.iter().filter_map(on).min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let one = |(chain, count): (usize, u32)| {
        let (limit, short) = shortest(chain)?;
        Some(UnplacedChains { chain: fleet.chains[chain].name.clone(), count, limit, short })
    };
    left.into_iter().enumerate().filter(|(_, count)| *count > 0).filter_map(one).collect()
}

fn answer(fleet: &Fleet, demands: &Demands, rooms: &[HostRoom]) -> Placement {
    let used: Vec<_> = rooms.iter().filter(|room| room.is_used()).collect();
    let mut sums: BTreeMap<(usize, usize, usize), u32> = BTreeMap::new();
    for room in &used {
        for (&(chain, layout), many) in &room.holds {
            *sums.entry((chain, room.kind, layout)).or_default() += many;
        }
    }
    let chain = |chain: usize| fleet.chains[chain].name.clone();
    let host = |kind: usize| fleet.hosts[kind].name.clone();
    let place = |((of, kind, layout), count)| PlacedChains {
        chain: chain(of),
        host: host(kind),
        layout: ChainLayout::ALL[layout],
        count,
    };
    let holds = |room: &&HostRoom| {
        let each = |(&(of, layout), &count): (&ChainKey, &u32)| ChainCount {
            chain: chain(of),
            layout: ChainLayout::ALL[layout],
            count,
        };
        let chains = room.holds.iter().map(each).collect();
        HostChains { host: host(room.kind), number: room.number, chains }
    };
    let mean = |at: usize| {
        used.iter().map(|room| room.taken[at]).sum::<f64>() / (used.len().max(1) as f64)
    };
    Placement {
        placed: sums.values().sum(),
        hosts_used: used.len() as u32,
        places: sums.into_iter().map(place).collect(),
        taken: (SHARED.into_iter().enumerate())
            .map(|(at, limit)| Utilization { limit, share: mean(at) })
            .collect(),
        hosts: used.iter().map(holds).collect(),
        unplaced: unplaced(fleet, demands, rooms),
    }
}
