//! A guest moves from one host to another, while frames flow.
//!
//! # Model
//! The mover is a program of its own (`shunt migrate`), a client of two daemons ([`Site`]) and of two QEMUs ([`Vmm`]).
//! What it does is a list of steps, and each can be undone until the guest runs at the target:
//! 1. **inspect**: both daemons, both versions, what the target would give, and what is in the way, such as enabled VFs.
//!    With an obstacle nothing is touched.
//! 2. **prepare**: the target makes each adapter, and holds its VF or says why there is none. Its addresses are not there.
//! 3. **connect** to the target's QEMU, which waits for the guest.
//! 4. **leave**: the source keeps frames from now on while rings do not run.
//! 5. **migrate**: QEMU copies memory. When it has stopped the guest it waits (`pre-switchover`), and then
//! 6. **switch**: the target has the addresses from now on, announces them and keeps what comes; the source has them no
//!    more, and gives what it kept. QEMU goes on.
//! 7. **verify**: the guest's rings run at the target.
//! 8. **finish**: the adapters are ordinary ones at the target and gone at the source.
//!
//! # When something fails
//! Until the guest runs at the target, all is undone backwards: the target's adapters go, what they kept goes back, the
//! source has its addresses again and announces them, and its guest runs on. When it is not certain that the guest is not at
//! the target, nothing is undone, for two of it would be worse than one that cannot be reached; the report says what to do.
//! A mover that dies leaves both daemons to what they see, see [`Manager::tick`](crate::api::Manager::tick).

mod plan;
mod roll_back;
mod site;
#[cfg(test)]
mod tests;
mod vmm;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::qmp::QmpError;
use serde::{Deserialize, Serialize};

use crate::api::Client;
use crate::state::{MoveRequest, MoveStep};
pub use plan::{Plan, Planned};
use site::Site;
pub use vmm::Inspected;
use vmm::{Progress, Vmm};

/// How long daemons hold a move without a word of the mover, in seconds; it gives one four times as often.
const HOLD_S: u32 = 60;
/// How often QEMU is asked where nothing happens.
const POLL: Duration = Duration::from_millis(100);
/// How long it is waited for a first frame there, which a silent guest never sends.
const FIRST_FRAME: Duration = Duration::from_secs(2);

/// What is to be moved, from where to where.
#[derive(Debug)]
pub struct Spec {
    /// The guest.
    pub vm: String,
    /// The daemon that it is on.
    pub source: Client,
    /// The daemon that it goes to.
    pub target: Client,
    /// QMP of the QEMU that it runs in.
    pub source_qmp: PathBuf,
    /// QMP of the QEMU that waits for it.
    pub target_qmp: PathBuf,
    /// Where that QEMU waits, as QEMU writes it.
    pub uri: String,
    /// The adapters; none named: all that the guest has.
    pub adapters: Vec<String>,
    /// Where an adapter's socket is on the target, if not in the same place.
    pub sockets: BTreeMap<String, String>,
    /// The target's switch, if it has another name.
    pub switch: Option<String>,
    /// The target's NIC, for adapters on no switch, if it has another name.
    pub nic: Option<String>,
    /// The most that QEMU sends, in bytes a second.
    pub bandwidth: Option<u64>,
    /// How long the guest may stand still by QEMU's estimate, in milliseconds.
    pub downtime_ms: Option<u64>,
    /// How long the migration may take; then it is given up.
    pub timeout: Duration,
    /// A command that starts the target's QEMU, once its sockets are there.
    pub start: Option<String>,
    /// How long the target's QEMU may take until it answers.
    pub start_timeout: Duration,
    /// How long the guest's rings may take to run at the target.
    pub verify_timeout: Duration,
    /// Whether the source's QEMU is left, with a guest that stands still.
    pub keep_source: bool,
    /// Set when the move is to be given up; once the guest may be at the target it is finished all the same.
    pub interrupted: Arc<AtomicBool>,
}

/// A flag that SIGINT and SIGTERM set, instead of ending this process in the middle of a move.
///
/// # Errors
/// If the system refuses the handler.
pub fn interrupted_by_signals() -> std::io::Result<Arc<AtomicBool>> {
    let flag = Arc::<AtomicBool>::default();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

/// Why a move, or a step of it, did not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// What was wrong, and what to do.
    text: String,
    /// Whether the user wrote something wrong, rather than the machine failing.
    pub is_mistake: bool,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failed {}

impl Failed {
    fn new(text: impl Into<String>) -> Failed {
        Failed { text: text.into(), is_mistake: false }
    }

    fn mistake(text: impl Into<String>) -> Failed {
        Failed { text: text.into(), is_mistake: true }
    }
}

impl From<QmpError> for Failed {
    fn from(error: QmpError) -> Failed {
        let cause = std::error::Error::source(&error);
        let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
        Failed::new(format!("{error}{cause}"))
    }
}

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The guest is at the target.
    Moved,
    /// It is at the source as before.
    RolledBack,
    /// Nobody can tell; the report says what to look at.
    Unclear,
}

/// A step that was done, or undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Its name.
    pub step: String,
    /// What was found or done.
    pub text: String,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// What became of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The move's name, which the daemons know it by.
    pub id: String,
    /// What was to be done.
    pub plan: Plan,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it did not end as it should.
    pub error: Option<String>,
    /// The steps, in their order.
    pub steps: Vec<Done>,
    /// How long the guest stood still, as QEMU says.
    pub downtime_ms: Option<u64>,
    /// How long it took to move its addresses, within that.
    pub switch_ms: Option<u64>,
    /// How long QEMU took.
    pub total_ms: Option<u64>,
    /// What QEMU sent, in bytes.
    pub ram_bytes: Option<u64>,
    /// Frames that waited at the source and went to the target by way of the mover.
    pub carried: u64,
    /// Frames that were dropped, for there was no room to keep them.
    pub lost: u64,
}

/// Says what a move would do, and what is in the way.
///
/// # Errors
/// A daemon or QEMU does not answer, or an adapter that was named is not there.
pub fn plan(spec: &Spec) -> Result<Plan, Failed> {
    let id = name(&spec.vm);
    let (source, target) = sites(spec, &id);
    let mut vmm = Vmm::connect(&spec.source_qmp)?;
    Ok(plan::inspect(spec, &source, &target, &mut vmm)?.0)
}

/// Moves a guest; `tell` hears of each step when it is done.
///
/// # Errors
/// As [`plan`], or there is an obstacle: nothing was touched. What fails later is in the report.
pub fn run(spec: &Spec, tell: &mut dyn FnMut(&Done)) -> Result<Report, Failed> {
    let id = name(&spec.vm);
    let (source, target) = sites(spec, &id);
    let begun = Instant::now();
    let mut vmm = Vmm::connect(&spec.source_qmp)?;
    let (plan, requests) = plan::inspect(spec, &source, &target, &mut vmm)?;
    if !plan.obstacles.is_empty() {
        return Err(Failed::mistake(plan.obstacles.join("\n")));
    }
    let report = Report {
        id: id.clone(),
        plan,
        outcome: Outcome::Moved,
        error: None,
        steps: Vec::new(),
        downtime_ms: None,
        switch_ms: None,
        total_ms: None,
        ram_bytes: None,
        carried: 0,
        lost: 0,
    };
    let mut mover = Mover {
        spec,
        source,
        target,
        vmm,
        target_vmm: None,
        starter: None,
        stage: Stage::default(),
        report,
        tell,
        renewed: Instant::now(),
    };
    let [here, there] = &mover.report.plan.versions;
    let text = format!("shunt {here} -> {there}, {}", mover.report.plan.to_string().trim_end());
    mover.done("inspect", text, begun);
    if let Err(failed) = mover.go(&requests) {
        mover.report.error = Some(failed.to_string());
        mover.roll_back();
    }
    Ok(mover.report)
}

fn sites<'a>(spec: &'a Spec, id: &'a str) -> (Site<'a>, Site<'a>) {
    let site = |client, name| Site { client, name, id, hold_s: HOLD_S };
    (site(&spec.source, "source"), site(&spec.target, "target"))
}

/// A name for the move that nobody else's has: of the guest, this process and the time.
fn name(vm: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let vm: String = vm.chars().filter(plain).take(24).collect();
    format!("m-{vm}-{}-{}", std::process::id(), now.unwrap_or_default().as_millis())
}

/// How far a move is, and so what is to be undone.
#[derive(Debug, Default)]
struct Stage {
    /// Adapters that the target has made.
    prepared: Vec<String>,
    /// Adapters that the source knows to be leaving.
    leaving: Vec<String>,
    /// Whether QEMU was told to migrate.
    begun: bool,
    /// Whether addresses were moved, if only some.
    switched: bool,
    /// Whether QEMU was told to go on, so that the guest may run at the target.
    released: bool,
    /// Whether QEMU says that it has.
    completed: bool,
    /// Frames of each adapter that were taken from the source and are not at the target.
    frames: BTreeMap<String, Vec<String>>,
}

/// A move that is being made.
struct Mover<'a> {
    spec: &'a Spec,
    source: Site<'a>,
    target: Site<'a>,
    /// The QEMU that the guest leaves.
    vmm: Vmm,
    /// The one that it goes to.
    target_vmm: Option<Vmm>,
    /// The command that started it; it is left alone.
    starter: Option<Child>,
    stage: Stage,
    report: Report,
    tell: &'a mut dyn FnMut(&Done),
    renewed: Instant,
}

impl Mover<'_> {
    fn done(&mut self, step: &str, text: impl Into<String>, begun: Instant) {
        let ms = begun.elapsed().as_millis() as u64;
        let done = Done { step: step.to_owned(), text: text.into(), ms };
        (self.tell)(&done);
        self.report.steps.push(done);
    }

    fn names(&self) -> Vec<String> {
        self.report.plan.adapters.iter().map(|adapter| adapter.name.clone()).collect()
    }

    fn go(&mut self, requests: &[MoveRequest]) -> Result<(), Failed> {
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
            let child = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).spawn();
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
            let progress = self.vmm.progress(POLL)?;
            match progress.status.as_str() {
                "pre-switchover" if !self.stage.released => self.switch()?,
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
            if begun.elapsed() > self.spec.timeout && !self.stage.released {
                let (after, status) = (self.spec.timeout.as_secs(), progress.status);
                return Err(Failed::new(format!(
                    "after {after} s QEMU's migration is still {status}; allow more with --bandwidth-mbps, --downtime-ms or --timeout"
                )));
            }
            self.renew()?;
        }
    }

    /// The guest stands still: its addresses go from the source to the target.
    fn switch(&mut self) -> Result<(), Failed> {
        let begun = Instant::now();
        self.stage.switched = true;
        let mut announced = 0;
        for name in self.names() {
            announced += self.target.step(&name, MoveStep::TakeOver)?.announced;
        }
        for name in self.names() {
            self.hand_over(&name)?;
        }
        self.stage.released = true;
        self.vmm.switch_over()?;
        self.report.switch_ms = Some(begun.elapsed().as_millis() as u64);
        let carried = self.report.carried;
        let text = format!(
            "the target has the addresses (told to {announced} ports), {carried} frames carried over"
        );
        self.done("switch", text, begun);
        Ok(())
    }

    /// Takes what waits at the source to the target; the source has the address no more.
    fn hand_over(&mut self, name: &str) -> Result<(), Failed> {
        let handed = self.source.step(name, MoveStep::HandOver)?;
        self.report.lost += handed.lost;
        let frames = self.stage.frames.entry(name.to_owned()).or_default();
        frames.extend(handed.frames);
        self.target.frames(name, frames)?;
        self.report.carried += frames.len() as u64;
        frames.clear();
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
            self.keep_target_running()?;
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

    /// A QEMU that was started with -S waits to be told.
    fn keep_target_running(&mut self) -> Result<(), Failed> {
        let Some(vmm) = &mut self.target_vmm else { return Ok(()) };
        if matches!(vmm.status()?.as_str(), "paused" | "prelaunch") {
            vmm.go_on()?;
        }
        Ok(())
    }

    /// The guest is at the target: whatever fails now is told, and does not bring it back.
    fn finish(&mut self) {
        let begun = Instant::now();
        let mut left = Vec::new();
        for name in self.names() {
            // What came to the source in the moment of the change, if anything.
            left.extend(self.hand_over(&name).err());
            if let Ok(status) = self.target.status(&name) {
                self.report.lost += status.lost;
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

    /// Tells both daemons now and then that the mover lives; an error if it is not to go on.
    fn renew(&mut self) -> Result<(), Failed> {
        if self.spec.interrupted.load(Ordering::Relaxed) && !self.stage.released {
            return Err(Failed::new("it was interrupted"));
        }
        if self.renewed.elapsed() < Duration::from_secs(u64::from(HOLD_S) / 4) {
            return Ok(());
        }
        self.renewed = Instant::now();
        for name in self.stage.prepared.clone() {
            self.target.step(&name, MoveStep::Renew)?;
        }
        for name in self.stage.leaving.clone() {
            self.source.step(&name, MoveStep::Renew)?;
        }
        Ok(())
    }
}
