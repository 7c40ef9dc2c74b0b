//! vDPA devices: adapters that the host's own kernel, or a guest of QEMU's on it, has as virtio
//! devices.
//!
//! Each is served by a thread of its own ([`worker`] says why); what is here starts and ends them.
//! A device whose adapter is gone takes a moment to leave the bus, and until then another of its
//! name waits.
//!
//! # Differences from a vhost-user session
//! - Memory. A driver of this kernel does not show its own: frames pass through bounce pages, which
//!   appear with the first buffer. So rings start with the first kick, or once there is memory for
//!   more than rings.
//! - Interrupts. There is no eventfd: a lane asks the kernel by an ioctl that does not block. The
//!   kernel loses interrupts until it has noted DRIVER_OK, after the daemon's answer; so the
//!   session asks, and starts the rings when none will be lost.
//! - Locks. The kernel asks while it holds RTNL, for which other threads of the daemon wait when
//!   they change an interface. Hence a thread for each device.
//! - Positions. A split ring's is in the driver's memory; a packed ring's is in a file of the run
//!   directory. The kernel tells neither.

mod open;
mod rings;
mod status;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::{Port, SoftNic};
use guestmem::Quota;
use model::state::{ActualDevice, DeviceState, Vduse};
use rustix::event::{EventfdFlags, eventfd};
use vduse::VduseError;

use super::device::Identity;
use super::port_events::PortEvents;
use status::Status;
use worker::{Command, Plan, Shared, Worker};

pub(super) use open::{Opened, Records};

/// How long a port may take to be free: a thread that serves a device waits for nobody.
const FREE: Duration = Duration::from_secs(5);
/// How long a device's file may take to appear while everybody waits.
const AT_ONCE: Duration = Duration::from_millis(20);
/// How long all others are kept waiting for devices that are opened again.
const SOON: Duration = Duration::from_millis(100);

/// How a device begins.
#[derive(Debug)]
pub(super) enum Begin {
    /// It was opened.
    With(Opened),
    /// It is opened as soon as it can be.
    Soon,
    /// It is opened when that is said, by [`Vdpas::resume`].
    WhenTold,
}

/// One device, as others see it.
#[derive(Debug)]
struct Served {
    name: String,
    /// The MTU that it follows.
    mtu: Option<u32>,
    shared: Arc<Shared>,
    commands: Sender<Command>,
    thread: JoinHandle<()>,
}

impl Served {
    fn tell(&self, command: Command) {
        let _ = self.commands.send(command); // a thread that has ended needs none
        self.shared.wake();
    }
}

/// All vDPA devices, by their tokens.
#[derive(Debug)]
pub(super) struct Vdpas {
    records: Records,
    /// What their drivers may have mapped.
    quota: Arc<Quota>,
    served: BTreeMap<u64, Served>,
    /// Those that are on their way off the bus.
    leaving: Vec<Served>,
    next: u64,
}

impl Vdpas {
    pub(super) fn new(records: Records, quota: Arc<Quota>) -> Vdpas {
        Vdpas { records, quota, served: BTreeMap::new(), leaving: Vec::new(), next: 0 }
    }

    /// Makes a device that nobody serves yet, or finds our own; `None` if that takes time: one of
    /// that name is on its way out, or its file on its way in.
    ///
    /// # Errors
    /// Why it cannot be had, and what to do.
    pub(super) fn open(
        &mut self,
        attachment: &Vduse,
        identity: &Identity,
    ) -> Result<Option<Opened>> {
        self.tidy();
        if self.leaving.iter().any(|served| served.name == attachment.name) {
            return Ok(None);
        }
        let config = open::config(attachment, identity, (None, false));
        let spec = open::spec(attachment, identity.mac.is_some(), config);
        match Opened::open(&spec, &self.records, AT_ONCE) {
            Err(VduseError::NoFile(_)) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    /// Serves a device from now on; returns its token.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub(super) fn add(
        &mut self,
        attachment: &Vduse,
        (nic, port): (Arc<SoftNic>, Arc<Port>),
        identity: Identity,
        events: PortEvents,
        begin: Begin,
    ) -> Result<u64> {
        let name = attachment.name.clone();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let status = Status::new(format!("vduse:{name}"), events);
        let shared = Arc::new(Shared::new(wake, status));
        let (commands, receiver) = channel();
        let records = self.records.clone();
        let (attachment, quota) = (attachment.clone(), self.quota.of_session());
        let plan = Plan { attachment, identity, nic, port, records, quota };
        let worker = Worker::new(plan, shared.clone(), receiver);
        let thread = std::thread::Builder::new().name("vdpa".into());
        let thread = thread.spawn(move || worker.run(begin)).context("cannot start a thread")?;
        let token = self.next;
        self.next += 1;
        self.served.insert(token, Served { name, mtu: None, shared, commands, thread });
        Ok(token)
    }

    /// Ends a device: its port is free when this returns, and the bus a moment later.
    pub(super) fn remove(&mut self, token: u64) {
        let Some(served) = self.served.remove(&token) else { return };
        served.shared.status().events.guest(false);
        let (done, freed) = sync_channel(1);
        served.tell(Command::Leave(done));
        if freed.recv_timeout(FREE).is_err() {
            tracing::error!("vDPA device {} does not let its port go", served.name);
        }
        self.tidy();
        self.leaving.push(served);
    }

    /// Has all devices be ready to be closed at once, none is opened any more until
    /// [`resume`](Self::resume); says whether they are.
    pub(super) fn prepare(&mut self) -> bool {
        self.tell_all(Command::Prepare, FREE)
    }

    /// Closes all devices, for another process: no lane touches a ring of theirs when this returns.
    pub(super) fn suspend(&mut self) {
        if !self.tell_all(Command::Suspend, FREE) {
            tracing::error!("a vDPA device is not let go of");
        }
    }

    /// Opens all devices again that were closed so, or that wait for being told. Rings of those
    /// that were there before run when this returns, but for those that take longer than others can
    /// be kept waiting.
    pub(super) fn resume(&mut self) {
        if !self.tell_all(Command::Resume, SOON) {
            tracing::warn!("a vDPA device comes later than the others");
        }
    }

    /// Tells all the same, and waits for the answers; says whether all have come in that time.
    fn tell_all(&self, what: fn(SyncSender<()>) -> Command, most: Duration) -> bool {
        let (done, answers) = sync_channel(self.served.len());
        self.served.values().for_each(|served| served.tell(what(done.clone())));
        let end = Instant::now() + most;
        let left = || end.saturating_duration_since(Instant::now());
        (0..self.served.len()).all(|_| answers.recv_timeout(left()).is_ok())
    }

    /// Forgets those that have left.
    fn tidy(&mut self) {
        self.leaving.retain(|served| !served.thread.is_finished());
    }

    /// Gives a device other addresses.
    pub(super) fn set_identity(&mut self, token: u64, identity: Identity) {
        if let Some(served) = self.served.get(&token) {
            served.tell(Command::Identify(identity));
        }
    }

    /// Gives a device the MTU that another interface has, if one is to be followed; a driver reads
    /// it when it begins.
    pub(super) fn set_mtu(&mut self, token: u64, mtu: Option<u32>) {
        if let Some(served) = self.served.get_mut(&token)
            && served.mtu != mtu
        {
            served.mtu = mtu;
            served.tell(Command::Mtu(mtu));
        }
    }

    /// How a device is.
    pub(super) fn status(&self, token: u64) -> Option<ActualDevice> {
        Some(self.served.get(&token)?.shared.status().actual.clone())
    }

    /// Whether the rings of every device run.
    pub(super) fn are_running(&self) -> bool {
        self.served.values().all(|served| served.shared.status().actual.state == DeviceState::Up)
    }

    /// Lets every device go, for the next daemon.
    pub(super) fn clear(&mut self) {
        let served: Vec<Served> = std::mem::take(&mut self.served).into_values().collect();
        served.iter().for_each(|served| served.tell(Command::Stop));
        for served in served {
            let _ = served.thread.join(); // if it panicked, that was said
        }
    }
}
