//! Device under test of a point, and the guests' attachments to it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use model::state::PathInForce;
use report::{PathKind, Pattern, RingKind};
use tempfile::TempDir;
use traffic::arena;
use traffic::{Place, TapPlace};

use super::{OUTSIDE, PointSpec, Switch};
use crate::bench::bare::{BareProcess, BareSpec};
use crate::bench::{
    AdapterPlan, Attached, Bench, NicPlan, Placement, SwitchedBench, SwitchedPlan, VfPlan, mac_text,
};
use crate::experiment::sample::Counting;

/// Running device under test.
#[derive(Debug)]
pub(super) enum Ground {
    /// A NIC and its VFs.
    Nic(Bench),
    /// A switch whose adapters are on the path synthetic.
    Switch(SwitchedBench),
    /// A bridge of the kernel.
    Bridge(&'static str),
    /// The bare loop, and the directory of its two sockets.
    Bare(BareProcess, TempDir),
}

impl Ground {
    pub(super) fn start(
        switch: Switch<'_>,
        spec: &PointSpec,
        placement: &Placement,
    ) -> Result<Ground> {
        let program = match switch {
            Switch::Shunt { daemon, .. } => daemon,
            Switch::Bare { program, delay_cycles } => {
                return bare(program, delay_cycles, spec, placement);
            }
        };
        Ok(match spec.path {
            PathKind::Vf => {
                let vf = |i| VfPlan { macs: vec![mac_text(i, 0)], ..VfPlan::default() };
                let nic = NicPlan {
                    cpu: placement.switch,
                    uplink: true,
                    vfs: (0..spec.vms).map(vf).collect(),
                    busy: placement.switch.is_some(),
                };
                Ground::Nic(Bench::start(program, &nic)?)
            }
            PathKind::Vhost => {
                let path = PathInForce::Synthetic;
                let adapter =
                    |i| AdapterPlan { attached: Attached::Socket, mac: mac_text(i, 0), path };
                let adapters = (0..spec.vms).map(adapter).collect();
                let cpu = placement.switch;
                let plan = SwitchedPlan { cpu, uplink: Some(Attached::Socket), adapters };
                Ground::Switch(SwitchedBench::start(program, &plan)?)
            }
            PathKind::Virtio => Ground::Bridge(arena::bridge()?),
        })
    }

    /// Counters of frames and cycles, if there are any.
    pub(super) fn counting(&mut self) -> Option<&mut dyn Counting> {
        match self {
            Ground::Nic(bench) => Some(bench),
            Ground::Switch(switched) => Some(&mut switched.bench),
            Ground::Bridge(_) => None,
            Ground::Bare(bare, _) => Some(bare),
        }
    }

    pub(super) fn uplink(&self) -> Place {
        match self {
            Ground::Nic(bench) => Place::Socket(bench.uplink_socket()),
            Ground::Switch(switched) => Place::Socket(switched.bench.uplink_socket()),
            Ground::Bridge(bridge) => tap("uplink".into(), bridge),
            Ground::Bare(_, dir) => Place::Socket(sockets(dir)[0].clone()),
        }
    }

    pub(super) fn guest(&self, number: usize) -> Place {
        match self {
            Ground::Nic(bench) => Place::Socket(bench.vf_socket(number)),
            Ground::Switch(switched) => Place::Socket(switched.socket(number)),
            Ground::Bridge(bridge) => tap(format!("guest{number}"), bridge),
            Ground::Bare(_, dir) => Place::Socket(sockets(dir)[1].clone()),
        }
    }
}

fn tap(name: String, bridge: &str) -> Place {
    Place::Tap(TapPlace { name, bridge: Some(bridge.to_owned()) })
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
) -> Result<Ground> {
    ensure!(
        (spec.pattern, spec.vms) == (Pattern::NorthSouth, 1),
        "the bare loop has two sockets: north-south with one guest"
    );
    let dir = tempfile::tempdir().context("cannot make a directory for sockets")?;
    let bare = BareSpec {
        sockets: sockets(&dir),
        connect: false,
        addresses: [OUTSIDE, mac_text(0, 0)],
        cpu: placement.switch,
        delay_cycles,
        packed: spec.ring != RingKind::Split,
        mergeable: true,
        with_parent: true,
    };
    Ok(Ground::Bare(BareProcess::start(program, &bare)?, dir))
}
