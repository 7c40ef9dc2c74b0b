//! DPDK's testpmd, `io` between two ports: virtio-user, or AF_PACKET on interfaces.

use anyhow::Result;

use super::super::launch::{GuestKind, GuestProcess, LaunchSpec, MACS, TESTPMD_PAGES};
use crate::bench::peers::{GuestPort, Testpmd};

pub(super) static KIND: GuestKind = GuestKind {
    name: "testpmd",
    about: "DPDK's testpmd, `io`",
    missing: |_| {
        let missing = "the guest, dpdk-testpmd, is not installed; run tests/e2e/setup --peers";
        (!Testpmd::is_installed()).then(|| missing.to_owned())
    },
    hugepages: TESTPMD_PAGES,
    on_sockets: |spec, sockets| {
        let port = |i: usize| GuestPort::VhostUser {
            socket: sockets[i].clone(),
            mac: MACS[i],
            packed: spec.rings.packed,
            mergeable: spec.rings.mergeable,
        };
        start(spec, &[port(0), port(1)])
    },
    on_interfaces: Some(|spec, veths| start(spec, &veths.guest.clone().map(GuestPort::Interface))),
};

fn start(spec: &LaunchSpec<'_>, ports: &[GuestPort; 2]) -> Result<Box<dyn GuestProcess>> {
    let settings = spec;
    let (cpu, hugepages) = (settings.guest_cpu, settings.hugepages);
    Ok(Box::new(Testpmd::start_guest(ports, MACS, cpu, spec.dir, hugepages)?))
}

impl GuestProcess for Testpmd {
    fn pid(&self) -> u32 {
        Testpmd::pid(self)
    }

    fn wait_ready(&mut self) -> Result<Vec<u64>> {
        Testpmd::wait_ready(self)?;
        Ok(self.features())
    }

    fn inject(&mut self, frame_bytes: u32, bursts: u64) -> Result<()> {
        Testpmd::inject(self, frame_bytes, bursts)
    }

    fn received_per_s(&mut self) -> Result<f64> {
        Testpmd::received_per_s(self)
    }

    fn drain(&mut self) -> Result<u64> {
        Testpmd::drain(self)
    }
}
