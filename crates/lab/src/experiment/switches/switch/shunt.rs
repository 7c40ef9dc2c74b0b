//! Shunt: two VFs of a soft NIC, classified by MAC, spoof check on.

use anyhow::Result;

use super::super::BURSTS_MAX;
use super::super::rules;
use super::{Counted, Start, SwitchKind, SwitchProcess};
use crate::bench::Bench;
use crate::measure::stages::StageCounts;

pub(super) static KIND: SwitchKind = SwitchKind {
    name: "shunt",
    cycles: None,
    has_rules: true,
    bursts_max: BURSTS_MAX,
    hugepages: 0,
    is_installed: || true,
    start: Start::Sockets(|spec, sockets| {
        let sockets = [sockets[0].as_path(), sockets[1].as_path()];
        let (cpu, ruled) = (spec.settings.switch_cpu, spec.settings.rules);
        let config = |run_dir: &_| rules::shunt(run_dir, &sockets, cpu, ruled);
        Ok(Box::new(Bench::with_config(spec.program, config)?))
    }),
};

impl SwitchProcess for Bench {
    fn pids(&self) -> Vec<u32> {
        vec![self.pid()]
    }

    fn counted(&mut self) -> Result<Counted> {
        let stats = self.stats()?;
        let lanes = stats.lanes.iter();
        let sum = |name| lanes.clone().filter_map(|lane| lane.values.get(name)).sum();
        Ok(Counted {
            frames: sum("frames"),
            busy_cycles: sum("busy_cycles"),
            kernel_cycles: 0,
            stages: StageCounts::read(&stats),
        })
    }
}
