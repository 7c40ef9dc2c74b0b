//! The steps of a move, in their order.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use host::qmp::QmpError;
use model::state::{MoveRequest, MoveStep};

use super::carry::Carried;
use super::site::Site;
use super::vmm::{Progress, Vmm};
use super::{Done, Failed, HOLD_S, Report, Spec, functions};

/// How often QEMU is asked where nothing happens.
pub(super) const POLL: Duration = Duration::from_millis(100);
/// How often both daemons are told that the mover lives.
const RENEWAL: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(HOLD_S as u64 / 4) };
/// How long the source goes on keeping frames after the target has told the network of the
/// addresses: what switches had sent before they learnt it arrives in that time. The guest stands
/// still.
const SETTLE: Duration = Duration::from_millis(20);
/// How long it is waited for a first frame there, which a silent guest never sends.
const FIRST_FRAME: Duration = Duration::from_secs(2);

/// How far a move is, and so what is to be undone.
#[derive(Debug, Default)]
pub(super) struct Stage {
    /// Adapters that the target has made.
    pub(super) prepared: Vec<String>,
    /// Adapters that the source knows to be leaving.
    pub(super) leaving: Vec<String>,
    /// Whether the guest was told to take its VFs away.
    pub(super) without_vfs: bool,
    /// Whether QEMU was told to migrate.
    pub(super) begun: bool,
    /// When QEMU was told to go on, so that the guest may run at the target.
    pub(super) released: Option<Instant>,
    /// Whether QEMU says that it has.
    pub(super) completed: bool,
    /// Frames that were carried over.
    pub(super) carried: Carried,
}

/// A move that is being made.
pub(super) struct Mover<'a> {
    pub(super) spec: &'a Spec,
    pub(super) source: Site<'a>,
    pub(super) target: Site<'a>,
    /// The QEMU that the guest leaves.
    pub(super) vmm: Vmm,
    /// The one that it goes to.
    pub(super) target_vmm: Option<Vmm>,
    /// The command that started it; it is ended if the guest does not move.
    pub(super) starter: Option<Child>,
    pub(super) stage: Stage,
    pub(super) report: Report,
    pub(super) tell: &'a mut dyn FnMut(&Done),
    pub(super) renewed: Instant,
}

impl Mover<'_> {
    pub(super) fn done(&mut self, step: &str, text: impl Into<String>, begun: Instant) {
        let ms = begun.elapsed().as_millis() as u64;
        let done = Done { step: step.to_owned(), text: text.into(), ms };
        (self.tell)(&done);
        self.report.steps.push(done);
    }

    fn names(&self) -> Vec<String> {
        self.report.plan.adapters.iter().map(|adapter| adapter.name.clone()).collect()
    }

    /// All steps; the first that fails ends it.
    pub(super) fn go(&mut self, requests: &[MoveRequest]) -> Result<(), Failed> {
        self.prepare(requests)?;
        self.connect()?;
        self.leave()?;
        self.migrate()?;
        self.verify()?;
        self.finish();
        Ok(())
    }

    fn prepare(&mut self, requests: &[MoveRequest]) -> Result<(), Failed> {
        let begun = Instant::now();
        let mut told = Vec::new();
        for (at, request) in requests.iter().enumerate() {
            let name = self.report.plan.adapters[at].name.clone();
            // Undone even if the answer is lost.
            self.stage.prepared.push(name.clone());
            let given = self.target.arrive(request, false)?;
            let planned = &mut self.report.plan.adapters[at];
            (planned.to, planned.reason) = (given.path, given.reason);
            let held = given.vf.map_or(String::new(), |vf| format!(", VF {vf} is held"));
            told.push(format!("{name}: {} ({}){held}", given.path, given.reason));
        }
        self.done("prepare", told.join("; "), begun);
        Ok(())
    }

    /// Reaches the target's QEMU, starting it if that is wanted, and has it wait for the guest.
    fn connect(&mut self) -> Result<(), Failed> {
        let begun = Instant::now();
        if let Some(command) = &self.spec.start {
            // In a process group of its own: Ctrl-C is the mover's, and the guest may be in that
            // QEMU already. What it says is no part of a report.
            let child = Command::new("sh")
                .args(["-c", command])
                .stdin(Stdio::null())
                .stdout(std::io::stderr())
                .process_group(0)
                .spawn();
            let failed = |error| Failed::new(format!("the start command cannot be run: {error}"));
            self.starter = Some(child.map_err(failed)?);
        }
        let mut vmm = loop {
            match Vmm::connect(&self.spec.target_qmp) {
                Ok(vmm) => break vmm,
                Err(error) if begun.elapsed() > self.spec.start_timeout => {
                    let after = self.spec.start_timeout.as_secs();
                    let text =
                        format!("the target's QEMU does not answer after {after} s: {error}");
                    return Err(Failed::new(text));
                }
                Err(_) => {}
            }
            if let Some(Ok(Some(status))) = self.starter.as_mut().map(Child::try_wait)
                && !status.success()
            {
                return Err(Failed::new(format!("the start command failed: {status}")));
            }
            std::thread::sleep(POLL);
            self.renew()?;
        };
        vmm.listen(&self.spec.uri)?;
        self.target_vmm = Some(vmm);
        self.done("connect", format!("the target's QEMU waits at {}", self.spec.uri), begun);
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Failed> {
        let begun = Instant::now();
        for name in self.names() {
            self.stage.leaving.push(name.clone());
            self.source.step(&name, MoveStep::Leave)?;
        }
        self.done("leave", "frames wait while the guest stands still", begun);
        Ok(())
    }

    fn migrate(&mut self) -> Result<(), Failed> {
        let begun = Instant::now();
        self.stage.begun = true;
        self.vmm.start(&self.spec.uri, self.spec.bandwidth, self.spec.downtime_ms)?;
        let progress = self.watch(begun)?;
        self.stage.completed = true;
        self.report.downtime_ms = progress.downtime_ms;
        self.report.total_ms = progress.total_ms;
        self.report.ram_bytes = progress.ram_bytes;
        let ms = |value: Option<u64>| value.map_or("?".to_owned(), |ms| ms.to_string());
        let (total, still) = (ms(progress.total_ms), ms(progress.downtime_ms));
        let text = format!("completed in {total} ms, the guest stood still for {still} ms");
        self.done("migrate", text, begun);
        Ok(())
    }

    /// Follows QEMU to the end, and moves the addresses when the guest has stopped.
    fn watch(&mut self, begun: Instant) -> Result<Progress, Failed> {
        loop {
            let progress = match self.vmm.progress(POLL) {
                Ok(progress) => progress,
                // Nothing can be undone before it is known where the guest is.
                Err(QmpError::Late { .. }) if self.within(self.stage.released) => {
                    self.renew()?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            match progress.status.as_str() {
                "pre-switchover" if self.stage.released.is_none() => self.switch()?,
                "completed" => return Ok(progress),
                "failed" | "cancelled" | "none" | "" => {
                    let why = match progress.error.as_str() {
                        "" => "QEMU does not say why; see the log of the target's".to_owned(),
                        why => why.to_owned(),
                    };
                    let status = progress.status;
                    return Err(Failed::new(format!("QEMU's migration is {status}: {why}")));
                }
                _ => {}
            }
            if !self.within(self.stage.released.or(Some(begun))) {
                let (after, status) = (self.spec.timeout.as_secs(), progress.status);
                return Err(Failed::new(format!(
                    "after {after} s QEMU's migration is still {status}; allow more with --bandwidth-mbps, --downtime-ms or --timeout"
                )));
            }
            self.renew()?;
        }
    }

    /// Whether what began then may go on.
    fn within(&self, begun: Option<Instant>) -> bool {
        begun.is_some_and(|begun| begun.elapsed() <= self.spec.timeout)
    }

    /// The guest stands still: its addresses go from the source to the target.
    fn switch(&mut self) -> Result<(), Failed> {
        let begun = Instant::now();
        let mut announced = 0;
        for name in self.names() {
            announced += self.target.step(&name, MoveStep::TakeOver)?.announced;
        }
        std::thread::sleep(SETTLE);
        for name in self.names() {
            self.stage.carried.over(&self.source, &self.target, &name)?;
        }
        self.stage.released = Some(Instant::now());
        self.vmm.switch_over()?;
        self.report.switch_ms = Some(begun.elapsed().as_millis() as u64);
        let carried = self.stage.carried.frames;
        let text = format!(
            "the target has the addresses (told to {announced} ports), {carried} frames carried over"
        );
        self.done("switch", text, begun);
        Ok(())
    }

    /// Sees that the guest's rings run at the target.
    fn verify(&mut self) -> Result<(), Failed> {
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
                    // It may be starting again.
                    Err(failed) => missing.push(failed.to_string()),
                }
            }
            if missing.is_empty() {
                let since = *first_seen.get_or_insert_with(Instant::now);
                if !silent || since.elapsed() > FIRST_FRAME {
                    self.done("verify", told.join("; "), begun);
                    return Ok(());
                }
            } else if begun.elapsed() > self.spec.verify_timeout {
                let text = format!("the guest is not well at the target: {}", missing.join("; "));
                return Err(Failed::new(text));
            }
            std::thread::sleep(POLL);
            self.renew()?;
        }
    }

    /// A QEMU that was started with -S waits to be told. One that does not answer is not asked
    /// again: whether the guest runs its rings say.
    fn keep_target_running(&mut self) {
        let Some(vmm) = &mut self.target_vmm else { return };
        let kept = vmm.status().and_then(|status| match status.as_str() {
            "paused" | "prelaunch" => vmm.go_on(),
            _ => Ok(()),
        });
        if kept.is_err_and(|error| !error.is_refusal()) {
            self.target_vmm = None;
        }
    }

    /// The guest is at the target: whatever fails now is told, and does not bring it back.
    fn finish(&mut self) {
        let begun = Instant::now();
        let mut left = Vec::new();
        for name in self.names() {
            // What came to the source in the moment of the change, if anything.
            left.extend(self.stage.carried.over(&self.source, &self.target, &name).err());
            if let Ok(status) = self.target.status(&name) {
                self.stage.carried.note_lost(self.target.name, &name, status.lost);
            }
            left.extend(self.target.step(&name, MoveStep::Finish).err());
        }
        if !self.spec.keep_source && self.vmm.quit().is_err() {
            left.push(Failed::new(
                "the source's QEMU is still there; end it, for its guest is elsewhere",
            ));
        }
        for name in self.names() {
            left.extend(self.source.step(&name, MoveStep::Finish).err());
        }
        if self.stage.without_vfs {
            let agent = self.spec.target_guest_agent.as_deref();
            let unnamed = || Failed::new(functions::BY_HAND);
            left.extend(
                agent.map_or_else(|| Some(unnamed()), |agent| functions::give(agent).err()),
            );
        }
        let text = match left.is_empty() {
            true => "the adapters are gone from the source".to_owned(),
            false => {
                let left: Vec<String> = left.iter().map(ToString::to_string).collect();
                self.report.error = Some(format!("the guest has moved, but: {}", left.join("; ")));
                left.join("; ")
            }
        };
        self.done("finish", text, begun);
    }

    /// Tells both daemons now and then that the mover lives; an error if it is not to go on. Once
    /// the guest may be at the target there is no way back, and a daemon that does not answer is
    /// starting again.
    fn renew(&mut self) -> Result<(), Failed> {
        let may_stop = self.stage.released.is_none();
        if self.spec.interrupted.load(Ordering::Relaxed) && may_stop {
            return Err(Failed::new("it was interrupted"));
        }
        if self.renewed.elapsed() < RENEWAL {
            return Ok(());
        }
        self.renewed = Instant::now();
        let at_target = self.stage.prepared.iter().map(|name| (&self.target, name));
        let at_source = self.stage.leaving.iter().map(|name| (&self.source, name));
        for (site, name) in at_target.chain(at_source) {
            let renewed = site.step(name, MoveStep::Renew);
            if may_stop {
                renewed?;
            }
        }
        Ok(())
    }
}
