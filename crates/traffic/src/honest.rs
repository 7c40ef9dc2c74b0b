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

mod classify;
pub(super) mod guest;
mod witness;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use host::tsc;
use wire::Mac;

use super::turn_counter::TurnCounter;
use crate::parent::{send_event, wait_for_parent};
use crate::protocol::Event;
use crate::protocol::honest::{HonestResult, HonestSpec};
use classify::{FrameClass, FrameClassifier};
use guest::{FRAMES, ProbeGuest, ReceivedFrame};
use witness::Witness;

/// Longest wait for the last frames after the origin stops sending.
const DRAIN: Duration = Duration::from_secs(30);
/// Maximum frames in flight: a quarter of a ring.
const IN_FLIGHT_MAX: u64 = 256;

/// Attaches, forwards until the parent writes a line, and reports the account.
pub fn run(spec: &HonestSpec) -> Result<()> {
    if let Some(cpu) = spec.cpu {
        host::cpu::pin_this_thread(cpu)?;
    }
    ensure!((1..=IN_FLIGHT_MAX).contains(&spec.in_flight), "1 to {IN_FLIGHT_MAX} frames in flight");
    let mut honest = Honest::new(spec)?;
    send_event(&Event::Ready)?;
    wait_for_parent()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = stop.clone();
    std::thread::spawn(move || {
        let _ = wait_for_parent(); // end of file stops it, too
        stopper.store(true, Ordering::Release);
    });
    honest.run(spec.in_flight, &stop);
    send_event(&Event::Honest(honest.result))
}

struct Honest {
    origin: ProbeGuest,
    mirror: ProbeGuest,
    witness: Witness,
    classifier: FrameClassifier,
    pace: TurnCounter,
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
        let classifier = FrameClassifier {
            honest: [origin_mac, mirror_mac],
            near: macs(&spec.near)?,
            far: macs(far)?,
        };
        Ok(Honest {
            origin: ProbeGuest::attach(origin, origin_mac, mirror_mac)?,
            mirror: ProbeGuest::attach(mirror, mirror_mac, origin_mac)?,
            witness: Witness::attach(&spec.uplink, *vlan)?,
            classifier,
            pace: TurnCounter::open(&spec.pace)?,
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
        let Honest { mirror, origin, classifier, result, expected_by_mirror, expected, .. } = self;
        mirror.receive(|mirror, frame| {
            match classifier.classify(frame.bytes, origin.mac, mirror.mac) {
                FrameClass::Probe(mark) if mark.sequence >= *expected_by_mirror => {
                    *expected_by_mirror = mark.sequence + 1;
                    return mirror.send_back(&frame);
                }
                FrameClass::Probe(_) => result.corrupted += 1,
                other => result.count(other),
            }
            false
        });
        origin.receive(|origin, frame| {
            match classifier.classify(frame.bytes, mirror.mac, origin.mac) {
                FrameClass::Probe(mark)
                    if mark.sequence >= *expected && mark.sequence < result.sent =>
                {
                    result.lost += mark.sequence - *expected;
                    *expected = mark.sequence + 1;
                    result.received += 1;
                }
                FrameClass::Probe(_) => result.corrupted += 1,
                other => result.count(other),
            }
            false
        });
        while self.in_flight() < in_flight && self.origin.send(self.result.sent) {
            self.result.sent += 1;
        }
        self.origin.publish();
        self.mirror.publish();
        self.witness.look(&self.classifier, &mut self.result);
        self.pace.end_turn();
        self.result.received - before
    }
}

// The frames of both guests, and as many of another sender, fit into a ring.
const _: () = assert!(FRAMES as u64 >= 4 * IN_FLIGHT_MAX && ReceivedFrame::BYTES_MAX >= 1514);
