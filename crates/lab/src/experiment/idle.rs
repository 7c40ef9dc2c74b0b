//! Idle CPU with many silent guests, and wake-up latency of the first frame, by the lane's policy.
//!
//! The daemon has many attached guests without traffic: its CPU time is read at both ends of a
//! silence. Then one guest sends single frames to another, each after some milliseconds of silence,
//! in which a lane that may sleep goes to sleep; see [`traffic::probe`].
//!
//! Limits: CPU time is counted in the kernel's ticks, so a silence of 5 s is exact to 0.2 %. A busy
//! machine, or a virtual one whose host must wake its CPU, delays every sleeper. The floor measures
//! that delay; only the excess is the daemon's. Beside a lane that never sleeps it is the time
//! until that lane leaves its CPU to another thread. The daemon can keep CPUs from deep sleep
//! ([`host::latency`]), which lowers the floor as well.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use model::state::{Lanes, Problem, Problems};
use serde::Serialize;
use traffic::protocol::probe::{ProbeSpec, WakeTimes};
use traffic::{Event, Task};

use crate::bench::{Bench, GuestProcess, NicPlan, Placement, VfPlan, mac_text, plan};

/// Time between attaching and the measured silence: a new daemon still has work.
const SETTLE: Duration = Duration::from_secs(1);
/// Silence before each frame, in microseconds. A lane sleeps after 100 us by default.
const SILENCE_US: (u64, u64) = (5_000, 20_000);

/// Policies of a lane without frames: name, whether it sleeps, and time of polling in microseconds
/// before it yields or sleeps; `None`: the default.
const POLICIES: [(&str, bool, Option<u32>); 3] =
    [("poll", false, Some(1_000_000)), ("yield", false, None), ("sleep", true, None)];

/// Settings of the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleSpec {
    /// Guests, 2 to 255.
    pub guests: usize,
    /// Seconds of the measured silence.
    pub seconds: f64,
    /// Frames after silences.
    pub frames: u64,
    /// Limit of the CPUs' wake-up latency, in microseconds, 0 to 1000000; `None`: no limit.
    pub cpu_latency_us: Option<u32>,
}

impl IdleSpec {
    /// Validates the settings.
    ///
    /// # Errors
    /// An option, its value and the allowed range.
    pub fn check(&self) -> Result<(), Problems> {
        if !(2..=255).contains(&self.guests) {
            return Err(Problem::out_of_range("--guests", self.guests, 2, 255).into());
        }
        if !(self.seconds >= 0.1 && self.seconds <= 3600.0) {
            return Err(Problem::out_of_range("--seconds", self.seconds, 0.1, 3600).into());
        }
        if !(1..=1_000_000).contains(&self.frames) {
            return Err(Problem::out_of_range("--frames", self.frames, 1, 1_000_000).into());
        }
        match self.cpu_latency_us {
            Some(us @ 1_000_001..) => {
                Err(Problem::out_of_range("--cpu-latency", us, 0, 1_000_000).into())
            }
            _ => Ok(()),
        }
    }
}

/// Result, printed by `shunt lab idle --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Idle {
    /// Guests attached.
    pub guests: usize,
    /// Each policy.
    pub policies: Vec<IdleCost>,
    /// Limit of the CPUs' wake-up latency, for the daemon and the floor alike: the daemon set it
    /// for the whole machine. `None`: no limit.
    pub cpu_latency_us: Option<u32>,
    /// Pinned CPUs: the lane, the guests. Empty with a single CPU.
    pub pinned: Vec<usize>,
}

/// Cost of a policy.
#[derive(Clone, Debug, Serialize)]
pub struct IdleCost {
    /// Name of the policy: the lane polls, yields or sleeps.
    pub policy: &'static str,
    /// Seconds of the measured silence.
    pub seconds: f64,
    /// CPU time of the daemon in the silence, as a share of one core.
    pub cpu_share: f64,
    /// Time from publishing a frame to its arrival.
    pub wake_us: WakeTimes,
    /// Wake-up time of a thread on the lane's CPU that only sleeps on an eventfd, in turn with the
    /// frames.
    pub floor_us: WakeTimes,
    /// Frames that were timed.
    pub samples: u64,
    /// Number of times that the lane slept meanwhile.
    pub sleeps: u64,
    /// Frames that needed a kick: the lane slept, or was about to.
    pub kicks: u64,
}

/// Measures each policy; `program` is the shunt binary, `cpus` the allowed CPUs.
///
/// # Errors
/// A daemon or the guests fail.
pub fn run(program: &Path, cpus: &[usize], spec: IdleSpec) -> Result<Idle> {
    let placement = plan(cpus, 1);
    let policies = POLICIES.map(|(policy, sleep, poll_us)| {
        let mut lanes = Lanes { sleep, cpu_latency_us: spec.cpu_latency_us, ..Lanes::default() };
        lanes.cpus.extend(placement.switch);
        lanes.poll_us = poll_us.unwrap_or(lanes.poll_us);
        measure(program, &placement, spec, policy, lanes)
    });
    Ok(Idle {
        guests: spec.guests,
        policies: policies.into_iter().collect::<Result<_>>()?,
        cpu_latency_us: spec.cpu_latency_us,
        pinned: placement.switch.into_iter().chain(placement.guests[0].0).collect(),
    })
}

fn measure(
    program: &Path,
    placement: &Placement,
    spec: IdleSpec,
    policy: &'static str,
    lanes: Lanes,
) -> Result<IdleCost> {
    let vf = |i| VfPlan { macs: vec![mac_text(i, 0)], ..VfPlan::default() };
    let nic = NicPlan { lanes, uplink: false, vfs: (0..spec.guests).map(vf).collect() };
    let mut bench = Bench::start(program, &nic)?;
    let probe = ProbeSpec {
        cpu: placement.guests[0].0,
        lane_cpu: placement.switch,
        sockets: (0..spec.guests).map(|vf| bench.vf_socket(vf)).collect(),
        macs: [mac_text(0, 0).to_string(), mac_text(1, 0).to_string()],
        frames: spec.frames,
        silence_us: SILENCE_US,
        seed: 1,
    };
    let mut guests = GuestProcess::start_task(bench.program(), &Task::Probe(probe))?;

    std::thread::sleep(SETTLE);
    let (begin, before) = (Instant::now(), bench.cpu()?);
    std::thread::sleep(Duration::from_secs_f64(spec.seconds));
    let silence = bench.cpu()?.since(&before);
    let seconds = begin.elapsed().as_secs_f64();

    let sleeps = sleeps(&bench)?;
    guests.go()?;
    let result = match guests.hear()? {
        Event::Probed(result) => result,
        other => bail!("the guest process said {other:?} and no result"),
    };
    bench.check_alive()?;
    Ok(IdleCost {
        policy,
        seconds,
        cpu_share: silence.total_s() / seconds,
        wake_us: result.wake,
        floor_us: result.floor,
        samples: result.samples,
        sleeps: self::sleeps(&bench)? - sleeps,
        kicks: result.kicks,
    })
}

/// Number of times that lanes have gone to sleep.
fn sleeps(bench: &Bench) -> Result<u64> {
    let stats = bench.stats()?;
    let sleeps = stats.lanes.iter().map(|lane| lane.values.get("sleeps").copied());
    sleeps.sum::<Option<u64>>().context("no lane counter sleeps")
}
