//! Time that the schedule takes for a turn, beside plain round robin.
//!
//! `cargo run --release -p shunt-bridge --example schedule_cycles`. Each figure is the best of
//! several short runs; a burst of 64 small frames takes a lane some 1500 ns.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bridge::nic::{Schedule, Share};

const TURNS: u64 = 1 << 20;
const RUNS: usize = 10;

fn best(mut run: impl FnMut()) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
    }
    best.as_secs_f64() * 1e9 / TURNS as f64
}

/// Turns of senders whose bursts have so many bytes, on time that goes by as they are sent.
fn scheduled(rings: u32, share: Share, burst: impl Fn(u32) -> u64) -> f64 {
    let mut schedule = Schedule::new();
    (0..rings).for_each(|ring| {
        schedule.add(share, [ring], 0);
    });
    let mut now = 0;
    best(|| {
        let mut turns = 0;
        while turns < TURNS {
            if let Some(ring) = schedule.next(black_box(now)) {
                let bytes = burst(black_box(ring));
                schedule.took(bytes, bytes, true);
                now += bytes;
                turns += 1;
            } else {
                now += 1000;
            }
        }
    })
}

fn round_robin(rings: u32) -> f64 {
    let bytes = &mut vec![0_u64; rings as usize];
    let mut at = 0;
    best(|| {
        for _ in 0..TURNS {
            bytes[black_box(at)] += 3840;
            at += 1;
            if at == bytes.len() {
                at = 0;
            }
        }
    })
}

fn main() {
    println!("{:<34} {:>8} {:>8}", "ns for each turn", "8 rings", "64 rings");
    let row = |name, of: &dyn Fn(u32) -> f64| println!("{name:<34} {:>8.1} {:>8.1}", of(8), of(64));
    let mixed = |ring: u32| if ring.is_multiple_of(2) { 3840 } else { 96_896 };
    let rates = Share { min_mbit: 50, max_mbit: 5000, ..Share::default() };
    row("round robin", &round_robin);
    row("no rates, small frames", &|rings| scheduled(rings, Share::default(), |_| 3840));
    row("no rates, large frames", &|rings| scheduled(rings, Share::default(), |_| 96_896));
    row("no rates, small and large frames", &|rings| scheduled(rings, Share::default(), mixed));
    row("minimum and maximum, small frames", &|rings| scheduled(rings, rates, |_| 3840));
}
