//! Generator at a constant rate, and receiver of the returned frames: loss, latency, order.
//!
//! # Model
//! Frames are due at equal intervals from the first step on. Each carries a number of its flow and
//! the time-stamp counter at its sending; [`Latency`] is the time from there until the generator
//! polls it from its receive ring. The lateness of sending, the generator's own bias, is reported
//! beside the latency. So are its [pauses](super::pauses), and the latency of the frames that met
//! none.
//!
//! For a back-to-back test it switches to one burst when the measurement begins: a given number of
//! frames, as fast as its ring takes them, and none after them.
//!
//! A generator that loses its CPU has frames due that it did not send. It catches up at most
//! [`BACKLOG_MAX`] of them and counts the others as skipped, so that no burst exceeds the load.
//!
//! # Limits
//! Times come from one clock, the time-stamp counter, and one thread, which polls: a frame waits
//! while the thread serves other guests or has no CPU.

use std::collections::VecDeque;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use host::tsc;
use report::statistics::quantile::median;
use serde::{Deserialize, Serialize};
use virtq::BURST;

use super::adapter::{Adapter, HEADER, RING, RingOptions};
use super::generate::{GeneratorConfig, SEQUENCE_AT, frame};
use super::ledger::Ledger;
use super::pauses::{Pauses, PausesResult};

/// Maximum frames to catch up after a pause of the generator: fewer than the smallest ring holds.
const BACKLOG_MAX: u64 = RING as u64 / 2;
/// Bit of a frame's number set by a device of known delays for a late frame; no number is as high.
pub const RETURNED_LATE: u64 = 1 << 63;
/// Longest time in histograms, ns; longer ones are clamped.
const NS_MAX: u64 = 60_000_000_000;

/// Times of frames, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of frames.
    pub frames: u64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest time.
    pub max_us: f64,
}

impl Latency {
    /// Summary of a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            frames: histogram.len(),
            p50_us: us(0.5),
            p90_us: us(0.9),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: us(1.0),
        }
    }

    /// Summary of repeated trials: the median of each quantile (robust against a trial that lost
    /// its CPU), the sum of frames, and the longest time. Trials without frames are ignored.
    pub fn of_trials(trials: impl Iterator<Item = Latency> + Clone) -> Latency {
        let trials = trials.filter(|trial| trial.frames > 0);
        let of = |value: fn(&Latency) -> f64| -> f64 {
            let values: Vec<f64> = trials.clone().map(|trial| value(&trial)).collect();
            median(&values).unwrap_or_default()
        };
        Latency {
            frames: trials.clone().map(|trial| trial.frames).sum(),
            p50_us: of(|trial| trial.p50_us),
            p90_us: of(|trial| trial.p90_us),
            p99_us: of(|trial| trial.p99_us),
            p999_us: of(|trial| trial.p999_us),
            max_us: trials.clone().map(|trial| trial.max_us).fold(0.0, f64::max),
        }
    }
}

/// Empty histogram of nanoseconds, exact to 0.1 %.
pub fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, NS_MAX, 3).context("no histogram")
}

/// Account of a generator at a constant rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacedResult {
    /// Frames sent since the start.
    pub sent: u64,
    /// Frames due in the measured time but not sent: the generator was late or had no free buffer.
    pub skipped: u64,
    /// Frames received, without duplicates.
    pub received: u64,
    /// Frames received a second time.
    pub duplicated: u64,
    /// Frames received after a later one of their flow.
    pub reordered: u64,
    /// Time from sending to receiving, in the measured time.
    pub latency: Latency,
    /// Latency of frames that met no pause of the generator; all 0 without frames.
    #[serde(default)]
    pub latency_unpaused: Latency,
    /// Pauses of the generator, in the measured time.
    #[serde(default)]
    pub pauses: PausesResult,
    /// Time from due to sent, in the measured time: the generator's own bias.
    pub lateness: Latency,
    /// Account of the burst, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<BurstResult>,
}

impl PacedResult {
    /// Sum of repeated trials without bursts; times as in [`Latency::of_trials`].
    pub fn of_trials(trials: &[PacedResult]) -> PacedResult {
        let sum = |count: fn(&PacedResult) -> u64| trials.iter().map(count).sum();
        let times = |time: fn(&PacedResult) -> Latency| Latency::of_trials(trials.iter().map(time));
        PacedResult {
            sent: sum(|trial| trial.sent),
            skipped: sum(|trial| trial.skipped),
            received: sum(|trial| trial.received),
            duplicated: sum(|trial| trial.duplicated),
            reordered: sum(|trial| trial.reordered),
            latency: times(|trial| trial.latency),
            latency_unpaused: times(|trial| trial.latency_unpaused),
            pauses: PausesResult::of_trials(trials.iter().map(|trial| trial.pauses)),
            lateness: times(|trial| trial.lateness),
            burst: None,
        }
    }
}

/// Account of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BurstResult {
    /// Frames that were not sent in time.
    pub left: u64,
    /// Frames a second from the first to the last; `None` if all were posted at once.
    pub rate_fps: Option<f64>,
}

/// A generator at a constant rate.
#[derive(Debug)]
pub(super) struct Paced {
    pub(super) adapter: Adapter,
    /// Bytes of a frame with its header.
    len: u32,
    /// Free transmit buffers, the longest unused first. Buffer `b` has a frame of flow `b` modulo
    /// the number of flows.
    free: VecDeque<u32>,
    /// By flow: the next number, and the returned ones.
    flows: Vec<(u64, Ledger)>,
    schedule: Schedule,
    burst: Option<Burst>,
    sending: bool,
    pauses: Pauses,
    latency: Histogram<u64>,
    latency_unpaused: Histogram<u64>,
    lateness: Histogram<u64>,
    pub(super) sent: u64,
}

impl Paced {
    /// Attaches, and prepares the frames and the receive buffers. A `burst` is sent when the
    /// measurement begins. The thread polls `guests` guests, this one included.
    pub(super) fn attach(
        socket: &Path,
        traffic: &GeneratorConfig<'_>,
        load_fps: f64,
        burst: Option<u64>,
        guests: u32,
    ) -> Result<Paced> {
        let GeneratorConfig { flows, frame_bytes, in_flight, pages, ring, .. } = *traffic;
        let mut adapter = Adapter::attach_as(socket, RingOptions::of(ring), pages)?;
        ensure!(!flows.is_empty(), "a generator needs at least one flow");
        for buffer in 0..in_flight {
            let (source, destination) = flows[buffer as usize % flows.len()];
            let frame = frame(source, destination, frame_bytes, 0)?;
            let place = adapter.buffer(buffer);
            place.write(0, [0; HEADER as usize]);
            place.skip(HEADER).write_bytes(&frame);
        }
        (0..u32::from(RING)).for_each(|buffer| {
            adapter.post_receive(u32::from(RING) + buffer);
        });
        adapter.publish();
        Ok(Paced {
            adapter,
            len: HEADER + frame_bytes.saturating_sub(4),
            free: (0..in_flight).collect(),
            flows: vec![(0, Ledger::default()); flows.len()],
            schedule: Schedule::new(load_fps)?,
            burst: burst.map(Burst::new),
            sending: true,
            pauses: Pauses::new(guests),
            latency: histogram()?,
            latency_unpaused: histogram()?,
            lateness: histogram()?,
            sent: 0,
        })
    }

    /// Sends due frames and receives; returns the number of frames moved.
    pub(super) fn step(&mut self) -> u64 {
        let received = self.receive();
        let mut back = [0; BURST];
        let taken = self.adapter.reap_transmit(&mut back);
        self.free.extend(&back[..taken]);
        self.sent += taken as u64;
        if self.sending {
            self.send();
        }
        self.adapter.publish();
        received + taken as u64
    }

    fn receive(&mut self) -> u64 {
        let mut frames = [(0, 0); BURST];
        let n = self.adapter.reap_receive(&mut frames);
        let now = tsc::now();
        let late = self.pauses.poll(now, n == BURST);
        for (buffer, _) in &frames[..n] {
            let mut mark = [0; 16];
            self.adapter.buffer(*buffer).skip(HEADER + SEQUENCE_AT).read_bytes(&mut mark);
            self.adapter.post_receive(*buffer);
            let [sequence, stamp] =
                [0, 8].map(|at| u64::from_be_bytes(mark[at..at + 8].try_into().expect("8 bytes")));
            let (sequence, returned_late) =
                (sequence & !RETURNED_LATE, sequence & RETURNED_LATE != 0);
            let flow = sequence as usize % self.flows.len();
            let number = sequence / self.flows.len() as u64;
            self.flows[flow].1.take(number);
            let latency = ns_between(stamp, now);
            self.latency.saturating_record(latency);
            if !late && !returned_late && !self.pauses.met(stamp) {
                self.latency_unpaused.saturating_record(latency);
            }
        }
        n as u64
    }

    fn send(&mut self) {
        let now = tsc::now();
        let room = self.free.len().min(BURST);
        let (due, count) = match &mut self.burst {
            Some(burst) if burst.begun => (None, burst.take(now, room as u64)),
            _ => {
                let (due, count) = self.schedule.due(now, room as u64);
                (Some(due), count)
            }
        };
        if count > 0 {
            self.pauses.post(now);
        }
        let flows = self.flows.len();
        for (i, buffer) in self.free.drain(..count as usize).enumerate() {
            let flow = buffer as usize % flows;
            let number = &mut self.flows[flow].0;
            let sequence = *number * flows as u64 + flow as u64;
            *number += 1;
            let place = self.adapter.buffer(buffer);
            place.write(HEADER + SEQUENCE_AT, sequence.to_be_bytes());
            place.write(HEADER + SEQUENCE_AT + 8, now.to_be_bytes());
            self.adapter.post_transmit(buffer, self.len);
            if let Some(due) = due {
                self.lateness.saturating_record(ns_between(self.schedule.at(due + i as u64), now));
            }
        }
    }

    /// Begins the measurement: drops earlier times and skipped frames. Starts the burst, if any.
    pub(super) fn begin(&mut self) {
        if let Some(burst) = &mut self.burst {
            burst.begun = true;
        }
        self.schedule.skipped = 0;
        self.pauses.reset();
        for times in [&mut self.latency, &mut self.latency_unpaused, &mut self.lateness] {
            times.reset();
        }
    }

    /// Stops sending, except for the rest of a burst.
    pub(super) fn stop(&mut self) {
        self.sending = self.burst.is_some();
    }

    /// Frames received so far, without duplicates.
    pub(super) fn received(&self) -> u64 {
        self.flows.iter().map(|(_, ledger)| ledger.received).sum()
    }

    pub(super) fn result(&self) -> PacedResult {
        let sum = |what: fn(&Ledger) -> u64| self.flows.iter().map(|(_, it)| what(it)).sum();
        PacedResult {
            sent: self.sent,
            skipped: self.schedule.skipped,
            received: self.received(),
            duplicated: sum(|ledger| ledger.duplicated),
            reordered: sum(|ledger| ledger.reordered),
            latency: Latency::of(&self.latency),
            latency_unpaused: Latency::of(&self.latency_unpaused),
            pauses: self.pauses.result(),
            lateness: Latency::of(&self.lateness),
            burst: self.burst.as_ref().map(Burst::result),
        }
    }
}

/// Nanoseconds between two readings of the time-stamp counter; 0 if the second is the smaller.
pub fn ns_between(begin: u64, end: u64) -> u64 {
    tsc::cycles_to_ns(end.saturating_sub(begin)) as u64
}

/// Frames to send at the highest rate.
#[derive(Debug)]
struct Burst {
    begun: bool,
    frames: u64,
    /// Frames not yet posted.
    left: u64,
    /// Time of the first post, and the frames that it had.
    first: Option<(u64, u64)>,
    /// Time of the last post.
    last: u64,
}

impl Burst {
    fn new(frames: u64) -> Burst {
        Burst { begun: false, frames, left: frames, first: None, last: 0 }
    }

    /// Number of frames to post now, at most `room`.
    fn take(&mut self, now: u64, room: u64) -> u64 {
        let count = self.left.min(room);
        if count > 0 {
            self.left -= count;
            self.first.get_or_insert((now, count));
            self.last = now;
        }
        count
    }

    fn result(&self) -> BurstResult {
        // A post lasts until the next one, so the frames of the first are in no interval.
        let rate_fps = self.first.filter(|(first, _)| self.last > *first).map(|(first, count)| {
            let frames = self.frames - self.left - count;
            frames as f64 / (self.last - first) as f64 * tsc::hz()
        });
        BurstResult { left: self.left, rate_fps }
    }
}

/// Times at which frames are due.
#[derive(Debug)]
struct Schedule {
    cycles_per_frame: f64,
    /// Time of frame 0; `None` before the first step.
    start: Option<u64>,
    /// Number of frames sent or skipped.
    next: u64,
    skipped: u64,
}

impl Schedule {
    fn new(load_fps: f64) -> Result<Schedule> {
        ensure!(load_fps > 0.0, "a load of {load_fps} frames/s: it must be above 0");
        let cycles_per_frame = tsc::hz() / load_fps;
        Ok(Schedule { cycles_per_frame, start: None, next: 0, skipped: 0 })
    }

    /// First frame to send now, and the number of frames, at most `room`.
    fn due(&mut self, now: u64, room: u64) -> (u64, u64) {
        let start = *self.start.get_or_insert(now);
        let passed = (now.saturating_sub(start) as f64 / self.cycles_per_frame) as u64 + 1;
        let late = passed.saturating_sub(self.next + BACKLOG_MAX);
        self.skipped += late;
        let first = self.next + late;
        let count = passed.saturating_sub(first).min(room);
        self.next = first + count;
        (first, count)
    }

    /// Time at which a frame is due.
    fn at(&self, number: u64) -> u64 {
        self.start.unwrap_or_default() + (number as f64 * self.cycles_per_frame) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schedule of one frame every 1000 cycles.
    fn schedule() -> Schedule {
        Schedule { cycles_per_frame: 1000.0, start: None, next: 0, skipped: 0 }
    }

    #[test]
    fn frames_are_due_at_equal_intervals() {
        let mut schedule = schedule();
        assert_eq!(schedule.due(5_000, 64), (0, 1));
        assert_eq!(schedule.due(5_999, 64), (1, 0));
        assert_eq!(schedule.due(6_000, 64), (1, 1));
        assert_eq!(schedule.due(16_500, 64), (2, 10));
        assert_eq!((schedule.at(0), schedule.at(11)), (5_000, 16_000));
        assert_eq!(schedule.skipped, 0);
    }

    #[test]
    fn a_pause_is_made_up_for_in_part_and_the_rest_is_told() {
        let mut schedule = schedule();
        assert_eq!(schedule.due(0, 64), (0, 1));
        // 1000 frames later, the oldest are skipped, and the room limits the others.
        assert_eq!(schedule.due(1_000_000, 64), (1001 - BACKLOG_MAX, 64));
        assert_eq!(schedule.skipped, 1000 - BACKLOG_MAX);
        assert_eq!(schedule.due(1_000_000, 1000).1, BACKLOG_MAX - 64);
        assert_eq!(schedule.due(1_000_000, 64).1, 0);
        assert_eq!(schedule.next, 1001);
    }

    #[test]
    fn a_burst_is_sent_once_and_as_the_ring_takes_it() {
        let mut burst = Burst::new(150);
        let counts = [(1_000, 64), (2_000, 0), (3_000, 64), (4_000, 64), (5_000, 64)];
        assert_eq!(counts.map(|(now, room)| burst.take(now, room)), [64, 0, 64, 22, 0]);
        let BurstResult { left, rate_fps } = burst.result();
        // The 86 frames after the first post took 3000 cycles.
        assert_eq!((left, rate_fps), (0, Some(86.0 / 3_000.0 * tsc::hz())));
    }

    #[test]
    fn a_burst_that_is_posted_at_once_has_no_rate() {
        let mut burst = Burst::new(100);
        assert_eq!(burst.result(), BurstResult { left: 100, rate_fps: None });
        burst.take(7, 60);
        assert_eq!(burst.result(), BurstResult { left: 40, rate_fps: None });
    }

    #[test]
    fn latency_of_a_known_distribution_is_told_within_its_resolution() {
        let mut histogram = histogram().unwrap();
        // 1 to 10 us in steps of 1 ns, as a device of known delays has.
        (1_000..=10_000).for_each(|ns| histogram.saturating_record(ns));
        let latency = Latency::of(&histogram);
        assert_eq!(latency.frames, 9_001);
        for (told, known) in [(latency.p50_us, 5.5), (latency.p99_us, 9.91), (latency.max_us, 10.0)]
        {
            assert!((told / known - 1.0).abs() < 0.002, "{told} us, not {known} us");
        }
    }
}
