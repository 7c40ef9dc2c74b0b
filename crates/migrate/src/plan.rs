//! What a migration would do, and what is in its way; nothing is changed to find out.

use std::fmt;

use model::state::{
    Adapter, Attachment, MoveRequest, MoveStep, PathInForce, Reason, State, VERSION,
};
use serde::{Deserialize, Serialize};

use super::inspected::Inspected;
use super::site::Site;
use super::vmm::Vmm;
use super::{Failed, HOLD_S, Spec, obstacles};

/// What would be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The guest.
    pub vm: String,
    /// What QEMU says of it.
    pub guest: Inspected,
    /// The daemons' versions, the source's first.
    pub versions: [String; 2],
    /// The adapters that move.
    pub adapters: Vec<Planned>,
    /// What must be done before; with any of these nothing is moved.
    pub obstacles: Vec<String>,
}

/// An adapter that moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Its name, on both hosts.
    pub name: String,
    /// Its address.
    pub mac: String,
    /// The path that it has now.
    pub from: PathInForce,
    /// The path that it gets.
    pub to: PathInForce,
    /// Why that is not the one wanted; `Supported` if it is.
    pub reason: Reason,
    /// Its socket on the target.
    pub socket: String,
    /// Whether its rings run now.
    pub connected: bool,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { vm, guest, adapters, obstacles, .. } = self;
        writeln!(f, "move {vm} (QEMU {}, {})", guest.qemu, guest.status)?;
        for Planned { name, mac, from, to, reason, socket, .. } in adapters {
            let why = match reason {
                Reason::Supported => String::new(),
                code => format!(" ({code}: {})", code.text()),
            };
            writeln!(f, "  adapter {name} {mac}: {from} -> {to}{why}, socket {socket}")?;
        }
        if !guest.vfs.is_empty() && obstacles.is_empty() {
            let vfs = guest.vfs.join(", ");
            writeln!(
                f,
                "  VFs {vfs} are taken away by the guest's agent for the time of the move"
            )?;
        }
        for obstacle in obstacles {
            writeln!(f, "in the way: {obstacle}")?;
        }
        Ok(())
    }
}

/// What the target is asked for.
pub(super) fn arrival(spec: &Spec, state: &State, adapter: &Adapter, id: &str) -> MoveRequest {
    let mut copy = Adapter { moving: None, ..adapter.clone() };
    if let (Attachment::VhostUser(its), Some(socket)) =
        (&mut copy.attachment, spec.sockets.get(&adapter.name))
    {
        its.socket = socket.clone();
    }
    let switch = adapter.switch.as_deref().and_then(|name| state.switch(name));
    let place = |place: &mut Option<String>, other: &Option<String>| {
        if let (Some(place), Some(other)) = (place, other) {
            place.clone_from(other);
        }
    };
    place(&mut copy.switch, &spec.switch);
    place(&mut copy.nic, &spec.nic);
    let statics = switch.iter().flat_map(|switch| &switch.statics);
    MoveRequest {
        version: VERSION,
        id: id.to_owned(),
        step: MoveStep::Arrive,
        hold_s: HOLD_S,
        port: switch.and_then(|switch| switch.port(&adapter.name)).cloned(),
        statics: statics.filter(|entry| entry.port == adapter.name).cloned().collect(),
        adapter: Some(copy),
        from: None,
        frames: Vec::new(),
    }
}

/// Looks at both daemons and at QEMU.
pub(super) fn inspect(
    spec: &Spec,
    source: &Site<'_>,
    target: &Site<'_>,
    vmm: &mut Vmm,
) -> Result<(Plan, Vec<MoveRequest>), Failed> {
    let versions = [source.version()?, target.version()?];
    let guest = vmm.inspect()?;
    let state = source.state()?;
    let mut plan =
        Plan { vm: spec.vm.clone(), guest, versions, adapters: Vec::new(), obstacles: Vec::new() };
    plan.obstacles = obstacles::of_guest(spec, &plan.guest);
    plan.obstacles.extend(vmm.blockers()?);
    let mut requests = Vec::new();
    for adapter in chosen(spec, &state, &plan.guest)? {
        let Attachment::VhostUser(attachment) = &adapter.attachment else {
            let text = format!("adapter {} is no vhost-user socket of QEMU's", adapter.name);
            plan.obstacles.push(text);
            continue;
        };
        plan.obstacles.extend(obstacles::of_adapter(&state, adapter, &plan.guest));
        let request = arrival(spec, &state, adapter, target.id);
        let now = source.status(&adapter.name)?;
        if let Some(id) = &now.id {
            let name = &adapter.name;
            plan.obstacles.push(format!("adapter {name} is being moved already, by {id}"));
        }
        let socket = spec.sockets.get(&adapter.name).unwrap_or(&attachment.socket).clone();
        let mut planned = Planned {
            name: adapter.name.clone(),
            mac: adapter.mac.to_string(),
            from: now.path,
            to: PathInForce::None,
            reason: Reason::Unknown,
            socket,
            connected: now.connected,
        };
        match target.arrive(&request, true) {
            Ok(given) => {
                plan.obstacles.extend(obstacles::of_held_vf(target, &request, given.vf)?);
                (planned.to, planned.reason) = (given.path, given.reason);
            }
            Err(refused) if refused.is_mistake => plan.obstacles.push(refused.to_string()),
            Err(failed) => return Err(failed),
        }
        plan.adapters.push(planned);
        requests.push(request);
    }
    if plan.adapters.is_empty() {
        let text = "no adapter of the source daemon has a socket of this QEMU; see `shunt adapter list`, and its chardevs";
        plan.obstacles.push(text.to_owned());
    }
    Ok((plan, requests))
}

/// The adapters that were named, or all whose sockets QEMU has. Not by address: that is what the
/// guest says, and another's adapter would be moved with it.
fn chosen<'a>(
    spec: &Spec,
    state: &'a State,
    guest: &Inspected,
) -> Result<Vec<&'a Adapter>, Failed> {
    if !spec.adapters.is_empty() {
        let find = |name: &String| {
            let absent = || Failed::mistake(format!("there is no adapter {name} at the source"));
            state.adapter(name).ok_or_else(absent)
        };
        return spec.adapters.iter().map(find).collect();
    }
    let is_its = |adapter: &&Adapter| {
        let Attachment::VhostUser(attachment) = &adapter.attachment else { return false };
        obstacles::has_socket(guest, &attachment.socket)
    };
    Ok(state.adapters.iter().filter(is_its).collect())
}
