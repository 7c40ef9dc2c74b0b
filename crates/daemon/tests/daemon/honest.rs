//! An honest pair of guests: numbered frames both ways for as long as a test attacks the daemon.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::guest::Guest;
use crate::host::{Host, WAIT, frame, mac, number, until};

/// Frames that each guest keeps in flight: fewer than the receiver has buffers, so none is dropped.
const IN_FLIGHT: u32 = 32;

/// VFs 0 and 1 of [`TWO`](crate::host::TWO), which send to each other in a thread of their own.
pub(crate) struct HonestPair {
    thread: JoinHandle<(Guest, Guest, Report)>,
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

/// Result of a run in which no frame was lost, duplicated, reordered or changed.
#[derive(Debug)]
pub(crate) struct Report {
    /// Frames received, both ways.
    pub(crate) frames: u64,
    /// Longest time without a frame, by the guests' clock. The machine's other work is part of it:
    /// print it, and never assert that it is short.
    pub(crate) longest_gap: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap_ms = self.longest_gap.as_secs_f64() * 1e3;
        write!(f, "honest pair: {} frames, 0 lost, longest gap {gap_ms:.2} ms", self.frames)
    }
}

impl HonestPair {
    /// Attaches two guests, and waits until frames pass.
    pub(crate) fn start(host: &Host) -> HonestPair {
        let [a, b] = host.guests(["vf0", "vf1"]);
        HonestPair::with(a, b)
    }

    /// The same with guests that are attached to VFs 0 and 1.
    pub(crate) fn with(a: Guest, b: Guest) -> HonestPair {
        let (stop, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (until_stopped, counted) = (stop.clone(), received.clone());
        let thread = std::thread::spawn(move || exchange(a, b, &until_stopped, &counted));
        let pair = HonestPair { thread, received, stop };
        pair.wait_for_progress(100);
        pair
    }

    /// Waits until this many more frames have passed: the lane is alive.
    pub(crate) fn wait_for_progress(&self, frames: u64) {
        let end = self.received.load(Ordering::Relaxed) + frames;
        until("the honest pair's frames", || self.received.load(Ordering::Relaxed) >= end);
    }

    /// Stops sending, waits for frames in flight, and prints the report.
    ///
    /// # Panics
    /// A frame was lost, duplicated, reordered or changed.
    pub(crate) fn stop(self) -> (Guest, Guest, Report) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join().expect("no frame lost, duplicated, reordered or changed");
        println!("{}", ended.2);
        ended
    }
}

/// One direction: frames sent and received.
#[derive(Default)]
struct Direction {
    sent: u32,
    received: u32,
}

impl Direction {
    /// Sends as many frames as may be in flight, and checks arrivals; returns the number received.
    fn turn(&mut self, from: &mut Guest, to: &mut Guest, macs: [[u8; 6]; 2], more: bool) -> u32 {
        let [src, dst] = macs;
        while more && self.sent - self.received < IN_FLIGHT {
            from.send(&frame(dst, src, self.sent));
            self.sent += 1;
        }
        let arrived = to.receive();
        for bytes in &arrived {
            assert_eq!(number(bytes), self.received, "lost, duplicated or reordered");
            assert_eq!(*bytes, frame(dst, src, self.received), "changed on its way");
            self.received += 1;
        }
        arrived.len() as u32
    }
}

fn exchange(
    mut a: Guest,
    mut b: Guest,
    stop: &AtomicBool,
    received: &AtomicU64,
) -> (Guest, Guest, Report) {
    let [mut there, mut back] = [Direction::default(), Direction::default()];
    let mut longest_gap = Duration::ZERO;
    let mut last = Instant::now();
    loop {
        let more = !stop.load(Ordering::Relaxed);
        let arrived = there.turn(&mut a, &mut b, [mac(0), mac(1)], more)
            + back.turn(&mut b, &mut a, [mac(1), mac(0)], more);
        if arrived > 0 {
            received.fetch_add(u64::from(arrived), Ordering::Relaxed);
            longest_gap = longest_gap.max(last.elapsed());
            last = Instant::now();
        } else {
            let (ab, ba) = (there.sent - there.received, back.sent - back.received);
            if !more && ab + ba == 0 {
                break;
            }
            assert!(last.elapsed() < WAIT, "{ab} and {ba} frames are missing");
            std::thread::yield_now();
        }
    }
    let frames = received.load(Ordering::Relaxed);
    (a, b, Report { frames, longest_gap })
}
