//! Thread that serves one vDPA device.
//!
//! # Purpose of a thread
//! The kernel sends requests while it holds locks of its network stack (a starting driver sets
//! DRIVER_OK under RTNL), and waits for the answer. The daemon's other threads wait for those locks
//! whenever they create or change an interface. So the answering thread must take neither these
//! locks nor one of a thread that does: it shares only [`WorkerShared`] with others. Requests to
//! the vDPA bus wait for its drivers, and so run as a [`BusJob`] in a temporary thread.
//!
//! # Life cycle
//! 1. Open the device: create it and add it to the bus; or find it, and resume it or replace it.
//! 2. Serve it. Once the kernel has given it up, remove it from the bus and create a new one.
//! 3. Remove it from the bus when its adapter is gone, or leave it for the next daemon.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use api::log_limiter::{LogLimiter, RepeatFilter};
use engine::{Port, SoftNic};
use guestmem::Quota;
use model::state::Vduse;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vduse::{Kernel, Origin, VduseDevice, VduseError, VduseSession};

use super::super::device::Identity;
use super::open::{self, DeviceRecords, OpenedVdpa};
use super::rings::VdpaRings;
use super::status::VdpaStatus;

/// Poll interval of the link state.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of attempts to reopen a device.
const RETRY: Duration = Duration::from_millis(500);
/// Timeout for its file to appear, while no other thread waits.
const FILE_TIMEOUT: Duration = Duration::from_secs(1);

/// Start mode of a device.
#[derive(Debug)]
pub(in super::super) enum VdpaStart {
    /// It is open.
    Opened(OpenedVdpa),
    /// Open it as soon as possible.
    Soon,
    /// Open it at [`Vdpas::resume`](super::Vdpas::resume).
    OnResume,
}

/// State shared with other threads.
#[derive(Debug)]
pub(super) struct WorkerShared {
    /// Written to for a command, or when a job has ended.
    pub(super) wake: OwnedFd,
    status: Mutex<VdpaStatus>,
}

impl WorkerShared {
    pub(super) fn new(wake: OwnedFd, status: VdpaStatus) -> WorkerShared {
        WorkerShared { wake, status: Mutex::new(status) }
    }

    pub(super) fn status(&self) -> MutexGuard<'_, VdpaStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes()); // fails only if already set
    }
}

/// Command to the thread.
#[derive(Debug)]
pub(super) enum Command {
    /// Change the addresses.
    Identify(Identity),
    /// Follow another interface's MTU, or none.
    Mtu(Option<u32>),
    /// The adapter is gone. Answered when the port is free.
    Leave(SyncSender<()>),
    /// A handover is about to start. Answered when no slow work is under way.
    Prepare(SyncSender<()>),
    /// Release the device for another process. Answered when it is closed.
    Suspend(SyncSender<()>),
    /// Reopen the device. Answered when that succeeded or failed; at once if there was no device.
    Resume(SyncSender<()>),
    /// The daemon is stopping.
    Stop,
}

/// Parameters of a served device.
#[derive(Debug)]
pub(super) struct WorkerParams {
    pub(super) attachment: Vduse,
    pub(super) identity: Identity,
    pub(super) nic: Arc<SoftNic>,
    pub(super) port: Arc<Port>,
    pub(super) records: DeviceRecords,
    pub(super) quota: Arc<Quota>,
}

/// A request to the vDPA bus.
#[derive(Debug)]
struct BusJob {
    /// Remove the device from the bus, or add it.
    removes: bool,
    thread: JoinHandle<Result<(), VduseError>>,
}

/// Next step for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    /// Serve it.
    Serve,
    /// Remove it from the bus, and create a new one.
    Renew,
    /// Remove it from the bus, and end.
    Leave,
}

/// One device and its state.
#[derive(Debug)]
pub(super) struct Worker {
    params: WorkerParams,
    shared: Arc<WorkerShared>,
    commands: Receiver<Command>,
    rings: VdpaRings,
    /// MTU that it follows.
    mtu: Option<u32>,
    session: Option<VduseSession<VduseDevice>>,
    /// As last set in the kernel.
    config: Vec<u8>,
    job: Option<BusJob>,
    next: NextStep,
    /// Another process has the device, or is about to.
    is_suspended: bool,
    /// The kernel has given the device up.
    is_lost: bool,
    /// Time of the next attempt to open a device.
    retry: Instant,
    limiter: LogLimiter,
    failures: RepeatFilter,
}

impl Worker {
    pub(super) fn new(
        params: WorkerParams,
        shared: Arc<WorkerShared>,
        commands: Receiver<Command>,
    ) -> Worker {
        let rings = VdpaRings::new(params.port.clone(), params.attachment.mtu);
        Worker {
            params,
            shared,
            commands,
            rings,
            mtu: None,
            session: None,
            config: Vec::new(),
            job: None,
            next: NextStep::Serve,
            is_suspended: false,
            is_lost: false,
            retry: Instant::now(),
            limiter: LogLimiter::default(),
            failures: RepeatFilter::default(),
        }
    }

    /// Serves the device until told to end.
    pub(super) fn run(mut self, begin: VdpaStart) {
        match begin {
            VdpaStart::Opened(opened) => self.begin(opened),
            VdpaStart::Soon => {}
            VdpaStart::OnResume => self.is_suspended = true,
        }
        loop {
            while let Ok(command) = self.commands.try_recv() {
                if matches!(command, Command::Stop) {
                    return self.stop();
                }
                self.execute(command);
            }
            self.serve();
            if self.work() {
                return;
            }
            self.update_status();
            if self.sleep() {
                self.lose(Errno::IO);
            }
        }
    }

    /// Executes a command. The sender may no longer wait for the answer.
    fn execute(&mut self, command: Command) {
        match command {
            Command::Identify(identity) => self.params.identity = identity,
            Command::Mtu(mtu) => self.mtu = mtu,
            Command::Leave(done) => {
                self.rings.end(true);
                let _ = done.send(());
                self.next = NextStep::Leave;
            }
            Command::Prepare(done) => {
                self.is_suspended = true;
                let _ = done.send(());
            }
            Command::Suspend(done) => {
                self.is_suspended = true;
                self.rings.end(false);
                self.session = None; // the device keeps its state in the kernel
                let _ = done.send(());
            }
            Command::Resume(done) => {
                self.is_suspended = false;
                self.retry = Instant::now();
                let had_one = self.params.records.has(&self.params.attachment.name);
                if !had_one {
                    let _ = done.send(()); // creating it may take long
                }
                if self.session.is_none() {
                    self.open();
                }
                self.serve();
                if had_one {
                    let _ = done.send(());
                }
            }
            Command::Stop => {}
        }
    }

    /// Opens the device, if an attempt is due.
    fn open(&mut self) {
        let now = Instant::now();
        if now < self.retry {
            return;
        }
        self.retry = now + RETRY;
        let has_mac = self.params.identity.mac.is_some();
        let spec = open::spec(&self.params.attachment, has_mac, self.wanted_config());
        match OpenedVdpa::open(&spec, &self.params.records, FILE_TIMEOUT) {
            Ok(opened) => self.begin(opened),
            Err(error) => self.fail(&anyhow::Error::from(error)),
        }
    }

    /// Starts an opened device.
    fn begin(&mut self, opened: OpenedVdpa) {
        let (origin, replace_reason) = (opened.origin, opened.replace_reason.clone());
        let has_mac = self.params.identity.mac.is_some();
        self.config = self.wanted_config();
        let spec = open::spec(&self.params.attachment, has_mac, self.config.clone());
        let Some((device, inflight)) = opened.take() else { return };
        let begun = self.rings.begin(&device, inflight).and_then(|()| {
            let quota = self.params.quota.clone();
            let mut session =
                VduseSession::new(&spec.name, device, spec.features, spec.rings, quota)?;
            let call = |source| {
                let (call, name) = ("VDUSE_DEV_SET_CONFIG", spec.name.clone());
                VduseError::Call { call, name, source }
            };
            if replace_reason.is_none() {
                // The configuration it was created with may be outdated.
                session.kernel().set_config(&self.config).map_err(call)?;
            }
            if replace_reason.is_none() && origin == Origin::Found {
                session.take_over().map_err(call)?;
            }
            Ok(session)
        });
        match begun {
            Ok(session) => self.session = Some(session),
            Err(error) => return self.fail(&anyhow::Error::from(error)),
        }
        self.is_lost = false;
        match replace_reason {
            Some(reason) => {
                let line =
                    format!("{}: {} is replaced: {reason}", self.params.port.label, spec.name);
                if self.failures.is_new(&line, Instant::now()) {
                    self.limiter.info(&line);
                }
                self.renew();
            }
            None => {
                self.failures.forget();
                self.shared.status().forget();
                self.start_job(false);
            }
        }
    }

    /// Replaces the device by a new one, once the bus has released it.
    fn renew(&mut self) {
        self.rings.end(false);
        self.next = NextStep::Renew;
    }

    /// Adds the device to the bus, or removes it.
    fn start_job(&mut self, removes: bool) {
        let what = if removes { vduse::remove_from_bus } else { vduse::add_to_bus };
        let (name, shared) = (self.params.attachment.name.clone(), self.shared.clone());
        let job = move || {
            let result = what(&name);
            shared.wake();
            result
        };
        match std::thread::Builder::new().name("vdpa-bus".into()).spawn(job) {
            Ok(thread) => self.job = Some(BusJob { removes, thread }),
            Err(error) => self.fail(&error.into()),
        }
    }

    /// Answers requests of the kernel.
    fn serve(&mut self) {
        let Some(session) = self.session.as_mut().filter(|_| !self.is_lost) else { return };
        let served = session.serve(&mut self.rings);
        if let Some(problem) = session.take_problem() {
            let (label, name) = (&self.params.port.label, &self.params.attachment.name);
            self.limiter.warn(&format!("{label}: {name}: {problem}"));
        }
        if let Err(errno) = served {
            self.lose(errno);
        }
    }

    /// Marks the device as given up by the kernel, for lack of a timely answer.
    fn lose(&mut self, errno: Errno) {
        self.is_lost = true;
        if self.next == NextStep::Serve {
            let (label, name) = (&self.params.port.label, &self.params.attachment.name);
            let error = std::io::Error::from(errno);
            self.limiter.warn(&format!("{label}: {name} is lost, and is replaced: {error}"));
            self.renew();
        }
    }

    /// Continues after a job, or opens a device if there is none; returns `true` at the end.
    fn work(&mut self) -> bool {
        if self.job.as_ref().is_some_and(|job| !job.thread.is_finished()) {
            return false;
        }
        if let Some(BusJob { removes, thread }) = self.job.take() {
            if let Ok(Err(error)) = thread.join() {
                self.fail(&error.into());
            }
            if removes {
                self.close();
            }
        }
        match (self.next, self.session.is_some()) {
            (NextStep::Leave | NextStep::Renew, true) if self.job.is_none() => self.start_job(true),
            (NextStep::Leave, false) => return true,
            (NextStep::Renew, false) => self.next = NextStep::Serve,
            (NextStep::Serve, false) if !self.is_suspended => self.open(),
            _ => {}
        }
        false
    }

    /// Closes the device, and removes it unless it is on the bus.
    fn close(&mut self) {
        self.rings.end(false);
        if let Some(session) = self.session.take() {
            self.retry = Instant::now() + RETRY;
            let removed = open::remove(session.into_kernel(), &self.params.records);
            if !removed && self.next == NextStep::Leave {
                let (label, name) = (&self.params.port.label, &self.params.attachment.name);
                let remedy = format!("vdpa dev del {name}");
                self.limiter.warn(&format!(
                    "{label}: {name} remains, without a daemon; remove it: {remedy}"
                ));
            }
        }
    }

    fn stop(mut self) {
        self.rings.end(true);
        if let Some(session) = self.session.take() {
            open::remove(session.into_kernel(), &self.params.records);
        }
    }

    fn wanted_config(&self) -> Vec<u8> {
        let WorkerParams { attachment, identity, nic, port, .. } = &self.params;
        open::config(attachment, identity, (self.mtu, nic.snapshot().is_up(port)))
    }

    /// Updates the driver's configuration and the reported state.
    fn update_status(&mut self) {
        let config = self.wanted_config();
        if let Some(session) = &self.session
            && config != self.config
        {
            // If the kernel has given it up, the next request fails.
            let _ = session.kernel().set_config(&config);
            let _ = session.kernel().interrupt_config();
            self.config = config;
        }
        let is_running = self.session.as_ref().is_some_and(VduseSession::is_running);
        let has_device = self.session.is_some();
        let news = self.shared.status().note(has_device, is_running);
        if let Some(text) = news {
            self.limiter.info(&format!("{}: {text}", self.params.port.label));
        }
    }

    /// Logs a failure: once, on a change, and again after a while.
    fn fail(&mut self, error: &anyhow::Error) {
        let text = format!("{error:#}");
        let line = format!("{}: {text}", self.params.port.label);
        if self.failures.is_new(&line, Instant::now()) {
            self.limiter.warn(&line);
        }
        self.shared.status().fail(text);
    }

    /// Waits for the next event; returns `true` if the kernel has given the device up.
    fn sleep(&self) -> bool {
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        let mut wait = POLL_INTERVAL;
        if let Some(session) = self.session.as_ref().filter(|_| !self.is_lost) {
            fds.push(PollFd::from_borrowed_fd(session.kernel().as_fd(), PollFlags::IN));
            fds.extend(session.awaited().iter().map(|kick| PollFd::new(kick, PollFlags::IN)));
            wait = session.wait().map_or(wait, |soon| soon.min(wait));
        }
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
        let _ = poll(&mut fds, Some(&wait)); // an interruption counts as a wake-up
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
        fds.get(1).is_some_and(|device| device.revents().contains(PollFlags::ERR))
    }
}
