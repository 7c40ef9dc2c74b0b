//! A hostile guest beside two honest ones.
//!
//! One daemon, one NIC. Two honest guests forward to each other and account for every frame, with a
//! witness at the uplink. A separate process attacks the daemon from four VFs, by rings and by
//! sockets. [`traffic::hostile`] describes the attack, and the promises of a NIC to a guest with a
//! hostile neighbour; [`traffic::honest`] describes the detection of loss, corruption, spoofing and
//! VLAN leaks.
//!
//! A pass means: the honest guests lost no frame and saw no violation, the daemon is still the same
//! process, and its attacked VFs serve the next guest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use api::stats::Stats;
use guestmem::Pages;
use serde::Serialize;
use traffic::adapter::{Adapter, HEADER, RING};
use traffic::hostile::FAR_PAIRS;
use traffic::protocol::honest::{HonestResult, HonestSpec};
use traffic::protocol::hostile::{HostileResult, HostileSpec, HostileVf};
use traffic::{Event, Task};

use super::sample;
use crate::bench::{Bench, GuestProcess, Placement, ProcessSize, mac_text, plan};

/// VF indices by role.
const HONEST: [usize; 2] = [0, 1];
const NEAR: usize = 2;
pub(super) const FAR: [usize; 2] = [3, 4];
pub(super) const COURIER: usize = 5;
/// VLAN of the far VFs and the courier; the others are untagged.
pub(super) const FAR_VLAN: u16 = 99;
/// Frames that the honest guests keep in flight.
const IN_FLIGHT: u64 = 256;
/// Frames that the honest guests forward before the attack.
const ALONE_FRAMES: u64 = 20_000;
/// Time of honest traffic after the attack.
const ALONE: Duration = Duration::from_millis(300);
/// Longest time for the daemon to notice an ended process, or to carry one frame.
const PATIENCE: Duration = Duration::from_secs(60);

/// Settings of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostileRun {
    /// Bursts to send.
    pub bursts: u64,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Result, printed by `shunt lab hostile --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Hostile {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Account of the hostile process.
    #[serde(flatten)]
    pub attack: HostileResult,
    /// Seconds of the attack.
    pub seconds: f64,
    /// Account of the honest guests.
    pub honest: HonestResult,
    /// `true` if the daemon is still the same process.
    pub daemon_alive: bool,
    /// `true` if other guests could attach to the far VFs afterwards, and a frame passed.
    pub reattached: bool,
    /// Rings that the daemon stopped, by direction and violated rule.
    pub faults: BTreeMap<String, u64>,
    /// Frames dropped, by port and reason.
    pub drops: BTreeMap<String, u64>,
    /// Resident memory of the daemon while only the honest guests forwarded, in MiB. It includes
    /// touched guest memory.
    pub daemon_rss_mib_before: f64,
    /// Resident memory after the hostile process had ended, in MiB.
    pub daemon_rss_mib_after: f64,
    /// Resident memory without guest memory, before the attack, in MiB.
    pub daemon_own_mib_before: f64,
    /// Resident memory without guest memory, after the attack, in MiB.
    pub daemon_own_mib_after: f64,
    /// Open files before the attack.
    pub daemon_fds_before: usize,
    /// Open files after the attack.
    pub daemon_fds_after: usize,
    /// Error that ended the run early, if any.
    pub failure: Option<String>,
    /// Pinned CPUs: the lane, all guests. Empty with a single CPU.
    pub pinned: Vec<usize>,
}

impl Hostile {
    /// `true` if all promises were kept.
    pub fn passed(&self) -> bool {
        let HonestResult { received, lost, corrupted, spoofed, misplaced, .. } = self.honest;
        let harm = lost + corrupted + spoofed + misplaced;
        received > 0 && harm == 0 && self.daemon_alive && self.reattached && self.failure.is_none()
    }
}

/// Runs it; `program` is the shunt binary, `cpus` the allowed CPUs. Passes bursts so far to `done`.
pub fn run(
    program: &Path,
    cpus: &[usize],
    run: HostileRun,
    mut done: impl FnMut(u64),
) -> Result<Hostile> {
    let placement = plan(cpus, 1);
    let mut bench = Bench::with_config(program, |dir| Ok(toml(dir, &placement)))?;
    let mut honest =
        GuestProcess::start_task(bench.program(), &Task::Honest(honest_spec(&bench, &placement)))?;
    honest.go()?;
    wait_for_traffic(&bench)?;
    let before = ProcessSize::of(bench.pid())?;
    let stats = bench.stats()?;

    let begin = Instant::now();
    let pace = bench.run_dir().join("pace");
    let task = Task::Hostile(hostile_spec(&placement, run, |vf| bench.vf_socket(vf), pace));
    let attacked = attack(&bench, &task, &mut done);
    let seconds = begin.elapsed().as_secs_f64();
    let daemon_alive = bench.check_alive();
    let (attack, failure) = match (attacked, &daemon_alive) {
        (Ok(result), Ok(())) => (result, None),
        (Err(error), Ok(())) => (HostileResult::default(), Some(format!("{error:#}"))),
        (outcome, Err(error)) => (outcome.unwrap_or_default(), Some(format!("{error:#}"))),
    };
    let daemon_alive = daemon_alive.is_ok();
    let after = if daemon_alive {
        wait_until_gone(&bench)?;
        size_at_rest(&bench, before.fds)?
    } else {
        ProcessSize::default()
    };
    let reattached = daemon_alive && reattach(&bench).is_ok();
    std::thread::sleep(ALONE);
    honest.go()?; // any line ends it
    let honest = match honest.hear()? {
        Event::Honest(result) => result,
        other => bail!("the honest process said {other:?} and no result"),
    };
    let ended = bench.stats()?;
    Ok(Hostile {
        seed: run.seed,
        attack,
        seconds,
        honest,
        daemon_alive: daemon_alive && bench.check_alive().is_ok(),
        reattached,
        faults: faults(&ended),
        drops: sample::drops(&stats, &ended),
        daemon_rss_mib_before: before.rss_mib,
        daemon_rss_mib_after: after.rss_mib,
        daemon_own_mib_before: before.own_mib,
        daemon_own_mib_after: after.own_mib,
        daemon_fds_before: before.fds,
        daemon_fds_after: after.fds,
        failure,
        pinned: placement.switch.into_iter().chain(placement.guests[0].0).collect(),
    })
}

fn attack(bench: &Bench, task: &Task, done: &mut impl FnMut(u64)) -> Result<HostileResult> {
    let mut hostile = GuestProcess::start_task(bench.program(), task)?;
    hostile.go()?;
    finish_attack(hostile, done)
}

/// Waits until hostile guests have sent all bursts.
pub(super) fn finish_attack(
    mut hostile: GuestProcess,
    done: &mut impl FnMut(u64),
) -> Result<HostileResult> {
    loop {
        match hostile.hear()? {
            Event::Progress { bursts } => done(bursts),
            Event::Hostile(result) => return Ok(result),
            other => bail!("the hostile process said {other:?}"),
        }
    }
}

/// Configuration: lanes may sleep, as by default.
fn toml(run_dir: &Path, placement: &Placement) -> String {
    let mut text = format!("run_dir = {:?}\n", run_dir.display().to_string());
    if let Some(cpu) = placement.switch {
        text += &format!("[lanes]\ncpus = [{cpu}]\n");
    }
    text += "[[nic]]\nname = \"lab\"\nkind = \"soft\"\n";
    text += "[nic.uplink]\nkind = \"vhost-user\"\nsocket = \"uplink.sock\"\n";
    for vf in 0..=COURIER {
        let mac = mac_text(vf, 0);
        text += &format!("[[nic.vf]]\nmac = \"{mac}\"\nattachment.socket = \"vf{vf}.sock\"\n");
        if FAR.contains(&vf) {
            text += &format!("attachment.queue_pairs = {FAR_PAIRS}\n");
        }
        if FAR.contains(&vf) || vf == COURIER {
            text += &format!("vlan.id = {FAR_VLAN}\n");
        }
    }
    text
}

fn honest_spec(bench: &Bench, placement: &Placement) -> HonestSpec {
    let mac = |vf: usize| mac_text(vf, 0).to_string();
    HonestSpec {
        cpu: placement.guests[0].0,
        guests: HONEST.map(|vf| (bench.vf_socket(vf), mac(vf))),
        uplink: bench.uplink_socket(),
        near: vec![mac(NEAR)],
        far: (FAR.into_iter().chain([COURIER]).map(mac).collect(), FAR_VLAN),
        pace: bench.run_dir().join("pace"),
        in_flight: IN_FLIGHT,
    }
}

/// Task of the hostile guests, by the sockets of VFs and the honest guests' turn counter.
pub(super) fn hostile_spec(
    placement: &Placement,
    run: HostileRun,
    socket: impl Fn(usize) -> PathBuf,
    pace: PathBuf,
) -> HostileSpec {
    let mac = |vf: usize| mac_text(vf, 0).to_string();
    let target = |vf| HostileVf { socket: socket(vf), mac: mac(vf) };
    HostileSpec {
        // The last CPU of the guests: with three or more it is not the honest guests'.
        cpu: placement.generator.or(placement.guests[0].0),
        seed: run.seed,
        bursts: run.bursts,
        far: FAR.map(target),
        courier: target(COURIER),
        near: target(NEAR),
        honest: HONEST.map(mac).to_vec(),
        pace,
    }
}

/// Waits until the honest guests have forwarded [`ALONE_FRAMES`].
fn wait_for_traffic(bench: &Bench) -> Result<()> {
    let begin = Instant::now();
    // The uplink is port 0, the VFs follow.
    while bench.stats()?.ports[1 + HONEST[0]].rx_frames < ALONE_FRAMES {
        ensure!(begin.elapsed() < PATIENCE, "the honest guests do not forward without an attack");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Waits until the hostile process has no ring.
fn wait_until_gone(bench: &Bench) -> Result<()> {
    let begin = Instant::now();
    loop {
        let stats = bench.stats()?;
        let hostile = stats.ports.iter().skip(1 + NEAR);
        if hostile.map(|port| port.rings_attached).sum::<u64>() == 0 {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "the daemon keeps rings of an ended process");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Size of the daemon once it has at most `fds` open files, or after the timeout. The daemon closes
/// a session without rings only when it detects the hang-up of its front-end.
fn size_at_rest(bench: &Bench, fds: usize) -> Result<ProcessSize> {
    let begin = Instant::now();
    loop {
        let size = ProcessSize::of(bench.pid())?;
        if size.fds <= fds || begin.elapsed() >= PATIENCE {
            return Ok(size);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Attaches to the far VFs as a valid guest, and sends one frame.
fn reattach(bench: &Bench) -> Result<()> {
    let [from, to] = FAR;
    let mut sender = Adapter::attach(&bench.vf_socket(from), false, Pages::Ordinary)?;
    let mut receiver = Adapter::attach(&bench.vf_socket(to), false, Pages::Ordinary)?;
    receiver.post_receive(0);
    receiver.publish();
    let frame = traffic::frame(mac_text(from, 0), mac_text(to, 0), 64, 0)?;
    let place = sender.buffer(u32::from(RING));
    place.write(0, [0; HEADER as usize]);
    place.skip(HEADER).write_bytes(&frame);
    sender.post_transmit(u32::from(RING), HEADER + frame.len() as u32);
    sender.publish();
    let begin = Instant::now();
    while receiver.rx.used_len() == 0 {
        ensure!(begin.elapsed() < PATIENCE, "no frame passes between the far VFs");
        std::thread::yield_now();
    }
    let mut seen = vec![0; frame.len()];
    receiver.buffer(0).skip(HEADER).read_bytes(&mut seen);
    ensure!(seen == frame, "a frame between the far VFs was corrupted");
    Ok(())
}

/// Faults summed over all ports.
fn faults(stats: &Stats) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for (fault, count) in stats.ports.iter().flat_map(|port| &port.faults) {
        *sum.entry(fault.clone()).or_default() += count;
    }
    sum
}
