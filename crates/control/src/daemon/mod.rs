//! The daemon in the foreground: from a checked configuration to running lanes and sockets.
//!
//! One thread (the caller's) serves all vhost-user sockets by epoll; the lanes are threads of their
//! own, which it only meets at the ports. A front-end can make this thread do a bounded amount of
//! work a turn ([`attachment`]), so that no front-end keeps another from attaching.
//!
//! The API has threads of its own; a change that it makes takes the place of this one's work for a
//! moment ([`plant`]).
//!
//! # Life
//! 1. [`Daemon::start`]: counters and lanes, then the desired state: what is stored, or else what
//!    the configuration says.
//! 2. [`Daemon::serve`]: guests may not send before all are back, or a moment has passed: a frame
//!    that was posted while no daemon ran finds its receiver.
//! 3. [`Stop`]: the lanes end first, each after the burst in its hands, and guests are let go
//!    after them. So what a guest has posted has either arrived, or waits for the next daemon.

mod attachment;
mod carried;
mod device;
mod devices;
mod following;
mod inflight;
mod log;
mod offer;
mod plant;
mod rig;
mod ring;
pub(crate) mod run_dir;
mod sockets;
mod vmq;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::{Fabric, IdlePolicy, LaneSpec};
use host::CpuLatency;
use rustix::event::{Timespec, epoll};

use crate::api::{Manager, Server};
use crate::config::Config;
use crate::stats::Stats;
use crate::store::Directory;
use log::LOOK;
use plant::{Plant, Shared};

/// The counter file's name in the run directory.
pub const COUNTERS: &str = "counters";
pub(crate) use run_dir::LOCK;

/// How long after its start the daemon waits for guests to come back before it lets any send.
const SETTLE: Duration = Duration::from_millis(500);
/// How often it looks meanwhile whether all are there.
const SETTLE_LOOK: Duration = Duration::from_millis(2);

/// Runs until SIGINT or SIGTERM. `ready` is called once all sockets are served.
///
/// # Errors
/// What keeps the daemon from starting: each says what is wrong, where, and the remedy.
pub fn run(config: &Config, ready: impl FnOnce()) -> Result<()> {
    let (daemon, stop) = Daemon::start(config)?;
    stop.on_signals()?;
    ready();
    daemon.serve()
}

/// A daemon whose lanes run and whose sockets are there.
#[derive(Debug)]
pub struct Daemon {
    /// Dropped first: no change comes while the rest ends.
    server: Option<Server>,
    epoll: Arc<OwnedFd>,
    plant: Shared,
    /// What is to be removed at the end.
    leftovers: Leftovers,
    /// Readable when it is to stop; epoll watches it.
    _stop: UnixStream,
    /// Held until the end: the run directory is one daemon's.
    _lock: std::fs::File,
    /// Likewise: how soon CPUs wake up, if the configuration says.
    _cpu_latency: Option<CpuLatency>,
}

/// Ends [`Daemon::serve`], from any thread; so does dropping it.
#[derive(Debug)]
pub struct Stop(UnixStream);

impl Stop {
    /// Ends it.
    pub fn stop(&self) {
        // The only failures are a daemon that is gone and a full buffer, which ends it as well.
        let _ = (&self.0).write(&[0]);
    }

    /// Ends it at SIGINT or SIGTERM, too.
    ///
    /// # Errors
    /// If the system has no descriptor left, or refuses the handler.
    pub fn on_signals(&self) -> Result<()> {
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::low_level::pipe::register(signal, self.0.try_clone()?)?;
        }
        Ok(())
    }
}

/// Epoll's data for [`Stop`]; attachments have their index.
const STOP: u64 = u64::MAX;

impl Daemon {
    /// Starts lanes and opens sockets; nobody is served before [`serve`](Self::serve).
    ///
    /// # Errors
    /// As [`run`].
    pub fn start(config: &Config) -> Result<(Daemon, Stop)> {
        let run_dir = &config.run_dir;
        let lock = run_dir::claim(run_dir)?;
        raise_file_limit();
        let latency = config.lanes.cpu_latency_us.map(CpuLatency::hold).transpose();
        let cpu_latency = latency.context("cannot keep lanes.cpu_latency_us")?;
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let (ours, stop) = UnixStream::pair()?;
        let input = epoll::EventFlags::IN;
        epoll::add(&epoll, &ours, epoll::EventData::new_u64(STOP), input)?;

        let leftovers = Leftovers { run_dir: run_dir.clone() };
        let fabric = Fabric::start(&lane_specs(config), Some(&counters_path(run_dir)))?;
        fabric.hold(true);
        let plant = Shared::new(Plant::new(fabric, epoll.clone()));
        let server = serve_api(config, &plant)?;
        let daemon = Daemon {
            server,
            epoll,
            plant,
            leftovers,
            _stop: ours,
            _lock: lock,
            _cpu_latency: cpu_latency,
        };
        Ok((daemon, Stop(stop)))
    }

    /// Serves guests until [`Stop`] says otherwise.
    ///
    /// # Errors
    /// If waiting for events fails, which only a bug could cause.
    pub fn serve(self) -> Result<()> {
        let started = Instant::now();
        let mut settled = false;
        loop {
            let now = Instant::now();
            let wait = {
                let plant = self.plant.lock();
                if !settled && (now - started >= SETTLE || plant.sockets.are_attached()) {
                    settled = true;
                    plant.fabric.hold(false);
                }
                let most = if settled { LOOK } else { SETTLE_LOOK };
                plant.wait(now, most)
            };
            let wait = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos().min(999_999_999) as i64 };
            let data = epoll::EventData::new_u64(0);
            let flags = epoll::EventFlags::empty();
            let mut events = [epoll::Event { flags, data }; 64];
            let n = match epoll::wait(&self.epoll, &mut events[..], Some(&wait)) {
                Ok(n) => n,
                Err(rustix::io::Errno::INTR) => 0,
                Err(error) => return Err(error).context("waiting for sockets failed"),
            };
            let mut plant = self.plant.lock();
            for event in &events[..n] {
                match event.data.u64() {
                    STOP => {
                        drop(plant);
                        self.stop();
                        return Ok(());
                    }
                    token => plant.sockets.serve(token),
                }
            }
            plant.look(Instant::now());
        }
    }

    fn stop(self) {
        tracing::info!("stopping");
        drop(self.server);
        self.plant.lock().stop();
        drop(self.leftovers);
    }
}

/// Files of a daemon that are nobody's when it has ended, or could not start; dropping it removes
/// them. What stays does no harm: the next daemon begins with files of its own.
#[derive(Debug)]
struct Leftovers {
    run_dir: PathBuf,
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        // Nobody shall take the counters of lanes that do not run for a daemon's.
        let _ = std::fs::remove_file(counters_path(&self.run_dir));
        let _ = std::fs::remove_dir_all(self.run_dir.join(FLEETING_STATE));
    }
}

/// Brings the desired state into force, and serves the API by which it changes.
fn serve_api(config: &Config, plant: &Shared) -> Result<Option<Server>> {
    let directory = match &config.state_dir {
        Some(directory) => Directory::open(directory)?,
        None => {
            // What changed in the life of the daemon before is not to outlive it.
            let directory = config.run_dir.join(FLEETING_STATE);
            match std::fs::remove_dir_all(&directory) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let shown = directory.display();
                    return Err(error).with_context(|| format!("cannot remove {shown}"));
                }
                _ => Directory::open(&directory)?,
            }
        }
    };
    let run_dir = config.run_dir.clone();
    let counted = plant.clone();
    let stats = Box::new(move || {
        let plant = counted.lock();
        let (rules, offloads) = (plant.rules(), plant.offloads());
        drop(plant);
        crate::stats::read(&run_dir).map(|stats| Stats { rules, offloads, ..stats })
    });
    let mut manager = Manager::open(directory, Box::new(plant.clone()), stats)?;
    if manager.generation() == 0 {
        manager.apply(&config.state, None).map_err(|fault| anyhow::anyhow!("{fault}"))?;
    } else if *manager.state() != config.state {
        tracing::warn!(
            "the stored state is in force, not that of the configuration file, which is for a \
             first start; to go back to the file's, remove {}/state.json and start again",
            config.state_dir.as_deref().unwrap_or(Path::new("state_dir")).display()
        );
    }
    let Some(api) = &config.api else { return Ok(None) };
    Server::start(manager, &api.listen()?).map(Some)
}

/// Where the state is kept if it is not to outlive the daemon, in the run directory.
const FLEETING_STATE: &str = "state";

/// A VF with its guest holds some ten descriptors, and the usual soft limit is 1024.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it cannot be raised, running out of descriptors is said where it happens.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn lane_specs(config: &Config) -> Vec<LaneSpec> {
    let lanes = &config.lanes;
    let idle = IdlePolicy {
        poll: Duration::from_micros(lanes.poll_us.into()),
        yielding: Duration::from_micros(lanes.yield_us.into()),
        sleep: lanes.sleep,
    };
    let cpu = |i| lanes.cpus.get(i).copied();
    (0..lanes.count()).map(|i| LaneSpec { cpu: cpu(i), idle }).collect()
}

/// Where the counters of a daemon with this run directory are.
pub fn counters_path(run_dir: &Path) -> PathBuf {
    run_dir.join(COUNTERS)
}
