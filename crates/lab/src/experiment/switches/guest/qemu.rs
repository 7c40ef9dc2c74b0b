//! Linux in QEMU, which redirects each frame from one port to the other: vhost-user ports only.

use anyhow::Result;

use super::super::launch::{GuestKind, GuestProcess, MACS};
use crate::bench::peers::{Qemu, QemuRings};

pub(super) static KIND: GuestKind = GuestKind {
    name: "qemu",
    about: "a virtual machine with Linux",
    missing: Qemu::missing,
    hugepages: 0,
    on_sockets: |spec, sockets| {
        let (settings, rings) = (spec, spec.rings);
        let rings = QemuRings { packed: rings.packed, mergeable: rings.mergeable };
        let cpu = settings.guest_cpu;
        Ok(Box::new(Qemu::start(spec.program, sockets, MACS, rings, cpu, spec.dir)?))
    },
    on_interfaces: None,
};

impl GuestProcess for Qemu {
    fn pid(&self) -> u32 {
        Qemu::pid(self)
    }

    fn set_running(&mut self, runs: bool) -> Result<()> {
        Qemu::set_running(self, runs)
    }

    fn wait_ready(&mut self) -> Result<Vec<u64>> {
        Qemu::wait_ready(self)
    }

    fn inject(&mut self, frame_bytes: u32, bursts: u64) -> Result<()> {
        Qemu::inject(self, frame_bytes, bursts)
    }

    fn received_per_s(&mut self) -> Result<f64> {
        Qemu::received_per_s(self)
    }

    fn drain(&mut self) -> Result<u64> {
        Qemu::drain(self)
    }
}
