//! The daemon in the foreground: from a checked configuration to running lanes and sockets.
//!
//! One thread (the caller's) serves all vhost-user sockets by epoll; the lanes are threads of their
//! own, which it only meets at the ports. A front-end can make this thread do a bounded amount of
//! work a turn ([`attachment`]), so that no front-end keeps another from attaching.
//!
//! The API has threads of its own; a change that it makes takes the place of this one's work for a
//! moment ([`data_plane`]).
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
mod data_plane;
mod device;
mod devices;
mod faults;
mod follow;
mod following;
mod inflight;
mod kept;
mod leftovers;
pub mod log;
mod nic_instance;
mod offer;
mod port_events;
mod ring;
pub(crate) mod sockets;
mod stop;
mod upgrade;
mod vdpa;
mod vmq;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::run_dir::{self, counters_path};
use api::stats::Stats;
use api::store::Directory;
use api::{Listen, Manager, Server, serve_guests};
use engine::{Fabric, IdlePolicy, LaneSpec};
use guestmem::Quota;
use host::CpuLatency;
use model::config::{COUNTERS, Config, SourceFile};
use rustix::event::{Timespec, epoll};

use data_plane::{DataPlane, Shared};
use faults::LOOK;
use leftovers::{Leftovers, open_state};
use stop::IgnoredSignals;
use upgrade::{Arriving, Counter, Desk, Origin};

pub use stop::Stop;
pub use upgrade::take_over;

/// How long after its start the daemon waits for guests to come back before it lets any send.
const SETTLE: Duration = Duration::from_millis(500);
/// How often it looks meanwhile whether all are there.
const SETTLE_LOOK: Duration = Duration::from_millis(2);

/// How a daemon was started.
#[derive(Debug)]
pub struct Launch {
    /// What errors call the configuration, and its text.
    pub config: SourceFile,
    /// Whether it ends when the process ends that started it.
    pub with_parent: bool,
}

/// Runs until SIGINT or SIGTERM, or until another process has taken over; SIGHUP, SIGUSR1 and
/// SIGUSR2 are ignored. `ready` is called once all sockets are served.
///
/// # Errors
/// What keeps the daemon from starting: each says what is wrong, where, and the remedy.
pub fn run(config: &Config, launch: Launch, ready: impl FnOnce()) -> Result<()> {
    let Launch { config: text, with_parent } = launch;
    let program = std::env::current_exe().context("the program's own path is not known")?;
    let guardian = if with_parent { Some(stop::guardian()?) } else { None };
    let ignored = IgnoredSignals::catch()?;
    let (mut daemon, stop) = Daemon::start(config)?;
    daemon.ignored = ignored;
    daemon.be_replaceable(Origin { config: text, program, guardian })?;
    // A signal may follow the word "ready" at once.
    stop.on_signals()?;
    ready();
    upgrade::ready();
    daemon.run(stop)
}

/// A daemon whose lanes run and whose sockets are there.
#[derive(Debug)]
pub struct Daemon {
    /// Dropped first: no change comes while the rest ends.
    server: Option<Server>,
    /// Dropped next: with it the guests' channels end.
    manager: Option<Arc<Mutex<Manager>>>,
    /// Whether those are still another process's, which is about to end.
    guests_wait: bool,
    epoll: Arc<OwnedFd>,
    data_plane: Shared,
    /// What is to be removed at the end.
    leftovers: Leftovers,
    /// Readable when it is to stop; epoll watches it.
    stop: UnixStream,
    /// Where orders to be replaced are found, and what whoever replaces it must know.
    desk: Desk,
    counter: Option<Counter>,
    origin: Option<Origin>,
    /// The API as long as another process serves it.
    arriving: Option<Arriving>,
    /// Signals that are only logged, if this process is the daemon's own.
    ignored: IgnoredSignals,
    /// Held until the end: the run directory is one daemon's.
    lock: OwnedFd,
    /// Likewise: how soon CPUs wake up, if the configuration says.
    _cpu_latency: Option<CpuLatency>,
}

/// Epoll's data for [`Stop`]; attachments have their index.
const STOP: u64 = u64::MAX;
/// The same for orders to be replaced, and for the end of the process that it is to end with.
const DESK: u64 = u64::MAX - 1;
const GUARDIAN: u64 = u64::MAX - 2;

/// How serving ended.
enum Ended {
    Stopped,
    Replaced { by: u32 },
}

impl Daemon {
    /// Starts lanes and opens sockets; nobody is served before [`serve`](Self::serve).
    ///
    /// # Errors
    /// As [`run`].
    pub fn start(config: &Config) -> Result<(Daemon, Stop)> {
        let run_dir = &config.run_dir;
        let lock = run_dir::claim(run_dir)?;
        raise_file_limit();
        let leftovers = Leftovers::new(config, COUNTERS);
        let fabric = Fabric::start(&lane_specs(config), Some(&counters_path(run_dir)))?;
        fabric.pause_tx();
        let (mut daemon, stop) = Daemon::around(config, fabric, leftovers, lock)?;
        let mut manager = daemon.manage(config, open_state(config)?)?;
        if manager.generation() == 0 {
            manager.apply(&config.state, None).map_err(|fault| anyhow::anyhow!("{fault}"))?;
        } else if *manager.state() != config.state {
            tracing::warn!(
                "the stored state is in force, not that of the configuration file, which is for a \
                 first start; to go back to the file's, remove {}/state.json and start again",
                config.state_dir.as_deref().unwrap_or(Path::new("state_dir")).display()
            );
        }
        let manager: Arc<Mutex<Manager>> = manager.into();
        serve_guests(&manager, &mut manager.lock().unwrap_or_else(PoisonError::into_inner))?;
        if let Some(listen) = Listen::of(config)? {
            daemon.server = Some(Server::start(manager.clone(), &listen)?);
        }
        daemon.manager = Some(manager);
        Ok((daemon, Stop(stop)))
    }

    /// A daemon with a data plane that is empty, and the other end of its [`Stop`].
    fn around(
        config: &Config,
        fabric: Fabric,
        leftovers: Leftovers,
        lock: OwnedFd,
    ) -> Result<(Daemon, UnixStream)> {
        let latency = config.lanes.cpu_latency_us.map(CpuLatency::hold).transpose();
        let cpu_latency = latency.context("cannot keep lanes.cpu_latency_us")?;
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let (ours, stop) = UnixStream::pair()?;
        let (desk, counter) = upgrade::desk()?;
        let input = epoll::EventFlags::IN;
        epoll::add(&epoll, &ours, epoll::EventData::new_u64(STOP), input)?;
        epoll::add(&epoll, desk.bell(), epoll::EventData::new_u64(DESK), input)?;
        let run_dir = config.run_dir.clone();
        let data_plane = DataPlane::new(fabric, epoll.clone(), run_dir, quota(&config.limits));
        let data_plane = Shared::new(data_plane);
        let daemon = Daemon {
            server: None,
            manager: None,
            guests_wait: false,
            epoll,
            data_plane,
            leftovers,
            stop: ours,
            desk,
            counter: Some(counter),
            origin: None,
            arriving: None,
            ignored: IgnoredSignals::default(),
            lock,
            _cpu_latency: cpu_latency,
        };
        Ok((daemon, stop))
    }

    /// The manager of the state in `directory`, which is in force when this returns.
    fn manage(&mut self, config: &Config, directory: Directory) -> Result<Manager> {
        let (run_dir, counted) = (config.run_dir.clone(), self.data_plane.clone());
        let stats = Box::new(move || {
            let data_plane = counted.lock();
            let (rules, offloads) = (data_plane.rules(), data_plane.offloads());
            drop(data_plane);
            api::stats::read(&run_dir).map(|stats| Stats { rules, offloads, ..stats })
        });
        let mut manager = Manager::open(directory, Box::new(self.data_plane.clone()), stats)?;
        if let Some(counter) = self.counter.take() {
            manager.on_upgrade(Box::new(move |order| counter.order(order)));
        }
        Ok(manager)
    }

    /// Serves until `stop`, or until another process has taken over: then this process ends at
    /// once.
    fn run(mut self, stop: Stop) -> Result<()> {
        match self.attend()? {
            Ended::Stopped => self.end(),
            Ended::Replaced { by } => self.leave(by),
        }
        drop(stop); // which dropping would be
        Ok(())
    }

    /// Serves guests until [`Stop`] says otherwise.
    ///
    /// # Errors
    /// If waiting for events fails, which only a bug could cause.
    pub fn serve(mut self) -> Result<()> {
        self.attend()?;
        self.end();
        Ok(())
    }

    fn attend(&mut self) -> Result<Ended> {
        let started = Instant::now();
        loop {
            let now = Instant::now();
            let wait = {
                let mut data_plane = self.data_plane.lock();
                let settled = now - started >= SETTLE || data_plane.are_attached();
                if settled && !data_plane.is_settled() {
                    data_plane.settle();
                }
                let most = if data_plane.is_settled() { LOOK } else { SETTLE_LOOK };
                data_plane.wait(now, most)
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
            for event in &events[..n] {
                match event.data.u64() {
                    STOP | GUARDIAN => return Ok(Ended::Stopped),
                    DESK => {
                        if let Some(by) = self.look_at_desk() {
                            return Ok(Ended::Replaced { by });
                        }
                    }
                    token => self.data_plane.lock().sockets.serve(token),
                }
            }
            self.data_plane.lock().look(Instant::now());
            self.ignored.tell();
            self.look_for_guests();
        }
    }

    /// Serves the guests' channels as soon as the process that was replaced has left them.
    fn look_for_guests(&mut self) {
        if let (true, Some(manager)) = (self.guests_wait, &self.manager) {
            // Whoever holds it may wait for this very thread.
            let Ok(mut guard) = manager.try_lock() else { return };
            match serve_guests(manager, &mut guard) {
                Ok(()) => self.guests_wait = false,
                Err(error) => tracing::debug!("guests' channels are not yet served: {error:#}"),
            }
        }
    }

    fn end(self) {
        tracing::info!("stopping");
        drop(self.desk); // who waits for an answer there is answered, or the server would wait for it
        drop(self.server);
        drop(self.manager);
        self.data_plane.lock().stop();
        drop(self.leftovers);
    }
}

/// A VF with its guest holds some ten descriptors, and the usual soft limit is 1024.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it cannot be raised, running out of descriptors is said where it happens.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// What all sessions may have mapped: so many times the machine's memory, and half of the addresses
/// of a process.
const TOTAL_MACHINES: u64 = 64;
const TOTAL_MAX: u64 = 1 << 46;

/// Limits of the configuration, or what the machine's memory makes sensible.
fn quota(limits: &model::state::Limits) -> Arc<Quota> {
    let machine = rustix::system::sysinfo();
    let machine = (machine.totalram as u64).saturating_mul(machine.mem_unit.into());
    let bytes = |mib: u64| mib.saturating_mul(1 << 20);
    let session = limits.session_memory_mib.map_or(machine, bytes);
    // Each adapter of a guest has the guest's memory mapped once more.
    let total = machine.saturating_mul(TOTAL_MACHINES).min(TOTAL_MAX);
    let total = limits.guest_memory_mib.map_or(total, bytes);
    Arc::new(Quota::new(session, total))
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
