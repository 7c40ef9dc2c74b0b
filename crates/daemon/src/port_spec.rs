//! Backend of a port as the document asks for it, and the resource that it occupies.

use std::net::IpAddr;

use model::state::{Attachment, VhostUser, Vxlan};

/// Backend of a port, from the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PortSpec {
    /// An attachment.
    Attachment(Attachment),
    /// A tunnel.
    Tunnel(Vxlan),
}

/// A resource that only one port can use at a time.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExclusiveResource<'a> {
    Socket(&'a str),
    /// Name, and path of the network namespace.
    Interface(&'a str, Option<String>),
    /// A written file.
    File(&'a str),
    /// A name on the vDPA bus.
    Vdpa(&'a str),
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
    pub(super) fn resource(&self) -> Option<ExclusiveResource<'_>> {
        match self {
            PortSpec::Attachment(Attachment::Pcap(pcap)) => {
                pcap.sink.as_deref().map(ExclusiveResource::File)
            }
            PortSpec::Attachment(Attachment::Vduse(vduse)) => {
                Some(ExclusiveResource::Vdpa(&vduse.name))
            }
            PortSpec::Attachment(attachment) => match attachment.interface() {
                Some((interface, netns)) => Some(ExclusiveResource::Interface(interface, netns)),
                None => attachment.socket().map(ExclusiveResource::Socket),
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
                | Attachment::Vduse(_),
            )
            | PortSpec::Tunnel(_) => 1,
        }
    }

    /// Field and value that name the resource.
    pub(super) fn named(&self) -> (&'static str, &str) {
        match self {
            PortSpec::Attachment(attachment) => {
                (attachment.kind().place_field(), attachment.place())
            }
            PortSpec::Tunnel(tunnel) => ("name", &tunnel.name),
        }
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
