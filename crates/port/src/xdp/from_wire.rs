//! Frames from the wire: the transmit half.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll;
use rustix::io::Errno;
use wire::virtio_net::Accepts;
use xdp::{Groups, Inbound, Woken};

use super::Device;
use crate::burst::{BURST, Burst, BurstBuffers, DeepHead, Head, Polled, snapshot_headers};
use crate::judge::{FRAME_MIN_TAGGED, Rules};
use crate::{Offload, Transmit};

/// The receiving end of a socket, as a transmit half.
#[derive(Debug)]
pub(crate) struct FromWire {
    inbound: Inbound,
    device: Arc<Device>,
    /// Set by the other half when the kernel has to be called again to send what is queued.
    unsent: Arc<AtomicBool>,
    groups: Option<GroupFrames>,
    /// Whether the device is polled by our calls.
    busy_poll: bool,
    malformed: u64,
    heads: Box<[Head; BURST]>,
    /// Lent by the lane.
    deep: Vec<DeepHead>,
    is_deep: bool,
}

/// Copies of frames to groups, which the host gets as well.
#[derive(Debug)]
struct GroupFrames {
    groups: Groups,
    /// Readable when the socket is, or the copies are.
    either: OwnedFd,
}

impl FromWire {
    pub(crate) fn new(
        inbound: Inbound,
        device: Arc<Device>,
        unsent: Arc<AtomicBool>,
        busy_poll: bool,
    ) -> FromWire {
        FromWire {
            inbound,
            device,
            unsent,
            groups: None,
            busy_poll,
            malformed: 0,
            heads: Box::new([[0; 16]; BURST]),
            deep: Vec::new(),
            is_deep: false,
        }
    }

    /// Also takes the copies of frames to groups.
    pub(super) fn with_groups(mut self, groups: Groups) -> Result<FromWire, Errno> {
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&either, self.inbound.handle(), data, epoll::EventFlags::IN)?;
        epoll::add(&either, &groups, data, epoll::EventFlags::IN)?;
        self.groups = Some(GroupFrames { groups, either });
        Ok(self)
    }

    /// Takes frames off the ring, and copies behind them; says how many.
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

    /// Calls the kernel where it waits for that, and only then.
    #[inline]
    fn wake(&mut self, idle: bool) {
        if idle && self.busy_poll || self.inbound.needs_wakeup() {
            self.heed(self.inbound.handle().wake_rx());
        }
        if self.unsent.load(Ordering::Relaxed) {
            self.send();
        }
    }

    #[cold]
    fn send(&mut self) {
        // Taken before the call: what the other half queues meanwhile sets it again.
        self.unsent.store(false, Ordering::Relaxed);
        if self.heed(self.inbound.handle().wake_tx()) == Some(Woken::Again) {
            self.unsent.store(true, Ordering::Relaxed);
        }
    }

    fn heed(&self, woken: Result<Woken, Errno>) -> Option<Woken> {
        woken.map_err(|errno| self.device.condition.lose(errno)).ok()
    }

    /// Judges the frames one by one. What is longer than the interface sends is not of a wire: a
    /// virtual interface handed it over with its segments and its checksum left to be made.
    #[cold]
    fn judge(&mut self, polled: &mut Polled, frame_bytes_max: u32) {
        let rules = Rules { frame_bytes_max, leaves: Accepts::empty() };
        let (frames, _) = self.inbound.buffers();
        for (i, (frame, head)) in frames.iter().zip(self.heads.iter()).enumerate() {
            let judged = rules.judge((head, frame.len), Offload::PLAIN, polled);
            self.malformed |= u64::from(judged.is_none()) << i;
        }
    }
}

impl Transmit for FromWire {
    fn swap(&mut self, area: &mut BurstBuffers) {
        std::mem::swap(&mut self.heads, &mut area.heads);
        std::mem::swap(&mut self.deep, &mut area.deep);
        self.is_deep = false;
    }

    fn poll(&mut self) -> Polled {
        self.malformed = 0;
        self.is_deep = false;
        if self.device.condition.is_lost() {
            return Polled::default();
        }
        let n = self.stage();
        self.wake(n == 0);
        let mut polled = Polled { frames: n as u32, ..Polled::default() };
        if n == 0 {
            self.inbound.give_back(); // of what was broken
            return polled;
        }
        let (frames, arena) = self.inbound.buffers();
        let mut odd = false;
        let mut longest = 0;
        for (frame, head) in frames.iter().zip(self.heads.iter_mut()) {
            polled.bytes += u64::from(frame.len);
            longest = longest.max(frame.len);
            if frame.first.len() >= FRAME_MIN_TAGGED {
                *head = frame.first.read_head();
            } else {
                *head = [0; 16];
                frame.read_bytes(arena, 0, head);
                odd = true;
            }
        }
        let frame_bytes_max = self.device.frame_bytes_max.load(Ordering::Relaxed);
        if odd || longest > frame_bytes_max {
            self.judge(&mut polled, frame_bytes_max);
        }
        polled.backlog = self.has_backlog();
        polled
    }

    fn snapshot_headers(&mut self) {
        if self.is_deep {
            return;
        }
        let (frames, arena) = self.inbound.buffers();
        snapshot_headers(&mut self.deep, &self.heads[..], frames, arena);
        self.is_deep = true;
    }

    fn burst(&self) -> Burst<'_> {
        let (frames, arena) = self.inbound.buffers();
        let heads = &self.heads[..frames.len()];
        let deep = if self.is_deep { &self.deep[..frames.len()] } else { &[] };
        Burst { heads, deep, frames, arena, offloads: &[], malformed: self.malformed }
    }

    fn complete(&mut self) -> bool {
        self.inbound.give_back();
        let wakes = self.inbound.needs_wakeup();
        if wakes {
            self.heed(self.inbound.handle().wake_rx());
        }
        wakes
    }

    /// The socket is always ready to say that a frame came.
    fn enable_notification(&mut self) -> bool {
        if self.device.condition.is_lost() {
            return false;
        }
        self.wake(true);
        self.unsent.load(Ordering::Relaxed) || self.has_backlog()
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        match &self.groups {
            Some(copies) => Some(copies.either.as_fd()),
            None => Some(self.inbound.handle().as_fd()),
        }
    }
}
