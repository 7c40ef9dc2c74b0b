//! The daemon in the foreground: from a checked configuration to running lanes and sockets.
//!
//! One thread (the caller's) serves all vhost-user sockets by epoll; the lanes are threads of their
//! own, and share only ports with it. A front-end causes a bounded amount of work per turn
//! ([`attachment`]), so no front-end keeps another from attaching.
//!
//! The API has threads of its own; a change that it makes briefly blocks this thread
//! ([`data_plane`]).
//!
//! # Life cycle
//! 1. [`Daemon::start`]: counters and lanes, then the desired state: the stored one, or that of the
//!    configuration.
//! 2. [`Daemon::serve`]: guests may not send before all have returned, or a timeout has passed. A
//!    frame posted while no daemon ran finds its receiver.
//! 3. [`Stop`]: the lanes end first, each after its current burst; then guests are detached. A
//!    posted frame has either arrived, or waits for the next daemon.

mod attachment;
mod auto_paths;
mod cards;
mod data_plane;
mod device;
mod devices;
mod faults;
mod forbidden_calls;
mod handover;
mod inflight;
mod kept_taps;
pub mod launcher;
mod leftovers;
mod limits;
pub mod log;
mod machine;
mod migrated_config;
mod nic_instance;
mod offer;
mod path_selector;
mod port_events;
mod port_spec;
mod ring;
mod sandbox;
mod saved_rings;
mod socket_access;
pub(crate) mod sockets;
mod state_dir;
mod stop;
#[cfg(feature = "testing")]
pub mod testing;
mod upgrade;
mod vdpa;
mod vmq;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::daemons;
use api::run_dir::{self, counters_path};
use api::stats::Stats;
use api::{Listen, Manager, Server, serve_guests};
use engine::{Fabric, IdlePolicy, LaneSpec};
use guestmem::Quota;
use host::CpuLatency;
use model::config::{Config, SourceFile};
use model::state::State;
use rustix::event::{Timespec, epoll};

use data_plane::{DataPlane, SharedDataPlane};
use faults::POLL_INTERVAL;
use leftovers::Leftovers;
use socket_access::DefaultAccess;
use state_dir::StateDir;
use stop::IgnoredSignals;
use upgrade::{LaunchContext, PendingTakeover, UpgradeRequests, UpgradeSender, Watchdog};

pub use machine::check_machine;
pub use sandbox::{Sandbox, SandboxMode};
pub use stop::Stop;
pub use upgrade::take_over;

/// Time that the daemon waits for guests to return before any may send.
const RETURN_TIMEOUT: Duration = Duration::from_millis(500);
/// Poll interval meanwhile.
const RETURN_POLL: Duration = Duration::from_millis(2);

/// Start parameters of a daemon.
#[derive(Debug)]
pub struct Launch {
    /// Configuration: name for error messages, and text.
    pub config: SourceFile,
    /// End with the parent process.
    pub with_parent: bool,
    /// Sandbox that was entered.
    pub sandbox: Sandbox,
}

/// Runs until SIGINT, SIGTERM, or a takeover by another process; ignores SIGHUP, SIGUSR1 and
/// SIGUSR2. Calls `ready` with the API, if it is enabled, once all sockets are served.
///
/// # Errors
/// A failed start: cause, location and remedy.
pub fn run(config: &Config, launch: Launch, ready: impl FnOnce(Option<&Server>)) -> Result<()> {
    let Launch { config: text, with_parent, sandbox } = launch;
    let guardian = if with_parent { Some(stop::guardian()?) } else { None };
    let ignored = IgnoredSignals::catch()?;
    let (mut daemon, stop) = Daemon::start_in(config, sandbox)?;
    daemon.ignored = ignored;
    daemon.accept_upgrades(LaunchContext { config: text, guardian })?;
    daemon.publish(config);
    // A signal may follow immediately after "ready".
    stop.on_signals()?;
    ready(daemon.server.as_ref());
    upgrade::ready();
    daemon.run(stop)
}

/// A daemon with running lanes and open sockets.
#[derive(Debug)]
pub struct Daemon {
    /// Dropped first: no change arrives while the rest ends.
    server: Option<Server>,
    /// Dropped next: ends the guests' channels.
    manager: Option<Arc<Mutex<Manager>>>,
    /// The channels still belong to the old process, which is about to exit.
    channels_pending: bool,
    epoll: Arc<OwnedFd>,
    data_plane: SharedDataPlane,
    /// Directory of the stored desired state.
    state_dir: PathBuf,
    /// Files to remove at the end.
    leftovers: Leftovers,
    /// Readable when the daemon is to stop; watched by epoll.
    stop: UnixStream,
    /// Upgrade requests, and what the successor must know.
    upgrades: UpgradeRequests,
    upgrade_sender: Option<UpgradeSender>,
    launch: Option<LaunchContext>,
    /// The API while the old process serves it.
    takeover: Option<PendingTakeover>,
    /// Signals that are only logged, if this process is the daemon's own.
    ignored: IgnoredSignals,
    /// Held until the end: one daemon per run directory.
    lock: OwnedFd,
    /// Held until the end: limit of the CPUs' wake-up latency.
    _cpu_latency: Option<CpuLatency>,
}

/// Epoll data for [`Stop`]; attachments use their index.
const STOP: u64 = u64::MAX;
/// Epoll data for upgrade requests, and for the end of the guardian process.
const UPGRADE: u64 = u64::MAX - 1;
const GUARDIAN: u64 = u64::MAX - 2;

/// Result of serving.
enum ServeEnd {
    Stopped,
    Replaced { by: u32 },
}

impl Daemon {
    /// Starts lanes and opens sockets; serves none before [`serve`](Self::serve).
    ///
    /// # Errors
    /// As [`run`].
    pub fn start(config: &Config) -> Result<(Daemon, Stop)> {
        Daemon::start_in(config, Sandbox::default())
    }

    fn start_in(config: &Config, mut sandbox: Sandbox) -> Result<(Daemon, Stop)> {
        let run_dir = &config.run_dir;
        let lock = run_dir::claim(run_dir)?;
        let state_dir = StateDir::open(config)?;
        sandbox.confine_files(config, state_dir.directory.path())?;
        raise_file_limit();
        let leftovers = Leftovers { counters: counters_path(run_dir), link: None };
        let fabric = Fabric::start(&lane_specs(config), Some(&counters_path(run_dir)))?;
        fabric.show_sandbox(sandbox.parts());
        fabric.pause_tx();
        let (mut daemon, stop) = Daemon::assemble(config, fabric, leftovers, lock)?;
        let mut manager = daemon.open_manager(config, state_dir, Some(&config.state))?;
        manager.apply_file(&config.state).map_err(|error| error.body())?;
        let place = daemon.state_dir.display();
        tracing::info!("changes are stored in {place}");
        sandbox.log();
        // A file without objects is that of a daemon which commands manage.
        if !config.state.is_empty() && *manager.state() != config.state {
            tracing::warn!(
                "the stored state is in force, since commands have changed that of the configuration \
                 file. To apply the file's, remove {place}/state.json and start again"
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

    /// Builds a daemon with an empty data plane; returns the other end of its [`Stop`] as well.
    fn assemble(
        config: &Config,
        fabric: Fabric,
        leftovers: Leftovers,
        lock: OwnedFd,
    ) -> Result<(Daemon, UnixStream)> {
        let latency = config.lanes.cpu_latency_us.map(CpuLatency::hold).transpose();
        let cpu_latency = latency.context("cannot apply lanes.cpu_latency_us")?;
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let (ours, stop) = UnixStream::pair()?;
        let (upgrades, upgrade_sender) = upgrade::channel()?;
        let input = epoll::EventFlags::IN;
        epoll::add(&epoll, &ours, epoll::EventData::new_u64(STOP), input)?;
        epoll::add(&epoll, upgrades.wake(), epoll::EventData::new_u64(UPGRADE), input)?;
        let run_dir = config.run_dir.clone();
        let mut data_plane = DataPlane::new(fabric, epoll.clone(), run_dir, quota(&config.limits));
        data_plane.access = DefaultAccess::of(config)?;
        let data_plane = SharedDataPlane::new(data_plane);
        let daemon = Daemon {
            server: None,
            manager: None,
            channels_pending: false,
            epoll,
            data_plane,
            state_dir: PathBuf::new(),
            leftovers,
            stop: ours,
            upgrades,
            upgrade_sender: Some(upgrade_sender),
            launch: None,
            takeover: None,
            ignored: IgnoredSignals::default(),
            lock,
            _cpu_latency: cpu_latency,
        };
        Ok((daemon, stop))
    }

    /// Opens the manager, and applies the stored state; not that of an older version of the
    /// configuration file, if `file` is given.
    fn open_manager(
        &mut self,
        config: &Config,
        state_dir: StateDir,
        file: Option<&State>,
    ) -> Result<Manager> {
        let (run_dir, counted) = (config.run_dir.clone(), self.data_plane.clone());
        let stats = Box::new(move || {
            let data_plane = counted.lock();
            let (mut rules, mut offloads) = (data_plane.rules(), data_plane.offloads());
            drop(data_plane);
            // Users count from 1.
            rules.iter_mut().for_each(|one| one.rule += 1);
            offloads.iter_mut().for_each(|one| one.rule += 1);
            api::stats::read(&run_dir).map(|stats| Stats { rules, offloads, ..stats })
        });
        let StateDir { directory, warning } = state_dir;
        self.state_dir = directory.path().to_owned();
        let plane = Box::new(self.data_plane.clone());
        let mut manager = Manager::open(directory, file, plane, stats)?;
        manager.set_channel_access(self.data_plane.lock().access.with(None, None));
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
            manager.warn(warning);
        }
        if let Some(upgrade_sender) = self.upgrade_sender.take() {
            manager.on_upgrade(Box::new(move |order| upgrade_sender.order(order)));
        }
        Ok(manager)
    }

    /// Lets commands find this daemon, unless it belongs to its parent process.
    fn publish(&mut self, config: &Config) {
        if self.launch.as_ref().is_none_or(|launch| launch.guardian.is_some()) {
            return;
        }
        match daemons::publish(&self.lock, &config.run_dir, &self.state_dir) {
            Ok(link) => self.leftovers.link = link,
            Err(error) => tracing::warn!(
                "commands need --run-dir {}, because they cannot find this daemon: {error:#}",
                config.run_dir.display()
            ),
        }
    }

    /// Serves until `stop` or a takeover; after a takeover this process exits at once.
    fn run(mut self, stop: Stop) -> Result<()> {
        match self.event_loop()? {
            ServeEnd::Stopped => self.end(),
            ServeEnd::Replaced { by } => self.exit_replaced(by),
        }
        drop(stop); // dropping it earlier would stop the daemon
        Ok(())
    }

    /// Serves guests until [`Stop`].
    ///
    /// # Errors
    /// Waiting for events fails, which only a bug can cause.
    pub fn serve(mut self) -> Result<()> {
        self.event_loop()?;
        self.end();
        Ok(())
    }

    fn event_loop(&mut self) -> Result<ServeEnd> {
        let started = Instant::now();
        let mut watchdog = Watchdog::of_environment(started);
        loop {
            let now = Instant::now();
            watchdog.tell(now);
            let wait = {
                let mut data_plane = self.data_plane.lock();
                let tx_resumed = now - started >= RETURN_TIMEOUT || data_plane.are_attached();
                if tx_resumed && !data_plane.is_tx_resumed() {
                    data_plane.resume_tx();
                }
                let most = if data_plane.is_tx_resumed() { POLL_INTERVAL } else { RETURN_POLL };
                data_plane.wait(now, most)
            };
            let wait = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos().min(999_999_999) as i64 };
            let data = epoll::EventData::new_u64(0);
            let flags = epoll::EventFlags::empty();
            let mut events = [epoll::Event { flags, data }; 64];
            let n = match epoll::wait(&self.epoll, &mut events[..], Some(&wait)) {
                Ok(n) => n,
                Err(rustix::io::Errno::INTR) => 0,
                Err(error) => return Err(error).context("cannot wait for events"),
            };
            for event in &events[..n] {
                match event.data.u64() {
                    STOP | GUARDIAN => return Ok(ServeEnd::Stopped),
                    UPGRADE => {
                        if let Some(by) = self.handle_upgrade() {
                            return Ok(ServeEnd::Replaced { by });
                        }
                    }
                    token => self.data_plane.lock().sockets.serve(token),
                }
            }
            self.data_plane.lock().housekeep(Instant::now());
            self.ignored.tell();
            self.serve_channels();
        }
    }

    /// Serves the guests' channels once the old process has closed them.
    fn serve_channels(&mut self) {
        if let (true, Some(manager)) = (self.channels_pending, &self.manager) {
            // The holder of the lock may be waiting for this thread.
            let Ok(mut guard) = manager.try_lock() else { return };
            match serve_guests(manager, &mut guard) {
                Ok(()) => self.channels_pending = false,
                Err(error) => tracing::debug!("guests' channels are not yet served: {error:#}"),
            }
        }
    }

    fn end(self) {
        tracing::info!("stopping");
        drop(self.upgrades); // answers pending requests, on which the server would wait
        drop(self.server);
        drop(self.manager);
        self.data_plane.lock().stop();
        drop(self.leftovers);
    }
}

/// A VF with a guest holds about ten descriptors; the usual soft limit is 1024.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it cannot be raised, running out of descriptors is reported where it happens.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Limits of all sessions' mappings: this multiple of the machine's memory, and half of a process's
/// address space.
const TOTAL_MACHINES: u64 = 64;
const TOTAL_MAX: u64 = 1 << 46;

/// Quota from the configuration, or derived from the machine's memory.
fn quota(limits: &model::state::Limits) -> Arc<Quota> {
    let machine = rustix::system::sysinfo();
    let machine = (machine.totalram as u64).saturating_mul(machine.mem_unit.into());
    let bytes = |mib: u64| mib.saturating_mul(1 << 20);
    let session = limits.session_memory_mib.map_or(machine, bytes);
    // Each adapter maps the memory of its guest once.
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
