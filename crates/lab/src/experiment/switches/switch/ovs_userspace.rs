//! Open vSwitch's user-space datapath without DPDK: two interfaces, a static flow each way.
//!
//! Its main thread forwards. Cycles are the CPU time of ovs-vswitchd, and the time of the guest's
//! CPU in the kernel, where the guest's frames come and go.

use anyhow::Result;

use super::super::rules;
use super::{Counted, Start, SwitchKind, SwitchProcess};
use crate::bench::peers::Ovs;
use crate::bench::peers::linux_bridge::kernel_cycles;
use crate::bench::peers::ovs::Ports;

pub(super) static KIND: SwitchKind = SwitchKind {
    name: "ovs-userspace",
    cycles: Some("kernel, and the CPU time of ovs-vswitchd; busy: its share of the switch's CPU"),
    has_rules: true,
    // A socket of Open vSwitch holds 212 992 bytes unless the host allows more: 64 frames of 1518
    // bytes with the kernel's structures.
    bursts_max: 2,
    hugepages: 0,
    is_installed: Ovs::is_installed,
    start: Start::Interfaces(|spec, veths| {
        let settings = spec.settings;
        let (ports, flows) = (Ports::Interfaces(&veths.switch), rules::flows(settings.rules));
        let ovs = Ovs::start(ports, settings.switch_cpu, spec.dir, &flows)?;
        Ok(Box::new(Userspace { ovs, guest_cpu: settings.guest_cpu }))
    }),
};

#[derive(Debug)]
struct Userspace {
    ovs: Ovs,
    guest_cpu: usize,
}

impl SwitchProcess for Userspace {
    fn pids(&self) -> Vec<u32> {
        self.ovs.pids()
    }

    fn counted(&mut self) -> Result<Counted> {
        let (frames, busy_cycles) = self.ovs.cycles()?;
        let kernel_cycles = kernel_cycles(self.guest_cpu)?;
        Ok(Counted { frames, busy_cycles, kernel_cycles, ..Counted::default() })
    }
}
