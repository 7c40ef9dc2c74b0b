//! What nfv-2017 published for the same pattern, path, frame size and number of guests.
//!
//! Its machine and NIC were others, so these values are a mark beside ours, never a yardstick. Source and test bed:
//! `published/README.md`; Gbps are counted as ours, without FCS and summed over the guests' transmit side.

use super::model::{PathKind, Pattern};

const TABLE: &str = include_str!("../../../../published/nfv_dpdk_forwarding.csv");

/// One published value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// Gigabits a second.
    pub gbps: f64,
    /// Million frames a second.
    pub mpps: f64,
}

/// The name of a path's counterpart in the paper.
pub const fn interface(path: PathKind) -> &'static str {
    match path {
        PathKind::Vf => "sriov",
        PathKind::Vhost => "vhost",
        PathKind::Virtio => "virtio",
    }
}

/// The published value, if there is one: E/W starts at 2 guests and has no virtio, frames are 64 to 1518 B.
pub fn forwarding(
    pattern: Pattern,
    path: PathKind,
    frame_bytes: u32,
    vms: u32,
) -> Option<Published> {
    let key =
        [pattern.as_str(), interface(path), &frame_bytes.to_string(), &vms.to_string()].join(",");
    let values = TABLE.lines().find_map(|line| line.strip_prefix(&key)?.strip_prefix(','))?;
    let (gbps, mpps) = values.split_once(',')?;
    Some(Published { gbps: gbps.trim().parse().ok()?, mpps: mpps.trim().parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::{PathKind, Pattern, Published, TABLE, forwarding};

    #[test]
    fn finds_what_the_table_holds() {
        let found = forwarding(Pattern::NorthSouth, PathKind::Vf, 64, 1);
        assert_eq!(found, Some(Published { gbps: 9.9, mpps: 20.6 }));
        let found = forwarding(Pattern::EastWest, PathKind::Vhost, 1518, 8);
        assert_eq!(found, Some(Published { gbps: 216.41, mpps: 17.73 }));
    }

    #[test]
    fn every_row_is_found_and_no_other() {
        let frames = [64, 128, 256, 512, 1024, 1518];
        let mut found = 0;
        for pattern in Pattern::ALL {
            for path in PathKind::ALL {
                for frame in frames {
                    found += (0..=9)
                        .filter(|&vms| forwarding(pattern, path, frame, vms).is_some())
                        .count();
                }
            }
        }
        assert_eq!(found, TABLE.lines().count() - 1);
        assert_eq!(forwarding(Pattern::EastWest, PathKind::Vf, 64, 1), None);
        assert_eq!(forwarding(Pattern::NorthSouth, PathKind::Vf, 6, 4), None);
    }
}
