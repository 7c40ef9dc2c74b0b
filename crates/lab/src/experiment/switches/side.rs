//! One side of the comparison: a switch, its guest, and their directory.
//!
//! A stopped side uses no CPU time and answers no query: all queries are made within
//! [`Side::running`]. The connections are local sockets, which no switch probes.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use host::tsc;
use tempfile::TempDir;

use super::launch::{GuestProcess, LaunchSpec, MACS, Rings, Start, SwitchProcess};
use super::settings::SwitchesSettings;
use super::slot::Slot;
use super::switch::SwitchType;
use crate::bench::peers::{CpuWait, Veths, pause, prefer, resume};

/// Time from a guest's readiness to the first stop: Open vSwitch enables queues a moment later.
const SETTLE: Duration = Duration::from_millis(300);

/// A switch and its guest. Dropping it resumes and ends both, and removes their interfaces and
/// their directory.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) switch: SwitchType,
    /// Negotiated virtio features of each port, in hexadecimal.
    pub(super) features: Vec<String>,
    // In the order in which they are ended.
    pub(super) guest: Box<dyn GuestProcess>,
    process: Box<dyn SwitchProcess>,
    _veths: Option<Veths>,
    _dir: TempDir,
}

impl Side {
    /// Starts a switch and its guest, waits until both are ready, and stops them.
    ///
    /// # Errors
    /// One of them does not start.
    pub(super) fn start(
        program: &Path,
        switch: SwitchType,
        settings: &SwitchesSettings,
        rings: Rings,
    ) -> Result<Side> {
        let dir = tempfile::Builder::new().prefix("shunt-lab-").tempdir();
        let dir = dir.context("cannot make a temporary directory; set TMPDIR to a writable one")?;
        let spec = LaunchSpec {
            program,
            rings,
            switch_cpu: settings.switch_cpu,
            guest_cpu: settings.guest_cpu,
            delay_cycles: settings.delay_cycles,
            hugepages: settings.hugepages,
            dir: dir.path(),
        };
        let guest = settings.guest.kind();
        let (process, guest, veths) = match switch.kind().start {
            Start::Sockets(start) => {
                let sockets = ["a.sock", "b.sock"].map(|name| dir.path().join(name));
                let process = start(&spec, &sockets)?;
                (process, (guest.on_sockets)(&spec, &sockets)?, None)
            }
            Start::Interfaces(start) => {
                let attach = guest.on_interfaces.context("the guest has no port for it")?;
                let veths = Veths::new(MACS)?;
                let process = start(&spec, &veths)?;
                (process, attach(&spec, &veths)?, Some(veths))
            }
        };
        let features = Vec::new();
        let mut side = Side { switch, features, guest, process, _veths: veths, _dir: dir };
        let features = side.guest.wait_ready().context("the guest")?;
        side.features = features.iter().map(|bits| format!("{bits:#x}")).collect();
        side.process.set_forwarding(true)?;
        // As far as permitted: at normal priority more slots are disturbed, and reported as such.
        let _ = side.polling_pids().into_iter().map(prefer).fold(true, |all, one| all & one);
        std::thread::sleep(SETTLE);
        side.pause()?;
        Ok(side)
    }

    fn pids(&self) -> Vec<u32> {
        let mut pids = self.process.pids();
        pids.push(self.guest.pid());
        pids
    }

    /// Stops the guest, then the switch: a stopped switch loses frames beyond its sockets'
    /// capacity.
    fn pause(&mut self) -> Result<()> {
        self.process.set_forwarding(false)?;
        self.guest.set_running(false)?;
        pause(&[self.guest.pid()])?;
        pause(&self.process.pids())
    }

    /// Processes with a forwarding thread: the switch, if it has one, and the guest.
    fn polling_pids(&self) -> Vec<u32> {
        self.process.pids().last().copied().into_iter().chain([self.guest.pid()]).collect()
    }

    /// Resumes both while `ask` runs.
    pub(super) fn running<T>(&mut self, ask: impl FnOnce(&mut Side) -> Result<T>) -> Result<T> {
        resume(&self.pids())?;
        self.guest.set_running(true)?;
        self.process.set_forwarding(true)?;
        let answer = ask(self);
        let paused = self.pause();
        // The first error is the cause.
        answer.and_then(|answer| paused.map(|()| answer))
    }

    /// One slot, after the settling time; the caller sets time and place.
    pub(super) fn measure(&mut self, [settle, slot]: [Duration; 2]) -> Result<Slot> {
        let polling = self.polling_pids();
        let waits = || polling.iter().map(|pid| CpuWait::read(*pid)).collect::<Vec<_>>();
        std::thread::sleep(settle);
        self.guest.received_per_s()?; // rates count from here
        let before = self.process.counted()?;
        let waited = waits();
        std::thread::sleep(slot);
        let now = waits();
        let counted = self.process.counted()?.since(&before);
        let received_per_s = self.guest.received_per_s()?;
        ensure!(counted.frames > 0 && received_per_s > 0.0, "no frame passed in {slot:?}");
        let frames = counted.frames as f64;
        let [busy, kernel] =
            [counted.busy_cycles, counted.kernel_cycles].map(|cycles| cycles as f64 / frames);
        let shares = now.iter().zip(&waited).map(|(now, before)| now.share_since(before));
        Ok(Slot {
            switch: self.switch,
            round: 0,
            pass: 0,
            frame_bytes: 0,
            distances: [0.0; 2],
            cycles_per_frame: busy + kernel,
            kernel_cycles_per_frame: kernel,
            mpps: received_per_s / 1e6,
            busy_share: busy.max(kernel) * received_per_s / tsc::hz(),
            disturbance: shares.fold(0.0, f64::max),
            stages: counted.stages.per_frame(counted.frames, counted.frames, counted.busy_cycles),
        })
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // A stopped process cannot end in order; one that has ended does not matter.
        for pid in self.pids() {
            let _ = resume(&[pid]);
        }
    }
}
