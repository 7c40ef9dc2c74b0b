//! Brings the desired state into force: check, plan, data plane, store.
//!
//! Runs one operation at a time, under the caller's `&mut`. An apply is atomic: if the data plane
//! rejects it, nothing has changed; if the disk fails, the data plane is rolled back.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use engine::capture::{CaptureEnd, CaptureStream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

mod guests;
mod moves;

use super::error::ApiError;
use super::events::{Cause, EventKind, EventList, Events};
use crate::capture::{CAPTURES_MAX, CaptureError, CaptureRequest};
use crate::compile::{LiveLinks, compile};
use crate::fdb::FdbEntry;
use crate::guests::Overlay;
use crate::history::History;
use crate::plane::{Plane, PlaneError};
use crate::stats::Stats;
use crate::store::{Directory, Owner, Owners, Store};
use crate::trace::{TraceAnswer, TraceRequest};
use guests::Guests;
pub use guests::serve_guests;
use model::state::{
    Actual, Adapter, Allocation, ChangePlan, Facts, Problem, Problems, State, allocate, transition,
};
pub use moves::MoveStatus;
use moves::Transit;

/// Reads the counters.
pub type StatsSource = Box<dyn Fn() -> Result<Stats> + Send>;

/// The state, its store, and the data plane.
pub struct Manager {
    store: Store<Directory>,
    plane: Box<dyn Plane>,
    stats: StatsSource,
    history: History,
    events: Events,
    /// State in force at the last query.
    seen: Actual,
    /// Runs a hot restart.
    upgrader: Option<Upgrader>,
    /// `true` after a hot restart: nothing here is in force any more.
    replaced: bool,
    /// Captures that run.
    captures: Vec<CaptureEnd>,
    /// Guests' settings and their channels.
    guests: Guests,
    /// Migration data beyond the state, by the adapter's name.
    transits: BTreeMap<String, Transit>,
    /// Reason for read-only mode: the data plane could not be rolled back.
    broken: Option<String>,
    /// Warning for clients that make a change.
    warning: Option<String>,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let generation = self.store.record().generation;
        f.debug_struct("Manager").field("generation", &generation).finish_non_exhaustive()
    }
}

/// Order for a hot restart.
#[derive(Debug)]
pub struct UpgradeOrder {
    /// Program; `None`: the daemon's own executable.
    pub binary: Option<PathBuf>,
    /// User of the request, if known.
    pub user: Option<u32>,
    /// The generation in force.
    pub generation: u64,
    /// Recent events.
    pub events: EventList,
    /// Lock of the state directory.
    pub state_lock: OwnedFd,
}

/// Result of a hot restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Upgraded {
    /// The new process.
    pub pid: u32,
    /// Version of its program.
    pub version: String,
    /// Path of its program.
    pub binary: String,
    /// Time without a process serving frames, in microseconds: the sum of the next three.
    pub silent_us: u64,
    /// Time until the old process's lanes had released all rings, in microseconds.
    #[serde(default)]
    pub release_us: u64,
    /// Time until the final positions and tables were collected and sent, in microseconds.
    #[serde(default)]
    pub transfer_us: u64,
    /// Time until the new process had attached all rings, and was told to start, in microseconds.
    #[serde(default)]
    pub attach_us: u64,
    /// Total duration in milliseconds.
    pub total_ms: u64,
}

/// Runs a hot restart. After an error everything is as before.
pub type Upgrader = Box<dyn Fn(UpgradeOrder) -> Result<Upgraded, Problems> + Send>;

impl From<Manager> for Arc<Mutex<Manager>> {
    fn from(manager: Manager) -> Self {
        Arc::new(Mutex::new(manager))
    }
}

/// Result of an apply, or of its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Generation in force afterwards.
    pub generation: u64,
    /// The steps.
    pub plan: ChangePlan,
}

impl Manager {
    /// Opens the state directory and brings `plane`, which must be empty, to the stored state.
    /// First undoes an apply that a crash interrupted. With the state of a configuration file
    /// (`file`), a stored state of an older version of the file is not brought into force.
    ///
    /// # Errors
    /// The directory is unusable, its record is damaged, or the data plane rejects the stored
    /// state.
    pub fn open(
        directory: Directory,
        file: Option<&State>,
        mut plane: Box<dyn Plane>,
        stats: StatsSource,
    ) -> Result<Manager> {
        let (mut store, unfinished) = Store::open(directory)?;
        if let Some(file) = file {
            store.follow_file(file)?;
        }
        let events = Events::default();
        plane.record_in(events.clone());
        plane.recall(held(&store.record().owners));
        let attempted = unfinished.map(|unfinished| unfinished.attempted);
        let guests = Guests::stored(&mut store)?;
        let stored = &store.record().state;
        let from = attempted.clone().unwrap_or_default();
        let seen = plane.reconcile(&from, &guests.upon(stored));
        let seen = seen.context("the stored state cannot be brought into force")?;
        if attempted.is_some() {
            store.abandon()?;
            let text = "an interrupted apply was undone";
            events.add(EventKind::Undo, String::new(), text.into());
        }
        for text in store.set_aside() {
            tracing::warn!("{text}");
            events.add(EventKind::Undo, String::new(), text.to_owned());
        }
        let text = format!("the state of generation {} is in force", store.record().generation);
        events.add(EventKind::Start, String::new(), text);
        let mut manager = Manager {
            store,
            plane,
            stats,
            history: History::default(),
            events,
            seen,
            guests,
            upgrader: None,
            replaced: false,
            captures: Vec::new(),
            transits: BTreeMap::new(),
            broken: None,
            warning: None,
        };
        manager.note_owners();
        Ok(manager)
    }

    /// Sets a warning for clients that make a change.
    pub fn warn(&mut self, warning: String) {
        self.warning = Some(warning);
    }

    /// Warning for clients that make a change.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Sets the function for hot restarts.
    pub fn on_upgrade(&mut self, upgrader: Upgrader) {
        self.upgrader = Some(upgrader);
    }

    /// Hot-restarts the daemon, with the program `binary` if given; `user` makes the request.
    ///
    /// # Errors
    /// The hot restart failed; everything is as before.
    pub fn upgrade(
        &mut self,
        binary: Option<PathBuf>,
        user: Option<u32>,
    ) -> Result<Upgraded, ApiError> {
        let Some(upgrader) = &self.upgrader else {
            let problem = Problem::new("", (), "this daemon cannot be replaced", "");
            return Err(ApiError::NotReplaced(problem.into()));
        };
        if let Some(why) = &self.broken {
            return Err(ApiError::Broken(why.clone()));
        }
        // Parked frames are not handed over.
        for adapter in &self.state().adapters {
            let name = &adapter.name;
            let message = match self.plane.parked(name).frames {
                _ if adapter.is_on_the_way() => "has a guest that is migrating".to_owned(),
                0 => continue,
                frames => format!("has {frames} frames that wait for its guest"),
            };
            let problem = Problem::new("", (), message, "wait until that is over");
            return Err(ApiError::NotReplaced(problem.of(format!("adapter {name}")).into()));
        }
        let lock = self.store.files().lock().try_clone_to_owned();
        let state_lock = lock.map_err(|error| {
            let message = format!("the lock of the state directory cannot be handed over: {error}");
            ApiError::NotReplaced(Problem::new("", (), message, "").into())
        })?;
        let (generation, events) = (self.generation(), self.events.since(0));
        let done = upgrader(UpgradeOrder { binary, user, generation, events, state_lock });
        match &done {
            Ok(_) => {
                self.replaced = true;
                self.end_captures();
            }
            Err(why) => self.events.add(EventKind::Upgrade, String::new(), why.to_string()),
        }
        done.map_err(ApiError::NotReplaced)
    }

    /// `true` after a hot restart.
    pub fn is_replaced(&self) -> bool {
        self.replaced
    }

    /// Continues the events of the previous process. The state now in force causes no events.
    pub fn took_over(&mut self, before: EventList, text: String) {
        self.seen = self.plane.actual();
        self.events.go_on(before, text);
    }

    /// The desired state.
    pub fn state(&self) -> &State {
        &self.store.record().state
    }

    /// Generation of the desired state; each change increments it.
    pub fn generation(&self) -> u64 {
        self.store.record().generation
    }

    /// Owner of a VF, by `NIC/vfN`.
    pub fn owner(&self, vf: &str) -> Option<&Owner> {
        self.store.record().owners.of(vf)
    }

    /// Checks that a token is that of the VF's owner.
    ///
    /// # Errors
    /// The VF has another owner, or none.
    pub fn check_owner(&self, vf: &str, token: u64) -> Result<(), ApiError> {
        Ok(self.store.record().owners.check(vf, token)?)
    }

    /// The state in force. Stores the VFs' owners if they changed since the last query.
    pub fn actual(&mut self) -> Actual {
        let now = self.plane.actual();
        if now != self.seen {
            self.seen = now.clone();
            self.note_owners();
        }
        now
    }

    /// Events after number `since`.
    pub fn events(&self, since: u64) -> EventList {
        self.events.since(since)
    }

    /// Addresses that a switch knows, sorted.
    pub fn fdb(&self, switch: &str) -> Vec<FdbEntry> {
        let mut entries = self.plane.fdb(switch);
        entries.sort_unstable();
        entries
    }

    /// Traces frames that enter at a port.
    ///
    /// # Errors
    /// A frame is wrong, there is no such port, or no memory.
    pub fn trace(&self, request: &TraceRequest) -> Result<TraceAnswer, ApiError> {
        let frames = request.bytes()?;
        self.plane.trace(&request.port, &frames).map_err(|error| error.of(&request.port))
    }

    /// Begins a capture.
    ///
    /// # Errors
    /// The request is wrong, there is no such port, too many captures run, or no memory is left.
    pub fn capture(&mut self, request: &CaptureRequest) -> Result<CaptureStream, ApiError> {
        let spec = request.spec()?;
        self.captures.retain(CaptureEnd::is_held);
        if self.captures.len() >= CAPTURES_MAX {
            return Err(ApiError::TooManyCaptures);
        }
        let stream = self.plane.capture(spec).map_err(CaptureError::of_api)?;
        self.captures.push(stream.end_handle());
        Ok(stream)
    }

    /// Ends all captures; their clients get the rest. Returns `true` while one is not read to its
    /// end.
    pub(super) fn end_captures(&mut self) -> bool {
        self.captures.retain(CaptureEnd::is_held);
        self.captures.iter().for_each(CaptureEnd::end);
        !self.captures.is_empty()
    }

    /// The counters.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn stats(&self) -> Result<Stats, ApiError> {
        (self.stats)().map_err(ApiError::NoStats)
    }

    /// Adds the counters to the history; called each second.
    pub(super) fn add_to_history(&mut self) {
        // After a hot restart another process counts.
        if !self.replaced
            && let Ok(stats) = self.stats()
        {
            self.history.add(&stats);
        }
    }

    /// Totals of the last hour.
    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// Steps to a client's document, with the changes of adapters' paths.
    ///
    /// # Errors
    /// There is no transition from the state in force, or a card profile or a table rejects part of
    /// the document.
    pub fn plan(&mut self, document: &State) -> Result<ChangePlan, ApiError> {
        let to = self.with_moves(document)?;
        self.plan_of(&to)
    }

    /// Like [`plan`](Self::plan), for a complete state.
    pub(super) fn plan_of(&mut self, to: &State) -> Result<ChangePlan, ApiError> {
        let (plan, given) = self.steps(to)?;
        check_compiles(to, &given)?;
        Ok(plan)
    }

    /// Steps to a state, and the allocation there. Does not ask the data plane.
    fn steps(&mut self, to: &State) -> Result<(ChangePlan, Vec<Allocation>), ApiError> {
        // The next start must accept the stored state.
        to.check().map_err(ApiError::Wrong)?;
        transition(self.state(), to).map_err(ApiError::Impossible)?;
        let actual = self.actual();
        let then = allocate(to, &Facts::of(&actual));
        let plan = ChangePlan::between(self.state(), to).with_moves(&allocations(&actual), &then);
        Ok((plan, then))
    }

    /// Applies and stores a client's document; migrations continue. `expected` is the generation
    /// that the client knows.
    ///
    /// # Errors
    /// Each leaves everything unchanged, except [`ApiError::Broken`]: after it no more changes are
    /// made.
    pub fn apply(&mut self, document: &State, expected: Option<u64>) -> Result<Applied, ApiError> {
        self.expect(expected)?;
        let to = self.with_moves(document)?;
        self.bring(&to, None)
    }

    /// Applies the state of a configuration file, unless there is another stored state that a
    /// change has made.
    ///
    /// # Errors
    /// As of [`apply`](Self::apply).
    pub fn apply_file(&mut self, file: &State) -> Result<(), ApiError> {
        let record = self.store.record();
        if (record.generation == 0 || record.from_file) && record.state != *file {
            self.bring(file, None)?;
            self.store.mark_from_file()?;
        }
        Ok(())
    }

    /// Applies and stores `to`, including its migrations.
    ///
    /// # Errors
    /// As of [`apply`](Self::apply).
    pub(super) fn bring(&mut self, to: &State, expected: Option<u64>) -> Result<Applied, ApiError> {
        self.expect(expected)?;
        let (plan, given) = self.steps(to)?;
        if to == self.state() {
            self.plane.retry();
            return Ok(Applied { generation: self.generation(), plan });
        }
        if let Some(why) = &self.broken {
            return Err(ApiError::Broken(why.clone()));
        }
        let (guests, dropped) = self.guests_of(to);
        if !guests.is_empty() {
            // The state must also compile without the guests' settings: otherwise the data plane
            // could not drop them.
            check_compiles(to, &given)?;
        }
        let mut result = self.carry_out(to, guests);
        if let Err(ApiError::Refused(_)) = result {
            // A state that no data plane accepts is a mistake of the document.
            result = check_compiles(to, &given).and(result);
        }
        match &result {
            Ok(()) => {
                self.note_steps(&plan);
                self.note_dropped(dropped);
            }
            Err(ApiError::Wrong(_)) => {}
            Err(error) => {
                self.events.add(EventKind::Refused, String::new(), error.body().to_string());
            }
        }
        result.map(|()| Applied { generation: self.generation(), plan })
    }

    /// Checks the generation of the state.
    ///
    /// # Errors
    /// The state has changed.
    pub fn expect(&self, expected: Option<u64>) -> Result<(), ApiError> {
        let now = self.generation();
        match expected {
            Some(expected) if expected != now => Err(ApiError::Stale { now, expected }),
            _ => Ok(()),
        }
    }

    fn carry_out(&mut self, to: &State, guests: Overlay) -> Result<(), ApiError> {
        let (from, in_force) = (self.in_force(), guests.upon(to));
        let before = allocations(&self.plane.actual());
        let named = |error: PlaneError| PlaneError(error.0.named(&in_force.to_document()));
        let channels = self.guests.open(to).map_err(named)?;
        self.store.begin(to)?;
        let actual = match self.plane.reconcile(&from, &in_force) {
            Ok(actual) => actual,
            Err(refused) => {
                // A journal that stays makes the next start undo the apply, which is correct.
                let _ = self.store.abandon();
                return Err(named(refused).into());
            }
        };
        if let Err(error) = self.store.commit(to, &holders(to, &actual)) {
            if let Err(refused) = self.plane.reconcile(&in_force, &from) {
                let why =
                    format!("the state could not be stored, and the rollback failed: {refused}");
                self.broken = Some(why.clone());
                return Err(ApiError::Broken(why));
            }
            let _ = self.store.abandon();
            return Err(error.into());
        }
        self.events.paths(&before, &allocations(&actual), Cause::Operator);
        self.seen = actual;
        self.guests.replace(guests, channels);
        self.keep_guests();
        Ok(())
    }

    /// Records an event.
    pub(super) fn note(&mut self, kind: EventKind, subject: String, text: String) {
        self.events.add(kind, subject, text);
    }

    fn note_steps(&mut self, plan: &ChangePlan) {
        for step in plan.steps.iter().filter(|step| step.action != model::state::PlanAction::Move) {
            let subject = format!("{} {}", step.kind, step.name);
            let fields: Vec<&str> = step.changes.iter().map(|one| one.field.as_str()).collect();
            let text = format!("{} {}", step.action, fields.join(", "));
            self.events.add(EventKind::Step, subject, text.trim_end().to_owned());
        }
    }

    /// Stores the VFs' owners if they changed. A disk error becomes an event: the old records are
    /// the safe ones, and the next query retries.
    fn note_owners(&mut self) {
        let holders = holders(self.state(), &self.seen);
        if let Err(error) = self.store.assign(&holders) {
            self.events.add(EventKind::Refused, String::new(), error.to_string());
        }
    }
}

/// Checks a state without the data plane. Links change at any time, so errors that depend on them
/// show only on apply.
fn check_compiles(to: &State, given: &[Allocation]) -> Result<(), ApiError> {
    compile(to, given, &LiveLinks::default(), None).map(drop).map_err(ApiError::Wrong)
}

/// Allocation of each adapter.
fn allocations(actual: &Actual) -> Vec<Allocation> {
    actual.adapters.iter().map(Allocation::from).collect()
}

/// Holder of each VF: an adapter, or the operator for a VF with settings but without an adapter.
fn holders(state: &State, actual: &Actual) -> BTreeMap<String, String> {
    let mut holders = BTreeMap::new();
    for nic in &state.nics {
        let own = nic.vfs.iter().map(|vf| (vf_name(&nic.name, vf.index), String::new()));
        holders.extend(own);
    }
    let wanted: BTreeMap<&str, &Adapter> =
        state.adapters.iter().map(|adapter| (&*adapter.name, adapter)).collect();
    for adapter in &actual.adapters {
        let nic = wanted.get(&*adapter.name).and_then(|wanted| state.nic_of(wanted));
        if let (Some(nic), Some(vf)) = (nic, adapter.vf) {
            holders.insert(vf_name(&nic.name, vf), adapter.name.clone());
        }
    }
    holders
}

/// VF of each adapter, from the owners' records.
fn held(owners: &Owners) -> BTreeMap<String, u16> {
    let of_adapter = |(vf, owner): (&str, &Owner)| {
        let index = vf.rsplit_once("/vf")?.1.parse().ok()?;
        (!owner.holder.is_empty()).then(|| (owner.holder.clone(), index))
    };
    owners.all().filter_map(of_adapter).collect()
}

/// Name of a VF: `nic0/vf3`.
pub(super) fn vf_name(nic: &str, index: impl std::fmt::Display) -> String {
    format!("{nic}/vf{index}")
}
