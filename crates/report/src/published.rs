//! Published results for our measurements: nfv-2017 for the same pattern, path, frame size and
//! number of guests, and hyperv-2012 for file copies. Values for transfers are in the experiment
//! files.
//!
//! Machine and NIC differ, so these values are a reference, not a target. Source and test bed:
//! `published/README.md`; Gbps are counted like ours, without FCS and summed over the guests'
//! transmit side.

use super::results::{PathKind, Pattern};

/// Paper with the forwarding rates of the table.
pub const FORWARDING: &str = "nfv-2017";

const TABLE: &str = include_str!("../../../published/nfv_dpdk_forwarding.csv");

const HEADLINES: &str = include_str!("../../../published/headlines.csv");

/// One published rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedRate {
    /// Gigabits a second.
    pub gbps: f64,
    /// Million frames a second.
    pub mpps: f64,
}

/// The paper's name for a path.
pub const fn interface(path: PathKind) -> &'static str {
    match path {
        PathKind::Vf => "sriov",
        PathKind::Vhost => "vhost",
        PathKind::Virtio => "virtio",
    }
}

/// Published rate, if any: E/W starts at 2 guests and has no virtio, frames are 64 to 1518 B.
pub fn forwarding(
    pattern: Pattern,
    path: PathKind,
    frame_bytes: u32,
    vms: u32,
) -> Option<PublishedRate> {
    let key =
        [pattern.as_str(), interface(path), &frame_bytes.to_string(), &vms.to_string()].join(",");
    let values = TABLE.lines().find_map(|line| line.strip_prefix(&key)?.strip_prefix(','))?;
    let (gbps, mpps) = values.split_once(',')?;
    Some(PublishedRate { gbps: gbps.trim().parse().ok()?, mpps: mpps.trim().parse().ok()? })
}

/// hyperv-2012's file copies: orders of magnitude and words, since its plots show no numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedCopies {
    /// Guests on SR-IOV compared with guests on the synthetic path.
    pub guests: &'static str,
    /// CPU of the host's NDIS and VMBus with SR-IOV, such as `1e2`.
    pub host_vf: &'static str,
    /// The same on the synthetic path, such as `1e3..1e4`.
    pub host_synthetic: &'static str,
}

impl PublishedCopies {
    /// Host CPU of the synthetic path over that with SR-IOV: minimum and maximum.
    pub fn host_ratio(&self) -> [f64; 2] {
        let order = |text: &str| text.parse::<f64>().unwrap_or(f64::NAN);
        let (least, most) = self
            .host_synthetic
            .split_once("..")
            .unwrap_or((self.host_synthetic, self.host_synthetic));
        [least, most].map(|synthetic| order(synthetic) / order(self.host_vf))
    }
}

/// Published file copies of hyperv-2012.
pub fn file_copy() -> PublishedCopies {
    let host = |path: &str| {
        let begins = "hyperv-2012,20 GB SMB copy to a VM";
        headline(&format!("{begins},{path},host DPC CPU usage of NDIS+VMBus,")).unwrap_or("unknown")
    };
    let guests = "hyperv-2012,20 GB SMB copy to 2+2 VMs,SR-IOV vs synthetic,guest DPC CPU usage,";
    PublishedCopies {
        guests: headline(guests).unwrap_or("unknown"),
        host_vf: host("SR-IOV"),
        host_synthetic: host("synthetic path"),
    }
}

/// Value of the line with this prefix.
fn headline(begins: &str) -> Option<&'static str> {
    let value = HEADLINES.lines().find_map(|line| line.strip_prefix(begins))?;
    value.split(',').next()
}

#[cfg(test)]
mod tests {
    use super::{PathKind, Pattern, PublishedRate, TABLE, file_copy, forwarding};

    #[test]
    fn file_copies_stand_beside_orders_of_magnitude() {
        let paper = file_copy();
        assert_eq!((paper.guests, paper.host_vf), ("no large difference", "1e2"));
        assert_eq!(paper.host_synthetic, "1e3..1e4");
        assert_eq!(paper.host_ratio(), [10.0, 100.0]);
        let one = super::PublishedCopies { host_synthetic: "1e3", ..paper };
        assert_eq!(one.host_ratio(), [10.0, 10.0]);
    }

    #[test]
    fn finds_what_the_table_holds() {
        let found = forwarding(Pattern::NorthSouth, PathKind::Vf, 64, 1);
        assert_eq!(found, Some(PublishedRate { gbps: 9.9, mpps: 20.6 }));
        let found = forwarding(Pattern::EastWest, PathKind::Vhost, 1518, 8);
        assert_eq!(found, Some(PublishedRate { gbps: 216.41, mpps: 17.73 }));
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
