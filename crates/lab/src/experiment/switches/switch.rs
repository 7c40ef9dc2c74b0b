//! Kinds of switches: one file each, and a line in [`Switch::ALL`].

mod bare;
mod linux_bridge;
mod ovs_dpdk;
mod ovs_userspace;
mod shunt;
mod testpmd;

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;

use super::side::SideSpec;
use crate::bench::peers::Veths;
use crate::measure::stages::StageCounts;

/// A switch, by its kind.
#[derive(Clone, Copy)]
pub struct Switch(&'static SwitchKind);

/// A kind of switch.
pub(super) struct SwitchKind {
    /// Name as in the CLI and JSON.
    name: &'static str,
    /// Description for tables of kinds.
    about: &'static str,
    /// Meaning of its cycles, unless they are busy cycles of a polling thread.
    cycles: Option<&'static str>,
    /// Maximum bursts in flight from each port without loss.
    pub(super) bursts_max: u64,
    /// Huge pages of 2 MiB that it needs.
    pub(super) hugepages: u64,
    /// Returns `true` if its program is installed.
    is_installed: fn() -> bool,
    /// Kind of its ports, and the function that starts it.
    pub(super) start: Start,
}

/// Starts a switch between two ports of a kind.
#[derive(Clone, Copy)]
pub(super) enum Start {
    /// vhost-user sockets, on which the guest listens.
    Sockets(Launch<[PathBuf; 2]>),
    /// Interfaces of the lab's network namespace.
    Interfaces(Launch<Veths>),
}

/// Starts a switch between two ports.
type Launch<Ports> = fn(&SideSpec<'_>, &Ports) -> Result<Box<dyn SwitchProcess>>;

/// A running switch; ended when dropped.
pub(super) trait SwitchProcess: fmt::Debug {
    /// Process ids, that of the forwarding thread last; none if the kernel forwards.
    fn pids(&self) -> Vec<u32>;

    /// Starts or stops forwarding; stopped, frames remain in the guest's rings. A guest may stop
    /// its rings one by one: a switch that drops frames without a running ring must not forward
    /// meanwhile.
    fn set_forwarding(&mut self, _forwards: bool) -> Result<()> {
        Ok(())
    }

    /// Counters since a fixed moment.
    fn counted(&mut self) -> Result<Counted>;
}

/// Counters of a switch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) frames: u64,
    /// Busy cycles of the thread that forwards.
    pub(super) busy_cycles: u64,
    /// Kernel cycles of the guest's CPU, for a switch between interfaces.
    pub(super) kernel_cycles: u64,
    /// Stages of Shunt; zeros for other switches.
    pub(super) stages: StageCounts,
}

impl Counted {
    /// Difference to an earlier count.
    pub(super) fn since(&self, earlier: &Counted) -> Counted {
        Counted {
            frames: self.frames.saturating_sub(earlier.frames),
            busy_cycles: self.busy_cycles.saturating_sub(earlier.busy_cycles),
            kernel_cycles: self.kernel_cycles.saturating_sub(earlier.kernel_cycles),
            stages: self.stages.since(&earlier.stages),
        }
    }
}

impl Switch {
    /// All switches.
    pub const ALL: [Switch; 10] = [
        Switch(&bare::KIND),
        Switch(&shunt::VFS),
        Switch(&shunt::VFS_BESIDE_SWITCH),
        Switch(&shunt::SWITCH),
        Switch(&shunt::RULES),
        Switch(&ovs_dpdk::FLOWS),
        Switch(&ovs_dpdk::RULES),
        Switch(&ovs_userspace::KIND),
        Switch(&testpmd::KIND),
        Switch(&linux_bridge::KIND),
    ];

    /// Returns `true` if its program is installed.
    pub fn is_installed(self) -> bool {
        (self.0.is_installed)()
    }

    /// Returns `true` if its ports are vhost-user sockets; otherwise they are interfaces of the
    /// kernel.
    pub fn is_vhost_user(self) -> bool {
        matches!(self.0.start, Start::Sockets(_))
    }

    /// Meaning of its cycles, unless they are busy cycles of a polling thread.
    pub fn cycles(self) -> Option<&'static str> {
        self.0.cycles
    }

    pub(super) fn kind(self) -> &'static SwitchKind {
        self.0
    }
}

super::kind::named!(Switch, "switch");
