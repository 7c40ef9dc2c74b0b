//! Two guests that send numbered frames to each other, and account for each number.
//!
//! A guest sends while fewer than a window of its frames are in flight; both guests are in this
//! process, so the sender knows the receiver's state. The window is a quarter of a ring, so no ring
//! overflows, and every lost frame was lost by the daemon. Each frame is checked as a whole. Frames
//! cycle through seven lengths, and their numbers increase by one.
//!
//! At each line `mark` of the parent, the guests report the span since the last one.
//!
//! With a full window and no arrival for a second, the frames in flight are given up; a frame that
//! still comes is not lost.
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
use wire::Mac;
use wire::probe;

use super::adapter::RingOptions;
use super::honest::guest::{ProbeGuest, frame_len};
use super::ledger::Ledger;
use super::turn_counter::TurnCounter;
use crate::parent::{send_event, wait_for_parent};
use crate::protocol::Event;
use crate::protocol::numbered::{Direction, Mark, NumberedResult, NumberedSpec};

/// Frames in flight in each direction: a quarter of a ring.
const WINDOW: u64 = 256;
/// Longest wait for a frame.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval of checks for the daemon.
const CHECK: Duration = Duration::from_millis(1);
/// Longest gap that is recorded exactly, ns.
const GAP_MAX_NS: u64 = 60_000_000_000;
/// Significant digits of latencies.
const LATENCY_DIGITS: u8 = 2;

/// Attaches, sends until the parent stops it, and reports the account.
pub fn run(spec: &NumberedSpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    let mac = |text: &String| text.parse::<Mac>().with_context(|| format!("address {text}"));
    let [(first, a), (second, b)] = &spec.guests;
    let (a, b) = (mac(a)?, mac(b)?);
    let options =
        RingOptions { event_idx: true, inflight: spec.inflight, ..RingOptions::of(spec.ring) };
    let attach = |socket: &PathBuf, own, peer| ProbeGuest::attach_with(socket, own, peer, options);
    let mut pair = GuestPair {
        guests: [attach(first, a, b)?, attach(second, b, a)?],
        streams: [FrameStream::new(b, a)?, FrameStream::new(a, b)?],
        sockets: spec.reattach.then(|| [first.clone(), second.clone()]),
        disconnected_since: [None; 2],
        checked: 0,
        span: Span::default(),
        latencies_ns: Histogram::new_with_bounds(1, GAP_MAX_NS, LATENCY_DIGITS)?,
        marks: 0,
        pace: spec.pace.as_deref().map(TurnCounter::open).transpose()?,
    };
    send_event(&Event::Ready)?;
    wait_for_parent()?;
    let commands = Arc::new(ParentCommands::default());
    let heard = commands.clone();
    std::thread::spawn(move || heard.listen());
    let result = pair.run(&commands, spec.rate_pps)?;
    send_event(&Event::Numbered(result))
}

/// Lines received from the parent.
#[derive(Debug, Default)]
struct ParentCommands {
    /// Number of `mark` lines.
    marks: AtomicU64,
    stop: AtomicBool,
}

impl ParentCommands {
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
struct FrameStream {
    from: Mac,
    to: Mac,
    sent: u64,
    /// Times of sending, by number modulo the window, in time-stamp cycles.
    sent_at: [u64; WINDOW as usize],
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

impl FrameStream {
    fn new(to: Mac, from: Mac) -> Result<FrameStream> {
        Ok(FrameStream {
            from,
            to,
            sent: 0,
            sent_at: [0; WINDOW as usize],
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

    fn in_flight(&self) -> u64 {
        self.sent - self.ledger.next()
    }

    /// Records a frame that arrived by `now`.
    fn take(&mut self, frame: &[u8], now: u64, latencies_ns: &mut Histogram<u64>) {
        let addresses = frame.get(..12).map(|both| both.split_at(6));
        if addresses != Some((&self.to.0, &self.from.0)) {
            self.foreign += 1;
            return;
        }
        match probe::verify(frame) {
            Ok(mark) if mark.sequence < self.sent && frame.len() == frame_len(mark.sequence) => {
                let before = self.ledger.received;
                self.ledger.take(mark.sequence);
                // The time of an older frame has been overwritten.
                if self.ledger.received > before && self.sent - mark.sequence <= WINDOW {
                    let sent_at = self.sent_at[(mark.sequence % WINDOW) as usize];
                    let ns = tsc::cycles_to_ns(now.wrapping_sub(sent_at));
                    latencies_ns.saturating_record(ns as u64);
                }
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
            lost: self.ledger.lost(),
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

/// Both guests. `streams[i]` holds the frames that `guests[1 - i]` receives.
struct GuestPair {
    guests: [ProbeGuest; 2],
    streams: [FrameStream; 2],
    /// Sockets to reattach to, if the task says so.
    sockets: Option<[PathBuf; 2]>,
    /// Time at which a daemon was seen to listen again, or to be gone.
    disconnected_since: [Option<u64>; 2],
    /// Time of the last check for the daemon.
    checked: u64,
    span: Span,
    /// Latencies since the last mark.
    latencies_ns: Histogram<u64>,
    /// Number of marks.
    marks: u64,
    pace: Option<TurnCounter>,
}

impl GuestPair {
    fn run(&mut self, commands: &ParentCommands, rate_pps: u32) -> Result<NumberedResult> {
        let begin = tsc::now();
        let patience = tsc::duration_to_cycles(PATIENCE);
        let (mut last_turn, mut absence) = (begin, 0);
        loop {
            let stopping = commands.stop.load(Ordering::Acquire);
            let due = match rate_pps {
                0 => u64::MAX,
                pps => {
                    let since = tsc::cycles_to_ns(tsc::now().wrapping_sub(begin));
                    (since * f64::from(pps) / 1e9) as u64
                }
            };
            self.turn(if stopping { 0 } else { due });
            if commands.marks.load(Ordering::Acquire) > self.marks {
                self.marks += 1;
                send_event(&Event::Marked(self.end_span()))?;
            }
            self.check();
            let now = tsc::now();
            // Time before the first arrivals is no gap.
            if self.streams.iter().all(|stream| stream.arrived != 0) {
                let away = now.wrapping_sub(last_turn);
                absence = absence.max(away);
                self.span.absence = self.span.absence.max(away);
            }
            last_turn = now;
            let still =
                |stream: &FrameStream| now.wrapping_sub(stream.arrived.max(begin)) > patience;
            if stopping
                && self.streams.iter().all(|stream| stream.in_flight() == 0 || still(stream))
            {
                break;
            }
            let disconnected = self.disconnected_since.iter().any(Option::is_some);
            for stream in self
                .streams
                .iter_mut()
                .filter(|stream| !disconnected && stream.in_flight() >= WINDOW)
            {
                if still(stream) {
                    stream.ledger.give_up(stream.sent);
                    stream.arrived = now;
                    stream.stalls += 1;
                }
            }
            // Other threads of the daemon, and clients that change paths, may need this CPU.
            std::thread::yield_now();
        }
        for stream in &mut self.streams {
            stream.ledger.give_up(stream.sent); // what is in flight now is lost
        }
        self.guests.iter_mut().for_each(ProbeGuest::publish); // takes back sent buffers
        let [first, second] = [&self.guests[0], &self.guests[1]].map(ProbeGuest::accounts);
        Ok(NumberedResult {
            seconds: us(last_turn.wrapping_sub(begin)) / 1e6,
            directions: [self.streams[0].told(), self.streams[1].told()],
            absence_us_max: us(absence),
            used_repeated: first.repeated + second.repeated,
            used_out_of_order: first.out_of_order + second.out_of_order,
            used_missing: first.missing + second.missing,
        })
    }

    /// Ends a span.
    fn end_span(&mut self) -> Mark {
        let gap = self.streams.iter_mut().map(|stream| std::mem::take(&mut stream.gap)).max();
        let duplicated = self.streams.iter_mut().map(|stream| {
            let now = stream.ledger.duplicated;
            now - std::mem::replace(&mut stream.duplicated_before, now)
        });
        let duplicated = duplicated.sum();
        let latencies_ns = self.latencies_ns.iter_recorded();
        let latencies_ns =
            latencies_ns.map(|step| (step.value_iterated_to(), step.count_at_value())).collect();
        self.latencies_ns.reset();
        let Span { absence, reattach } = std::mem::take(&mut self.span);
        Mark {
            directions: [self.streams[0].told(), self.streams[1].told()],
            latencies_ns,
            gap_us: us(gap.unwrap_or_default()),
            absence_us: us(absence),
            duplicated,
            reattach_us: us(reattach),
        }
    }

    /// Handles daemons that went away or came back.
    fn check(&mut self) {
        let now = tsc::now();
        let Some(sockets) = &self.sockets else { return };
        if now.wrapping_sub(self.checked) < tsc::duration_to_cycles(CHECK) {
            return;
        }
        self.checked = now;
        for ((guest, socket), disconnected) in
            self.guests.iter_mut().zip(sockets).zip(&mut self.disconnected_since)
        {
            if disconnected.is_none() && guest.is_disconnected() {
                *disconnected = Some(now);
            }
            // A stale socket file refuses the connection; a live socket accepts at once.
            if disconnected.is_some() {
                let begin = tsc::now();
                if guest.reattach(socket) {
                    *disconnected = None;
                    let took = tsc::now().wrapping_sub(begin);
                    self.span.reattach = self.span.reattach.max(took);
                }
            }
        }
    }

    /// Empties both receive rings, and sends up to the limits of window and rate.
    fn turn(&mut self, due: u64) {
        for (i, stream) in self.streams.iter_mut().enumerate() {
            let before = stream.ledger.received;
            let (now, latencies_ns) = (tsc::now(), &mut self.latencies_ns);
            self.guests[1 - i].receive(|_, frame| {
                stream.take(frame.bytes, now, latencies_ns);
                false
            });
            if stream.ledger.received > before {
                stream.arrive(tsc::now());
            }
        }
        for (stream, guest) in self.streams.iter_mut().zip(&mut self.guests) {
            let now = tsc::now();
            while stream.sent < due && stream.in_flight() < WINDOW && guest.send(stream.sent) {
                stream.sent_at[(stream.sent % WINDOW) as usize] = now;
                stream.sent += 1;
            }
            guest.publish();
        }
        if let Some(pace) = &self.pace {
            pace.end_turn();
        }
    }
}
