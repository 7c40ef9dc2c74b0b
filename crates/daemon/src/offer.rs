//! Features offered to a guest.

use model::state::VhostUser;
use vhost_user::{BackendConfig, ProtocolFeatures};
use wire::virtio_net::feature;

/// Memory slots a guest may use.
const MEM_SLOTS: u64 = guestmem::REGIONS_MAX as u64;

/// Offloads between a guest and the daemon, in both directions. UDP fragmentation (UFO) is not
/// among them: it is obsolete.
pub(super) const OFFLOADS: [u32; 11] = [
    feature::VIRTIO_NET_F_CSUM,
    feature::VIRTIO_NET_F_HOST_TSO4,
    feature::VIRTIO_NET_F_HOST_TSO6,
    feature::VIRTIO_NET_F_HOST_ECN,
    feature::VIRTIO_NET_F_HOST_USO,
    feature::VIRTIO_NET_F_GUEST_CSUM,
    feature::VIRTIO_NET_F_GUEST_TSO4,
    feature::VIRTIO_NET_F_GUEST_TSO6,
    feature::VIRTIO_NET_F_GUEST_ECN,
    feature::VIRTIO_NET_F_GUEST_USO4,
    feature::VIRTIO_NET_F_GUEST_USO6,
];

/// The vhost-user offer for an attachment; `has_mac` if its function has an address.
pub(super) fn offer(attachment: &VhostUser, has_mac: bool) -> BackendConfig {
    let mut bits = vec![
        feature::VIRTIO_F_VERSION_1,
        feature::VIRTIO_F_ANY_LAYOUT,
        feature::VIRTIO_NET_F_MTU,
        feature::VIRTIO_NET_F_STATUS,
        // The front-end serves the control queue: a driver uses it to enable queue pairs, and to
        // acknowledge its announcement after a migration. For other drivers QEMU requests an
        // announcement from us.
        feature::VIRTIO_NET_F_CTRL_VQ,
        feature::VIRTIO_NET_F_GUEST_ANNOUNCE,
    ];
    let optional = [
        (has_mac, feature::VIRTIO_NET_F_MAC),
        (attachment.mergeable, feature::VIRTIO_NET_F_MRG_RXBUF),
        (attachment.indirect, feature::VIRTIO_F_RING_INDIRECT_DESC),
        (attachment.event_index, feature::VIRTIO_F_RING_EVENT_IDX),
        (attachment.in_order, feature::VIRTIO_F_IN_ORDER),
        (attachment.packed, feature::VIRTIO_F_RING_PACKED),
        (attachment.queue_pairs > 1, feature::VIRTIO_NET_F_MQ),
    ];
    bits.extend(optional.into_iter().filter_map(|(wanted, bit)| wanted.then_some(bit)));
    if attachment.offload {
        bits.extend(OFFLOADS);
    }
    BackendConfig {
        features: feature::mask(&bits),
        protocol_features: ProtocolFeatures::SUPPORTED,
        queue_pairs_max: attachment.queue_pairs,
        mem_slots_max: MEM_SLOTS,
    }
}
