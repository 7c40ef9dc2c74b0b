//! Random NICs, guests and frames through the real engine, against a slow model of the receivers.

use std::collections::BTreeMap;

use bridge::nic::{Function, NicConfig, Table};
use bridge::{DropReason, PortId};
use proptest::prelude::*;
use virtq::Features;
use wire::{Mac, Vid};

use super::kit::*;

/// Ports of the model: the uplink, the PF, and four VFs.
const PORTS: u16 = 6;

/// A random world.
#[derive(Clone, Debug)]
struct World {
    config: NicConfig,
    lanes: usize,
    /// By port: its guest's shape, if one is attached.
    guests: Vec<Option<Shape>>,
    frames: Vec<Sent>,
}

#[derive(Clone, Debug)]
struct Sent {
    from: PortId,
    dst: Mac,
    src: Mac,
    tag: Option<(u16, u16)>,
    len: usize,
}

impl Sent {
    fn bytes(&self, number: usize) -> Vec<u8> {
        let plain = frame(self.dst, self.src, number as u32, self.len);
        match self.tag {
            Some((tpid, tci)) => tagged(&plain, tpid, tci),
            None => plain,
        }
    }
}

/// Action for one frame.
#[derive(Debug, PartialEq, Eq)]
enum SwitchdevAction {
    Dropped(&'static str),
    /// To these ports, if they have a guest.
    Sent(Vec<PortId>),
}

/// The rules, as a reader of the documentation of `nic` would write them down.
struct Model<'a>(&'a NicConfig);

impl Model<'_> {
    fn function(&self, port: PortId) -> Option<&Function> {
        match port.vf_index() {
            Some(n) => self.0.vfs.get(usize::from(n))?.as_ref(),
            None if port == PortId::PF => self.0.pf.as_ref(),
            None => None,
        }
    }

    fn vlan(&self, port: PortId) -> u16 {
        let vlan = self.function(port).and_then(|function| function.vlan);
        vlan.map_or(0, |vlan| vlan.vid.get())
    }

    /// The functions of a VLAN.
    fn members(&self, vlan: u16) -> impl Iterator<Item = PortId> {
        let ports = (1..PORTS).map(PortId);
        ports.filter(move |port| self.function(*port).is_some() && self.vlan(*port) == vlan)
    }

    fn action(&self, sent: &Sent) -> SwitchdevAction {
        let from = sent.from;
        if let Some(function) = self.function(from) {
            let mine = |mac| function.mac == mac || function.extra_macs.contains(&mac);
            if function.spoof_check && !mine(sent.src) {
                return SwitchdevAction::Dropped("spoofed_mac");
            }
        }
        if sent.src.is_multicast() {
            return SwitchdevAction::Dropped("source_multicast");
        }
        let tag_vid = sent.tag.map(|(_, tci)| tci & 0xfff);
        let vlan = match (from, self.vlan(from), tag_vid) {
            (PortId::UPLINK, _, vid) => vid.unwrap_or(0),
            (_, 0, None | Some(0)) => 0,
            (_, vlan, None) => vlan,
            _ => return SwitchdevAction::Dropped("vlan_forbidden"),
        };
        if sent.dst.is_multicast() {
            let mut to: Vec<PortId> = self.members(vlan).collect();
            if to.is_empty() {
                return SwitchdevAction::Dropped("no_match"); // only the uplink can speak in an empty VLAN
            }
            to.push(PortId::UPLINK);
            to.retain(|port| *port != from);
            return SwitchdevAction::Sent(to);
        }
        let owner = self.members(vlan).find(|port| {
            let function = self.function(*port).expect("a member is a function");
            function.mac == sent.dst || function.extra_macs.contains(&sent.dst)
        });
        match owner {
            Some(port) if port == from => SwitchdevAction::Dropped("hairpin"),
            Some(port) => SwitchdevAction::Sent(vec![port]),
            None if from == PortId::UPLINK => SwitchdevAction::Dropped("no_match"),
            None => SwitchdevAction::Sent(vec![PortId::UPLINK]),
        }
    }

    /// The bytes as the receiver gets them.
    fn edited(&self, from: PortId, to: PortId, bytes: Vec<u8>) -> Vec<u8> {
        match (self.vlan(from), self.vlan(to)) {
            (vlan @ 1.., _) if to == PortId::UPLINK => tagged(&bytes, 0x8100, vlan),
            (_, 1..) if from == PortId::UPLINK => [&bytes[..12], &bytes[16..]].concat(),
            _ => bytes,
        }
    }
}

/// Frames by receiver, sender and addresses, each in order. Frames of one sender to a group and to
/// one of its members may overtake each other.
type Arrivals = BTreeMap<(PortId, PortId, Vec<u8>), Vec<Vec<u8>>>;

/// Drops of a port by reason.
type Drops = BTreeMap<(PortId, &'static str), u64>;

fn enter(arrivals: &mut Arrivals, world: &World, to: PortId, bytes: Vec<u8>) {
    let is_tagged = wire::vlan::is_tpid(u16::from_be_bytes([bytes[12], bytes[13]]));
    let number = number(&bytes[if is_tagged { 4 } else { 0 }..]);
    let from = world.frames[number as usize].from;
    let flow = (to, from, bytes[..12].to_vec());
    arrivals.entry(flow).or_default().push(bytes);
}

fn any_mac() -> impl Strategy<Value = Mac> {
    prop_oneof![
        12 => (0_u8..8).prop_map(mac),
        2 => Just(OUTSIDE),
        2 => Just(Mac::BROADCAST),
        1 => Just(Mac([0x33, 0x33, 0, 0, 0, 1])),
    ]
}

fn any_function() -> impl Strategy<Value = Function> {
    let vlan = prop_oneof![2 => Just(None), 1 => Just(Some(1)), 1 => Just(Some(2))];
    let macs = prop::sample::subsequence((0..8).map(mac).collect::<Vec<_>>(), 1..3);
    (macs, vlan, any::<bool>()).prop_map(|(mut macs, vlan, spoof_check)| Function {
        vlan: vlan.map(|vid| Vid::new(vid).unwrap().into()),
        spoof_check,
        mac: macs.remove(0),
        extra_macs: macs,
        ..Function::new(Mac::ZERO)
    })
}

pub(super) fn any_shape() -> impl Strategy<Value = Shape> {
    (any::<u8>(), prop_oneof![Just(200_u32), Just(2048)], any::<bool>()).prop_map(
        |(features, buffer, mergeable)| Shape {
            features: Features::from_bits_truncate(features),
            buffer,
            // All frames of these worlds fit into one large buffer.
            mergeable: mergeable || buffer < 2048,
        },
    )
}

fn any_frame() -> impl Strategy<Value = Sent> {
    let vid = prop_oneof![Just(0_u16), Just(1), Just(2), Just(3)];
    let tag = (prop_oneof![Just(0x8100_u16), Just(0x88a8)], vid, 0_u16..16);
    let tag = tag.prop_map(|(tpid, vid, priority)| (tpid, priority << 12 | vid));
    let len = prop_oneof![3 => 18_usize..80, 1 => 80_usize..700];
    let tag = prop::option::weighted(0.3, tag);
    (0..PORTS, any_mac(), any_mac(), tag, len).prop_map(|(from, dst, src, tag, len)| Sent {
        from: PortId(from),
        dst,
        src,
        tag,
        len,
    })
}

/// A NIC with up to a PF and four VFs, of which some may have equal MACs.
pub(super) fn any_nic() -> impl Strategy<Value = NicConfig> {
    let functions = prop::collection::vec(prop::option::weighted(0.9, any_function()), 5);
    functions.prop_map(|mut functions| {
        let pf = functions.remove(0);
        NicConfig { pf, vfs: functions, ..NicConfig::default() }
    })
}

fn any_world() -> impl Strategy<Value = World> {
    let guests = prop::collection::vec(prop::option::weighted(0.85, any_shape()), 6);
    let frames = prop::collection::vec(any_frame(), 1..60);
    (any_nic(), 1_usize..4, guests, frames).prop_map(|(config, lanes, guests, frames)| World {
        config,
        lanes,
        guests,
        frames,
    })
}

/// Expected result of a world's frames: arrivals, and drops by port and reason.
fn expect(world: &World, attached: impl Fn(PortId) -> bool) -> (Arrivals, Drops) {
    let model = Model(&world.config);
    let mut arrivals = Arrivals::new();
    let mut drops = Drops::new();
    for (i, sent) in world.frames.iter().enumerate().filter(|(_, sent)| attached(sent.from)) {
        match model.action(sent) {
            SwitchdevAction::Dropped(reason) => *drops.entry((sent.from, reason)).or_default() += 1,
            SwitchdevAction::Sent(to) => {
                let (there, down): (Vec<_>, Vec<_>) = to.into_iter().partition(|to| attached(*to));
                for to in there {
                    enter(&mut arrivals, world, to, model.edited(sent.from, to, sent.bytes(i)));
                }
                for to in down {
                    *drops.entry((to, "down")).or_default() += 1;
                }
            }
        }
    }
    (arrivals, drops)
}

/// Sends the world's frames in bursts of many sizes, and waits until all are dealt with.
fn carry(world: &World, guests: &mut BTreeMap<PortId, Guest>) -> Arrivals {
    for (i, sent) in world.frames.iter().enumerate() {
        if let Some(guest) = guests.get_mut(&sent.from) {
            guest.post(&sent.bytes(i));
            if i % 3 == 0 {
                guest.flush();
            }
        }
    }
    for guest in guests.values_mut() {
        guest.flush();
    }
    guests.values_mut().for_each(Guest::settle);
    let mut arrivals = Arrivals::new();
    for (port, guest) in guests {
        for bytes in guest.receive() {
            enter(&mut arrivals, world, *port, bytes);
        }
    }
    arrivals
}

fn play(mut world: World) -> Result<(), TestCaseError> {
    // Functions with a MAC that is taken in their VLAN are left out.
    while Table::build(&world.config).is_err() {
        world.config.vfs.pop();
    }
    let model = Model(&world.config);
    let exists = |port: PortId| port == PortId::UPLINK || model.function(port).is_some();
    let ports = || (0..PORTS).map(PortId).filter(|port| exists(*port));
    let bench = Bench::of(world.config.clone(), world.lanes, 1);
    let mut guests: BTreeMap<PortId, Guest> = BTreeMap::new();
    for port in ports() {
        if let Some(shape) = world.guests[port.index()] {
            let guest = Guest::with(shape);
            guest.attach(bench.port(port));
            guests.insert(port, guest);
        }
    }

    let (expected, drops) = expect(&world, |port| guests.contains_key(&port));
    prop_assert_eq!(carry(&world, &mut guests), expected);
    for port in ports() {
        let label = &bench.port(port).label;
        for reason in DropReason::NIC {
            let name = reason.name().replace('-', "_");
            let dropped = drops.get(&(port, name.as_str())).copied().unwrap_or(0);
            let count = bench.count(label, &format!("tx_drop_{name}"));
            prop_assert_eq!(count, dropped, "{} of {}", reason, label);
        }
        let down = drops.get(&(port, "down")).copied().unwrap_or(0);
        prop_assert_eq!(bench.count(label, "rx_drop_down"), down);
        for none in ["rx_drop_no_buffer", "rx_drop_too_small"] {
            prop_assert_eq!(bench.count(label, none), 0);
        }
    }
    Ok(())
}

proptest! {
    // A missing frame costs a long wait, so shrinking of a failure is limited.
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_time: 20_000, ..ProptestConfig::default() })]
    #[test]
    fn every_frame_goes_where_the_rules_say(world in any_world()) {
        play(world)?;
    }
}
