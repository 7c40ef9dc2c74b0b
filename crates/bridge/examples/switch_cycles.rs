//! Time of the switch's classifier for bursts of 64 frames, by addresses and rules.
//!
//! `cargo run --release -p shunt-bridge --example switch_cycles`. Each figure is the best of
//! several short runs, in ns for each frame: all of one flow; to random known addresses; the same
//! from 64 networks between which the rules distinguish; and from so many that what is said of
//! them cannot be remembered.
//! Every frame is of IPv4 and UDP and passes all rules. Making the snapshots is not part of it.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bridge::matching::{IpPrefix, Match};
use bridge::switch::{
    Acl, Burst, Fdb, Flows, HeaderSnapshot, PortConfig, Rule, RuleAction, State, SwitchConfig,
    SwitchVerdicts, Table,
};
use bridge::{BURST, PortId};
use wire::{Mac, ipv4, udp};

/// Bursts prepared in advance, walked through in turn: 600 KiB, so that they stay in the L2 cache.
const BURSTS: usize = 64;
const RUNS: usize = 160;
const PORTS: u64 = 64;
const FROM: PortId = PortId(1);

fn mac(n: u64) -> Mac {
    Mac::from_key(0x02 | (n & 0xff) << 40 | (n >> 8) << 32)
}

/// The uplink, and `PORTS` access ports in one VLAN, with so many rules for the first.
fn table(rules: u32) -> Table {
    let rule = |n: u32| {
        let net = Ipv4Addr::from_bits(0xac10_0000 | n << 4);
        let src_ip = Some(IpPrefix { addr: net.into(), len: 28 });
        let dst_port = n.is_multiple_of(2).then_some(n as u16..=n as u16 + 9);
        let protocol =
            Some(if n.is_multiple_of(3) { ipv4::PROTOCOL_TCP } else { ipv4::PROTOCOL_UDP });
        let matches = Match { src_ip, dst_port, protocol, ..Match::default() };
        Rule { matches, action: RuleAction::Deny }
    };
    let acls = vec![Acl { rules: (0..rules).map(rule).collect(), default_allow: true }];
    let vlan = wire::Vid::new(7).ok();
    let port = |n: u64| PortConfig {
        acl: (n == 0 && rules > 0).then_some(0),
        learning: bridge::switch::Learning { limit: 4096, beyond: bridge::switch::Beyond::Forward },
        ..PortConfig::access(vlan)
    };
    let ports = (0..PORTS).map(port).map(Some);
    let ports = std::iter::once(Some(PortConfig::uplink())).chain(ports).collect();
    let config = SwitchConfig { ports, acls, ..SwitchConfig::default() };
    Table::build(&config).expect("a configuration without a mistake")
}

fn frame(dst: Mac, src: Mac, flow: u32) -> Vec<u8> {
    let mut frame = [dst.0, src.0].concat();
    frame.extend(0x0800_u16.to_be_bytes());
    frame.resize(60, 0);
    let ip = ipv4::Header {
        src: Ipv4Addr::from_bits(0x0a00_0000 | flow),
        dst: Ipv4Addr::new(10, 255, 0, 1),
        protocol: ipv4::PROTOCOL_UDP,
        ttl: 64,
        id: 0,
        payload_len: 26,
    };
    ip.emit(&mut frame[14..]).expect("room for IPv4");
    let udp = udp::Header { src_port: 4000, dst_port: 5000 };
    udp.emit(&ip, &mut frame[34..]).expect("room for UDP");
    frame
}

type Frames = Vec<(Vec<[u8; 16]>, Vec<HeaderSnapshot>)>;

fn bursts(mut choose: impl FnMut(u64) -> (Mac, u32)) -> Frames {
    let mut random = 1_u64;
    let mut one = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let (dst, flow) = choose(random >> 33);
        let snapshots = HeaderSnapshot::of_frame(&frame(dst, mac(0), flow));
        (*snapshots.bytes.first_chunk().expect("a snapshot is longer"), snapshots)
    };
    (0..BURSTS).map(|_| (0..BURST).map(|_| one()).unzip()).collect()
}

/// Address `n` is seen at port `1 + n % PORTS`, until all are known.
fn learned(table: &Table, macs: u64) -> State {
    let state = State::new(Fdb::new(4096, 1).expect("a capacity that is allowed"));
    let mut out = SwitchVerdicts::new();
    for n in 0..macs {
        let from = PortId(1 + (n % PORTS) as u16);
        let snapshots = [HeaderSnapshot::of_frame(&frame(Mac::BROADCAST, mac(n), 0))];
        let headers = [*snapshots[0].bytes.first_chunk().expect("a snapshot is longer")];
        let burst = Burst { from, headers: &headers, snapshots: Some(&snapshots), now_ns: 0 };
        table.classify(&state, &burst, &mut Flows::new(), &mut [], &mut out);
    }
    assert_eq!(state.fdb.len() as u64, macs);
    state
}

fn ns_per_frame(table: &Table, state: &State, bursts: &Frames) -> f64 {
    let (mut flows, mut out) = (Flows::new(), SwitchVerdicts::new());
    let mut counters = vec![0; table.counters_len()];
    let needs_snapshots = table.needs_snapshots(FROM);
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        for (headers, snapshots) in bursts {
            let snapshots = needs_snapshots.then_some(&snapshots[..]);
            let burst = black_box(Burst { from: FROM, headers, snapshots, now_ns: 0 });
            black_box(table.classify(state, &burst, &mut flows, &mut counters, &mut out));
            black_box(&out);
        }
        best = best.min(start.elapsed());
    }
    best.as_secs_f64() * 1e9 / (bursts.len() * BURST) as f64
}

fn main() {
    println!("MACs  rules  {:>9} {:>9} {:>9} {:>9}", "one flow", "random", "64 nets", "all new");
    for macs in [2, 64, 1024, 4096] {
        let any = |random| mac(1 + random % (macs - 1));
        let mut count = 0;
        let all = [
            bursts(|_| (mac(1), 0)),
            bursts(|random| (any(random), 0)),
            bursts(|random| (any(random), (random >> 16 & 63) as u32 * 16)),
            bursts(|random| {
                count += 1;
                (any(random), count * 16)
            }),
        ];
        for rules in [0, 100, 1000] {
            let table = table(rules);
            let state = learned(&table, macs);
            let [a, b, c, d] = [0, 1, 2, 3].map(|n| ns_per_frame(&table, &state, &all[n]));
            println!("{macs:>4}  {rules:>5}  {a:>9.2} {b:>9.2} {c:>9.2} {d:>9.2}");
        }
    }
}
