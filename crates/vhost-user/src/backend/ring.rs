//! One ring: its settings, its state, and the requests on it.
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
//! The specification starts a ring at its first kick. Here it starts when the kick descriptor
//! arrives: the front-end cannot see the difference, and poll mode requires it anyway. A Tx ring of
//! the guest that is disabled while it runs discards frames; an Rx ring stops. A ring that was
//! never enabled waits: otherwise frames from before a migration would be discarded if the
//! front-end sends the kick first. A ring that must log its writes waits for the log: QEMU starts
//! the rings of a guest that boots during its migration before it sends the log.

use std::sync::Arc;

use rustix::fs::OFlags;
use zerocopy::IntoBytes;

use crate::features::{Features, ProtocolFeatures};
use crate::foreign::{EVENTFD, ForeignFd};
use crate::message::Message;
use crate::payload::{VRING_INDEX_MASK, VRING_LOG, VRING_NO_FD, VringAddr, VringState};

use super::device::{BackendDevice, RingLog, RingSetup};
use super::error::Reason;
use super::format::prefix;
use super::layout::{Addresses, RingLayout};
use super::{Backend, Reply};

/// Notification of available buffers by the guest.
#[derive(Clone, Debug, Default)]
pub(super) enum Kick {
    /// Not set: the ring is stopped.
    #[default]
    Unset,
    /// None: poll the ring.
    Poll,
    /// This eventfd.
    Fd(Arc<ForeignFd>),
}

/// Settings and state of one ring.
#[derive(Debug, Default)]
pub(super) struct RingState {
    pub(super) size: Option<u16>,
    pub(super) addresses: Option<Addresses>,
    /// Guest address for logged writes to the used ring, if they are logged.
    pub(super) log: Option<u64>,
    /// Start position, or position of the last stop.
    pub(super) base: u32,
    pub(super) kick: Kick,
    pub(super) call: Option<Arc<ForeignFd>>,
    pub(super) err: Option<Arc<ForeignFd>>,
    pub(super) enabled: bool,
    /// `true` if it runs although it is disabled, until its kick is set again.
    pub(super) discards: bool,
    pub(super) running: bool,
    /// `true` if it ran when it was suspended, and is to run again.
    pub(super) resumes: bool,
}

impl RingState {
    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    fn set_kick(&mut self, kick: Kick) {
        self.kick = kick;
        self.discards = false;
    }

    /// Logging of this ring, if any; `buffers` if the session logs all writes.
    pub(super) fn logs(&self, buffers: bool) -> Option<RingLog> {
        (buffers || self.log.is_some()).then_some(RingLog { buffers, used: self.log })
    }

    /// Settings for the device, if they are complete.
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

/// Descriptor of a ring that a request sets.
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
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        let VringState { index, num: size } = prefix(message)?;
        let form = RingLayout::of(self.features);
        let ring = self.ring(index)?;
        let size = Some(form.check_size(index, size)?);
        if ring.running && ring.size != size {
            return Err(Reason::RingRuns { index });
        }
        ring.size = size;
        self.start(index as usize, device).map(|()| Reply::Done)
    }

    /// QEMU repeats the addresses while the ring runs, with and without the flag, to switch the log
    /// on and off.
    pub(super) fn set_vring_addr(
        &mut self,
        message: &Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
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
        RingLayout::of(self.features).check_addresses(index, addresses)?;
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
        started.map(|()| Reply::Done)
    }

    pub(super) fn set_vring_base(&mut self, message: &Message) -> Result<Reply, Reason> {
        let VringState { index, num: base } = prefix(message)?;
        let form = RingLayout::of(self.features);
        let ring = self.ring(index)?;
        form.check_base(index, base)?;
        if ring.running {
            return Err(Reason::RingRuns { index });
        }
        ring.base = base;
        Ok(Reply::Done)
    }

    /// Stops the ring: "the back-end must stop ring upon receiving `GET_VRING_BASE`". It starts
    /// again when a kick is set; the other settings stay.
    pub(super) fn get_vring_base(
        &mut self,
        message: &Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        let VringState { index, .. } = prefix(message)?;
        self.ring(index)?;
        self.stop(index as usize, device);
        device.clear_inflight(index as usize);
        let ring = &mut self.rings[index as usize];
        ring.set_kick(Kick::Unset);
        let num = ring.base;
        Ok(Reply::Payload(VringState { index, num }.as_bytes().to_vec()))
    }

    pub(super) fn set_vring_enable(
        &mut self,
        message: &Message,
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
        // QEMU enables rings before it sets features, so the offer of the bit must suffice.
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
        self.start(index as usize, device).map(|()| Reply::Done)
    }

    pub(super) fn enable(&mut self, index: usize, enabled: bool, device: &mut impl BackendDevice) {
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
        device: &mut impl BackendDevice,
    ) -> Result<Reply, Reason> {
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
                return self.start(index, device).map(|()| Reply::Done);
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
        Ok(Reply::Done)
    }

    /// Starts a ring if it is stopped and its settings are complete.
    pub(super) fn start(
        &mut self,
        index: usize,
        device: &mut impl BackendDevice,
    ) -> Result<(), Reason> {
        if self.rings[index].running || self.slots.is_empty() {
            return Ok(());
        }
        let Some(setup) = self.setup(index) else {
            return Ok(());
        };
        // Features may have changed since each setting.
        let (form, at) = (RingLayout::of(self.features), index as u32);
        form.check_size(at, setup.size.into())?;
        let RingSetup { desc, avail, used, .. } = setup;
        form.check_addresses(at, Addresses { desc, avail, used })?;
        form.check_base(at, setup.base)?;
        device.start_ring(index, &setup).map_err(Reason::Device)?;
        self.rings[index].running = true;
        Ok(())
    }

    /// Settings for the device, if they are complete: including the log, if it must log.
    fn setup(&self, index: usize) -> Option<RingSetup> {
        let ring = &self.rings[index];
        let log = ring.logs(self.logs_all());
        let setup = ring.setup(self.features, log)?;
        let may_run = ring.enabled || ring.discards;
        (may_run && (log.is_none() || self.has_log)).then_some(setup)
    }

    /// Applies current memory and log to a running ring, or stops it if that fails. It starts again
    /// when it can. A request that removes memory or log does not fail for that.
    fn renew(&mut self, index: usize, device: &mut impl BackendDevice) {
        if !self.rings[index].running {
            return;
        }
        let setup = self.setup(index).filter(|_| !self.slots.is_empty());
        if setup.is_none_or(|setup| device.renew_ring(index, &setup).is_err()) {
            self.stop(index, device);
        }
    }

    pub(super) fn renew_all(&mut self, device: &mut impl BackendDevice) {
        for index in 0..self.rings.len() {
            self.renew(index, device);
        }
    }

    /// Stops a ring if it runs, and records its position.
    pub(super) fn stop(&mut self, index: usize, device: &mut impl BackendDevice) {
        let ring = &mut self.rings[index];
        if ring.running {
            ring.base = device.stop_ring(index);
            ring.running = false;
        }
    }

    pub(super) fn stop_all(&mut self, device: &mut impl BackendDevice) {
        for index in 0..self.rings.len() {
            self.stop(index, device);
        }
    }

    /// Starts every ring that can run. A refusal of one does not affect the others; the first
    /// refusal is returned.
    pub(super) fn start_all(&mut self, device: &mut impl BackendDevice) -> Result<(), Reason> {
        let mut result = Ok(());
        for index in 0..self.rings.len() {
            result = result.and(self.start(index, device));
        }
        result
    }

    /// Stops all rings so that each needs a new kick, as after `GET_VRING_BASE`.
    pub(super) fn quiesce(&mut self, device: &mut impl BackendDevice) {
        self.stop_all(device);
        for (index, ring) in self.rings.iter_mut().enumerate() {
            ring.set_kick(Kick::Unset);
            device.clear_inflight(index);
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut RingState, Reason> {
        let rings = self.rings.len();
        self.rings.get_mut(index as usize).ok_or(Reason::NoSuchRing { index, rings })
    }
}

/// Accepts a descriptor as an event. It must be an eventfd: a write to another file, such as one
/// in a user-space file system or a full pipe, could stall a lane for as long as the front-end
/// likes. It is made non-blocking, as front-ends do themselves.
///
/// The front-end shares the flag and can clear it: a write may still wait.
fn event(fd: ForeignFd) -> Result<Arc<ForeignFd>, Reason> {
    // Only this name identifies an eventfd: neither fstat nor any ioctl does.
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
