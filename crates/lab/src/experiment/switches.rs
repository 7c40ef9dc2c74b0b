//! Cycles of several switches for a frame between the same two vhost-user ports.
//!
//! # Model
//! The guest of each switch is the same testpmd, by the same command line and on the same CPU: two
//! virtio-user ports between which frames circle (`io`). Each round starts all switches, each with
//! a guest of its own; all but one are stopped (SIGSTOP), so all use the same two CPUs and none
//! disturbs another. They take turns in slots: forward (A B C), then backward (C B A), and again.
//! The distance of both CPUs is measured before and after each slot.
//!
//! A pair is a slot of the first switch and one of another, of the same pass. Pairs are grouped by
//! [bands](crate::statistics::bands) of distance. Each band with [`PAIRS_MIN`] pairs is reported.
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
//! Shunt also tells its busy cycles by stage, sampled by its lanes; medians over the slots of a
//! band, of each stage for itself.
//!
//! # Limits
//! - A switch whose busy share is below 1 is limited by the guest: its frames a second are the
//!   guest's, and its cycles a frame an upper limit, as bursts are small.
//! - A move of the CPUs away and back within a slot is not seen.

mod rules;
mod side;
mod summary;

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::bench::peers::process::OwnPriority;
use crate::bench::peers::testpmd::BURST;
use crate::bench::peers::{Hugepages, Ovs, Testpmd};
use crate::measure::distance;
use crate::report::Stages;
use side::Side;
pub use summary::{BandResult, Ratio, SideResult, SizeResult};

/// Fewest pairs of a band that is reported: with less no interval of 99 % is bounded.
pub const PAIRS_MIN: usize = 8;
/// Most bursts in flight from each port: a ring holds 1024 frames.
pub const BURSTS_MAX: u64 = 30;
/// A slot in which other processes took more than this share of a CPU does not count. Less than
/// that is in the figures: it adds to the busy cycles of all switches alike.
pub const DISTURBED: f64 = 0.10;
/// Huge pages of 2 MiB that a testpmd takes, and Open vSwitch.
const TESTPMD_PAGES: u64 = 128;
const OVS_PAGES: u64 = 633;

/// A switch between two vhost-user ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// The bare copying loop.
    Bare,
    /// Shunt: two VFs of a soft NIC, classified by MAC, spoof check on.
    Shunt,
    /// Open vSwitch with DPDK: two `dpdkvhostuserclient` ports, a static flow each way.
    OvsDpdk,
    /// DPDK's testpmd: two net_vhost ports, `io`.
    Testpmd,
}

impl Switch {
    /// All switches.
    pub const ALL: [Switch; 4] = [Switch::Bare, Switch::Shunt, Switch::OvsDpdk, Switch::Testpmd];

    /// Name as in the CLI and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Switch::Bare => "bare",
            Switch::Shunt => "shunt",
            Switch::OvsDpdk => "ovs-dpdk",
            Switch::Testpmd => "testpmd",
        }
    }

    /// Returns `true` if its program is installed.
    pub fn is_installed(self) -> bool {
        match self {
            Switch::Bare | Switch::Shunt => true,
            Switch::OvsDpdk => Ovs::is_installed(),
            Switch::Testpmd => Testpmd::is_installed(),
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Switch, String> {
        let found = Switch::ALL.into_iter().find(|switch| switch.as_str() == text);
        let names = Switch::ALL.map(Switch::as_str).join(", ");
        found.ok_or_else(|| format!("unknown switch; expected one of {names}"))
    }
}

/// Settings of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Switches; the first is the one that others are compared with.
    pub switches: Vec<Switch>,
    /// Guests ask for packed rings.
    pub packed: bool,
    /// Guests ask for mergeable receive buffers.
    pub mergeable: bool,
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
    /// Shunt and Open vSwitch learn addresses, with a VLAN and 100 rules.
    pub rules: bool,
    /// Guests, Open vSwitch and testpmd have pages of 2 MiB.
    pub hugepages: bool,
}

impl Settings {
    /// Frames in flight, in both directions together.
    fn in_flight(&self) -> u64 {
        2 * self.bursts * BURST
    }

    fn hugepages_needed(&self) -> u64 {
        let pages = |switch: &Switch| match switch {
            Switch::Bare | Switch::Shunt => TESTPMD_PAGES,
            Switch::Testpmd => 2 * TESTPMD_PAGES,
            Switch::OvsDpdk => TESTPMD_PAGES + OVS_PAGES,
        };
        if self.hugepages { self.switches.iter().map(pages).sum() } else { 0 }
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
    /// Millions of frames that the guest received a second.
    pub mpps: f64,
    /// Share of the polling thread's time that was busy.
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
    /// One for each frame size.
    pub sizes: Vec<SizeResult>,
    /// Virtio features in force, by switch: ports of its guest, in hexadecimal.
    pub features: Vec<(Switch, Vec<String>)>,
    /// Every slot.
    pub slots: Vec<Slot>,
    /// Every drain.
    pub drains: Vec<Drain>,
}

/// Runs all rounds; `told` gets a line for each step. Ends early, with everything ended and given
/// back, when `interrupted` is set.
///
/// # Errors
/// A program is not installed, or does not do as told.
pub fn run(
    program: &Path,
    settings: Settings,
    interrupted: &Arc<AtomicBool>,
    mut told: impl FnMut(&str),
) -> Result<Switches> {
    if !Testpmd::is_installed() {
        bail!("the guest, dpdk-testpmd, is not installed; run tests/e2e/setup --peers");
    }
    if let Some(missing) = settings.switches.iter().find(|switch| !switch.is_installed()) {
        bail!("switch {missing} is not installed; run tests/e2e/setup --peers");
    }
    let pages = match settings.hugepages_needed() {
        0 => None,
        count => Some(Hugepages::reserve(count)?),
    };
    let mut run = Run {
        program,
        settings,
        interrupted,
        features: Vec::new(),
        slots: Vec::new(),
        drains: Vec::new(),
    };
    for round in 0..run.settings.rounds {
        told(&format!("round {} of {}", round + 1, run.settings.rounds));
        let done = run.round(round, &mut told);
        // A terminal's SIGINT ends Shunt and the bare loop, too: that is no error of theirs.
        run.check_interrupted()?;
        done?;
    }
    drop(pages);
    let Run { settings, features, slots, drains, .. } = run;
    let sizes = settings.sizes.iter();
    let sizes = sizes.map(|size| summary::of_size(*size, &settings.switches, &slots, &drains));
    let sizes = sizes.collect();
    Ok(Switches { sizes, settings, pairs_min: PAIRS_MIN, features, slots, drains })
}

/// A comparison on its way.
struct Run<'a> {
    program: &'a Path,
    settings: Settings,
    interrupted: &'a AtomicBool,
    features: Vec<(Switch, Vec<String>)>,
    slots: Vec<Slot>,
    drains: Vec<Drain>,
}

impl Run<'_> {
    /// Starts all switches, measures every size, and ends them.
    fn round(&mut self, round: usize, told: &mut impl FnMut(&str)) -> Result<()> {
        let mut sides = Vec::new();
        for switch in self.settings.switches.clone() {
            self.check_interrupted()?;
            let side = Side::start(self.program, switch, &self.settings);
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
        let Settings { bursts, switch_cpu, guest_cpu, .. } = self.settings;
        for side in sides.iter_mut() {
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
                self.check_interrupted()?;
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
            self.check_interrupted()?;
            let frames = side.running(|side| side.guest.drain())?;
            let (switch, expected) = (side.switch, self.settings.in_flight());
            self.drains.push(Drain { switch, round, frame_bytes, frames, expected });
        }
        Ok(())
    }

    fn check_interrupted(&self) -> Result<()> {
        match self.interrupted.load(Ordering::Relaxed) {
            true => bail!("interrupted; everything that was started is ended"),
            false => Ok(()),
        }
    }
}
