//! CPU placement: the switch has a CPU of its own if there are two; guests share the others.

/// CPUs by process. With a single CPU nothing is pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// CPU of the switch's lane.
    pub switch: Option<usize>,
    /// CPU of the generator; `None` with pinned [`guests`](Self::guests): it shares the first guest
    /// process.
    pub generator: Option<usize>,
    /// Guest processes: CPU (if pinned) and number of guests.
    pub guests: Vec<(Option<usize>, usize)>,
}

/// Places a lane, a generator and `guests` guests on `cpus`.
pub fn plan(cpus: &[usize], guests: usize) -> Placement {
    match *cpus {
        [] | [_] => Placement { switch: None, generator: None, guests: vec![(None, guests)] },
        [switch, shared] => Placement {
            switch: Some(switch),
            generator: None,
            guests: vec![(Some(shared), guests)],
        },
        [switch, generator, ref rest @ ..] => {
            let processes = rest.len().min(guests);
            let hosted = |i: usize| guests / processes + usize::from(i < guests % processes);
            let guests = (0..processes).map(|i| (Some(rest[i]), hosted(i))).collect();
            Placement { switch: Some(switch), generator: Some(generator), guests }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_alone_and_every_guest_has_a_place() {
        for cpus in 1..9 {
            let cpus: Vec<usize> = (0..cpus).collect();
            for guests in 1..9 {
                let placement = plan(&cpus, guests);
                let hosted: usize = placement.guests.iter().map(|(_, n)| n).sum();
                assert_eq!(hosted, guests);
                if let Some(switch) = placement.switch {
                    assert!(placement.guests.iter().all(|(cpu, _)| *cpu != Some(switch)));
                    assert_ne!(placement.generator, Some(switch));
                }
            }
        }
        assert_eq!(plan(&[3, 5], 4).guests, [(Some(5), 4)]);
        assert_eq!(plan(&[0, 1, 2, 3], 3).guests, [(Some(2), 2), (Some(3), 1)]);
    }
}
