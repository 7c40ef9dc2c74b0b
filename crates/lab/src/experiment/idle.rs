//! What silence costs, and what the first frame after it waits for.
//!
//! A daemon with many attached guests that do nothing: its CPU time is read at both ends of a
//! silence. Then one guest sends single frames to another, each after some milliseconds of
//! silence, long enough for the lane to have gone to sleep; see [`traffic::probe`]. The lane
//! may sleep here, as it does by default.
//!
//! Limits: CPU time is counted in the kernel's ticks, so a silence of 5 s is told to 0.2 %. A
//! machine that is busy with something else, or a virtual one whose CPU must be woken by its host,
//! lets every sleeper wait; the floor tells how long, and only what is above it is the daemon's.
//! The daemon can keep CPUs from deep sleep ([`host::latency`]), which lowers the floor as well.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use traffic::probe::{ProbeSpec, Times};
use traffic::{Event, Task};

use crate::bench::{Bench, GuestProcess, NicPlan, VfPlan, mac_text, plan};

/// Between attaching and the measured silence: a new daemon has things to settle.
const SETTLE: Duration = Duration::from_secs(1);
/// Silence before each frame, in microseconds. A lane sleeps after 100 us by default.
const SILENCE_US: (u64, u64) = (5_000, 20_000);

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleSpec {
    /// Guests, 2 to 255.
    pub guests: usize,
    /// Seconds of the silence whose CPU time is measured.
    pub seconds: f64,
    /// Frames after silences.
    pub frames: u64,
    /// How long CPUs may take to wake up meanwhile, in microseconds, 0 to 1000000; `None`: as long
    /// as they do.
    pub cpu_latency_us: Option<u32>,
}

impl IdleSpec {
    /// Says what is wrong with it, if anything is.
    ///
    /// # Errors
    /// One sentence that names the option, the value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        if !(2..=255).contains(&self.guests) {
            return Err(format!("--guests {}: 2 to 255 are possible", self.guests));
        }
        if !(self.seconds >= 0.1 && self.seconds <= 3600.0) {
            return Err(format!("--seconds {}: 0.1 to 3600 are possible", self.seconds));
        }
        if !(1..=1_000_000).contains(&self.frames) {
            return Err(format!("--frames {}: 1 to 1000000 are possible", self.frames));
        }
        match self.cpu_latency_us {
            Some(us @ 1_000_001..) => Err(format!("--cpu-latency {us}: 0 to 1000000 are possible")),
            _ => Ok(()),
        }
    }
}

/// What `shunt lab idle --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Idle {
    /// Guests attached.
    pub guests: usize,
    /// Seconds of the measured silence.
    pub seconds: f64,
    /// The daemon's CPU time in it, as a share of one core.
    pub cpu_share: f64,
    /// From publishing a frame to its arrival.
    pub wake_us: Times,
    /// What a thread that only sleeps on an eventfd took to wake up on the lane's CPU, in turn with
    /// the frames.
    pub floor_us: Times,
    /// Frames that were timed.
    pub samples: u64,
    /// How often the lane went to sleep while they were.
    pub sleeps: u64,
    /// How many of the frames had to be kicked for: the lane slept, or was about to.
    pub kicks: u64,
    /// What CPUs were allowed to take to wake up, for the daemon and the floor alike: the daemon
    /// held it for the whole machine. `None`: they were left alone.
    pub cpu_latency_us: Option<u32>,
    /// CPUs that were pinned: the lane, the guests. Empty if there is only one.
    pub pinned: Vec<usize>,
}

/// Measures; `program` is shunt itself, `cpus` those it may use.
pub fn run(program: &Path, cpus: &[usize], spec: IdleSpec) -> Result<Idle> {
    let placement = plan(cpus, 1);
    let guests_cpu = placement.guests[0].0;
    let vf = |i| VfPlan { macs: vec![mac_text(i, 0)], ..VfPlan::default() };
    let nic = NicPlan {
        cpu: placement.switch,
        uplink: false,
        vfs: (0..spec.guests).map(vf).collect(),
        busy: false,
    };
    let mut bench = Bench::start_awake(program, &nic, spec.cpu_latency_us)?;
    let probe = ProbeSpec {
        cpu: guests_cpu,
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
    Ok(Idle {
        guests: spec.guests,
        seconds,
        cpu_share: silence.total_s() / seconds,
        wake_us: result.wake,
        floor_us: result.floor,
        samples: result.samples,
        sleeps: self::sleeps(&bench)? - sleeps,
        kicks: result.kicks,
        cpu_latency_us: spec.cpu_latency_us,
        pinned: placement.switch.into_iter().chain(guests_cpu).collect(),
    })
}

/// How often lanes have gone to sleep so far.
fn sleeps(bench: &Bench) -> Result<u64> {
    let stats = bench.stats()?;
    let sleeps = stats.lanes.iter().map(|lane| lane.values.get("sleeps").copied());
    sleeps.sum::<Option<u64>>().context("no lane counter sleeps")
}
