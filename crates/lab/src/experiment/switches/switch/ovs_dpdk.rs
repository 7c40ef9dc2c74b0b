//! Open vSwitch with DPDK: two `dpdkvhostuserclient` ports, a static flow each way.

use anyhow::Result;

use super::super::BURSTS_MAX;
use super::super::rules;
use super::{Counted, Start, SwitchKind, SwitchProcess};
use crate::bench::peers::Ovs;
use crate::bench::peers::ovs::Ports;

pub(super) static KIND: SwitchKind = SwitchKind {
    name: "ovs-dpdk",
    cycles: None,
    has_rules: true,
    bursts_max: BURSTS_MAX,
    hugepages: 633,
    is_installed: Ovs::is_installed_with_dpdk,
    start: Start::Sockets(|spec, sockets| {
        let settings = spec.settings;
        let (main_cpu, hugepages) = (settings.guest_cpu, settings.hugepages);
        let ports = Ports::Dpdk { sockets, main_cpu, hugepages };
        let flows = rules::flows(settings.rules);
        Ok(Box::new(Dpdk(Ovs::start(ports, settings.switch_cpu, spec.dir, &flows)?)))
    }),
};

#[derive(Debug)]
struct Dpdk(Ovs);

impl SwitchProcess for Dpdk {
    fn pids(&self) -> Vec<u32> {
        self.0.pids()
    }

    fn counted(&mut self) -> Result<Counted> {
        let (frames, busy_cycles) = self.0.cycles()?;
        Ok(Counted { frames, busy_cycles, ..Counted::default() })
    }
}
