//! The words a point is told by: pattern, path, bottleneck; each with its one name in the CLI, JSON
//! and CSV.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Between whom the frames travel.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// External machine to guest and back.
    NorthSouth,
    /// From guest to guest in a chain inside one server.
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

/// The path that carries a guest's frames.
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

    /// The name as in the CLI, JSON and CSV.
    pub const fn as_str(self) -> &'static str {
        match self {
            PathKind::Vf => "vf",
            PathKind::Vhost => "vhost",
            PathKind::Virtio => "virtio",
        }
    }
}

/// The traffic over guests' sockets.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// TCP in bulk, sent by the guest.
    TcpStream,
    /// UDP in bulk, sent by the guest.
    UdpTransmit,
    /// UDP in bulk, received by the guest.
    UdpReceive,
    /// UDP requests of the guest, one at a time, and their answers.
    UdpRequest,
}

impl Workload {
    /// All of them, in the order in which reports show them.
    pub const ALL: [Workload; 4] =
        [Workload::TcpStream, Workload::UdpTransmit, Workload::UdpReceive, Workload::UdpRequest];

    /// The name as in JSON and CSV.
    pub const fn as_str(self) -> &'static str {
        match self {
            Workload::TcpStream => "tcp-stream",
            Workload::UdpTransmit => "udp-transmit",
            Workload::UdpReceive => "udp-receive",
            Workload::UdpRequest => "udp-request",
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
    /// One guest, and no other.
    Alone,
}

impl CopySetup {
    /// All of them, in the order in which reports show them.
    pub const ALL: [CopySetup; 2] = [CopySetup::Together, CopySetup::Alone];

    /// The name as in JSON and CSV.
    pub const fn as_str(self) -> &'static str {
        match self {
            CopySetup::Together => "together",
            CopySetup::Alone => "alone",
        }
    }
}

/// Who limited a point.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// The switch's lanes.
    Switch,
    /// The guests' own work.
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

/// A word that is none of the names allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a {what}; use {allowed}")]
pub struct ParseNameError {
    /// What was looked for: `pattern`, `path` or `bottleneck`.
    pub what: &'static str,
    /// The word found.
    pub value: String,
    /// The names allowed.
    pub allowed: String,
}

/// Gives a type with `ALL` and `as_str` its `Display` and `FromStr`.
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

/// The rings of the guests' adapters.
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
    /// Packed rings whose buffers are used in order, as the driver is told.
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
pub enum Load {
    /// Closed loop: a frame is sent when another one has come back, so nothing is lost.
    Closed,
    /// Overload: frames are sent as fast as the ring takes them, and what is too much is lost. The
    /// only load of results of schema 1.
    #[default]
    Overload,
}

impl Load {
    /// All loads.
    pub const ALL: [Load; 2] = [Load::Closed, Load::Overload];

    /// The name as in the CLI and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Load::Closed => "closed",
            Load::Overload => "overload",
        }
    }
}

named!(Load, "load");
named!(Pattern, "pattern");
named!(PathKind, "path");
named!(Bottleneck, "bottleneck");
named!(Workload, "workload");
named!(CopySetup, "setup");
named!(RingKind, "ring");
