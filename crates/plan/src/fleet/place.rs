//! Chains one after another, each on the first host that has room.

use super::{Answer, Fleet, Need, Place, SHARED, Way};

/// What is left of rounding errors when a host is filled to the brim.
const SLACK: f64 = 1e-9;

/// How many chains of a kind the linear program has on each kind of hosts, and on which way.
pub(super) type Wanted = Vec<Vec<[f64; 3]>>;

/// One host.
struct Room {
    kind: usize,
    taken: Need,
    is_used: bool,
}

impl Room {
    fn has(&self, need: &Need) -> bool {
        self.taken.iter().zip(need).all(|(taken, need)| taken + need <= 1.0 + SLACK)
    }

    /// The fullest resource after a chain came.
    fn after(&self, need: &Need) -> f64 {
        self.taken.iter().zip(need).map(|(taken, need)| taken + need).fold(0.0, f64::max)
    }

    fn take(&mut self, need: &Need) {
        for (taken, need) in self.taken.iter_mut().zip(need) {
            *taken += need;
        }
        self.is_used = true;
    }
}

/// Places all chains, the largest first; with what the program wants, all at first where it wants them, then what is left over.
pub(super) fn greedy(
    fleet: &Fleet,
    needs: &[Vec<[Option<Need>; 3]>],
    wanted: Option<&Wanted>,
) -> Answer {
    let room = |kind: usize| Room { kind, taken: [0.0; SHARED.len()], is_used: false };
    let mut rooms: Vec<Room> = Vec::new();
    for (kind, host) in fleet.hosts.iter().enumerate() {
        rooms.extend((0..host.count).map(|_| room(kind)));
    }
    let mut counts = vec![vec![[0_u32; 3]; fleet.hosts.len()]; fleet.chains.len()];
    let mut left: Vec<_> = fleet.chains.iter().map(|chain| chain.count).collect();
    let order = by_size(fleet, needs);
    for (chain, wanted) in order.iter().filter_map(|chain| Some((*chain, &wanted?[*chain]))) {
        for (host, ways) in wanted.iter().enumerate() {
            for (way, &many) in ways.iter().enumerate() {
                let many = ((many + SLACK).floor() as u32).min(left[chain]);
                let here = |kind: usize| match (kind == host, needs[chain][host][way]) {
                    (true, Some(need)) => vec![(way, need)],
                    _ => Vec::new(),
                };
                left[chain] -= put(&mut rooms, many, here, &mut counts[chain]);
            }
        }
    }
    for chain in order {
        let any = |kind: usize| {
            let ways = needs[chain][kind].iter().enumerate();
            ways.filter_map(|(way, need)| Some((way, (*need)?))).collect()
        };
        put(&mut rooms, left[chain], any, &mut counts[chain]);
    }
    answer(fleet, &rooms, &counts)
}

/// Chains by what they take at least of the scarcest resource, the largest first.
fn by_size(fleet: &Fleet, needs: &[Vec<[Option<Need>; 3]>]) -> Vec<usize> {
    let most = |need: &Need| need.iter().copied().fold(0.0, f64::max);
    let size = |chain: usize| {
        needs[chain].iter().flatten().flatten().map(most).fold(f64::INFINITY, f64::min)
    };
    let mut order: Vec<_> = (0..fleet.chains.len()).map(|chain| (size(chain), chain)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    order.into_iter().map(|(_, chain)| chain).collect()
}

/// Places up to `many` alike chains; says how many found room. A host that has none for one of them has none for the next.
fn put(
    rooms: &mut [Room],
    many: u32,
    ways: impl Fn(usize) -> Vec<(usize, Need)>,
    counts: &mut [[u32; 3]],
) -> u32 {
    let mut placed = 0;
    let mut of_kind: Option<(usize, Vec<(usize, Need)>)> = None;
    for room in rooms {
        if of_kind.as_ref().is_none_or(|(kind, _)| *kind != room.kind) {
            of_kind = Some((room.kind, ways(room.kind)));
        }
        let ways = of_kind.as_ref().map_or(&[][..], |(_, ways)| &ways[..]);
        while placed < many {
            let fitting = ways.iter().filter(|(_, need)| room.has(need));
            let best = fitting.min_by(|a, b| room.after(&a.1).total_cmp(&room.after(&b.1)));
            let Some((way, need)) = best else { break };
            room.take(need);
            counts[room.kind][*way] += 1;
            placed += 1;
        }
        if placed == many {
            break;
        }
    }
    placed
}

fn answer(fleet: &Fleet, rooms: &[Room], counts: &[Vec<[u32; 3]>]) -> Answer {
    let mut places = Vec::new();
    for (chain, on) in fleet.chains.iter().zip(counts) {
        for (host, ways) in fleet.hosts.iter().zip(on) {
            for (way, &count) in Way::ALL.into_iter().zip(ways) {
                if count > 0 {
                    let (chain, host) = (chain.name.clone(), host.name.clone());
                    places.push(Place { chain, host, way, count });
                }
            }
        }
    }
    let used: Vec<_> = rooms.iter().filter(|room| room.is_used).collect();
    let mean = |at: usize| {
        used.iter().map(|room| room.taken[at]).sum::<f64>() / (used.len().max(1) as f64)
    };
    Answer {
        placed: places.iter().map(|place| place.count).sum(),
        hosts_used: used.len() as u32,
        taken: SHARED.into_iter().enumerate().map(|(at, scarce)| (scarce, mean(at))).collect(),
        places,
    }
}
