//! Names in points: pattern, path, bottleneck; the same in the CLI, JSON and CSV.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Ends of the traffic.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// External machine to guest and back.
    NorthSouth,
    /// From guest to guest in a chain within one server.
    EastWest,
}

impl Pattern {
    /// All patterns, in the order in which reports show them.
    pub const ALL: [Pattern; 2] = [Pattern::NorthSouth, Pattern::EastWest];

    /// The name as in the CLI, JSON and CSV.
    pub const fn as_str(self) -> &'static str {
        match self {
            Pattern::NorthSouth => "north-south",
            Pattern::EastWest => "east-west",
        }
    }

    /// The name as in headings and sentences.
    pub const fn title(self) -> &'static str {
        match self {
            Pattern::NorthSouth => "North/south",
            Pattern::EastWest => "East/west",
        }
    }
}

/// Path of a guest's frames.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PathKind {
    /// A virtual function.
    Vf,
    /// The synthetic path over vhost-user.
    Vhost,
    /// The kernel's tap and bridge, the baseline.
    Virtio,
}

impl PathKind {
    /// All paths, in the order in which reports show them.
    pub const ALL: [PathKind; 3] = [PathKind::Vf, PathKind::Vhost, PathKind::Virtio];

    /// The names, which are those of nfv-2017, in the daemon's words: below tables, and in help.
    pub const MEANING: &str =
        "vf: a VF; vhost: path synthetic of the daemon; virtio: tap and bridge of Linux";

    /// Paths through the daemon.
    pub const OF_DAEMON: [PathKind; 2] = [PathKind::Vf, PathKind::Vhost];

    /// Their meaning, as in [`MEANING`](Self::MEANING).
    pub const MEANING_OF_DAEMON: &str = "vf: a VF; vhost: path synthetic of the daemon";

    /// The name as in the CLI, JSON and CSV.
    pub const fn as_str(self) -> &'static str {
        match self {
            PathKind::Vf => "vf",
            PathKind::Vhost => "vhost",
            PathKind::Virtio => "virtio",
        }
    }
}

/// Kind of traffic over guests' sockets.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SocketWorkload {
    /// TCP in bulk, sent by the guest.
    TcpStream,
    /// UDP in bulk, sent by the guest.
    UdpTransmit,
    /// UDP in bulk, received by the guest.
    UdpReceive,
    /// UDP requests of the guest, one at a time, with responses.
    UdpRequest,
}

impl SocketWorkload {
    /// All kinds, in the order in which reports show them.
    pub const ALL: [SocketWorkload; 4] = [
        SocketWorkload::TcpStream,
        SocketWorkload::UdpTransmit,
        SocketWorkload::UdpReceive,
        SocketWorkload::UdpRequest,
    ];

    /// The name as in JSON and CSV.
    pub const fn as_str(self) -> &'static str {
        match self {
            SocketWorkload::TcpStream => "tcp-stream",
            SocketWorkload::UdpTransmit => "udp-transmit",
            SocketWorkload::UdpReceive => "udp-receive",
            SocketWorkload::UdpRequest => "udp-request",
        }
    }
}

/// Guests of a file copy.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum CopySetup {
    /// Two guests on the path vf and two on the path synthetic, all at once.
    Together,
    /// A single guest.
    Alone,
}

impl CopySetup {
    /// All setups, in the order in which reports show them.
    pub const ALL: [CopySetup; 2] = [CopySetup::Together, CopySetup::Alone];

    /// The name as in JSON and CSV.
    pub const fn as_str(self) -> &'static str {
        match self {
            CopySetup::Together => "together",
            CopySetup::Alone => "alone",
        }
    }
}

/// Bottleneck of a point.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// The switch's lanes.
    Switch,
    /// The guests' processing.
    Guest,
    /// The generator; the point's rates are lower bounds.
    Generator,
    /// The uplink.
    Uplink,
}

impl Bottleneck {
    /// All bottlenecks, in the order in which reports show them.
    pub const ALL: [Bottleneck; 4] =
        [Bottleneck::Switch, Bottleneck::Guest, Bottleneck::Uplink, Bottleneck::Generator];

    /// The name as in JSON and CSV.
    pub const fn as_str(self) -> &'static str {
        match self {
            Bottleneck::Switch => "switch",
            Bottleneck::Guest => "guest",
            Bottleneck::Generator => "generator",
            Bottleneck::Uplink => "uplink",
        }
    }
}

/// Unknown name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a {what}; use {allowed}")]
pub struct ParseNameError {
    /// Kind of name: `pattern`, `path` or `bottleneck`.
    pub what: &'static str,
    /// Given name.
    pub value: String,
    /// Allowed names.
    pub allowed: String,
}

/// Implements `Display` and `FromStr` for a type with `ALL` and `as_str`.
macro_rules! named {
    ($type:ident, $what:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = ParseNameError;

            fn from_str(value: &str) -> Result<Self, ParseNameError> {
                let found = $type::ALL.into_iter().find(|one| one.as_str() == value);
                found.ok_or_else(|| ParseNameError {
                    what: $what,
                    value: value.to_owned(),
                    allowed: $type::ALL.map($type::as_str).join(", "),
                })
            }
        }
    };
}

/// Ring format of the guests' adapters.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum RingKind {
    /// Split rings.
    #[default]
    Split,
    /// Packed rings.
    Packed,
    /// Packed rings with in-order use of buffers (`VIRTIO_F_IN_ORDER`).
    PackedInOrder,
}

impl RingKind {
    /// All kinds.
    pub const ALL: [RingKind; 3] = [RingKind::Split, RingKind::Packed, RingKind::PackedInOrder];

    /// The name as in the CLI and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            RingKind::Split => "split",
            RingKind::Packed => "packed",
            RingKind::PackedInOrder => "packed-in-order",
        }
    }
}

/// Load that a generator offers.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum GeneratorLoad {
    /// Closed loop: each returned frame allows the next one to be sent, so no frame is lost.
    Closed,
    /// Overload: frames are sent as fast as the ring takes them, and the excess is lost. The only
    /// load of results of schema 1.
    #[default]
    Overload,
}

impl GeneratorLoad {
    /// All loads.
    pub const ALL: [GeneratorLoad; 2] = [GeneratorLoad::Closed, GeneratorLoad::Overload];

    /// The name as in the CLI and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            GeneratorLoad::Closed => "closed",
            GeneratorLoad::Overload => "overload",
        }
    }
}

named!(GeneratorLoad, "load");
named!(Pattern, "pattern");
named!(PathKind, "path");
named!(Bottleneck, "bottleneck");
named!(SocketWorkload, "workload");
named!(CopySetup, "setup");
named!(RingKind, "ring");
