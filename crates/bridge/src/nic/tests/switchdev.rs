//! Switchdev mode: rules one by one, and against a model that compares fields.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use wire::vlan::{TPID_8021AD, TPID_8021Q};
use wire::{FrameHeader, HeaderSnapshot, Mac, Vid};

use super::{function, mac};
use crate::matching::*;
use crate::nic::*;
use crate::*;

/// A frame by its fields.
#[derive(Clone, Debug)]
struct Frame {
    dst: Mac,
    src: Mac,
    /// TPID, priority, VID.
    tag: Option<(u16, u16, u16)>,
    payload: Payload,
}

#[derive(Clone, Debug)]
enum Payload {
    Arp,
    /// Source, destination, protocol, ports.
    Ip(u8, u8, u8, u16, u16),
    /// IPv4 that ends within its header.
    Cut,
}

fn addr(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, n / 16, n % 16)
}

impl Frame {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = [self.dst.0, self.src.0].concat();
        if let Some((tpid, priority, vid)) = self.tag {
            bytes.extend(tpid.to_be_bytes());
            bytes.extend((priority << 13 | vid).to_be_bytes());
        }
        match self.payload {
            Payload::Arp => bytes.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]),
            Payload::Cut => bytes.extend([8, 0, 0x45, 0, 0, 40]),
            Payload::Ip(src, dst, protocol, src_port, dst_port) => {
                bytes.extend([8, 0, 0x45, 0, 0, 48, 0, 0, 0, 0, 64, protocol, 0, 0]);
                bytes.extend(addr(src).octets());
                bytes.extend(addr(dst).octets());
                bytes.extend(src_port.to_be_bytes());
                bytes.extend(dst_port.to_be_bytes());
                bytes.extend([0; 24]);
            }
        }
        bytes
    }

    /// Reference matcher, by the documentation.
    fn fits(&self, asked: &Match) -> bool {
        let is_mac = |asked: Option<MacPrefix>, mac| asked.is_none_or(|asked| asked.mac == mac);
        let within = |asked: &Option<std::ops::RangeInclusive<u16>>, n: Option<u16>| {
            asked.as_ref().is_none_or(|range| n.is_some_and(|n| range.contains(&n)))
        };
        let is_ip = |asked: Option<IpPrefix>, ip: Option<Ipv4Addr>| {
            asked.is_none_or(|asked| {
                let IpAddr::V4(of) = asked.addr else { return false };
                let mask = u32::MAX.checked_shl(32 - u32::from(asked.len)).unwrap_or(0);
                ip.is_some_and(|ip| ip.to_bits() & mask == of.to_bits())
            })
        };
        let ethertype = if matches!(self.payload, Payload::Arp) { 0x0806 } else { 0x0800 };
        let (src, dst, protocol, ports) = match self.payload {
            Payload::Ip(src, dst, protocol, src_port, dst_port) => {
                let ports = matches!(protocol, 6 | 17).then_some((src_port, dst_port));
                (Some(addr(src)), Some(addr(dst)), Some(protocol), ports)
            }
            Payload::Arp | Payload::Cut => (None, None, None, None),
        };
        is_mac(asked.src_mac, self.src)
            && is_mac(asked.dst_mac, self.dst)
            && asked.ethertype.is_none_or(|asked| asked == ethertype)
            && within(&asked.vid, Some(self.tag.map_or(0, |(_, _, vid)| vid)))
            && is_ip(asked.src_ip, src)
            && is_ip(asked.dst_ip, dst)
            && asked.protocol.is_none_or(|asked| protocol == Some(asked))
            && within(&asked.src_port, ports.map(|(src, _)| src))
            && within(&asked.dst_port, ports.map(|(_, dst)| dst))
    }
}

fn exact(mac: Mac) -> MacPrefix {
    MacPrefix { mac, len: 48 }
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let payload = prop_oneof![
        2 => Just(Payload::Arp),
        1 => Just(Payload::Cut),
        8 => (0_u8..32, 0_u8..32, prop_oneof![Just(6_u8), Just(17), Just(47)], 0_u16..4, 0_u16..4)
            .prop_map(|(src, dst, protocol, a, b)| Payload::Ip(src, dst, protocol, a, b)),
    ];
    let tpid = prop_oneof![Just(TPID_8021Q), Just(TPID_8021AD)];
    let tag = prop::option::weighted(0.4, (tpid, 0_u16..8, 0_u16..3));
    (0_u16..6, 0_u16..6, tag, payload).prop_map(|(dst, src, tag, payload)| Frame {
        dst: mac(dst),
        src: mac(src),
        tag,
        payload,
    })
}

fn any_match() -> impl Strategy<Value = Match> {
    let some = |of| prop::option::weighted(0.3, of);
    let macs = (some(0_u16..6), some(0_u16..6));
    let ports = prop::option::weighted(0.2, (0_u16..3, 0_u16..3));
    let prefix = || prop::option::weighted(0.3, (0_u8..32, prop_oneof![Just(24_u8), Just(32)]));
    let upper = (prop_oneof![4 => Just(None), 1 => Just(Some(6_u8)), 1 => Just(Some(17))], ports);
    let vid = prop::option::weighted(0.3, (0_u16..3, 0_u16..3));
    let arp = prop::bool::weighted(0.1);
    (macs, (prefix(), prefix()), upper, vid, arp).prop_map(
        |((src, dst), (src_ip, dst_ip), (protocol, ports), vid, arp)| {
            let l2 = Match {
                src_mac: src.map(|n| exact(mac(n))),
                dst_mac: dst.map(|n| exact(mac(n))),
                vid: vid.map(|(a, b)| a.min(b)..=a.max(b)),
                ..Match::default()
            };
            if arp {
                return Match { ethertype: Some(0x0806), ..l2 };
            }
            let ip = |of: Option<(u8, u8)>| {
                let masked = |n: u8, len| if len == 24 { n & !15 } else { n };
                of.map(|(n, len)| IpPrefix { addr: addr(masked(n, len)).into(), len })
            };
            let src_port = ports.map(|(a, b)| a.min(b)..=a.max(b));
            Match { src_ip: ip(src_ip), dst_ip: ip(dst_ip), protocol, src_port, ..l2 }
        },
    )
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let to = prop_oneof![
        Just(RuleTarget::Port(PortId::UPLINK)),
        Just(RuleTarget::Port(PortId::vf(1))),
        Just(RuleTarget::Representor),
        Just(RuleTarget::Drop),
    ];
    let from = prop_oneof![3 => Just(PortId::vf(0)), 1 => Just(PortId::PF)];
    (from, any_match(), to).prop_map(|(from, matches, to)| Rule {
        from,
        matches,
        to,
        pop: false,
        push: None,
    })
}

/// A NIC with a PF and two VFs, none of them checked.
fn nic(rules: Vec<Rule>) -> NicConfig {
    let free = |n| Some(Function { spoof_check: false, ..function(n, None) });
    NicConfig {
        pf: free(100),
        vfs: vec![free(101), free(102)],
        switchdev: Some(rules),
        ..NicConfig::default()
    }
}

fn sort(config: &NicConfig, from: PortId, frames: &[Frame]) -> Vec<SwitchdevAction> {
    let table = Table::build(config).unwrap();
    let bytes: Vec<Vec<u8>> = frames.iter().map(Frame::bytes).collect();
    let headers: Vec<[u8; 16]> =
        bytes.iter().map(|it| FrameHeader::of_frame(it).unwrap().0).collect();
    let snapshots: Vec<HeaderSnapshot> =
        bytes.iter().map(|it| HeaderSnapshot::of_frame(it)).collect();
    let mut actions = SwitchdevActions::new();
    let shallow = if table.needs_snapshots(from) { &snapshots[..] } else { &[] };
    table.sort(from, &headers, shallow, &mut actions);
    if actions.wants_snapshots() {
        table.sort(from, &headers, &snapshots, &mut actions);
    }
    actions.as_slice().to_vec()
}

fn frame(dst: u16, src: u16) -> Frame {
    Frame { dst: mac(dst), src: mac(src), tag: None, payload: Payload::Arp }
}

fn rule(from: PortId, to: RuleTarget) -> Rule {
    Rule { from, matches: Match::default(), to, pop: false, push: None }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_first_rule_that_fits_decides(
        rules in prop::collection::vec(any_rule(), 0..80),
        frames in prop::collection::vec((any_frame(), 1_usize..3), 1..30),
    ) {
        let frames: Vec<Frame> =
            frames.into_iter().flat_map(|(frame, n)| vec![frame; n]).take(BURST).collect();
        let actions = sort(&nic(rules.clone()), PortId::vf(0), &frames);
        for (frame, action) in frames.iter().zip(actions) {
            let first = rules.iter().position(|rule| rule.from == PortId::vf(0) && frame.fits(&rule.matches));
            let expected = first.map_or(SwitchdevAction::Slow, |number| SwitchdevAction::Rule(number as u16));
            prop_assert_eq!(action, expected, "{:?}", frame);
        }
    }
}

#[test]
fn without_rules_all_frames_are_for_the_representor_and_none_for_a_neighbour() {
    let config = nic(Vec::new());
    let frames = [frame(102, 101), frame(7, 9), Frame { dst: Mac::BROADCAST, ..frame(0, 101) }];
    for from in [PortId::UPLINK, PortId::PF, PortId::vf(0)] {
        assert_eq!(sort(&config, from, &frames), vec![SwitchdevAction::Slow; 3], "{from}");
    }
    let no_function = SwitchdevAction::Drop(DropReason::NoFunction);
    assert_eq!(sort(&config, PortId::vf(7), &frames), vec![no_function; 3]);
}

#[test]
fn a_link_that_is_down_and_a_forged_source_come_before_rules() {
    let to = RuleTarget::Port(PortId::vf(1));
    let mut config = nic(vec![rule(PortId::vf(0), to)]);
    config.vfs[0] = Some(function(101, None)); // checked
    let frames = [frame(7, 101), frame(7, 55)];
    let spoofed = SwitchdevAction::Drop(DropReason::SpoofedMac);
    assert_eq!(sort(&config, PortId::vf(0), &frames), [SwitchdevAction::Rule(0), spoofed]);
    let mut several = function(101, None);
    several.extra_macs = vec![mac(55)];
    config.vfs[0] = Some(several);
    assert_eq!(sort(&config, PortId::vf(0), &frames), [SwitchdevAction::Rule(0); 2]);
    config.vfs[0] = Some(Function { link: LinkState::Disable, ..function(101, None) });
    let down = SwitchdevAction::Drop(DropReason::LinkDown);
    assert_eq!(sort(&config, PortId::vf(0), &frames), [down; 2]);
}

/// A rule for frames without a VLAN would let it pass into that of the second tag.
#[test]
fn a_priority_tag_hides_no_other_tag() {
    let untagged = Match { vid: Some(0..=0), ..Match::default() };
    let to = RuleTarget::Port(PortId::UPLINK);
    let of = |from| Rule { matches: untagged.clone(), ..rule(from, to) };
    let table = Table::build(&nic(vec![of(PortId::vf(0))])).unwrap();
    let forbidden = SwitchdevAction::Drop(DropReason::VlanForbidden);
    for tpid in [TPID_8021Q, TPID_8021AD] {
        let one = Frame { tag: Some((tpid, 7, 0)), ..frame(1, 2) }.bytes();
        let two = [&one[..16], &[0x81, 0, 0, 10], &one[16..]].concat();
        let headers = [&one, &two].map(|bytes| FrameHeader::of_frame(bytes).unwrap().0);
        let snapshots = [&one, &two].map(|bytes| HeaderSnapshot::of_frame(bytes));
        let mut actions = SwitchdevActions::new();
        table.sort(PortId::vf(0), &headers, &[], &mut actions);
        assert_eq!((actions.as_slice(), actions.wants_snapshots()), (&[forbidden; 2][..], true));
        table.sort(PortId::vf(0), &headers, &snapshots, &mut actions);
        assert_eq!(actions.as_slice(), [SwitchdevAction::Rule(0), forbidden]);
        table.sort(PortId::UPLINK, &headers, &[], &mut actions);
        assert_eq!(
            (actions.as_slice(), actions.wants_snapshots()),
            (&[SwitchdevAction::Slow; 2][..], false)
        );
    }
}

#[test]
fn tags_are_changed_as_the_rule_says() {
    let vlan = PortVlan { vid: Vid::new(7).unwrap(), qos: 5, protocol: VlanProtocol::Ieee8021Ad };
    let plain = rule(PortId::vf(0), RuleTarget::Port(PortId::UPLINK));
    let pops = Rule { pop: true, ..plain.clone() };
    let pushes = Rule { push: Some(vlan), ..plain.clone() };
    let both = Rule { pop: true, ..pushes.clone() };
    let untagged = FrameHeader::of_frame(&frame(1, 2).bytes()).unwrap().0;
    let tagged = Frame { tag: Some((TPID_8021Q, 0, 9)), ..frame(1, 2) };
    let tagged = FrameHeader::of_frame(&tagged.bytes()).unwrap().0;
    let tag = [0x88, 0xa8, 0xa0, 7];
    assert_eq!((plain.edit(&untagged), plain.edit(&tagged)), (VlanEdit::None, VlanEdit::None));
    assert_eq!((pops.edit(&untagged), pops.edit(&tagged)), (VlanEdit::None, VlanEdit::Pop));
    assert_eq!(
        (pushes.edit(&untagged), pushes.edit(&tagged)),
        (VlanEdit::Push(tag), VlanEdit::Push(tag))
    );
    assert_eq!(
        (both.edit(&untagged), both.edit(&tagged)),
        (VlanEdit::Push(tag), VlanEdit::Retag(tag))
    );
}

#[test]
fn only_what_rules_name_is_looked_at() {
    let shallow = Match { dst_mac: Some(exact(mac(1))), vid: Some(0..=0), ..Match::default() };
    let transport = Match { protocol: Some(6), ..Match::default() };
    let of = |from, matches| Rule { matches, ..rule(from, RuleTarget::Drop) };
    let table =
        Table::build(&nic(vec![of(PortId::vf(0), shallow), of(PortId::PF, transport)])).unwrap();
    assert!(table.is_switchdev() && table.needs_snapshots(PortId::PF));
    assert!(!table.needs_snapshots(PortId::vf(0)) && !table.needs_snapshots(PortId::UPLINK));
    assert!(!Table::build(&NicConfig::default()).unwrap().is_switchdev());
}

/// The text of what is refused.
fn refused(config: &NicConfig) -> String {
    Table::build(config).unwrap_err().to_string()
}

#[test]
fn what_means_nothing_is_refused_and_says_what_is_allowed() {
    let with = |rule| refused(&nic(vec![rule]));
    let to_vf1 = RuleTarget::Port(PortId::vf(1));
    assert!(with(rule(PortId::vf(9), to_vf1)).starts_with("switchdev[0].from: VF 9;"));
    assert!(with(rule(PortId::vf(1), to_vf1)).contains("not where they come from"));
    assert!(with(rule(PortId::vf(0), RuleTarget::Port(PortId::queue(0)))).contains("to: queue 0"));
    let pops = Rule { pop: true, ..rule(PortId::vf(0), RuleTarget::Drop) };
    assert!(with(pops).contains("no tag changed"));
    let ports = Match { src_port: Some(1..=2), protocol: Some(1), ..Match::default() };
    assert!(with(Rule { matches: ports, ..rule(PortId::vf(0), to_vf1) }).contains("protocol"));
    let many = vec![rule(PortId::vf(0), to_vf1); MAX_RULES + 1];
    assert!(refused(&nic(many)).contains("4097 rules"));

    let mut config = nic(Vec::new());
    config.vfs[1] = Some(function(102, Some(5)));
    assert!(refused(&config).starts_with("VF 1: vlan: means nothing"));
    let bridges = [
        NicConfig { mode: Mode::Vepa, ..nic(Vec::new()) },
        NicConfig { pf: None, switch: Some(Vec::new()), ..nic(Vec::new()) },
    ];
    bridges.iter().for_each(|config| assert!(refused(config).contains("no bridge")));
}
