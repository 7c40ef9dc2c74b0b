//! Two guests that send numbered frames to each other, and account for each number.
//!
//! A guest sends while fewer than a window of its frames are on their way: both guests are in this
//! process, so the sender sees what the receiver has seen. The window is a quarter of a ring, so no
//! ring of a guest is ever full, and what is lost was lost by the daemon. Each frame is checked as a
//! whole. Frames have seven lengths in turn, and their numbers go up by one.
//!
//! When nothing has come for a second though the window is full, what was on its way is given up;
//! should it come yet, it counts as overtaken and not as lost.
//!
//! Limits: the time between two arrivals is as long as this process, or the daemon, had no CPU,
//! which on a machine of two CPUs is told by the longest absence beside it.

mod ledger;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use host::tsc;
use serde::{Deserialize, Serialize};
use wire::Mac;
use wire::probe;

use super::honest::end::{End, frame_len};
use super::{Event, say, wait_for_word};
use ledger::Ledger;

/// Frames on their way in each direction: a quarter of a ring.
const WINDOW: u64 = 256;
/// For so long frames are waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest gap that is told exactly, in ns.
const GAP_MAX_NS: u64 = 60_000_000_000;

/// Two guests to be. Addresses are written as `02:00:00:00:00:01`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NumberedSpec {
    /// CPU to run on, if it is to be pinned.
    pub cpu: Option<usize>,
    /// Socket and address of each.
    pub guests: [(PathBuf, String); 2],
}

/// What became of the frames.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NumberedResult {
    /// Seconds from the word to go to the last frame.
    pub seconds: f64,
    /// From the first guest to the second, and back.
    pub directions: [Direction; 2],
    /// Longest time between two turns of this process, in microseconds: when it had no CPU, nothing
    /// could arrive.
    pub absence_us_max: f64,
}

/// The frames of one direction.
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
    /// Frames whose number arrived after a greater one.
    pub reordered: u64,
    /// Frames of the peer that were not as it had sent them.
    pub corrupted: u64,
    /// Frames of somebody else, such as announcements of an address.
    pub foreign: u64,
    /// How often a whole window was given up.
    pub stalls: u64,
    /// Longest time between two arrivals, in microseconds.
    pub gap_us_max: f64,
    /// The same that one in a thousand gaps exceeds.
    pub gap_us_p999: f64,
}

/// Attaches, sends until the parent says another word, and tells what became of the frames.
pub fn run(spec: &NumberedSpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    let mac = |text: &String| text.parse::<Mac>().with_context(|| format!("address {text}"));
    let [(first, a), (second, b)] = &spec.guests;
    let (a, b) = (mac(a)?, mac(b)?);
    let mut pair = Pair {
        ends: [End::attach(first, a, b)?, End::attach(second, b, a)?],
        ways: [Way::new(b, a)?, Way::new(a, b)?],
    };
    say(&Event::Ready)?;
    wait_for_word()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = stop.clone();
    std::thread::spawn(move || {
        let _ = wait_for_word(); // an end of file is a word, too
        stopper.store(true, Ordering::Release);
    });
    say(&Event::Numbered(pair.run(&stop)))
}

/// The frames that one end receives.
struct Way {
    from: Mac,
    to: Mac,
    sent: u64,
    ledger: Ledger,
    corrupted: u64,
    foreign: u64,
    stalls: u64,
    /// When the last frame arrived, by the time-stamp counter.
    arrived: u64,
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

    /// Notes that frames came just now.
    fn arrive(&mut self, now: u64) {
        if self.arrived != 0 {
            let ns = tsc::cycles_to_ns(now.wrapping_sub(self.arrived));
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

/// Both guests. `ways[i]` holds what `ends[1 - i]` receives.
struct Pair {
    ends: [End; 2],
    ways: [Way; 2],
}

impl Pair {
    fn run(&mut self, stop: &AtomicBool) -> NumberedResult {
        let begin = tsc::now();
        let patience = tsc::duration_to_cycles(PATIENCE);
        let (mut last_turn, mut absence) = (begin, 0);
        loop {
            let stopping = stop.load(Ordering::Acquire);
            self.turn(stopping);
            let now = tsc::now();
            // What came before the first arrivals was no gap, either.
            if self.ways.iter().all(|way| way.arrived != 0) {
                absence = absence.max(now.wrapping_sub(last_turn));
            }
            last_turn = now;
            let still = |way: &Way| now.wrapping_sub(way.arrived.max(begin)) > patience;
            if stopping && self.ways.iter().all(|way| way.on_their_way() == 0 || still(way)) {
                break;
            }
            for way in self.ways.iter_mut().filter(|way| way.on_their_way() >= WINDOW) {
                if still(way) {
                    way.ledger.give_up(way.sent);
                    way.arrived = now;
                    way.stalls += 1;
                }
            }
            // The daemon's other threads, and who asks it to change paths, may have this CPU, too.
            std::thread::yield_now();
        }
        let us = |cycles| tsc::cycles_to_ns(cycles) / 1e3;
        NumberedResult {
            seconds: us(last_turn.wrapping_sub(begin)) / 1e6,
            directions: [self.ways[0].told(), self.ways[1].told()],
            absence_us_max: us(absence),
        }
    }

    /// Empties both receive rings, and sends what the windows allow.
    fn turn(&mut self, stopping: bool) {
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
            while !stopping && way.on_their_way() < WINDOW && end.send(way.sent) {
                way.sent += 1;
            }
            end.publish();
        }
    }
}
