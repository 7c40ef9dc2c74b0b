//! Attachments, as the document says them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::function::yes;
use super::text;

/// How a guest reaches its adapter, or the wire its uplink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// What it is.
    #[serde(default)]
    #[schema(default = "vhost-user")]
    pub kind: AttachmentKind,
    /// The vhost-user socket; no other attachment has it.
    #[schema(schema_with = text::path)]
    pub socket: String,
    /// Who listens on it.
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
    /// Whether mergeable receive buffers are offered.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub mergeable: bool,
    /// Whether indirect descriptors are offered.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub indirect: bool,
    /// Whether the event index is offered.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub event_index: bool,
    /// Whether in-order use of buffers is offered.
    #[serde(default)]
    #[schema(default = false)]
    pub in_order: bool,
}

fn queue_pairs() -> u16 {
    1
}

fn mtu() -> u16 {
    1500
}

/// What an attachment is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AttachmentKind {
    /// A vhost-user socket.
    #[default]
    VhostUser,
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
