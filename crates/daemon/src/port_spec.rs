//! Backend of a port as the document asks for it, and the resource that it occupies.

use std::net::IpAddr;

use host::netns;
use model::state::{Attachment, VhostUser, Vxlan};
use serde_json::Value;

/// Backend of a port, from the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PortSpec {
    /// An attachment.
    Attachment(Attachment),
    /// A tunnel.
    Tunnel(Vxlan),
}

/// A resource that only one port can use at a time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ExclusiveResource {
    Socket(String),
    /// Name, and network namespace, whatever it is called.
    Interface(String, netns::Identity),
    /// A written file.
    File(String),
    /// A name on the vDPA bus.
    Vdpa(String),
    /// VNI, UDP port and local address.
    Network(u32, u16, Option<IpAddr>),
}

impl PortSpec {
    /// Equal, apart from settings that change in place.
    pub(super) fn serves_as(&self, other: &PortSpec) -> bool {
        self == other
            || matches!((self, other), (
                PortSpec::Attachment(Attachment::VhostUser(one)),
                PortSpec::Attachment(Attachment::VhostUser(other)),
            ) if *one == VhostUser {
                socket_group: one.socket_group.clone(),
                socket_mode: one.socket_mode,
                ..other.clone()
            })
    }

    /// Exclusive resource of the port, if any.
    pub(super) fn resource(&self) -> Option<ExclusiveResource> {
        match self {
            PortSpec::Attachment(Attachment::Pcap(pcap)) => {
                pcap.sink.clone().map(ExclusiveResource::File)
            }
            PortSpec::Attachment(Attachment::Vduse(vduse)) => {
                Some(ExclusiveResource::Vdpa(vduse.name.clone()))
            }
            PortSpec::Attachment(attachment) => match attachment.interface() {
                Some((interface, netns)) => {
                    let netns = netns::identity(netns.as_deref());
                    Some(ExclusiveResource::Interface(interface.to_owned(), netns))
                }
                None => attachment.socket().map(str::to_owned).map(ExclusiveResource::Socket),
            },
            PortSpec::Tunnel(Vxlan { vni, port, local, .. }) => {
                Some(ExclusiveResource::Network(*vni, *port, *local))
            }
        }
    }

    /// Queue pairs of the port. If they follow the interface, the maximum that is used.
    pub(super) fn queue_pairs(&self) -> u16 {
        match self {
            PortSpec::Attachment(Attachment::VhostUser(socket)) => socket.queue_pairs,
            PortSpec::Attachment(Attachment::Tap(tap)) => tap.queue_pairs,
            PortSpec::Attachment(Attachment::Xdp(xdp)) => {
                xdp.queue_pairs.unwrap_or(port::xdp::QUEUE_PAIRS_DEFAULT_MAX as u16)
            }
            PortSpec::Attachment(
                Attachment::Packet(_)
                | Attachment::Stream(_)
                | Attachment::Pcap(_)
                | Attachment::Vduse(_)
                | Attachment::VfInterface(_),
            )
            | PortSpec::Tunnel(_) => 1,
        }
    }

    /// A field with its value; `None`: the one that names the resource.
    pub(super) fn named(&self, field: Option<&'static str>) -> (&'static str, Value) {
        let (naming, table) = match self {
            PortSpec::Attachment(attachment) => {
                (attachment.kind().place_field(), serde_json::to_value(attachment))
            }
            PortSpec::Tunnel(tunnel) => ("name", serde_json::to_value(tunnel)),
        };
        let field = field.unwrap_or(naming);
        (field, table.map_or(Value::Null, |mut table| table[field].take()))
    }
}

impl std::fmt::Display for PortSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PortSpec::Attachment(attachment) => attachment.fmt(f),
            PortSpec::Tunnel(tunnel) => write!(f, "vxlan:{}", tunnel.name),
        }
    }
}
