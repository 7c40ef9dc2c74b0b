//! A card without quirks: as many VFs as there can be, and everything that can be set.

use super::Profile;
use crate::Errno;
use crate::budget::Capacity;

pub(super) const PROFILE: Profile = Profile {
    name: "ideal",
    title: "a card without quirks",
    total_vfs_max: 255,
    // The most that a rate can be held against; no frame is held up by it.
    speed_mbit: 400_000,
    capacity: Capacity { wire_mbit: None, pcie_mbit: None, packets_per_second: None },
    floods_unknown: true,
    service_tag: None,
    link_enable: None,
    link_disable: None,
    min_rate: None,
    max_rate_min_mbit: 0,
    max_rate_max_mbit: 0,
    rate_needs_link: false,
    switchdev: None,
    vepa: None,
    extensions: None,
    disable_in_use: Errno::Ebusy,
};
