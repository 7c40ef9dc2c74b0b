//! Open vSwitch's user-space datapath without DPDK: two interfaces, a static flow in each
//! direction.
//!
//! Its main thread forwards. Cycles are the CPU time of ovs-vswitchd, and the kernel time of the
//! guest's CPU, on which the guest's frames are sent and received.

use anyhow::Result;

use super::super::launch::{Start, SwitchCounters, SwitchKind, SwitchProcess};
use crate::bench::peers::Ovs;
use crate::bench::peers::ovs::{Flows, Ports};
use crate::measure::softirq::kernel_cycles;

pub(super) static KIND: SwitchKind = SwitchKind {
    name: "ovs-userspace",
    about: "Open vSwitch's user-space datapath without DPDK",
    cycles: Some("kernel, and the CPU time of ovs-vswitchd; busy: its share of the switch's CPU"),
    // A socket of Open vSwitch holds 212 992 bytes unless the host allows more: 64 frames of 1518
    // bytes with the kernel's structures.
    bursts_max: 2,
    hugepages: 0,
    is_installed: Ovs::is_installed,
    start: Start::Interfaces(|spec, veths| {
        let settings = spec;
        let ports = Ports::Interfaces(&veths.switch);
        let ovs = Ovs::start(ports, settings.switch_cpu, spec.dir, &Flows::Static)?;
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

    fn counted(&mut self) -> Result<SwitchCounters> {
        let (frames, busy_cycles) = self.ovs.cycles()?;
        let kernel_cycles = kernel_cycles(self.guest_cpu)?;
        Ok(SwitchCounters { frames, busy_cycles, kernel_cycles, ..SwitchCounters::default() })
    }
}
