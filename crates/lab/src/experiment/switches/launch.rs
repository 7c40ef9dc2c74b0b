//! Kinds of switches and guests, and the parameters that start them.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use wire::Mac;

use crate::bench::peers::Veths;
use crate::measure::stages::StageCounts;

/// Maximum bursts in flight from each port: a ring holds 1024 frames.
pub const BURSTS_MAX: u64 = 30;
/// MAC addresses of the guest's ports.
pub(super) const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
/// Huge pages of 2 MiB that testpmd needs.
pub(super) const TESTPMD_PAGES: u64 = 128;

/// Rings of guests with vhost-user ports; interfaces have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rings {
    /// Ask for packed rings.
    pub packed: bool,
    /// Ask for mergeable receive buffers.
    pub mergeable: bool,
}

impl fmt::Display for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = if self.packed { "packed" } else { "split" };
        let mergeable = if self.mergeable { "on" } else { "off" };
        write!(f, "{layout} rings, mergeable buffers {mergeable}")
    }
}

/// Parameters of a switch and its guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchSpec<'a> {
    /// The shunt binary.
    pub(super) program: &'a Path,
    pub(super) rings: Rings,
    /// CPU of the switch's polling thread.
    pub(super) switch_cpu: usize,
    /// CPU of the guest.
    pub(super) guest_cpu: usize,
    /// Time-stamp cycles that the bare loop spins for each frame.
    pub(super) delay_cycles: u64,
    /// Use pages of 2 MiB.
    pub(super) hugepages: bool,
    /// Directory of sockets and files.
    pub(super) dir: &'a Path,
}

/// A kind of switch.
pub(super) struct SwitchKind {
    /// Name as in the CLI and JSON.
    pub(super) name: &'static str,
    /// Description for tables of kinds.
    pub(super) about: &'static str,
    /// Meaning of its cycles, unless they are busy cycles of a polling thread.
    pub(super) cycles: Option<&'static str>,
    /// Maximum bursts in flight from each port without loss.
    pub(super) bursts_max: u64,
    /// Huge pages of 2 MiB that it needs.
    pub(super) hugepages: u64,
    /// Returns `true` if its program is installed.
    pub(super) is_installed: fn() -> bool,
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
type Launch<Ports> = fn(&LaunchSpec<'_>, &Ports) -> Result<Box<dyn SwitchProcess>>;

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
    fn counted(&mut self) -> Result<SwitchCounters>;
}

/// Counters of a switch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SwitchCounters {
    pub(super) frames: u64,
    /// Busy cycles of the thread that forwards.
    pub(super) busy_cycles: u64,
    /// Kernel cycles of the guest's CPU, for a switch between interfaces.
    pub(super) kernel_cycles: u64,
    /// Stages of Shunt; zeros for other switches.
    pub(super) stages: StageCounts,
}

impl SwitchCounters {
    /// Difference to an earlier count.
    pub(super) fn since(&self, earlier: &SwitchCounters) -> SwitchCounters {
        SwitchCounters {
            frames: self.frames.saturating_sub(earlier.frames),
            busy_cycles: self.busy_cycles.saturating_sub(earlier.busy_cycles),
            kernel_cycles: self.kernel_cycles.saturating_sub(earlier.kernel_cycles),
            stages: self.stages.since(&earlier.stages),
        }
    }
}

/// A kind of guest.
pub(super) struct GuestKind {
    /// Name as in the CLI and JSON.
    pub(super) name: &'static str,
    /// Description for help texts.
    pub(super) about: &'static str,
    /// Reason that it cannot be started, and the remedy, by the path of this program; `None` if it
    /// can.
    pub(super) missing: fn(&Path) -> Option<String>,
    /// Huge pages of 2 MiB that it needs.
    pub(super) hugepages: u64,
    /// Attaches it to vhost-user sockets, on which it listens.
    pub(super) on_sockets: Attach<[PathBuf; 2]>,
    /// Attaches it to interfaces of the lab's network namespace, if supported.
    pub(super) on_interfaces: Option<Attach<Veths>>,
}

/// Starts a guest on two ports.
type Attach<Ports> = fn(&LaunchSpec<'_>, &Ports) -> Result<Box<dyn GuestProcess>>;

/// A running guest with two ports, between which it moves frames; ended when dropped.
pub(super) trait GuestProcess: fmt::Debug {
    /// Process id.
    fn pid(&self) -> u32;

    /// Resumes its clock after its process; or stops it before its process is stopped.
    fn set_running(&mut self, _runs: bool) -> Result<()> {
        Ok(())
    }

    /// Waits until both ports are attached, and returns their negotiated virtio features.
    fn wait_ready(&mut self) -> Result<Vec<u64>>;

    /// Injects `bursts` of frames from each port, `frame_bytes` with FCS.
    fn inject(&mut self, frame_bytes: u32, bursts: u64) -> Result<()>;

    /// Frames per second received by both ports since the last call.
    fn received_per_s(&mut self) -> Result<f64>;

    /// Drains all frames from the rings; returns their number.
    fn drain(&mut self) -> Result<u64>;
}
