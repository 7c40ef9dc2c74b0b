//! The kernel's bridge between two veth pairs. It has no process:
//! [`LinuxBridge`](crate::bench::peers::linux_bridge) defines its cycles.

use anyhow::Result;

use super::super::launch::{BURSTS_MAX, Start, SwitchCounters, SwitchKind, SwitchProcess};
use crate::bench::peers::LinuxBridge;
use crate::measure::softirq::kernel_cycles;

pub(super) static KIND: SwitchKind = SwitchKind {
    name: "linux-bridge",
    about: "the kernel's bridge",
    cycles: Some(
        "kernel alone, as it forwards in the guest's context; busy: its share of the guest's CPU",
    ),
    bursts_max: BURSTS_MAX,
    hugepages: 0,
    is_installed: || true,
    start: Start::Interfaces(|spec, veths| {
        let (bridge, guest_cpu) = (LinuxBridge::start(veths)?, spec.guest_cpu);
        Ok(Box::new(Bridge { bridge, guest_cpu }))
    }),
};

#[derive(Debug)]
struct Bridge {
    bridge: LinuxBridge,
    guest_cpu: usize,
}

impl SwitchProcess for Bridge {
    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }

    fn counted(&mut self) -> Result<SwitchCounters> {
        let (frames, kernel_cycles) = (self.bridge.frames()?, kernel_cycles(self.guest_cpu)?);
        Ok(SwitchCounters { frames, kernel_cycles, ..SwitchCounters::default() })
    }
}
