//! Steps of a migration, in order.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use host::qmp::QmpError;
use model::state::{MoveRequest, MoveStep, PathInForce};
use serde_json::{Map, Value};

use super::daemon::{DaemonClient, HOLD_S};
use super::error::MigrateError;
use super::frames::TransferredFrames;
use super::guest_vfs;
use super::qemu::{MigrationProgress, POLL, Qemu};
use super::report::{MigrationReport, PathChange, StepReport};
use super::spec::MigrationSpec;

/// Renewal interval of both daemons.
const RENEWAL: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(HOLD_S as u64 / 4) };
/// Time that the source still keeps frames after the target has announced the addresses. Frames
/// that switches had sent before learning the new location arrive within it. The guest is stopped
/// meanwhile.
const DRAIN_TIME: Duration = Duration::from_millis(20);
/// Time to wait for the guest's first frame at the target; a silent guest never sends one.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(2);

/// Progress of a migration, and so the steps to undo.
#[derive(Debug, Default)]
pub(super) struct MigrationState {
    /// Adapters created at the target.
    pub(super) prepared: Vec<String>,
    /// Adapters marked as leaving at the source.
    pub(super) leaving: Vec<String>,
    /// Adapters whose primary was unplugged, with that device.
    pub(super) detached: Vec<(String, Map<String, Value>)>,
    /// The guest has disabled its VFs.
    pub(super) vfs_disabled: bool,
    /// QEMU was told to migrate.
    pub(super) started: bool,
    /// Time at which QEMU was told to continue; from then on the guest may run at the target.
    pub(super) switched_over: Option<Instant>,
    /// QEMU reports completion.
    pub(super) completed: bool,
    /// Frames transferred.
    pub(super) frames: TransferredFrames,
}

/// A migration in progress.
pub(super) struct Migration<'a> {
    pub(super) spec: &'a MigrationSpec,
    pub(super) source: DaemonClient<'a>,
    pub(super) target: DaemonClient<'a>,
    /// The source's QEMU.
    pub(super) qemu: Qemu,
    /// The target's QEMU.
    pub(super) target_qemu: Option<Qemu>,
    /// Child process of the start command; terminated if the guest does not move.
    pub(super) starter: Option<Child>,
    pub(super) state: MigrationState,
    pub(super) report: MigrationReport,
    pub(super) on_step: &'a mut dyn FnMut(&StepReport),
    pub(super) renewed: Instant,
    pub(super) begun: Instant,
}

impl Migration<'_> {
    pub(super) fn done(&mut self, step: &str, text: impl Into<String>, begun: Instant) {
        let done = StepReport::new(step, text, begun);
        self.report.recording(self.on_step)(&done);
    }

    /// Notes the path of an adapter from now on.
    pub(super) fn note_path(&mut self, adapter: &str, host: &str, path: PathInForce) {
        let at_ms = self.begun.elapsed().as_millis() as u64;
        let (adapter, host) = (adapter.to_owned(), host.to_owned());
        self.report.time_line.push(PathChange { at_ms, adapter, host, path });
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.report.plan.adapters.iter().map(|adapter| adapter.name.clone()).collect()
    }

    /// Runs all steps; stops at the first failure.
    pub(super) fn go(&mut self, requests: &[MoveRequest]) -> Result<(), MigrateError> {
        self.prepare(requests)?;
        self.connect()?;
        self.detach_primaries()?;
        self.leave()?;
        self.migrate()?;
        self.verify()?;
        self.finish();
        Ok(())
    }

    fn prepare(&mut self, requests: &[MoveRequest]) -> Result<(), MigrateError> {
        let begun = Instant::now();
        let mut told = Vec::new();
        for (at, request) in requests.iter().enumerate() {
            let name = self.report.plan.adapters[at].name.clone();
            // Undone even if the reply is lost.
            self.state.prepared.push(name.clone());
            let given = self.target.arrive(request, false)?;
            let planned = &mut self.report.plan.adapters[at];
            // Otherwise planned with the primary, which comes later.
            if !self.spec.target_primaries.contains_key(&name) {
                (planned.to, planned.reason) = (given.path, given.reason);
            }
            let held = given.vf.map_or(String::new(), |vf| format!(", VF {vf} is reserved"));
            told.push(format!("{name}: {} ({}){held}", given.path, given.reason));
        }
        self.done("prepare", told.join("; "), begun);
        Ok(())
    }

    /// Connects to the target's QEMU, starts it if requested, and makes it wait for the guest.
    fn connect(&mut self) -> Result<(), MigrateError> {
        let begun = Instant::now();
        if let Some(command) = &self.spec.start {
            // A process group of its own: Ctrl-C is for `shunt migrate`, and the guest may already
            // be in that QEMU. Its output is not part of the report.
            let child = Command::new("sh")
                .args(["-c", command])
                .stdin(Stdio::null())
                .stdout(std::io::stderr())
                .process_group(0)
                .spawn();
            let failed =
                |error| MigrateError::new(format!("the start command cannot be run: {error}"));
            self.starter = Some(child.map_err(failed)?);
        }
        let mut qemu = loop {
            match Qemu::connect(&self.spec.target_qmp) {
                Ok(qemu) => break qemu,
                Err(error) if begun.elapsed() > self.spec.start_timeout => {
                    let after = self.spec.start_timeout.as_secs();
                    let text = format!("the target's QEMU has not answered for {after} s: {error}");
                    return Err(MigrateError::new(text));
                }
                Err(_) => {}
            }
            if let Some(Ok(Some(status))) = self.starter.as_mut().map(Child::try_wait)
                && !status.success()
            {
                return Err(MigrateError::new(format!("the start command failed: {status}")));
            }
            std::thread::sleep(POLL);
            self.renew()?;
        };
        qemu.listen(&self.spec.uri)?;
        self.target_qemu = Some(qemu);
        self.done("connect", format!("the target's QEMU waits at {}", self.spec.uri), begun);
        Ok(())
    }

    fn leave(&mut self) -> Result<(), MigrateError> {
        let begun = Instant::now();
        for name in self.names() {
            self.state.leaving.push(name.clone());
            self.source.step(&name, MoveStep::Leave)?;
        }
        self.done("leave", "frames are kept while the guest is stopped", begun);
        Ok(())
    }

    fn migrate(&mut self) -> Result<(), MigrateError> {
        let begun = Instant::now();
        self.state.started = true;
        self.qemu.start(&self.spec.uri, self.spec.bandwidth, self.spec.downtime_ms)?;
        let progress = self.watch(begun)?;
        self.state.completed = true;
        for planned in self.report.plan.adapters.clone() {
            let path = if planned.plugs { PathInForce::Synthetic } else { planned.to };
            self.note_path(&planned.name, "target", path);
        }
        self.report.downtime_ms = progress.downtime_ms;
        self.report.total_ms = progress.total_ms;
        self.report.ram_bytes = progress.ram_bytes;
        let ms = |value: Option<u64>| value.map_or("?".to_owned(), |ms| ms.to_string());
        let (total, still) = (ms(progress.total_ms), ms(progress.downtime_ms));
        let text = format!("completed in {total} ms, guest downtime {still} ms");
        self.done("migrate", text, begun);
        Ok(())
    }

    /// Waits for QEMU to finish, and moves the addresses once the guest has stopped.
    fn watch(&mut self, begun: Instant) -> Result<MigrationProgress, MigrateError> {
        loop {
            let progress = match self.qemu.progress(POLL) {
                Ok(progress) => progress,
                // Nothing can be undone before the guest's location is known.
                Err(QmpError::Late { .. }) if self.within(self.state.switched_over) => {
                    self.renew()?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            match progress.status.as_str() {
                "pre-switchover" if self.state.switched_over.is_none() => self.switch()?,
                "completed" => return Ok(progress),
                "failed" | "cancelled" | "none" | "" => {
                    let why = match progress.error.as_str() {
                        "" => "QEMU does not say why; see the log of the target's".to_owned(),
                        why => why.to_owned(),
                    };
                    let status = progress.status;
                    return Err(MigrateError::new(format!("QEMU's migration is {status}: {why}")));
                }
                _ => {}
            }
            if !self.within(self.state.switched_over.or(Some(begun))) {
                let (after, status) = (self.spec.timeout.as_secs(), progress.status);
                return Err(MigrateError::new(format!(
                    "after {after} s QEMU's migration is still {status}; raise --bandwidth-mbps, --downtime-ms or --timeout"
                )));
            }
            self.renew()?;
        }
    }

    /// Returns `true` until the timeout after `begun` has passed.
    fn within(&self, begun: Option<Instant>) -> bool {
        begun.is_some_and(|begun| begun.elapsed() <= self.spec.timeout)
    }

    /// Moves the addresses from the source to the target while the guest is stopped.
    fn switch(&mut self) -> Result<(), MigrateError> {
        let begun = Instant::now();
        let mut announced = 0;
        for name in self.names() {
            self.note_path(&name, "source", PathInForce::None);
        }
        for name in self.names() {
            announced += self.target.step(&name, MoveStep::TakeOver)?.announced;
        }
        std::thread::sleep(DRAIN_TIME);
        for name in self.names() {
            self.state.frames.transfer(&self.source, &self.target, &name)?;
        }
        self.state.switched_over = Some(Instant::now());
        self.qemu.switch_over()?;
        self.report.switch_ms = Some(begun.elapsed().as_millis() as u64);
        let carried = self.state.frames.frames;
        let text = format!(
            "the target has the addresses (announced on {announced} ports), {carried} frames transferred"
        );
        self.done("switch", text, begun);
        Ok(())
    }

    /// Waits until the guest's rings run at the target.
    fn verify(&mut self) -> Result<(), MigrateError> {
        let begun = Instant::now();
        let awaited: Vec<String> = self
            .report
            .plan
            .adapters
            .iter()
            .filter(|one| one.connected)
            .map(|one| one.name.clone())
            .collect();
        let mut first_seen = None;
        loop {
            self.keep_target_running();
            let mut told = Vec::new();
            let (mut silent, mut missing) = (false, Vec::new());
            for name in &awaited {
                match self.target.status(name) {
                    Ok(status) if status.connected => {
                        silent |= status.received + status.sent == 0;
                        told.push(format!(
                            "{name}: {} ({}), {} frames received and {} sent",
                            status.path, status.reason, status.received, status.sent
                        ));
                    }
                    Ok(_) => missing.push(format!("the rings of {name} do not run")),
                    // The daemon may be restarting.
                    Err(failed) => missing.push(failed.to_string()),
                }
            }
            if missing.is_empty() {
                let since = *first_seen.get_or_insert_with(Instant::now);
                if !silent || since.elapsed() > FIRST_FRAME_TIMEOUT {
                    self.done("verify", told.join("; "), begun);
                    return Ok(());
                }
            } else if begun.elapsed() > self.spec.verify_timeout {
                let text = format!("the guest does not work at the target: {}", missing.join("; "));
                return Err(MigrateError::new(text));
            }
            std::thread::sleep(POLL);
            self.renew()?;
        }
    }

    /// Resumes a target QEMU that was started with -S. A QEMU that does not answer is not asked
    /// again: the rings show if the guest runs.
    fn keep_target_running(&mut self) {
        let Some(qemu) = &mut self.target_qemu else { return };
        let kept = qemu.status().and_then(|status| match status.as_str() {
            "paused" | "prelaunch" => qemu.cont(),
            _ => Ok(()),
        });
        if kept.is_err_and(|error| !error.is_refusal()) {
            self.target_qemu = None;
        }
    }

    /// Removes the adapters from the source. The guest is at the target: failures are reported, and
    /// do not bring it back.
    fn finish(&mut self) {
        let begun = Instant::now();
        let mut left = Vec::new();
        for name in self.names() {
            // Frames that reached the source during the switch.
            left.extend(self.state.frames.transfer(&self.source, &self.target, &name).err());
            if let Ok(status) = self.target.status(&name) {
                self.state.frames.note_lost(self.target.name, &name, status.lost);
            }
            left.extend(self.target.step(&name, MoveStep::Finish).err());
        }
        if !self.spec.keep_source && self.qemu.quit().is_err() {
            left.push(MigrateError::new(
                "the source's QEMU is still running; end it, its guest has moved",
            ));
        }
        for name in self.names() {
            left.extend(self.source.step(&name, MoveStep::Finish).err());
        }
        if self.state.vfs_disabled {
            let agent = self.spec.target_guest_agent.as_deref();
            let unnamed = || MigrateError::new(guest_vfs::RESTORE_BY_HAND);
            left.extend(
                agent.map_or_else(|| Some(unnamed()), |agent| guest_vfs::restore(agent).err()),
            );
        }
        left.extend(self.attach_primaries());
        let text = match left.is_empty() {
            true => "the adapters are removed from the source".to_owned(),
            false => {
                let left: Vec<String> = left.iter().map(ToString::to_string).collect();
                self.report.error = Some(format!("the guest has moved, but: {}", left.join("; ")));
                left.join("; ")
            }
        };
        self.done("finish", text, begun);
    }

    /// Renews the migration at both daemons when due; an error if it is to be undone. Once the
    /// guest may be at the target there is no way back, and a daemon that does not answer may be
    /// restarting.
    pub(super) fn renew(&mut self) -> Result<(), MigrateError> {
        let may_stop = self.state.switched_over.is_none();
        if self.spec.interrupted.load(Ordering::Relaxed) && may_stop {
            return Err(MigrateError::new("interrupted"));
        }
        if self.renewed.elapsed() < RENEWAL {
            return Ok(());
        }
        self.renewed = Instant::now();
        let at_target = self.state.prepared.iter().map(|name| (&self.target, name));
        let at_source = self.state.leaving.iter().map(|name| (&self.source, name));
        for (site, name) in at_target.chain(at_source) {
            let renewed = site.step(name, MoveStep::Renew);
            if may_stop {
                renewed?;
            }
        }
        Ok(())
    }
}
