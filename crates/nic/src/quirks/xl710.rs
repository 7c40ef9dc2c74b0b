//! Intel XL710, 40 gigabit, with the driver `i40e`: the card of nfv-2017.

use super::Profile;
use crate::Errno;
use crate::budget::Capacity;

pub(super) const PROFILE: Profile = Profile {
    name: "xl710",
    title: "Intel XL710, 40 GbE, i40e",
    // 128 for the device, 64 for each port of a card with two.
    total_vfs_max: 64,
    speed_mbit: 40_000,
    capacity: Capacity {
        wire_mbit: Some(40_000),
        // nfv-2017: 45 Gbit/s inside the card each way, on a bus of 50 before encoding. Both ways
        // together, so that frames between VFs, which cross twice, come out at 45.
        pcie_mbit: Some(90_000),
        // nfv-2017: 39 million frames a second at best, 33 in a general configuration. Between
        // VFs the paper has 17.8 million, near the half of it.
        packets_per_second: Some(39_000_000),
    },
    floods_unknown: false,
    // From memory of i40e_ndo_set_vf_port_vlan(): "VLAN protocol is not supported".
    service_tag: Some(Errno::Eprotonosupport),
    link_enable: None,
    link_disable: None,
    // i40e_ndo_set_vf_bw(): "Invalid min tx rate (greater than 0)".
    min_rate: Some(Errno::Einval),
    // The driver raises 1 to 49 Mbit/s to 50 with a warning, and rounds down to steps of 50. Here a
    // maximum is what was asked for, so lower ones are refused instead of changed.
    max_rate_min_mbit: 50,
    max_rate_max_mbit: 0,
    rate_needs_link: false,
    // i40e_ndo_bridge_setlink() takes both modes.
    switchdev: Some(Errno::Eopnotsupp),
    vepa: None,
    extensions: Some(Errno::Eopnotsupp),
    // i40e_pci_sriov_configure() warns and answers EINVAL while VFs are assigned; from memory.
    disable_in_use: Errno::Einval,
};
