//! Ports that a state asks for.

use api::compile::PortOwner;
use model::state::{Adapter, Attachment, Nic, State, Tap, Vxlan};

use super::super::device::Identity;
use super::super::port_spec::PortSpec;

/// An attachment or tunnel to be served.
#[derive(Debug, Clone)]
pub(in super::super) struct WantedPort {
    /// Its field in the document.
    pub(in super::super) field: String,
    pub(super) nic: String,
    pub(super) owner: PortOwner,
    pub(in super::super) spec: PortSpec,
    pub(super) identity: Identity,
}

impl WantedPort {
    /// Its tap, if that outlives the daemon: a guest's in a namespace.
    pub(super) fn kept_tap(&self) -> Option<&Tap> {
        let is_guests = matches!(self.owner, PortOwner::Adapter(_) | PortOwner::Pf);
        match &self.spec {
            PortSpec::Attachment(Attachment::Tap(tap)) => {
                Some(tap).filter(|tap| is_guests && tap.netns.is_some())
            }
            _ => None,
        }
    }
}

/// Taps among these ports that outlive the daemon.
pub(super) fn kept_taps(wanted: &[WantedPort]) -> Vec<Tap> {
    wanted.iter().filter_map(WantedPort::kept_tap).cloned().collect()
}

/// All attachments and tunnels of a state.
pub(in super::super) fn wanted_ports(state: &State) -> Vec<WantedPort> {
    let mut wanted = Vec::new();
    for (i, nic) in state.nics.iter().enumerate() {
        let mut want = |owner, field: &str, spec: &Attachment, identity| {
            let (field, nic) = (format!("nic[{i}].{field}"), nic.name.clone());
            let spec = PortSpec::Attachment(spec.clone());
            wanted.push(WantedPort { field, nic, owner, spec, identity });
        };
        if let Some(uplink) = &nic.uplink {
            want(PortOwner::Uplink, "uplink", uplink, Identity::default());
        }
        for (of, attachment, given) in nic.representors() {
            let field = match given {
                Some(at) => format!("representor[{at}].attachment"),
                None => "mode".to_owned(),
            };
            want(PortOwner::Representor(of), &field, &attachment, Identity::default());
        }
        if let Some(pf) = &nic.pf {
            let identity = Identity::of(pf.mac, &pf.settings.macs, pf.settings.spoof_check);
            want(PortOwner::Pf, "pf.attachment", &pf.attachment, identity);
        }
    }
    for (i, switch) in state.switches.iter().enumerate() {
        let tunnel = |(j, tunnel): (usize, &Vxlan)| WantedPort {
            field: format!("switch[{i}].vxlan[{j}]"),
            nic: switch.nic.clone(),
            owner: PortOwner::Tunnel(tunnel.name.clone()),
            spec: PortSpec::Tunnel(tunnel.clone()),
            identity: Identity::default(),
        };
        wanted.extend(switch.tunnels.iter().enumerate().map(tunnel));
    }
    for (i, adapter) in state.adapters.iter().enumerate() {
        // The interface of a VF is no port: its frames pass the card.
        let Some(nic) = state.nic_of(adapter).filter(|_| !adapter.attachment.is_vf()) else {
            continue;
        };
        wanted.push(WantedPort {
            field: format!("adapter[{i}].attachment"),
            nic: nic.name.clone(),
            owner: PortOwner::Adapter(adapter.name.clone()),
            spec: PortSpec::Attachment(adapter.attachment.clone()),
            identity: Identity::of(adapter.mac, &adapter.settings.macs, is_checked(nic, adapter)),
        });
    }
    wanted
}

/// Returns `true` if sources are checked for the adapter, by its own settings or by those of the VF
/// it names.
fn is_checked(nic: &Nic, adapter: &Adapter) -> bool {
    let own = nic.vfs.iter().find(|vf| Some(vf.index) == adapter.vf);
    adapter.settings.spoof_check || own.is_some_and(|vf| vf.settings.spoof_check)
}
