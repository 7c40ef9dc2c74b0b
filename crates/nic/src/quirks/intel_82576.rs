//! Intel 82576, gigabit, with the driver `igb`.
//!
//! Refusals as observed with Linux's driver on QEMU's model of the card: 802.1ad "Protocol not
//! supported", a minimum "Invalid argument", any link state "Operation not supported". The model of
//! QEMU accepts maxima and spoof checks and does not enforce them; here they are enforced.

use super::Profile;
use crate::Errno;
use crate::budget::Capacity;

pub(super) const PROFILE: Profile = Profile {
    name: "82576",
    title: "Intel 82576, 1 GbE, igb",
    // The card has 8; the driver keeps one pool for the PF, and Linux shows sriov_totalvfs = 7.
    total_vfs_max: 7,
    speed_mbit: 1_000,
    capacity: Capacity {
        wire_mbit: Some(1_000),
        // PCIe 2.0 at 2.5 GT/s, four lanes: 8 Gbit/s each way. What is left of it after headers,
        // some 6.5 Gbit/s, is an estimate.
        pcie_mbit: Some(13_000),
        // Line rate at 64 B, in and out, and as much again: uncertain, no limit is published.
        packets_per_second: Some(2_976_000),
    },
    floods_unknown: false,
    service_tag: Some(Errno::Eprotonosupport),
    // The driver has no such operation, so not even auto can be set; auto is the default, and
    // setting what is in force is not refused here.
    link_enable: Some(Errno::Eopnotsupp),
    link_disable: Some(Errno::Eopnotsupp),
    min_rate: Some(Errno::Einval),
    max_rate_min_mbit: 1,
    max_rate_max_mbit: 0,
    // igb_ndo_set_vf_bw() looks at the link.
    rate_needs_link: true,
    // The driver has no bridge operations.
    switchdev: Some(Errno::Eopnotsupp),
    vepa: Some(Errno::Eopnotsupp),
    extensions: Some(Errno::Eopnotsupp),
    // igb_disable_sriov() while VFs are assigned to guests.
    disable_in_use: Errno::Eperm,
};
