//! Obstacles to a migration, with remedies; found before anything is changed.

use std::path::Path;

use model::state::{
    Adapter, Attachment, Mirror, MoveRequest, PortSettings, Problem, Remedy, State, Vf, Vpf,
};

use super::daemon::DaemonClient;
use super::error::MigrateError;
use super::guest_info::GuestInfo;
use super::guest_vfs;
use super::spec::MigrationSpec;

/// Returns `true` if QEMU has this socket, under any path of the file.
pub(super) fn has_socket(guest: &GuestInfo, path: &str) -> bool {
    let whole = |path: &str| std::fs::canonicalize(path).ok();
    let wanted = whole(path);
    let is_it = |its: &str| its == path || (wanted.is_some() && whole(its) == wanted);
    guest.sockets.iter().any(|(_, its)| is_it(its))
}

/// The guest behind a QMP socket of the source is another one.
pub(super) fn wrong_guest(socket: &Path, is: &str, wanted: &str) -> Problem {
    let message = format!("is the socket of guest {is}, not of {wanted}");
    let remedy = Remedy::choose(format!("name that of {wanted}"), "the QMP socket of the guest");
    Problem::new("--from-qmp", &*socket.to_string_lossy(), message, remedy)
}

/// Obstacles in the guest.
pub(super) fn guest_obstacles(spec: &MigrationSpec, guest: &GuestInfo) -> Vec<Problem> {
    let object = format!("guest {}", spec.vm);
    let mut found = Vec::new();
    if !guest.name.is_empty() && guest.name != spec.vm {
        found.push(wrong_guest(&spec.source_qmp, &guest.name, &spec.vm));
    }
    if guest.status != "running" {
        let message = format!("is {}", guest.status);
        let remedy = "resume it: only a running guest can be migrated";
        found.push(Problem::new("", (), message, remedy).of(&*object));
    }
    if let (false, Some(agent)) = (guest.vfs.is_empty(), &spec.guest_agent) {
        let failed = guest_vfs::connect(agent).err().map(|failed| {
            let (socket, text) = (agent.to_string_lossy(), failed.to_string());
            let (message, remedy) = text.split_once("; ").unwrap_or((&text, "see the guest"));
            Problem::new("--guest-agent", &*socket, format!("does not work: {message}"), remedy)
        });
        found.extend(failed);
    } else if !guest.vfs.is_empty() {
        let message = format!(
            "has VFs enabled ({}), which QEMU would leave dead while it reports the migration as completed",
            guest.vfs.join(", ")
        );
        let remedy = "disable them for the migration with `echo 0 > /sys/bus/pci/devices/.../sriov_numvfs` in the guest, \
             and restore the number after it; or let the guest agent do both (--guest-agent, --to-guest-agent); or give the \
             guest a failover pair (virtio-net-pci with failover=on, and a primary with failover_pair_id=), which QEMU \
             unplugs and plugs by itself";
        found.push(Problem::new("", (), message, remedy).of(&*object));
    }
    found
}

/// Obstacles of an adapter at the source: above all, settings that would stay behind.
pub(super) fn adapter_obstacles(
    state: &State,
    adapter: &Adapter,
    guest: &GuestInfo,
) -> Vec<Problem> {
    let name = &adapter.name;
    let mut found = Vec::new();
    if let Attachment::VhostUser(its) = &adapter.attachment
        && !has_socket(guest, &its.socket)
    {
        let has: Vec<&str> = guest.sockets.iter().map(|(_, path)| path.as_str()).collect();
        let remedy = Remedy::choose("name an adapter of this guest", has.join(", "));
        let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
        let message = format!("is no socket of this QEMU, which has {has}");
        found.push(Problem::new("attachment.socket", &*its.socket, message, remedy));
    }
    let with_settings = state.nic_of(adapter).zip(adapter.vf);
    if let Some((nic, index)) = with_settings
        && nic.vfs.iter().any(|vf| vf.index == index && !is_of_host(vf))
    {
        let message = format!("has settings of its own in {}, which would stay behind", nic.name);
        let remedy = "move them to the adapter, and remove the VF's";
        found.push(Problem::new("vf", index, message, remedy));
    }
    let is_behind =
        |vpf: &&Vpf| vpf.pf == *name || vpf.vfs.iter().any(|vf| vf.adapter.as_ref() == Some(name));
    if let Some(vpf) = state.vpfs.iter().find(is_behind) {
        let message = format!(
            "is behind virtual PF {}, which would stay behind with the guest's channel and the settings made through it",
            vpf.name
        );
        let remedy =
            "remove the virtual PF and the channel's device, and create them at the target";
        found.push(Problem::new("", (), message, remedy));
    }
    let mirrors: Vec<String> = mirrored_to(state, name);
    if !mirrors.is_empty() {
        let message = format!("gets the mirrored frames of {}", mirrors.join(", "));
        found.push(Problem::new("", (), message, "remove the mirror first"));
    }
    found.into_iter().map(|problem| problem.of(format!("adapter {name}"))).collect()
}

/// Returns `true` for a VF that has nothing but a driver, which belongs to the host.
fn is_of_host(vf: &Vf) -> bool {
    let Vf { index: _, mac, driver: _, query_rss, attachment, settings } = vf;
    (mac, query_rss, attachment) == (&None, &None, &None) && *settings == PortSettings::default()
}

/// Primaries for the target that are of none of the chosen adapters.
pub(super) fn unknown_primaries(spec: &MigrationSpec, chosen: &[&Adapter]) -> Vec<Problem> {
    let names = || chosen.iter().map(|adapter| &*adapter.name);
    let named = spec.target_primaries.keys().filter(|name| !names().any(|one| one == *name));
    let message = "is no adapter of the migration";
    named.map(|name| Problem::not_one_of("--to-primary", &**name, message, names())).collect()
}

/// Sources that are mirrored to an adapter.
fn mirrored_to(state: &State, name: &str) -> Vec<String> {
    let is_it = |mirror: &Option<Mirror>| {
        mirror.as_ref().is_some_and(|mirror| mirror.adapter.as_deref() == Some(name))
    };
    let adapters = state.adapters.iter().filter(|adapter| is_it(&adapter.settings.mirror));
    let mut found: Vec<String> = adapters.map(|adapter| adapter.name.clone()).collect();
    for nic in &state.nics {
        if nic.pf.as_ref().is_some_and(|pf| is_it(&pf.settings.mirror)) {
            found.push(format!("the PF of {}", nic.name));
        }
        let vfs = nic.vfs.iter().filter(|vf| is_it(&vf.settings.mirror));
        found.extend(vfs.map(|vf| format!("VF {} of {}", vf.index, nic.name)));
    }
    found
}

/// Obstacle: the VF that the adapter names, and would get, has another holder at the target.
///
/// # Errors
/// The target's daemon does not answer.
pub(super) fn held_vf_obstacle(
    target: &DaemonClient<'_>,
    request: &MoveRequest,
    given: Option<u16>,
) -> Result<Option<Problem>, MigrateError> {
    let named = request.adapter.as_ref().and_then(|adapter| Some((adapter, adapter.vf?)));
    let Some((adapter, index)) = named.filter(|(_, index)| given == Some(*index)) else {
        return Ok(None);
    };
    let (state, now) = (target.state()?, target.in_force()?);
    let Some(nic) = state.nic_of(adapter) else { return Ok(None) };
    let on_it = |name: &str| {
        let other = state.adapter(name).and_then(|other| state.nic_of(other));
        other.is_some_and(|its| its.name == nic.name)
    };
    let adapters_text = now.actual.adapters.iter().filter(|one| one.vf == Some(index));
    let mut holders = adapters_text.filter(|one| on_it(&one.name)).map(|one| one.name.clone());
    let is_prepared = nic.vfs.iter().any(|vf| vf.index == index && is_of_host(vf));
    let owner = now.owners.get(&format!("{}/vf{index}", nic.name));
    let owner = owner.filter(|owner| !(owner.holder.is_empty() && is_prepared));
    let holder = holders.next().or_else(|| owner.map(|_| "another owner".to_owned()));
    Ok(holder.map(|holder| {
        let message = format!("is the VF of {holder} on {} of the target", nic.name);
        let remedy = "free that VF, or remove the number";
        Problem::new("vf", index, message, remedy).of(format!("adapter {}", adapter.name))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_known_by_any_name_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("web.sock"), dir.path().join("link.sock"));
        let _listener = std::os::unix::net::UnixListener::bind(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        let guest = |path: &str| GuestInfo {
            sockets: vec![("c0".to_owned(), path.to_owned())],
            ..GuestInfo::default()
        };
        assert!(has_socket(&guest(&text(&link)), &text(&real)));
        assert!(has_socket(&guest("/not/here"), "/not/here"));
        assert!(!has_socket(&guest("/not/here"), "/nor/here"), "neither is a file");
        assert!(!has_socket(&guest("/not/here"), &text(&real)));
        assert!(!has_socket(&GuestInfo::default(), &text(&real)));
    }
}
