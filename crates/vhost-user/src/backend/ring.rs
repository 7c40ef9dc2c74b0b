//! One ring: its settings, when it runs, and the requests about it.
//!
//! Specification: vhost-user.rst, "Ring states". The states here:
//!
//! ```text
//!             memory, size, addresses, kick or poll mode, enabled, log if it must log
//!   stopped  ----------------------------------------------------->  running
//!            <-----------------------------------------------------
//!              disabled, GET_VRING_BASE, RESET_*, status 0, no memory
//! ```
//!
//! The specification starts a ring at its first kick; here it starts when the kick descriptor
//! comes, which nobody can tell from a kick, and which poll mode needs anyway. A ring that is
//! disabled while it runs discards what the guest sends from then on; one that the guest receives
//! by stops. One that was not enabled yet waits: what a guest that comes from elsewhere has left
//! there is not to be lost where a front-end gives the kick first. So does one that must log its
//! writes while there is no log: QEMU starts rings of a guest that boots during its migration
//! before it sends the log.

use std::sync::Arc;

use rustix::fs::OFlags;
use zerocopy::IntoBytes;

use crate::features::{Features, ProtocolFeatures};
use crate::foreign::{EVENTFD, ForeignFd};
use crate::message::Message;
use crate::payload::{VRING_INDEX_MASK, VRING_LOG, VRING_NO_FD, VringAddr, VringState};

use super::device::{Device, RingLog, RingSetup};
use super::error::Reason;
use super::form::{Addresses, Form};
use super::shape::prefix;
use super::{Answer, Backend};

/// How the guest says that it made buffers available.
#[derive(Clone, Debug, Default)]
pub(super) enum Kick {
    /// Nothing was said: the ring is stopped.
    #[default]
    Unset,
    /// It does not: poll.
    Poll,
    /// By this descriptor.
    Fd(Arc<ForeignFd>),
}

/// Settings and state of one ring.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pub(super) size: Option<u16>,
    pub(super) addresses: Option<Addresses>,
    /// Guest address at which writes to the used ring are logged, if they are.
    pub(super) log: Option<u64>,
    /// Where to start, or where the ring stopped.
    pub(super) base: u32,
    pub(super) kick: Kick,
    pub(super) call: Option<Arc<ForeignFd>>,
    pub(super) err: Option<Arc<ForeignFd>>,
    pub(super) enabled: bool,
    /// Whether it runs although it is disabled, until its kick is set anew.
    pub(super) discards: bool,
    pub(super) running: bool,
    /// Whether it is to run again, for it was suspended while it did.
    pub(super) resumes: bool,
}

impl Ring {
    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    fn set_kick(&mut self, kick: Kick) {
        self.kick = kick;
        self.discards = false;
    }

    /// What is logged of this ring, if anything, with `buffers` if the session wants all.
    pub(super) fn logs(&self, buffers: bool) -> Option<RingLog> {
        (buffers || self.log.is_some()).then_some(RingLog { buffers, used: self.log })
    }

    /// What the device needs to run this ring, if all of it is there.
    fn setup(&self, features: u64, log: Option<RingLog>) -> Option<RingSetup> {
        let Addresses { desc, avail, used } = self.addresses?;
        let kick = match &self.kick {
            Kick::Unset => return None,
            Kick::Poll => None,
            Kick::Fd(fd) => Some(fd.clone()),
        };
        Some(RingSetup {
            size: self.size?,
            desc,
            avail,
            used,
            base: self.base,
            kick,
            call: self.call.clone(),
            err: self.err.clone(),
            features,
            log,
            enabled: self.enabled,
        })
    }
}

/// Which descriptor of a ring a request sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingFd {
    Kick,
    Call,
    Err,
}

impl Backend {
    pub(super) fn set_vring_num(
        &mut self,
        message: &Message,
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
        let VringState { index, num: size } = prefix(message)?;
        let form = Form::of(self.features);
        let ring = self.ring(index)?;
        let size = Some(form.check_size(index, size)?);
        if ring.running && ring.size != size {
            return Err(Reason::RingRuns { index });
        }
        ring.size = size;
        self.start(index as usize, device).map(|()| Answer::Done)
    }

    /// QEMU repeats the addresses while the ring runs, with and without the flag, as it switches
    /// the log on and off.
    pub(super) fn set_vring_addr(
        &mut self,
        message: &Message,
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
        let VringAddr { index, flags, desc, used, avail, log } = prefix(message)?;
        self.ring(index)?;
        if flags & !VRING_LOG != 0 {
            return Err(Reason::RingFlags { index, flags });
        }
        let log = (flags & VRING_LOG != 0).then_some(log);
        if log.is_some() {
            self.require(ProtocolFeatures::LOG_SHMFD)?;
        }
        let addresses = Addresses { desc, avail, used };
        Form::of(self.features).check_addresses(index, addresses)?;
        let addresses = Some(addresses);
        let index = index as usize;
        if self.rings[index].addresses != addresses {
            self.stop(index, device);
            self.rings[index].addresses = addresses;
        }
        let former = std::mem::replace(&mut self.rings[index].log, log);
        if former != log {
            self.renew(index, device);
        }
        let started = self.start(index, device);
        if former.is_some() {
            self.release_unused_log(device);
        }
        started.map(|()| Answer::Done)
    }

    pub(super) fn set_vring_base(&mut self, message: &Message) -> Result<Answer, Reason> {
        let VringState { index, num: base } = prefix(message)?;
        let form = Form::of(self.features);
        let ring = self.ring(index)?;
        form.check_base(index, base)?;
        if ring.running {
            return Err(Reason::RingRuns { index });
        }
        ring.base = base;
        Ok(Answer::Done)
    }

    /// Stops the ring: "the back-end must stop ring upon receiving `GET_VRING_BASE`". It starts
    /// again when a kick is set anew; the other settings stay.
    pub(super) fn get_vring_base(
        &mut self,
        message: &Message,
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
        let VringState { index, .. } = prefix(message)?;
        self.ring(index)?;
        self.stop(index as usize, device);
        device.clear_inflight(index as usize);
        let ring = &mut self.rings[index as usize];
        ring.set_kick(Kick::Unset);
        let num = ring.base;
        Ok(Answer::Reply(VringState { index, num }.as_bytes().to_vec()))
    }

    pub(super) fn set_vring_enable(
        &mut self,
        message: &Message,
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
        // QEMU enables rings before it sets features, so that the bit was offered must do.
        if self.offered_features() & Features::PROTOCOL_FEATURES.bits() == 0 {
            return Err(Reason::NotOffered);
        }
        let VringState { index, num } = prefix(message)?;
        self.ring(index)?;
        let enabled = match num {
            0 => false,
            1 => true,
            value => return Err(Reason::NotABoolean { index, value }),
        };
        self.enable(index as usize, enabled, device);
        self.start(index as usize, device).map(|()| Answer::Done)
    }

    pub(super) fn enable(&mut self, index: usize, enabled: bool, device: &mut impl Device) {
        let ring = &mut self.rings[index];
        if std::mem::replace(&mut ring.enabled, enabled) != enabled {
            ring.discards = !enabled && ring.running && device.discards(index);
            self.renew(index, device);
        }
    }

    pub(super) fn set_vring_fd(
        &mut self,
        which: RingFd,
        mut message: Message,
        device: &mut impl Device,
    ) -> Result<Answer, Reason> {
        let value: u64 = prefix(&message)?;
        let stray = value & !(VRING_INDEX_MASK | VRING_NO_FD);
        if stray != 0 {
            return Err(Reason::VringFdBits(stray));
        }
        let index = (value & VRING_INDEX_MASK) as usize;
        self.ring(index as u32)?;
        let fd = message.fds.pop().map(event).transpose()?;
        match which {
            RingFd::Kick => {
                self.stop(index, device);
                self.rings[index].set_kick(fd.map_or(Kick::Poll, Kick::Fd));
                return self.start(index, device).map(|()| Answer::Done);
            }
            RingFd::Call => {
                self.rings[index].call.clone_from(&fd);
                if self.rings[index].running {
                    device.set_call(index, fd);
                }
            }
            RingFd::Err => {
                self.rings[index].err.clone_from(&fd);
                if self.rings[index].running {
                    device.set_err(index, fd);
                }
            }
        }
        Ok(Answer::Done)
    }

    /// Starts a ring if it is stopped and all it needs is there.
    pub(super) fn start(&mut self, index: usize, device: &mut impl Device) -> Result<(), Reason> {
        if self.rings[index].running || self.slots.is_empty() {
            return Ok(());
        }
        let Some(setup) = self.setup(index) else {
            return Ok(());
        };
        // Features may have changed since each was set.
        let (form, at) = (Form::of(self.features), index as u32);
        form.check_size(at, setup.size.into())?;
        let RingSetup { desc, avail, used, .. } = setup;
        form.check_addresses(at, Addresses { desc, avail, used })?;
        form.check_base(at, setup.base)?;
        device.start_ring(index, &setup).map_err(Reason::Device)?;
        self.rings[index].running = true;
        Ok(())
    }

    /// What the device needs to run a ring, if all of it is there: a log, too, if it must log.
    fn setup(&self, index: usize) -> Option<RingSetup> {
        let ring = &self.rings[index];
        let log = ring.logs(self.logs_all());
        let setup = ring.setup(self.features, log)?;
        let may_run = ring.enabled || ring.discards;
        (may_run && (log.is_none() || self.has_log)).then_some(setup)
    }

    /// Lets a ring that runs go on with memory and log as they are now, or stops it if it cannot.
    /// It goes on when it can again: that is no fault of the request that takes something away.
    fn renew(&mut self, index: usize, device: &mut impl Device) {
        if !self.rings[index].running {
            return;
        }
        let setup = self.setup(index).filter(|_| !self.slots.is_empty());
        if setup.is_none_or(|setup| device.renew_ring(index, &setup).is_err()) {
            self.stop(index, device);
        }
    }

    pub(super) fn renew_all(&mut self, device: &mut impl Device) {
        for index in 0..self.rings.len() {
            self.renew(index, device);
        }
    }

    /// Stops a ring if it runs, and keeps where it stopped.
    pub(super) fn stop(&mut self, index: usize, device: &mut impl Device) {
        let ring = &mut self.rings[index];
        if ring.running {
            ring.base = device.stop_ring(index);
            ring.running = false;
        }
    }

    pub(super) fn stop_all(&mut self, device: &mut impl Device) {
        for index in 0..self.rings.len() {
            self.stop(index, device);
        }
    }

    /// Starts every ring that can run. One that is refused does not keep the others from it; the
    /// first refusal is returned.
    pub(super) fn start_all(&mut self, device: &mut impl Device) -> Result<(), Reason> {
        let mut result = Ok(());
        for index in 0..self.rings.len() {
            result = result.and(self.start(index, device));
        }
        result
    }

    /// Stops all rings so that each needs a new kick, as after `GET_VRING_BASE`.
    pub(super) fn quiesce(&mut self, device: &mut impl Device) {
        self.stop_all(device);
        for (index, ring) in self.rings.iter_mut().enumerate() {
            ring.set_kick(Kick::Unset);
            device.clear_inflight(index);
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut Ring, Reason> {
        let rings = self.rings.len();
        self.rings.get_mut(index as usize).ok_or(Reason::NoSuchRing { index, rings })
    }
}

/// Takes a descriptor as an event. It must be an eventfd: a write to a file, say one of a file
/// system in user space, could stall a lane for as long as the front-end likes, and so could a
/// pipe that is full. It is made non-blocking, as front-ends do themselves.
///
/// The flag is shared with the front-end, which can take it away again: whoever writes must be
/// prepared for that.
fn event(fd: ForeignFd) -> Result<Arc<ForeignFd>, Reason> {
    // Eventfds have no other mark: neither fstat nor any request to them tells them apart.
    let kind = fd.kind().map_err(|errno| Reason::UnknownFile { errno })?;
    if kind != EVENTFD {
        return Err(Reason::NotAnEvent { kind });
    }
    let flags = rustix::fs::fcntl_getfl(&fd);
    flags
        .and_then(|flags| rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK))
        .map_err(|errno| Reason::UnknownFile { errno })?;
    Ok(Arc::new(fd))
}
