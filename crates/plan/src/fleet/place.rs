//! Chains on single hosts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::solve::Bound;
use super::{Answer, Fleet, Held, Holds, Need, Needs, Place, SHARED, Taken, Unplaced, Way};

/// What is left of rounding errors when a host is filled to the brim.
const SLACK: f64 = 1e-9;

/// How many hosts are opened for one that the program has, as is tried.
const MORE: [f64; 6] = [1.0, 1.02, 1.05, 1.1, 1.15, 1.2];

/// Looks at hosts when hosts are emptied, at most.
const EFFORT: usize = 2_000_000;

/// A kind of chains, and the way on which it is somewhere.
type Placed = (usize, usize);

/// One host.
struct Room {
    kind: usize,
    class: usize,
    number: u32,
    taken: Need,
    /// How many chains it has of each kind, on each way.
    holds: BTreeMap<Placed, u32>,
}

impl Room {
    fn has(&self, need: &Need) -> bool {
        self.taken.iter().zip(need).all(|(taken, need)| taken + need <= 1.0 + SLACK)
    }

    fn is_used(&self) -> bool {
        !self.holds.is_empty()
    }

    /// The fullest resource.
    fn fullest(&self) -> f64 {
        self.taken.iter().copied().fold(0.0, f64::max)
    }

    /// The fullest resource after a chain came.
    fn after(&self, need: &Need) -> f64 {
        self.taken.iter().zip(need).map(|(taken, need)| taken + need).fold(0.0, f64::max)
    }

    fn take(&mut self, what: Placed, need: &Need) {
        for (taken, need) in self.taken.iter_mut().zip(need) {
            *taken += need;
        }
        *self.holds.entry(what).or_default() += 1;
    }

    fn clear(&mut self) {
        self.taken = [0.0; SHARED.len()];
        self.holds.clear();
    }

    /// The way on which a chain fits that fills it least, and how full it is then; none if none
    /// fits.
    fn best(&self, ways: &[Option<Need>; 3]) -> Option<(usize, f64)> {
        let fits = |(way, need): (usize, &Option<Need>)| {
            let need = need.as_ref()?;
            self.has(need).then(|| (way, self.after(need)))
        };
        ways.iter().enumerate().filter_map(fits).min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// All hosts; `classes` are those of their kinds.
fn rooms(fleet: &Fleet, classes: &[usize]) -> Vec<Room> {
    let of_kind = |(kind, class): (usize, &usize)| {
        let class = *class;
        let (taken, holds) = ([0.0; SHARED.len()], BTreeMap::new());
        let room = move |number| Room { kind, class, number, taken, holds: holds.clone() };
        (0..fleet.hosts[kind].count).map(room)
    };
    classes.iter().enumerate().flat_map(of_kind).collect()
}

/// Carries out what the program has, with some more hosts than it has for its fractions: as many
/// more as turns out best; and beside that the greedy placement, which stands for both where single
/// hosts do not let the program's be better.
pub(super) fn both(
    fleet: &Fleet,
    classes: &[usize],
    needs: &Needs,
    bound: &Bound,
) -> (Answer, Answer) {
    let order = by_size(needs);
    let worth = |rooms: &[Room]| {
        let placed: u32 = rooms.iter().flat_map(|room| room.holds.values()).sum();
        (placed, Reverse(rooms.iter().filter(|room| room.is_used()).count()))
    };
    let greedy = greedy(fleet, rooms(fleet, classes), needs, &order);
    let trials = MORE.into_iter().flat_map(|more| [false, true].map(|at_once| (more, at_once)));
    let all = trials.map(|(more, at_once)| {
        let task = Spread::of(rooms(fleet, classes), needs, bound, more);
        spread(fleet, task, bound, &order, at_once)
    });
    let better =
        |best: Vec<Room>, next: Vec<Room>| if worth(&next) > worth(&best) { next } else { best };
    let solved = all.reduce(better).filter(|solved| worth(solved) >= worth(&greedy));
    let greedy = answer(fleet, needs, &greedy);
    (solved.map_or_else(|| greedy.clone(), |solved| answer(fleet, needs, &solved)), greedy)
}

/// Places all chains, the largest first, each on the first host that has room.
fn greedy(fleet: &Fleet, mut rooms: Vec<Room>, needs: &Needs, order: &[usize]) -> Vec<Room> {
    for &chain in order {
        let mut left = fleet.chains[chain].count;
        // A host that has no room for one of them has none for the next.
        for room in &mut rooms {
            let ways = &needs[chain][room.class];
            while left > 0
                && let Some((way, _)) = room.best(ways)
                && let Some(need) = &ways[way]
            {
                room.take((chain, way), need);
                left -= 1;
            }
        }
    }
    rooms
}

/// Spreads what the program has over hosts; what finds no room there opens others, `at_once` or
/// after all that the program has found its place. At the end hosts are emptied whose chains find
/// room elsewhere.
fn spread(
    fleet: &Fleet,
    mut task: Spread<'_>,
    bound: &Bound,
    order: &[usize],
    at_once: bool,
) -> Vec<Room> {
    let mut later = Vec::new();
    for &chain in order {
        let left = task.as_wanted(chain, fleet.chains[chain].count, &bound.wanted[chain]);
        match at_once {
            true => task.anywhere(chain, left),
            false => later.push((chain, left)),
        }
    }
    for (chain, left) in later {
        task.anywhere(chain, left);
    }
    empty(&mut task.rooms, task.needs);
    task.rooms
}

/// Hosts on which chains are spread.
struct Spread<'a> {
    needs: &'a Needs,
    rooms: Vec<Room>,
    /// Those that are to be used.
    open: Vec<usize>,
    /// The others, the next one last.
    closed: Vec<usize>,
}

impl<'a> Spread<'a> {
    /// Of hosts, of which `more` times as many are open as the program has.
    fn of(rooms: Vec<Room>, needs: &'a Needs, bound: &Bound, more: f64) -> Self {
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
        Self { needs, rooms, open, closed }
    }

    /// Places up to so many chains of a kind on open hosts as the program has them; says how many
    /// are left.
    fn as_wanted(&mut self, chain: usize, many: u32, wanted: &[[f64; 3]]) -> u32 {
        let needs = self.needs;
        let mut left = many;
        for (class, ways) in wanted.iter().enumerate() {
            for (way, many) in ways.iter().enumerate() {
                let Some(need) = &needs[chain][class][way] else { continue };
                let only = |room: &Room| {
                    let fits = room.class == class && room.has(need);
                    fits.then(|| (way, room.after(need)))
                };
                left -= self.put(chain, ((many + SLACK).floor() as u32).min(left), only);
            }
        }
        left
    }

    /// Places so many chains of a kind wherever there is room, on closed hosts at last.
    fn anywhere(&mut self, chain: usize, many: u32) {
        let ways = &self.needs[chain];
        let any = |room: &Room| room.best(&ways[room.class]);
        let mut left = many;
        loop {
            left -= self.put(chain, left, any);
            let fits = |&at: &usize| any(&self.rooms[at]).is_some();
            let next = self.closed.iter().rposition(fits).filter(|_| left > 0);
            let Some(next) = next else { break };
            self.open.push(self.closed.remove(next));
        }
    }

    /// Places up to so many chains of a kind, each on the open host that is least full with it;
    /// says how many found room.
    fn put(
        &mut self,
        chain: usize,
        many: u32,
        fits: impl Fn(&Room) -> Option<(usize, f64)>,
    ) -> u32 {
        if many == 0 {
            return 0;
        }
        // No share is below 0: bits order them as they are.
        let key =
            |room: &Room, at| fits(room).map(|(way, after)| Reverse((after.to_bits(), at, way)));
        let all = self.open.iter().filter_map(|&at| key(&self.rooms[at], at));
        let mut emptiest: BinaryHeap<_> = all.collect();
        let mut placed = 0;
        while placed < many
            && let Some(Reverse((_, at, way))) = emptiest.pop()
            && let Some(need) = &self.needs[chain][self.rooms[at].class][way]
        {
            self.rooms[at].take((chain, way), need);
            emptiest.extend(key(&self.rooms[at], at));
            placed += 1;
        }
        placed
    }
}

/// Empties hosts, the emptiest first, as long as all chains of one find room on the others.
fn empty(rooms: &mut [Room], needs: &Needs) {
    for _ in 0..EFFORT / rooms.len() {
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
                // Where it fits best: the fullest that has room.
                let fits = |&at: &usize| {
                    let (way, after) = rooms[at].best(&needs[chain][rooms[at].class])?;
                    Some((at, way, after))
                };
                let fitting = others.iter().filter_map(fits);
                let Some((at, way, _)) = fitting.max_by(|a, b| a.2.total_cmp(&b.2)) else {
                    has_room = false;
                    break 'all;
                };
                if let Some(need) = &needs[chain][rooms[at].class][way] {
                    rooms[at].take((chain, way), need);
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

/// Chains by what they take at least of the scarcest resource, the largest first.
fn by_size(needs: &Needs) -> Vec<usize> {
    let most = |need: &Need| need.iter().copied().fold(0.0, f64::max);
    let size = |on: &Vec<[Option<Need>; 3]>| {
        on.iter().flatten().flatten().map(most).fold(f64::INFINITY, f64::min)
    };
    let mut order: Vec<_> = needs.iter().map(size).enumerate().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    order.into_iter().map(|(chain, _)| chain).collect()
}

/// Chains that have no place, and what is short by least for one of them: on which way and host
/// whatever.
fn unplaced(fleet: &Fleet, needs: &Needs, rooms: &[Room]) -> Vec<Unplaced> {
    let mut left: Vec<_> = fleet.chains.iter().map(|chain| chain.count).collect();
    for (&(chain, _), many) in rooms.iter().flat_map(|room| &room.holds) {
        left[chain] -= many;
    }
    let shortest = |chain: usize| {
        let short = |room: &Room, need: &Need| {
            let after = room.taken.iter().zip(need).map(|(taken, need)| taken + need - 1.0);
            SHARED.into_iter().zip(after).max_by(|a, b| a.1.total_cmp(&b.1))
        };
        let on = |room: &Room| {
            let ways = needs[chain][room.class].iter().flatten();
            ways.filter_map(|need| short(room, need)).min_by(|a, b| a.1.total_cmp(&b.1))
        };
        rooms.iter().filter_map(on).min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let one = |(chain, count): (usize, u32)| {
        let (limit, short) = shortest(chain)?;
        Some(Unplaced { chain: fleet.chains[chain].name.clone(), count, limit, short })
    };
    left.into_iter().enumerate().filter(|(_, count)| *count > 0).filter_map(one).collect()
}

fn answer(fleet: &Fleet, needs: &Needs, rooms: &[Room]) -> Answer {
    let used: Vec<_> = rooms.iter().filter(|room| room.is_used()).collect();
    let mut sums: BTreeMap<(usize, usize, usize), u32> = BTreeMap::new();
    for room in &used {
        for (&(chain, way), many) in &room.holds {
            *sums.entry((chain, room.kind, way)).or_default() += many;
        }
    }
    let chain = |chain: usize| fleet.chains[chain].name.clone();
    let host = |kind: usize| fleet.hosts[kind].name.clone();
    let place = |((of, kind, way), count)| Place {
        chain: chain(of),
        host: host(kind),
        way: Way::ALL[way],
        count,
    };
    let holds = |room: &&Room| {
        let each = |(&(of, way), &count): (&Placed, &u32)| Held {
            chain: chain(of),
            way: Way::ALL[way],
            count,
        };
        let chains = room.holds.iter().map(each).collect();
        Holds { host: host(room.kind), number: room.number, chains }
    };
    let mean = |at: usize| {
        used.iter().map(|room| room.taken[at]).sum::<f64>() / (used.len().max(1) as f64)
    };
    Answer {
        placed: sums.values().sum(),
        hosts_used: used.len() as u32,
        places: sums.into_iter().map(place).collect(),
        taken: (SHARED.into_iter().enumerate())
            .map(|(at, limit)| Taken { limit, share: mean(at) })
            .collect(),
        hosts: used.iter().map(holds).collect(),
        unplaced: unplaced(fleet, needs, rooms),
    }
}
