//! From a wish to the state in force: checked, planned, carried out by the data plane, stored.
//!
//! One at a time, under the caller's `&mut`. An apply is whole or has not happened: if the data
//! plane refuses nothing has changed, and if the disk does the data plane is brought back.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

mod guests;

use super::events::{Cause, EventKind, EventList, Events};
use super::fault::Fault;
use super::moves::Transit;
use crate::compile::{Live, compile};
use crate::guests::Overlay;
use crate::plane::Plane;
use crate::stats::Stats;
use crate::store::{Directory, Owner, Owners, Store};
use guests::Guests;
pub use guests::serve_guests;
use model::state::{Actual, Adapter, Allocation, Facts, Plan, State, allocate, transition};

/// Where counters come from.
pub type StatsSource = Box<dyn Fn() -> Result<Stats> + Send>;

/// The state, its store, and the data plane.
pub struct Manager {
    pub(super) store: Store<Directory>,
    pub(super) plane: Box<dyn Plane>,
    stats: StatsSource,
    events: Events,
    /// What was in force when somebody last looked.
    seen: Actual,
    /// Who has another process take over.
    upgrader: Option<Upgrader>,
    /// Whether one has: nothing here is in force any more.
    replaced: bool,
    /// What guests have set, and the channels by which they do.
    guests: Guests,
    /// What is known of moves beyond the state, by the adapter's name.
    pub(super) transits: BTreeMap<String, Transit>,
    /// Why nothing more is changed, if the data plane could not be brought back.
    broken: Option<String>,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let generation = self.store.record().generation;
        f.debug_struct("Manager").field("generation", &generation).finish_non_exhaustive()
    }
}

/// An order to have another process take over.
#[derive(Debug)]
pub struct UpgradeOrder {
    /// The program; `None` for the one that the daemon was started from.
    pub binary: Option<PathBuf>,
    /// The user who asks, if it is known.
    pub user: Option<u32>,
    /// The generation in force.
    pub generation: u64,
    /// What happened lately.
    pub events: EventList,
    /// What holds the state directory.
    pub state_lock: OwnedFd,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Upgraded {
    /// The process that serves from now on.
    pub pid: u32,
    /// Its program's version.
    pub version: String,
    /// Its program.
    pub binary: String,
    /// For how many microseconds neither process served frames.
    pub silent_us: u64,
    /// How many milliseconds it took all together.
    pub total_ms: u64,
}

/// Who carries such an order out: an error says why not, and that everything is as before.
pub type Upgrader = Box<dyn Fn(UpgradeOrder) -> Result<Upgraded, String> + Send>;

impl From<Manager> for Arc<Mutex<Manager>> {
    fn from(manager: Manager) -> Self {
        Arc::new(Mutex::new(manager))
    }
}

/// What an apply did, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The generation of the state in force afterwards.
    pub generation: u64,
    /// The steps.
    pub plan: Plan,
}

impl Manager {
    /// Opens the state directory and brings `plane`, on which nothing is in force, to the stored
    /// state. What a crash interrupted is undone first.
    ///
    /// # Errors
    /// The directory cannot be used, its record is damaged, or the data plane refuses what is
    /// stored.
    pub fn open(
        directory: Directory,
        mut plane: Box<dyn Plane>,
        stats: StatsSource,
    ) -> Result<Manager> {
        let (mut store, unfinished) = Store::open(directory)?;
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
            let text = "an apply that was interrupted did not happen; its steps were undone";
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
            events,
            seen,
            guests,
            upgrader: None,
            replaced: false,
            transits: BTreeMap::new(),
            broken: None,
        };
        manager.note_owners();
        Ok(manager)
    }

    /// Says who has another process take over.
    pub fn on_upgrade(&mut self, upgrader: Upgrader) {
        self.upgrader = Some(upgrader);
    }

    /// Has another process take over, of the program `binary` if one is named; `user` is who asks.
    ///
    /// # Errors
    /// It did not; everything is as before.
    pub fn upgrade(
        &mut self,
        binary: Option<PathBuf>,
        user: Option<u32>,
    ) -> Result<Upgraded, Fault> {
        let Some(upgrader) = &self.upgrader else {
            return Err(Fault::NotReplaced("this daemon cannot be replaced".to_owned()));
        };
        if let Some(why) = &self.broken {
            return Err(Fault::Broken(why.clone()));
        }
        // Frames that wait for a guest are not handed over.
        for adapter in &self.state().adapters {
            let name = &adapter.name;
            let text = match self.plane.kept(name).frames {
                _ if adapter.is_on_the_way() => {
                    format!("the guest of adapter {name} is being moved")
                }
                0 => continue,
                frames => format!("{frames} frames wait for the guest of adapter {name}"),
            };
            return Err(Fault::NotReplaced(format!("{text}; wait for that")));
        }
        let lock = self.store.files().lock().try_clone_to_owned();
        let state_lock = lock.map_err(|error| Fault::NotReplaced(error.to_string()))?;
        let (generation, events) = (self.generation(), self.events.since(0));
        let done = upgrader(UpgradeOrder { binary, user, generation, events, state_lock });
        match &done {
            Ok(_) => self.replaced = true,
            Err(why) => self.events.add(EventKind::Upgrade, String::new(), why.clone()),
        }
        done.map_err(Fault::NotReplaced)
    }

    /// Whether another process has taken over.
    pub fn is_replaced(&self) -> bool {
        self.replaced
    }

    /// Goes on where the process before was: events go on behind its, and what is in force now is
    /// no news.
    pub fn took_over(&mut self, before: EventList, text: String) {
        self.seen = self.plane.actual();
        self.events.go_on(before, text);
    }

    /// The state that shall be.
    pub fn state(&self) -> &State {
        &self.store.record().state
    }

    /// Its generation, which grows with each change.
    pub fn generation(&self) -> u64 {
        self.store.record().generation
    }

    /// Who has a VF, by `NIC/vfN`.
    pub fn owner(&self, vf: &str) -> Option<&Owner> {
        self.store.record().owners.of(vf)
    }

    /// Checks that a token is that of the VF's owner.
    ///
    /// # Errors
    /// The VF has another owner, or none.
    pub fn check_owner(&self, vf: &str, token: u64) -> Result<(), Fault> {
        Ok(self.store.record().owners.check(vf, token)?)
    }

    /// What is in force. Stores who has which VF, if that has changed since somebody last looked.
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

    /// What was counted.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn stats(&self) -> Result<Stats, Fault> {
        (self.stats)().map_err(Fault::NoStats)
    }

    /// The steps that lead to a client's document, with the adapters that they move.
    ///
    /// # Errors
    /// The state in force cannot become that, or the profile of a NIC or a table refuses part of
    /// it.
    pub fn plan(&mut self, document: &State) -> Result<Plan, Fault> {
        let to = self.with_moves(document)?;
        self.plan_of(&to)
    }

    /// As [`plan`](Self::plan), of a state that says all.
    pub(super) fn plan_of(&mut self, to: &State) -> Result<Plan, Fault> {
        let (plan, given) = self.steps(to)?;
        check_compiles(to, &given)?;
        Ok(plan)
    }

    /// The steps that lead to a state, and what each adapter then has. The data plane is not asked
    /// whether it can do that.
    fn steps(&mut self, to: &State) -> Result<(Plan, Vec<Allocation>), Fault> {
        // However it was made: what is stored must be what the next start accepts.
        to.check().map_err(Fault::Wrong)?;
        transition(self.state(), to).map_err(Fault::Impossible)?;
        let actual = self.actual();
        let then = allocate(to, &Facts::of(&actual));
        let plan = Plan::between(self.state(), to).with_moves(&allocations(&actual), &then);
        Ok((plan, then))
    }

    /// Brings a client's document into force and stores it; moves of guests go on as they are.
    /// `expected` is the generation that the client knows, if it says.
    ///
    /// # Errors
    /// Each leaves everything as it was; [`Fault::Broken`] is the exception, after which nothing is
    /// changed any more.
    pub fn apply(&mut self, document: &State, expected: Option<u64>) -> Result<Applied, Fault> {
        self.expect(expected)?;
        let to = self.with_moves(document)?;
        self.bring(&to, None)
    }

    /// Brings `to`, which says of moves what shall be, into force and stores it.
    ///
    /// # Errors
    /// As of [`apply`](Self::apply).
    pub(super) fn bring(&mut self, to: &State, expected: Option<u64>) -> Result<Applied, Fault> {
        self.expect(expected)?;
        let (plan, given) = self.steps(to)?;
        if to == self.state() {
            return Ok(Applied { generation: self.generation(), plan });
        }
        if let Some(why) = &self.broken {
            return Err(Fault::Broken(why.clone()));
        }
        let (guests, dropped) = self.guests_of(to);
        if !guests.is_empty() {
            // The state has to do without them, too. Else the data plane compiles no other one.
            check_compiles(to, &given)?;
        }
        let mut result = self.carry_out(to, guests);
        if let Err(Fault::Refused(_)) = result {
            // What no data plane could do is a mistake of the document.
            result = check_compiles(to, &given).and(result);
        }
        match &result {
            Ok(()) => {
                self.note_steps(&plan);
                self.note_dropped(dropped);
            }
            Err(Fault::Wrong(_)) => {}
            Err(fault) => self.events.add(EventKind::Refused, String::new(), fault.to_string()),
        }
        result.map(|()| Applied { generation: self.generation(), plan })
    }

    /// Checks that the state is of that generation.
    ///
    /// # Errors
    /// Somebody has changed it.
    pub fn expect(&self, expected: Option<u64>) -> Result<(), Fault> {
        let now = self.generation();
        match expected {
            Some(expected) if expected != now => Err(Fault::Stale { now, expected }),
            _ => Ok(()),
        }
    }

    fn carry_out(&mut self, to: &State, guests: Overlay) -> Result<(), Fault> {
        let (from, in_force) = (self.in_force(), guests.upon(to));
        let before = allocations(&self.plane.actual());
        let channels = self.guests.open(to)?;
        self.store.begin(to)?;
        let actual = match self.plane.reconcile(&from, &in_force) {
            Ok(actual) => actual,
            Err(refused) => {
                // A journal that stays tells the next start of an apply that did not happen, which
                // is true.
                let _ = self.store.abandon();
                return Err(refused.into());
            }
        };
        if let Err(error) = self.store.commit(to, &holders(to, &actual)) {
            if let Err(refused) = self.plane.reconcile(&in_force, &from) {
                let why = format!(
                    "the state could not be stored, and the old one not be brought back: {refused}"
                );
                self.broken = Some(why.clone());
                return Err(Fault::Broken(why));
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

    /// Notes an event.
    pub(super) fn note(&mut self, kind: EventKind, subject: String, text: String) {
        self.events.add(kind, subject, text);
    }

    fn note_steps(&mut self, plan: &Plan) {
        for step in plan.steps.iter().filter(|step| step.action != model::state::Action::Move) {
            let subject = format!("{} {}", step.kind, step.name);
            let fields: Vec<&str> = step.changes.iter().map(|one| one.field.as_str()).collect();
            let text = format!("{} {}", step.action, fields.join(", "));
            self.events.add(EventKind::Step, subject, text.trim_end().to_owned());
        }
    }

    /// Stores who has which VF, if that has changed. A disk that refuses is told as an event: the
    /// records of old are the careful ones, and the next look tries again.
    fn note_owners(&mut self) {
        let holders = holders(self.state(), &self.seen);
        if let Err(error) = self.store.assign(&holders) {
            self.events.add(EventKind::Refused, String::new(), error.to_string());
        }
    }
}

/// Checks a state without the data plane. Links come and go, so what depends on them shows only
/// when it is done.
fn check_compiles(to: &State, given: &[Allocation]) -> Result<(), Fault> {
    compile(to, given, &Live::default(), None).map(drop).map_err(Fault::Wrong)
}

/// What each adapter has.
fn allocations(actual: &Actual) -> Vec<Allocation> {
    actual.adapters.iter().map(Allocation::from).collect()
}

/// Who has which VF: the adapters that are on one, and the operator where a VF has settings and no
/// adapter.
fn holders(state: &State, actual: &Actual) -> BTreeMap<String, String> {
    let mut holders = BTreeMap::new();
    for nic in &state.nics {
        let own = nic.vfs.iter().map(|vf| (vf_name(&nic.name, vf.index), String::new()));
        holders.extend(own);
    }
    let wished: BTreeMap<&str, &Adapter> =
        state.adapters.iter().map(|adapter| (&*adapter.name, adapter)).collect();
    for adapter in &actual.adapters {
        let nic = wished.get(&*adapter.name).and_then(|wished| state.nic_of(wished));
        if let (Some(nic), Some(vf)) = (nic, adapter.vf) {
            holders.insert(vf_name(&nic.name, vf), adapter.name.clone());
        }
    }
    holders
}

/// Which VF each adapter had, by the records of owners.
fn held(owners: &Owners) -> BTreeMap<String, u16> {
    let of_adapter = |(vf, owner): (&str, &Owner)| {
        let index = vf.rsplit_once("/vf")?.1.parse().ok()?;
        (!owner.holder.is_empty()).then(|| (owner.holder.clone(), index))
    };
    owners.all().filter_map(of_adapter).collect()
}

/// What a VF is called: `nic0/vf3`.
pub(super) fn vf_name(nic: &str, index: impl std::fmt::Display) -> String {
    format!("{nic}/vf{index}")
}
