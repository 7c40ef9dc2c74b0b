//! Points of forwarding from an experiment file.

use super::{PointSpec, SwitchProgram, slot};
use crate::experiment::step::{Step, StepResult, Steps};
use report::Pattern;
use report::experiment::ForwardSweep;

impl Steps for ForwardSweep {
    fn steps(&self, _experiment: &str) -> Vec<Step> {
        let step = |spec: PointSpec| {
            let PointSpec { pattern, path, vms, frame_bytes, .. } = spec;
            let title = format!("{pattern} {path}, {vms} guests, {frame_bytes} B");
            Step::new(title, move |machine| {
                let switch = SwitchProgram::shunt(machine.program);
                Ok(StepResult::Point(slot(switch, &spec, machine.cpus)?))
            })
        };
        slots(self).into_iter().map(step).collect()
    }
}

/// Slots in the order of measurement.
pub fn slots(sweep: &ForwardSweep) -> Vec<PointSpec> {
    let mut slots = Vec::new();
    for &pattern in &sweep.patterns {
        let guests = sweep.guests.iter().copied();
        for vms in guests.filter(|guests| pattern != Pattern::EastWest || *guests > 1) {
            for &frame_bytes in &sweep.frame_bytes {
                let slot = |path| PointSpec {
                    pattern,
                    path,
                    vms,
                    frame_bytes,
                    warmup_s: sweep.warmup_s,
                    seconds: sweep.seconds,
                    ring: sweep.ring,
                    load: sweep.load,
                };
                for _ in 0..sweep.rounds {
                    let there_and_back = sweep.paths.iter().chain(sweep.paths.iter().rev());
                    slots.extend(there_and_back.map(|path| slot(*path)));
                }
            }
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use report::PathKind;
    use report::experiment::Experiment;

    use super::*;

    fn quick() -> ForwardSweep {
        let text = Experiment::shipped("quick").unwrap();
        Experiment::parse(text, &[]).unwrap().forward.remove(0)
    }

    #[test]
    fn slots_go_there_and_back_at_each_place() {
        let slots = slots(&quick());
        // North/south with 1, 2 and 4 guests, east/west with 2 and 4; three sizes, three paths
        // twice.
        assert_eq!(slots.len(), (3 + 2) * 3 * 6);
        let paths: Vec<PathKind> = slots[..6].iter().map(|slot| slot.path).collect();
        let [vf, vhost, virtio] = PathKind::ALL;
        assert_eq!(paths, [vf, vhost, virtio, virtio, vhost, vf]);
        assert!(slots.iter().all(|slot| slot.check().is_ok()));
    }

    #[test]
    fn a_chain_of_one_guest_is_left_out() {
        let patterns = vec![Pattern::EastWest];
        let slots = slots(&ForwardSweep { patterns, guests: vec![1, 2], ..quick() });
        assert!(slots.iter().all(|slot| (slot.pattern, slot.vms) == (Pattern::EastWest, 2)));
    }
}
