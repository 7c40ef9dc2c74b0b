//! A vhost-user device that returns each frame to its guest after a known delay.
//!
//! # Model
//! One thread serves one socket and polls without sleeping. It takes a frame from the guest's
//! transmit ring, copies it, returns the buffer, and draws a delay. When the delay has passed since
//! the time stamp in the frame, the device copies the frame into the guest's receive ring and
//! publishes the ring. A frame without a receive buffer is not dropped: it waits, and is late.
//!
//! The device measures its own errors: see [`DelayResult`]. If the host took its CPU away, it marks
//! the late frame in its number, so that the generator can exclude it from quantiles.
//!
//! # Limits
//! - One guest with one queue pair; connections and messages are served once a millisecond.
//! - Time-stamp counters of two CPUs are compared: they must be synchronised.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use host::tsc;
use report::statistics::random::Random;
use traffic::{Latency, PAUSE_MIN, RETURNED_LATE, SEQUENCE_AT, histogram, ns_between};

use super::bare::session::{Offer, Session};
use crate::measure::copy_loop::{HEADER, NUM_BUFFERS, Ring, Rings};
use crate::measure::delay::{DelayLine, Distribution, HeldFrame};

/// Interval of polls of the socket.
const POLL: Duration = Duration::from_millis(1);
/// Maximum frames taken, and returned, in one turn. They share one reading of the clock, so more
/// frames increase the lateness of the last one.
const TURN: usize = 8;
/// Maximum held frames; further ones stay in the guest's transmit ring.
const HELD_MAX: usize = 1 << 16;
/// Offset of a frame's number.
const NUMBER_AT: usize = HEADER as usize + SEQUENCE_AT as usize;
/// Offset of a frame's sending time: the time-stamp counter, behind the number.
const STAMP_AT: usize = NUMBER_AT + 8;

/// Control of a device's thread.
#[derive(Debug, Default)]
pub struct DelayControl {
    begun: AtomicBool,
    stopped: AtomicBool,
}

impl DelayControl {
    /// Begins the measurement: earlier times do not count.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Ends the device.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Account of a device. Histograms are those of frames returned since [`DelayControl::begin`].
#[derive(Clone, Copy, Debug, Default)]
pub struct DelayResult {
    /// Delays drawn.
    pub drawn: Latency,
    /// Actual delay: from the guest's stamp until the ring with the frame was published.
    pub held: Latency,
    /// Time from the frame's release time until the ring was published: the device's own bias.
    pub lateness: Latency,
    /// Time from the guest's stamp until the device took the frame.
    pub pickup: Latency,
    /// Frames returned after one that arrived later, from the first frame on.
    pub reordered: u64,
}

impl DelayResult {
    /// Sum of repeated trials; times as in [`Latency::of_trials`].
    pub(crate) fn of_trials(trials: &[DelayResult]) -> DelayResult {
        let over = |time: fn(&DelayResult) -> Latency| Latency::of_trials(trials.iter().map(time));
        DelayResult {
            drawn: over(|trial| trial.drawn),
            held: over(|trial| trial.held),
            lateness: over(|trial| trial.lateness),
            pickup: over(|trial| trial.pickup),
            reordered: trials.iter().map(|trial| trial.reordered).sum(),
        }
    }
}

/// A device without a guest.
#[derive(Debug)]
pub struct DelayDevice {
    session: Session,
    delays: Delays,
}

/// Held frames, and their measured times.
#[derive(Debug)]
struct Delays {
    distribution: Distribution,
    random: Random,
    line: DelayLine<Vec<u8>>,
    /// Buffers of returned frames.
    spare: Vec<Vec<u8>>,
    /// Lateness, in cycles, from which a frame is marked.
    late: u64,
    times: DelayHistograms,
}

/// Histograms of nanoseconds, by field of [`DelayResult`].
#[derive(Debug)]
struct DelayHistograms {
    drawn: Histogram<u64>,
    held: Histogram<u64>,
    lateness: Histogram<u64>,
    pickup: Histogram<u64>,
}

impl DelayDevice {
    /// Listens on a socket. Delays are drawn with `seed`.
    ///
    /// # Errors
    /// Listening on the socket fails.
    pub fn listen(socket: &Path, distribution: Distribution, seed: u64) -> Result<DelayDevice> {
        let offer = Offer { packed: false, mergeable: true };
        let times = DelayHistograms {
            drawn: histogram()?,
            held: histogram()?,
            lateness: histogram()?,
            pickup: histogram()?,
        };
        let delays = Delays {
            distribution,
            random: Random::new(seed),
            line: DelayLine::default(),
            spare: Vec::new(),
            late: tsc::duration_to_cycles(PAUSE_MIN),
            times,
        };
        Ok(DelayDevice { session: Session::new(socket, false, offer)?, delays })
    }

    /// Serves the guest on this thread until it is stopped. Without a CPU of its own it yields when
    /// idle.
    ///
    /// # Errors
    /// The CPU is missing, or the socket is unusable.
    pub fn serve(mut self, cpu: Option<usize>, control: &DelayControl) -> Result<DelayResult> {
        if let Some(cpu) = cpu {
            host::cpu::pin_this_thread(cpu)?;
        }
        let interval = tsc::duration_to_cycles(POLL);
        let mut polled = tsc::now().wrapping_sub(interval);
        let mut begun = false;
        while !control.stopped.load(Ordering::Relaxed) {
            let now = tsc::now();
            if now.wrapping_sub(polled) >= interval {
                self.session.poll(Instant::now())?;
                if !self.session.is_running() {
                    std::thread::sleep(POLL);
                }
                polled = now;
            }
            if !begun && control.begun.load(Ordering::Relaxed) {
                begun = true;
                self.delays.times.reset();
            }
            let Rings { tx, rx } = &mut self.session.guest.rings;
            let taken = tx.as_mut().is_some_and(|tx| self.delays.take_in(tx));
            let returned = rx.as_mut().is_some_and(|rx| self.delays.give_back(rx));
            if !taken && !returned && cpu.is_none() {
                std::thread::yield_now();
            }
        }
        let Delays { times, line, .. } = &self.delays;
        Ok(DelayResult {
            drawn: Latency::of(&times.drawn),
            held: Latency::of(&times.held),
            lateness: Latency::of(&times.lateness),
            pickup: Latency::of(&times.pickup),
            reordered: line.reordered(),
        })
    }
}

impl Delays {
    /// Takes frames from the guest; `true` if there were any.
    fn take_in(&mut self, tx: &mut Ring) -> bool {
        let room = HELD_MAX - self.line.len();
        let n = tx.queue.stage(TURN).min(room);
        if n == 0 {
            return false;
        }
        let arrived = tsc::now();
        for _ in 0..n {
            let (buffers, rest) = tx.queue.buffers();
            let Some(buffer) = buffers.first() else { break };
            let mut frame = self.spare.pop().unwrap_or_default();
            frame.resize(buffer.len as usize, 0);
            buffer.read_bytes(rest, 0, &mut frame);
            tx.queue.add_used(0);
            let delay_us = self.distribution.draw_us(&mut self.random);
            let delay = (delay_us / 1e6 * tsc::hz()).round() as u64;
            let stamp = frame.get(STAMP_AT..STAMP_AT + 8);
            let stamp = stamp
                .map_or(arrived, |stamp| u64::from_be_bytes(stamp.try_into().expect("8 bytes")));
            self.times.pickup.saturating_record(ns_between(stamp, arrived));
            self.line.hold(stamp.min(arrived), delay, frame);
        }
        tx.publish();
        true
    }

    /// Returns due frames; `true` if there were any.
    fn give_back(&mut self, rx: &mut Ring) -> bool {
        let now = tsc::now();
        if !self.line.is_due(now) || rx.queue.stage(TURN) == 0 {
            return false;
        }
        let mut released = [const { None::<HeldFrame<Vec<u8>>> }; TURN];
        let mut count = 0;
        loop {
            let (buffers, rest) = rx.queue.buffers();
            let Some(buffer) = buffers.first() else { break };
            let Some(mut held) = self.line.release(now) else { break };
            if held.frame.len() < STAMP_AT + 8 || held.frame.len() > buffer.len as usize {
                // Dropped: no frame of the generator, or too long for the buffer.
                self.spare.push(held.frame);
                continue;
            }
            if now - held.due >= self.late {
                held.frame[NUMBER_AT] |= RETURNED_LATE.to_be_bytes()[0];
            }
            held.frame[NUM_BUFFERS as usize..HEADER as usize].copy_from_slice(&[1, 0]);
            let mut done = 0;
            for slice in buffer.slices(rest) {
                done += slice.write_bytes(&held.frame[done..]) as usize;
            }
            rx.queue.add_used(held.frame.len() as u32);
            released[count] = Some(held);
            count += 1;
        }
        rx.publish();
        let published = tsc::now();
        for held in released.into_iter().flatten() {
            self.times.record(&held, published);
            self.spare.push(held.frame);
        }
        true
    }
}

impl DelayHistograms {
    fn record(&mut self, frame: &HeldFrame<Vec<u8>>, published: u64) {
        let HeldFrame { from, due, .. } = *frame;
        self.drawn.saturating_record(ns_between(from, due));
        self.held.saturating_record(ns_between(from, published));
        self.lateness.saturating_record(ns_between(due, published));
    }

    fn reset(&mut self) {
        for times in [&mut self.drawn, &mut self.held, &mut self.lateness, &mut self.pickup] {
            times.reset();
        }
    }
}
