//! Readings of the switch and of the guests at both ends of a measurement.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use api::stats::{LaneStats, Stats};
use host::{CpuTime, ProcessCpu};
use report::Stages;
use report::statistics::quantile::quantile;
use traffic::GuestResult;

use crate::bench::bare::BareProcess;
use crate::bench::{Bench, GuestProcess};
use crate::measure::copy_loop::Counters;
use crate::measure::stages::StageCounts;

/// A switch that counts its frames and cycles.
pub(super) trait Counting {
    /// Its counters.
    fn stats(&mut self) -> Result<Stats>;
    /// Its CPU time.
    fn cpu(&self) -> Result<CpuTime>;
    /// Fails if it has ended.
    fn check_alive(&mut self) -> Result<()>;
}

impl Counting for Bench {
    fn stats(&mut self) -> Result<Stats> {
        Bench::stats(self)
    }

    fn cpu(&self) -> Result<CpuTime> {
        Bench::cpu(self)
    }

    fn check_alive(&mut self) -> Result<()> {
        Bench::check_alive(self)
    }
}

impl Counting for BareProcess {
    fn stats(&mut self) -> Result<Stats> {
        let Counters { frames, bursts, busy_cycles, idle_cycles, .. } = self.counters()?;
        let values = [
            ("frames", frames),
            ("bursts", bursts),
            ("busy_cycles", busy_cycles),
            ("idle_cycles", idle_cycles),
        ];
        let values = values.map(|(name, value)| (name.to_owned(), value)).into();
        let lanes = vec![LaneStats { lane: "bare".into(), values }];
        Ok(Stats { lanes, ..Stats::default() })
    }

    fn cpu(&self) -> Result<CpuTime> {
        Ok(ProcessCpu::read(self.pid())?.process)
    }

    fn check_alive(&mut self) -> Result<()> {
        self.counters().map(drop)
    }
}

/// Readings of the switch, if it counts, and of the guests at one moment.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) stats: Stats,
    pub(super) switch_cpu: CpuTime,
    pub(super) guests_cpu: Vec<CpuTime>,
}

impl Sample {
    pub(super) fn take(
        switch: Option<&mut (dyn Counting + '_)>,
        guests: &[GuestProcess],
    ) -> Result<Sample> {
        let (stats, switch_cpu) = match switch {
            Some(switch) => (switch.stats()?, switch.cpu()?),
            None => (Stats::default(), CpuTime::default()),
        };
        let guests_cpu = guests.iter().map(GuestProcess::cpu).collect::<Result<_>>()?;
        Ok(Sample { stats, switch_cpu, guests_cpu })
    }
}

/// Differences between both ends.
#[derive(Debug)]
pub(super) struct Measured {
    /// Result of each guest process.
    pub(super) results: Vec<GuestResult>,
    /// CPU time of each guest process.
    pub(super) guests_cpu: Vec<CpuTime>,
    /// CPU time of the daemon.
    pub(super) switch_cpu: CpuTime,
    /// Lane counters, summed.
    pub(super) switch: SwitchCounts,
    /// Frames dropped, as `port: reason`.
    pub(super) drops: BTreeMap<String, u64>,
}

/// Counters summed over the lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SwitchCounts {
    /// Frames polled, including dropped ones.
    pub(super) frames: u64,
    /// Frames polled and not dropped.
    pub(super) delivered: u64,
    pub(super) bursts: u64,
    pub(super) busy_cycles: u64,
    pub(super) idle_cycles: u64,
    pub(super) stages: StageCounts,
}

impl SwitchCounts {
    /// Busy cycles for each delivered frame; `None` without any.
    pub(super) fn cycles_per_frame(&self) -> Option<f64> {
        (self.delivered > 0).then(|| self.busy_cycles as f64 / self.delivered as f64)
    }

    /// Busy cycles for each delivered frame, by stage.
    pub(super) fn stages(&self) -> Option<Stages> {
        self.stages.per_frame(self.frames, self.delivered, self.busy_cycles)
    }

    pub(super) fn burst_mean(&self) -> Option<f64> {
        (self.bursts > 0).then(|| self.frames as f64 / self.bursts as f64)
    }

    pub(super) fn busy_share(&self) -> f64 {
        let all = self.busy_cycles + self.idle_cycles;
        if all == 0 { 0.0 } else { self.busy_cycles as f64 / all as f64 }
    }
}

/// Starts the guests, and takes readings at begin and end of the measurement.
pub(super) fn measure(bench: &mut Bench, guests: &mut [GuestProcess]) -> Result<Measured> {
    measure_on(Some(bench), guests)
}

/// Measures with a switch that may have no counters: then only the guests' counts remain.
pub(super) fn measure_on(
    mut switch: Option<&mut dyn Counting>,
    guests: &mut [GuestProcess],
) -> Result<Measured> {
    for process in guests.iter_mut() {
        process.go()?;
    }
    for process in guests.iter_mut() {
        process.begin()?;
    }
    let before = Sample::take(switch.as_deref_mut(), guests)?;
    for process in guests.iter_mut() {
        process.end()?;
    }
    let after = Sample::take(switch.as_deref_mut(), guests)?;
    let results = guests.iter_mut().map(GuestProcess::result).collect::<Result<_>>()?;
    switch.map_or(Ok(()), Counting::check_alive)?;
    let cpus = after.guests_cpu.iter().zip(&before.guests_cpu);
    let mut counts = switch_counts(&before.stats, &after.stats)?;
    let drops = drops(&before.stats, &after.stats);
    counts.delivered = counts.frames.saturating_sub(drops.values().sum());
    Ok(Measured {
        results,
        guests_cpu: cpus.map(|(after, before)| after.since(before)).collect(),
        switch_cpu: after.switch_cpu.since(&before.switch_cpu),
        switch: counts,
        drops,
    })
}

/// Lane counters between two readings.
pub(super) fn switch_counts(before: &Stats, after: &Stats) -> Result<SwitchCounts> {
    let stages = StageCounts::read(after).since(&StageCounts::read(before));
    let mut counts = SwitchCounts { stages, ..SwitchCounts::default() };
    for (before, after) in before.lanes.iter().zip(&after.lanes) {
        let get = |lane: &LaneStats, name: &str| {
            lane.values.get(name).copied().with_context(|| format!("no lane counter {name}"))
        };
        let gain = |name| Ok::<u64, anyhow::Error>(get(after, name)? - get(before, name)?);
        counts.frames += gain("frames")?;
        counts.bursts += gain("bursts")?;
        counts.busy_cycles += gain("busy_cycles")?;
        counts.idle_cycles += gain("idle_cycles")?;
    }
    Ok(counts)
}

/// Frames dropped between two readings, as `port reason`.
pub(super) fn drops(before: &Stats, after: &Stats) -> BTreeMap<String, u64> {
    let mut drops = BTreeMap::new();
    for (before, after) in before.ports.iter().zip(&after.ports) {
        for (reason, count) in &after.drops {
            let gain = count - before.drops.get(reason).copied().unwrap_or(0);
            if gain > 0 {
                drops.insert(format!("{} {reason}", after.name), gain);
            }
        }
    }
    drops
}

/// Minimum, median and maximum; zeros without values.
pub(super) fn spread(values: impl IntoIterator<Item = f64>) -> [f64; 3] {
    let values: Vec<f64> = values.into_iter().collect();
    [0.0, 0.5, 1.0].map(|share| quantile(&values, share).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_least_median_and_most() {
        assert_eq!(spread([]), [0.0; 3]);
        assert_eq!(spread([2.0]), [2.0; 3]);
        assert_eq!(spread([5.0, 1.0, 3.0]), [1.0, 3.0, 5.0]);
        assert_eq!(spread([5.0, 1.0, 3.0, 2.0]), [1.0, 2.5, 5.0]);
    }
}
