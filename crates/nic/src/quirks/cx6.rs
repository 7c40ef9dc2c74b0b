//! NVIDIA ConnectX-6, 100 gigabit, with the driver `mlx5_core` in legacy mode.

use super::Profile;
use crate::Errno;
use crate::budget::Capacity;

pub(super) const PROFILE: Profile = Profile {
    name: "cx6",
    title: "NVIDIA ConnectX-6, 100 GbE, mlx5",
    // What the firmware's NUM_OF_VFS usually allows for a port; uncertain, cards differ.
    total_vfs_max: 127,
    speed_mbit: 100_000,
    capacity: Capacity {
        wire_mbit: Some(100_000),
        // PCIe 4.0, sixteen lanes: 256 Gbit/s each way; after headers some 200, an estimate.
        pcie_mbit: Some(400_000),
        // The maker names 215 million messages a second for the card; uncertain for one port.
        packets_per_second: Some(215_000_000),
    },
    // The rule for promiscuous ports in the legacy table matches frames from the uplink only.
    floods_unknown: false,
    // mlx5e_set_vf_vlan(); a change that would have allowed it was not taken into Linux.
    service_tag: Some(Errno::Eprotonosupport),
    link_enable: None,
    link_disable: None,
    // The only one here whose driver takes a minimum. The card's minima are relative to the largest
    // of them; here they are Mbit/s.
    min_rate: None,
    max_rate_min_mbit: 1,
    max_rate_max_mbit: 0,
    rate_needs_link: false,
    // mlx5_eswitch_set_vepa().
    switchdev: None,
    vepa: None,
    extensions: Some(Errno::Eopnotsupp),
    // VFs that guests hold vanish from under them on most cards; here it is refused.
    disable_in_use: Errno::Ebusy,
};
