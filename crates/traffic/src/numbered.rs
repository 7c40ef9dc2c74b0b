//! Two guests that send numbered frames to each other, and account for each number.
//!
//! A guest sends while fewer than a window of its frames are in flight; both guests are in this
//! process, so the sender knows the receiver's state. The window is a quarter of a ring, so no ring
//! overflows, and every lost frame was lost by the daemon. Each frame is checked as a whole. Frames
//! cycle through seven lengths, and their numbers increase by one.
//!
//! With a full window and no arrival for a second, the frames in flight are given up; a frame that
//! still comes counts as reordered, not as lost.
//!
//! Limits: a gap between two arrivals includes the time in which this process or the daemon had no
//! CPU. The longest absence is reported beside it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use host::tsc;
use report::RingKind;
use serde::{Deserialize, Serialize};
use wire::Mac;
use wire::probe;

use super::adapter::Shape;
use super::honest::end::{End, frame_len};
use super::ledger::Ledger;
use super::{Event, say, wait_for_word};

/// Frames in flight in each direction: a quarter of a ring.
const WINDOW: u64 = 256;
/// Longest wait for a frame.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval of checks for the daemon.
const LOOK: Duration = Duration::from_millis(1);
/// Longest gap that is recorded exactly, ns.
const GAP_MAX_NS: u64 = 60_000_000_000;

/// Task: two guests. Addresses are written as `02:00:00:00:00:01`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NumberedSpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Socket and address of each guest.
    pub guests: [(PathBuf, String); 2],
    /// Frames a second in each direction; 0: limited by the window only.
    #[serde(default)]
    pub rate_pps: u32,
    /// Rings of both adapters.
    #[serde(default)]
    pub ring: RingKind,
    /// The daemon keeps inflight records, which the next daemon reads.
    #[serde(default)]
    pub inflight: bool,
    /// Guests reattach to the next daemon, with their rings unchanged.
    #[serde(default)]
    pub reattach: bool,
}

/// Account of the frames.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NumberedResult {
    /// Seconds from the start to the last frame.
    pub seconds: f64,
    /// From the first guest to the second, and back.
    pub directions: [Direction; 2],
    /// Longest time between two turns of this process, in microseconds: it had no CPU, so no frame
    /// could arrive.
    pub absence_us_max: f64,
    /// Spans between marks, one for each `mark` of the parent.
    #[serde(default)]
    pub marks: Vec<Mark>,
    /// Used entries that repeat another or name no posted buffer, on any ring.
    #[serde(default)]
    pub used_repeated: u64,
    /// Buffers returned before others that were posted earlier.
    #[serde(default)]
    pub used_out_of_order: u64,
    /// Transmit buffers that were not returned.
    #[serde(default)]
    pub used_missing: u64,
}

/// A span of the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Longest time between two arrivals in one direction, in microseconds.
    pub gap_us: f64,
    /// Longest time without a CPU, in microseconds.
    pub absence_us: f64,
    /// Frames that arrived again.
    pub duplicated: u64,
    /// Longest time from a listening daemon to started rings, in microseconds; 0 if no guest
    /// reattached.
    pub reattach_us: f64,
}

/// Frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Frames sent.
    pub sent: u64,
    /// Numbers that arrived.
    pub received: u64,
    /// Numbers that never arrived.
    pub lost: u64,
    /// Frames whose number had arrived before.
    pub duplicated: u64,
    /// Frames that arrived after a higher number.
    pub reordered: u64,
    /// Frames of the peer with changed bytes.
    pub corrupted: u64,
    /// Frames of other senders, such as address announcements.
    pub foreign: u64,
    /// Number of windows given up.
    pub stalls: u64,
    /// Longest time between two arrivals, in microseconds.
    pub gap_us_max: f64,
    /// 99.9th percentile of these gaps, in microseconds.
    pub gap_us_p999: f64,
}

/// Attaches, sends until the parent stops it, and reports the account.
pub fn run(spec: &NumberedSpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    let mac = |text: &String| text.parse::<Mac>().with_context(|| format!("address {text}"));
    let [(first, a), (second, b)] = &spec.guests;
    let (a, b) = (mac(a)?, mac(b)?);
    let shape = Shape { event_idx: true, inflight: spec.inflight, ..Shape::of(spec.ring) };
    let attach = |socket: &PathBuf, own, peer| End::attach_shaped(socket, own, peer, shape);
    let mut pair = Pair {
        ends: [attach(first, a, b)?, attach(second, b, a)?],
        ways: [Way::new(b, a)?, Way::new(a, b)?],
        sockets: spec.reattach.then(|| [first.clone(), second.clone()]),
        alone_since: [None; 2],
        looked: 0,
        span: Span::default(),
        marks: Vec::new(),
    };
    say(&Event::Ready)?;
    wait_for_word()?;
    let words = Arc::new(Words::default());
    let heard = words.clone();
    std::thread::spawn(move || heard.listen());
    say(&Event::Numbered(pair.run(&words, spec.rate_pps)))
}

/// Lines received from the parent.
#[derive(Debug, Default)]
struct Words {
    /// Number of `mark` lines.
    marks: AtomicU64,
    stop: AtomicBool,
}

impl Words {
    /// Reads lines until one is not `mark`; end of file counts as one.
    fn listen(&self) {
        for line in std::io::stdin().lines() {
            match line.as_deref() {
                Ok("mark") => self.marks.fetch_add(1, Ordering::Release),
                _ => break,
            };
        }
        self.stop.store(true, Ordering::Release);
    }
}

fn us(cycles: u64) -> f64 {
    tsc::cycles_to_ns(cycles) / 1e3
}

/// Frames that one guest receives.
struct Way {
    from: Mac,
    to: Mac,
    sent: u64,
    ledger: Ledger,
    corrupted: u64,
    foreign: u64,
    stalls: u64,
    /// Arrival of the last frame, in time-stamp cycles.
    arrived: u64,
    /// Longest gap since the last mark, in cycles, and the duplicates counted by then.
    gap: u64,
    duplicated_before: u64,
    gaps_ns: Histogram<u64>,
}

impl Way {
    fn new(to: Mac, from: Mac) -> Result<Way> {
        Ok(Way {
            from,
            to,
            sent: 0,
            ledger: Ledger::default(),
            corrupted: 0,
            foreign: 0,
            stalls: 0,
            arrived: 0,
            gap: 0,
            duplicated_before: 0,
            gaps_ns: Histogram::new_with_bounds(1, GAP_MAX_NS, 3)?,
        })
    }

    fn on_their_way(&self) -> u64 {
        self.sent - self.ledger.next()
    }

    fn take(&mut self, frame: &[u8]) {
        let addresses = frame.get(..12).map(|both| both.split_at(6));
        if addresses != Some((&self.to.0, &self.from.0)) {
            self.foreign += 1;
            return;
        }
        match probe::verify(frame) {
            Ok(mark) if mark.sequence < self.sent && frame.len() == frame_len(mark.sequence) => {
                self.ledger.take(mark.sequence);
            }
            _ => self.corrupted += 1,
        }
    }

    /// Records an arrival.
    fn arrive(&mut self, now: u64) {
        if self.arrived != 0 {
            let gap = now.wrapping_sub(self.arrived);
            self.gap = self.gap.max(gap);
            let ns = tsc::cycles_to_ns(gap);
            self.gaps_ns.saturating_record(ns as u64);
        }
        self.arrived = now;
    }

    fn told(&self) -> Direction {
        let us = |ns: u64| ns as f64 / 1e3;
        Direction {
            sent: self.sent,
            received: self.ledger.received,
            lost: self.ledger.lost() + self.on_their_way(),
            duplicated: self.ledger.duplicated,
            reordered: self.ledger.reordered,
            corrupted: self.corrupted,
            foreign: self.foreign,
            stalls: self.stalls,
            gap_us_max: us(self.gaps_ns.max()),
            gap_us_p999: us(self.gaps_ns.value_at_quantile(0.999)),
        }
    }
}

/// Span since the last mark, in cycles.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    absence: u64,
    reattach: u64,
}

/// Both guests. `ways[i]` holds the frames that `ends[1 - i]` receives.
struct Pair {
    ends: [End; 2],
    ways: [Way; 2],
    /// Sockets to reattach to, if the task says so.
    sockets: Option<[PathBuf; 2]>,
    /// Time at which a daemon was seen to listen again, or to be gone.
    alone_since: [Option<u64>; 2],
    /// Time of the last check for the daemon.
    looked: u64,
    span: Span,
    marks: Vec<Mark>,
}

impl Pair {
    fn run(&mut self, words: &Words, rate_pps: u32) -> NumberedResult {
        let begin = tsc::now();
        let patience = tsc::duration_to_cycles(PATIENCE);
        let (mut last_turn, mut absence) = (begin, 0);
        loop {
            let stopping = words.stop.load(Ordering::Acquire);
            let due = match rate_pps {
                0 => u64::MAX,
                pps => {
                    let since = tsc::cycles_to_ns(tsc::now().wrapping_sub(begin));
                    (since * f64::from(pps) / 1e9) as u64
                }
            };
            self.turn(if stopping { 0 } else { due });
            self.look(words);
            let now = tsc::now();
            // Time before the first arrivals is no gap.
            if self.ways.iter().all(|way| way.arrived != 0) {
                let away = now.wrapping_sub(last_turn);
                absence = absence.max(away);
                self.span.absence = self.span.absence.max(away);
            }
            last_turn = now;
            let still = |way: &Way| now.wrapping_sub(way.arrived.max(begin)) > patience;
            if stopping && self.ways.iter().all(|way| way.on_their_way() == 0 || still(way)) {
                break;
            }
            let alone = self.alone_since.iter().any(Option::is_some);
            for way in self.ways.iter_mut().filter(|way| !alone && way.on_their_way() >= WINDOW) {
                if still(way) {
                    way.ledger.give_up(way.sent);
                    way.arrived = now;
                    way.stalls += 1;
                }
            }
            // Other threads of the daemon, and clients that change paths, may need this CPU.
            std::thread::yield_now();
        }
        self.ends.iter_mut().for_each(End::publish); // takes back sent buffers
        let [first, second] = [&self.ends[0], &self.ends[1]].map(End::accounts);
        NumberedResult {
            seconds: us(last_turn.wrapping_sub(begin)) / 1e6,
            directions: [self.ways[0].told(), self.ways[1].told()],
            absence_us_max: us(absence),
            marks: std::mem::take(&mut self.marks),
            used_repeated: first.repeated + second.repeated,
            used_out_of_order: first.out_of_order + second.out_of_order,
            used_missing: first.missing + second.missing,
        }
    }

    /// Handles marks, and daemons that went away or came back.
    fn look(&mut self, words: &Words) {
        if words.marks.load(Ordering::Acquire) > self.marks.len() as u64 {
            let gap = self.ways.iter_mut().map(|way| std::mem::take(&mut way.gap)).max();
            let duplicated = self.ways.iter_mut().map(|way| {
                let now = way.ledger.duplicated;
                now - std::mem::replace(&mut way.duplicated_before, now)
            });
            let Span { absence, reattach } = std::mem::take(&mut self.span);
            self.marks.push(Mark {
                gap_us: us(gap.unwrap_or_default()),
                absence_us: us(absence),
                duplicated: duplicated.sum(),
                reattach_us: us(reattach),
            });
        }
        let now = tsc::now();
        let Some(sockets) = &self.sockets else { return };
        if now.wrapping_sub(self.looked) < tsc::duration_to_cycles(LOOK) {
            return;
        }
        self.looked = now;
        for ((end, socket), alone) in self.ends.iter_mut().zip(sockets).zip(&mut self.alone_since) {
            if alone.is_none() && end.is_alone() {
                *alone = Some(now);
            }
            // A stale socket file refuses the connection; a live socket accepts at once.
            if alone.is_some() {
                let begin = tsc::now();
                if end.reattach(socket) {
                    *alone = None;
                    let took = tsc::now().wrapping_sub(begin);
                    self.span.reattach = self.span.reattach.max(took);
                }
            }
        }
    }

    /// Empties both receive rings, and sends up to the limits of window and rate.
    fn turn(&mut self, due: u64) {
        for (i, way) in self.ways.iter_mut().enumerate() {
            let before = way.ledger.received;
            self.ends[1 - i].receive(|_, frame| {
                way.take(frame.bytes);
                false
            });
            if way.ledger.received > before {
                way.arrive(tsc::now());
            }
        }
        for (way, end) in self.ways.iter_mut().zip(&mut self.ends) {
            while way.sent < due && way.on_their_way() < WINDOW && end.send(way.sent) {
                way.sent += 1;
            }
            end.publish();
        }
    }
}
