//! Simulated device under test, on virtual time: a queue, a server, and the noise of a shared host.

use std::f64::consts::TAU;

use super::super::{Goal, Trial, TrialOutcome, TrialRecord};
use crate::statistics::random::Random;

/// Step of virtual time, seconds.
const STEP_S: f64 = 0.02;

/// A fluid queue served at a constant rate; frames arriving at a full queue are lost.
#[derive(Clone)]
pub(super) struct Device {
    pub(super) random: Random,
    /// Service rate, frames per second.
    pub(super) capacity_fps: f64,
    /// Frames that the queue holds.
    pub(super) queue: f64,
    /// Relative standard deviation of the service rate from step to step.
    pub(super) jitter: f64,
    /// Mean number of times per second that the CPU is stolen.
    pub(super) steals_per_s: f64,
    /// Load above which a share of all frames is lost, and that share.
    pub(super) knee: Option<(f64, f64)>,
    /// Largest rate of the generator.
    pub(super) generator_fps: f64,
    /// Share of trials in which the generator misses its rate at random.
    pub(super) generator_fails: f64,
}

impl Device {
    /// A device without noise.
    pub(super) fn steady(capacity_fps: f64, queue: f64) -> Device {
        Device {
            random: Random::new(1),
            capacity_fps,
            queue,
            jitter: 0.0,
            steals_per_s: 0.0,
            knee: None,
            generator_fps: f64::INFINITY,
            generator_fails: 0.0,
        }
    }

    /// A device on a shared host: steals of 2 to 8 ms, and a service rate that varies by 1 %.
    pub(super) fn noisy(seed: u64) -> Device {
        let mut random = Random::new(seed);
        let capacity_fps = 0.5e6 * 20f64.powf(unit(&mut random));
        let queue = capacity_fps * (0.001 + 0.002 * unit(&mut random));
        let steady = Device::steady(capacity_fps, queue);
        Device { random, jitter: 0.01, steals_per_s: 0.2, ..steady }
    }

    /// Frames lost of a load offered for a time.
    fn lost(&mut self, load_fps: f64, seconds: f64) -> f64 {
        let (mut waiting, mut lost, mut stolen_s) = (0.0, 0.0, 0.0);
        for _ in 0..(seconds / STEP_S).ceil() as u64 {
            if unit(&mut self.random) < self.steals_per_s * STEP_S {
                stolen_s += 0.002 + 0.006 * unit(&mut self.random);
            }
            let rate_fps = self.capacity_fps * (1.0 + self.jitter * normal(&mut self.random));
            let stolen_now = f64::min(stolen_s, STEP_S);
            stolen_s -= stolen_now;
            for (served_fps, time_s) in [(0.0, stolen_now), (rate_fps, STEP_S - stolen_now)] {
                waiting = f64::max(0.0, waiting + (load_fps - served_fps) * time_s);
                lost += f64::max(0.0, waiting - self.queue);
                waiting = f64::min(waiting, self.queue);
            }
        }
        let beyond = self.knee.filter(|(load, _)| load_fps > *load);
        lost + beyond.map_or(0.0, |(_, share)| share * load_fps * seconds)
    }

    /// Plain sweep from `from` to `to` times the capacity, in steps of `step` times the capacity:
    /// the load up to which at least half of `trials` trials lose no more than `goal` allows.
    pub(super) fn sweep(
        &mut self,
        goal: &Goal,
        (from, to): (f64, f64),
        step: f64,
        trials: usize,
    ) -> f64 {
        let mut best = 0.0;
        for i in 0..((to - from) / step) as u32 {
            let load_fps = self.capacity_fps * (from + f64::from(i) * step);
            let mut run = || {
                let outcome = self.run(load_fps, goal.final_trial_s).unwrap();
                TrialRecord::new(load_fps, goal.final_trial_s, outcome).loss_ratio()
            };
            let low = (0..trials).filter(|_| run() <= goal.loss_ratio_max()).count();
            if 2 * low < trials {
                break;
            }
            best = load_fps;
        }
        best
    }
}

impl Trial for Device {
    type Error = ();

    fn run(&mut self, load_fps: f64, seconds: f64) -> Result<TrialOutcome, ()> {
        let fails = unit(&mut self.random) < self.generator_fails;
        let fails_fps = if fails { 0.7 * load_fps } else { f64::INFINITY };
        let offered_fps = load_fps.min(self.generator_fps).min(fails_fps);
        let offered = (offered_fps * seconds).round();
        let lost = self.lost(offered_fps, seconds).round().min(offered);
        Ok(TrialOutcome {
            offered: offered as u64,
            delivered: (offered - lost) as u64,
            seconds,
            generator_ok: offered_fps >= load_fps,
        })
    }
}

/// A number from 0 to 1.
pub(super) fn unit(random: &mut Random) -> f64 {
    (random.bits() >> 11) as f64 / (1u64 << 53) as f64
}

/// A standard normal deviate (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - unit(random)).ln()).sqrt();
    radius * (TAU * unit(random)).cos()
}
