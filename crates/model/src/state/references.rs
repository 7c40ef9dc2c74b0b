//! References between objects: an object that another one names cannot be deleted.

use super::State;

impl State {
    /// Objects that name this NIC, such as `switch sw0`.
    pub fn users_of_nic(&self, nic: &str) -> Vec<String> {
        let switches = self.switches.iter().filter(|one| one.nic == nic);
        let adapters = self.adapters.iter().filter(|one| one.nic.as_deref() == Some(nic));
        let switches = kind("switch", "switches", switches.map(|one| &*one.name));
        let adapters = kind("adapter", "adapters", adapters.map(|one| &*one.name));
        switches.into_iter().chain(adapters).collect()
    }

    /// Objects that name this switch, such as `adapters db, web`.
    pub fn users_of_switch(&self, switch: &str) -> Vec<String> {
        let on = self.adapters.iter().filter(|one| one.switch.as_deref() == Some(switch));
        kind("adapter", "adapters", on.map(|one| &*one.name)).into_iter().collect()
    }

    /// Objects that name this adapter, except its port of the switch, which goes with it.
    pub fn users_of_adapter(&self, adapter: &str) -> Vec<String> {
        let mirrors = |settings: &super::PortSettings| {
            settings
                .mirror
                .as_ref()
                .is_some_and(|mirror| mirror.adapter.as_deref() == Some(adapter))
        };
        let mut users = Vec::new();
        for nic in &self.nics {
            let pf = nic.pf.iter().filter(|pf| mirrors(&pf.settings));
            users.extend(pf.map(|_| format!("the mirror of the PF of NIC {}", nic.name)));
            let vfs = nic.vfs.iter().filter(|vf| mirrors(&vf.settings));
            users
                .extend(vfs.map(|vf| format!("the mirror of VF {} of NIC {}", vf.index, nic.name)));
        }
        let others = self.adapters.iter().filter(|one| one.name != adapter);
        let mirrored = others.filter(|one| mirrors(&one.settings));
        users.extend(mirrored.map(|one| format!("the mirror of adapter {}", one.name)));
        users.extend(self.switches.iter().flat_map(|it| self.static_addresses(&it.name, adapter)));
        let behind = |vpf: &&super::Vpf| {
            let vfs = &mut vpf.vfs.iter();
            vpf.pf == adapter || vfs.any(|vf| vf.adapter.as_deref() == Some(adapter))
        };
        let vpfs = self.vpfs.iter().filter(behind).map(|vpf| &*vpf.name);
        users.extend(kind("virtual PF", "virtual PFs", vpfs));
        users
    }

    /// Static addresses of a switch behind this port.
    pub fn static_addresses(&self, switch: &str, port: &str) -> Vec<String> {
        let statics = self.switch(switch).into_iter().flat_map(|switch| &switch.statics);
        let behind = statics.filter(|entry| entry.port == port);
        behind.map(|one| format!("static address {} of switch {switch}", one.mac)).collect()
    }
}

/// The kind with its names, sorted; empty without names.
fn kind<'n>(one: &str, many: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    const SHOWN: usize = 8;
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match (names.len(), more) {
        (0, _) => None,
        (1, _) => Some(format!("{one} {shown}")),
        (_, 0) => Some(format!("{many} {shown}")),
        (_, more) => Some(format!("{many} {shown} and {more} more")),
    }
}
