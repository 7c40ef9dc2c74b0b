//! Transmit half: frames from the wire.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll;
use rustix::io::Errno;
use wire::virtio_net::OffloadSet;
use xdp::{Groups, Inbound, WakeResult};

use super::XdpShared;
use crate::burst::{Burst, NetHeader, Polled};
use crate::burst_buffers::BurstBuffers;
use crate::half::{Notification, Readiness, Transmit};
use crate::validate::{FRAME_MIN_TAGGED, FrameRules};

/// Receiving end of a socket, as a transmit half.
#[derive(Debug)]
pub(crate) struct FromWire {
    inbound: Inbound,
    device: Arc<XdpShared>,
    /// Set by the receive half when the kernel must be called again to send queued frames.
    unsent: Arc<AtomicBool>,
    groups: Option<GroupFrames>,
    /// Set if our calls poll the device.
    busy_poll: bool,
}

/// Copies of multicast frames, which the host also gets.
#[derive(Debug)]
struct GroupFrames {
    groups: Groups,
    /// Readable when the socket is, or the copies are.
    either: OwnedFd,
}

impl FromWire {
    pub(crate) fn new(
        inbound: Inbound,
        device: Arc<XdpShared>,
        unsent: Arc<AtomicBool>,
        busy_poll: bool,
    ) -> FromWire {
        FromWire { inbound, device, unsent, groups: None, busy_poll }
    }

    /// Also takes copies of multicast frames.
    pub(super) fn with_groups(mut self, groups: Groups) -> Result<FromWire, Errno> {
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&either, self.inbound.handle(), data, epoll::EventFlags::IN)?;
        epoll::add(&either, &groups, data, epoll::EventFlags::IN)?;
        self.groups = Some(GroupFrames { groups, either });
        Ok(self)
    }

    /// Takes frames off the ring, and multicast copies behind them; returns their number.
    #[inline]
    fn stage(&mut self) -> usize {
        let n = self.inbound.stage();
        match &mut self.groups {
            Some(GroupFrames { groups, .. }) if groups.has_backlog() => {
                let mut more = 0;
                let inbound = &mut self.inbound;
                while inbound.has_room()
                    && groups.next(|frame| more += usize::from(inbound.append(frame)))
                {
                }
                groups.release();
                n + more
            }
            _ => n,
        }
    }

    fn has_backlog(&mut self) -> bool {
        let copies = self.groups.as_ref().is_some_and(|copies| copies.groups.has_backlog());
        copies || self.inbound.has_backlog()
    }

    /// Wakes the kernel only if it needs that.
    #[inline]
    fn wake(&mut self, idle: bool) {
        if idle && self.busy_poll || self.inbound.needs_wakeup() {
            self.check_woken(self.inbound.handle().wake_rx());
        }
        if self.unsent.load(Ordering::Relaxed) {
            self.send();
        }
    }

    #[cold]
    fn send(&mut self) {
        // Cleared before the call: frames queued meanwhile set it again.
        self.unsent.store(false, Ordering::Relaxed);
        if self.check_woken(self.inbound.handle().wake_tx()) == Some(WakeResult::Again) {
            self.unsent.store(true, Ordering::Relaxed);
        }
    }

    fn check_woken(&self, woken: Result<WakeResult, Errno>) -> Option<WakeResult> {
        woken.map_err(|errno| self.device.health.lose(errno)).ok()
    }

    /// Validates the frames one by one. A frame longer than the interface's MTU is not from a wire:
    /// a virtual interface passed it on unsegmented and without a checksum.
    #[cold]
    fn validate(&self, polled: &mut Polled, buffers: &mut BurstBuffers, frame_bytes_max: u32) {
        let rules = FrameRules { frame_bytes_max, leaves: OffloadSet::empty() };
        let (frames, _) = self.inbound.buffers();
        for (i, frame) in frames.iter().enumerate() {
            let header = &buffers.headers[i];
            let valid = rules.validate((header, frame.len), NetHeader::PLAIN, polled);
            buffers.note_valid(i, valid);
        }
    }
}

impl Transmit for FromWire {
    fn poll(&mut self, buffers: &mut BurstBuffers) -> Polled {
        buffers.begin();
        if self.device.health.is_lost() {
            return Polled::default();
        }
        let n = self.stage();
        self.wake(n == 0);
        let mut polled = Polled { frames: n as u32, ..Polled::default() };
        if n == 0 {
            self.inbound.give_back(); // returns malformed descriptors
            return polled;
        }
        let (frames, arena) = self.inbound.buffers();
        let mut odd = false;
        let mut longest = 0;
        for (frame, header) in frames.iter().zip(buffers.headers.iter_mut()) {
            polled.bytes += u64::from(frame.len);
            longest = longest.max(frame.len);
            if frame.first.len() >= FRAME_MIN_TAGGED {
                *header = frame.first.read_header();
            } else {
                *header = [0; 16];
                frame.read_bytes(arena, 0, header);
                odd = true;
            }
        }
        let frame_bytes_max = self.device.frame_bytes_max.load(Ordering::Relaxed);
        if odd || longest > frame_bytes_max {
            self.validate(&mut polled, buffers, frame_bytes_max);
        }
        polled.backlog = self.has_backlog();
        polled
    }

    fn burst<'a>(&'a self, buffers: &'a BurstBuffers) -> Burst<'a> {
        let (frames, arena) = self.inbound.buffers();
        buffers.burst(frames, arena)
    }

    fn complete(&mut self) -> Notification {
        self.inbound.give_back();
        if !self.inbound.needs_wakeup() {
            return Notification::Unneeded;
        }
        self.check_woken(self.inbound.handle().wake_rx());
        Notification::Sent
    }

    /// The socket always signals new frames.
    fn enable_notification(&mut self) -> Readiness {
        if self.device.health.is_lost() {
            return Readiness::Empty;
        }
        self.wake(true);
        Readiness::ready(self.unsent.load(Ordering::Relaxed) || self.has_backlog())
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        match &self.groups {
            Some(copies) => Some(copies.either.as_fd()),
            None => Some(self.inbound.handle().as_fd()),
        }
    }

    fn frame_rules(&self) -> FrameRules {
        let frame_bytes_max = self.device.frame_bytes_max.load(Ordering::Relaxed);
        FrameRules { frame_bytes_max, leaves: OffloadSet::empty() }
    }
}
