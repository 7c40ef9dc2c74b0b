//! Offloads that a header can ask for and a receiver can take: virtio 1.2, section 5.1.3.
//!
//! Model: a set, derived from the features of one side. The device takes the frames of a guest's
//! transmit rings, the guest those of its receive rings.

use super::feature::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6,
    VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO,
    mask,
};

bitflags::bitflags! {
    /// Offloads that a receiver takes; empty: only frames without any.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OffloadSet: u8 {
        /// Frames with a partial checksum.
        const CSUM = 1;
        /// TCP over IPv4 to segment.
        const TSO4 = 1 << 1;
        /// TCP over IPv6 to segment.
        const TSO6 = 1 << 2;
        /// TCP to segment, with CWR set.
        const ECN = 1 << 3;
        /// UDP to segment into datagrams, over IPv4 and IPv6.
        const USO = 1 << 4;
    }
}

impl OffloadSet {
    /// Offloads that a guest with `features` may ask for on frames it sends.
    pub const fn of_transmit(features: u64) -> Self {
        Self::of([
            (Self::CSUM, has(features, &[VIRTIO_NET_F_CSUM])),
            (Self::TSO4, has(features, &[VIRTIO_NET_F_HOST_TSO4])),
            (Self::TSO6, has(features, &[VIRTIO_NET_F_HOST_TSO6])),
            (Self::ECN, has(features, &[VIRTIO_NET_F_HOST_ECN])),
            (Self::USO, has(features, &[VIRTIO_NET_F_HOST_USO])),
        ])
    }

    /// Offloads allowed on frames for a guest with `features`. UDP needs both of its features.
    pub const fn of_receive(features: u64) -> Self {
        let uso = [VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6];
        Self::of([
            (Self::CSUM, has(features, &[VIRTIO_NET_F_GUEST_CSUM])),
            (Self::TSO4, has(features, &[VIRTIO_NET_F_GUEST_TSO4])),
            (Self::TSO6, has(features, &[VIRTIO_NET_F_GUEST_TSO6])),
            (Self::ECN, has(features, &[VIRTIO_NET_F_GUEST_ECN])),
            (Self::USO, has(features, &uso)),
        ])
    }

    /// The set, without offloads that lack a required feature (5.1.3.1): every segmentation needs
    /// the checksum, ECN needs TCP.
    const fn of(features: [(Self, bool); 5]) -> Self {
        let mut set = Self::empty();
        let mut rest: &[(Self, bool)] = &features;
        while let [(feature, there), tail @ ..] = rest {
            if *there {
                set = set.union(*feature);
            }
            rest = tail;
        }
        if !set.contains(Self::CSUM) {
            return Self::empty();
        }
        if !set.intersects(Self::TSO4.union(Self::TSO6)) {
            return set.difference(Self::ECN);
        }
        set
    }
}

/// Returns `true` if all these bit numbers are in the set.
const fn has(features: u64, bits: &[u32]) -> bool {
    let wanted = mask(bits);
    features & wanted == wanted
}
