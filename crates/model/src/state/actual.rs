//! What is in force, as the API tells it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Allocation, FunctionName, LinkState, MacText, PathInForce, Reason, Vlan, VpfModel};

/// What is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Actual {
    /// The NICs.
    pub nics: Vec<ActualNic>,
    /// The adapters.
    pub adapters: Vec<ActualAdapter>,
    /// The tunnels of switches.
    #[serde(default)]
    pub tunnels: Vec<ActualTunnel>,
}

/// What is behind a port, if it is no vhost-user socket: an interface, a stream socket, a capture,
/// a tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualDevice {
    /// How it is.
    pub state: DeviceState,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// Why it is not up.
    pub reason: Option<String>,
    /// What else an operator should know of it, such as how it was opened.
    pub notes: Vec<String>,
}

/// How a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceState {
    /// Frames pass.
    Up,
    /// It is there, without a carrier or anybody at the other end.
    Down,
    /// It is not there, or cannot be had; it is tried again and again.
    Gone,
}

impl std::fmt::Display for DeviceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DeviceState::Up => "up",
            DeviceState::Down => "down",
            DeviceState::Gone => "gone",
        })
    }
}

/// A tunnel as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualTunnel {
    /// The switch that it is on.
    pub switch: String,
    /// Its name.
    pub name: String,
    /// How it is.
    pub device: Option<ActualDevice>,
}

/// A NIC as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualNic {
    /// Its name.
    pub name: String,
    /// Whether it can have VFs, or why not.
    pub support: Reason,
    /// How many VFs it can have.
    pub total_vfs: u16,
    /// The VFs that are enabled.
    pub vfs: Vec<ActualVf>,
    /// What the uplink is, unless a vhost-user socket.
    #[serde(default)]
    pub uplink: Option<ActualDevice>,
    /// What the guest of the PF has, unless a vhost-user socket.
    #[serde(default)]
    pub pf: Option<ActualDevice>,
    /// In switchdev mode: what the host has of each function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub representors: Vec<ActualRepresentor>,
}

/// A representor as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualRepresentor {
    /// Of which function.
    pub of: FunctionName,
    /// Its `phys_port_name`, as of Linux, such as `pf0vf2`.
    pub name: String,
    /// What it is, such as `tap:nic0pf0vf2`.
    pub attachment: String,
    /// Whether it is up: so is the function's link then.
    pub up: bool,
    /// Its MTU in bytes, if it is an interface; the function's is no larger.
    pub mtu: Option<u32>,
    /// How its device is, unless it is a vhost-user socket.
    pub device: Option<ActualDevice>,
}

/// A VF as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualVf {
    /// Its number.
    pub index: u16,
    /// The adapter that has it.
    pub adapter: Option<String>,
    /// The address in force.
    pub mac: Option<String>,
    /// The VLAN in force.
    pub vlan: Option<u16>,
    /// Whether its link is up.
    pub link_up: bool,
}

/// An adapter as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualAdapter {
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: PathInForce,
    /// Its VF, on path `vf`.
    pub vf: Option<u16>,
    /// Its queue, on path `vmq`.
    pub queue: Option<u16>,
    /// Why it has not the wanted path; `Supported` if it has.
    pub reason: Reason,
    /// Why it has no VF; `Supported` if it has one.
    pub vf_reason: Reason,
    /// Why it has no queue; `Supported` if it has one or needs none.
    pub vmq_reason: Reason,
    /// Whether a guest is attached.
    pub connected: bool,
    /// How far its guest is.
    #[serde(default)]
    pub guest: GuestState,
    /// What its guest has, unless a vhost-user socket.
    #[serde(default)]
    pub device: Option<ActualDevice>,
    /// On path `vmq` with an AF_XDP uplink: whether the frames of its queue are placed in its
    /// guest's memory, or copied there, and why.
    #[serde(default)]
    pub placement: Option<String>,
}

/// How far a guest is with a device of its.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum GuestState {
    /// No VMM is connected.
    #[default]
    Absent,
    /// A VMM is connected, and the guest has no driver on the device: a VF is not enabled.
    Connected,
    /// The guest's driver is there.
    Driver,
    /// The driver's rings run.
    Running,
}

/// A virtual PF as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualVpf {
    /// Its name.
    pub name: String,
    /// What the guest takes it for.
    pub model: VpfModel,
    /// Whether a VMM is connected to the guest's channel; null if there is none.
    pub control: Option<bool>,
    /// The adapter behind the PF.
    pub pf: String,
    /// How far the guest is with the PF.
    pub guest: GuestState,
    /// The VFs that the guest has enabled, as far as drivers show it.
    pub enabled_vfs: u16,
    /// Its VFs.
    pub vfs: Vec<ActualVpfVf>,
}

/// A VF of a virtual PF as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualVpfVf {
    /// Its number.
    pub index: u16,
    /// The adapter behind it.
    pub adapter: Option<String>,
    /// The device of the host's behind it.
    pub vhost_vdpa: Option<String>,
    /// How far the guest is with it; null for a device of the host's.
    pub guest: Option<GuestState>,
    /// What is in force; null for a device of the host's.
    pub settings: Option<VfSettings>,
    /// Which of that the guest has set.
    pub set_by_guest: Vec<String>,
}

/// Settings that a PF has of a VF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VfSettings {
    /// The address.
    pub mac: MacText,
    /// The VLAN.
    pub vlan: Option<Vlan>,
    /// Whether sources are checked.
    pub spoof_check: bool,
    /// Whether it is trusted.
    pub trust: bool,
    /// The link state.
    pub link_state: LinkState,
    /// The assured rate in Mbit/s.
    pub min_tx_mbps: u32,
    /// The highest rate in Mbit/s; 0 for any.
    pub max_tx_mbps: u32,
}

impl ActualAdapter {
    /// An adapter that has what it was given.
    pub fn of(given: Allocation, connected: bool) -> ActualAdapter {
        let Allocation { adapter, path, vf, queue, reason, vf_reason, vmq_reason } = given;
        let (name, device, placement) = (adapter, None, None);
        let guest = if connected { GuestState::Running } else { GuestState::Absent };
        ActualAdapter {
            name,
            path,
            vf,
            queue,
            reason,
            vf_reason,
            vmq_reason,
            connected,
            guest,
            device,
            placement,
        }
    }
}

impl From<&ActualAdapter> for Allocation {
    fn from(actual: &ActualAdapter) -> Allocation {
        Allocation {
            adapter: actual.name.clone(),
            path: actual.path,
            vf: actual.vf,
            queue: actual.queue,
            reason: actual.reason,
            vf_reason: actual.vf_reason,
            vmq_reason: actual.vmq_reason,
        }
    }
}
