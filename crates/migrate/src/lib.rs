//! A guest moves from one host to another, while frames flow.
//!
//! # Model
//! The mover is a program of its own (`shunt migrate`), a client of two daemons ([`site::Site`])
//! and of two QEMUs ([`Vmm`]). What it does is a list of steps, and each can be undone until the
//! guest runs at the target:
//! 1. **inspect**: both daemons, both versions, what the target would give, and what is in the way,
//!    such as enabled VFs. With an obstacle nothing is touched.
//! 2. **prepare**: the target makes each adapter, and holds its VF or says why there is none. Its
//!    addresses are not there.
//! 3. **connect** to the target's QEMU, which waits for the guest.
//! 4. **leave**: the source keeps frames from now on while rings do not run.
//! 5. **migrate**: QEMU copies memory. When it has stopped the guest it waits (`pre-switchover`),
//!    and then
//! 6. **switch**: the target has the addresses from now on, announces them and keeps what comes;
//!    the source has them no more, and gives what it kept. QEMU goes on.
//! 7. **verify**: the guest's rings run at the target.
//! 8. **finish**: the adapters are ordinary ones at the target and gone at the source.
//!
//! # When something fails
//! Until the guest runs at the target, all is undone backwards: the target's adapters go, what they
//! kept goes back, the source has its addresses again and announces them, and its guest runs on.
//! When it is not certain that the guest is not at the target, nothing is undone, for two of it
//! would be worse than one that cannot be reached; the report says what to do. A mover that dies
//! leaves both daemons to what they see, see [`Manager::tick`](api::Manager::tick), and the guest
//! standing still if it had not let it go: QEMU waits without end. [`abort`] and [`finish`] end
//! such a move.

mod carry;
mod end;
mod functions;
mod inspected;
mod mover;
mod obstacles;
mod plan;
mod roll_back;
mod site;
#[cfg(test)]
mod tests;
mod vmm;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use api::Client;
use api::clock::unix_ms;
use host::qmp::QmpError;
use serde::{Deserialize, Serialize};

pub use end::{Ended, Ending, abort, finish};
pub use inspected::Inspected;
use mover::{Mover, Stage};
pub use plan::{Plan, Planned};
use vmm::Vmm;

/// How long daemons hold a move without a word of the mover, in seconds; it gives one four times as
/// often.
const HOLD_S: u32 = 60;

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
    /// The guest's agent at the source, to take VFs away that the guest has enabled, if it shall.
    pub guest_agent: Option<PathBuf>,
    /// The same at the target, to give them back.
    pub target_guest_agent: Option<PathBuf>,
    /// Set when the move is to be given up; once the guest may be at the target it is finished all
    /// the same.
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
        Failed::new(vmm::printable(&format!("{error}{cause}")))
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
    let (source, target) = site::both(&spec.source, &spec.target, &id);
    let mut vmm = Vmm::connect(&spec.source_qmp)?;
    Ok(plan::inspect(spec, &source, &target, &mut vmm)?.0)
}

/// Moves a guest; `tell` hears of each step when it is done.
///
/// # Errors
/// As [`plan`], or there is an obstacle: nothing was touched. What fails later is in the report.
pub fn run(spec: &Spec, tell: &mut dyn FnMut(&Done)) -> Result<Report, Failed> {
    let id = name(&spec.vm);
    let (source, target) = site::both(&spec.source, &spec.target, &id);
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
    if let (Some(agent), false) = (&spec.guest_agent, mover.report.plan.guest.vfs.is_empty()) {
        let begun = Instant::now();
        functions::take(agent, &mut mover.vmm)?;
        mover.stage.without_vfs = true;
        mover.done("functions", "the guest has taken its VFs away for the time of the move", begun);
    }
    if let Err(failed) = mover.go(&requests) {
        mover.report.error = Some(failed.to_string());
        mover.roll_back();
    }
    (mover.report.carried, mover.report.lost) =
        (mover.stage.carried.frames, mover.stage.carried.lost);
    Ok(mover.report)
}

/// A name for the move that nobody else's has: of the guest, this process and the time.
fn name(vm: &str) -> String {
    format!("m-{}-{}-{}", plain(vm), std::process::id(), unix_ms())
}

/// Whether a move has such a name, for this guest.
fn is_of(id: &str, vm: &str) -> bool {
    let mut parts = id.rsplitn(3, '-');
    let mut is_number = || parts.next().is_some_and(|part| part.parse::<u128>().is_ok());
    is_number() && is_number() && parts.next() == Some(&format!("m-{}", plain(vm)))
}

/// What of a guest's name is in its moves'.
fn plain(vm: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    vm.chars().filter(plain).take(24).collect()
}
