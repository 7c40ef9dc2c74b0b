//! Guests that contend for the switch: each keeps its transmit ring full all the time.
//!
//! They are in pairs, each sends to its peer. Time is cut in slices, and in each slice some may be
//! deaf (they take no frame from their receive ring, which so has no buffer any more) or mute (they
//! post no frame). So situations that are to be compared take turns within one process, one daemon
//! and one memory. Before each slice counts nothing is counted for a while, until rings are as full
//! or as empty as they will be.
//!
//! Buffers are given back unseen: the guests' thread must be faster than the switch, or rings are
//! not full. The lane's own counters, which this process reads between slices, tell whether they
//! were.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::stats::{self, Stats};
use guestmem::Pages;
use host::tsc;
use report::{Load, RingKind};
use serde::{Deserialize, Serialize};
use wire::Mac;

use super::{Event, Generator, IN_FLIGHT, Traffic, say, self_test, wait_for_word};

/// Rounds of the generator's self-test.
const SELF_TEST_ROUNDS: u32 = 2000;
/// All guests' turns take some ten microseconds, and so does the lane's round.
const STILL: Duration = Duration::from_micros(200);

/// Contenders to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContendSpec {
    /// CPU to run on, if it is to be pinned.
    pub cpu: Option<usize>,
    /// The daemon's run directory, where its counters are.
    pub run_dir: PathBuf,
    /// Seconds before the first slice.
    pub warmup_s: f64,
    /// Seconds of each slice that are not counted.
    pub settle_s: f64,
    /// Seconds of each slice that are counted.
    pub slice_s: f64,
    /// The guests.
    pub guests: Vec<Contender>,
    /// The slices, in turn.
    pub slices: Vec<Phase>,
}

/// One guest. Addresses are written as `02:00:00:00:00:01`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Contender {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Its own address.
    pub mac: String,
    /// Where its frames go.
    pub peer: String,
    /// Bytes of its frames, with FCS.
    pub frame_bytes: u32,
}

/// What is special about a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Guests that take no frame.
    pub deaf: Vec<usize>,
    /// Guests that send none.
    pub mute: Vec<usize>,
}

/// What was counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContendResult {
    /// Millions of frames a second that one generator could send to an instant sink: the least of
    /// the guests' frame sizes.
    pub generator_limit_mpps: f64,
    /// In the order of the specification.
    pub slices: Vec<Slice>,
}

/// One slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Seconds.
    pub seconds: f64,
    /// Share of them in which nothing moved for longer than 200 us: this process or the lane had no
    /// CPU, so that the load was not a full one.
    pub still_share: f64,
    /// Frames that the switch took from each guest.
    pub sent: Vec<u64>,
    /// Frames that each guest received.
    pub received: Vec<u64>,
    /// What the lanes counted, with the time before the slice that does not count for guests.
    pub lanes: LaneCounts,
}

/// The sum over the lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCounts {
    /// Frames.
    pub frames: u64,
    /// Bursts.
    pub bursts: u64,
    /// Bursts after which the ring had more.
    pub backlog_bursts: u64,
    /// Time-stamp cycles of rounds that found frames.
    pub busy_cycles: u64,
    /// And of those that found none.
    pub idle_cycles: u64,
}

impl LaneCounts {
    /// What `stats` says.
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

    /// What was counted since `before`.
    pub fn since(&self, before: &LaneCounts) -> LaneCounts {
        LaneCounts {
            frames: self.frames - before.frames,
            bursts: self.bursts - before.bursts,
            backlog_bursts: self.backlog_bursts - before.backlog_bursts,
            busy_cycles: self.busy_cycles - before.busy_cycles,
            idle_cycles: self.idle_cycles - before.idle_cycles,
        }
    }

    /// Both together.
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

/// Attaches, waits for the word to go, and tells what was counted in each slice.
pub fn run(spec: &ContendSpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    let mut limit = f64::INFINITY;
    for frame_bytes in sizes(&spec.guests) {
        limit = limit.min(self_test(frame_bytes, Load::Overload, SELF_TEST_ROUNDS)?);
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

/// The frame sizes that there are.
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
    let load = Load::Overload;
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

    /// Lets all have their turns for some seconds; says how many it were, and in which share of
    /// them nothing moved.
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
