//! Format of the handover: messages and their contents.
//!
//! # Model
//! JSON, with descriptors attached ([`Fd`]). A program rejects a message with an unknown field,
//! whose content it would lose. It also rejects one without a field, unless a default is given
//! here. [`FORMAT`] counts other incompatible changes.
//!
//! # Order
//! [`HandoverOffer`], [`HandoverReply::Understood`]; [`HandoverState`], [`HandoverReply::Ready`];
//! [`FinalState`], [`HandoverReply::Attached`]; [`FinalMessage::Go`]. [`HandoverReply::Failed`] may
//! replace each reply, and ends the handover.

use std::path::PathBuf;

use api::EventList;
use api::compile::PortOwner;
use api::stats::{OffloadStats, RuleStats};
use model::state::PathInForce;
use serde::{Deserialize, Serialize};

/// Version of this format.
pub(crate) const FORMAT: u32 = 2;

/// A descriptor, by its index among those of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Fd(pub(crate) u32);

/// First message: version of the old process and of its format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandoverOffer {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// Program version, for error messages.
    pub(crate) version: String,
}

/// Reply of the new process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum HandoverReply {
    /// The format is known.
    Understood {
        /// Program version, for error messages.
        version: String,
    },
    /// Everything possible is prepared while the old process serves.
    Ready,
    /// All rings and devices are attached, the lanes are stopped: waits for [`FinalMessage::Go`].
    Attached,
    /// The takeover failed.
    Failed {
        /// Cause.
        why: String,
    },
}

/// Last message of the old process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FinalMessage {
    /// The new process serves from now on. The old one does nothing after sending it; the new one
    /// has moved no frame before, and exits without it.
    Go,
}

/// State handed over while the old process serves.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HandoverState {
    /// Configuration: name for error messages, and text.
    pub(crate) config: (String, String),
    /// Pidfd of the process whose end stops the daemon, if there is one.
    pub(crate) guardian: Option<Fd>,
    /// Lock of the run directory.
    pub(crate) run_lock: Fd,
    /// Lock of the state directory.
    pub(crate) state_lock: Fd,
    /// Generation of the stored state, which is in force.
    pub(crate) generation: u64,
    /// Sockets of the API, if it is served.
    pub(crate) api: Option<ApiSocketsHandover>,
    /// Recent events.
    pub(crate) events: EventList,
    /// Path suited to each adapter with `path = "auto"`.
    pub(crate) suited: Vec<(String, PathInForce)>,
    /// VF of each adapter.
    pub(crate) vfs: Vec<(String, u16)>,
    /// Queue of each adapter.
    pub(crate) queues: Vec<(String, u16)>,
    /// vhost-user sockets.
    pub(crate) sockets: Vec<(PortKey, SocketHandover)>,
}

/// Location of a port: NIC and owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortKey {
    /// NIC.
    pub(crate) nic: String,
    /// Owner of the attachment.
    pub(crate) owner: Owner,
}

/// Mirrors [`PortOwner`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Owner {
    /// The uplink.
    Uplink,
    /// The PF.
    Pf,
    /// An adapter.
    Adapter(String),
    /// A tunnel.
    Tunnel(String),
    /// A representor, by the function's name.
    Representor(String),
}

impl PortKey {
    /// Location of an attachment of a NIC.
    pub(crate) fn of(nic: &str, attached: &PortOwner) -> PortKey {
        let owner = match attached {
            PortOwner::Uplink => Owner::Uplink,
            PortOwner::Pf => Owner::Pf,
            PortOwner::Adapter(name) => Owner::Adapter(name.clone()),
            PortOwner::Tunnel(name) => Owner::Tunnel(name.clone()),
            PortOwner::Representor(of) => Owner::Representor(of.to_string()),
        };
        PortKey { nic: nic.to_owned(), owner }
    }
}

impl std::fmt::Display for PortKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nic = &self.nic;
        match &self.owner {
            Owner::Uplink => write!(f, "{nic}/uplink"),
            Owner::Pf => write!(f, "{nic}/pf"),
            Owner::Adapter(name) => write!(f, "adapter {name}"),
            Owner::Tunnel(name) => write!(f, "{nic}/vxlan:{name}"),
            Owner::Representor(of) => write!(f, "the representor of {nic}/{of}"),
        }
    }
}

/// Sockets of the API.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApiSocketsHandover {
    pub(crate) unix: ListenerHandover,
    pub(crate) tcp: Option<Fd>,
}

/// A listening UNIX socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenerHandover {
    pub(crate) socket: Fd,
    pub(crate) path: PathBuf,
    /// Device and inode of its file.
    pub(crate) file: Option<(u64, u64)>,
}

/// A vhost-user socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketHandover {
    /// In server mode only.
    pub(crate) listening: Option<ListenerHandover>,
    /// Session, if there is one.
    pub(crate) session: Option<SessionHandover>,
    /// Remaining time of the attach ban, in milliseconds.
    pub(crate) banned_ms: Option<u64>,
}

/// Session of a front-end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionHandover {
    pub(crate) stream: Fd,
    /// Partial message received, in hexadecimal, and its descriptors.
    pub(crate) partial: (String, Vec<Fd>),
    pub(crate) features: u64,
    pub(crate) protocol_features: u64,
    pub(crate) status: u8,
    pub(crate) mtu: u16,
    /// Configuration space as last sent to the front-end, in hexadecimal.
    pub(crate) told: String,
    pub(crate) memory: Vec<RegionHandover>,
    /// Dirty log.
    pub(crate) log: Option<AreaHandover>,
    pub(crate) has_log: bool,
    /// In-flight records: file area, number of rings, entries of a ring.
    pub(crate) records: Option<(AreaHandover, u16, u16)>,
    /// Pipe through which a migrated device state arrives.
    pub(crate) arriving: Option<Fd>,
    /// Back-end channel for requests to the front-end.
    pub(crate) channel: Option<Fd>,
    /// Memory slots: guest address, front-end address, bytes.
    pub(crate) slots: Vec<[u64; 3]>,
    pub(crate) rings: Vec<RingHandover>,
}

/// A region of a guest's memory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegionHandover {
    pub(crate) guest_addr: u64,
    pub(crate) size: u64,
    pub(crate) user_addr: u64,
    pub(crate) mmap_offset: u64,
    pub(crate) file: Fd,
}

/// Part of a file shared with the front-end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AreaHandover {
    pub(crate) size: u64,
    pub(crate) offset: u64,
    pub(crate) file: Fd,
}

/// A ring of a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RingHandover {
    pub(crate) size: Option<u16>,
    /// Addresses of descriptors, available ring, used ring.
    pub(crate) addresses: Option<[u64; 3]>,
    /// Guest address at which writes to the used ring are logged.
    pub(crate) log: Option<u64>,
    pub(crate) base: u32,
    pub(crate) kick: KickHandover,
    pub(crate) call: Option<Fd>,
    pub(crate) err: Option<Fd>,
    pub(crate) enabled: bool,
    /// The ring runs, and is to be resumed.
    pub(crate) running: bool,
}

/// Kick mode of a ring.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum KickHandover {
    Unset,
    Poll,
    Fd(Fd),
}

/// State handed over once the old process's lanes touch nothing any more.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FinalState {
    /// Position of each ring of a vhost-user socket.
    pub(crate) positions: Vec<(PortKey, Vec<u32>)>,
    /// Devices that support handover; others are reopened.
    pub(crate) devices: Vec<(PortKey, DeviceHandover)>,
    /// Capture files.
    pub(crate) captures: Vec<CaptureHandover>,
    /// Learned addresses of switches.
    pub(crate) learned: Vec<LearnedAddresses>,
    /// Hit counters of ACL rules.
    pub(crate) rules: Vec<RuleStats>,
    /// Counters of switchdev rules.
    pub(crate) offloads: Vec<OffloadStats>,
}

/// A device, from [`port::PortHandover`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviceHandover {
    pub(crate) fds: Vec<Fd>,
    /// In hexadecimal.
    pub(crate) words: String,
}

/// A capture file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CaptureHandover {
    pub(crate) nic: String,
    pub(crate) path: String,
    pub(crate) file: Fd,
    /// Bytes of whole blocks.
    pub(crate) bytes: u64,
}

/// Learned addresses of a NIC's switch.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LearnedAddresses {
    pub(crate) nic: String,
    /// Name of the switch.
    pub(crate) switch: String,
    /// Owner of each port number; 0 is the uplink, which has no name.
    pub(crate) ports: Vec<(u16, String)>,
    /// Address, VLAN, port and ticks of each entry: 11 bytes, in hexadecimal.
    pub(crate) entries: String,
}
