//! What a checked configuration says, as plain structs. Every default is filled in.

use std::path::PathBuf;

use ::model::profile::Profile;
use wire::{Mac, Vid};

use super::api::Api;
use crate::state::{Attachment, State};

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
    /// What guests may use of the machine.
    pub limits: Limits,
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

/// What guests may use of the machine; `None`: by its memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Memory that one session may have mapped, in MiB.
    pub session_memory_mib: Option<u64>,
    /// Memory that all sessions together may have mapped, in MiB.
    pub guest_memory_mib: Option<u64>,
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
    pub profile: &'static Profile,
    /// How it treats frames from one function to another.
    pub bridging: nic::Mode,
    /// Whether it is in switchdev mode.
    pub switchdev: bool,
    /// How many VFs it can have, 0 to 255.
    pub total_vfs: u16,
    /// How much of what the profile's card could carry it carries, in thousandths; 0: no limit.
    pub budget_permille: u32,
    /// How many receive queues it has for adapters without a VF, 0 to 255.
    pub vmq_queues: u16,
    /// Its way to the wire.
    pub uplink: Option<Attachment>,
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
