//! Frames placed in a guest's receive buffers by the device, or by the kernel: the half that a lane
//! polls.
//!
//! # Model
//! The guest's memory is the memory of the queue's socket. A poll takes buffers that the guest made
//! available off its receive ring and posts them, in order; and it finds frames in the oldest
//! posted ones, writes the virtio-net header in front of each, and uses them. No byte of a frame is
//! touched. What is posted and not used is still available by the ring's own account, so that a
//! later owner of the ring loses nothing.
//!
//! # Limits
//! Each buffer must be in one piece, large enough for the longest frame, and in the one region of
//! memory that was chosen, not too near to its ends ([`Over`]). The first that is not ends the use
//! of the queue: what is in front of it must be used first, and nobody else can.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use guestmem::Ticket;
use rustix::event::epoll;
use rustix::io::Errno;
use vhost_user::ForeignFd;
use virtq::{BURST, DeviceQueue, Position};
use xdp::{Handle, Placer, Unfit};

use super::Device;
use super::Place;
use crate::Transmit;
use crate::burst::{Burst, BurstBuffers, Offload, Placed, Polled};
use crate::virtio_net::{Events, HEADER_LEN};

/// A header that leaves nothing to be done, for one buffer.
const ONE_BUFFER: [u8; HEADER_LEN as usize] = Offload::PLAIN.to_bytes();

/// How often, and how long apart, it is looked for frames that were on their way when a queue was
/// left to others.
const LAST_LOOKS: u32 = 2;
const LAST_LOOKS_APART: Duration = Duration::from_millis(1);

/// Whether frames are placed in a guest's buffers, as control sees it.
#[derive(Debug, Default)]
pub struct Direct(OnceLock<Over>);

/// Why no frames are placed in a guest's buffers any more, or cannot be at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// Buffers of several descriptors.
    #[error("the guest's receive buffers are in several pieces")]
    Pieces,
    /// Buffers that are too small.
    #[error("the guest's receive buffers have {has} bytes, and need {need}")]
    TooSmall {
        /// Bytes of one.
        has: u32,
        /// Bytes that each must have.
        need: u32,
    },
    /// Buffers in a region of memory that is not the largest.
    #[error("the guest's receive buffers are in several regions of its memory")]
    Elsewhere,
    /// Buffers at the end of the region.
    #[error("a receive buffer of the guest's is too near to an end of its memory")]
    AtEdge,
    /// The device uses buffers in another order, or the guest changed the ring.
    #[error("the device did not use the guest's receive buffers in order")]
    Disorder,
    /// The guest broke the ring.
    #[error("the guest broke its receive ring")]
    Fault,
    /// The interface failed.
    #[error("the uplink's interface was lost")]
    Lost,
    /// Only headers of 12 bytes are written.
    #[error("the guest's driver is of a version before 1.0 of virtio")]
    Legacy,
    /// Frames are longer than a chunk takes.
    #[error("frames of {frame} bytes are longer than a chunk takes, {most}; set a smaller MTU")]
    TooLong {
        /// Bytes of the longest frame.
        frame: u32,
        /// Bytes of the longest that can be placed.
        most: u32,
    },
    /// Sharing a memory takes the caller's time, and the kernel's memory, in proportion to its
    /// size.
    #[error("the guest's memory of {has} GiB is larger than the {most} GiB that can be shared")]
    TooLarge {
        /// GiB.
        has: u64,
        /// GiB.
        most: u64,
    },
    /// The kernel pins all of the memory, which takes what the guest has not touched yet.
    #[error(
        "to share the guest's memory would take {need} MiB more, and {free} MiB are free; have its VMM \
         allocate it at once (QEMU: prealloc=on)"
    )]
    Sparse {
        /// MiB.
        need: u64,
        /// MiB.
        free: u64,
    },
    /// No region of the memory can be shared.
    #[error("no region of the guest's memory begins with a page")]
    Memory,
}

impl Direct {
    /// Why it is over, if it is.
    pub fn over(&self) -> Option<Over> {
        self.0.get().copied()
    }

    /// The first reason stays.
    fn end(&self, why: Over) {
        // Whoever comes second tells the same story.
        let _ = self.0.set(why);
    }
}

/// A guest's receive ring whose buffers a device fills.
#[derive(Debug)]
pub(crate) struct Placing {
    queue: DeviceQueue,
    events: Events,
    /// None once it was stopped.
    placer: Option<Placer>,
    /// How the ring knows the buffers that are posted, in order.
    tickets: VecDeque<Ticket>,
    device: Arc<Device>,
    /// The queue that fills it; none in tests.
    place: Option<Place>,
    direct: Arc<Direct>,
    /// Readable when the socket is, or the guest kicked.
    either: OwnedFd,
}

impl Placing {
    pub(crate) fn new(
        (queue, events): (DeviceQueue, Events),
        placer: Placer,
        device: Arc<Device>,
        place: Option<Place>,
    ) -> Result<Placing, Errno> {
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&either, placer.handle(), data, epoll::EventFlags::IN)?;
        if let Some(kick) = &events.kick {
            epoll::add(&either, kick, data, epoll::EventFlags::IN)?;
        }
        let (placer, tickets) = (Some(placer), VecDeque::with_capacity(queue.size().into()));
        let direct = Arc::default();
        Ok(Placing { queue, events, placer, tickets, device, place, direct, either })
    }

    pub(crate) fn direct(&self) -> &Arc<Direct> {
        &self.direct
    }

    /// The socket, until it is closed.
    pub(super) fn socket(&self) -> Option<&Handle> {
        self.placer.as_ref().map(|placer| &**placer.handle())
    }

    /// Posts what the guest has made available, as far as there is room.
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
                    0 => placer.post(buffer.first).map_err(|unfit| over(unfit, buffer.len)),
                    _ => Err(Over::Pieces),
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

    /// Uses the buffers in which frames are, a burst at most.
    fn find(&mut self) -> Placed {
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
                    self.direct.end(Over::Disorder);
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

    /// Calls the kernel where it waits for that; also learns from it that the interface is gone.
    #[inline]
    fn wake(&mut self) {
        let Some(placer) = &self.placer else { return };
        if placer.needs_wakeup()
            && let Err(errno) = placer.handle().wake_rx()
        {
            self.device.condition.lose(errno);
        }
    }

    /// Whether it still works; if not, why.
    fn is_over(&self) -> bool {
        if self.device.condition.is_lost() {
            self.direct.end(Over::Lost);
        }
        self.direct.0.get().is_some()
    }

    /// Leaves the queue's frames to the host, uses what is on its way, and gives the guest's memory
    /// back: when this returns, nobody writes there any more on our behalf.
    fn close(&mut self) {
        if self.placer.is_none() {
            return;
        }
        if let Some(place) = &self.place {
            place.leave(&self.device);
        }
        if self.direct.over() != Some(Over::Disorder) {
            for _ in 0..LAST_LOOKS {
                while self.find().frames > 0 {}
                std::thread::sleep(LAST_LOOKS_APART);
            }
        }
        let zero_copy = self.placer.take().is_some_and(|placer| placer.handle().is_zero_copy());
        if let Some(place) = self.place.as_ref().filter(|_| zero_copy) {
            place.await_device();
        }
    }
}

/// Why a buffer of `has` bytes ends it.
fn over(unfit: Unfit, has: u32) -> Over {
    match unfit {
        Unfit::Elsewhere => Over::Elsewhere,
        Unfit::AtEdge => Over::AtEdge,
        Unfit::TooSmall(need) => Over::TooSmall { has, need },
    }
}

impl Drop for Placing {
    fn drop(&mut self) {
        self.close();
    }
}

impl Transmit for Placing {
    fn swap(&mut self, _: &mut BurstBuffers) {}

    fn touches_guest(&self) -> bool {
        true
    }

    fn poll(&mut self) -> Polled {
        let mut polled = Polled { placed: Some(Placed::default()), ..Polled::default() };
        if self.is_over() {
            return polled;
        }
        let placed = self.find();
        self.post();
        self.wake();
        if let Some(fault) = self.queue.fault() {
            self.direct.end(Over::Fault);
            polled.fault = Some(fault);
        }
        let backlog = self.placer.as_mut().is_some_and(Placer::has_backlog);
        Polled { backlog, placed: Some(placed), ..polled }
    }

    fn snapshot_headers(&mut self) {}

    fn burst(&self) -> Burst<'_> {
        Burst { heads: &[], deep: &[], frames: &[], arena: &[], offloads: &[], malformed: 0 }
    }

    fn complete(&mut self) -> bool {
        false
    }

    /// While buffers are posted, the first frame wakes the lane; with none posted there can be no
    /// frame, and the guest must say when it has another.
    fn enable_notification(&mut self) -> bool {
        if self.is_over() {
            return false;
        }
        self.wake();
        let Some(placer) = &mut self.placer else { return false };
        placer.has_backlog() || placer.room() > 0 && self.queue.enable_notification()
    }

    fn disable_notification(&mut self) {
        self.queue.disable_notification();
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        Some(self.either.as_fd())
    }

    fn set_call(&mut self, call: Option<Arc<ForeignFd>>) {
        self.events.set_call(call);
    }

    fn set_error(&mut self, error: Option<Arc<ForeignFd>>) {
        self.events.set_error(error);
    }

    fn raise_error(&self) {
        self.events.raise_error();
    }

    fn stop(&mut self) -> Position {
        self.close();
        self.queue.position()
    }
}
