//! Cycles per frame of several switches between two ports of the same guest.
//!
//! # Model
//! The guest of each switch is the same program, on the same CPU, with two ports between which
//! frames circulate. [`SwitchType`] and [`GuestType`] list the kinds. Ports are vhost-user sockets;
//! for switches of the kernel's network they are interfaces, and only the guest's program is the
//! same.
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
mod launch;
mod rules;
mod settings;
mod side;
mod slot;
mod summary;
mod switch;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use traffic::netns;

use crate::bench::interrupt;
use crate::bench::peers::process::OwnPriority;
use crate::bench::peers::testpmd::BURST;
use crate::bench::peers::{Hugepages, Qemu};
use crate::measure::distance;
pub use guest::GuestType;
pub use launch::{BURSTS_MAX, Rings};
pub use settings::SwitchesSettings;
use side::Side;
pub use slot::{DISTURBED, Drain, PAIRS_MIN, Slot};
pub use summary::{BandResult, Ratio, SideResult, SizeResult};
pub use switch::SwitchType;

/// Result of a comparison: what `shunt lab switches --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Switches {
    /// Settings.
    pub settings: SwitchesSettings,
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
    pub features: Vec<(SwitchType, Vec<String>)>,
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
pub fn run(
    program: &Path,
    settings: SwitchesSettings,
    mut told: impl FnMut(&str),
) -> Result<Switches> {
    settings.check()?;
    settings.check_installed(program)?;
    if !settings.switches.iter().all(|switch| switch.is_vhost_user()) {
        // Before any process is started.
        netns::enter().map_err(anyhow::Error::msg)?;
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
    settings: &'a SwitchesSettings,
    rings: Rings,
    features: Vec<(SwitchType, Vec<String>)>,
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
        let SwitchesSettings { switch_cpu, guest_cpu, .. } = *self.settings;
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
