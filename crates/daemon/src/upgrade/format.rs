//! What one daemon tells the next: the messages, and all that is in them.
//!
//! Model: JSON, with descriptors beside it ([`Fd`]). A program that meets a field that it does not
//! know refuses the whole, for it would lose what stands there; one that misses a field does so
//! too, unless a default is given for it here. [`FORMAT`] counts the meanings that changed
//! otherwise.
//!
//! Order: [`Offer`], [`Reply::Understood`]; [`HandoverState`], [`Reply::Ready`]; [`Rest`],
//! [`Reply::Attached`]; [`Word::Go`]. [`Reply::Failed`] may stand in the place of each reply, and
//! ends it.

use std::path::PathBuf;

use api::EventList;
use api::compile::PortOwner;
use api::stats::{OffloadStats, RuleStats};
use model::state::PathInForce;
use serde::{Deserialize, Serialize};

/// The version of this format.
pub(super) const FORMAT: u32 = 2;

/// A descriptor, by its place among those beside the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(in super::super) struct Fd(pub(super) u32);

/// The first word: who offers, and in which format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    /// [`FORMAT`].
    pub(super) format: u32,
    /// The program's version, for people.
    pub(super) version: String,
}

/// What the new daemon says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Reply {
    /// It knows the format.
    Understood {
        /// The program's version, for people.
        version: String,
    },
    /// It has everything that it can have while the other serves.
    Ready,
    /// It has every ring and device, and lanes that stand: it waits for [`Word::Go`].
    Attached,
    /// It cannot.
    Failed {
        /// Why.
        why: String,
    },
}

/// The old daemon's last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Word {
    /// The new one serves from now on. Whoever says it does nothing after; whoever hears it has
    /// moved no frame before, and ends if it never does.
    Go,
}

/// What is handed over while the old daemon serves.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HandoverState {
    /// What errors call the configuration, and its text.
    pub(super) config: (String, String),
    /// The process whose end ends the daemon, if there is one.
    pub(super) guardian: Option<Fd>,
    /// Holds the run directory.
    pub(super) run_lock: Fd,
    /// Holds the state directory.
    pub(super) state_lock: Fd,
    /// The generation of the state that is stored there, and in force.
    pub(super) generation: u64,
    /// Where the API is asked, if it is.
    pub(super) api: Option<ApiDoors>,
    /// What happened lately.
    pub(super) events: EventList,
    /// Which path suits adapters that follow their traffic.
    pub(super) suited: Vec<(String, PathInForce)>,
    /// The VF that each adapter has.
    pub(super) vfs: Vec<(String, u16)>,
    /// The queue that each adapter has.
    pub(super) queues: Vec<(String, u16)>,
    /// The vhost-user sockets.
    pub(super) sockets: Vec<(Place, Socket)>,
}

/// Where something is attached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Place {
    /// The NIC.
    pub(in super::super) nic: String,
    /// Whose attachment.
    pub(in super::super) owner: Owner,
}

/// As [`PortOwner`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in super::super) enum Owner {
    /// The wire's.
    Uplink,
    /// The PF's guest's.
    Pf,
    /// An adapter's.
    Adapter(String),
    /// A tunnel's.
    Tunnel(String),
    /// A representor's, by the function's name.
    Representor(String),
}

impl Place {
    /// Of an attachment of a NIC.
    pub(in super::super) fn of(nic: &str, attached: &PortOwner) -> Place {
        let owner = match attached {
            PortOwner::Uplink => Owner::Uplink,
            PortOwner::Pf => Owner::Pf,
            PortOwner::Adapter(name) => Owner::Adapter(name.clone()),
            PortOwner::Tunnel(name) => Owner::Tunnel(name.clone()),
            PortOwner::Representor(of) => Owner::Representor(of.to_string()),
        };
        Place { nic: nic.to_owned(), owner }
    }
}

impl std::fmt::Display for Place {
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

/// The API's sockets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApiDoors {
    pub(super) unix: Listening,
    pub(super) tcp: Option<Fd>,
}

/// A UNIX socket that is listened on.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Listening {
    pub(in super::super) socket: Fd,
    pub(in super::super) path: PathBuf,
    /// Device and inode of its file.
    pub(in super::super) file: Option<(u64, u64)>,
}

/// A vhost-user socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Socket {
    /// In server mode.
    pub(in super::super) listening: Option<Listening>,
    /// The session, while there is one.
    pub(in super::super) session: Option<Session>,
    /// For how long nobody may attach yet, ms.
    pub(in super::super) banned_ms: Option<u64>,
}

/// A front-end's session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Session {
    pub(in super::super) stream: Fd,
    /// What was received of a message whose rest has not come, in hexadecimal, and what came with
    /// it.
    pub(in super::super) partial: (String, Vec<Fd>),
    pub(in super::super) features: u64,
    pub(in super::super) protocol_features: u64,
    pub(in super::super) status: u8,
    pub(in super::super) mtu: u16,
    /// The configuration space as the front-end knows it, in hexadecimal.
    pub(in super::super) told: String,
    pub(in super::super) memory: Vec<Region>,
    /// The dirty log, and whether the state machine knows of one.
    pub(in super::super) log: Option<Area>,
    pub(in super::super) has_log: bool,
    /// Records of what is in flight, for so many rings of so many entries.
    pub(in super::super) records: Option<(Area, u16, u16)>,
    /// Through which the state of a device that was moved comes.
    pub(in super::super) arriving: Option<Fd>,
    /// Over which the front-end takes requests.
    pub(in super::super) channel: Option<Fd>,
    /// Guest address, front-end address, bytes.
    pub(in super::super) slots: Vec<[u64; 3]>,
    pub(in super::super) rings: Vec<Ring>,
}

/// A region of a guest's memory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Region {
    pub(in super::super) guest_addr: u64,
    pub(in super::super) size: u64,
    pub(in super::super) user_addr: u64,
    pub(in super::super) mmap_offset: u64,
    pub(in super::super) file: Fd,
}

/// A piece of a file that is shared with the front-end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Area {
    pub(in super::super) size: u64,
    pub(in super::super) offset: u64,
    pub(in super::super) file: Fd,
}

/// A ring of a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Ring {
    pub(in super::super) size: Option<u16>,
    /// Descriptors, available, used.
    pub(in super::super) addresses: Option<[u64; 3]>,
    /// Guest address at which writes to the used ring are logged.
    pub(in super::super) log: Option<u64>,
    pub(in super::super) base: u32,
    pub(in super::super) kick: Kick,
    pub(in super::super) call: Option<Fd>,
    pub(in super::super) err: Option<Fd>,
    pub(in super::super) enabled: bool,
    /// Whether it runs, and so goes on.
    pub(in super::super) running: bool,
}

/// How a guest kicks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in super::super) enum Kick {
    Unset,
    Poll,
    Fd(Fd),
}

/// What is handed over once the old daemon's lanes touch nothing any more.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Rest {
    /// Where each ring of a vhost-user socket goes on.
    pub(in super::super) positions: Vec<(Place, Vec<u32>)>,
    /// Devices that can be handed over; others are opened again.
    pub(in super::super) devices: Vec<(Place, Device)>,
    /// Files that get copies of frames: NIC, path, and how far they are.
    pub(in super::super) captures: Vec<Capture>,
    /// What switches learned.
    pub(in super::super) learned: Vec<Learned>,
    /// How often rules of ACLs were met.
    pub(in super::super) rules: Vec<RuleStats>,
    /// What rules of switchdev mode have counted.
    pub(in super::super) offloads: Vec<OffloadStats>,
}

/// A device, as [`port::PortHandover`] has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Device {
    pub(in super::super) fds: Vec<Fd>,
    /// In hexadecimal.
    pub(in super::super) words: String,
}

/// A file that is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Capture {
    pub(in super::super) nic: String,
    pub(in super::super) path: String,
    pub(in super::super) file: Fd,
    /// Bytes of whole blocks.
    pub(in super::super) bytes: u64,
}

/// What a NIC's switch learned.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Learned {
    pub(in super::super) nic: String,
    /// The switch's name.
    pub(in super::super) switch: String,
    /// Whose port each number is; 0 is the uplink's, which has no name.
    pub(in super::super) ports: Vec<(u16, String)>,
    /// Address, VLAN, port and ticks of each, 11 bytes in hexadecimal.
    pub(in super::super) entries: String,
}
