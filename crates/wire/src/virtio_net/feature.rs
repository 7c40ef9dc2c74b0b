//! Feature bits of a virtio network device (virtio 1.2, sections 5.1.3 and 6), by number.
//!
//! The constants are bit numbers of type `u32`, as in the specification; sets of features are
//! `u64`. The types differ so that a number cannot be used as a set: [`mask`] converts numbers to a
//! set.

/// Makes the table of constants and names from one list.
macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        $($(#[$doc])* pub const $name: u32 = $bit;)*

        /// Every feature known here: bit number and name.
        pub const ALL: &[(u32, &str)] = &[$(($bit, stringify!($name))),*];
    };
}

features! {
    /// The device completes checksums (Tx).
    VIRTIO_NET_F_CSUM = 0;
    /// The driver takes frames with a partial checksum (Rx).
    VIRTIO_NET_F_GUEST_CSUM = 1;
    /// Offloads can be changed at run time, by the control ring.
    VIRTIO_NET_F_CTRL_GUEST_OFFLOADS = 2;
    /// The device reports a maximum MTU.
    VIRTIO_NET_F_MTU = 3;
    /// The device gives its MAC.
    VIRTIO_NET_F_MAC = 5;
    /// Legacy: the device segments every type.
    VIRTIO_NET_F_GSO = 6;
    /// The driver takes TCP over IPv4 to segment (Rx).
    VIRTIO_NET_F_GUEST_TSO4 = 7;
    /// The driver takes TCP over IPv6 to segment (Rx).
    VIRTIO_NET_F_GUEST_TSO6 = 8;
    /// The driver takes segmented TCP with ECN (Rx).
    VIRTIO_NET_F_GUEST_ECN = 9;
    /// The driver takes UDP to fragment (Rx).
    VIRTIO_NET_F_GUEST_UFO = 10;
    /// The device segments TCP over IPv4 (Tx).
    VIRTIO_NET_F_HOST_TSO4 = 11;
    /// The device segments TCP over IPv6 (Tx).
    VIRTIO_NET_F_HOST_TSO6 = 12;
    /// The device segments TCP with ECN (Tx).
    VIRTIO_NET_F_HOST_ECN = 13;
    /// The device fragments UDP (Tx).
    VIRTIO_NET_F_HOST_UFO = 14;
    /// The driver can merge receive buffers.
    VIRTIO_NET_F_MRG_RXBUF = 15;
    /// The status field of the configuration is there.
    VIRTIO_NET_F_STATUS = 16;
    /// The control ring is there.
    VIRTIO_NET_F_CTRL_VQ = 17;
    /// Receive modes by the control ring.
    VIRTIO_NET_F_CTRL_RX = 18;
    /// VLAN filters by the control ring.
    VIRTIO_NET_F_CTRL_VLAN = 19;
    /// More receive modes by the control ring.
    VIRTIO_NET_F_CTRL_RX_EXTRA = 20;
    /// The driver can announce itself when asked to.
    VIRTIO_NET_F_GUEST_ANNOUNCE = 21;
    /// Several pairs of rings.
    VIRTIO_NET_F_MQ = 22;
    /// The MAC can be changed by the control ring.
    VIRTIO_NET_F_CTRL_MAC_ADDR = 23;
    /// Legacy: notify even if the driver said not to, when a ring has run empty.
    VIRTIO_F_NOTIFY_ON_EMPTY = 24;
    /// Legacy: any layout of descriptors.
    VIRTIO_F_ANY_LAYOUT = 27;
    /// Descriptors may stand in a table of their own.
    VIRTIO_F_RING_INDIRECT_DESC = 28;
    /// Notifications are asked for by index.
    VIRTIO_F_RING_EVENT_IDX = 29;
    /// vhost-user: protocol features can be negotiated; never shown to a driver.
    VHOST_USER_F_PROTOCOL_FEATURES = 30;
    /// virtio 1.0 or later.
    VIRTIO_F_VERSION_1 = 32;
    /// The device sees memory through an IOMMU.
    VIRTIO_F_ACCESS_PLATFORM = 33;
    /// Packed rings.
    VIRTIO_F_RING_PACKED = 34;
    /// Buffers are used in the order in which they were made available.
    VIRTIO_F_IN_ORDER = 35;
    /// Memory is ordered as for a device of hardware.
    VIRTIO_F_ORDER_PLATFORM = 36;
    /// The device is a PF that can have VFs.
    VIRTIO_F_SR_IOV = 37;
    /// Notifications carry data.
    VIRTIO_F_NOTIFICATION_DATA = 38;
    /// The device says what a notification carries.
    VIRTIO_F_NOTIF_CONFIG_DATA = 39;
    /// Rings can be reset one by one.
    VIRTIO_F_RING_RESET = 40;
    /// Notifications can be coalesced, by the control ring.
    VIRTIO_NET_F_NOTF_COAL = 53;
    /// The driver takes UDP over IPv4 to segment (Rx).
    VIRTIO_NET_F_GUEST_USO4 = 54;
    /// The driver takes UDP over IPv6 to segment (Rx).
    VIRTIO_NET_F_GUEST_USO6 = 55;
    /// The device segments UDP (Tx).
    VIRTIO_NET_F_HOST_USO = 56;
    /// Frames come with their hash.
    VIRTIO_NET_F_HASH_REPORT = 57;
    /// The driver gives the exact header length.
    VIRTIO_NET_F_GUEST_HDRLEN = 59;
    /// Receive side scaling.
    VIRTIO_NET_F_RSS = 60;
    /// Receive coalescing counts.
    VIRTIO_NET_F_RSC_EXT = 61;
    /// The device stands by for another with the same MAC.
    VIRTIO_NET_F_STANDBY = 62;
    /// Speed and duplex are in the configuration.
    VIRTIO_NET_F_SPEED_DUPLEX = 63;
}

/// The set of the given bit numbers; numbers above 63 are in no set.
pub const fn mask(bits: &[u32]) -> u64 {
    let mut set = 0;
    let mut rest = bits;
    while let [bit, tail @ ..] = rest {
        if *bit < u64::BITS {
            set |= 1 << *bit;
        }
        rest = tail;
    }
    set
}

/// Returns `true` if a set has a bit number.
#[inline]
pub const fn has(features: u64, bit: u32) -> bool {
    features & mask(&[bit]) != 0
}

/// The name of a bit number, as in the specification.
pub fn name(bit: u32) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == bit).map(|(_, name)| *name)
}
