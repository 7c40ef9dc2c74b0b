//! Intel X520 (82599), 10 gigabit, with the driver `ixgbe`.

use super::Profile;
use crate::Errno;
use crate::budget::Capacity;

pub(super) const PROFILE: Profile = Profile {
    name: "x520",
    title: "Intel X520 (82599), 10 GbE, ixgbe",
    // The card has 64; the driver keeps one pool for the PF.
    total_vfs_max: 63,
    speed_mbit: 10_000,
    capacity: Capacity {
        wire_mbit: Some(10_000),
        // PCIe 2.0 at 5 GT/s, eight lanes: 32 Gbit/s each way; after headers some 25, an estimate.
        pcie_mbit: Some(50_000),
        // Line rate at 64 B in and out: 2 * 14.88 million. Uncertain for one port.
        packets_per_second: Some(29_760_000),
    },
    floods_unknown: false,
    service_tag: Some(Errno::Eprotonosupport),
    // ixgbe_ndo_set_vf_link_state() answers 0 and logs "not supported". A setting that is not
    // carried out is refused here.
    link_enable: Some(Errno::Eopnotsupp),
    link_disable: None,
    min_rate: Some(Errno::Einval),
    // ixgbe_ndo_set_vf_bw(): "cannot be less than 10Mbs", where 10 itself is refused too.
    max_rate_min_mbit: 11,
    max_rate_max_mbit: 0,
    rate_needs_link: true,
    // ixgbe_ndo_bridge_setlink() takes both modes.
    switchdev: Some(Errno::Eopnotsupp),
    vepa: None,
    extensions: Some(Errno::Eopnotsupp),
    // ixgbe_disable_sriov() while VFs are assigned to guests.
    disable_in_use: Errno::Eperm,
};
