//! Moves of guests from one host to another, as one of the two daemons sees them.
//!
//! # Model
//! A move is a field of the adapter ([`Moving`]), and each step is one change of the state: it is stored as every change
//! is, so a daemon that dies in between has done it or not. Steps say which move they are of, and are refused in a phase
//! where they make no sense; the same step again is none.
//!
//! # When the mover is gone
//! After `hold_s` without a step the move is given up. Where the guest's rings run, the adapter is one like others. Where
//! they do not, one that was to arrive goes, one that was to leave stays; one that has left stays so, until it is known
//! from its rings that the guest is here after all ([`Manager::tick`]).

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::events::EventKind;
use super::fault::Fault;
use super::manager::Manager;
use crate::state::{
    Adapter, Allocation, AttachmentKind, Facts, MoveRequest, MoveStep, Moving, PathInForce, Phase,
    Problem, Problems, Reason, State, VERSION, allocate,
};

/// How a move stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveStatus {
    /// The version of the document's form.
    pub version: u32,
    /// The adapter.
    pub adapter: String,
    /// The move; none once it is over.
    pub id: Option<String>,
    /// How far it is.
    pub phase: Option<Phase>,
    /// When it counts as given up, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// The path that the adapter has, or has once its guest is here.
    pub path: PathInForce,
    /// The VF that it holds.
    pub vf: Option<u16>,
    /// The queue that it holds.
    pub queue: Option<u16>,
    /// Why it has not the wanted path; `Supported` if it has.
    pub reason: Reason,
    /// Whether its guest runs here.
    pub connected: bool,
    /// Frames that wait for it here.
    pub kept: u64,
    /// Frames that were dropped, for there was no room to keep them.
    pub lost: u64,
    /// Frames that its guest has received here, while it moves.
    pub received: u64,
    /// Frames that its guest has sent here, while it moves.
    pub sent: u64,
    /// How many ports were told that its addresses are here, by this step.
    pub announced: u64,
    /// After `hand-over`, and after `abort` at the target: the frames that were kept for it, each as hexadecimal digits.
    pub frames: Vec<String>,
}

/// What a step found and did, beyond the state.
#[derive(Default)]
struct Done {
    announced: u64,
    frames: Vec<Vec<u8>>,
}

impl Manager {
    /// How the move of an adapter stands.
    ///
    /// # Errors
    /// There is no such adapter.
    pub fn move_status(&mut self, name: &str) -> Result<MoveStatus, Fault> {
        let mut state = self.state().clone();
        let at = state.adapters.iter().position(|adapter| adapter.name == name);
        let at = at.ok_or_else(|| absent(name))?;
        let moving = state.adapters[at].moving.clone();
        // What it gets once it is here: the same question with another phase.
        if let Some(moving) = state.adapters[at].moving.as_mut() {
            moving.phase = Phase::Arrived;
        }
        let actual = self.actual();
        let given = allocate(&state, &Facts::of(&actual)).swap_remove(at);
        let in_force = actual.adapters.iter().find(|adapter| adapter.name == name);
        let kept = self.plane.kept(name);
        Ok(MoveStatus {
            version: VERSION,
            adapter: name.to_owned(),
            id: moving.as_ref().map(|moving| moving.id.clone()),
            phase: moving.as_ref().map(|moving| moving.phase),
            expires_ms: moving.map(|moving| moving.expires_ms),
            path: given.path,
            vf: given.vf,
            queue: given.queue,
            reason: given.reason,
            connected: in_force.is_some_and(|adapter| adapter.connected),
            kept: kept.frames,
            lost: kept.lost,
            received: kept.received,
            sent: kept.sent,
            announced: 0,
            frames: Vec::new(),
        })
    }

    /// Does a step of a move. `expected` is the generation that the client knows, if it says.
    ///
    /// # Errors
    /// The step makes no sense now, is of another move, or leads to a state that is refused; nothing has changed then.
    pub fn move_step(
        &mut self,
        name: &str,
        request: MoveRequest,
        expected: Option<u64>,
    ) -> Result<MoveStatus, Fault> {
        self.expect(expected)?;
        let (step, id) = (request.step, request.id.clone());
        let moving = self.state().adapter(name).map(|adapter| adapter.moving.clone());
        match &moving {
            Some(Some(moving)) if moving.id != id => {
                let error = format!("{name} is being moved by {}", moving.id);
                return Err(impossible("id", &id, error, "wait for that, or abort it by its id"));
            }
            None if step != MoveStep::Arrive => return Err(absent(name)),
            _ => {}
        }
        let phase = moving.flatten().map(|moving| moving.phase);
        let done = self.step(name, phase, request, expected)?;
        let mut status = match self.move_status(name) {
            Ok(status) => status,
            // It went with the step.
            Err(_) => gone(name),
        };
        status.announced = done.announced;
        status.frames = done.frames.iter().map(|frame| hex(frame)).collect();
        Ok(status)
    }

    fn step(
        &mut self,
        name: &str,
        phase: Option<Phase>,
        request: MoveRequest,
        expected: Option<u64>,
    ) -> Result<Done, Fault> {
        use MoveStep as Is;
        use Phase::{Arrived, Arriving, Leaving, Left};
        let next = |phase: Phase| Moving {
            id: request.id.clone(),
            phase,
            expires_ms: now_ms() + u64::from(request.hold_s) * 1000,
        };
        let mut done = Done::default();
        let (asked, text) = (request.step, format!("{} (move {})", request.step, request.id));
        match (asked, phase) {
            (Is::Leave, None | Some(Leaving)) => {
                self.set_move(name, Some(next(Leaving)), expected)?;
            }
            (Is::Arrive | Is::Renew, Some(Arriving)) => {
                self.set_move(name, Some(next(Arriving)), expected)?;
            }
            (Is::Renew, Some(phase)) => self.set_move(name, Some(next(phase)), expected)?,
            (Is::Arrive, None) if self.state().adapter(name).is_none() => {
                let moving = next(Arriving);
                let (to, _) = self.arrival(name, request, moving)?;
                self.apply(&to, expected)?;
            }
            (Is::TakeOver, Some(Arriving)) => {
                self.set_move(name, Some(next(Arrived)), expected)?;
                done.announced = self.plane.announce(name) as u64;
            }
            (Is::TakeOver, Some(Arrived)) => {}
            (Is::HandOver, Some(Leaving)) => {
                if self.is_connected(name) {
                    let error = format!("the guest of {name} runs here");
                    return Err(impossible("step", "hand-over", error, "stop it first"));
                }
                self.set_move(name, Some(next(Left)), expected)?;
                done.frames = self.plane.take_kept(name);
            }
            (Is::HandOver, Some(Left)) => done.frames = self.plane.take_kept(name),
            (Is::Frames, Some(_)) => {
                self.plane.put_kept(name, whole(&request.frames)?);
            }
            (Is::Finish, Some(Arrived)) | (Is::Abort, Some(Leaving)) => {
                self.set_move(name, None, expected)?;
            }
            (Is::Abort, Some(Left)) => {
                self.set_move(name, None, expected)?;
                done.announced = self.plane.announce(name) as u64;
            }
            (Is::Abort, None) => {} // it is over
            (Is::Abort, Some(Arrived)) => {
                // First its addresses go, so that nothing comes after what is taken.
                self.set_move(name, Some(next(Arriving)), expected)?;
                done.frames = self.plane.take_kept(name);
                let to = without(self.state(), name);
                self.apply(&to, None)?;
            }
            (Is::Finish, Some(Left)) | (Is::Abort, Some(Arriving)) => {
                let to = without(self.state(), name);
                self.apply(&to, expected)?;
            }
            (step, phase) => {
                let now = phase.map_or("not being moved".to_owned(), |phase| phase.to_string());
                let error = format!("makes no sense while {name} is {now}");
                return Err(impossible("step", &step.to_string(), error, "see docs/api.md"));
            }
        }
        if asked != Is::Renew {
            self.note(EventKind::Move, format!("adapter {name}"), text);
        }
        Ok(done)
    }

    /// What an adapter would get here; nothing is changed.
    ///
    /// # Errors
    /// As of the step `arrive`.
    pub fn move_preview(
        &mut self,
        name: &str,
        request: MoveRequest,
        expected: Option<u64>,
    ) -> Result<MoveStatus, Fault> {
        self.expect(expected)?;
        if request.step != MoveStep::Arrive {
            let error = "?dry_run=true is for the step arrive".to_owned();
            return Err(Fault::BadRequest { error, allowed: "leave it out".into() });
        }
        if self.state().adapter(name).is_some() {
            let error = format!("there is an adapter {name} here already");
            return Err(impossible("adapter.name", name, error, "remove it, or rename one"));
        }
        let moving = Moving { id: request.id.clone(), phase: Phase::Arriving, expires_ms: 0 };
        let (_, given) = self.arrival(name, request, moving)?;
        let Allocation { path, vf, queue, reason, .. } = given;
        Ok(MoveStatus { path, vf, queue, reason, ..gone(name) })
    }

    /// The state with an adapter that arrives, and what it gets once its guest is here.
    fn arrival(
        &mut self,
        name: &str,
        request: MoveRequest,
        moving: Moving,
    ) -> Result<(State, Allocation), Fault> {
        let Some(adapter) = request.adapter else {
            return Err(wrong("adapter", Value::Null, "is missing", "write the adapter"));
        };
        check(name, &adapter)?;
        let with = |phase: Phase| {
            let mut to = self.state().clone();
            let moving = Moving { phase, ..moving.clone() };
            to.adapters.push(Adapter { moving: Some(moving), ..adapter.clone() });
            let mut switches = to.switches.iter_mut();
            let its = switches.find(|switch| Some(&switch.name) == adapter.switch.as_ref());
            if let Some(switch) = its {
                switch.ports.retain(|port| port.adapter != name);
                switch.ports.extend(request.port.clone());
                switch.statics.retain(|entry| entry.port != name);
                switch.statics.extend(request.statics.clone());
            }
            State::parse(&to.to_document()).map_err(Fault::Wrong)
        };
        let (to, then) = (with(Phase::Arriving)?, with(Phase::Arrived)?);
        self.plan(&then)?;
        let given = allocate(&then, &Facts::of(&self.actual()));
        let given =
            given.into_iter().find(|one| one.adapter == name).ok_or_else(|| absent(name))?;
        if given.path == PathInForce::None {
            let (code, text) = (given.reason, given.reason.text());
            let error = format!("would be connected to nothing ({code}): {text}");
            let allowed = "free a VF, or put it on a switch, which is a path that there is always";
            return Err(impossible("adapter", name, error, allowed));
        }
        Ok((to, given))
    }

    fn set_move(
        &mut self,
        name: &str,
        moving: Option<Moving>,
        expected: Option<u64>,
    ) -> Result<(), Fault> {
        let mut to = self.state().clone();
        let adapter = to.adapters.iter_mut().find(|adapter| adapter.name == name);
        adapter.ok_or_else(|| absent(name))?.moving = moving;
        self.apply(&to, expected).map(drop)
    }

    fn is_connected(&mut self, name: &str) -> bool {
        let actual = self.actual();
        actual.adapters.iter().any(|adapter| adapter.name == name && adapter.connected)
    }

    /// Ends moves that were given up. `now_ms` is in milliseconds since 1970.
    pub fn tick(&mut self, now_ms: u64) {
        if self.is_replaced() {
            return; // another daemon has the state
        }
        let moving = self.state().adapters.iter().filter_map(|adapter| {
            let moving = adapter.moving.as_ref()?;
            Some((adapter.name.clone(), moving.phase, moving.expires_ms <= now_ms))
        });
        for (name, phase, expired) in moving.collect::<Vec<_>>() {
            let connected = self.is_connected(&name);
            let (changed, text) = match (phase, expired, connected) {
                (Phase::Left, _, true) => {
                    (self.set_move(&name, None, None), "its guest runs here after all")
                }
                (Phase::Leaving, true, _) => {
                    (self.set_move(&name, None, None), "its move was given up: it stays here")
                }
                (Phase::Arriving | Phase::Arrived, true, true) => {
                    (self.set_move(&name, None, None), "its mover is gone, its guest is here")
                }
                (Phase::Arriving | Phase::Arrived, true, false) => {
                    let to = without(self.state(), &name);
                    (self.apply(&to, None).map(drop), "its guest did not come: it is removed")
                }
                _ => continue,
            };
            let text = match changed {
                Ok(()) => text.to_owned(),
                Err(fault) => format!("its move cannot be ended: {fault}"),
            };
            tracing::warn!("adapter {name}: {text}");
            self.note(EventKind::Move, format!("adapter {name}"), text);
        }
    }
}

/// What an adapter that arrives must be, beyond what every adapter must.
fn check(name: &str, adapter: &Adapter) -> Result<(), Fault> {
    if adapter.name != name {
        let allowed = format!("write {name:?} as in the path");
        return Err(wrong(
            "adapter.name",
            adapter.name.as_str(),
            "is not what the path names",
            &allowed,
        ));
    }
    if adapter.moving.is_some() {
        return Err(wrong("adapter.move", Value::Null, "is the daemon's to write", "leave it out"));
    }
    if adapter.attachment.kind() != AttachmentKind::VhostUser {
        let error = "is nothing that a guest can be moved with";
        return Err(wrong("adapter.attachment", Value::Null, error, "write a vhost-user socket"));
    }
    Ok(())
}

/// The state without an adapter and all that the switch has for it.
fn without(state: &State, name: &str) -> State {
    let mut to = state.clone();
    to.adapters.retain(|adapter| adapter.name != name);
    for switch in &mut to.switches {
        switch.ports.retain(|port| port.adapter != name);
        switch.statics.retain(|entry| entry.port != name);
    }
    to
}

fn gone(name: &str) -> MoveStatus {
    MoveStatus {
        version: VERSION,
        adapter: name.to_owned(),
        id: None,
        phase: None,
        expires_ms: None,
        path: PathInForce::None,
        vf: None,
        queue: None,
        reason: Reason::Supported,
        connected: false,
        kept: 0,
        lost: 0,
        received: 0,
        sent: 0,
        announced: 0,
        frames: Vec::new(),
    }
}

fn absent(name: &str) -> Fault {
    let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    Fault::NotFound(format!("adapter \"{shown}\""))
}

fn impossible(field: &str, value: &str, error: String, allowed: &str) -> Fault {
    Fault::Impossible(Problems::from(Problem::new(field, value, error, allowed)))
}

fn wrong(field: &str, value: impl Into<Value>, error: &str, allowed: &str) -> Fault {
    Fault::Wrong(Problem::new(field, value, error, allowed).into())
}

/// Now, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Frames as they were, each at least an Ethernet header.
fn whole(frames: &[String]) -> Result<Vec<Vec<u8>>, Fault> {
    let frame = |(at, text): (usize, &String)| {
        let bytes = text.as_bytes().chunks(2).map(|pair| {
            let text = std::str::from_utf8(pair).ok().filter(|text| text.len() == 2);
            text.filter(|text| !text.starts_with('+'))
                .and_then(|text| u8::from_str_radix(text, 16).ok())
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        bytes.filter(|bytes| (14..=65_535).contains(&bytes.len())).ok_or_else(|| {
            let allowed = "write 14 to 65535 bytes as pairs of hexadecimal digits";
            wrong(&format!("frames[{at}]"), text.as_str(), "is no frame", allowed)
        })
    };
    frames.iter().enumerate().map(frame).collect()
}
