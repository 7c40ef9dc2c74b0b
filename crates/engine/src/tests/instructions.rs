//! Rounds of a lane in the test's own thread, for a tracer that counts instructions
//! (`tests/instructions`): nothing else runs between two rounds.

use std::sync::Arc;
use std::time::Duration;

use bridge::matching::{IpPrefix, MacPrefix, Match};
use bridge::switch::{Acl, Rule, RuleAction};
use bridge::{PortId, matching};
use port::BURST;
use virtq::Features;
use wire::Mac;

use super::filters::udp;
use super::kit::*;
use crate::counters::Counters;
use crate::lane::counter;
use crate::lane::queue_list::{QueueList, TxRing};
use crate::lane::wake::Wake;
use crate::lane::worker::Worker;
use crate::{IdlePolicy, Port};

/// Rounds of 64 frames each.
const ROUNDS: u32 = 200;
/// Bytes of a frame to a VF.
const LEN: usize = 64;
/// Rules of a list.
const RULES: u8 = 100;

/// One round of a lane; the tracer counts what runs below this function.
#[inline(never)]
fn round(worker: &mut Worker) -> u64 {
    worker.poll_all::<false>(0, 0)
}

/// A lane of these ports that this thread runs, and its counters.
pub(super) fn worker(bench: &Bench, ports: [&Arc<Port>; 2]) -> (Worker, Counters) {
    let mut counters = Counters::create(None, vec![("lane", counter::schema())]).unwrap();
    let block = counters.add("lane", "0").unwrap();
    let queue_list = Arc::new(QueueList::default());
    let nic = bench.fabric.nics()[0].clone();
    for port in ports {
        queue_list.add(TxRing { nic: nic.clone(), port: port.clone(), pair: 0 });
    }
    let idle = IdlePolicy { poll: Duration::ZERO, yielding: Duration::ZERO, sleep: false };
    let wake = Arc::new(Wake::new().unwrap());
    let quarantine = bench.fabric.quarantine.clone();
    (Worker::new(idle, queue_list, block, wake, Arc::default(), quarantine), counters)
}

/// Forwards full bursts between guests with these rings, from one port to the other, and checks
/// that each frame arrives.
fn forward_bursts(
    bench: &Bench,
    ports: [&Arc<Port>; 2],
    features: Features,
    frame: impl Fn(u32) -> Vec<u8>,
) {
    let shape = Shape { features, ..Shape::default() };
    let (mut sender, mut receiver) = (Guest::with(shape), Guest::with(shape));
    sender.attach(ports[0]);
    receiver.attach(ports[1]);
    let (mut worker, _counters) = worker(bench, ports);
    for burst in 0..ROUNDS {
        for number in 0..BURST as u32 {
            sender.post(&frame(burst * BURST as u32 + number));
        }
        sender.flush();
        assert_eq!(round(&mut worker), BURST as u64);
        assert_eq!(receiver.receive().len(), BURST);
        assert_eq!(sender.in_flight(), 0);
    }
}

/// From VF 0 to VF 1.
fn from_vf_to_vf(features: Features) {
    let bench = Bench::new(vec![plain(0), plain(1)], 0);
    let ports = [0, 1].map(|vf| bench.port(PortId::vf(vf)));
    forward_bursts(&bench, ports, features, |number| frame(mac(1), mac(0), number, LEN));
}

/// Rules on all layers that match no frame of these tests, as in `shunt lab switching`.
fn rules() -> Acl {
    let prefix = |text: String, len| Some(IpPrefix { addr: text.parse().unwrap(), len });
    let any = Match::default;
    let matches = |i: u8| match i % 4 {
        0 => Match {
            dst_ip: prefix(format!("203.0.113.{i}"), 32),
            protocol: Some(matching::UDP),
            ..any()
        },
        1 => {
            let port = 1000 + u16::from(i);
            Match { protocol: Some(matching::TCP), dst_port: Some(port..=port), ..any() }
        }
        2 => {
            let mac = Mac([2, 0x5b, 0xee, 0, 0, i]);
            Match { src_mac: Some(MacPrefix { mac, len: 48 }), ..any() }
        }
        _ => Match { src_ip: prefix(format!("10.{}.0.0", i), 16), ..any() },
    };
    let rule = |i| Rule { matches: matches(i), action: RuleAction::Deny };
    Acl { rules: (0..RULES).map(rule).collect(), default_allow: true }
}

/// From adapter 0 to adapter 1 on a switch with a VLAN and 100 rules; `flows` flows in turn.
fn over_the_switch(features: Features, flows: u16) {
    let mut net = Net::new(2, 0, 1);
    net.hits = Arc::new(crate::AclHits::new(RULES.into()));
    let adapters = [0, 1].map(|_| Adapter::new(Path::Synthetic, Tags::Access(7)));
    net.apply_with(&adapters, |settings| {
        settings.switch.acls = vec![rules()];
        for port in [0, 1].map(switch_port) {
            settings.switch.ports[port.index()].as_mut().unwrap().acl = Some(0);
        }
    });
    forward_bursts(&net.bench, [net.port(0), net.port(1)], features, |number| {
        let src_port = 4000 + number as u16 % flows;
        udp((mac(1), mac(0)), (src_port, 5000 + src_port), number)[..60].to_vec()
    });
    assert!((0..RULES).all(|rule| net.hits.get(rule.into()) == 0), "a rule that matches");
}

#[test]
fn split_bursts_are_forwarded_in_one_round() {
    from_vf_to_vf(Shape::default().features);
}

#[test]
fn packed_bursts_are_forwarded_in_one_round() {
    from_vf_to_vf(Features::all());
}

#[test]
fn split_bursts_pass_the_switch_and_its_rules_in_one_round() {
    over_the_switch(Shape::default().features, 1);
}

#[test]
fn packed_bursts_pass_the_switch_and_its_rules_in_one_round() {
    over_the_switch(Features::all(), 1);
}

#[test]
fn split_bursts_of_eight_flows_pass_the_switch_and_its_rules_in_one_round() {
    over_the_switch(Shape::default().features, 8);
}
