//! Stages of a daemon's lanes, from their counters.

use api::stats::Stats;
use engine::Stage;

use report::Stages;

/// Counters of sampled bursts, summed over lanes; zeros if the daemon samples none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StageCounts {
    /// Cycles of each stage, in the order of [`Stage::ALL`].
    cycles: [u64; Stage::ALL.len()],
    readings: u64,
    bursts: u64,
    frames: u64,
}

impl StageCounts {
    /// The counters now.
    pub(crate) fn read(stats: &Stats) -> StageCounts {
        let sum =
            |name: &str| stats.lanes.iter().filter_map(|lane| lane.values.get(name)).sum::<u64>();
        StageCounts {
            cycles: Stage::ALL.map(|stage| sum(&stage.counter())),
            readings: sum("sampling_cycles"),
            bursts: sum("sampled_bursts"),
            frames: sum("sampled_frames"),
        }
    }

    /// Difference to an earlier reading.
    pub(crate) fn since(&self, before: &StageCounts) -> StageCounts {
        StageCounts {
            cycles: std::array::from_fn(|i| self.cycles[i] - before.cycles[i]),
            readings: self.readings - before.readings,
            bursts: self.bursts - before.bursts,
            frames: self.frames - before.frames,
        }
    }

    /// Cycles for each of the `delivered` frames, of `frames` polled in `busy_cycles`. `None`
    /// without a sampled burst or a delivered frame.
    pub(crate) fn per_frame(
        &self,
        frames: u64,
        delivered: u64,
        busy_cycles: u64,
    ) -> Option<Stages> {
        if self.frames == 0 || delivered == 0 {
            return None;
        }
        let polled_each = frames as f64 / delivered as f64;
        let each = self.cycles.map(|cycles| cycles as f64 / self.frames as f64 * polled_each);
        let [poll, descriptors, classify, copy, publish, notify] = each;
        let sampling = self.readings as f64 / delivered as f64;
        let all = busy_cycles as f64 / delivered as f64;
        let other = (all - sampling - each.iter().sum::<f64>()).max(0.0);
        let cycles = [poll, descriptors, classify, copy, publish, notify, other, sampling];
        Some(Stages::from_cycles(cycles, self.bursts))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::stats::LaneStats;

    use super::*;

    /// Two lanes, each with these counters.
    fn stats(each: u64) -> Stats {
        let mut values: BTreeMap<String, u64> = Stage::ALL
            .iter()
            .enumerate()
            .map(|(i, s)| (s.counter(), each * (i as u64 + 1)))
            .collect();
        for (name, value) in [
            ("sampling_cycles", each),
            ("sampled_bursts", each / 100),
            ("sampled_frames", each / 10),
        ] {
            values.insert(name.into(), value);
        }
        let lane = |lane: &str| LaneStats { lane: lane.into(), values: values.clone() };
        Stats { lanes: vec![lane("0"), lane("1")], ..Stats::default() }
    }

    #[test]
    fn parts_add_up_to_the_busy_cycles() {
        let counts = StageCounts::read(&stats(3000)).since(&StageCounts::read(&stats(1000)));
        // 4000 cycles of the first stage on 400 frames; half of the frames were dropped.
        let stages = counts.per_frame(40_000, 20_000, 10_000_000).unwrap();
        let parts = [20.0, 40.0, 60.0, 80.0, 100.0, 120.0, 79.8, 0.2];
        let near = stages.cycles().iter().zip(parts).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(near, "{stages:?}");
        assert_eq!(stages.sampled_bursts, 40);
        let sum: f64 = stages.cycles().iter().sum();
        assert!((sum - 500.0).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn without_samples_there_is_nothing() {
        let none = StageCounts::read(&Stats::default());
        assert_eq!(none.per_frame(10, 10, 100), None);
        assert_eq!(StageCounts::read(&stats(1000)).per_frame(10, 0, 100), None);
        let more = StageCounts::read(&stats(1000)).per_frame(10, 10, 100).unwrap();
        assert_eq!(more.other, 0.0, "samples that make up more than all");
    }

    #[test]
    fn the_report_names_the_stages_of_the_engine() {
        assert_eq!(Stages::PARTS[..Stage::ALL.len()], Stage::ALL.map(Stage::as_str));
    }
}
