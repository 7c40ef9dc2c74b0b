//! Which attachments a state has.

use std::net::IpAddr;

use api::compile::PortOwner;
use model::state::{Adapter, Attachment, Nic, State, Vxlan};

use super::super::device::Identity;

/// An attachment that is to be served.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// Where the document has it.
    pub(super) field: String,
    pub(super) nic: String,
    pub(super) owner: PortOwner,
    pub(super) spec: Spec,
    pub(super) identity: Identity,
}

/// What is to be behind a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Spec {
    /// An attachment.
    Attachment(Attachment),
    /// A tunnel.
    Tunnel(Vxlan),
}

/// What only one can have at a time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    Socket(&'a str),
    /// With the namespace's path.
    Interface(&'a str, Option<String>),
    /// A file that is written.
    File(&'a str),
    /// A name on the vDPA bus.
    Vdpa(&'a str),
    /// A network, with the UDP port and the address there.
    Network(u32, u16, Option<IpAddr>),
}

impl Spec {
    /// What nobody else can have meanwhile, if anything.
    pub(super) fn place(&self) -> Option<Place<'_>> {
        match self {
            Spec::Attachment(Attachment::Pcap(pcap)) => pcap.sink.as_deref().map(Place::File),
            Spec::Attachment(Attachment::Vduse(vduse)) => Some(Place::Vdpa(&vduse.name)),
            Spec::Attachment(attachment) => match attachment.interface() {
                Some((interface, netns)) => Some(Place::Interface(interface, netns)),
                None => attachment.socket().map(Place::Socket),
            },
            Spec::Tunnel(Vxlan { vni, port, local, .. }) => {
                Some(Place::Network(*vni, *port, *local))
            }
        }
    }

    /// The queue pairs that its port has. Where they follow the interface there is room for all
    /// that are taken.
    pub(super) fn queue_pairs(&self) -> u16 {
        match self {
            Spec::Attachment(Attachment::VhostUser(socket)) => socket.queue_pairs,
            Spec::Attachment(Attachment::Tap(tap)) => tap.queue_pairs,
            Spec::Attachment(Attachment::Xdp(xdp)) => {
                xdp.queue_pairs.unwrap_or(port::xdp::QUEUE_PAIRS_DEFAULT_MAX as u16)
            }
            Spec::Attachment(_) | Spec::Tunnel(_) => 1,
        }
    }

    /// The field that has its place, and what stands there.
    pub(super) fn named(&self) -> (&'static str, &str) {
        match self {
            Spec::Attachment(attachment) => (attachment.kind().place_field(), attachment.place()),
            Spec::Tunnel(tunnel) => ("name", &tunnel.name),
        }
    }
}

impl std::fmt::Display for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Spec::Attachment(attachment) => attachment.fmt(f),
            Spec::Tunnel(tunnel) => write!(f, "vxlan:{}", tunnel.name),
        }
    }
}

/// Every attachment of a state, and every tunnel.
pub(super) fn wanted(state: &State) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for (i, nic) in state.nics.iter().enumerate() {
        let mut want = |owner, field: &str, spec: &Attachment, identity| {
            let (field, nic) = (format!("nic[{i}].{field}"), nic.name.clone());
            let spec = Spec::Attachment(spec.clone());
            wanted.push(Wanted { field, nic, owner, spec, identity });
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
        let tunnel = |(j, tunnel): (usize, &Vxlan)| Wanted {
            field: format!("switch[{i}].vxlan[{j}]"),
            nic: switch.nic.clone(),
            owner: PortOwner::Tunnel(tunnel.name.clone()),
            spec: Spec::Tunnel(tunnel.clone()),
            identity: Identity::default(),
        };
        wanted.extend(switch.tunnels.iter().enumerate().map(tunnel));
    }
    for (i, adapter) in state.adapters.iter().enumerate() {
        let Some(nic) = state.nic_of(adapter) else { continue };
        wanted.push(Wanted {
            field: format!("adapter[{i}].attachment"),
            nic: nic.name.clone(),
            owner: PortOwner::Adapter(adapter.name.clone()),
            spec: Spec::Attachment(adapter.attachment.clone()),
            identity: Identity::of(adapter.mac, &adapter.settings.macs, is_checked(nic, adapter)),
        });
    }
    wanted
}

/// Whether sources are checked of an adapter, or of the VF that it names, whose settings hold
/// there.
fn is_checked(nic: &Nic, adapter: &Adapter) -> bool {
    let own = nic.vfs.iter().find(|vf| Some(vf.index) == adapter.vf);
    adapter.settings.spoof_check || own.is_some_and(|vf| vf.settings.spoof_check)
}
