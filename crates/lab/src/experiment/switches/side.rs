//! One side of the comparison: a switch, its guest, and their directory.
//!
//! A side that is stopped uses no CPU time and answers nothing: all questions are asked within
//! [`Side::running`]. The connections are local sockets, which no switch probes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use host::tsc;
use tempfile::TempDir;
use wire::Mac;

use super::{Settings, Slot, Switch, rules};
use crate::bench::Bench;
use crate::bench::bare::{BareProcess, BareSpec};
use crate::bench::peers::ovs::Flows;
use crate::bench::peers::{CpuWait, GuestPort, Ovs, Testpmd, pause, prefer, resume};
use crate::measure::stages::StageCounts;

/// Addresses of the guest's ports.
pub(super) const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
/// Time from a guest's readiness to the first stop: Open vSwitch enables queues a moment later.
const SETTLE: Duration = Duration::from_millis(300);

#[derive(Debug)]
enum Process {
    Bare(BareProcess),
    Shunt(Bench),
    OvsDpdk(Ovs),
    Testpmd(Testpmd),
}

/// What a switch counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    frames: u64,
    busy_cycles: u64,
    /// Of Shunt; else zeros.
    stages: StageCounts,
}

/// A switch and its guest. Dropping it resumes and ends both, and removes their directory.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) switch: Switch,
    /// Virtio features of each port in force, in hexadecimal.
    pub(super) features: Vec<String>,
    // In the order in which they are ended.
    pub(super) guest: Testpmd,
    process: Process,
    /// Counters when counting began, of switches that cannot be set to zero.
    cleared: Counted,
    _dir: TempDir,
}

impl Side {
    /// Starts a switch and its guest, waits until both are ready, and stops them.
    ///
    /// # Errors
    /// One of them does not start.
    pub(super) fn start(program: &Path, switch: Switch, settings: &Settings) -> Result<Side> {
        let dir = tempfile::Builder::new().prefix("shunt-lab-").tempdir();
        let dir = dir.context("cannot make a temporary directory; set TMPDIR to a writable one")?;
        let sockets = ["a.sock", "b.sock"].map(|name| dir.path().join(name));
        let Settings { packed, mergeable, hugepages, guest_cpu, .. } = *settings;
        let process = start_switch(program, switch, settings, &sockets, dir.path())?;
        let [first, second] = sockets;
        let port = |socket, mac| GuestPort { socket, mac, packed, mergeable };
        let ports = [port(first, MACS[0]), port(second, MACS[1])];
        let guest = Testpmd::start_guest(&ports, guest_cpu, dir.path(), hugepages)?;
        let (features, cleared) = (Vec::new(), Counted::default());
        let mut side = Side { switch, features, guest, process, cleared, _dir: dir };
        side.guest.wait_ready().context("the guest")?;
        side.features = side.guest.features().iter().map(|bits| format!("{bits:#x}")).collect();
        if let Process::Testpmd(testpmd) = &mut side.process {
            testpmd.wait_ready()?;
            testpmd.forward()?;
        }
        // As far as this user may: unpreferred, more slots are disturbed, and are told to be.
        let _ = [side.switch_pid(), side.guest.pid()].map(prefer);
        std::thread::sleep(SETTLE);
        pause(&side.pids())?;
        Ok(side)
    }

    /// Process with the polling thread.
    fn switch_pid(&self) -> u32 {
        match &self.process {
            Process::Bare(bare) => bare.pid(),
            Process::Shunt(bench) => bench.pid(),
            Process::OvsDpdk(ovs) => ovs.pids().last().copied().unwrap_or_default(),
            Process::Testpmd(testpmd) => testpmd.pid(),
        }
    }

    fn pids(&self) -> Vec<u32> {
        let mut pids = match &self.process {
            Process::OvsDpdk(ovs) => ovs.pids(),
            _ => vec![self.switch_pid()],
        };
        pids.push(self.guest.pid());
        pids
    }

    /// Resumes both for the time of `ask`.
    pub(super) fn running<T>(&mut self, ask: impl FnOnce(&mut Side) -> Result<T>) -> Result<T> {
        resume(&self.pids())?;
        let answer = ask(self);
        let paused = pause(&self.pids());
        // The first error is the cause.
        answer.and_then(|answer| paused.map(|()| answer))
    }

    /// One slot, after a while to settle; the caller fills in when and where it was.
    pub(super) fn measure(&mut self, [settle, slot]: [Duration; 2]) -> Result<Slot> {
        let polling = [self.switch_pid(), self.guest.pid()];
        std::thread::sleep(settle);
        self.guest.received_per_s()?; // rates count from here
        self.clear()?;
        let waits = polling.map(CpuWait::read);
        std::thread::sleep(slot);
        let now = polling.map(CpuWait::read);
        let Counted { frames, busy_cycles, stages } = self.counters()?;
        let received_per_s = self.guest.received_per_s()?;
        ensure!(frames > 0 && received_per_s > 0.0, "no frame passed in {slot:?}");
        let cycles_per_frame = busy_cycles as f64 / frames as f64;
        let shares = now.iter().zip(&waits).map(|(now, before)| now.share_since(before));
        Ok(Slot {
            switch: self.switch,
            round: 0,
            pass: 0,
            frame_bytes: 0,
            distances: [0.0; 2],
            cycles_per_frame,
            mpps: received_per_s / 1e6,
            busy_share: cycles_per_frame * received_per_s / tsc::hz(),
            disturbance: shares.fold(0.0, f64::max),
            stages: stages.per_frame(frames, frames, busy_cycles),
        })
    }

    /// Counts from here on.
    fn clear(&mut self) -> Result<()> {
        match &mut self.process {
            Process::OvsDpdk(ovs) => ovs.clear_cycles(),
            Process::Testpmd(testpmd) => testpmd.clear_cycles(),
            Process::Bare(_) | Process::Shunt(_) => {
                self.cleared = Counted::default();
                self.cleared = self.counters()?;
                Ok(())
            }
        }
    }

    /// Counters since [`clear`](Self::clear).
    fn counters(&mut self) -> Result<Counted> {
        let mut stages = StageCounts::default();
        let (frames, busy_cycles) = match &mut self.process {
            Process::OvsDpdk(ovs) => ovs.cycles()?,
            Process::Testpmd(testpmd) => testpmd.cycles()?,
            Process::Bare(bare) => {
                let counters = bare.counters()?;
                (counters.frames, counters.busy_cycles)
            }
            Process::Shunt(bench) => {
                let stats = bench.stats()?;
                let lanes = stats.lanes.iter();
                let sum = |name| lanes.clone().filter_map(|lane| lane.values.get(name)).sum();
                stages = StageCounts::read(&stats);
                (sum("frames"), sum("busy_cycles"))
            }
        };
        // Those that were set to zero have no counters to take off.
        Ok(Counted {
            frames: frames - self.cleared.frames,
            busy_cycles: busy_cycles - self.cleared.busy_cycles,
            stages: stages.since(&self.cleared.stages),
        })
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // What is stopped cannot end in order; one that has ended is no matter.
        for pid in self.pids() {
            let _ = resume(&[pid]);
        }
    }
}

fn start_switch(
    program: &Path,
    switch: Switch,
    settings: &Settings,
    sockets: &[PathBuf; 2],
    dir: &Path,
) -> Result<Process> {
    let Settings { switch_cpu: cpu, guest_cpu, packed, mergeable, hugepages, .. } = *settings;
    Ok(match switch {
        Switch::Bare => Process::Bare(BareProcess::start(
            program,
            &BareSpec {
                sockets: sockets.clone(),
                connect: true,
                addresses: MACS,
                cpu: Some(cpu),
                delay_cycles: settings.delay_cycles,
                packed,
                mergeable,
                with_parent: true,
            },
        )?),
        Switch::Shunt => Process::Shunt(Bench::with_config(program, |run_dir| {
            let sockets = [sockets[0].as_path(), sockets[1].as_path()];
            rules::shunt(run_dir, &sockets, cpu, settings.rules)
        })?),
        Switch::OvsDpdk => {
            let flows = match settings.rules {
                true => {
                    let (flows, vlan) = rules::ovs();
                    Flows::Rules(flows, vlan)
                }
                false => Flows::Static,
            };
            Process::OvsDpdk(Ovs::start(sockets, (cpu, guest_cpu), dir, hugepages, &flows)?)
        }
        Switch::Testpmd => {
            Process::Testpmd(Testpmd::start_switch(sockets, (cpu, guest_cpu), dir, hugepages)?)
        }
    })
}
