//! Link state of functions: that of the uplink, or in switchdev mode that of the representor.
//!
//! Links change at any time, so following one only replaces tables: no path is chosen again and
//! nothing is opened. An attachment that fails does not affect the link of other functions.

use std::time::Instant;

use api::compile::{self, LiveLinks, PortOwner};

use super::super::nic_instance::{NicInstance, PortBackend};
use super::DataPlane;

impl DataPlane {
    /// Current state of links.
    pub(super) fn live(&self) -> LiveLinks {
        let is_down = |instance: &NicInstance| match instance
            .served
            .get(&PortOwner::Uplink)
            .map(|served| served.backend)
        {
            Some(PortBackend::Device(token)) => self.devices.has_no_link(token),
            Some(PortBackend::Socket(_) | PortBackend::Vdpa(_)) | None => false,
        };
        let down = self.instances.iter().filter(|(_, instance)| is_down(instance));
        let uplinks_down = down.map(|(name, _)| name.clone()).collect();
        LiveLinks { uplinks_down, representors_up: self.representors_up() }
    }

    /// Installs tables that match the current links. On failure the next poll tries again.
    pub(super) fn follow_links(&mut self) {
        let live = self.live();
        if live == self.live {
            return;
        }
        match compile::compile(&self.state, &self.allocations, &live, Some(&self.compiled)) {
            Ok(compiled) => {
                self.install_snapshots(compiled);
                self.live = live;
                self.unfollowed.forget();
            }
            Err(problems) => {
                let line = format!("link states not applied: {problems}");
                if self.unfollowed.is_new(&line, Instant::now()) {
                    tracing::error!("{line}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::{Fabric, IdlePolicy, LaneSpec};
    use rustix::event::epoll;
    use serde_json::json;

    use super::*;
    use crate::devices::POLL_INTERVAL;
    use model::state::State;

    fn data_plane(run_dir: &std::path::Path) -> DataPlane {
        let idle = IdlePolicy { poll: POLL_INTERVAL, yielding: POLL_INTERVAL, sleep: true };
        let fabric = Fabric::start(&[LaneSpec { cpu: None, idle }], None).unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let quota = Arc::new(guestmem::Quota::new(u64::MAX, u64::MAX));
        DataPlane::new(fabric, Arc::new(epoll), run_dir.to_owned(), quota)
    }

    /// A NIC with a missing uplink and two adapters on VFs.
    fn document(dir: &std::path::Path) -> State {
        let adapter = |i: u8| {
            json!({
                "name": format!("a{i}"), "nic": "n", "mac": format!("02:00:00:00:00:0{i}"),
                "iov_weight": 9, "attachment": {"socket": dir.join(format!("a{i}"))},
            })
        };
        let uplink = json!({"kind": "xdp", "interface": "shunt-none0"});
        let nic = json!({"name": "n", "total_vfs": 2, "num_vfs": 2, "uplink": uplink});
        let adapters = [adapter(0), adapter(1)];
        model::testing::state(&json!({"version": 1, "nic": [nic], "adapter": adapters}))
    }

    fn links(data_plane: &DataPlane) -> Vec<bool> {
        let plugs = data_plane.compiled.nics.iter().flat_map(|nic| &nic.ports);
        plugs.filter(|plug| plug.of != PortOwner::Uplink).map(|plug| plug.link_up).collect()
    }

    #[test]
    fn links_are_followed_though_some_attachment_cannot_be_served() {
        let dir = tempfile::tempdir().unwrap();
        let mut data_plane = data_plane(dir.path());
        let state = document(dir.path());
        data_plane.change(&state).unwrap();
        assert_eq!(links(&data_plane), [true, true], "nothing was known of the uplink before");
        // One adapter is no longer served, and cannot be opened again: every change fails.
        let instance = data_plane.instances.get_mut("n").unwrap();
        let served = instance.served.remove(&PortOwner::Adapter("a1".to_owned())).unwrap();
        data_plane.close_backend(served.backend);
        std::fs::create_dir(dir.path().join("a1")).unwrap();
        data_plane.change(&state).unwrap_err();
        data_plane.housekeep(Instant::now());
        assert_eq!(links(&data_plane), [false, false]);
        data_plane.stop();
    }
}
