//! What each kind of attachment has.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::yes;

/// A vhost-user socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VhostUser {
    /// The path of the socket; no other attachment has it.
    #[schema(value_type = String, format = "path")]
    pub socket: String,
    /// Who listens on it: the daemon (`server`), or the VMM (`client`); then the daemon connects,
    /// and retries.
    #[serde(default)]
    #[schema(default = "server")]
    pub mode: SocketMode,
    /// Pairs of a receive and a transmit queue.
    #[serde(default = "queue_pairs")]
    #[schema(minimum = 1, maximum = 16, default = 1)]
    pub queue_pairs: u16,
    /// The MTU offered with `VIRTIO_NET_F_MTU`, in bytes.
    #[serde(default = "mtu")]
    #[schema(minimum = 68, maximum = 65535, default = 1500)]
    pub mtu: u16,
    /// Whether mergeable receive buffers are offered, `VIRTIO_NET_F_MRG_RXBUF`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub mergeable: bool,
    /// Whether indirect descriptors are offered, `VIRTIO_F_INDIRECT_DESC`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub indirect: bool,
    /// Whether the event index is offered, `VIRTIO_F_EVENT_IDX`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub event_index: bool,
    /// Whether in-order use of buffers is offered, `VIRTIO_F_IN_ORDER`.
    #[serde(default)]
    #[schema(default = false)]
    pub in_order: bool,
    /// Whether packed rings are offered, `VIRTIO_F_RING_PACKED`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub packed: bool,
    /// Whether checksums may be left to whoever is last, and frames of up to 64 KiB be sent and
    /// received.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub offload: bool,
}

/// A tap: an interface of the kernel's that the daemon makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Tap {
    /// What the interface is called; no other attachment has it in the same namespace.
    #[schema(value_type = String, format = "interface")]
    pub interface: String,
    /// The network namespace that it is moved into; left out: the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "netns")]
    pub netns: Option<String>,
    /// Pairs of a receive and a transmit queue.
    #[serde(default = "queue_pairs")]
    #[schema(minimum = 1, maximum = 16, default = 1)]
    pub queue_pairs: u16,
    /// The MTU that the interface gets, in bytes.
    #[serde(default = "mtu")]
    #[schema(minimum = 68, maximum = 65535, default = 1500)]
    pub mtu: u16,
    /// Whether checksums may be left to whoever is last, and frames of up to 64 KiB be sent and
    /// received.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub offload: bool,
}

impl Tap {
    /// One of that name, with all else as it is without being said.
    pub fn of(interface: String) -> Tap {
        Tap { interface, netns: None, queue_pairs: queue_pairs(), mtu: mtu(), offload: yes() }
    }
}

/// An interface that is there already, by a packet socket: works with every driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Packet {
    /// The interface's name; no other attachment has it in the same namespace.
    #[schema(value_type = String, format = "interface")]
    pub interface: String,
    /// The network namespace that it is in; left out: the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "netns")]
    pub netns: Option<String>,
}

/// An interface that is there already, by AF_XDP sockets: the fast way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Xdp {
    /// The interface's name; no other attachment has it in the same namespace.
    #[schema(value_type = String, format = "interface")]
    pub interface: String,
    /// The network namespace that it is in; left out: the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "netns")]
    pub netns: Option<String>,
    /// Receive queues that are taken; left out: all that the interface has, at most 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16)]
    pub queue_pairs: Option<u16>,
    /// Of an uplink only: whether the host keeps the frames that are not for addresses and groups
    /// of the NIC.
    #[serde(default)]
    #[schema(default = false)]
    pub filter: bool,
    /// Whether the driver puts frames straight into the daemon's memory.
    #[serde(default)]
    #[schema(default = "auto")]
    pub zero_copy: ZeroCopy,
    /// How long the kernel polls the device in the daemon's name when nothing comes, in
    /// microseconds; 0 for never.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 10_000, default = 0)]
    pub busy_poll_us: u32,
}

/// A socket with frames behind their length, as QEMU's `-netdev stream` speaks it: any NIC that a
/// VMM emulates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// The path of the socket; no other attachment has it.
    #[schema(value_type = String, format = "path")]
    pub socket: String,
    /// Who listens on it: the daemon (`server`), or the VMM (`client`); then the daemon connects,
    /// and retries.
    #[serde(default)]
    #[schema(default = "server")]
    pub mode: SocketMode,
    /// The largest packet that is taken, in bytes without the Ethernet header.
    #[serde(default = "mtu")]
    #[schema(minimum = 68, maximum = 65535, default = 1500)]
    pub mtu: u16,
}

/// A capture that is played, and a file for what is delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Pcap {
    /// The capture whose frames are sent, pcap or pcapng.
    #[schema(value_type = String, format = "file")]
    pub file: String,
    /// The pcapng file for frames that are delivered here; left out: they are counted and dropped.
    /// No other attachment or mirror writes to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = "file")]
    pub sink: Option<String>,
    /// How fast frames are sent, in Mbit/s; with `rate_pps` 0 as well, as they are timed in the
    /// file.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 1_000_000, default = 0)]
    pub rate_mbps: u32,
    /// How fast frames are sent, in frames a second; not beside `rate_mbps`.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 100_000_000, default = 0)]
    pub rate_pps: u32,
    /// How often the file is played; 0 for ever.
    #[serde(default = "once")]
    #[schema(minimum = 0, maximum = 4_294_967_295u32, default = 1)]
    pub repeat: u32,
}

/// A vDPA device of the host's own kernel, which the daemon makes: for the host itself, its
/// containers, or QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Vduse {
    /// What it is called on the vDPA bus; no other attachment has it.
    #[schema(value_type = String, format = "label")]
    pub name: String,
    /// The MTU offered with `VIRTIO_NET_F_MTU`, in bytes.
    #[serde(default = "mtu")]
    #[schema(minimum = 68, maximum = 65535, default = 1500)]
    pub mtu: u16,
    /// Whether mergeable receive buffers are offered, `VIRTIO_NET_F_MRG_RXBUF`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub mergeable: bool,
    /// Whether packed rings are offered, `VIRTIO_F_RING_PACKED`.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub packed: bool,
    /// Whether checksums may be left to whoever is last, and frames of up to 64 KiB be sent and
    /// received.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub offload: bool,
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

/// Who listens on a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SocketMode {
    /// The daemon listens, the guest's VMM connects.
    #[default]
    Server,
    /// The guest's VMM listens, the daemon connects and retries.
    Client,
}

/// Whether a driver puts frames straight into the daemon's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroCopy {
    /// Where it can; else the kernel copies.
    #[default]
    Auto,
    /// The kernel copies.
    Never,
    /// It must; else the interface is not taken.
    Require,
}
