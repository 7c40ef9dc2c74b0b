//! Handles the kernel's requests to a device, and decides when its rings run.
//!
//! # Life
//! 1. *Idle*: no driver, or a driver that is not ready. Requests are answered.
//! 2. *Waiting*: the driver set DRIVER_OK. The rings start after the kernel has recorded the
//!    status, which it does only after our answer; until then interrupts would be lost. They also
//!    wait for memory for buffers: a driver of this kernel maps its first buffer later, and then
//!    kicks.
//! 3. *Running*: the [`RingRunner`] runs the rings. A change of memory leads back to 2, a reset to
//!    1.
//!
//! A session has no thread, no clock and no file but the eventfds of its kicks, and its calls do
//! not wait.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use guestmem::{GuestMemory, Quota};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::memory;
use crate::message::{Position, REQUEST_LEN, Request, RequestKind, Response};
use crate::{Kernel, VduseError};

/// Most requests answered in one turn.
const REQUESTS_A_TURN: usize = 32;
/// Interval of the first queries for DRIVER_OK in the kernel.
const SOON: Duration = Duration::from_millis(1);
const SOON_TIMES: u32 = 100;
/// Interval of later queries, and of polling for other conditions without an event.
const LATER: Duration = Duration::from_millis(100);

/// The driver accepts the features (virtio 1.2, section 2.1).
pub const FEATURES_OK: u8 = 8;
/// The driver is ready.
pub const DRIVER_OK: u8 = 4;
/// The driver has given up the device.
pub const FAILED: u8 = 128;

/// `VIRTIO_F_VERSION_1`.
const VERSION_1: u64 = 1 << 32;
/// `VIRTIO_F_RING_PACKED`.
const PACKED: u64 = 1 << 34;

/// Settings that a driver made for a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingInfo {
    /// Entries; any value that the driver wrote.
    pub size: u32,
    /// Address of the descriptors.
    pub desc: u64,
    /// Address of the driver area: the available ring.
    pub avail: u64,
    /// Address of the device area: the used ring.
    pub used: u64,
    /// Position at which the driver wants the device to begin.
    pub position: Position,
    /// `true` if the driver has enabled it.
    pub ready: bool,
}

/// A ring to start.
#[derive(Clone, Debug)]
pub struct RingStart {
    /// Index: even ones are the guest's Rx, odd ones its Tx.
    pub index: u32,
    /// Settings that the driver made.
    pub info: RingInfo,
    /// Readable when the driver kicked.
    pub kick: Arc<OwnedFd>,
    /// Virtio feature bits negotiated.
    pub features: u64,
    /// `true` if it ran before and continues at its own position, not at [`RingInfo::position`].
    pub resumes: bool,
}

impl RingStart {
    /// Start position if it does not resume, in vhost-user's form.
    pub fn base(&self) -> u32 {
        self.info.position.base(self.features & PACKED != 0)
    }
}

/// Runs the rings.
pub trait RingRunner {
    /// Starts all rings.
    ///
    /// # Errors
    /// The problem with the rings. None runs then.
    fn start(&mut self, rings: &[RingStart], memory: &Arc<GuestMemory>) -> Result<(), String>;

    /// Stops all rings; on return, no thread uses them or their memory.
    fn stop(&mut self);

    /// Position of a ring, current or when stopped, in vhost-user's form; `None` if it never ran.
    fn position(&mut self, ring: u32) -> Option<u32>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Waiting { agreed: bool, tries: u32, resumes: bool },
    Running,
}

/// Handler of one device's requests.
#[derive(Debug)]
pub struct VduseSession<K> {
    kernel: K,
    name: String,
    offered: u64,
    kicks: Vec<Arc<OwnedFd>>,
    phase: Phase,
    /// Features negotiated, from DRIVER_OK on.
    features: u64,
    problem: Option<String>,
    /// Limit of memory that the driver may have mapped.
    quota: Arc<Quota>,
}

impl<K: Kernel> VduseSession<K> {
    /// A device called `name` with `rings` rings, which offers these features.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(
        name: &str,
        kernel: K,
        offered: u64,
        rings: u32,
        quota: Arc<Quota>,
    ) -> Result<VduseSession<K>, VduseError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let kicks = (0..rings).map(|_| eventfd(0, flags).map(Arc::new)).collect::<Result<_, _>>();
        let name = name.to_owned();
        let kicks = kicks.map_err(|source| {
            let (call, name) = ("eventfd", name.clone());
            VduseError::Call { call, name, source }
        })?;
        let (phase, features, problem) = (Phase::Idle, 0, None);
        Ok(VduseSession { kernel, name, offered, kicks, phase, features, problem, quota })
    }

    /// Takes over a device from another process: rings of a running driver will run.
    ///
    /// # Errors
    /// The kernel has failed the device.
    pub fn take_over(&mut self) -> Result<(), Errno> {
        if self.kernel.interrupt_config()? {
            self.features = self.kernel.features()?;
            self.set_kicks()?;
            self.phase = Phase::Waiting { agreed: true, tries: 0, resumes: true };
        }
        Ok(())
    }

    /// The kernel's side.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// The kernel's side, to be controlled by a test.
    #[cfg(test)]
    pub(crate) fn kernel_mut(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// The kernel's side, without the session. Running rings continue.
    pub fn into_kernel(self) -> K {
        self.kernel
    }

    /// Returns `true` if its rings run.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// The last problem, reported once.
    pub fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }

    /// Answers requests, and starts rings that can run.
    ///
    /// # Errors
    /// The kernel has failed the device, or it is gone.
    pub fn serve(&mut self, guest: &mut impl RingRunner) -> Result<(), Errno> {
        for _ in 0..REQUESTS_A_TURN {
            let mut bytes = [0; REQUEST_LEN];
            if !self.kernel.read(&mut bytes)? {
                break;
            }
            let request = Request::from_bytes(&bytes);
            let answer = self.answer(request.kind, guest)?;
            match self.kernel.write(&answer.to_bytes(request.id)) {
                Ok(()) | Err(Errno::NOENT) => {} // the kernel gave up the request meanwhile
                Err(errno) => return Err(errno),
            }
        }
        self.start_when_ready(guest)
    }

    /// Time until [`serve`](Self::serve) is due without an event; `None` if never.
    pub fn wait(&self) -> Option<Duration> {
        match self.phase {
            Phase::Waiting { agreed: false, tries, .. } if tries < SOON_TIMES => Some(SOON),
            Phase::Waiting { agreed, .. } => (!agreed || self.is_kicked()).then_some(LATER),
            Phase::Idle | Phase::Running => None,
        }
    }

    /// Kick eventfds to wait for: those of rings that do not run yet.
    pub fn awaited(&self) -> &[Arc<OwnedFd>] {
        match self.phase {
            Phase::Waiting { agreed: true, .. } if !self.is_kicked() => &self.kicks,
            _ => &[],
        }
    }

    fn answer(
        &mut self,
        kind: RequestKind,
        guest: &mut impl RingRunner,
    ) -> Result<Response, Errno> {
        Ok(match kind {
            RequestKind::Status(status) => self.set_status(status, guest)?,
            RequestKind::Position { ring } => self.position(ring, guest)?,
            RequestKind::Memory { .. } => {
                // The range does not matter: all old memory is released before the answer, and all
                // new memory mapped at once.
                if self.phase == Phase::Running {
                    guest.stop();
                    self.phase = Phase::Waiting { agreed: true, tries: 0, resumes: true };
                }
                Response::Done
            }
            RequestKind::Unknown(_) => Response::Failed,
        })
    }

    fn set_status(&mut self, status: u8, guest: &mut impl RingRunner) -> Result<Response, Errno> {
        let runs = status & DRIVER_OK != 0 && status & FAILED == 0;
        if !runs && self.phase != Phase::Idle {
            guest.stop();
            self.phase = Phase::Idle;
        }
        if status & FEATURES_OK == 0 || self.phase != Phase::Idle {
            return Ok(Response::Done);
        }
        let features = self.kernel.features()?;
        if features & !self.offered != 0 || features & VERSION_1 == 0 {
            self.problem = Some(format!("the driver's features {features:#x} were refused"));
            return Ok(Response::Failed);
        }
        if runs {
            self.features = features;
            self.set_kicks()?;
            self.phase = Phase::Waiting { agreed: false, tries: 0, resumes: false };
        }
        Ok(Response::Done)
    }

    /// Clears counts left from an earlier session.
    fn set_kicks(&self) -> Result<(), Errno> {
        for (ring, kick) in self.kicks.iter().enumerate() {
            let _ = rustix::io::read(kick, &mut [0; 8]); // EAGAIN without a kick
            self.kernel.set_kick(ring as u32, std::os::fd::AsFd::as_fd(kick))?;
        }
        Ok(())
    }

    fn position(&mut self, ring: u32, guest: &mut impl RingRunner) -> Result<Response, Errno> {
        if ring as usize >= self.kicks.len() {
            return Ok(Response::Failed);
        }
        let position = match guest.position(ring) {
            Some(base) if self.features & PACKED != 0 => Position::packed(base),
            Some(base) => Position::split(base as u16),
            None => self.kernel.ring(ring)?.position,
        };
        Ok(Response::At { ring, position })
    }

    /// Returns `true` if the driver kicked a ring that does not run yet. The count stays for the
    /// lane.
    fn is_kicked(&self) -> bool {
        let mut fds: Vec<_> =
            self.kicks.iter().map(|kick| PollFd::new(kick, PollFlags::IN)).collect();
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Starts the rings, if all their conditions hold.
    fn start_when_ready(&mut self, guest: &mut impl RingRunner) -> Result<(), Errno> {
        let Phase::Waiting { agreed, tries, resumes } = self.phase else { return Ok(()) };
        let agreed = agreed || self.kernel.interrupt_config()?;
        self.phase = Phase::Waiting { agreed, tries: tries.saturating_add(1), resumes };
        if !agreed || !(self.is_kicked() || memory::has_buffers(&self.kernel)?) {
            return Ok(());
        }
        let mut rings = Vec::new();
        for (index, kick) in self.kicks.iter().enumerate() {
            let (index, kick, features) = (index as u32, kick.clone(), self.features);
            let info = self.kernel.ring(index)?;
            rings.push(RingStart { index, info, kick, features, resumes });
        }
        if !rings.iter().all(|ring| ring.info.ready) {
            return Ok(());
        }
        let memory = match memory::map(&self.name, &self.kernel, &self.quota) {
            Ok(memory) => memory,
            Err(error) => {
                self.give_up(&error);
                return Ok(());
            }
        };
        match guest.start(&rings, &memory) {
            Ok(()) => self.phase = Phase::Running,
            Err(text) => {
                self.problem = Some(text);
                self.phase = Phase::Idle; // until the driver resets it
            }
        }
        Ok(())
    }

    fn give_up(&mut self, error: &dyn std::error::Error) {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        self.problem = Some(text);
        self.phase = Phase::Idle;
    }
}
