//! What an adapter that arrives gets, and whether it can be had.

use serde_json::Value;

use super::super::fault::Fault;
use super::super::manager::Manager;
use super::{MoveStatus, absent, gone, impossible, wrong};
use crate::state::{
    Adapter, Allocation, AttachmentKind, Facts, MoveRequest, MoveStep, Moving, PathInForce, Phase,
    State, allocate,
};

impl Manager {
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
        let (id, hold_s) = (request.id.clone(), request.hold_s);
        let moving = Moving { id, phase: Phase::Arriving, hold_s, given_up: false };
        let (_, given) = self.arrival(name, request, moving)?;
        let Allocation { path, vf, queue, reason, .. } = given;
        Ok(MoveStatus { path, vf, queue, reason, ..gone(name) })
    }

    /// The state with an adapter that arrives, and what it gets once its guest is here.
    pub(super) fn arrival(
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
        self.plan_of(&then)?;
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
