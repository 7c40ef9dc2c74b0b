//! Direct placement: the device or the kernel places frames in a guest's receive buffers. This is
//! the half that a lane polls.
//!
//! # Model
//! The guest's memory is the UMEM of the queue's socket. A poll takes available buffers off the
//! guest's receive ring and posts them to the socket, in order. It also finds frames in the oldest
//! posted buffers, writes the virtio-net header in front of each, and marks the buffers as used. No
//! byte of a frame is touched. A buffer that is posted and not used is still available in the ring,
//! so a later owner of the ring loses nothing.
//!
//! # Limits
//! Each buffer must be contiguous, large enough for the longest frame, and inside the chosen memory
//! region, with a margin to its ends ([`DirectError`]). The first other buffer ends the use of the
//! queue: the buffers before it must be used first, and only this half can use them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use guestmem::Ticket;
use rustix::event::epoll;
use rustix::io::Errno;
use virtq::{BURST, DeviceQueue, Position};
use xdp::{BufferError, Placer, SocketHandle};

use super::DirectQueue;
use super::XdpShared;
use crate::burst::{Burst, NetHeader, Placed, Polled};
use crate::burst_buffers::BurstBuffers;
use crate::half::{GuestRing, Notification, Readiness, Transmit};
use crate::validate::FrameRules;
use crate::virtio_net::{HEADER_LEN, RingEvents};

/// A header without an offload, for one buffer.
const ONE_BUFFER: [u8; HEADER_LEN as usize] = NetHeader::PLAIN.to_bytes();

/// Number of final polls for frames in flight when a queue is released, and the time between.
const FINAL_POLLS: u32 = 2;
const FINAL_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Status of direct placement, as control sees it.
#[derive(Debug, Default)]
pub struct DirectStatus(OnceLock<DirectError>);

/// Reason for which direct placement ended, or is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectError {
    /// Buffers consist of several descriptors.
    #[error("the guest's receive buffers consist of several descriptors")]
    Pieces,
    /// Buffers are too small.
    #[error("the guest's receive buffers have {has} bytes; {need} are required")]
    TooSmall {
        /// Bytes of a buffer.
        has: u32,
        /// Bytes required.
        need: u32,
    },
    /// Buffers are outside the largest memory region.
    #[error("a receive buffer of the guest is outside its largest memory region")]
    Elsewhere,
    /// A buffer is too close to an end of the region.
    #[error("a receive buffer of the guest is too close to an end of its memory")]
    AtEdge,
    /// The device used buffers out of order, or the guest changed the ring.
    #[error("the device used the guest's receive buffers out of order")]
    Disorder,
    /// The guest broke the ring.
    #[error("the guest broke its receive ring")]
    Fault,
    /// The interface failed.
    #[error("the uplink's interface was lost")]
    Lost,
    /// The guest uses the legacy header; only headers of 12 bytes are written.
    #[error("the guest has a legacy virtio driver (before 1.0)")]
    Legacy,
    /// Frames are longer than a chunk.
    #[error("frames of {frame} bytes exceed a chunk's {most}; set a smaller MTU")]
    TooLong {
        /// Bytes of the longest frame.
        frame: u32,
        /// Bytes of the longest frame that can be placed.
        most: u32,
    },
    /// The memory is too large: sharing takes time and kernel memory in proportion to its size.
    #[error("the guest's memory of {has} GiB exceeds the {most} GiB that can be shared")]
    TooLarge {
        /// GiB.
        has: u64,
        /// GiB.
        most: u64,
    },
    /// Too little free memory: the kernel pins all of the memory, including untouched pages.
    #[error(
        "sharing the guest's memory needs {need} MiB, and {free} MiB are free; preallocate it in the \
         VMM (QEMU: prealloc=on)"
    )]
    Sparse {
        /// MiB.
        need: u64,
        /// MiB.
        free: u64,
    },
    /// No memory region can be shared.
    #[error("no region of the guest's memory begins with a page")]
    Memory,
}

impl DirectStatus {
    /// Reason for which placement ended, if it did.
    pub fn ended(&self) -> Option<DirectError> {
        self.0.get().copied()
    }

    /// Sets the reason; the first one stays.
    fn end(&self, why: DirectError) {
        // A second failure follows from the first.
        let _ = self.0.set(why);
    }
}

/// A guest's receive ring whose buffers a device fills.
#[derive(Debug)]
pub(crate) struct DirectRing {
    queue: DeviceQueue,
    events: RingEvents,
    /// `None` after a stop.
    placer: Option<Placer>,
    /// Tickets of the posted buffers, in order: the ring's reference to each.
    tickets: VecDeque<Ticket>,
    device: Arc<XdpShared>,
    /// Queue of the interface; `None` in tests.
    interface_queue: Option<DirectQueue>,
    direct: Arc<DirectStatus>,
    /// Readable when the socket is, or after a kick.
    either: OwnedFd,
}

impl DirectRing {
    pub(crate) fn new(
        (queue, events): (DeviceQueue, RingEvents),
        placer: Placer,
        device: Arc<XdpShared>,
        interface_queue: Option<DirectQueue>,
    ) -> Result<DirectRing, Errno> {
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&either, placer.handle(), data, epoll::EventFlags::IN)?;
        if let Some(kick) = &events.kick {
            epoll::add(&either, kick, data, epoll::EventFlags::IN)?;
        }
        let (placer, tickets) = (Some(placer), VecDeque::with_capacity(queue.size().into()));
        let direct = Arc::default();
        Ok(DirectRing { queue, events, placer, tickets, device, interface_queue, direct, either })
    }

    pub(crate) fn direct(&self) -> &Arc<DirectStatus> {
        &self.direct
    }

    /// The socket, before it is closed.
    pub(super) fn socket(&self) -> Option<&SocketHandle> {
        self.placer.as_ref().map(|placer| &**placer.handle())
    }

    /// Posts available buffers of the guest, as far as the socket has room.
    pub(crate) fn post(&mut self) {
        let Some(placer) = &mut self.placer else { return };
        while placer.room() > 0 {
            let n = self.queue.stage(placer.room().min(BURST));
            if n == 0 {
                break;
            }
            let mut posted = 0;
            for buffer in &self.queue.buffers().0[..n.min(placer.room())] {
                let fit = match buffer.rest_len {
                    0 => placer.post(buffer.first).map_err(|error| ended(error, buffer.len)),
                    _ => Err(DirectError::Pieces),
                };
                if let Err(why) = fit {
                    self.direct.end(why);
                    break;
                }
                self.tickets.push_back(buffer.ticket);
                posted += 1;
            }
            self.queue.set_aside(posted);
            if posted < n {
                break;
            }
        }
        placer.submit();
    }

    /// Marks buffers with frames as used, up to a burst.
    fn collect_used(&mut self) -> Placed {
        let mut placed = Placed::default();
        let Some(placer) = &mut self.placer else { return placed };
        while placed.frames < BURST as u32 {
            match (placer.take(), self.tickets.front()) {
                (Ok(None), _) => break,
                (Ok(Some((buffer, len))), Some(ticket)) => {
                    buffer.write(0, ONE_BUFFER);
                    self.queue.add_used_set_aside(*ticket, HEADER_LEN + len);
                    placed.frames += 1;
                    placed.bytes += u64::from(len);
                }
                _ => {
                    self.direct.end(DirectError::Disorder);
                    break;
                }
            }
            self.tickets.pop_front();
        }
        if placed.frames > 0 {
            placer.release();
            placed.notified = self.queue.publish() && self.events.notify();
        }
        placed
    }

    /// Wakes the kernel if it needs that; detects a removed interface.
    #[inline]
    fn wake(&mut self) {
        let Some(placer) = &self.placer else { return };
        if placer.needs_wakeup()
            && let Err(errno) = placer.handle().wake_rx()
        {
            self.device.health.lose(errno);
        }
    }

    /// Returns `true` if placement has ended; records a lost interface.
    fn is_over(&self) -> bool {
        if self.device.health.is_lost() {
            self.direct.end(DirectError::Lost);
        }
        self.direct.0.get().is_some()
    }

    /// Leaves the queue's frames to the host, delivers those in flight, and releases the guest's
    /// memory. After this returns, nothing writes there on our behalf.
    fn close(&mut self) {
        if self.placer.is_none() {
            return;
        }
        if let Some(interface_queue) = &self.interface_queue {
            interface_queue.leave(&self.device);
        }
        if self.direct.ended() != Some(DirectError::Disorder) {
            for _ in 0..FINAL_POLLS {
                while self.collect_used().frames > 0 {}
                std::thread::sleep(FINAL_POLL_INTERVAL);
            }
        }
        let zero_copy = self.placer.take().is_some_and(|placer| placer.handle().is_zero_copy());
        if let Some(interface_queue) = self.interface_queue.as_ref().filter(|_| zero_copy) {
            interface_queue.await_device();
        }
    }
}

/// Reason for which a buffer of `has` bytes ends placement.
fn ended(error: BufferError, has: u32) -> DirectError {
    match error {
        BufferError::Elsewhere => DirectError::Elsewhere,
        BufferError::AtEdge => DirectError::AtEdge,
        BufferError::TooSmall(need) => DirectError::TooSmall { has, need },
    }
}

impl Drop for DirectRing {
    fn drop(&mut self) {
        self.close();
    }
}

impl Transmit for DirectRing {
    fn poll(&mut self, buffers: &mut BurstBuffers) -> Polled {
        buffers.begin();
        let mut polled = Polled { placed: Some(Placed::default()), ..Polled::default() };
        if self.is_over() {
            return polled;
        }
        let placed = self.collect_used();
        self.post();
        self.wake();
        if let Some(fault) = self.queue.fault() {
            self.direct.end(DirectError::Fault);
            polled.fault = Some(fault);
        }
        let backlog = self.placer.as_mut().is_some_and(Placer::has_backlog);
        Polled { backlog, placed: Some(placed), ..polled }
    }

    fn burst<'a>(&'a self, buffers: &'a BurstBuffers) -> Burst<'a> {
        buffers.burst(&[], &[])
    }

    fn complete(&mut self) -> Notification {
        Notification::Unneeded
    }

    /// While buffers are posted, the first frame wakes the lane. With none posted there can be no
    /// frame, and the guest must kick when it adds a buffer.
    fn enable_notification(&mut self) -> Readiness {
        if self.is_over() {
            return Readiness::Empty;
        }
        self.wake();
        let Some(placer) = &mut self.placer else { return Readiness::Empty };
        let is_ready =
            placer.has_backlog() || placer.room() > 0 && self.queue.enable_notification();
        Readiness::ready(is_ready)
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        Some(self.either.as_fd())
    }

    fn guest_ring(&mut self) -> Option<&mut dyn GuestRing> {
        Some(self)
    }

    /// It takes no frames.
    fn frame_rules(&self) -> FrameRules {
        FrameRules::LARGEST
    }
}

impl GuestRing for DirectRing {
    fn events(&mut self) -> &mut RingEvents {
        &mut self.events
    }

    fn disable_notification(&mut self) {
        self.queue.disable_notification();
    }

    fn stop(&mut self) -> Position {
        self.close();
        self.queue.position()
    }
}
