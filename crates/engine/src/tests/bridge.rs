//! Adapters on every path against a reference bridge: a broadcast domain for each VLAN, with known
//! addresses. The path of an adapter must not change the frames that arrive, nor their receivers.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wire::Mac;

use super::kit::*;
use super::model::any_shape;

const GROUP: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);
/// An unknown address.
const UNKNOWN: Mac = Mac([2, 0xee, 0, 0, 0, 1]);

/// A frame of adapter `from`, or of the uplink if that is the number after the last.
#[derive(Clone, Debug)]
struct Sent {
    from: usize,
    dst: Mac,
    src: Mac,
    tags: Vec<(u16, u16)>,
    len: usize,
    /// Cut or extended to a length that no frame has.
    odd: Option<usize>,
}

impl Sent {
    /// The frame with other tags.
    fn with(&self, tags: &[(u16, u16)], number: usize) -> Vec<u8> {
        let plain = frame(self.dst, self.src, number as u32, self.len);
        tags.iter().rev().fold(plain, |inner, (tpid, tci)| tagged(&inner, *tpid, *tci))
    }

    fn bytes(&self, number: usize) -> Vec<u8> {
        let mut bytes = self.with(&self.tags, number);
        bytes.resize(self.odd.unwrap_or(bytes.len()), 0);
        bytes
    }
}

/// The rules; the uplink is the member after the last adapter.
struct Bridge<'a> {
    adapters: &'a [Adapter],
    floods_unknown: bool,
}

impl Bridge<'_> {
    fn uplink(&self) -> usize {
        self.adapters.len()
    }

    /// The VLAN of a frame; `None` if it is dropped on its way in.
    fn vlan(&self, sent: &Sent) -> Option<u16> {
        if sent.odd.is_some() || sent.src.is_multicast() {
            return None;
        }
        let outer = sent.tags.first();
        let vid = outer.map(|(_, tci)| tci & 0xfff);
        let Some(adapter) = self.adapters.get(sent.from) else {
            return Some(vid.unwrap_or(0));
        };
        if sent.src != mac(sent.from as u8) {
            return None;
        }
        if vid == Some(0) && sent.tags.len() > 1 {
            return None; // it would hop into the VLAN of the second tag
        }
        match (&adapter.tags, vid) {
            (Tags::Access(0), None | Some(0)) => Some(0),
            (Tags::Access(native), None) if *native > 0 => Some(*native),
            // Its customer tags are payload.
            (Tags::Access(native), Some(_)) if adapter.service => {
                outer.filter(|(tpid, _)| *tpid == 0x8100).map(|_| *native)
            }
            (Tags::Trunk { native, .. }, None | Some(0)) => Some(*native),
            (Tags::Trunk { native, vids }, Some(vid)) if vids.contains(&vid) || *native == vid => {
                Some(vid)
            }
            _ => None,
        }
    }

    fn is_member(&self, n: usize, vlan: u16) -> bool {
        self.adapters.get(n).is_none_or(|adapter| adapter.tags.vids().contains(&vlan))
    }

    fn receivers(&self, sent: &Sent, vlan: u16) -> Vec<usize> {
        let members = (0..=self.uplink()).filter(|n| self.is_member(*n, vlan));
        let owner = |n: &usize| *n < self.uplink() && mac(*n as u8) == sent.dst;
        // The switch hands unknown addresses on, if it is to; VFs are not promiscuous.
        let curious = |n: &usize| match self.adapters.get(*n) {
            Some(adapter) => self.floods_unknown && adapter.path != Path::Vf,
            None => true,
        };
        let mut to: Vec<usize> = if sent.dst.is_multicast() {
            members.collect()
        } else if let Some(owner) = members.clone().find(owner) {
            vec![owner]
        } else {
            members.filter(curious).collect()
        };
        to.retain(|n| *n != sent.from);
        to
    }

    /// The frame as a member sees it.
    fn seen_by(&self, to: usize, sent: &Sent, number: usize, vlan: u16) -> Vec<u8> {
        let has_tag = match self.adapters.get(to).map(|adapter| &adapter.tags) {
            None => true,
            Some(Tags::Access(_)) => false,
            Some(Tags::Trunk { native, .. }) => *native != vlan,
        };
        if vlan == 0 {
            return sent.bytes(number);
        }
        // From an access port there is no tag of the VLAN, and any other is payload.
        let from = self.adapters.get(sent.from);
        let access = from.filter(|from| matches!(from.tags, Tags::Access(_)));
        let (outer, payload) = match sent.tags.split_first() {
            Some((outer, payload)) if access.is_none() => (Some(*outer), payload),
            _ => (None, &sent.tags[..]),
        };
        let usual = match from {
            Some(from) if from.service => (0x88a8, u16::from(from.qos) << 13 | vlan),
            Some(from) => (0x8100, u16::from(from.qos) << 13 | vlan),
            None => (0x8100, vlan),
        };
        let tag = outer.filter(|(_, tci)| tci & 0xfff != 0).unwrap_or(usual);
        if has_tag {
            sent.with(&[&[tag], payload].concat(), number)
        } else {
            sent.with(payload, number)
        }
    }
}

/// Arrived frames, each flow in order: by receiver, sender, addresses and tag as they were sent.
type Arrivals = BTreeMap<(usize, usize, Mac, Mac, Vec<(u16, u16)>), Vec<Vec<u8>>>;

fn enter(arrivals: &mut Arrivals, frames: &[Sent], to: usize, bytes: Vec<u8>) {
    let mut rest = &bytes[..];
    while wire::vlan::is_tpid(u16::from_be_bytes([rest[12], rest[13]])) {
        rest = &rest[4..];
    }
    let Sent { from, dst, src, tags, .. } = &frames[number(rest) as usize];
    arrivals.entry((to, *from, *dst, *src, tags.clone())).or_default().push(bytes);
}

fn expected(bridge: &Bridge<'_>, frames: &[Sent]) -> Arrivals {
    let mut arrivals = Arrivals::new();
    for (number, sent) in frames.iter().enumerate() {
        let Some(vlan) = bridge.vlan(sent) else { continue };
        for to in bridge.receivers(sent, vlan) {
            enter(&mut arrivals, frames, to, bridge.seen_by(to, sent, number, vlan));
        }
    }
    arrivals
}

/// Sends the frames in bursts of many sizes, and waits until all are dealt with.
fn carry(guests: &mut [Guest], frames: &[Sent]) -> Arrivals {
    for (number, sent) in frames.iter().enumerate() {
        guests[sent.from].post(&sent.bytes(number));
        if number % 5 == 0 {
            guests[sent.from].flush();
        }
    }
    for guest in &mut *guests {
        guest.flush();
    }
    guests.iter_mut().for_each(Guest::settle);
    let mut arrivals = Arrivals::new();
    for (to, guest) in guests.iter_mut().enumerate() {
        for bytes in guest.receive() {
            enter(&mut arrivals, frames, to, bytes);
        }
    }
    arrivals
}

/// Puts a guard on every port of the switch if `guarded`: then more header bytes are read.
fn guard(settings: &mut Settings, guarded: bool) {
    settings.switch.ports.iter_mut().flatten().for_each(|port| port.dhcp_guard = guarded);
}

fn all_kinds() -> Vec<Adapter> {
    let tags = [
        Tags::Access(0),
        Tags::Access(5),
        Tags::Access(6),
        Tags::Trunk { native: 0, vids: vec![5, 6] },
        Tags::Trunk { native: 7, vids: vec![5] },
    ];
    let paths = [Path::Vf, Path::Vmq, Path::Synthetic];
    let of = |path| tags.iter().map(move |tags| Adapter::new(path, tags.clone()));
    paths.into_iter().flat_map(of).collect()
}

/// Every adapter sends every tag to every other, to groups and to unknown addresses.
fn arrivals_match_the_bridge(lanes: usize, floods_unknown: bool, guarded: bool) {
    let adapters = all_kinds();
    let mut net = Net::new(adapters.len(), lanes, 1);
    net.floods_unknown = floods_unknown;
    net.apply_with(&adapters, |settings| guard(settings, guarded));
    let bridge = Bridge { adapters: &adapters, floods_unknown };
    let mut guests = net.guests();
    let dsts: Vec<Mac> = (0..adapters.len() as u8).map(mac).collect();
    let dsts = [&dsts[..], &[Mac::BROADCAST, GROUP, UNKNOWN]].concat();
    let vids = [None, Some(0), Some(5), Some(6), Some(7), Some(9)];
    let mut all_tags: Vec<Vec<_>> =
        vids.iter().map(|vid| vid.iter().map(|vid| (0x8100, *vid)).collect()).collect();
    for first in [0x8100, 0x88a8] {
        all_tags.push(vec![(first, 0), (0x8100, 5)]);
        all_tags.push(vec![(first, 0), (0x8100, 0)]);
    }
    for from in 0..=adapters.len() {
        for tags in &all_tags {
            let src = if from == adapters.len() { OUTSIDE } else { mac(from as u8) };
            let tags = || tags.clone();
            let sent = |dst: &Mac| Sent { from, dst: *dst, src, tags: tags(), len: 60, odd: None };
            let frames: Vec<Sent> = dsts.iter().map(sent).collect();
            let arrived = carry(&mut guests, &frames);
            assert_eq!(
                arrived,
                expected(&bridge, &frames),
                "from {from} with {tags:?}",
                tags = tags()
            );
        }
    }
    for port in net.ports.iter().chain([&net.uplink]) {
        for none in ["rx_drop_no_buffer", "rx_drop_too_small", "rx_drop_down"] {
            assert_eq!(net.bench.count(&port.label, none), 0);
        }
    }
}

#[test]
fn every_pair_on_one_lane() {
    arrivals_match_the_bridge(1, false, false);
    arrivals_match_the_bridge(1, true, true);
}

#[test]
fn every_pair_on_two_lanes() {
    arrivals_match_the_bridge(2, true, false);
    arrivals_match_the_bridge(2, false, true);
}

/// A random world: adapters on paths, and other paths for them afterwards.
#[derive(Clone, Debug)]
struct World {
    adapters: Vec<Adapter>,
    then: Vec<Path>,
    lanes: usize,
    floods_unknown: bool,
    guarded: bool,
    shapes: Vec<Shape>,
    frames: Vec<Sent>,
}

fn any_path() -> impl Strategy<Value = Path> {
    prop_oneof![Just(Path::Vf), Just(Path::Vmq), Just(Path::Synthetic)]
}

fn any_tags() -> impl Strategy<Value = Tags> {
    let vids = prop::sample::subsequence(vec![1_u16, 2, 3], 1..=2);
    prop_oneof![
        2 => Just(Tags::Access(0)),
        3 => (1_u16..4).prop_map(Tags::Access),
        2 => vids.clone().prop_map(|vids| Tags::Trunk { native: 0, vids }),
        1 => vids.prop_map(|vids| Tags::Trunk { native: 4, vids }),
    ]
}

fn any_sent(adapters: usize) -> impl Strategy<Value = Sent> {
    let dst = prop_oneof![
        8 => (0..adapters as u8).prop_map(mac),
        2 => Just(Mac::BROADCAST),
        1 => Just(GROUP),
        1 => Just(UNKNOWN),
    ];
    let tpid = prop_oneof![4 => Just(0x8100_u16), 1 => Just(0x88a8)];
    let tag = prop_oneof![
        1 => Just((0x8100_u16, 0_u16)),
        6 => (tpid, 1_u16..5, 0_u16..8).prop_map(|(tpid, vid, qos)| (tpid, qos << 13 | vid)),
    ];
    let tags = prop_oneof![
        4 => Just(vec![]),
        4 => prop::collection::vec(tag.clone(), 1),
        2 => prop::collection::vec(tag, 2..4),
    ];
    let src = prop_oneof![
        10 => Just(None),
        1 => Just(Some(Mac([2, 0xdd, 0, 0, 0, 1]))),
        1 => Just(Some(Mac([3, 0, 0, 0, 0, 1]))),
    ];
    let len = prop_oneof![3 => 18_usize..200, 1 => 200_usize..700];
    let odd = prop_oneof![20 => Just(None), 1 => Just(Some(13)), 1 => Just(Some(1600))];
    (0..=adapters, dst, src, tags, len, odd).prop_map(move |(from, dst, src, tags, len, odd)| {
        let own = if from == adapters { OUTSIDE } else { mac(from as u8) };
        Sent { from, dst, src: src.unwrap_or(own), tags, len, odd }
    })
}

fn any_world() -> impl Strategy<Value = World> {
    (1_usize..7).prop_flat_map(|n| {
        let service = (0_u8..8, prop::bool::weighted(0.3));
        let adapter = (any_path(), any_tags(), service).prop_map(|(path, tags, (qos, service))| {
            let access = matches!(tags, Tags::Access(1..));
            Adapter { path, tags, qos: if access { qos } else { 0 }, service: service && access }
        });
        let adapters = prop::collection::vec(adapter, n);
        let then = prop::collection::vec(any_path(), n);
        let shapes = prop::collection::vec(any_shape(), n + 1);
        let frames = prop::collection::vec(any_sent(n), 1..80);
        (adapters, then, 1_usize..3, any::<bool>(), any::<bool>(), shapes, frames).prop_map(
            |(adapters, then, lanes, floods_unknown, guarded, shapes, frames)| World {
                adapters,
                then,
                lanes,
                floods_unknown,
                guarded,
                shapes,
                frames,
            },
        )
    })
}

fn play(mut world: World) -> Result<(), TestCaseError> {
    let mut net = Net::new(world.adapters.len(), world.lanes, 1);
    net.floods_unknown = world.floods_unknown;
    if world.guarded {
        // A guard drops frames whose headers it cannot parse: with more than two tags, one of them
        // pushed.
        world.frames.iter_mut().for_each(|sent| sent.tags.truncate(1));
    }
    let mut guests: Vec<Guest> = world.shapes.iter().map(|shape| Guest::with(*shape)).collect();
    for (n, guest) in guests.iter().enumerate() {
        guest.attach(net.port(n));
    }
    for then in [None, Some(world.then.clone())] {
        let paths = then.into_iter().flatten();
        world.adapters.iter_mut().zip(paths).for_each(|(adapter, path)| adapter.path = path);
        net.apply_with(&world.adapters, |settings| guard(settings, world.guarded));
        let bridge = Bridge { adapters: &world.adapters, floods_unknown: world.floods_unknown };
        let arrived = carry(&mut guests, &world.frames);
        let expected = expected(&bridge, &world.frames);
        let one_sided = |flow: &&_| arrived.get(*flow) != expected.get(*flow);
        let flow = arrived.keys().chain(expected.keys()).find(one_sided);
        if let Some(flow) = flow {
            prop_assert_eq!(arrived.get(flow), expected.get(flow), "of {:?}", flow);
        }
    }
    Ok(())
}

proptest! {
    // A missing frame costs a long wait, so shrinking of a failure is limited.
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_time: 20_000, ..ProptestConfig::default() })]
    #[test]
    fn the_path_does_not_show(world in any_world()) {
        play(world)?;
    }
}
