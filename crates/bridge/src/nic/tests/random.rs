//! Random NICs and frames.

use proptest::prelude::*;
use wire::{Mac, Vid};

use super::model::{macs, of, vlans};
use super::{header, mac};
use crate::nic::*;
use crate::*;

const GROUPS: [Mac; 2] = [Mac([1, 0, 0x5e, 0, 0, 1]), Mac([0x33, 0x33, 0, 0, 0, 1])];

fn any_vid() -> impl Strategy<Value = Vid> {
    prop_oneof![Just(1), Just(2), Just(4094)].prop_map(|vid| Vid::new(vid).unwrap())
}

fn any_vlan() -> impl Strategy<Value = (Option<PortVlan>, Vids)> {
    let vlan = (any_vid(), 0..=QOS_MAX, prop::bool::weighted(0.3));
    let trunk = prop::collection::vec(any_vid(), 1..3);
    let trunk = prop::option::weighted(0.25, trunk);
    (prop::option::of(vlan), trunk).prop_map(|(vlan, trunk)| {
        let trunk: Vids = trunk.into_iter().flatten().collect();
        let vlan = vlan.map(|(vid, qos, service)| {
            let protocol = match service && trunk.is_empty() {
                true => VlanProtocol::Ieee8021Ad,
                false => VlanProtocol::Ieee8021Q,
            };
            PortVlan { vid, qos, protocol }
        });
        (vlan, trunk)
    })
}

fn any_link() -> impl Strategy<Value = LinkState> {
    prop_oneof![
        6 => Just(LinkState::Auto),
        2 => Just(LinkState::Enable),
        1 => Just(LinkState::Disable),
    ]
}

/// A function of the plain kind, or with any of the rarer settings.
fn any_function() -> impl Strategy<Value = Option<Function>> {
    let addresses =
        (0_u16..40, prop::collection::vec(0_u16..40, 0..3), prop::collection::vec(0_u16..40, 0..2));
    let groups = prop::option::weighted(0.3, prop::sample::subsequence(GROUPS.to_vec(), 0..=2));
    let modes = (prop::bool::weighted(0.2), prop::bool::weighted(0.2), any_link(), groups);
    let one = (addresses, any_vlan(), any::<bool>(), any::<bool>(), modes);
    let one = one.prop_map(|((first, more, guest), (vlan, trunk), spoof_check, plain, modes)| {
        let extra_macs = more.into_iter().map(mac).collect();
        let simple = Function { extra_macs, vlan, spoof_check, ..Function::new(mac(first)) };
        if plain {
            return simple;
        }
        let (promiscuous, all_multicast, link, groups) = modes;
        let guest_macs = guest.into_iter().map(mac).collect();
        let guest = Function { guest_macs, promiscuous, all_multicast, groups, ..simple };
        Function { trunk, link, trust: true, ..guest }
    });
    // Service tags beside a trunk are refused.
    let one = one.prop_map(|mut function| {
        if let (Some(vlan), false) = (&mut function.vlan, function.trunk.is_empty()) {
            vlan.protocol = VlanProtocol::Ieee8021Q;
        }
        function
    });
    prop::option::weighted(0.9, one)
}

pub(super) fn any_config() -> impl Strategy<Value = NicConfig> {
    let mode = prop_oneof![4 => Just(Mode::Veb), 1 => Just(Mode::Vepa), 1 => Just(Mode::Isolated)];
    let functions = (any_function(), prop::collection::vec(any_function(), 0..6));
    let queues = prop::collection::vec(any_function(), 0..4);
    let vid = prop_oneof![Just(0_u16), Just(1), Just(2), Just(4094)];
    let filter = (0_u16..40, vid).prop_map(|(n, vid)| Filter { mac: mac(n), vid });
    let switch = prop::option::of(prop::collection::vec(filter, 0..6));
    let bridge = (mode, prop::bool::weighted(0.8), any::<bool>());
    (functions, queues, switch, bridge).prop_map(
        |((pf, vfs), queues, switch, (mode, uplink_up, floods_unknown))| {
            let pf = pf.filter(|_| switch.is_none());
            let bridge = NicConfig { mode, uplink_up, floods_unknown, ..NicConfig::default() };
            let config = NicConfig { pf, vfs, queues, switch, ..bridge };
            without_most_duplicates(config)
        },
    )
}

/// Takes away queues and filters whose addresses others have, but for one in eight: else hardly any
/// NIC with a switch would be without a duplicate.
fn without_most_duplicates(mut config: NicConfig) -> NicConfig {
    let mut taken = Vec::new();
    let mut is_new = |mac: Mac, vids: &[u16]| {
        let new = vids.iter().all(|vid| !taken.contains(&(mac, *vid)));
        taken.extend(vids.iter().map(|vid| (mac, *vid)));
        new || mac.0[5] & 7 == 0
    };
    for function in config.pf.iter().chain(config.vfs.iter().flatten()) {
        for mac in macs(function) {
            is_new(mac, &vlans(function));
        }
    }
    for queue in &mut config.queues {
        *queue = queue
            .take()
            .filter(|queue| macs(queue).into_iter().all(|mac| is_new(mac, &vlans(queue))));
    }
    if let Some(filters) = &mut config.switch {
        filters.retain(|filter| is_new(filter.mac, &[filter.vid]));
    }
    config
}

/// The uplink, the PF, VFs, queues; ports without a function among them.
pub(super) fn any_source() -> impl Strategy<Value = PortId> {
    prop_oneof![
        2 => Just(PortId::UPLINK),
        3 => Just(PortId::PF),
        6 => (0_u8..7).prop_map(PortId::vf),
        1 => (0_u8..4).prop_map(PortId::queue),
    ]
}

pub(super) fn any_mac() -> impl Strategy<Value = Mac> {
    prop_oneof![
        20 => (0_u16..40).prop_map(mac),
        2 => Just(Mac::BROADCAST),
        1 => Just(Mac([1, 0, 0x5e, 0, 0, 1])),
        1 => any::<[u8; 6]>().prop_map(Mac),
    ]
}

pub(super) fn any_header() -> impl Strategy<Value = [u8; 16]> {
    let vid = prop_oneof![Just(0_u16), Just(1), Just(2), Just(4094), Just(4095)];
    let tag = (prop_oneof![Just(0x8100_u16), Just(0x88a8), Just(0x9100)], vid, 0_u16..16)
        .prop_map(|(tpid, vid, priority)| (tpid, priority << 12 | vid));
    (any_mac(), any_mac(), prop::option::weighted(0.4, tag))
        .prop_map(|(dst, src, tag)| header(dst, src, tag))
}

/// Frames of a few flows, so that bursts alike, nearly alike and mixed all occur.
pub(super) fn any_burst() -> impl Strategy<Value = Vec<[u8; 16]>> {
    let flows = prop::collection::vec((any_header(), 1_usize..20), 0..20);
    // As likely as not, flows differ in their TCIs only.
    (flows, any::<bool>()).prop_map(|(mut flows, same)| {
        if let (true, Some(&(first, _))) = (same, flows.first()) {
            flows.iter_mut().for_each(|(header, _)| header[..14].copy_from_slice(&first[..14]));
        }
        let repeated = flows.into_iter().flat_map(|(header, n)| vec![header; n]);
        repeated.take(BURST + 3).collect()
    })
}

/// Makes most sources valid, or nearly every frame would be dropped as spoofed.
pub(super) fn honest(config: &NicConfig, from: PortId, headers: &mut [[u8; 16]]) {
    let Some(function) = of(config, from) else {
        return;
    };
    for header in headers.iter_mut().filter(|header| header[15] % 4 != 3) {
        let own = macs(function);
        let any = usize::from(header[5]) % own.len();
        header[6..12].copy_from_slice(&own[any].0);
    }
}
