//! Open vSwitch with DPDK: two `dpdkvhostuserclient` ports; a static flow in each direction, or
//! learning with a VLAN and rules.

use std::path::PathBuf;

use anyhow::Result;

use super::super::launch::{LaunchSpec, Start, SwitchCounters, SwitchKind, SwitchProcess};
use super::super::{BURSTS_MAX, rules};
use crate::bench::peers::Ovs;
use crate::bench::peers::ovs::{Flows, Ports};

pub(super) static FLOWS: SwitchKind = SwitchKind {
    name: "ovs-dpdk",
    about: "Open vSwitch with DPDK, a static flow each way",
    start: Start::Sockets(|spec, sockets| start(spec, sockets, &Flows::Static)),
    ..KIND
};

pub(super) static RULES: SwitchKind = SwitchKind {
    name: "ovs-dpdk-rules",
    about: "Open vSwitch with DPDK, learning, a VLAN and 100 rules",
    start: Start::Sockets(|spec, sockets| start(spec, sockets, &rules::ovs())),
    ..KIND
};

/// Common to both.
const KIND: SwitchKind = SwitchKind {
    name: "",
    about: "",
    cycles: None,
    bursts_max: BURSTS_MAX,
    hugepages: 633,
    is_installed: Ovs::is_installed_with_dpdk,
    start: Start::Sockets(|spec, sockets| start(spec, sockets, &Flows::Static)),
};

fn start(
    spec: &LaunchSpec<'_>,
    sockets: &[PathBuf; 2],
    flows: &Flows,
) -> Result<Box<dyn SwitchProcess>> {
    let settings = spec;
    let (main_cpu, hugepages) = (settings.guest_cpu, settings.hugepages);
    let ports = Ports::Dpdk { sockets, main_cpu, hugepages };
    Ok(Box::new(Dpdk(Ovs::start(ports, settings.switch_cpu, spec.dir, flows)?)))
}

#[derive(Debug)]
struct Dpdk(Ovs);

impl SwitchProcess for Dpdk {
    fn pids(&self) -> Vec<u32> {
        self.0.pids()
    }

    fn counted(&mut self) -> Result<SwitchCounters> {
        let (frames, busy_cycles) = self.0.cycles()?;
        Ok(SwitchCounters { frames, busy_cycles, ..SwitchCounters::default() })
    }
}
