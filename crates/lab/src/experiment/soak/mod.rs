//! Soak: honest guests whose frames are numbered, beside random actions, from a seed.
//!
//! # Model
//! One daemon has six adapters on a switch. Two honest guests send numbered frames to each other
//! all the time ([`traffic::numbered`]). Four adapters are for hostile guests
//! ([`traffic::hostile`]), which come and go. In steps of a quarter of a second, one action is made
//! through the daemon's API, or to its process: the list of actions ([`plan`]) follows from the
//! seed. After each action frames must pass in both directions; a frame that is missing then is
//! accounted to the action. At twelve points, visitors have gone and temporary settings are undone:
//! the daemon's memory, open files and threads must be those of the first point, and at the end
//! also those after half time, from which on no restart hides a slow leak ([`account`]).
//!
//! # Promises
//! As of the experiments that this one combines: no frame is lost, duplicated, reordered or
//! corrupted, except drops that the daemon counts while a link is down, and repetitions of up to a
//! burst in each direction after a kill. A copy over taps survives everything.
//!
//! # Limits
//! The seed repeats the actions, not their timing. Copies need network namespaces and taps: without
//! them they are left out, and the result says so.

pub mod account;
pub mod plan;
mod visitors;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::Method;
use guestmem::Pages;
use model::state::PathInForce;
use report::RingKind;
use serde::Serialize;
use serde_json::json;
use traffic::adapter::Adapter;
use traffic::hostile::FAR_PAIRS;
use traffic::protocol::numbered::{Direction, Mark, NumberedSpec};
use traffic::{Event, Task, netns};

use self::account::{Account, BASES, Cause, FDS_TOLERANCE, POINTS, Point};
use self::plan::{ADAPTERS, Action, Kind, PATH, plan};
use self::visitors::{Copy, TAPS};
use super::hostile::{COURIER, FAR, FAR_VLAN, HostileRun, finish_attack, hostile_spec};
use crate::bench::{
    AdapterPlan, BenchAttachment, GuestProcess, Placement, ProcessSize, SwitchedBench, interrupt,
    mac_text, plan as place,
};

/// Steps a second.
pub const STEPS: u64 = 4;
/// Honest adapters.
const HONEST: [usize; 2] = [0, 1];
/// Adapter that comes and goes.
const SPARE: usize = TAPS[1] + 1;
/// Frames a second that each honest guest sends.
const RATE_PPS: u32 = 20_000;
/// Time with a temporary setting, or for frames to pass.
const HOLD: Duration = Duration::from_millis(20);
/// Longest time until frames pass again, or until the daemon has released what a visitor used.
const PATIENCE: Duration = Duration::from_secs(10);

/// Settings of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoakRun {
    /// Seconds, if no action takes longer than its step.
    pub seconds: u64,
    /// Seed of the actions.
    pub seed: u64,
    /// Rings of the honest guests.
    pub ring: RingKind,
    /// Kinds of actions that are left out.
    pub without: Vec<Kind>,
}

/// Result, printed by `shunt lab soak --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Soak {
    /// Seed of the actions.
    pub seed: u64,
    /// Rings of the honest guests.
    pub ring: RingKind,
    /// Seconds of traffic.
    pub seconds: f64,
    /// Actions in order; the first is step 1.
    pub actions: Vec<String>,
    /// Reason that copies over taps were left out, if this machine does not allow them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_taps: Option<String>,
    /// Frames of the honest guests.
    pub frames: Direction,
    /// Frames around the actions of each kind.
    pub causes: BTreeMap<String, Cause>,
    /// Readings over time.
    pub points: Vec<Point>,
    /// Broken promises.
    pub problems: Vec<String>,
    /// Pinned CPUs: switch, guests.
    pub pinned: Vec<usize>,
}

/// Runs it; `program` is the shunt binary, `cpus` the allowed CPUs. Passes steps so far to `done`.
///
/// # Errors
/// The daemon or the guests do not start. A later error is a problem of the result.
pub fn run(
    program: &Path,
    cpus: &[usize],
    run: &SoakRun,
    mut done: impl FnMut(usize),
) -> Result<Soak> {
    let is_in = |kind: &Kind| !run.without.contains(kind);
    let mut kinds: Vec<Kind> = Kind::ALL.into_iter().filter(is_in).collect();
    let mut no_taps = None;
    if kinds.contains(&Kind::Tap)
        && let Err(error) = netns::enter_for_guests()
    {
        kinds.retain(|kind| *kind != Kind::Tap);
        no_taps = Some(format!("{error:#}"));
    }
    let may_end = kinds.iter().any(|kind| !kind.is_restart());
    ensure!(may_end, "no kind of action but restarts is left, which the second half has none of");
    let actions = plan(run.seed, (run.seconds * STEPS) as usize, &kinds);
    let mut soaking = Soaking::start(program, place(cpus, 1), run.ring)?;
    let ended = soaking.act(&actions, &mut done).and_then(|()| soaking.finish());
    let Soaking { mut account, points, begin, placement, .. } = soaking;
    if let Err(error) = ended {
        account.problems.push(format!("{error:#}"));
    }
    account.problems.extend(account::leaks(&points));
    Ok(Soak {
        seed: run.seed,
        ring: run.ring,
        seconds: begin.elapsed().as_secs_f64(),
        actions: actions.iter().map(Action::to_string).collect(),
        no_taps,
        frames: account.frames,
        causes: account.causes,
        points,
        problems: account.problems,
        pinned: placement.switch.into_iter().chain(placement.guests[0].0).collect(),
    })
}

/// A run.
struct Soaking {
    // Guests end before the daemon, in this order.
    attack: Option<GuestProcess>,
    copy: Option<Copy>,
    guests: GuestProcess,
    bench: SwitchedBench,
    placement: Placement,
    paths: [PathInForce; ADAPTERS],
    begin: Instant,
    account: Account,
    points: Vec<Point>,
}

impl Soaking {
    fn start(program: &Path, placement: Placement, ring: RingKind) -> Result<Soaking> {
        let paths = [PATH; ADAPTERS];
        let config = |run_dir: &Path| Ok(toml(run_dir, &placement));
        let bench = SwitchedBench::with_config(program, &paths, config)?;
        let guest = |i: usize| (bench.socket(i), mac_text(i, 0).to_string());
        let spec = NumberedSpec {
            cpu: placement.guests[0].0,
            guests: HONEST.map(guest),
            rate_pps: RATE_PPS,
            ring,
            inflight: true,
            reattach: true,
            pace: Some(bench.bench.run_dir().join("pace")),
        };
        let mut guests = GuestProcess::start_task(program, &Task::Numbered(spec))?;
        guests.go()?;
        let (begin, account) = (Instant::now(), Account::new()?);
        let (attack, copy, points) = Default::default();
        Ok(Soaking { attack, copy, guests, bench, placement, paths, begin, account, points })
    }

    /// Makes all actions, each not before its time, and takes all readings.
    fn act(&mut self, actions: &[Action], done: &mut impl FnMut(usize)) -> Result<()> {
        for (i, action) in actions.iter().enumerate() {
            let step = i + 1;
            let due = Duration::from_millis(i as u64 * 1000 / STEPS);
            std::thread::sleep(due.saturating_sub(self.begin.elapsed()));
            self.step(step, action).with_context(|| format!("step {step}, {action}"))?;
            if step * POINTS / actions.len() > i * POINTS / actions.len() {
                self.read(step).with_context(|| format!("after step {step}"))?;
            }
            done(step);
            interrupt::check()?;
        }
        Ok(())
    }

    fn step(&mut self, step: usize, action: &Action) -> Result<()> {
        let before = match action {
            Action::Kill => BTreeMap::new(), // the next daemon counts from zero
            _ => self.honest_drops()?,
        };
        let applied = self.apply(action);
        self.bench.bench.check_alive()?; // its standard error says more
        applied?;
        let spans = self.wait_for_frames()?;
        let mut drops = self.honest_drops()?;
        for (reason, count) in &mut drops {
            *count -= before.get(reason).copied().unwrap_or(0).min(*count);
        }
        drops.retain(|_, count| *count > 0);
        self.account.record(step, action, &spans, &drops);
        Ok(())
    }

    /// Makes an action; a temporary setting is undone when it returns.
    fn apply(&mut self, action: &Action) -> Result<()> {
        let bench = &mut self.bench;
        match *action {
            Action::Path { adapter, to, .. } => {
                bench.set_path(adapter, to)?;
                self.paths[adapter] = to;
            }
            Action::Settings { adapter, weight, max_tx_mbps } => {
                bench.set(adapter, &json!({"tx_weight": weight, "max_tx_mbps": max_tx_mbps}))?;
            }
            Action::Rules { adapter } => {
                let port = format!("/v1/switches/sw/ports/g{adapter}");
                let rules = json!([{"action": "deny", "ethertype": 0x8906}, {"action": "count"}]);
                let state = json!({"adapter": format!("g{adapter}"), "acl": rules});
                bench.send(Method::PUT, &port, Some(&state))?;
                std::thread::sleep(HOLD);
                bench.send(Method::DELETE, &port, None)?;
            }
            Action::Mirror { adapter } => {
                let file = bench.bench.run_dir().join("mirror.pcapng");
                bench.set(adapter, &json!({"mirror": {"direction": "both", "file": file}}))?;
                std::thread::sleep(HOLD);
                bench.set(adapter, &json!({"mirror": null}))?;
                std::fs::remove_file(&file).context("the mirror has no file")?;
            }
            Action::Link { adapter } => {
                bench.set(adapter, &json!({"link_state": "disable"}))?;
                std::thread::sleep(HOLD);
                bench.set(adapter, &json!({"link_state": null}))?;
            }
            Action::Adapter { in_use } => {
                let mac = mac_text(SPARE, 0);
                let plan = AdapterPlan { attached: BenchAttachment::Socket, mac, path: PATH };
                bench.add(SPARE, &plan)?;
                let guest = Adapter::attach(&bench.socket(SPARE), true, Pages::Ordinary)?;
                if !in_use {
                    drop(guest);
                }
                bench.remove(SPARE)?;
            }
            Action::Hostile { bursts, seed } => {
                if let Some(attack) = self.attack.take() {
                    finish_attack(attack, &mut |_| ())?;
                }
                let socket = |adapter| bench.socket(adapter);
                let pace = bench.bench.run_dir().join("pace");
                let spec = hostile_spec(&self.placement, HostileRun { bursts, seed }, socket, pace);
                let program = bench.bench.program();
                let mut attack = GuestProcess::start_task(program, &Task::Hostile(spec))?;
                attack.go()?;
                self.attack = Some(attack);
            }
            Action::Tap { mib } => {
                self.copy.take().map_or(Ok(()), |copy| copy.finish(bench))?;
                self.copy = Some(Copy::start(bench, self.placement.guests[0].0, mib)?);
            }
            Action::Upgrade => drop(bench.bench.upgrade()?),
            Action::Kill => {
                bench.bench.kill_and_restart()?;
                self.attack = None; // its guests end with the sessions
            }
        }
        Ok(())
    }

    /// Waits until frames have passed in both directions after an action; returns the spans.
    fn wait_for_frames(&mut self) -> Result<Vec<Mark>> {
        let begin = Instant::now();
        let mut spans = vec![self.guests.end_span()?];
        loop {
            std::thread::sleep(HOLD);
            spans.push(self.guests.end_span()?);
            let (first, last) = (&spans[0].directions, &spans[spans.len() - 1].directions);
            if last.iter().zip(first).all(|(last, first)| last.received > first.received) {
                return Ok(spans);
            }
            if begin.elapsed() > PATIENCE {
                bail!("no frame passes; {first:?}, then {last:?}");
            }
        }
    }

    /// Drops at the ports of honest guests, by reason.
    fn honest_drops(&self) -> Result<BTreeMap<String, u64>> {
        let mut drops = BTreeMap::new();
        let stats = self.bench.bench.stats()?;
        for port in stats
            .ports
            .iter()
            .filter(|port| HONEST.iter().any(|i| port.name == format!("lab/g{i}")))
        {
            for (reason, count) in &port.drops {
                *drops.entry(reason.clone()).or_default() += count;
            }
        }
        Ok(drops)
    }

    /// Takes a reading once the visitors have gone.
    fn read(&mut self, actions: usize) -> Result<()> {
        if let Some(attack) = self.attack.take() {
            finish_attack(attack, &mut |_| ())?;
        }
        self.copy.take().map_or(Ok(()), |copy| copy.finish(&self.bench))?;
        self.bench.check_paths(&self.paths)?;
        // The readings that the last one is compared with.
        let bases = BASES.iter().filter_map(|base| self.points.get(*base));
        let bases: Vec<(usize, usize)> = bases.map(|it| (it.size.fds, it.size.threads)).collect();
        let patience = if bases.is_empty() { PATIENCE / 10 } else { PATIENCE };
        let begin = Instant::now();
        let size = loop {
            let size = ProcessSize::of(self.bench.bench.pid())?;
            let is_back = |(fds, threads): &(usize, usize)| {
                size.fds <= fds + FDS_TOLERANCE && size.threads <= *threads
            };
            if !bases.is_empty() && bases.iter().all(is_back) || begin.elapsed() > patience {
                break size;
            }
            std::thread::sleep(HOLD);
        };
        self.points.push(Point {
            seconds: self.begin.elapsed().as_secs_f64(),
            actions,
            frames: self.account.frames,
            latency: self.account.take_latency(),
            size,
            files: files(self.bench.bench.run_dir())?,
        });
        Ok(())
    }

    /// Ends the traffic, and checks the account as a whole.
    fn finish(&mut self) -> Result<()> {
        self.guests.go()?; // any line but `mark` ends it
        let result = match self.guests.hear()? {
            Event::Numbered(result) => result,
            other => bail!("the guests said {other:?} and no result"),
        };
        self.bench.bench.check_alive()?;
        let before = self.account.frames;
        self.account.frames = Direction::of_both(&result.directions);
        let Direction { sent, received, lost, .. } = self.account.frames;
        ensure!(sent == received + lost, "{sent} frames sent, {received} received, {lost} lost");
        ensure!(lost == before.lost, "{} frames lost after the last step", lost - before.lost);
        let used = [result.used_repeated, result.used_out_of_order, result.used_missing];
        ensure!(used == [0; 3], "buffers returned twice, out of order, not at all: {used:?}");
        Ok(())
    }
}

/// Number of files in a directory and those below.
fn files(dir: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(dir).context("cannot list the run directory")? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { files(&entry.path())? } else { 1 };
    }
    Ok(count)
}

/// Configuration: lanes may sleep, as by default.
fn toml(run_dir: &Path, placement: &Placement) -> String {
    let run_dir = run_dir.display().to_string();
    let mut text = format!("run_dir = {run_dir:?}\nstate_dir = \"{run_dir}/state\"\n");
    if let Some(cpu) = placement.switch {
        let _ = writeln!(text, "[lanes]\ncpus = [{cpu}]");
    }
    let places = SPARE + 1;
    let _ = writeln!(
        text,
        "[[nic]]\nname = \"lab\"\nkind = \"soft\"\ntotal_vfs = {places}\nvmq_queues = {places}\n\
         [[switch]]\nname = \"sw\"\nnic = \"lab\"\niov = true"
    );
    for adapter in 0..ADAPTERS {
        let mac = mac_text(adapter, 0);
        let pairs = if FAR.contains(&adapter) { FAR_PAIRS } else { 1 };
        let _ = writeln!(
            text,
            "[[adapter]]\nname = \"g{adapter}\"\nswitch = \"sw\"\nmac = \"{mac}\"\n\
             iov_weight = 100\npath = \"{PATH}\"\n\
             attachment = {{ socket = \"g{adapter}.sock\", queue_pairs = {pairs} }}"
        );
        if FAR.contains(&adapter) || adapter == COURIER {
            let _ = writeln!(text, "vlan = {{ id = {FAR_VLAN} }}");
        }
    }
    text
}
