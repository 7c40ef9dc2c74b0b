//! Guests that contend for the switch: each keeps its transmit ring full.
//!
//! Guests come in pairs that send to each other. Time is divided into slices. In a slice, some
//! guests may be deaf (they take no frame, so their receive ring runs out of buffers) or mute (they
//! post no frame). All compared cases thus alternate within one process, one daemon and one memory.
//! Each slice starts with an uncounted interval, in which the rings reach their steady state.
//!
//! Buffers are recycled without reading them: the guests' thread must be faster than the switch, or
//! the rings are not full. The lane counters, which this process reads between slices, show if they
//! were.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::stats::{self, Stats};
use guestmem::Pages;
use host::tsc;
use report::{GeneratorLoad, RingKind};
use serde::{Deserialize, Serialize};
use wire::Mac;

use super::{Event, Generator, IN_FLIGHT, Traffic, say, self_test, wait_for_word};

/// Rounds of the generator's self-test.
const SELF_TEST_ROUNDS: u32 = 2000;
/// Time without a frame that counts as a stall. One turn of all guests, and one lane round, each
/// take about 10 us.
const STILL: Duration = Duration::from_micros(200);

/// Task: contending guests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContendSpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Run directory of the daemon, which holds its counters.
    pub run_dir: PathBuf,
    /// Seconds before the first slice.
    pub warmup_s: f64,
    /// Uncounted seconds of each slice.
    pub settle_s: f64,
    /// Counted seconds of each slice.
    pub slice_s: f64,
    /// The guests.
    pub guests: Vec<Contender>,
    /// Slices, in order.
    pub slices: Vec<Phase>,
}

/// One guest. Addresses are written as `02:00:00:00:00:01`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contender {
    /// Vhost-user socket of the daemon.
    pub socket: PathBuf,
    /// MAC address of the guest.
    pub mac: String,
    /// MAC address of the destination.
    pub peer: String,
    /// Frame size with FCS, bytes.
    pub frame_bytes: u32,
}

/// Exceptions of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Guests that take no frame.
    pub deaf: Vec<usize>,
    /// Guests that send no frame.
    pub mute: Vec<usize>,
}

/// Result of a contention run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContendResult {
    /// Highest rate of one generator into an instant sink, Mframes/s: the lowest over the frame
    /// sizes.
    pub generator_limit_mpps: f64,
    /// Slices, in the order of the specification.
    pub slices: Vec<Slice>,
}

/// Counts of one slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Seconds.
    pub seconds: f64,
    /// Share of the seconds in which no frame moved for more than 200 us: this process or the lane
    /// had no CPU, so the load was not full.
    pub still_share: f64,
    /// Frames that the switch took from each guest.
    pub sent: Vec<u64>,
    /// Frames that each guest received.
    pub received: Vec<u64>,
    /// Lane counters, which include the uncounted interval before the slice.
    pub lanes: LaneCounts,
}

/// Counters summed over the lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCounts {
    /// Frames.
    pub frames: u64,
    /// Bursts.
    pub bursts: u64,
    /// Bursts that left more frames in the ring.
    pub backlog_bursts: u64,
    /// Time-stamp cycles of rounds that found frames.
    pub busy_cycles: u64,
    /// Time-stamp cycles of rounds without frames.
    pub idle_cycles: u64,
}

impl LaneCounts {
    /// Reads the counters from `stats`.
    ///
    /// # Errors
    /// If a counter is missing.
    pub fn of(stats: &Stats) -> Result<LaneCounts> {
        let sum = |name: &str| {
            let values = stats.lanes.iter().map(|lane| lane.values.get(name).copied());
            values.sum::<Option<u64>>().with_context(|| format!("no lane counter {name}"))
        };
        Ok(LaneCounts {
            frames: sum("frames")?,
            bursts: sum("bursts")?,
            backlog_bursts: sum("backlog_bursts")?,
            busy_cycles: sum("busy_cycles")?,
            idle_cycles: sum("idle_cycles")?,
        })
    }

    /// Difference to an earlier reading.
    pub fn since(&self, before: &LaneCounts) -> LaneCounts {
        LaneCounts {
            frames: self.frames - before.frames,
            bursts: self.bursts - before.bursts,
            backlog_bursts: self.backlog_bursts - before.backlog_bursts,
            busy_cycles: self.busy_cycles - before.busy_cycles,
            idle_cycles: self.idle_cycles - before.idle_cycles,
        }
    }

    /// Sum of two readings.
    pub fn and(&self, other: &LaneCounts) -> LaneCounts {
        LaneCounts {
            frames: self.frames + other.frames,
            bursts: self.bursts + other.bursts,
            backlog_bursts: self.backlog_bursts + other.backlog_bursts,
            busy_cycles: self.busy_cycles + other.busy_cycles,
            idle_cycles: self.idle_cycles + other.idle_cycles,
        }
    }
}

/// Attaches, waits for the parent, and reports the counts of each slice.
pub fn run(spec: &ContendSpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    let mut limit = f64::INFINITY;
    for frame_bytes in sizes(&spec.guests) {
        limit = limit.min(self_test(frame_bytes, GeneratorLoad::Overload, SELF_TEST_ROUNDS)?);
    }
    let guests = spec.guests.iter().map(attach).collect::<Result<Vec<_>>>()?;
    for at in spec.slices.iter().flat_map(|phase| phase.deaf.iter().chain(&phase.mute)) {
        ensure!(*at < guests.len(), "there is no guest {at}");
    }
    say(&Event::Ready)?;
    wait_for_word()?;
    let mut crowd = Crowd { guests };
    crowd.run_for(spec.warmup_s, &Phase::default());
    let mut slices = Vec::with_capacity(spec.slices.len());
    let mut before = LaneCounts::of(&stats::read(&spec.run_dir)?)?;
    for phase in &spec.slices {
        crowd.run_for(spec.settle_s, phase);
        let begin = crowd.counts();
        let (seconds, still_share) = crowd.run_for(spec.slice_s, phase);
        let end = crowd.counts();
        let after = LaneCounts::of(&stats::read(&spec.run_dir)?)?;
        let gain = |what: fn(&(u64, u64)) -> u64| {
            end.iter().zip(&begin).map(|(end, begin)| what(end) - what(begin)).collect()
        };
        let (sent, received) = (gain(|(sent, _)| *sent), gain(|(_, received)| *received));
        slices.push(Slice { seconds, still_share, sent, received, lanes: after.since(&before) });
        before = after;
    }
    say(&Event::Contended(ContendResult { generator_limit_mpps: limit, slices }))
}

/// Distinct frame sizes.
fn sizes(guests: &[Contender]) -> Vec<u32> {
    let mut sizes: Vec<u32> = guests.iter().map(|guest| guest.frame_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn attach(guest: &Contender) -> Result<Generator> {
    let mac = |text: &String| text.parse::<Mac>().with_context(|| format!("address {text}"));
    let flows = &[(mac(&guest.mac)?, mac(&guest.peer)?)];
    let frame_bytes = guest.frame_bytes;
    let (in_flight, touch, pages) = (IN_FLIGHT, false, Pages::Gathered);
    let ring = RingKind::Split;
    let load = GeneratorLoad::Overload;
    let traffic = Traffic { flows, frame_bytes, in_flight, load, touch, pages, ring };
    Generator::attach(&guest.socket, &traffic)
}

/// All contenders, on one thread.
struct Crowd {
    guests: Vec<Generator>,
}

impl Crowd {
    /// Frames sent and received, by guest.
    fn counts(&self) -> Vec<(u64, u64)> {
        self.guests.iter().map(|guest| (guest.sent, guest.received)).collect()
    }

    /// Runs all guests for some seconds; returns the real seconds, and their share without a moved
    /// frame.
    fn run_for(&mut self, seconds: f64, phase: &Phase) -> (f64, f64) {
        let limit = tsc::duration_to_cycles(Duration::from_secs_f64(seconds));
        let still_after = tsc::duration_to_cycles(STILL);
        let all = |silent: &[usize]| {
            let takes_part = |guest| !silent.contains(&guest);
            (0..self.guests.len()).map(takes_part).collect::<Vec<bool>>()
        };
        let (hears, speaks) = (all(&phase.deaf), all(&phase.mute));
        let start = tsc::now();
        let (mut moved_at, mut still) = (start, 0);
        loop {
            let mut moved = 0;
            for ((guest, hears), speaks) in self.guests.iter_mut().zip(&hears).zip(&speaks) {
                moved += guest.recycle(*hears, *speaks);
            }
            let now = tsc::now();
            let passed = now.wrapping_sub(start);
            if moved > 0 || passed >= limit {
                let gap = now.wrapping_sub(moved_at);
                still += if gap > still_after { gap } else { 0 };
                moved_at = now;
            }
            if passed >= limit {
                return (passed as f64 / tsc::hz(), still as f64 / passed as f64);
            }
        }
    }
}
