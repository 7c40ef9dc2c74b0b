//! Device under test of a point, and the guests' attachments to it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use model::state::PathInForce;
use report::{PathKind, Pattern, RingKind};
use tempfile::TempDir;
use traffic::netns;
use traffic::{AdapterBackend, TapSpec};

use super::point::{OUTSIDE, PointSpec, SwitchProgram};
use crate::bench::bare::{BareProcess, BareSpec};
use crate::bench::{
    AdapterPlan, Bench, BenchAttachment, NicPlan, Placement, SwitchedBench, SwitchedPlan, VfPlan,
    lane_under_load, mac_text,
};
use crate::experiment::sample::Counting;

/// Running device under test.
#[derive(Debug)]
pub(super) enum RunningSwitch {
    /// A NIC and its VFs.
    Nic(Bench),
    /// A switch whose adapters are on the path synthetic.
    Switch(SwitchedBench),
    /// A bridge of the kernel.
    Bridge(&'static str),
    /// The bare loop, and the directory of its two sockets.
    Bare(BareProcess, TempDir),
}

impl RunningSwitch {
    pub(super) fn start(
        switch: SwitchProgram<'_>,
        spec: &PointSpec,
        placement: &Placement,
    ) -> Result<RunningSwitch> {
        let program = match switch {
            SwitchProgram::Shunt { daemon, .. } => daemon,
            SwitchProgram::Bare { program, delay_cycles } => {
                return bare(program, delay_cycles, spec, placement);
            }
        };
        Ok(match spec.path {
            PathKind::Vf => {
                let vf = |i| VfPlan { macs: vec![mac_text(i, 0)], ..VfPlan::default() };
                let nic = NicPlan {
                    lanes: lane_under_load(placement.switch),
                    uplink: true,
                    vfs: (0..spec.vms).map(vf).collect(),
                };
                RunningSwitch::Nic(Bench::start(program, &nic)?)
            }
            PathKind::Vhost => {
                let path = PathInForce::Synthetic;
                let adapter = |i| AdapterPlan {
                    attached: BenchAttachment::Socket,
                    mac: mac_text(i, 0),
                    path,
                };
                let adapters = (0..spec.vms).map(adapter).collect();
                let cpu = placement.switch;
                let plan = SwitchedPlan { cpu, uplink: Some(BenchAttachment::Socket), adapters };
                RunningSwitch::Switch(SwitchedBench::start(program, &plan)?)
            }
            PathKind::Virtio => RunningSwitch::Bridge(netns::bridge()?),
        })
    }

    /// Counters of frames and cycles, if there are any.
    pub(super) fn counting(&mut self) -> Option<&mut dyn Counting> {
        match self {
            RunningSwitch::Nic(bench) => Some(bench),
            RunningSwitch::Switch(switched) => Some(&mut switched.bench),
            RunningSwitch::Bridge(_) => None,
            RunningSwitch::Bare(bare, _) => Some(bare),
        }
    }

    pub(super) fn uplink(&self) -> AdapterBackend {
        match self {
            RunningSwitch::Nic(bench) => AdapterBackend::Socket(bench.uplink_socket()),
            RunningSwitch::Switch(switched) => {
                AdapterBackend::Socket(switched.bench.uplink_socket())
            }
            RunningSwitch::Bridge(bridge) => tap("uplink".into(), bridge),
            RunningSwitch::Bare(_, dir) => AdapterBackend::Socket(sockets(dir)[0].clone()),
        }
    }

    pub(super) fn guest(&self, number: usize) -> AdapterBackend {
        match self {
            RunningSwitch::Nic(bench) => AdapterBackend::Socket(bench.vf_socket(number)),
            RunningSwitch::Switch(switched) => AdapterBackend::Socket(switched.socket(number)),
            RunningSwitch::Bridge(bridge) => tap(format!("guest{number}"), bridge),
            RunningSwitch::Bare(_, dir) => AdapterBackend::Socket(sockets(dir)[1].clone()),
        }
    }
}

fn tap(name: String, bridge: &str) -> AdapterBackend {
    AdapterBackend::Tap(TapSpec { name, bridge: Some(bridge.to_owned()) })
}

/// Sockets of the bare loop: uplink and guest.
fn sockets(dir: &TempDir) -> [PathBuf; 2] {
    ["uplink", "guest"].map(|name| dir.path().join(name))
}

fn bare(
    program: &Path,
    delay_cycles: u64,
    spec: &PointSpec,
    placement: &Placement,
) -> Result<RunningSwitch> {
    ensure!(
        (spec.pattern, spec.vms) == (Pattern::NorthSouth, 1),
        "the bare loop has two sockets: north-south with one guest"
    );
    let dir = tempfile::tempdir().context("cannot make a directory for sockets")?;
    let bare = BareSpec {
        guests: sockets(&dir).into_iter().zip([OUTSIDE, mac_text(0, 0)]).collect(),
        connect: false,
        cpu: placement.switch,
        delay_cycles,
        packed: spec.ring != RingKind::Split,
        mergeable: true,
        with_parent: true,
    };
    Ok(RunningSwitch::Bare(BareProcess::start(program, &bare)?, dir))
}
