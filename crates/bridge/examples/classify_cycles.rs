//! Time of the classifier for bursts of 64 frames: one flow, a few and many MACs.
//!
//! `cargo run --release -p shunt-bridge --example classify_cycles`. Each figure is the best of
//! several short runs; destinations are random, so that the branch predictor learns nothing.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bridge::nic::{Flows, Function, NicConfig, Table};
use bridge::{BURST, PortId, Verdicts};
use wire::Mac;

/// Bursts prepared in advance: 4 MiB of headers, walked through in turn.
const BURSTS: usize = 4096;
const RUNS: usize = 20;
const VFS: u64 = 64;

fn mac(n: u64) -> Mac {
    Mac::from_key(0x02 | (n & 0xff) << 40 | (n >> 8) << 32)
}

/// `macs` addresses spread over up to 64 VFs.
fn table(macs: u64) -> Table {
    let vfs = macs.min(VFS);
    let function = |vf: u64| Function {
        extra_macs: (vf + vfs..macs).step_by(vfs as usize).map(mac).collect(),
        ..Function::new(mac(vf))
    };
    let vfs = (0..vfs).map(|vf| Some(function(vf))).collect();
    let config = NicConfig { vfs, ..NicConfig::default() };
    Table::build(&config).expect("the addresses are distinct")
}

/// Frames from VF 0 to `choose(random)`, with varying bytes behind the type.
fn bursts(choose: impl Fn(u64) -> Mac) -> Vec<[[u8; 16]; BURST]> {
    let mut random = 1_u64;
    let mut header = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let low = choose(random >> 33).key() | mac(0).key() << 48;
        let high = mac(0).key() >> 16 | 0x0008_u64 << 32 | (random >> 48) << 48;
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    };
    (0..BURSTS).map(|_| std::array::from_fn(|_| header())).collect()
}

/// Frames from each address of VF 0 to the one of VF 1 with the same number, in turn.
fn in_turn(macs: u64) -> Vec<[[u8; 16]; BURST]> {
    let vfs = macs.min(VFS);
    let mut flows = (0..macs).step_by(vfs as usize).cycle();
    let mut header = || {
        let from = flows.next().unwrap_or(0);
        let low = mac(from + 1).key() | mac(from).key() << 48;
        let high = mac(from).key() >> 16 | 0x0008_u64 << 32;
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    };
    (0..BURSTS).map(|_| std::array::from_fn(|_| header())).collect()
}

fn ns_per_frame(table: &Table, from: PortId, bursts: &[[[u8; 16]; BURST]]) -> f64 {
    let (mut verdicts, mut flows) = (Verdicts::new(), Flows::new());
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        for headers in bursts {
            black_box(table.classify(from, black_box(headers), &mut flows, &mut verdicts));
            black_box(&verdicts);
        }
        best = best.min(start.elapsed());
    }
    best.as_secs_f64() * 1e9 / (bursts.len() * BURST) as f64
}

fn main() {
    println!("{:>5}  {:<26} {:>12} {:>12}", "MACs", "destinations", "VF 0 ns", "uplink ns");
    for macs in [2, 64, 1024, 4096] {
        let table = table(macs);
        let all: [(&str, Vec<_>); 5] = [
            ("one", bursts(|_| mac(1))),
            ("those of VF 1 in turn", in_turn(macs)),
            ("random", bursts(|random| mac(1 + random % (macs - 1)))),
            ("unknown, random", bursts(|random| mac(macs + random % 4096))),
            (
                "random, some broadcast",
                bursts(|random| {
                    if random % 16 == 0 {
                        Mac::BROADCAST
                    } else {
                        mac(1 + random / 16 % (macs - 1))
                    }
                }),
            ),
        ];
        for (name, bursts) in &all {
            let vf = ns_per_frame(&table, PortId::vf(0), bursts);
            let uplink = ns_per_frame(&table, PortId::UPLINK, bursts);
            println!("{macs:>5}  {name:<26} {vf:>12.2} {uplink:>12.2}");
        }
    }
}
