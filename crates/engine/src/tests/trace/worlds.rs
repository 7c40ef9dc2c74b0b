//! Random settings of a NIC with a switch, and random frames.

use bridge::PortId;
use bridge::nic::{FunctionMirror, LinkState, MirrorTarget, MirroredFrames, Mode};
use bridge::switch::{Beyond, Learning, Native, Storm, SwitchMirror, Vlans};
use proptest::prelude::*;
use wire::{Mac, Vid};

use super::super::filters;
use super::super::kit::*;

const GROUP: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);
const LINK_LOCAL: Mac = Mac([0x01, 0x80, 0xc2, 0, 0, 0x0e]);
/// Longest frame that is sent; longer than a port allows.
const LEN_MAX: usize = FRAME_MAX as usize + 4;

/// Contents of a frame.
#[derive(Clone, Debug)]
enum Payload {
    /// No IP.
    Other,
    /// UDP over IPv4 with these ports.
    Udp(u16, u16),
    /// IPv6 with this next header, then zeros; 58 is a malformed ICMPv6.
    Ipv6(u8),
}

/// A frame of a port by its number.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) from: usize,
    dst: Mac,
    /// `None` for the address of the adapter with the port's number.
    src: Option<Mac>,
    tags: Vec<(u16, u16)>,
    payload: Payload,
    len: usize,
}

impl Sent {
    pub(super) fn bytes(&self, number: usize) -> Vec<u8> {
        let src = self.src.unwrap_or_else(|| mac(self.from as u8));
        let number = number as u32;
        let plain = match self.payload {
            Payload::Other => frame(self.dst, src, number, self.len.max(18)),
            Payload::Udp(from, to) => filters::udp((self.dst, src), (from, to), number),
            Payload::Ipv6(next) => {
                let ip = [&[0x60, 0, 0, 0, 0, 24, next, 255][..], &[0xfe; 32]].concat();
                let router_advertisement = [134, 0, 0, 0];
                [&self.dst.0[..], &src.0, &[0x86, 0xdd], &ip, &router_advertisement].concat()
            }
        };
        let tags = self.tags.iter().rev();
        let mut bytes = tags.fold(plain, |inner, (tpid, tci)| tagged(&inner, *tpid, *tci));
        bytes.resize(self.len, number as u8);
        bytes
    }
}

pub(super) fn any_frame(ports: usize) -> impl Strategy<Value = Sent> {
    let dst = prop_oneof![
        10 => (0_u8..6).prop_map(mac),
        2 => Just(OUTSIDE),
        2 => Just(Mac::BROADCAST),
        1 => Just(GROUP),
        1 => Just(LINK_LOCAL),
    ];
    let src = prop_oneof![
        9 => Just(None),
        3 => (0_u8..8).prop_map(|n| Some(mac(n))),
        2 => Just(Some(OUTSIDE)),
        1 => Just(Some(GROUP)),
    ];
    let vid = prop_oneof![Just(0_u16), Just(1), Just(2), Just(5), Just(6), Just(7)];
    let tag = (prop_oneof![3 => Just(0x8100_u16), 1 => Just(0x88a8)], vid, 0_u16..8);
    let tag = tag.prop_map(|(tpid, vid, priority)| (tpid, priority << 13 | vid));
    let tags = prop_oneof![
        3 => Just(Vec::new()),
        2 => prop::collection::vec(tag.clone(), 1),
        1 => prop::collection::vec(tag, 2),
    ];
    let port = prop_oneof![Just(53_u16), Just(67), Just(68), Just(80)];
    let payload = prop_oneof![
        3 => Just(Payload::Other),
        2 => (port.clone(), port).prop_map(|(from, to)| Payload::Udp(from, to)),
        1 => prop_oneof![Just(58_u8), Just(0), Just(44)].prop_map(Payload::Ipv6),
    ];
    let len = prop_oneof![
        1 => 1_usize..20,
        12 => 20_usize..200,
        2 => 200_usize..LEN_MAX,
        1 => LEN_MAX - 6..=LEN_MAX,
    ];
    (0..ports, dst, src, tags, payload, len).prop_map(|(from, dst, src, tags, payload, len)| Sent {
        from,
        dst,
        src,
        tags,
        payload,
        len,
    })
}

/// Settings of an adapter beyond its path and tags.
#[derive(Clone, Debug)]
pub(super) struct More {
    pub(super) is_attached: bool,
    /// Frames are parked while it is not attached.
    pub(super) parks: bool,
    is_static: bool,
    learning: Learning,
    link: LinkState,
    spoof_check: bool,
    promiscuous: bool,
    isolated: bool,
    guarded: [bool; 3],
    storm: Storm,
    mirror: Option<FunctionMirror>,
}

/// A NIC with a switch, its adapters, and frames.
#[derive(Clone, Debug)]
pub(super) struct SwitchWorld {
    pub(super) adapters: Vec<Adapter>,
    pub(super) more: Vec<More>,
    pub(super) floods_unknown: bool,
    mode: Mode,
    uplink_up: bool,
    /// Native VLAN of the switch's uplink; guard and ACL there.
    uplink: (Option<u16>, [bool; 3]),
    /// Ports whose sent and received frames the tap gets.
    tapped: (Vec<usize>, Vec<usize>),
    pub(super) frames: Vec<Sent>,
}

impl SwitchWorld {
    /// Port of the switch that receives mirror copies.
    pub(super) fn tap(&self) -> PortId {
        switch_port(self.adapters.len())
    }

    /// Settings of NIC and switch; `None` if they are invalid together.
    pub(super) fn settings(&self, net: &Net) -> Option<Settings> {
        let mut made = net.settings(&self.adapters);
        (made.nic.mode, made.nic.uplink_up) = (self.mode, self.uplink_up);
        filters::filter(&mut made, &[]);
        let guard = |port: &mut bridge::switch::PortConfig, [dhcp, router, acl]: [bool; 3]| {
            (port.dhcp_guard, port.router_guard) = (dhcp, router);
            port.acl = acl.then_some(0);
        };
        for (n, more) in self.more.iter().enumerate() {
            let functions = [&mut made.nic.vfs[n], &mut made.nic.queues[n]];
            for function in functions.into_iter().flatten() {
                (function.spoof_check, function.link) = (more.spoof_check, more.link);
                (function.trust, function.promiscuous) = (more.promiscuous, more.promiscuous);
            }
            if let Some(function) = &mut made.nic.vfs[n] {
                function.mirror = more.mirror;
            }
            let id = switch_port(n);
            let place = &mut made.switch.ports[id.index()];
            if let Some(port) = place {
                (port.learning, port.isolated, port.storm) =
                    (more.learning, more.isolated, more.storm);
                guard(port, more.guarded);
            }
            if !more.link.is_up(self.uplink_up) {
                *place = None; // a port without link is not in the table
            }
            let stays = more.is_static && place.is_some();
            made.switch.statics.retain(|entry| entry.mac != mac(n as u8) || stays);
        }
        let ports = &mut made.switch.ports;
        let uplink = ports[0].as_mut()?;
        guard(uplink, self.uplink.1);
        if let (Vlans::Trunk { native, .. }, Some(vid)) = (&mut uplink.vlans, self.uplink.0) {
            *native = Native::Vlan(Vid::new(vid).ok()?);
        }
        let is_there = |n: &usize| ports.get(*n).is_some_and(Option::is_some);
        let ids = |all: &[usize]| -> Vec<PortId> {
            all.iter().filter(|n| is_there(n)).map(|n| PortId(*n as u16)).collect()
        };
        let (ingress, egress) = (ids(&self.tapped.0), ids(&self.tapped.1));
        made.switch.ports.push(Some(bridge::switch::PortConfig {
            vlans: Vlans::Trunk { allowed: Default::default(), native: Native::Refused },
            ..bridge::switch::PortConfig::access(None)
        }));
        made.switch.mirrors.push(SwitchMirror { to: self.tap(), ingress, egress });
        bridge::switch::Table::build(&made.switch).ok()?;
        bridge::nic::Table::build(&made.nic).ok()?;
        Some(made)
    }
}

fn any_adapter() -> impl Strategy<Value = Adapter> {
    let path = prop_oneof![3 => Just(Path::Vf), 1 => Just(Path::Vmq), 3 => Just(Path::Synthetic)];
    let tags = prop_oneof![
        3 => Just(Tags::Access(0)),
        2 => Just(Tags::Access(5)),
        1 => Just(Tags::Access(6)),
        2 => prop::sample::subsequence(vec![5_u16, 6, 7], 1..=3)
            .prop_map(|vids| Tags::Trunk { native: 0, vids }),
        1 => Just(Tags::Trunk { native: 7, vids: vec![5] }),
    ];
    (path, tags, 0_u8..8, any::<bool>()).prop_map(|(path, tags, qos, service)| {
        let service = service && matches!(tags, Tags::Access(1..));
        Adapter { path, tags, qos, service }
    })
}

fn any_more() -> impl Strategy<Value = More> {
    let learning = (prop_oneof![Just(0_u32), Just(2), Just(64)], any::<bool>());
    let learning = learning.prop_map(|(limit, drops)| {
        let beyond = if drops { Beyond::Drop } else { Beyond::Forward };
        Learning { limit, beyond }
    });
    let link = prop_oneof![
        8 => Just(LinkState::Auto),
        2 => Just(LinkState::Enable),
        1 => Just(LinkState::Disable),
    ];
    let way = prop_oneof![
        Just(MirroredFrames::Ingress),
        Just(MirroredFrames::Egress),
        Just(MirroredFrames::Both),
    ];
    let target = prop_oneof![
        2 => Just(MirrorTarget::Capture(0)),
        1 => Just(MirrorTarget::Port(PortId::UPLINK)),
        1 => (0_u8..4).prop_map(|n| MirrorTarget::Port(PortId::vf(n))),
    ];
    let mirror = (way, target).prop_map(|(way, to)| FunctionMirror { way, to });
    // Other limits depend on the time.
    let storm = prop_oneof![2 => Just(None), 1 => Just(Some(0_u32)), 1 => Just(Some(10_000_000))];
    let storm = (storm.clone(), storm.clone(), storm);
    let storm = storm.prop_map(|(broadcast, multicast, unknown)| {
        let forbids = broadcast == Some(0) && multicast == Some(0);
        if forbids { Storm::default() } else { Storm { broadcast, multicast, unknown } }
    });
    let is_attached = prop::bool::weighted(0.85);
    let rarely = || prop::bool::weighted(0.2);
    let flags = (is_attached, any::<bool>(), any::<bool>(), any::<bool>(), rarely(), rarely());
    let guarded = [rarely(), rarely(), rarely()];
    (flags, learning, link, guarded, storm, prop::option::weighted(0.2, mirror)).prop_map(
        |(flags, learning, link, guarded, storm, mirror)| {
            let (is_attached, parks, is_static, spoof_check, promiscuous, isolated) = flags;
            More {
                is_attached,
                parks,
                is_static,
                learning,
                link,
                spoof_check,
                promiscuous,
                isolated,
                guarded,
                storm,
                mirror,
            }
        },
    )
}

pub(super) fn any_switch_world() -> impl Strategy<Value = SwitchWorld> {
    let mode = prop_oneof![4 => Just(Mode::Veb), 1 => Just(Mode::Vepa), 1 => Just(Mode::Isolated)];
    let rarely = || prop::bool::weighted(0.15);
    let guards = [rarely(), rarely(), rarely()];
    let uplink = (prop::option::weighted(0.2, Just(5_u16)), guards);
    let some = || prop::sample::subsequence((0..5).collect::<Vec<usize>>(), 0..3);
    let of_nic = (mode, prop::bool::weighted(0.85), any::<bool>(), uplink, (some(), some()));
    (prop::collection::vec((any_adapter(), any_more()), 2..5), of_nic).prop_flat_map(
        |(adapters, (mode, uplink_up, floods_unknown, uplink, tapped))| {
            let ports = adapters.len() + 1;
            let (adapters, more): (Vec<_>, Vec<_>) = adapters.into_iter().unzip();
            prop::collection::vec(any_frame(ports), 1..64).prop_map(move |frames| SwitchWorld {
                adapters: adapters.clone(),
                more: more.clone(),
                floods_unknown,
                mode,
                uplink_up,
                uplink,
                tapped: tapped.clone(),
                frames,
            })
        },
    )
}
