//! What a receiver takes of what a header can leave to do: virtio 1.2, section 5.1.3.
//!
//! Model: a set. Which features it is made from depends on the side: the device takes what a
//! guest's transmit rings bring, the guest what its receive rings do.

use super::feature::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_GUEST_ECN, VIRTIO_NET_F_GUEST_TSO4,
    VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_USO4, VIRTIO_NET_F_GUEST_USO6,
    VIRTIO_NET_F_HOST_ECN, VIRTIO_NET_F_HOST_TSO4, VIRTIO_NET_F_HOST_TSO6, VIRTIO_NET_F_HOST_USO,
    mask,
};

bitflags::bitflags! {
    /// What a receiver takes; empty: only frames on which nothing is left to do.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Accepts: u8 {
        /// Frames whose checksum is not made.
        const CSUM = 1;
        /// TCP over IPv4 to segment.
        const TSO4 = 1 << 1;
        /// TCP over IPv6 to segment.
        const TSO6 = 1 << 2;
        /// TCP to segment that has CWR set.
        const ECN = 1 << 3;
        /// UDP to segment into datagrams, over IPv4 and IPv6.
        const USO = 1 << 4;
    }
}

impl Accepts {
    /// What a guest that negotiated `features` may leave to do on frames it sends.
    pub const fn of_transmit(features: u64) -> Self {
        Self::of([
            (Self::CSUM, has(features, &[VIRTIO_NET_F_CSUM])),
            (Self::TSO4, has(features, &[VIRTIO_NET_F_HOST_TSO4])),
            (Self::TSO6, has(features, &[VIRTIO_NET_F_HOST_TSO6])),
            (Self::ECN, has(features, &[VIRTIO_NET_F_HOST_ECN])),
            (Self::USO, has(features, &[VIRTIO_NET_F_HOST_USO])),
        ])
    }

    /// What may be left to do on frames for a guest that negotiated `features`. There are two
    /// features for UDP; one alone is too little.
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

    /// The set, without what lacks a feature that it requires (5.1.3.1): every segmentation needs
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

/// Whether all these bit numbers are in the set.
const fn has(features: u64, bits: &[u32]) -> bool {
    let wanted = mask(bits);
    features & wanted == wanted
}
