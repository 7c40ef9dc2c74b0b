//! Kinds of attachments, and the settings of each.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::super::text;
use super::super::{InterfaceAddress, SocketPermissions, yes};

declare_kinds! {
    /// A vhost-user socket; the default.
    VhostUser = "vhost-user", socket;
    /// A tap.
    Tap = "tap", interface;
    /// An interface, by a packet socket.
    Packet = "packet", interface;
    /// An interface, by AF_XDP sockets.
    Xdp = "xdp", interface;
    /// A socket with length-prefixed frames.
    Stream = "stream", socket;
    /// Playback of a capture.
    Pcap = "pcap", file;
    /// A vDPA device of the host's kernel.
    Vduse = "vduse", name;
    /// The interface of the adapter's VF, in a network namespace.
    VfInterface = "vf", interface;
}

/// A vhost-user socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VhostUser {
    /// Path of the socket, unique among attachments.
    #[schema(value_type = String, format = "path")]
    pub socket: String,
    /// Listener of the socket: the daemon (`server`), or the VMM (`client`); then the daemon
    /// connects, and retries.
    #[serde(default)]
    #[schema(default = "server")]
    pub mode: SocketMode,
    /// Group that may connect, in mode `server`. Left out: the daemon's `socket_group`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "group")]
    pub socket_group: Option<String>,
    /// Permissions of the socket, in mode `server`. Left out: the daemon's `socket_mode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<SocketPermissions>,
    /// Pairs of a receive and a transmit queue.
    #[serde(default = "queue_pairs")]
    #[schema(minimum = 1, maximum = 16, default = 1)]
    pub queue_pairs: u16,
    /// The MTU offered with `VIRTIO_NET_F_MTU`, in bytes.
    #[serde(default = "mtu")]
    #[schema(minimum = 68, maximum = 65535, default = 1500)]
    pub mtu: u16,
    /// Offer mergeable receive buffers, `VIRTIO_NET_F_MRG_RXBUF`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub mergeable: bool,
    /// Offer indirect descriptors, `VIRTIO_F_INDIRECT_DESC`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub indirect: bool,
    /// Offer the event index, `VIRTIO_F_EVENT_IDX`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub event_index: bool,
    /// Offer in-order use of buffers, `VIRTIO_F_IN_ORDER`.
    #[serde(default)]
    #[schema(default = false)]
    pub in_order: bool,
    /// Offer packed rings, `VIRTIO_F_RING_PACKED`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub packed: bool,
    /// Offer checksum offload, and segmentation offload in both directions with frames of up to 64
    /// KiB.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub offload: bool,
}

/// A tap: a kernel interface that the daemon creates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Tap {
    /// Name of the interface, unique among attachments of the namespace.
    #[schema(value_type = String, format = "interface")]
    pub interface: String,
    /// Network namespace for the interface; left out: the daemon's own. A guest's interface in it
    /// outlives the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "netns")]
    pub netns: Option<String>,
    /// IP addresses of the interface, each with the length of its network's prefix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub ip: Vec<InterfaceAddress>,
    /// Gateways of default routes: one for each IP version, in a network of `ip` or link-local.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(schema_with = gateways)]
    pub gateway: Vec<IpAddr>,
    /// Pairs of a receive and a transmit queue.
    #[serde(default = "queue_pairs")]
    #[schema(minimum = 1, maximum = 16, default = 1)]
    pub queue_pairs: u16,
    /// MTU of the interface, in bytes.
    #[serde(default = "mtu")]
    #[schema(minimum = 68, maximum = 65535, default = 1500)]
    pub mtu: u16,
    /// Offer checksum offload, and segmentation offload in both directions with frames of up to 64
    /// KiB.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub offload: bool,
}

impl Tap {
    /// A tap of that name with default settings.
    pub fn of(interface: String) -> Tap {
        let (netns, ip, gateway) = (None, Vec::new(), Vec::new());
        let (queue_pairs, mtu, offload) = (queue_pairs(), mtu(), yes());
        Tap { interface, netns, ip, gateway, queue_pairs, mtu, offload }
    }
}

/// An existing interface, through a packet socket: works with every driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Packet {
    /// Name of the interface, unique among attachments of the namespace.
    #[schema(value_type = String, format = "interface")]
    pub interface: String,
    /// Network namespace of the interface; left out: the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "netns")]
    pub netns: Option<String>,
}

/// An existing interface, through AF_XDP sockets: fast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Xdp {
    /// Name of the interface, unique among attachments of the namespace.
    #[schema(value_type = String, format = "interface")]
    pub interface: String,
    /// Network namespace of the interface; left out: the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "netns")]
    pub netns: Option<String>,
    /// Receive queues to use; left out: all of the interface, at most 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16)]
    pub queue_pairs: Option<u16>,
    /// Uplink only: leave frames to the host unless they are for addresses or groups of the NIC.
    #[serde(default)]
    #[schema(default = false)]
    pub filter: bool,
    /// Zero copy: the driver receives directly into the daemon's memory.
    #[serde(default)]
    #[schema(default = "auto")]
    pub zero_copy: ZeroCopy,
    /// Time that the kernel busy-polls the device for the daemon without frames, in microseconds;
    /// 0: never.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 10_000, default = 0)]
    pub busy_poll_us: u32,
}

/// A socket with length-prefixed frames, the protocol of QEMU's `-netdev stream`: for any NIC that
/// a VMM emulates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Path of the socket, unique among attachments.
    #[schema(value_type = String, format = "path")]
    pub socket: String,
    /// Listener of the socket: the daemon (`server`), or the VMM (`client`); then the daemon
    /// connects, and retries.
    #[serde(default)]
    #[schema(default = "server")]
    pub mode: SocketMode,
    /// Group that may connect, in mode `server`. Left out: the daemon's `socket_group`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "group")]
    pub socket_group: Option<String>,
    /// Permissions of the socket, in mode `server`. Left out: the daemon's `socket_mode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<SocketPermissions>,
    /// Largest packet accepted, in bytes without the Ethernet header.
    #[serde(default = "mtu")]
    #[schema(minimum = 68, maximum = 65535, default = 1500)]
    pub mtu: u16,
}

/// Plays a capture, and records delivered frames to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Pcap {
    /// Capture to send, pcap or pcapng.
    #[schema(value_type = String, format = "capture")]
    pub file: String,
    /// pcapng file for delivered frames, used by no other attachment or mirror. Left out: counted
    /// and dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "capture")]
    pub sink: Option<String>,
    /// Transmit rate in Mbit/s; with `rate_pps` 0 too, the capture's own timing.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub rate_mbps: u32,
    /// Transmit rate in frames a second; not together with `rate_mbps`.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 100_000_000, default = 0)]
    pub rate_pps: u32,
    /// Number of times to play the file; 0: endlessly.
    #[serde(default = "once")]
    #[schema(minimum = 0, maximum = 4_294_967_295u32, default = 1)]
    pub repeat: u32,
}

/// A vDPA device of the host's kernel, created by the daemon: for the host itself, its containers,
/// or QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vduse {
    /// Name on the vDPA bus, unique among attachments.
    #[schema(value_type = String, format = "label")]
    pub name: String,
    /// The MTU offered with `VIRTIO_NET_F_MTU`, in bytes.
    #[serde(default = "mtu")]
    #[schema(minimum = 68, maximum = 65535, default = 1500)]
    pub mtu: u16,
    /// Offer mergeable receive buffers, `VIRTIO_NET_F_MRG_RXBUF`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub mergeable: bool,
    /// Offer packed rings, `VIRTIO_F_RING_PACKED`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub packed: bool,
    /// Offer checksum offload, and segmentation offload in both directions with frames of up to 64
    /// KiB.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub offload: bool,
}

/// The kernel's own interface of a card's VF, moved into a network namespace: frames pass the card,
/// not the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VfInterface {
    /// Name of the interface in its namespace, unique there among attachments.
    #[schema(value_type = String, format = "interface")]
    pub interface: String,
    /// Network namespace for the interface; must be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "netns")]
    pub netns: Option<String>,
    /// IP addresses of the interface, each with the length of its network's prefix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub ip: Vec<InterfaceAddress>,
    /// Gateways of default routes: one for each IP version, in a network of `ip` or link-local.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(schema_with = gateways)]
    pub gateway: Vec<IpAddr>,
    /// MTU of the interface, in bytes.
    #[serde(default = "mtu")]
    #[schema(minimum = 68, maximum = 65535, default = 1500)]
    pub mtu: u16,
}

fn queue_pairs() -> u16 {
    1
}

fn mtu() -> u16 {
    1500
}

fn once() -> u32 {
    1
}

fn gateways() -> utoipa::openapi::schema::Array {
    let gateways = utoipa::openapi::schema::ArrayBuilder::new().items(text::schema("ip-address"));
    let description =
        "Gateways of default routes: one for each IP version, in a network of `ip` or link-local.";
    gateways.max_items(Some(2)).description(Some(description)).build()
}

/// Listener of a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SocketMode {
    /// The daemon listens, the guest's VMM connects.
    #[default]
    Server,
    /// The guest's VMM listens, the daemon connects and retries.
    Client,
}

/// Use of AF_XDP zero copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroCopy {
    /// If the driver supports it; otherwise the kernel copies.
    #[default]
    Auto,
    /// Never: the kernel copies.
    Never,
    /// Required: without it the interface is not used.
    Require,
}
