//! The state in force, as the API reports it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Allocation, FunctionName, LinkState, MacText, PathInForce, Reason, Vlan, VpfModel};

/// State in force.
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

/// Device behind a port without a vhost-user socket: an interface, a stream socket, a capture, or a
/// tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualDevice {
    /// State of the device.
    pub state: DeviceState,
    /// Time of the last change of state, in milliseconds since 1970.
    pub since_ms: u64,
    /// Reason for a state other than `up`.
    pub reason: Option<String>,
    /// Further information for the operator, such as the way the device was opened.
    pub notes: Vec<String>,
}

/// State of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceState {
    /// Frames pass.
    Up,
    /// Present, but without a carrier or a peer.
    Down,
    /// Missing or unusable; retried periodically.
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

/// A tunnel in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualTunnel {
    /// Its switch.
    pub switch: String,
    /// Its name.
    pub name: String,
    /// Its device.
    pub device: Option<ActualDevice>,
}

/// A NIC in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualNic {
    /// Its name.
    pub name: String,
    /// `Supported` if it can have VFs, else the reason.
    pub support: Reason,
    /// Most VFs.
    pub total_vfs: u16,
    /// Enabled VFs.
    pub vfs: Vec<ActualVf>,
    /// Device of the uplink; null for a vhost-user socket.
    #[serde(default)]
    pub uplink: Option<ActualDevice>,
    /// Device of the PF's guest; null for a vhost-user socket.
    #[serde(default)]
    pub pf: Option<ActualDevice>,
    /// Representors, in switchdev mode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub representors: Vec<ActualRepresentor>,
    /// The card of a NIC of kind `pci`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<ActualCard>,
}

/// A card in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualCard {
    /// PCI address of its PF.
    pub address: String,
    /// `true` while the PF is there.
    pub present: bool,
    /// Interface of the PF; null without a driver.
    pub interface: Option<String>,
    /// Driver of the PF.
    pub driver: Option<String>,
    /// NUMA node of the PF; null on a machine with one.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// Settings in force that differ from the document's.
    pub differences: Vec<Difference>,
}

/// A setting of a card that differs from the document's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// Index of the VF; null for a setting of the PF.
    pub vf: Option<u16>,
    /// Name of the setting in the document, such as `vlan`.
    pub setting: String,
    /// Value of the document.
    pub wanted: String,
    /// Value that the driver reports.
    pub actual: String,
    /// `true` if the driver accepted the value and never reported it; `false` if others changed it.
    pub accepted: bool,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Difference { vf, setting, wanted, actual, accepted } = self;
        if let Some(vf) = vf {
            write!(f, "VF {vf}, ")?;
        }
        match accepted {
            true => write!(f, "{setting}: {wanted} is accepted, not in force: {actual}"),
            false => write!(f, "{setting}: {actual}, not {wanted}"),
        }
    }
}

/// A representor in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualRepresentor {
    /// Its function.
    pub of: FunctionName,
    /// Its `phys_port_name`, as in Linux, such as `pf0vf2`.
    pub name: String,
    /// Its attachment, such as `tap:nic0pf0vf2`.
    pub attachment: String,
    /// `true` if it is up; the function's link follows it.
    pub up: bool,
    /// MTU of its interface in bytes, if it is one; the function's MTU is no larger.
    pub mtu: Option<u32>,
    /// Its device; null for a vhost-user socket.
    pub device: Option<ActualDevice>,
}

/// A VF in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualVf {
    /// Its index.
    pub index: u16,
    /// PCI address of a card's VF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The adapter on it.
    pub adapter: Option<String>,
    /// MAC address in force.
    pub mac: Option<String>,
    /// VLAN in force.
    pub vlan: Option<u16>,
    /// `true` if its link is up.
    pub link_up: bool,
    /// Settings that the driver of a card reports, by their names in the document.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reported: BTreeMap<String, String>,
    /// Counters of the driver of a card, if it has counted anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<VfCounters>,
}

/// Counters of a VF of a card; 0 where its driver does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VfCounters {
    /// Received packets.
    pub rx_packets: u64,
    /// Transmitted packets.
    pub tx_packets: u64,
    /// Received bytes.
    pub rx_bytes: u64,
    /// Transmitted bytes.
    pub tx_bytes: u64,
    /// Broadcast packets.
    pub broadcast: u64,
    /// Multicast packets.
    pub multicast: u64,
    /// Dropped packets on reception.
    pub rx_dropped: u64,
    /// Dropped packets on transmission.
    pub tx_dropped: u64,
}

/// An adapter in force.
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
    /// Reason for another path than the wanted one; else `Supported`.
    pub reason: Reason,
    /// Reason for having no VF; else `Supported`.
    pub vf_reason: Reason,
    /// Reason for having no queue; `Supported` if it has one or needs none.
    pub vmq_reason: Reason,
    /// `true` while a guest is attached.
    pub connected: bool,
    /// `true` if its link is up, by its `link_state` and for `auto` by the uplink's.
    #[serde(default)]
    pub link_up: bool,
    /// Progress of its guest.
    #[serde(default)]
    pub guest: GuestState,
    /// Its device; null for a vhost-user socket.
    #[serde(default)]
    pub device: Option<ActualDevice>,
    /// On path `vmq` with an AF_XDP uplink: placement of its queue's frames, directly in the
    /// guest's memory or by copy, with the reason.
    #[serde(default)]
    pub placement: Option<String>,
}

/// Progress of a guest with a device.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum GuestState {
    /// No VMM is connected.
    #[default]
    Absent,
    /// A VMM is connected, but the guest has no driver on the device: a VF is not enabled.
    Connected,
    /// The guest's driver is loaded.
    Driver,
    /// The driver's rings are running.
    Running,
}

/// A virtual PF in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualVpf {
    /// Its name.
    pub name: String,
    /// Device model in the guest.
    pub model: VpfModel,
    /// `true` if a VMM is connected to the guest's channel; null without a channel.
    pub control: Option<bool>,
    /// The adapter behind the PF.
    pub pf: String,
    /// Progress of the guest with the PF.
    pub guest: GuestState,
    /// Number of VFs that the guest has enabled, as far as its drivers show it.
    pub enabled_vfs: u16,
    /// Its VFs.
    pub vfs: Vec<ActualVpfVf>,
}

/// A VF of a virtual PF in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ActualVpfVf {
    /// Its index.
    pub index: u16,
    /// The adapter behind it.
    pub adapter: Option<String>,
    /// The host's device behind it.
    pub vhost_vdpa: Option<String>,
    /// Progress of the guest with it; null for a device of the host.
    pub guest: Option<GuestState>,
    /// Settings in force; null for a device of the host.
    pub settings: Option<VfSettings>,
    /// Names of the settings that the guest has made.
    pub set_by_guest: Vec<String>,
}

/// Settings of a VF, from the PF's view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VfSettings {
    /// MAC address.
    pub mac: MacText,
    /// The VLAN.
    pub vlan: Option<Vlan>,
    /// `true` if source addresses are checked.
    pub spoof_check: bool,
    /// `true` if the VF is trusted.
    pub trust: bool,
    /// The link state.
    pub link_state: LinkState,
    /// Guaranteed rate in Mbit/s.
    pub min_tx_mbps: u32,
    /// Maximum rate in Mbit/s; 0: no limit.
    pub max_tx_mbps: u32,
}

impl ActualAdapter {
    /// An adapter with its allocation.
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
            link_up: true,
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
