//! DPDK's testpmd: two net_vhost ports, `io`.

use anyhow::Result;

use super::super::launch::{
    BURSTS_MAX, Start, SwitchCounters, SwitchKind, SwitchProcess, TESTPMD_PAGES,
};
use crate::bench::peers::Testpmd;

pub(super) static KIND: SwitchKind = SwitchKind {
    name: "testpmd",
    about: "DPDK's testpmd, net_vhost, `io`",
    cycles: None,
    bursts_max: BURSTS_MAX,
    hugepages: TESTPMD_PAGES,
    is_installed: Testpmd::is_installed,
    start: Start::Sockets(|spec, sockets| {
        let settings = spec;
        let cpus = (settings.switch_cpu, settings.guest_cpu);
        Ok(Box::new(Testpmd::start_switch(sockets, cpus, spec.dir, settings.hugepages)?))
    }),
};

impl SwitchProcess for Testpmd {
    fn pids(&self) -> Vec<u32> {
        vec![self.pid()]
    }

    fn set_forwarding(&mut self, forwards: bool) -> Result<()> {
        self.wait_ready()?;
        Testpmd::set_forwarding(self, forwards)
    }

    fn counted(&mut self) -> Result<SwitchCounters> {
        let (frames, busy_cycles) = self.cycles()?;
        Ok(SwitchCounters { frames, busy_cycles, ..SwitchCounters::default() })
    }
}
