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

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::stats;
use guestmem::Pages;
use host::tsc;
use report::{GeneratorLoad, RingKind};
use rustix::event::epoll;
use wire::Mac;

use crate::generate::{Generator, GeneratorConfig, IN_FLIGHT, PIECES_MAX, self_test};
use crate::lane_counts::LaneCounts;
use crate::parent::{send_event, wait_for_parent};
use crate::protocol::Event;
use crate::protocol::contend::{Burden, ContendResult, ContendSpec, Contender, Phase, Slice};

/// Rounds of the generator's self-test.
const SELF_TEST_ROUNDS: u32 = 2000;
/// Time without a frame that counts as a stall. One turn of all guests, and one lane round, each
/// take about 10 us.
const STILL: Duration = Duration::from_micros(200);
/// Watchers of a slow interrupt.
const WATCHERS: usize = 256;

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
    let (guests, _watchers): (Vec<_>, Vec<_>) = guests.into_iter().unzip();
    for at in spec.slices.iter().flat_map(|phase| phase.deaf.iter().chain(&phase.mute)) {
        ensure!(*at < guests.len(), "there is no guest {at}");
    }
    send_event(&Event::Ready)?;
    wait_for_parent()?;
    let mut crowd = Contenders { guests };
    crowd.run_for(spec.warmup_s, &Phase::default());
    let mut slices = Vec::with_capacity(spec.slices.len());
    let read = || -> Result<(LaneCounts, Vec<u64>)> {
        let stats = stats::read(&spec.run_dir)?;
        let cycles = stats.ports.iter().map(|port| port.tx_cycles).collect();
        Ok((LaneCounts::of(&stats)?, cycles))
    };
    let mut before = read()?;
    for phase in &spec.slices {
        crowd.run_for(spec.settle_s, phase);
        let begin = crowd.counts();
        let (seconds, still_share) = crowd.run_for(spec.slice_s, phase);
        let end = crowd.counts();
        let after = read()?;
        let gain = |what: fn(&(u64, u64)) -> u64| {
            end.iter().zip(&begin).map(|(end, begin)| what(end) - what(begin)).collect()
        };
        let (sent, received) = (gain(|(sent, _)| *sent), gain(|(_, received)| *received));
        let lanes = after.0.since(&before.0);
        let cycles = after.1.iter().zip(&before.1).map(|(after, before)| after - before).collect();
        slices.push(Slice { seconds, still_share, sent, received, cycles, lanes });
        before = after;
    }
    send_event(&Event::Contended(ContendResult { generator_limit_mpps: limit, slices }))
}

/// Distinct frame sizes.
fn sizes(guests: &[Contender]) -> Vec<u32> {
    let mut sizes: Vec<u32> = guests.iter().map(|guest| guest.frame_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Attaches a guest; returns the watchers of its interrupts as well.
fn attach(guest: &Contender) -> Result<(Generator, Vec<OwnedFd>)> {
    let mac = |text: &String| text.parse::<Mac>().with_context(|| format!("address {text}"));
    let peer = match guest.burden {
        Burden::Flood => Mac::BROADCAST,
        _ => mac(&guest.peer)?,
    };
    let flows = &[(mac(&guest.mac)?, peer)];
    let frame_bytes = guest.frame_bytes;
    let (in_flight, touch, pages) = (IN_FLIGHT, false, Pages::Collapsed);
    let (ring, load) = (RingKind::Split, GeneratorLoad::Overload);
    let pieces = if guest.burden == Burden::Pieces { PIECES_MAX } else { 1 };
    let traffic =
        GeneratorConfig { flows, frame_bytes, in_flight, load, touch, pages, ring, pieces };
    let mut generator = Generator::attach(&guest.socket, &traffic)?;
    let watchers = match guest.burden {
        Burden::Interrupt => watch(generator.adapter.enable_interrupts())?,
        _ => Vec::new(),
    };
    Ok((generator, watchers))
}

/// Makes each write to the descriptors slow: the kernel informs every watcher.
fn watch(descriptors: [&OwnedFd; 2]) -> Result<Vec<OwnedFd>> {
    let watcher = |_| {
        let watcher = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for descriptor in descriptors {
            epoll::add(&watcher, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(watcher)
    };
    (0..WATCHERS).map(watcher).collect()
}

/// All contenders, on one thread.
struct Contenders {
    guests: Vec<Generator>,
}

impl Contenders {
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
