//! Parts that need no kernel: device parameters, records and state.

use api::Events;
use vduse::DeviceSpec;
use wire::Mac;
use wire::virtio_net::feature;

use super::open::{config, spec};
use super::*;

fn attachment() -> Vduse {
    Vduse { name: "web0".to_owned(), mtu: 9000, mergeable: true, packed: true, offload: true }
}

fn has(spec: &DeviceSpec, bit: u32) -> bool {
    feature::has(spec.features, bit)
}

#[test]
fn what_is_offered_is_what_the_kernel_takes_and_the_settings_say() {
    let plain = Vduse { mergeable: false, packed: false, offload: false, ..attachment() };
    for (attachment, has_mac) in [(attachment(), true), (plain, false)] {
        let spec = spec(&attachment, has_mac, Vec::new());
        for bit in [feature::VIRTIO_F_VERSION_1, feature::VIRTIO_F_ACCESS_PLATFORM] {
            assert!(has(&spec, bit), "the kernel demands it");
        }
        for bit in [feature::VIRTIO_NET_F_CTRL_VQ, feature::VIRTIO_NET_F_MQ] {
            assert!(!has(&spec, bit), "the kernel refuses it, or a driver without the other one");
        }
        let settings = [
            (feature::VIRTIO_NET_F_MAC, has_mac),
            (feature::VIRTIO_NET_F_MRG_RXBUF, attachment.mergeable),
            (feature::VIRTIO_F_RING_PACKED, attachment.packed),
            (feature::VIRTIO_NET_F_HOST_TSO4, attachment.offload),
            (feature::VIRTIO_NET_F_GUEST_CSUM, attachment.offload),
        ];
        for (bit, wanted) in settings {
            assert_eq!(has(&spec, bit), wanted, "bit {bit}");
        }
        assert_eq!((spec.name.as_str(), spec.rings), ("web0", 2));
    }
}

#[test]
fn the_configuration_says_address_link_and_mtu() {
    let mac = Mac([2, 0, 0, 0, 0, 7]);
    let identity = Identity { mac: Some(mac), announces: None };
    let of = |mtu, up| config(&attachment(), &identity, (mtu, up));
    let up = of(None, true);
    assert_eq!((&up[..6], &up[6..8], &up[10..12]), (&mac.0[..], &[1, 0][..], &[0x28, 0x23][..]));
    assert_eq!(&of(None, false)[6..8], [0, 0]);
    assert_eq!(of(Some(1500), true)[10..12], 1500u16.to_le_bytes());
    assert_eq!(of(Some(70_000), true)[10..12], 9000u16.to_le_bytes(), "never more than its own");
}

#[test]
fn how_a_device_was_made_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let records = DeviceRecords::new(directory.path());
    let made = spec(&attachment(), true, Vec::new());
    assert!(records.is(&made).is_none(), "no record yet");
    records.put(&made);
    assert_eq!(records.is(&made), Some(true));
    let other = spec(&Vduse { offload: false, ..attachment() }, true, Vec::new());
    assert_eq!(records.is(&other), Some(false));
    let longer = DeviceSpec { config: vec![0; 12], ..made.clone() };
    assert_eq!(records.is(&longer), Some(false), "another version's configuration");
    let again = DeviceRecords::new(directory.path());
    assert_eq!(again.is(&made), Some(true), "the next daemon");
    again.remove("web0");
    assert!(records.is(&made).is_none());
}

#[test]
fn how_far_rings_have_come_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let records = DeviceRecords::new(directory.path());
    let made = spec(&attachment(), true, Vec::new());
    assert!(records.inflight(&made, false).is_err(), "there is no file");
    let inflight = records.inflight(&made, true).unwrap();
    assert!(inflight.of(1, 256).is_some() && inflight.of(2, 256).is_none());
    assert!(records.inflight(&made, false).is_ok());
    let other = DeviceSpec { ring_size_max: 512, ..made.clone() };
    assert!(records.inflight(&other, false).is_err(), "it is for other rings");
    records.remove("web0");
    assert!(records.inflight(&made, false).is_err());
}

#[test]
fn what_becomes_of_a_device_is_told_once() {
    let events = Events::default();
    let noted = PortEvents::new(events.clone(), "nic0/web", Some("web"));
    let mut status = VdpaStatus::new("vduse:web0".to_owned(), noted);
    assert_eq!(
        status.note(true, false).as_deref(),
        Some("vduse:web0 is down: no driver has started it")
    );
    assert_eq!(status.note(true, false), None);
    assert_eq!(status.note(true, true).as_deref(), Some("vduse:web0 is up"));
    assert_eq!(status.actual.state, DeviceState::Up);
    status.fail("it broke".to_owned());
    assert_eq!(status.note(false, false).as_deref(), Some("vduse:web0 is gone: it broke"));
    status.forget();
    assert_eq!(status.note(true, true).as_deref(), Some("vduse:web0 is up"));
    let told = |subject: &str| {
        let all = events.since(0).events.into_iter();
        let texts = all.filter(|event| event.subject == subject).map(|event| event.text);
        texts.collect::<Vec<_>>()
    };
    assert_eq!(told("port nic0/web").len(), 4);
    assert_eq!(told("adapter web"), ["attached", "left", "attached"]);
    for i in 0..100 {
        status.note(true, i % 2 == 0);
    }
    assert_eq!(told("port nic0/web").len(), 20, "events are limited");
}
