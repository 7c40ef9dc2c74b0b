//! Two honest guests that account for every frame, and a witness at the uplink.
//!
//! The origin sends numbered probes of several lengths to the mirror. The mirror checks every byte,
//! swaps the addresses and returns the frame in the same buffer; the origin checks it again. At
//! most a quarter of a ring is in flight, so the guests never drop a frame. Frames keep their
//! order: a skipped number is a lost frame; a repeated or late number was made by another sender.
//!
//! Other frames are classified by their source address. Frames with the guests' own addresses must
//! never come from others (spoof check), nor frames of the other VLAN. The witness reads all frames
//! that leave by the uplink, which must carry their sender's VLAN tag.

pub(super) mod end;
mod judge;
mod witness;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use host::tsc;
use serde::{Deserialize, Serialize};
use wire::Mac;

use super::pace::Pace;
use super::{Event, say, wait_for_word};
use end::{End, FRAMES, Received};
use judge::{Judge, Seen};
use witness::Witness;

/// Longest wait for the last frames after the origin stops sending.
const DRAIN: Duration = Duration::from_secs(30);
/// Maximum frames in flight: a quarter of a ring.
const IN_FLIGHT_MAX: u64 = 256;

/// Task: honest guests. Addresses are written as `02:00:00:00:00:01`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HonestSpec {
    /// CPU to pin to, if any.
    pub cpu: Option<usize>,
    /// Socket and address of origin and mirror.
    pub guests: [(PathBuf, String); 2],
    /// Socket of the uplink.
    pub uplink: PathBuf,
    /// Addresses of other guests on the honest guests' VLAN.
    pub near: Vec<String>,
    /// Addresses on the other VLAN, and its VLAN ID.
    pub far: (Vec<String>, u16),
    /// File of the shared turn counter.
    pub pace: PathBuf,
    /// Frames in flight, 1 to 256.
    pub in_flight: u64,
}

/// Account of the frames.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HonestResult {
    /// Seconds from the first frame to the last.
    pub seconds: f64,
    /// Frames that the origin sent.
    pub sent: u64,
    /// Frames that came back, intact and in order.
    pub received: u64,
    /// Frames that never came back.
    pub lost: u64,
    /// Frames with a changed byte, length or number.
    pub corrupted: u64,
    /// Frames of others with a forged source address.
    pub spoofed: u64,
    /// Frames on a wrong VLAN, or without its tag at the uplink.
    pub misplaced: u64,
    /// Valid frames of others that origin or mirror received.
    pub foreign: u64,
    /// Frames that the witness saw.
    pub witnessed: u64,
    /// Longest time between two arrivals at the origin, in milliseconds.
    pub longest_gap_ms: f64,
    /// Longest time between two turns of this process, in milliseconds: it had no CPU, so no frame
    /// could arrive.
    pub longest_absence_ms: f64,
}

/// Attaches, forwards until the parent writes a line, and reports the account.
pub fn run(spec: &HonestSpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    ensure!((1..=IN_FLIGHT_MAX).contains(&spec.in_flight), "1 to {IN_FLIGHT_MAX} frames in flight");
    let mut honest = Honest::new(spec)?;
    say(&Event::Ready)?;
    wait_for_word()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = stop.clone();
    std::thread::spawn(move || {
        let _ = wait_for_word(); // end of file stops it, too
        stopper.store(true, Ordering::Release);
    });
    honest.run(spec.in_flight, &stop);
    say(&Event::Honest(honest.result))
}

struct Honest {
    origin: End,
    mirror: End,
    witness: Witness,
    judge: Judge,
    pace: Pace,
    /// Next number expected by origin and mirror.
    expected: u64,
    expected_by_mirror: u64,
    result: HonestResult,
}

impl Honest {
    fn new(spec: &HonestSpec) -> Result<Honest> {
        let mac = |text: &String| text.parse::<Mac>().with_context(|| format!("address {text}"));
        let macs = |texts: &[String]| texts.iter().map(mac).collect::<Result<Vec<_>>>();
        let [(origin, origin_mac), (mirror, mirror_mac)] = &spec.guests;
        let (origin_mac, mirror_mac) = (mac(origin_mac)?, mac(mirror_mac)?);
        let (far, vlan) = &spec.far;
        let judge =
            Judge { honest: [origin_mac, mirror_mac], near: macs(&spec.near)?, far: macs(far)? };
        Ok(Honest {
            origin: End::attach(origin, origin_mac, mirror_mac)?,
            mirror: End::attach(mirror, mirror_mac, origin_mac)?,
            witness: Witness::attach(&spec.uplink, *vlan)?,
            judge,
            pace: Pace::open(&spec.pace)?,
            expected: 0,
            expected_by_mirror: 0,
            result: HonestResult::default(),
        })
    }

    fn run(&mut self, in_flight: u64, stop: &AtomicBool) {
        let begin = tsc::now();
        let (mut last_turn, mut last_arrival) = (begin, begin);
        let (mut gap, mut absence) = (0, 0);
        let drain = tsc::duration_to_cycles(DRAIN);
        loop {
            let stopping = stop.load(Ordering::Acquire);
            let received = self.turn(if stopping { 0 } else { in_flight });
            let now = tsc::now();
            // A new daemon stops all traffic for a while: the account begins with the first
            // arrival.
            if self.result.received > received {
                absence = absence.max(now.wrapping_sub(last_turn));
                if received > 0 {
                    gap = gap.max(now.wrapping_sub(last_arrival));
                }
            }
            last_turn = now;
            if received > 0 {
                last_arrival = now;
            }
            // With two CPUs, the hostile process and the daemon's connection thread share this CPU.
            std::thread::yield_now();
            let over = self.in_flight() == 0 || now.wrapping_sub(last_arrival) > drain;
            if stopping && over {
                break;
            }
        }
        let ms = |cycles| tsc::cycles_to_ns(cycles) / 1e6;
        self.result.lost += self.in_flight();
        self.result.seconds = ms(last_arrival.wrapping_sub(begin)) / 1e3;
        self.result.longest_gap_ms = ms(gap);
        self.result.longest_absence_ms = ms(absence);
    }

    /// Frames that have not come back to the origin.
    fn in_flight(&self) -> u64 {
        self.result.sent - self.expected
    }

    /// Empties all receive rings and posts their buffers; returns the number of returned frames.
    fn turn(&mut self, in_flight: u64) -> u64 {
        let before = self.result.received;
        let Honest { mirror, origin, judge, result, expected_by_mirror, expected, .. } = self;
        mirror.receive(|mirror, frame| {
            match judge.judge(frame.bytes, origin.mac, mirror.mac) {
                Seen::Ours(mark) if mark.sequence >= *expected_by_mirror => {
                    *expected_by_mirror = mark.sequence + 1;
                    return mirror.send_back(&frame);
                }
                Seen::Ours(_) => result.corrupted += 1,
                other => result.count(other),
            }
            false
        });
        origin.receive(|origin, frame| {
            match judge.judge(frame.bytes, mirror.mac, origin.mac) {
                Seen::Ours(mark) if mark.sequence >= *expected && mark.sequence < result.sent => {
                    result.lost += mark.sequence - *expected;
                    *expected = mark.sequence + 1;
                    result.received += 1;
                }
                Seen::Ours(_) => result.corrupted += 1,
                other => result.count(other),
            }
            false
        });
        while self.in_flight() < in_flight && self.origin.send(self.result.sent) {
            self.result.sent += 1;
        }
        self.origin.publish();
        self.mirror.publish();
        self.witness.look(&self.judge, &mut self.result);
        self.pace.end_turn();
        self.result.received - before
    }
}

impl HonestResult {
    fn count(&mut self, seen: Seen) {
        match seen {
            Seen::Ours(_) => {}
            Seen::Corrupted => self.corrupted += 1,
            Seen::Spoofed => self.spoofed += 1,
            Seen::Misplaced => self.misplaced += 1,
            Seen::Foreign => self.foreign += 1,
        }
    }
}

// The frames of both guests, and as many of another sender, fit into a ring.
const _: () = assert!(FRAMES as u64 >= 4 * IN_FLIGHT_MAX && Received::BYTES_MAX >= 1514);
