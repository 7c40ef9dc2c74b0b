//! Cycles of several switches for a frame between two ports of the same guest.
//!
//! # Model
//! The guest of each switch is the same program, on the same CPU, with two ports between which
//! frames circle. [`Switch`] and [`Guest`] have the kinds. Ports are vhost-user sockets; for
//! switches of the kernel's network they are interfaces, and only the guest's program is the same.
//!
//! Each round starts all switches, each with a guest of its own; all but one are stopped (SIGSTOP),
//! so all use the same two CPUs and none disturbs another. They take turns in slots: forward
//! (A B C), then backward (C B A), and again. The distance of both CPUs is measured before and
//! after each slot. Settings of the rings are measured one after the other.
//!
//! A pair is a slot of the first switch and one of another, of the same pass. Pairs are grouped by
//! [bands](report::statistics::bands) of distance. Each band with [`PAIRS_MIN`] pairs is reported.
//!
//! # Figures
//! Frames are counted as delivered: by the guest for frames a second, and by the switch for cycles
//! a frame. When a size is done, all frames are taken out of the rings. A round in which a switch
//! lost some is told, and its pairs at that size do not count.
//!
//! Busy cycles are time-stamp cycles of turns of the polling thread that moved a frame, as each
//! switch counts them itself: Shunt and the bare loop over all ports, Open vSwitch over all receive
//! queues (`processing cycles`), testpmd over one port (`--record-core-cycles`). So an empty poll
//! of one port is in the first three if the turn found a frame on the other.
//!
//! Switches between interfaces count otherwise: the time of the guest's CPU in the kernel, and for
//! Open vSwitch the CPU time of its process. So they contain the guest's system calls, of which a
//! guest with vhost-user ports has none.
//!
//! Shunt also tells its busy cycles by stage, sampled by its lanes; medians over the slots of a
//! band, of each stage for itself.
//!
//! # Limits
//! - A switch whose busy share is below 1 is limited by the guest: its frames a second are the
//!   guest's, and its cycles a frame an upper limit, as bursts are small.
//! - A move of the CPUs away and back within a slot is not seen.
//! - Open vSwitch with DPDK loses frames of a guest in QEMU between slots, which is told: no round
//!   of its counts.

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

/// Fewest pairs of a band that is reported: with less no interval of 99 % is bounded.
pub const PAIRS_MIN: usize = 8;
/// Most bursts in flight from each port: a ring holds 1024 frames.
pub const BURSTS_MAX: u64 = 30;
/// A slot in which other processes took more than this share of a CPU does not count. Less than
/// that is in the figures: it adds to the busy cycles of all switches alike.
pub const DISTURBED: f64 = 0.10;

/// Rings of the guests: those of vhost-user ports; interfaces have none.
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
    /// Switches; the first is the one that others are compared with.
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
    /// Guests, Open vSwitch and testpmd have pages of 2 MiB.
    pub hugepages: bool,
}

impl Settings {
    /// Bursts in flight from each port of a switch: as many as asked for, or as it holds.
    pub fn bursts_of(&self, switch: Switch) -> u64 {
        self.bursts.min(switch.kind().bursts_max)
    }

    fn hugepages_needed(&self) -> u64 {
        let pages = |switch: &Switch| self.guest.kind().hugepages + switch.kind().hugepages;
        if self.hugepages { self.switches.iter().map(pages).sum() } else { 0 }
    }

    /// Fails if a switch cannot do what is asked of it.
    ///
    /// # Errors
    /// A sentence that names what is possible.
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

    /// Passes of a size in a round: forward and backward are one each.
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
    /// Of these, cycles of the guest's CPU in the kernel; 0 with vhost-user ports.
    pub kernel_cycles_per_frame: f64,
    /// Millions of frames that the guest received a second.
    pub mpps: f64,
    /// Share of the polling thread's time that was busy, or of the guest's CPU in the kernel.
    pub busy_share: f64,
    /// Largest share of the time in which the polling thread or the guest waited for a CPU.
    pub disturbance: f64,
    /// Cycles for each delivered frame by stage; of Shunt only.
    pub stages: Option<Stages>,
}

/// Frames of a switch that were taken out of the rings at the end of a size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Drain {
    /// The switch.
    pub switch: Switch,
    /// Round, from 0.
    pub round: usize,
    /// Frame size with FCS, bytes.
    pub frame_bytes: u32,
    /// Frames that came back.
    pub frames: u64,
    /// Frames that were in flight.
    pub expected: u64,
}

/// Result of a comparison: what `shunt lab switches --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Switches {
    /// Settings.
    pub settings: Settings,
    /// Fewest pairs of a band that is reported.
    pub pairs_min: usize,
    /// Processor of a guest in QEMU: `kvm` or `emulated`; `None` of other guests.
    pub guest_cpu_kind: Option<&'static str>,
    /// Why rounds are missing; `None` if all were measured.
    pub ended_early: Option<String>,
    /// One for each setting of the rings.
    pub results: Vec<RingsResult>,
}

/// Result of one setting of the rings.
#[derive(Clone, Debug, Serialize)]
pub struct RingsResult {
    /// Rings.
    pub rings: Rings,
    /// One for each frame size.
    pub sizes: Vec<SizeResult>,
    /// Virtio features in force, by switch: ports of its guest, in hexadecimal.
    pub features: Vec<(Switch, Vec<String>)>,
    /// Every slot.
    pub slots: Vec<Slot>,
    /// Every drain.
    pub drains: Vec<Drain>,
}

/// Runs all rounds; `told` gets a line for each step. A round that fails, or a signal, ends it
/// early with the rounds measured so far; everything is ended and given back.
///
/// # Errors
/// A program is not installed, or the first round fails.
pub fn run(program: &Path, settings: Settings, mut told: impl FnMut(&str)) -> Result<Switches> {
    settings.check().map_err(anyhow::Error::msg)?;
    settings.check_installed(program)?;
    if !settings.switches.iter().all(|switch| switch.is_vhost_user()) {
        // Before anything is started.
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
            // A terminal's SIGINT ends Shunt and the bare loop, too: that is no error of theirs.
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

/// The rounds of one setting of the rings, on their way.
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
            // Of both ports.
            let expected = 2 * self.settings.bursts_of(switch) * BURST;
            self.drains.push(Drain { switch, round, frame_bytes, frames, expected });
        }
        Ok(())
    }
}
