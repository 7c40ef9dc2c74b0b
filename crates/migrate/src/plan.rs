//! Plan of a migration and its obstacles; nothing is changed.

use std::fmt;

use model::state::{
    Adapter, Attachment, MoveRequest, MoveStep, PathInForce, Problem, Reason, State, VERSION,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::daemon::DaemonClient;
use super::error::MigrateError;
use super::guest_info::GuestInfo;
use super::obstacles;
use super::pairs::PlannedPair;
use super::qemu::Qemu;
use super::spec::MigrationSpec;

/// Plan of a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationPlan {
    /// Guest to migrate.
    pub vm: String,
    /// Guest properties as QEMU reports them.
    pub guest: GuestInfo,
    /// Versions of the source's and the target's daemon.
    pub versions: [String; 2],
    /// Adapters to migrate.
    pub adapters: Vec<PlannedAdapter>,
    /// Obstacles to remove first; with any of them nothing is migrated.
    pub obstacles: Vec<Problem>,
}

/// An adapter to migrate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedAdapter {
    /// Name, on both hosts.
    pub name: String,
    /// MAC address.
    pub mac: String,
    /// Current path; `vf` also for another primary.
    pub from: PathInForce,
    /// Primary that has the frames, as QEMU's device. It is unplugged before.
    pub primary: Option<Map<String, Value>>,
    /// A primary is plugged at the target.
    pub plugs: bool,
    /// Path at the target.
    pub to: PathInForce,
    /// Reason if that is not the wanted path; `Supported` if it is.
    pub reason: Reason,
    /// Socket path on the target.
    pub socket: String,
    /// The adapter's rings run now.
    pub connected: bool,
}

impl fmt::Display for MigrationPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MigrationPlan { vm, guest, adapters, obstacles, .. } = self;
        writeln!(f, "move {vm} (QEMU {}, {})", guest.qemu, guest.status)?;
        for PlannedAdapter { name, mac, from, primary, plugs, to, reason, socket, .. } in adapters {
            let why = match reason {
                Reason::Supported => String::new(),
                code => format!(" ({code}: {})", code.text()),
            };
            writeln!(f, "  adapter {name} {mac}: {from} -> {to}{why}, socket {socket}")?;
            if let Some(id) = primary.as_ref().and_then(|device| device["id"].as_str()) {
                writeln!(f, "  primary {id} of {name} is unplugged at the source")?;
            }
            if *plugs {
                writeln!(f, "  a primary of {name} is plugged at the target")?;
            }
        }
        if !guest.vfs.is_empty() && obstacles.is_empty() {
            let vfs = guest.vfs.join(", ");
            writeln!(f, "  VFs {vfs} are disabled by the guest agent for the migration")?;
        }
        for obstacle in obstacles {
            writeln!(f, "obstacle: {obstacle}")?;
        }
        Ok(())
    }
}

/// Builds the request that creates an adapter at the target.
pub(super) fn arrival(
    spec: &MigrationSpec,
    state: &State,
    adapter: &Adapter,
    id: &str,
) -> MoveRequest {
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
        hold_s: spec.hold_s(),
        port: switch.and_then(|switch| switch.port(&adapter.name)).cloned(),
        statics: statics.filter(|entry| entry.port == adapter.name).cloned().collect(),
        adapter: Some(copy),
        from: None,
        frames: Vec::new(),
    }
}

/// Queries both daemons and QEMU.
pub(super) fn inspect(
    spec: &MigrationSpec,
    source: &DaemonClient<'_>,
    target: &DaemonClient<'_>,
    qemu: &mut Qemu,
) -> Result<(MigrationPlan, Vec<MoveRequest>), MigrateError> {
    let versions = [source.version()?, target.version()?];
    let guest = qemu.inspect()?;
    let state = source.state()?;
    let mut plan = MigrationPlan {
        vm: spec.vm.clone(),
        guest,
        versions,
        adapters: Vec::new(),
        obstacles: Vec::new(),
    };
    plan.obstacles = obstacles::guest_obstacles(spec, &plan.guest);
    let guest = format!("guest {}", spec.vm);
    let blockers = qemu.blockers()?.into_iter().map(|blocker| blocker.of(&*guest));
    plan.obstacles.extend(blockers);
    let mut requests = Vec::new();
    let chosen = chosen(spec, &state, &plan.guest)?;
    plan.obstacles.extend(obstacles::unknown_primaries(spec, &chosen));
    for adapter in chosen {
        let object = format!("adapter {}", adapter.name);
        let Attachment::VhostUser(attachment) = &adapter.attachment else {
            let kind = adapter.attachment.kind().word();
            let message = "is no vhost-user socket of QEMU";
            let remedy = "name other adapters with --adapter";
            plan.obstacles.push(Problem::new("attachment", kind, message, remedy).of(object));
            continue;
        };
        plan.obstacles.extend(obstacles::adapter_obstacles(&state, adapter, &plan.guest));
        let pair = PlannedPair::find(spec, adapter, qemu, &mut plan.obstacles)?;
        let mut request = arrival(spec, &state, adapter, target.id);
        request.adapter.iter_mut().for_each(|copy| pair.asked(copy));
        let now = source.status(&adapter.name)?;
        if let Some(id) = &now.id {
            let message = format!("is part of migration {id} already");
            let remedy = "end that with --abort or --finish";
            plan.obstacles.push(Problem::new("", (), message, remedy).of(object));
        }
        let socket = spec.sockets.get(&adapter.name).unwrap_or(&attachment.socket).clone();
        let mut planned = PlannedAdapter {
            name: adapter.name.clone(),
            mac: adapter.mac.to_string(),
            from: now.path,
            primary: None,
            plugs: false,
            to: PathInForce::None,
            reason: Reason::Unknown,
            socket,
            connected: now.connected,
        };
        match target.arrive(&request, true) {
            Ok(given) => {
                plan.obstacles.extend(obstacles::held_vf_obstacle(target, &request, given.vf)?);
                (planned.to, planned.reason) = (given.path, given.reason);
            }
            Err(MigrateError::Refused(refused)) => plan.obstacles.extend(refused.problems),
            Err(failed) => return Err(failed),
        }
        request.adapter.iter_mut().for_each(|copy| pair.created(copy));
        pair.plan(&mut planned);
        plan.adapters.push(planned);
        requests.push(request);
    }
    if plan.adapters.is_empty() {
        let message = "has no socket of an adapter of the source daemon";
        let remedy = "compare its chardevs with `shunt adapter list`";
        plan.obstacles.push(Problem::new("", (), message, remedy).of(guest));
    }
    Ok((plan, requests))
}

/// Selects the named adapters, or all whose sockets QEMU has. Not by MAC address: a guest reports
/// any address, and could take another guest's adapter along.
fn chosen<'a>(
    spec: &MigrationSpec,
    state: &'a State,
    guest: &GuestInfo,
) -> Result<Vec<&'a Adapter>, MigrateError> {
    if !spec.adapters.is_empty() {
        let find = |name: &String| {
            let absent = || {
                let names = state.adapters.iter().map(|adapter| &*adapter.name);
                let message = "is no adapter of the source daemon";
                Problem::not_one_of("--adapter", name.as_str(), message, names).into()
            };
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
