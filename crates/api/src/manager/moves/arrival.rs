//! Arriving adapters: their checks and their allocation.

use model::state::{
    Adapter, Allocation, AttachmentKind, Facts, MovePhase, MoveRequest, MoveStep, Moving,
    PathInForce, Problem, State, StaticEntry, SwitchPort, allocate,
};
use serde_json::Value;

use super::super::Manager;
use super::{MoveStatus, absent, gone, impossible, wrong};
use crate::error::ApiError;

impl Manager {
    /// Allocation that an adapter would get here; changes nothing.
    ///
    /// # Errors
    /// As of the step `arrive`.
    pub fn move_preview(
        &mut self,
        name: &str,
        request: MoveRequest,
        expected: Option<u64>,
    ) -> Result<MoveStatus, ApiError> {
        self.expect(expected)?;
        if request.step != MoveStep::Arrive {
            let message = "is for the step arrive";
            let problem = Problem::new("?dry_run", "true", message, "leave it out");
            return Err(ApiError::BadRequest(problem.into()));
        }
        if self.state().adapter(name).is_some() {
            let error = format!("there is an adapter {name} here already");
            return Err(impossible("adapter.name", name, error, "remove it, or rename one"));
        }
        let (id, hold_s) = (request.id.clone(), request.hold_s);
        let moving = Moving { id, phase: MovePhase::Arriving, hold_s, given_up: false };
        let (_, given) = self.arrival(name, request, moving)?;
        let Allocation { path, vf, queue, reason, .. } = given;
        Ok(MoveStatus { path, vf, queue, reason, ..gone(name) })
    }

    /// Checks that an adapter that has arrived or is arriving is the requested one.
    pub(super) fn must_be_the_same(
        &self,
        name: &str,
        request: &MoveRequest,
    ) -> Result<(), ApiError> {
        let Some(now) = self.state().adapter(name) else { return Err(absent(name)) };
        let now = Adapter { moving: None, ..now.clone() };
        let switch = now.switch.as_deref().and_then(|switch| self.state().switch(switch));
        let port = switch.and_then(|switch| switch.port(name));
        let statics = switch.into_iter().flat_map(|switch| &switch.statics);
        let statics = statics.filter(|entry| entry.port == name);
        let differs = [
            ("adapter", request.adapter.as_ref() != Some(&now)),
            ("port", request.port.as_ref() != port),
            ("static", !statics.eq(&request.statics)),
        ];
        match differs.iter().find(|(_, differs)| *differs) {
            Some((field, _)) => {
                let error = format!("is not as {name} was asked for before");
                Err(impossible(field, name, error, "abort the move, and begin another"))
            }
            None => Ok(()),
        }
    }

    /// The state with an arriving adapter, and its allocation once the guest is here.
    pub(super) fn arrival(
        &mut self,
        name: &str,
        request: MoveRequest,
        moving: Moving,
    ) -> Result<(State, Allocation), ApiError> {
        let Some(adapter) = request.adapter else {
            return Err(wrong("adapter", Value::Null, "is missing", "write the adapter"));
        };
        check(name, &adapter)?;
        check_port(name, &adapter, request.port.as_ref(), &request.statics)?;
        let with = |phase: MovePhase| {
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
            State::parse(&to.to_document()).map_err(ApiError::Wrong)
        };
        let (to, then) = (with(MovePhase::Arriving)?, with(MovePhase::Arrived)?);
        self.plan_of(&then)?;
        let given = allocate(&then, &Facts::of(&self.actual()));
        let given =
            given.into_iter().find(|one| one.adapter == name).ok_or_else(|| absent(name))?;
        if given.path == PathInForce::None {
            let (code, text) = (given.reason, given.reason.text());
            let error = format!("would be disconnected ({code}): {text}");
            let allowed = "free a VF, or put it on a switch";
            return Err(impossible("adapter", name, error, allowed));
        }
        Ok((to, given))
    }
}

/// Checks that the request has no field that the step ignores.
pub(super) fn check_fields(request: &MoveRequest) -> Result<(), ApiError> {
    use MoveStep::{Arrive, Frames, HandOver};
    let step = request.step;
    let fields = [
        ("adapter", request.adapter.is_some(), step == Arrive),
        ("port", request.port.is_some(), step == Arrive),
        ("static", !request.statics.is_empty(), step == Arrive),
        ("from", request.from.is_some(), matches!(step, Frames | HandOver)),
        ("frames", !request.frames.is_empty(), step == Frames),
    ];
    match fields.iter().find(|(_, is_there, is_its)| *is_there && !is_its) {
        Some((field, ..)) => {
            let error = format!("is not a field of step {step}");
            Err(wrong(field, Value::Null, &error, "leave it out"))
        }
        None => Ok(()),
    }
}

/// Checks of an arriving adapter, beyond those of every adapter.
fn check(name: &str, adapter: &Adapter) -> Result<(), ApiError> {
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
        return Err(wrong(
            "adapter.move",
            Value::Null,
            "is written by the daemon only",
            "leave it out",
        ));
    }
    if adapter.attachment.kind() != AttachmentKind::VhostUser {
        let error = "does not support migration";
        return Err(wrong("adapter.attachment", Value::Null, error, "write a vhost-user socket"));
    }
    Ok(())
}

/// Checks that port and static entries belong to the adapter: only its own are removed with it.
fn check_port(
    name: &str,
    adapter: &Adapter,
    port: Option<&SwitchPort>,
    statics: &[StaticEntry],
) -> Result<(), ApiError> {
    let of = |field: &str, value: &str| {
        let error = format!("is not {name}, which arrives");
        Err(wrong(field, value, &error, &format!("write {name:?}, or leave the entry out")))
    };
    if let Some(port) = port.filter(|port| port.adapter != name) {
        return of("port.adapter", &port.adapter);
    }
    if let Some(at) = statics.iter().position(|entry| entry.port != name) {
        return of(&format!("static[{at}].port"), &statics[at].port);
    }
    let field = if port.is_some() { "port" } else { "static" };
    if adapter.switch.is_none() && (port.is_some() || !statics.is_empty()) {
        let error = "needs a switch, and the adapter has none";
        return Err(wrong(field, Value::Null, error, "leave it out, or name the switch"));
    }
    Ok(())
}
