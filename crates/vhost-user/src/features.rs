//! Feature bits that front-end and back-end negotiate.
//!
//! Two negotiations: [`Features`] between the guest's driver and the device (virtio 1.2, 5.1.3 and
//! chapter 6, with two vhost-user bits in the gaps), [`ProtocolFeatures`] between front-end and
//! back-end (vhost-user.rst, "Protocol features").

use bitflags::bitflags;

bitflags! {
    /// Feature bits of a virtio-net device, as in `GET_FEATURES` and `SET_FEATURES`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Features: u64 {
        /// The device completes checksums of frames the guest sends.
        const CSUM = 1 << 0;
        /// The guest takes frames with partial checksums.
        const GUEST_CSUM = 1 << 1;
        /// The driver may change offloads at run time.
        const CTRL_GUEST_OFFLOADS = 1 << 2;
        /// The device reports its MTU.
        const MTU = 1 << 3;
        /// The device reports its MAC.
        const MAC = 1 << 5;
        /// Both sides take frames longer than the MTU (legacy).
        const GSO = 1 << 6;
        /// The guest takes TCP/IPv4 frames longer than the MTU.
        const GUEST_TSO4 = 1 << 7;
        /// The guest takes TCP/IPv6 frames longer than the MTU.
        const GUEST_TSO6 = 1 << 8;
        /// The guest takes long TCP frames with ECN.
        const GUEST_ECN = 1 << 9;
        /// The guest takes UDP datagrams to be fragmented.
        const GUEST_UFO = 1 << 10;
        /// The device takes TCP/IPv4 frames longer than the MTU.
        const HOST_TSO4 = 1 << 11;
        /// The device takes TCP/IPv6 frames longer than the MTU.
        const HOST_TSO6 = 1 << 12;
        /// The device takes long TCP frames with ECN.
        const HOST_ECN = 1 << 13;
        /// The device takes UDP datagrams to be fragmented.
        const HOST_UFO = 1 << 14;
        /// A received frame may span several buffers.
        const MRG_RXBUF = 1 << 15;
        /// The configuration space has the link state.
        const STATUS = 1 << 16;
        /// There is a control queue.
        const CTRL_VQ = 1 << 17;
        /// The control queue sets receive modes.
        const CTRL_RX = 1 << 18;
        /// The control queue sets VLAN filters.
        const CTRL_VLAN = 1 << 19;
        /// The control queue sets more receive modes.
        const CTRL_RX_EXTRA = 1 << 20;
        /// The guest announces itself when asked.
        const GUEST_ANNOUNCE = 1 << 21;
        /// Several queue pairs.
        const MQ = 1 << 22;
        /// The control queue sets the MAC.
        const CTRL_MAC_ADDR = 1 << 23;
        /// An empty ring notifies although asked not to (legacy).
        const NOTIFY_ON_EMPTY = 1 << 24;
        /// vhost: the back-end logs its writes to guest memory.
        const LOG_ALL = 1 << 26;
        /// Headers and data may share descriptors (legacy).
        const ANY_LAYOUT = 1 << 27;
        /// A descriptor may point at a table of descriptors.
        const INDIRECT_DESC = 1 << 28;
        /// Notifications are suppressed by index.
        const EVENT_IDX = 1 << 29;
        /// vhost-user: protocol features can be negotiated.
        const PROTOCOL_FEATURES = 1 << 30;
        /// virtio 1.0 or later.
        const VERSION_1 = 1 << 32;
        /// The device's addresses are translated by an IOMMU.
        const ACCESS_PLATFORM = 1 << 33;
        /// Packed rings.
        const RING_PACKED = 1 << 34;
        /// Buffers are used in the order they were made available.
        const IN_ORDER = 1 << 35;
        /// Memory accesses are ordered as the platform does.
        const ORDER_PLATFORM = 1 << 36;
        /// The device has virtual functions.
        const SR_IOV = 1 << 37;
        /// Notifications carry data.
        const NOTIFICATION_DATA = 1 << 38;
        /// Each ring has its own notification data.
        const NOTIF_CONFIG_DATA = 1 << 39;
        /// One ring can be reset.
        const RING_RESET = 1 << 40;
        /// There is an administration queue.
        const ADMIN_VQ = 1 << 41;
        /// The control queue reports statistics.
        const DEVICE_STATS = 1 << 50;
        /// The hash covers headers inside a tunnel.
        const HASH_TUNNEL = 1 << 51;
        /// The control queue sets interrupt coalescing of one ring.
        const VQ_NOTF_COAL = 1 << 52;
        /// The control queue sets interrupt coalescing.
        const NOTF_COAL = 1 << 53;
        /// The guest takes long UDP/IPv4 frames.
        const GUEST_USO4 = 1 << 54;
        /// The guest takes long UDP/IPv6 frames.
        const GUEST_USO6 = 1 << 55;
        /// The device takes long UDP frames.
        const HOST_USO = 1 << 56;
        /// The device reports a hash with each frame.
        const HASH_REPORT = 1 << 57;
        /// The driver gives exact header lengths.
        const GUEST_HDRLEN = 1 << 59;
        /// Receive-side scaling.
        const RSS = 1 << 60;
        /// The device coalesces received segments and says so.
        const RSC_EXT = 1 << 61;
        /// The device is the standby of another with the same MAC.
        const STANDBY = 1 << 62;
        /// The configuration space has speed and duplex.
        const SPEED_DUPLEX = 1 << 63;
    }
}

bitflags! {
    /// Protocol features, as in `GET_PROTOCOL_FEATURES` and `SET_PROTOCOL_FEATURES`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ProtocolFeatures: u64 {
        /// More than one queue pair.
        const MQ = 1 << 0;
        /// The dirty log is shared memory.
        const LOG_SHMFD = 1 << 1;
        /// The back-end sends a RARP for the guest after migration.
        const RARP = 1 << 2;
        /// Any request may ask for an acknowledgement.
        const REPLY_ACK = 1 << 3;
        /// The front-end sets the MTU.
        const NET_MTU = 1 << 4;
        /// The back-end may send requests.
        const BACKEND_REQ = 1 << 5;
        /// Rings of the other byte order.
        const CROSS_ENDIAN = 1 << 6;
        /// Crypto sessions.
        const CRYPTO_SESSION = 1 << 7;
        /// Postcopy migration.
        const PAGEFAULT = 1 << 8;
        /// The configuration space is read from the back-end.
        const CONFIG = 1 << 9;
        /// The back-end's requests may carry descriptors.
        const BACKEND_SEND_FD = 1 << 10;
        /// Notifications without the front-end.
        const HOST_NOTIFIER = 1 << 11;
        /// A buffer shared for requests in flight.
        const INFLIGHT_SHMFD = 1 << 12;
        /// The device can be reset by a message.
        const RESET_DEVICE = 1 << 13;
        /// Kicks and calls as messages.
        const INBAND_NOTIFICATIONS = 1 << 14;
        /// Memory regions are added and removed one by one.
        const CONFIGURE_MEM_SLOTS = 1 << 15;
        /// The virtio device status is shown to the back-end.
        const STATUS = 1 << 16;
        /// Regions are mapped as Xen grants.
        const XEN_MMAP = 1 << 17;
        /// Objects that several back-ends share.
        const SHARED_OBJECT = 1 << 18;
        /// The back-end's own state migrates with the guest.
        const DEVICE_STATE = 1 << 19;
        /// A ring may stop with requests in flight, which are recorded.
        const GET_VRING_BASE_INFLIGHT = 1 << 20;
        /// Regions have guest addresses only.
        const GPA_ADDRESSES = 1 << 21;
        /// The back-end maps memory into the guest.
        const SHMEM = 1 << 22;
    }
}

impl ProtocolFeatures {
    /// Features that [`Backend`](crate::Backend) supports, and so may offer.
    pub const SUPPORTED: Self = Self::MQ
        .union(Self::LOG_SHMFD)
        .union(Self::RARP)
        .union(Self::REPLY_ACK)
        .union(Self::NET_MTU)
        .union(Self::BACKEND_REQ)
        .union(Self::CONFIG)
        .union(Self::INFLIGHT_SHMFD)
        .union(Self::RESET_DEVICE)
        .union(Self::CONFIGURE_MEM_SLOTS)
        .union(Self::STATUS)
        .union(Self::DEVICE_STATE);
}
