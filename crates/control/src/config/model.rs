//! What a checked configuration says, as plain structs. Every default is filled in.

use std::path::PathBuf;

use wire::{Mac, Vid};

use super::api::Api;
use crate::state::{Profile, State};

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where the counters file and relative sockets live; absolute. It need not exist yet.
    pub run_dir: PathBuf,
    /// Where the desired state is kept; absolute. `None`: it ends with the daemon.
    pub state_dir: Option<PathBuf>,
    /// Where the API is served, if it is.
    pub api: Option<Api>,
    /// The polling threads.
    pub lanes: Lanes,
    /// The NICs in the order of the file; names differ.
    pub nics: Vec<Nic>,
    /// The same NICs with their functions, the switches and the adapters: the desired state at a first start.
    pub state: State,
}

/// The polling threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lanes {
    /// One pinned lane for each CPU, none twice. Empty: one lane that is not pinned.
    pub cpus: Vec<usize>,
    /// How long a lane polls on after the last frame before it yields, in microseconds.
    pub poll_us: u32,
    /// How long it then yields between polls before it sleeps, in microseconds.
    pub yield_us: u32,
    /// Whether it sleeps on eventfds at all.
    pub sleep: bool,
    /// How long CPUs may take to wake up while the daemon runs, in microseconds; for the whole machine.
    pub cpu_latency_us: Option<u32>,
}

impl Lanes {
    /// How many lanes there are.
    pub fn count(&self) -> usize {
        self.cpus.len().max(1)
    }
}

/// One SR-IOV NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// 1 to 15 of `a-z`, `0-9`, `-`.
    pub name: String,
    /// What makes the NIC.
    pub kind: NicKind,
    /// Whose limits and refusals it shows.
    pub profile: Profile,
    /// How it treats frames from one function to another.
    pub bridging: nic::Mode,
    /// How many VFs it can have, 0 to 255.
    pub total_vfs: u16,
    /// How much of what the profile's card could carry it carries, in thousandths; 0: no limit.
    pub budget_permille: u32,
    /// How many receive queues it has for adapters without a VF, 0 to 255.
    pub vmq_queues: u16,
    /// Its way to the wire.
    pub uplink: Option<Uplink>,
    /// The PF, where a guest sees it as a function.
    pub pf: Option<Function>,
    /// The VFs in the order of the file; indices differ and are below `total_vfs`.
    pub vfs: Vec<Vf>,
}

/// What makes a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NicKind {
    /// The daemon itself.
    Soft,
}

/// The way to the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// What it is.
    pub kind: UplinkKind,
    /// How the far end attaches.
    pub attachment: Attachment,
}

/// What an uplink is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UplinkKind {
    /// A vhost-user socket, with a front-end in the place of the wire.
    VhostUser,
}

/// One VF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vf {
    /// Its number on the NIC.
    pub index: u16,
    /// Its settings.
    pub function: Function,
}

/// The settings that PF and VFs share. No pair of (MAC, VLAN) occurs twice on a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its own address; unicast, not zero.
    pub mac: Mac,
    /// Further addresses it receives and may send from.
    pub macs: Vec<Mac>,
    /// The VLAN it is on; `None`: untagged.
    pub vlan: Option<Vid>,
    /// What is enforced on its frames.
    pub rules: Rules,
    /// How the guest attaches.
    pub attachment: Attachment,
}

/// What is enforced on a function's frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The priority of the tag that its frames get, 0 to 7; only with a VLAN.
    pub vlan_qos: u8,
    /// The kind of that tag; only with a VLAN.
    pub vlan_protocol: nic::VlanProtocol,
    /// VLANs whose tags its guest may send and receive.
    pub trunk: Vec<Vid>,
    /// Whether frames from other addresses than its own are dropped.
    pub spoof_check: bool,
    /// Whether its guest may have more than its own address.
    pub trust: bool,
    /// Whether it receives frames of its VLANs for unknown addresses; only with trust, or the PF.
    pub promiscuous: bool,
    /// Its link.
    pub link: nic::LinkState,
    /// Its part of the transmit capacity; the minimum is not above the maximum.
    pub share: nic::Share,
    /// Broadcasts and multicasts that it may send, in frames a second; 0: no limit.
    pub storm_limit: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            vlan_qos: 0,
            vlan_protocol: nic::VlanProtocol::Ieee8021Q,
            trunk: Vec::new(),
            spoof_check: true,
            trust: false,
            promiscuous: false,
            link: nic::LinkState::Auto,
            share: nic::Share::default(),
            storm_limit: 0,
        }
    }
}

/// A vhost-user socket and what is offered on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Absolute, at most [`MAX_SOCKET_PATH_BYTES`](super::MAX_SOCKET_PATH_BYTES) long, none twice in a file.
    pub socket: PathBuf,
    /// Who listens on it.
    pub mode: SocketMode,
    /// Pairs of a receive and a transmit queue, 1 to 16.
    pub queue_pairs: u16,
    /// The MTU offered with `VIRTIO_NET_F_MTU`, 68 to 65535, in bytes.
    pub mtu: u16,
    /// Whether mergeable receive buffers are offered, `VIRTIO_NET_F_MRG_RXBUF`.
    pub mergeable: bool,
    /// Whether indirect descriptors are offered, `VIRTIO_F_INDIRECT_DESC`.
    pub indirect: bool,
    /// Whether the event index is offered, `VIRTIO_F_EVENT_IDX`.
    pub event_index: bool,
    /// Whether in-order use of buffers is offered, `VIRTIO_F_IN_ORDER`.
    pub in_order: bool,
}

/// Who listens on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketMode {
    /// The daemon listens, the guest's VMM connects.
    Server,
    /// The guest's VMM listens, the daemon connects and retries.
    Client,
}
