//! vDPA devices: adapters presented as virtio devices to the host's kernel, or to a QEMU guest.
//!
//! A thread for each device serves it ([`worker`] explains why); this module starts and ends the
//! threads. A device of a removed adapter takes a moment to leave the bus; until then a new one of
//! its name waits.
//!
//! # Differences from a vhost-user session
//! - Memory. A driver of this kernel does not expose its own: frames pass through bounce pages,
//!   which appear with the first buffer. So rings start with the first kick, or once there is
//!   memory for more than rings.
//! - Interrupts. There is no eventfd: a lane calls a non-blocking ioctl. The kernel loses
//!   interrupts until it has noted DRIVER_OK, after the daemon's answer; so the session queries it,
//!   and starts the rings when no interrupt can be lost.
//! - Locks. The kernel sends requests while it holds RTNL, for which other threads of the daemon
//!   wait when they change an interface. Hence a thread for each device.
//! - Positions. A split ring's is in the driver's memory; a packed ring's is in a file of the run
//!   directory. The kernel reports neither.

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
use status::VdpaStatus;
use worker::{Command, Worker, WorkerParams, WorkerShared};

pub(super) use open::{DeviceRecords, OpenedVdpa};
pub(super) use worker::VdpaStart;

/// Timeout for a port to be released: the serving thread waits for nothing itself.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for a device file to appear while all other work waits.
const FILE_TIMEOUT: Duration = Duration::from_millis(20);
/// Time that all other work waits for devices to reopen.
const RESUME_TIMEOUT: Duration = Duration::from_millis(100);

/// Handle of one device's thread.
#[derive(Debug)]
struct VdpaHandle {
    name: String,
    /// MTU that it follows.
    mtu: Option<u32>,
    shared: Arc<WorkerShared>,
    commands: Sender<Command>,
    thread: JoinHandle<()>,
}

impl VdpaHandle {
    fn tell(&self, command: Command) {
        let _ = self.commands.send(command); // fails only if the thread has ended
        self.shared.wake();
    }
}

/// All vDPA devices, by token.
#[derive(Debug)]
pub(super) struct Vdpas {
    records: DeviceRecords,
    /// Memory quota of their drivers.
    quota: Arc<Quota>,
    served: BTreeMap<u64, VdpaHandle>,
    /// Devices that are leaving the bus.
    leaving: Vec<VdpaHandle>,
    next: u64,
}

impl Vdpas {
    pub(super) fn new(records: DeviceRecords, quota: Arc<Quota>) -> Vdpas {
        Vdpas { records, quota, served: BTreeMap::new(), leaving: Vec::new(), next: 0 }
    }

    /// Creates a device, or finds our own; `None` if that takes time, because one of that name is
    /// leaving or its file has not appeared.
    ///
    /// # Errors
    /// Cause and remedy.
    pub(super) fn open(
        &mut self,
        attachment: &Vduse,
        identity: &Identity,
    ) -> Result<Option<OpenedVdpa>> {
        self.remove_ended();
        if self.leaving.iter().any(|served| served.name == attachment.name) {
            return Ok(None);
        }
        let config = open::config(attachment, identity, (None, false));
        let spec = open::spec(attachment, identity.mac.is_some(), config);
        match OpenedVdpa::open(&spec, &self.records, FILE_TIMEOUT) {
            Err(VduseError::NoFile(_)) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    /// Serves a device; returns its token.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub(super) fn add(
        &mut self,
        attachment: &Vduse,
        (nic, port): (Arc<SoftNic>, Arc<Port>),
        identity: Identity,
        events: PortEvents,
        begin: VdpaStart,
    ) -> Result<u64> {
        let name = attachment.name.clone();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let status = VdpaStatus::new(format!("vduse:{name}"), events);
        let shared = Arc::new(WorkerShared::new(wake, status));
        let (commands, receiver) = channel();
        let records = self.records.clone();
        let (attachment, quota) = (attachment.clone(), self.quota.of_session());
        let params = WorkerParams { attachment, identity, nic, port, records, quota };
        let worker = Worker::new(params, shared.clone(), receiver);
        let thread = std::thread::Builder::new().name("vdpa".into());
        let thread = thread.spawn(move || worker.run(begin)).context("cannot start a thread")?;
        let token = self.next;
        self.next += 1;
        self.served.insert(token, VdpaHandle { name, mtu: None, shared, commands, thread });
        Ok(token)
    }

    /// Removes a device: its port is free when this returns, the bus a moment later.
    pub(super) fn remove(&mut self, token: u64) {
        let Some(served) = self.served.remove(&token) else { return };
        served.shared.status().events.guest(false);
        let (done, freed) = sync_channel(1);
        served.tell(Command::Leave(done));
        if freed.recv_timeout(RELEASE_TIMEOUT).is_err() {
            tracing::error!("vDPA device {} does not release its port", served.name);
        }
        self.remove_ended();
        self.leaving.push(served);
    }

    /// Prepares all devices for [`suspend`](Self::suspend), and opens none until
    /// [`resume`](Self::resume); returns `true` if all are ready.
    pub(super) fn prepare(&mut self) -> bool {
        self.tell_all(Command::Prepare, RELEASE_TIMEOUT)
    }

    /// Closes all devices for a handover: no lane touches their rings after this call.
    pub(super) fn suspend(&mut self) {
        if !self.tell_all(Command::Suspend, RELEASE_TIMEOUT) {
            tracing::error!("a vDPA device is not released");
        }
    }

    /// Reopens all suspended or waiting devices. Rings that existed before run when this returns,
    /// except for devices that take too long.
    pub(super) fn resume(&mut self) {
        if !self.tell_all(Command::Resume, RESUME_TIMEOUT) {
            tracing::warn!("a vDPA device resumes later than the others");
        }
    }

    /// Sends a command to all threads; returns `true` if all answers came in time.
    fn tell_all(&self, what: fn(SyncSender<()>) -> Command, most: Duration) -> bool {
        let (done, answers) = sync_channel(self.served.len());
        self.served.values().for_each(|served| served.tell(what(done.clone())));
        let end = Instant::now() + most;
        let left = || end.saturating_duration_since(Instant::now());
        (0..self.served.len()).all(|_| answers.recv_timeout(left()).is_ok())
    }

    /// Removes handles of ended threads.
    fn remove_ended(&mut self) {
        self.leaving.retain(|served| !served.thread.is_finished());
    }

    /// Changes the addresses of a device.
    pub(super) fn set_identity(&mut self, token: u64, identity: Identity) {
        if let Some(served) = self.served.get(&token) {
            served.tell(Command::Identify(identity));
        }
    }

    /// Sets or clears the MTU that a device follows; a driver reads it when it starts.
    pub(super) fn set_mtu(&mut self, token: u64, mtu: Option<u32>) {
        if let Some(served) = self.served.get_mut(&token)
            && served.mtu != mtu
        {
            served.mtu = mtu;
            served.tell(Command::Mtu(mtu));
        }
    }

    /// State of a device.
    pub(super) fn status(&self, token: u64) -> Option<ActualDevice> {
        Some(self.served.get(&token)?.shared.status().actual.clone())
    }

    /// Returns `true` if the rings of every device run.
    pub(super) fn are_running(&self) -> bool {
        self.served.values().all(|served| served.shared.status().actual.state == DeviceState::Up)
    }

    /// Stops serving every device; the next daemon resumes them.
    pub(super) fn clear(&mut self) {
        let served: Vec<VdpaHandle> = std::mem::take(&mut self.served).into_values().collect();
        served.iter().for_each(|served| served.tell(Command::Stop));
        for served in served {
            let _ = served.thread.join(); // a panic was logged
        }
    }
}
