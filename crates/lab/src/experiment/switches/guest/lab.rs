//! The lab's own guest: a process of this program that returns each frame. It needs neither root
//! nor DPDK, and has vhost-user ports only.

use anyhow::{Result, bail};
use report::RingKind;
use traffic::protocol::reflect::{Command, ReflectSpec, Reflected};
use traffic::{Event, Task};

use super::super::launch::{GuestKind, GuestProcess, MACS};
use crate::bench::peers::testpmd::BURST;

pub(super) static KIND: GuestKind = GuestKind {
    name: "lab",
    about: "a process of this program, which returns each frame; no root, no DPDK",
    missing: |_| None,
    hugepages: 0,
    on_sockets: |spec, sockets| {
        let task = Task::Reflect(ReflectSpec {
            cpu: spec.guest_cpu,
            sockets: sockets.clone(),
            macs: MACS.map(|mac| mac.to_string()),
            ring: if spec.rings.packed { RingKind::Packed } else { RingKind::Split },
            mergeable: spec.rings.mergeable,
        });
        let process = crate::bench::GuestProcess::start_task(spec.program, &task)?;
        Ok(Box::new(LabGuest { process, asked: None }))
    },
    on_interfaces: None,
};

#[derive(Debug)]
struct LabGuest {
    process: crate::bench::GuestProcess,
    /// Counters at the last query of its rate.
    asked: Option<Reflected>,
}

impl LabGuest {
    fn command(&mut self, command: Command) -> Result<Reflected> {
        self.process.tell(&serde_json::to_string(&command)?)?;
        match self.process.hear()? {
            Event::Reflected(reflected) => Ok(reflected),
            other => bail!("the guest process said {other:?} to {command:?}"),
        }
    }
}

impl GuestProcess for LabGuest {
    fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn wait_ready(&mut self) -> Result<Vec<u64>> {
        Ok(self.command(Command::Count)?.features.into())
    }

    fn inject(&mut self, frame_bytes: u32, bursts: u64) -> Result<()> {
        let frames = (bursts * BURST) as u32;
        self.command(Command::Inject { frame_bytes, frames }).map(drop)
    }

    fn received_per_s(&mut self) -> Result<f64> {
        let now = self.command(Command::Count)?;
        let (frames, seconds) = match &self.asked {
            Some(before) => (now.received - before.received, now.seconds - before.seconds),
            None => (now.received, now.seconds),
        };
        self.asked = Some(now);
        Ok(frames as f64 / seconds)
    }

    fn drain(&mut self) -> Result<u64> {
        Ok(self.command(Command::Drain)?.drained)
    }
}
