//! What the kernel asks of a device, and when its rings run.
//!
//! # Life
//! 1. *Idle*: no driver, or one that is not done with its preparations. Requests are answered.
//! 2. *Waiting*: the driver said DRIVER_OK. The rings begin once the kernel agrees, for until then
//!    interrupts would be lost: it notes the status only after our answer. And they begin once
//!    there is memory for buffers: a driver of this kernel maps its first buffer after that, and
//!    kicks.
//! 3. *Running*: the rings are the [`Guest`]'s. A change of memory leads back to 2, a reset to 1.
//!
//! A session has no thread, no clock and no file but the eventfds of its kicks; it cannot be made
//! to wait.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use guestmem::{GuestMemory, Quota};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::memory;
use crate::message::{Answer, Position, REQUEST_LEN, Request, Wish};
use crate::{Kernel, VduseError};

/// Requests answered in a turn.
const REQUESTS_A_TURN: usize = 32;
/// How soon the kernel is asked again whether it has noted DRIVER_OK, and how often.
const SOON: Duration = Duration::from_millis(1);
const SOON_TIMES: u32 = 100;
/// How soon after that, and how soon for what else is waited for without a sign.
const LATER: Duration = Duration::from_millis(100);

/// The driver accepts the features (virtio 1.2, section 2.1).
pub const FEATURES_OK: u8 = 8;
/// The driver is ready.
pub const DRIVER_OK: u8 = 4;
/// The driver has given the device up.
pub const FAILED: u8 = 128;

/// `VIRTIO_F_VERSION_1`.
const VERSION_1: u64 = 1 << 32;
/// `VIRTIO_F_RING_PACKED`.
const PACKED: u64 = 1 << 34;

/// What a driver made of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingInfo {
    /// Entries; whatever the driver wrote.
    pub size: u32,
    /// Address of the descriptors.
    pub desc: u64,
    /// Address of the driver's area: the available ring.
    pub avail: u64,
    /// Address of the device's area: the used ring.
    pub used: u64,
    /// Where the driver wants the device to begin.
    pub position: Position,
    /// Whether the driver has enabled it.
    pub ready: bool,
}

/// A ring that is to run.
#[derive(Clone, Debug)]
pub struct RingStart {
    /// Which: even ones are the guest's Rx, odd ones its Tx.
    pub index: u32,
    /// What the driver made of it.
    pub info: RingInfo,
    /// Readable when the driver kicked.
    pub kick: Arc<OwnedFd>,
    /// Virtio's feature bits that were negotiated.
    pub features: u64,
    /// Whether it ran before and goes on where it was, which [`RingInfo::position`] does not say.
    pub resumes: bool,
}

impl RingStart {
    /// Where it begins if it does not resume, as vhost-user says it.
    pub fn base(&self) -> u32 {
        self.info.position.base(self.features & PACKED != 0)
    }
}

/// Who has the rings.
pub trait Guest {
    /// Starts all rings.
    ///
    /// # Errors
    /// What is wrong with them. None runs then.
    fn start(&mut self, rings: &[RingStart], memory: &Arc<GuestMemory>) -> Result<(), String>;

    /// Stops all rings; nobody touches them or their memory when it returns.
    fn stop(&mut self);

    /// Where a ring is, or was when it was stopped, as vhost-user says it; `None` if it never ran.
    fn position(&mut self, ring: u32) -> Option<u32>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Waiting { agreed: bool, tries: u32, resumes: bool },
    Running,
}

/// The requests of one device.
#[derive(Debug)]
pub struct Session<K> {
    kernel: K,
    name: String,
    offered: u64,
    kicks: Vec<Arc<OwnedFd>>,
    phase: Phase,
    /// What was negotiated, from DRIVER_OK on.
    features: u64,
    problem: Option<String>,
    /// What its driver may have mapped.
    quota: Arc<Quota>,
}

impl<K: Kernel> Session<K> {
    /// A device called `name` with so many rings, which offers these features.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(
        name: &str,
        kernel: K,
        offered: u64,
        rings: u32,
        quota: Arc<Quota>,
    ) -> Result<Session<K>, VduseError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let kicks = (0..rings).map(|_| eventfd(0, flags).map(Arc::new)).collect::<Result<_, _>>();
        let name = name.to_owned();
        let kicks = kicks.map_err(|source| {
            let (call, name) = ("eventfd", name.clone());
            VduseError::Call { call, name, source }
        })?;
        let (phase, features, problem) = (Phase::Idle, 0, None);
        Ok(Session { kernel, name, offered, kicks, phase, features, problem, quota })
    }

    /// Goes on with a device that another process served: if its driver runs its rings will.
    ///
    /// # Errors
    /// The kernel has given the device up.
    pub fn take_over(&mut self) -> Result<(), Errno> {
        if self.kernel.interrupt_config()? {
            self.features = self.kernel.features()?;
            self.set_kicks()?;
            self.phase = Phase::Waiting { agreed: true, tries: 0, resumes: true };
        }
        Ok(())
    }

    /// The kernel's end.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// The kernel's end, to be told what it is to say.
    #[cfg(test)]
    pub(crate) fn kernel_mut(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// The kernel's end, for whoever has the session no more. Rings that run go on.
    pub fn into_kernel(self) -> K {
        self.kernel
    }

    /// Whether its rings run.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// What was wrong since somebody last asked.
    pub fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }

    /// Answers what was asked, and starts rings that can run.
    ///
    /// # Errors
    /// The kernel has given the device up, or it is gone.
    pub fn serve(&mut self, guest: &mut impl Guest) -> Result<(), Errno> {
        for _ in 0..REQUESTS_A_TURN {
            let mut bytes = [0; REQUEST_LEN];
            if !self.kernel.read(&mut bytes)? {
                break;
            }
            let request = Request::from_bytes(&bytes);
            let answer = self.answer(request.wish, guest)?;
            match self.kernel.write(&answer.to_bytes(request.id)) {
                Ok(()) | Err(Errno::NOENT) => {} // whoever asked was killed meanwhile
                Err(errno) => return Err(errno),
            }
        }
        self.look(guest)
    }

    /// How long until [`serve`](Self::serve) is due without any sign; `None` if never.
    pub fn wait(&self) -> Option<Duration> {
        match self.phase {
            Phase::Waiting { agreed: false, tries, .. } if tries < SOON_TIMES => Some(SOON),
            Phase::Waiting { agreed, .. } => (!agreed || self.is_kicked()).then_some(LATER),
            Phase::Idle | Phase::Running => None,
        }
    }

    /// Kicks that are waited for, each of them a sign: those of rings that do not run yet.
    pub fn awaited(&self) -> &[Arc<OwnedFd>] {
        match self.phase {
            Phase::Waiting { agreed: true, .. } if !self.is_kicked() => &self.kicks,
            _ => &[],
        }
    }

    fn answer(&mut self, wish: Wish, guest: &mut impl Guest) -> Result<Answer, Errno> {
        Ok(match wish {
            Wish::Status(status) => self.set_status(status, guest)?,
            Wish::Position { ring } => self.position(ring, guest)?,
            Wish::Memory { .. } => {
                // Which of it is not asked: the old is let go before the answer, and all of the new
                // mapped at once.
                if self.phase == Phase::Running {
                    guest.stop();
                    self.phase = Phase::Waiting { agreed: true, tries: 0, resumes: true };
                }
                Answer::Done
            }
            Wish::Unknown(_) => Answer::Failed,
        })
    }

    fn set_status(&mut self, status: u8, guest: &mut impl Guest) -> Result<Answer, Errno> {
        let runs = status & DRIVER_OK != 0 && status & FAILED == 0;
        if !runs && self.phase != Phase::Idle {
            guest.stop();
            self.phase = Phase::Idle;
        }
        if status & FEATURES_OK == 0 || self.phase != Phase::Idle {
            return Ok(Answer::Done);
        }
        let features = self.kernel.features()?;
        if features & !self.offered != 0 || features & VERSION_1 == 0 {
            self.problem = Some(format!("the driver's features {features:#x} were refused"));
            return Ok(Answer::Failed);
        }
        if runs {
            self.features = features;
            self.set_kicks()?;
            self.phase = Phase::Waiting { agreed: false, tries: 0, resumes: false };
        }
        Ok(Answer::Done)
    }

    /// Counts of a life before this one are no kicks.
    fn set_kicks(&self) -> Result<(), Errno> {
        for (ring, kick) in self.kicks.iter().enumerate() {
            let _ = rustix::io::read(kick, &mut [0; 8]); // not there if nobody kicked
            self.kernel.set_kick(ring as u32, std::os::fd::AsFd::as_fd(kick))?;
        }
        Ok(())
    }

    fn position(&mut self, ring: u32, guest: &mut impl Guest) -> Result<Answer, Errno> {
        if ring as usize >= self.kicks.len() {
            return Ok(Answer::Failed);
        }
        let position = match guest.position(ring) {
            Some(base) if self.features & PACKED != 0 => Position::packed(base),
            Some(base) => Position::split(base as u16),
            None => self.kernel.ring(ring)?.position,
        };
        Ok(Answer::At { ring, position })
    }

    /// Whether the driver kicked any ring that does not run yet. The count stays for the lane.
    fn is_kicked(&self) -> bool {
        let mut fds: Vec<_> =
            self.kicks.iter().map(|kick| PollFd::new(kick, PollFlags::IN)).collect();
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Starts the rings, if all that they need is there.
    fn look(&mut self, guest: &mut impl Guest) -> Result<(), Errno> {
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
