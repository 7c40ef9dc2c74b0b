//! Who serves one vDPA device: a thread of its own.
//!
//! # Why a thread
//! The kernel asks while it holds locks of its network (a driver that begins says DRIVER_OK under
//! RTNL), and waits for the answer. The daemon's other threads wait for those locks whenever they
//! make or change an interface. So whoever answers takes neither of them, nor the lock of a thread
//! that does: this one shares with others only what is in [`Shared`]. What is asked of the vDPA bus
//! waits for its drivers, and so is a [`Job`]: a thread for the moment.
//!
//! # Life
//! 1. The device is opened: made, and put on the bus; or found, and gone on with, or taken off and
//!    made anew.
//! 2. It is served. Once the kernel has given it up it is taken off and made anew.
//! 3. It is taken off the bus, for its adapter is gone, or left as it is for the next daemon.

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
use vduse::{Device, Kernel, Origin, Session, VduseError};

use super::super::device::Identity;
use super::Begin;
use super::open::{self, Opened, Records};
use super::rings::Rings;
use super::status::Status;

/// How often a device is looked at: whether its link has another state.
const LOOK: Duration = Duration::from_millis(200);
/// How often one that cannot be had is tried.
const RETRY: Duration = Duration::from_millis(500);
/// How long its file may take to appear, while nobody else waits.
const APPEARS: Duration = Duration::from_secs(1);

/// What others have of it.
#[derive(Debug)]
pub(super) struct Shared {
    /// Written to when there is a command, or a job has ended.
    pub(super) wake: OwnedFd,
    status: Mutex<Status>,
}

impl Shared {
    pub(super) fn new(wake: OwnedFd, status: Status) -> Shared {
        Shared { wake, status: Mutex::new(status) }
    }

    pub(super) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes()); // full: it is awake
    }
}

/// What it is told.
#[derive(Debug)]
pub(super) enum Command {
    /// It has other addresses.
    Identify(Identity),
    /// It has the MTU of another interface, or its own again.
    Mtu(Option<u32>),
    /// Its adapter is gone. The answer comes when its port is free.
    Leave(SyncSender<()>),
    /// Another process is about to have it. The answer comes when nothing is done that takes time.
    Prepare(SyncSender<()>),
    /// Another process is to have it. The answer comes when it is closed.
    Suspend(SyncSender<()>),
    /// It is this process's again, or from now on. The answer comes when it was opened, or could
    /// not be; at once if there was none.
    Resume(SyncSender<()>),
    /// The daemon ends.
    Stop,
}

/// What a device is for.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) attachment: Vduse,
    pub(super) identity: Identity,
    pub(super) nic: Arc<SoftNic>,
    pub(super) port: Arc<Port>,
    pub(super) records: Records,
    pub(super) quota: Arc<Quota>,
}

/// Something that the vDPA bus is asked for.
#[derive(Debug)]
struct Job {
    /// Whether the device is to be taken off it, or put there.
    removes: bool,
    thread: JoinHandle<Result<(), VduseError>>,
}

/// What is to become of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It is served.
    Serve,
    /// It is taken off the bus, and made anew.
    Renew,
    /// It is taken off the bus, and that was all.
    Leave,
}

/// One device, and who serves it.
#[derive(Debug)]
pub(super) struct Worker {
    plan: Plan,
    shared: Arc<Shared>,
    commands: Receiver<Command>,
    rings: Rings,
    /// The MTU that it follows.
    mtu: Option<u32>,
    session: Option<Session<Device>>,
    /// As the kernel has it.
    config: Vec<u8>,
    job: Option<Job>,
    then: Then,
    /// Whether another process has it, or is about to.
    is_suspended: bool,
    /// Whether the kernel has given the device up.
    is_lost: bool,
    /// When it is opened next, while there is none.
    retry: Instant,
    quiet: LogLimiter,
    failures: RepeatFilter,
}

impl Worker {
    pub(super) fn new(plan: Plan, shared: Arc<Shared>, commands: Receiver<Command>) -> Worker {
        let rings = Rings::new(plan.port.clone(), plan.attachment.mtu);
        Worker {
            plan,
            shared,
            commands,
            rings,
            mtu: None,
            session: None,
            config: Vec::new(),
            job: None,
            then: Then::Serve,
            is_suspended: false,
            is_lost: false,
            retry: Instant::now(),
            quiet: LogLimiter::default(),
            failures: RepeatFilter::default(),
        }
    }

    /// Serves the device until it is told to end.
    pub(super) fn run(mut self, begin: Begin) {
        match begin {
            Begin::With(opened) => self.begin(opened),
            Begin::Soon => {}
            Begin::WhenTold => self.is_suspended = true,
        }
        loop {
            while let Ok(command) = self.commands.try_recv() {
                if matches!(command, Command::Stop) {
                    return self.stop();
                }
                self.obey(command);
            }
            self.serve();
            if self.work() {
                return;
            }
            self.look();
            if self.sleep() {
                self.lose(Errno::IO);
            }
        }
    }

    /// Does what it is told. Whoever waits for an answer may have given that up.
    fn obey(&mut self, command: Command) {
        match command {
            Command::Identify(identity) => self.plan.identity = identity,
            Command::Mtu(mtu) => self.mtu = mtu,
            Command::Leave(done) => {
                self.rings.end(true);
                let _ = done.send(());
                self.then = Then::Leave;
            }
            Command::Prepare(done) => {
                self.is_suspended = true;
                let _ = done.send(());
            }
            Command::Suspend(done) => {
                self.is_suspended = true;
                self.rings.end(false);
                self.session = None; // which stays what it is in the kernel
                let _ = done.send(());
            }
            Command::Resume(done) => {
                self.is_suspended = false;
                self.retry = Instant::now();
                let had_one = self.plan.records.has(&self.plan.attachment.name);
                if !had_one {
                    let _ = done.send(()); // it may take its time, as it did before
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

    /// Opens the device, if it is time to.
    fn open(&mut self) {
        let now = Instant::now();
        if now < self.retry {
            return;
        }
        self.retry = now + RETRY;
        let has_mac = self.plan.identity.mac.is_some();
        let spec = open::spec(&self.plan.attachment, has_mac, self.wanted_config());
        match Opened::open(&spec, &self.plan.records, APPEARS) {
            Ok(opened) => self.begin(opened),
            Err(error) => self.fail(&anyhow::Error::from(error)),
        }
    }

    /// Takes up a device that was opened.
    fn begin(&mut self, opened: Opened) {
        let (origin, unfit) = (opened.origin, opened.unfit.clone());
        let has_mac = self.plan.identity.mac.is_some();
        self.config = self.wanted_config();
        let spec = open::spec(&self.plan.attachment, has_mac, self.config.clone());
        let Some((device, progress)) = opened.take() else { return };
        let begun = self.rings.begin(&device, progress).and_then(|()| {
            let quota = self.plan.quota.clone();
            let mut session = Session::new(&spec.name, device, spec.features, spec.rings, quota)?;
            let call = |source| {
                let (call, name) = ("VDUSE_DEV_SET_CONFIG", spec.name.clone());
                VduseError::Call { call, name, source }
            };
            if unfit.is_none() {
                // What it was made with, now or in a former life, may be of yesterday.
                session.kernel().set_config(&self.config).map_err(call)?;
            }
            if unfit.is_none() && origin == Origin::Found {
                session.take_over().map_err(call)?;
            }
            Ok(session)
        });
        match begun {
            Ok(session) => self.session = Some(session),
            Err(error) => return self.fail(&anyhow::Error::from(error)),
        }
        self.is_lost = false;
        match unfit {
            Some(why) => {
                let line = format!("{}: {} is made anew: {why}", self.plan.port.label, spec.name);
                if self.failures.is_new(&line, Instant::now()) {
                    self.quiet.info(&line);
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

    /// Lets another be made in the device's place, once the bus has let it go.
    fn renew(&mut self) {
        self.rings.end(false);
        self.then = Then::Renew;
    }

    /// Has the device put on the bus, or taken off it.
    fn start_job(&mut self, removes: bool) {
        let what = if removes { vduse::remove_from_bus } else { vduse::add_to_bus };
        let (name, shared) = (self.plan.attachment.name.clone(), self.shared.clone());
        let job = move || {
            let result = what(&name);
            shared.wake();
            result
        };
        match std::thread::Builder::new().name("vdpa-bus".into()).spawn(job) {
            Ok(thread) => self.job = Some(Job { removes, thread }),
            Err(error) => self.fail(&error.into()),
        }
    }

    /// Answers what the kernel asks.
    fn serve(&mut self) {
        let Some(session) = self.session.as_mut().filter(|_| !self.is_lost) else { return };
        let served = session.serve(&mut self.rings);
        if let Some(problem) = session.take_problem() {
            let (label, name) = (&self.plan.port.label, &self.plan.attachment.name);
            self.quiet.warn(&format!("{label}: {name}: {problem}"));
        }
        if let Err(errno) = served {
            self.lose(errno);
        }
    }

    /// Notes that the kernel has given the device up: it did not get an answer in time.
    fn lose(&mut self, errno: Errno) {
        self.is_lost = true;
        if self.then == Then::Serve {
            let (label, name) = (&self.plan.port.label, &self.plan.attachment.name);
            let error = std::io::Error::from(errno);
            self.quiet.warn(&format!("{label}: {name} is lost, and made anew: {error}"));
            self.renew();
        }
    }

    /// Goes on where the bus has done what it was asked for, or there is nothing yet; says whether
    /// that was all.
    fn work(&mut self) -> bool {
        if self.job.as_ref().is_some_and(|job| !job.thread.is_finished()) {
            return false;
        }
        if let Some(Job { removes, thread }) = self.job.take() {
            if let Ok(Err(error)) = thread.join() {
                self.fail(&error.into());
            }
            if removes {
                self.close();
            }
        }
        match (self.then, self.session.is_some()) {
            (Then::Leave | Then::Renew, true) if self.job.is_none() => self.start_job(true),
            (Then::Leave, false) => return true,
            (Then::Renew, false) => self.then = Then::Serve,
            (Then::Serve, false) if !self.is_suspended => self.open(),
            _ => {}
        }
        false
    }

    /// Lets the device go, and removes it unless it is on the bus.
    fn close(&mut self) {
        self.rings.end(false);
        if let Some(session) = self.session.take() {
            self.retry = Instant::now() + RETRY;
            let removed = open::remove(session.into_kernel(), &self.plan.records);
            if !removed && self.then == Then::Leave {
                let (label, name) = (&self.plan.port.label, &self.plan.attachment.name);
                let remedy = format!("vdpa dev del {name}");
                self.quiet.warn(&format!("{label}: {name} stays, without a daemon: {remedy}"));
            }
        }
    }

    fn stop(mut self) {
        self.rings.end(true);
        if let Some(session) = self.session.take() {
            open::remove(session.into_kernel(), &self.plan.records);
        }
    }

    fn wanted_config(&self) -> Vec<u8> {
        let Plan { attachment, identity, nic, port, .. } = &self.plan;
        open::config(attachment, identity, (self.mtu, nic.snapshot().is_up(port)))
    }

    /// Tells the driver what is new, and others how it is.
    fn look(&mut self) {
        let config = self.wanted_config();
        if let Some(session) = &self.session
            && config != self.config
        {
            // If the kernel has given it up, the next answer says so.
            let _ = session.kernel().set_config(&config);
            let _ = session.kernel().interrupt_config();
            self.config = config;
        }
        let is_running = self.session.as_ref().is_some_and(Session::is_running);
        let has_device = self.session.is_some();
        let news = self.shared.status().note(has_device, is_running);
        if let Some(text) = news {
            self.quiet.info(&format!("{}: {text}", self.plan.port.label));
        }
    }

    /// Says why something did not work, once, and again when that changes or a while has passed.
    fn fail(&mut self, error: &anyhow::Error) {
        let text = format!("{error:#}");
        let line = format!("{}: {text}", self.plan.port.label);
        if self.failures.is_new(&line, Instant::now()) {
            self.quiet.warn(&line);
        }
        self.shared.status().fail(text);
    }

    /// Waits for whatever comes next; says whether the kernel has given the device up.
    fn sleep(&self) -> bool {
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        let mut wait = LOOK;
        if let Some(session) = self.session.as_ref().filter(|_| !self.is_lost) {
            fds.push(PollFd::from_borrowed_fd(session.kernel().as_fd(), PollFlags::IN));
            fds.extend(session.awaited().iter().map(|kick| PollFd::new(kick, PollFlags::IN)));
            wait = session.wait().map_or(wait, |soon| soon.min(wait));
        }
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
        let _ = poll(&mut fds, Some(&wait)); // interrupted: as good as woken
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
        fds.get(1).is_some_and(|device| device.revents().contains(PollFlags::ERR))
    }
}
