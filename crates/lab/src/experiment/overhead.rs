//! What the daemon costs beside the bare loop.
//!
//! Both copy frames between two guests that give their buffers back at once. [`bare`] does nothing
//! but copy, on two threads of this process; the daemon is a process of its own with all that it
//! does for a frame, and the guests are another process on real vhost-user sockets. They take
//! turns, so that both meet the same machine, and a round in whose course the two CPUs were moved
//! apart or together is measured again.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use guestmem::Pages;
use serde::Serialize;

use super::sample::spread;
use super::scale::{self, Load};
use crate::bench::plan;
use crate::guest::IN_FLIGHT;
use crate::measure::bare::{self, Pinning};
use crate::measure::distance;

use crate::report::RingKind;

/// Frame sizes, with FCS.
const FRAMES: [u32; 3] = [64, 256, 1518];
const SECONDS: f64 = 0.5;

/// What `shunt lab overhead --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Overhead {
    /// One for each frame size.
    pub points: Vec<OverheadPoint>,
    /// CPU of the switch, in both.
    pub switch_cpu: usize,
    /// CPU of the guests, in both.
    pub guests_cpu: usize,
}

/// One frame size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OverheadPoint {
    /// Bytes of a frame, with FCS.
    pub frame_bytes: u32,
    /// Busy time-stamp cycles a frame of the bare loop: least, median, most of the rounds.
    pub bare_cycles: [f64; 3],
    /// The same of the daemon's lane.
    pub daemon_cycles: [f64; 3],
    /// Daemon divided by bare loop, round by round: least, median, most.
    pub ratio: [f64; 3],
    /// Millions of frames a second in the median round: bare loop, daemon.
    pub mpps: [f64; 2],
    /// Frames in a burst in the median round: bare loop, daemon.
    pub burst_mean: [f64; 2],
}

/// Measures every frame size `rounds` times, both in turn.
pub fn run(
    program: &Path,
    cpus: &[usize],
    rounds: usize,
    mut done: impl FnMut(usize, usize),
) -> Result<Overhead> {
    let placement = plan(cpus, 1);
    let switch = placement.switch.context("this comparison needs two CPUs")?;
    let guests = placement.guests[0].0.context("this comparison needs two CPUs")?;
    let mut points = Vec::new();
    for (i, frame_bytes) in FRAMES.into_iter().enumerate() {
        let (mut bares, mut daemons) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let (warmup, time) = (Duration::from_millis(200), Duration::from_secs_f64(SECONDS));
            let pinning = Pinning { switch, guests };
            let load = Load {
                vfs: 2,
                macs: 2,
                frame_bytes,
                in_flight: IN_FLIGHT,
                touch: false,
                huge_pages: false,
                ring: RingKind::Split,
                seconds: SECONDS,
            };
            let ((bare, daemon), _) = distance::steadily((switch, guests), || {
                let bare = bare::run(frame_bytes, warmup, time, Pages::Gathered, pinning)?;
                Ok((bare, scale::point(program, cpus, load)?))
            })?;
            bares.push(bare);
            daemons.push(daemon);
            done(i * rounds + round + 1, FRAMES.len() * rounds);
        }
        let bare: Vec<f64> = bares.iter().map(|bare| bare.cycles_per_frame).collect();
        let daemon: Vec<f64> = daemons.iter().map(|point| point.switch_cycles_per_frame).collect();
        let ratio: Vec<f64> =
            daemon.iter().zip(&bare).map(|(daemon, bare)| daemon / bare).collect();
        let median = |values: Vec<f64>| spread(values)[1];
        points.push(OverheadPoint {
            frame_bytes,
            bare_cycles: spread(bare),
            daemon_cycles: spread(daemon),
            ratio: spread(ratio),
            mpps: [
                median(bares.iter().map(|bare| bare.mpps).collect()),
                median(daemons.iter().map(|point| point.mpps).collect()),
            ],
            burst_mean: [
                median(bares.iter().map(|bare| bare.burst_mean).collect()),
                median(daemons.iter().map(|point| point.burst_mean).collect()),
            ],
        });
    }
    Ok(Overhead { points, switch_cpu: switch, guests_cpu: guests })
}
