//! Obstacles to a migration, with remedies; found before anything is changed.

use model::state::{Adapter, Attachment, Mirror, MoveRequest, State, Vpf};

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

/// Obstacles in the guest.
pub(super) fn guest_obstacles(spec: &MigrationSpec, guest: &GuestInfo) -> Vec<String> {
    let mut found = Vec::new();
    if !guest.name.is_empty() && guest.name != spec.vm {
        found.push(format!(
            "the guest behind the source's QMP socket is {}, not {}; name the right socket",
            guest.name, spec.vm
        ));
    }
    if guest.status != "running" {
        found.push(format!("the guest is {}; only a running guest can be migrated", guest.status));
    }
    if let (false, Some(agent)) = (guest.vfs.is_empty(), &spec.guest_agent) {
        found.extend(guest_vfs::connect(agent).err().map(|failed| failed.to_string()));
    } else if !guest.vfs.is_empty() {
        found.push(format!(
            "the guest has VFs enabled ({}): QEMU would report the migration as completed, and leave them dead. \
             Disable them for the migration with `echo 0 > /sys/bus/pci/devices/.../sriov_numvfs` in the guest, and restore \
             the number after it; or let the guest agent do both (--guest-agent, --to-guest-agent); or give the guest a \
             failover pair (virtio-net-pci with failover=on, and a primary with failover_pair_id=), which QEMU unplugs and \
             plugs by itself",
            guest.vfs.join(", ")
        ));
    }
    found
}

/// Obstacles of an adapter at the source: above all, settings that would stay behind.
pub(super) fn adapter_obstacles(
    state: &State,
    adapter: &Adapter,
    guest: &GuestInfo,
) -> Vec<String> {
    let name = &adapter.name;
    let mut found = Vec::new();
    if let Attachment::VhostUser(its) = &adapter.attachment
        && !has_socket(guest, &its.socket)
    {
        let has: Vec<&str> = guest.sockets.iter().map(|(_, path)| path.as_str()).collect();
        found.push(format!(
            "adapter {name} uses {}, which this QEMU does not have (it has {}); name an adapter of this guest",
            its.socket,
            if has.is_empty() { "none".to_owned() } else { has.join(", ") }
        ));
    }
    let with_settings = state.nic_of(adapter).zip(adapter.vf);
    if let Some((nic, index)) = with_settings
        && nic.vfs.iter().any(|vf| vf.index == index)
    {
        found.push(format!(
            "adapter {name} has the settings of VF {index} of {}, which would stay behind; move them to the adapter, and \
             remove the VF's",
            nic.name
        ));
    }
    let is_behind =
        |vpf: &&Vpf| vpf.pf == *name || vpf.vfs.iter().any(|vf| vf.adapter.as_ref() == Some(name));
    if let Some(vpf) = state.vpfs.iter().find(is_behind) {
        found.push(format!(
            "adapter {name} is behind virtual PF {}, which would stay behind with the guest's channel and the settings \
             made through it; remove the virtual PF and the channel's device, and create them at the target",
            vpf.name
        ));
    }
    let mirrors: Vec<String> = mirrored_to(state, name);
    if !mirrors.is_empty() {
        found.push(format!(
            "frames of {} are mirrored to adapter {name}; remove the mirror first",
            mirrors.join(", ")
        ));
    }
    found
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
) -> Result<Option<String>, MigrateError> {
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
    let owner = now.owners.get(&format!("{}/vf{index}", nic.name));
    let holder = holders.next().or_else(|| owner.map(|_| "another owner".to_owned()));
    Ok(holder.map(|holder| {
        format!(
            "adapter {} names VF {index}, which {holder} has on {} of the target; free that VF, or remove the number",
            adapter.name, nic.name
        )
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
