//! Cycles per frame of several switches between two ports of the same guest.
//!
//! # Model
//! The guest of each switch is the same program, on the same CPU, with two ports between which
//! frames circulate. [`Switch`] and [`Guest`] list the kinds. Ports are vhost-user sockets; for
//! switches of the kernel's network they are interfaces, and only the guest's program is the same.
//!
//! Each round starts all switches, each with its own guest; all but one are stopped (SIGSTOP), so
//! all use the same two CPUs without disturbing each other. They take turns in slots: forward (A B
//! C), then backward (C B A), and again. The distance of both CPUs is measured before and after
//! each slot. Settings of the rings are measured one after the other.
//!
//! A pair is a slot of the first switch and one of another, of the same pass. Pairs are grouped by
//! [bands](report::statistics::bands) of distance. Each band with [`PAIRS_MIN`] pairs is reported.
//!
//! # Figures
//! Frames are counted as delivered: by the guest for frames per second, and by the switch for
//! cycles per frame. After each size, all frames are drained from the rings. If a switch lost some
//! in a round, this is reported, and its pairs at that size do not count.
//!
//! Busy cycles are time-stamp cycles of turns of the polling thread that moved a frame, as counted
//! by each switch. Shunt and the bare loop count over all ports, Open vSwitch over all receive
//! queues (`processing cycles`), testpmd over one port (`--record-core-cycles`). So the first three
//! include an empty poll of one port if the turn found a frame on the other.
//!
//! Switches between interfaces count otherwise: the kernel time of the guest's CPU, and for Open
//! vSwitch the CPU time of its process. So they include the guest's system calls; a guest with
//! vhost-user ports makes none.
//!
//! Shunt also reports busy cycles by stage, sampled by its lanes; medians over the slots of a band,
//! for each stage separately.
//!
//! # Limits
//! - A switch whose busy share is below 1 is limited by the guest: its frames per second are the
//!   guest's, and its cycles per frame an upper limit, as bursts are small.
//! - A move of the CPUs away and back within a slot is not detected.
//! - Open vSwitch with DPDK loses frames of a guest in QEMU between slots, which is reported: none
//!   of its rounds count.

mod guest;
mod kind;
mod rules;
mod side;
mod summary;
mod switch;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use report::Stages;
use serde::Serialize;
use traffic::arena;

use crate::bench::interrupt;
use crate::bench::peers::process::OwnPriority;
use crate::bench::peers::testpmd::BURST;
use crate::bench::peers::{Hugepages, Qemu};
use crate::measure::distance;
pub use guest::Guest;
use side::Side;
pub use summary::{BandResult, Ratio, SideResult, SizeResult};
pub use switch::Switch;

/// Minimum pairs of a reported band: with fewer, no 99 % interval is bounded.
pub const PAIRS_MIN: usize = 8;
/// Maximum bursts in flight from each port: a ring holds 1024 frames.
pub const BURSTS_MAX: u64 = 30;
/// Maximum share of a CPU taken by other processes in a slot that counts. Smaller shares are in the
/// figures: they add to the busy cycles of all switches alike.
pub const DISTURBED: f64 = 0.10;

/// Rings of guests with vhost-user ports; interfaces have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rings {
    /// Ask for packed rings.
    pub packed: bool,
    /// Ask for mergeable receive buffers.
    pub mergeable: bool,
}

impl fmt::Display for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = if self.packed { "packed" } else { "split" };
        let mergeable = if self.mergeable { "on" } else { "off" };
        write!(f, "{layout} rings, mergeable buffers {mergeable}")
    }
}

/// Settings of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Switches; the others are compared with the first.
    pub switches: Vec<Switch>,
    /// Guest of each switch.
    pub guest: Guest,
    /// Rings, measured one after the other.
    pub rings: Vec<Rings>,
    /// Frame sizes with FCS, bytes.
    pub sizes: Vec<u32>,
    /// Pairs of each size, over all rounds.
    pub pairs: usize,
    /// Rounds with fresh processes.
    pub rounds: usize,
    /// Seconds of a slot.
    pub slot_s: f64,
    /// Seconds from a switch's resumption to its slot.
    pub settle_s: f64,
    /// Bursts of 32 frames in flight from each port.
    pub bursts: u64,
    /// CPU of the switches' polling threads.
    pub switch_cpu: usize,
    /// CPU of the guests.
    pub guest_cpu: usize,
    /// Time-stamp cycles that the bare loop spins for each frame.
    pub delay_cycles: u64,
    /// Guests, Open vSwitch and testpmd use pages of 2 MiB.
    pub hugepages: bool,
}

impl Settings {
    /// Bursts in flight from each port of a switch: the setting, at most the switch's limit.
    pub fn bursts_of(&self, switch: Switch) -> u64 {
        self.bursts.min(switch.kind().bursts_max)
    }

    fn hugepages_needed(&self) -> u64 {
        let pages = |switch: &Switch| self.guest.kind().hugepages + switch.kind().hugepages;
        if self.hugepages { self.switches.iter().map(pages).sum() } else { 0 }
    }

    /// Fails if a switch does not support the settings.
    ///
    /// # Errors
    /// A sentence that names the supported values.
    pub fn check(&self) -> Result<(), String> {
        let guest = self.guest;
        if let Some(switch) = self.switches.iter().find(|switch| !guest.fits(**switch)) {
            return Err(format!(
                "--guest {guest} has no ports for switch {switch}; {guest} is possible on {}; \
                 {switch} takes --guest {}",
                Switch::names(|switch| guest.fits(switch)),
                Guest::names(|guest| guest.fits(*switch)),
            ));
        }
        Ok(())
    }

    /// Fails if a program is not installed.
    fn check_installed(&self, program: &Path) -> Result<()> {
        if let Some(missing) = (self.guest.kind().missing)(program) {
            bail!(missing);
        }
        if let Some(missing) = self.switches.iter().find(|switch| !switch.is_installed()) {
            bail!("switch {missing} is not installed; run tests/e2e/setup --peers");
        }
        Ok(())
    }

    /// Passes of a size in a round; forward and backward count as one each.
    fn passes(&self) -> usize {
        self.pairs.div_ceil(self.rounds).next_multiple_of(2)
    }
}

/// One slot of one switch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slot {
    /// The switch.
    pub switch: Switch,
    /// Round, from 0.
    pub round: usize,
    /// Pass within the round, from 0; even: forward, odd: backward.
    pub pass: usize,
    /// Frame size with FCS, bytes.
    pub frame_bytes: u32,
    /// Distance of both CPUs before and after, cycles.
    pub distances: [f64; 2],
    /// Busy cycles for each delivered frame.
    pub cycles_per_frame: f64,
    /// Part of them spent in the kernel on the guest's CPU; 0 with vhost-user ports.
    pub kernel_cycles_per_frame: f64,
    /// Mframes/s received by the guest.
    pub mpps: f64,
    /// Busy share of the polling thread, or kernel share of the guest's CPU.
    pub busy_share: f64,
    /// Largest share of the time in which the polling thread or the guest waited for a CPU.
    pub disturbance: f64,
    /// Cycles for each delivered frame by stage; Shunt only.
    pub stages: Option<Stages>,
}

/// Frames of a switch that were drained from the rings at the end of a size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Drain {
    /// The switch.
    pub switch: Switch,
    /// Round, from 0.
    pub round: usize,
    /// Frame size with FCS, bytes.
    pub frame_bytes: u32,
    /// Drained frames.
    pub frames: u64,
    /// Frames that were in flight.
    pub expected: u64,
}

/// Result of a comparison: what `shunt lab switches --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Switches {
    /// Settings.
    pub settings: Settings,
    /// Minimum pairs of a reported band.
    pub pairs_min: usize,
    /// Processor of a guest in QEMU: `kvm` or `emulated`; `None` for other guests.
    pub guest_cpu_kind: Option<&'static str>,
    /// Reason for missing rounds; `None` if all were measured.
    pub ended_early: Option<String>,
    /// One result per setting of the rings.
    pub results: Vec<RingsResult>,
}

/// Result of one setting of the rings.
#[derive(Clone, Debug, Serialize)]
pub struct RingsResult {
    /// Rings.
    pub rings: Rings,
    /// One result per frame size.
    pub sizes: Vec<SizeResult>,
    /// Negotiated virtio features, by switch: ports of its guest, in hexadecimal.
    pub features: Vec<(Switch, Vec<String>)>,
    /// Every slot.
    pub slots: Vec<Slot>,
    /// Every drain.
    pub drains: Vec<Drain>,
}

/// Runs all rounds; passes a line for each step to `told`. A failed round or a signal ends it early
/// with the rounds measured so far; all processes end and all resources are released.
///
/// # Errors
/// A program is not installed, or the first round fails.
pub fn run(program: &Path, settings: Settings, mut told: impl FnMut(&str)) -> Result<Switches> {
    settings.check().map_err(anyhow::Error::msg)?;
    settings.check_installed(program)?;
    if !settings.switches.iter().all(|switch| switch.is_vhost_user()) {
        // Before any process is started.
        arena::enter().map_err(anyhow::Error::msg)?;
    }
    let pages = match settings.hugepages_needed() {
        0 => None,
        count => Some(Hugepages::reserve(count)?),
    };
    let (mut results, mut ended_early) = (Vec::new(), None);
    for rings in settings.rings.clone() {
        let (features, slots, drains) = Default::default();
        let mut run = Run { program, settings: &settings, rings, features, slots, drains };
        for round in 0..settings.rounds {
            told(&format!("{rings}, round {} of {}", round + 1, settings.rounds));
            let done = run.round(round, &mut told);
            // A terminal's SIGINT also ends Shunt and the bare loop: that is not their error.
            if let Err(error) = interrupt::check().and(done) {
                if results.is_empty() && run.drains.is_empty() {
                    return Err(error);
                }
                ended_early = Some(format!("{rings}, round {}: {error:#}", round + 1));
                break;
            }
        }
        let Run { features, slots, drains, .. } = run;
        let sizes = settings.sizes.iter();
        let sizes = sizes.map(|size| summary::of_size(*size, &settings.switches, &slots, &drains));
        results.push(RingsResult { rings, sizes: sizes.collect(), features, slots, drains });
        if ended_early.is_some() {
            break;
        }
    }
    drop(pages);
    let guest_cpu_kind = Qemu::cpu_kind();
    Ok(Switches { settings, pairs_min: PAIRS_MIN, guest_cpu_kind, ended_early, results })
}

/// Rounds of one setting of the rings, in progress.
struct Run<'a> {
    program: &'a Path,
    settings: &'a Settings,
    rings: Rings,
    features: Vec<(Switch, Vec<String>)>,
    slots: Vec<Slot>,
    drains: Vec<Drain>,
}

impl Run<'_> {
    /// Starts all switches, measures every size, and ends them.
    fn round(&mut self, round: usize, told: &mut impl FnMut(&str)) -> Result<()> {
        let mut sides = Vec::new();
        for switch in self.settings.switches.clone() {
            interrupt::check()?;
            let side = Side::start(self.program, switch, self.settings, self.rings);
            sides.push(side.with_context(|| format!("switch {switch}"))?);
        }
        if round == 0 {
            self.features = sides.iter().map(|side| (side.switch, side.features.clone())).collect();
        }
        let _priority = OwnPriority::raise();
        for frame_bytes in self.settings.sizes.clone() {
            self.size(round, frame_bytes, &mut sides)?;
            let lost = self.drains.iter().rev().take(sides.len());
            let lost = lost.filter(|drain| drain.frames != drain.expected).count();
            told(&format!(
                "  {frame_bytes} B: {} slots, {lost} switches lost frames",
                self.slots.len()
            ));
        }
        Ok(())
    }

    fn size(&mut self, round: usize, frame_bytes: u32, sides: &mut [Side]) -> Result<()> {
        let Settings { switch_cpu, guest_cpu, .. } = *self.settings;
        for side in sides.iter_mut() {
            let bursts = self.settings.bursts_of(side.switch);
            side.running(|side| side.guest.inject(frame_bytes, bursts))?;
        }
        let time = [self.settings.settle_s, self.settings.slot_s].map(Duration::from_secs_f64);
        let mut before = distance::round_trip_cycles(switch_cpu, guest_cpu)?;
        for pass in 0..self.settings.passes() {
            let mut order: Vec<usize> = (0..sides.len()).collect();
            if pass % 2 == 1 {
                order.reverse();
            }
            for index in order {
                interrupt::check()?;
                let side = &mut sides[index];
                let figures = side.running(|side| side.measure(time));
                let figures = figures.with_context(|| format!("switch {}", side.switch))?;
                let after = distance::round_trip_cycles(switch_cpu, guest_cpu)?;
                self.slots.push(Slot {
                    switch: side.switch,
                    round,
                    pass,
                    frame_bytes,
                    distances: [before, after],
                    ..figures
                });
                before = after;
            }
        }
        for side in sides.iter_mut() {
            interrupt::check()?;
            let frames = side.running(|side| side.guest.drain())?;
            let switch = side.switch;
            // Both ports.
            let expected = 2 * self.settings.bursts_of(switch) * BURST;
            self.drains.push(Drain { switch, round, frame_bytes, frames, expected });
        }
        Ok(())
    }
}
