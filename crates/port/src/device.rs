//! The halves of a port whose far end is a file of the kernel's: an interface, a socket.
//!
//! # Model
//! What differs between kinds is where frames come from ([`Source`]) and where they go ([`Sink`]);
//! the rest is here. An [`KernelRx`] receives into memory of its own ([`RxBuffer`]), and lends
//! frames from there as a ring lends those of its guest. An [`KernelTx`] copies nothing: the kernel
//! takes each frame from where the sender has it, in pieces ([`Outgoing`]).
//!
//! A failure of the device is told to its [`LinkHealth`]; from then on both halves are silent.

mod link;
mod outgoing;
mod rx_buffer;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use wire::segment::Segment;
use wire::virtio_net::Accepts;

use crate::burst::{BURST, Burst, BurstBuffers, Polled, VlanEdit};
use crate::plain::Scratch;
use crate::{Delivered, LinkHealth, Offload, Receive, Transmit};

pub(crate) use link::Link;
pub(crate) use outgoing::{Batch, Outgoing, PREFIX_MAX};
pub(crate) use rx_buffer::RxBuffer;

/// Where frames come from.
pub(crate) trait Source: Send {
    /// Takes up to a burst of frames; says whether more may wait.
    ///
    /// # Errors
    /// The device failed for good. The frames that were taken before it did count.
    fn take(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno>;

    /// Asks for the kick; says whether a frame is there already.
    fn enable_notification(&mut self) -> bool;

    /// Becomes readable when a frame comes.
    fn kick(&self) -> BorrowedFd<'_>;

    /// What was received and not taken, as [`Transmit::remains`].
    fn remains(&self, _intake: &RxBuffer) -> Vec<u8> {
        Vec::new()
    }
}

/// Where frames go.
pub(crate) trait Sink: Send {
    /// Bytes that stand in front of each frame, up to [`PREFIX_MAX`].
    const PREFIX: usize;

    /// What may be left to do on a frame.
    fn takes(&self) -> Accepts;

    /// What stands in front of a frame of `len` bytes; the last [`PREFIX`](Self::PREFIX) bytes
    /// count.
    fn prefix(&self, offload: Offload, len: u32) -> [u8; PREFIX_MAX];

    /// Sends frames in their order; says how many were taken, and why not the next.
    fn send(&mut self, frames: &[Outgoing<'_>]) -> (usize, Option<Refusal>);

    /// As [`Receive::makes_copies`].
    fn makes_copies(&self) -> bool {
        false
    }

    /// As [`Receive::allow_copies`].
    fn allow_copies(&mut self, _copies: u32) {}

    /// Takes the number of copies since the last call, and their bytes.
    fn take_copies(&mut self) -> (u32, u64) {
        (0, 0)
    }
}

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no room now.
    NoRoom,
    /// This frame can never be sent, others may.
    Frame,
    /// This frame cannot be sent now, others may.
    Unreachable,
    /// The sender's limit allows no more copies of this frame; others may be sent.
    Copies,
    /// The device failed for good.
    Lost(Errno),
}

/// A transmit half.
#[derive(Debug)]
pub(crate) struct KernelRx<S> {
    source: S,
    rx_buffer: RxBuffer,
    condition: Arc<LinkHealth>,
}

impl<S: Source> KernelRx<S> {
    pub(crate) fn new(source: S, rx_buffer: RxBuffer, condition: Arc<LinkHealth>) -> Self {
        KernelRx { source, rx_buffer, condition }
    }
}

impl<S: Source> Transmit for KernelRx<S> {
    fn swap(&mut self, area: &mut BurstBuffers) {
        self.rx_buffer.swap(area);
    }

    fn poll(&mut self) -> Polled {
        self.rx_buffer.clear();
        if self.condition.is_lost() {
            return Polled::default();
        }
        let backlog = match self.source.take(&mut self.rx_buffer) {
            Ok(backlog) => backlog,
            Err(errno) => {
                self.condition.lose(errno);
                false
            }
        };
        Polled { backlog, ..self.rx_buffer.judge() }
    }

    fn snapshot_headers(&mut self) {
        self.rx_buffer.snapshot_headers();
    }

    fn burst(&self) -> Burst<'_> {
        self.rx_buffer.burst()
    }

    fn complete(&mut self) -> bool {
        self.rx_buffer.clear();
        false
    }

    fn enable_notification(&mut self) -> bool {
        !self.condition.is_lost() && self.source.enable_notification()
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        Some(self.source.kick())
    }

    fn remains(&self) -> Vec<u8> {
        self.source.remains(&self.rx_buffer)
    }
}

/// A receive half.
#[derive(Debug)]
pub(crate) struct KernelTx<S> {
    sink: S,
    scratch: Scratch,
    condition: Arc<LinkHealth>,
    /// Whether there is no room for any more frames of this burst.
    is_full: bool,
}

impl<S: Sink> KernelTx<S> {
    pub(crate) fn new(sink: S, condition: Arc<LinkHealth>) -> Self {
        KernelTx { sink, scratch: Scratch::default(), condition, is_full: false }
    }

    /// Whether a frame can go as it is.
    #[inline]
    fn goes_directly(&self, burst: &Burst<'_>, frame: usize) -> bool {
        let offload = burst.offload(frame);
        let fits = offload.is_plain()
            || offload.fits(self.sink.takes())
                && offload.moved_by(4).is_some()
                && offload.moved_by(-4).is_some();
        fits && usize::from(burst.frames[frame].rest_len) <= outgoing::SLICES_MAX
    }

    /// Sends frames that go directly, a batch at most; says of how many it said what became of
    /// them.
    fn send(&mut self, burst: &Burst<'_>, indices: &[u8], edit: VlanEdit) -> (usize, Delivered) {
        let batch = Batch::new::<S>(&self.sink, burst, indices, edit);
        let mut delivered = Delivered::default();
        let frames = batch.frames(burst);
        let (taken, refusal) = self.sink.send(frames.as_slice());
        delivered.frames = taken as u32;
        delivered.bytes = frames.as_slice()[..taken].iter().map(|frame| u64::from(frame.len)).sum();
        let refused = self.account(refusal, &mut delivered);
        (taken + usize::from(refused), delivered)
    }

    /// Counts the frame that was not taken, if one was not.
    fn account(&mut self, refusal: Option<Refusal>, delivered: &mut Delivered) -> bool {
        let Some(refusal) = refusal else {
            return false;
        };
        match refusal {
            Refusal::Frame => delivered.too_small += 1,
            Refusal::Copies => delivered.over_limit += 1,
            _ => delivered.no_buffer += 1,
        }
        self.is_full = matches!(refusal, Refusal::NoRoom | Refusal::Lost(_));
        if let Refusal::Lost(errno) = refusal {
            self.condition.lose(errno);
        }
        true
    }

    /// Sends the frames that one comes to when nothing may be left to do on it.
    #[cold]
    fn send_plain(&mut self, burst: &Burst<'_>, frame: usize, edit: VlanEdit) -> Delivered {
        let mut scratch = std::mem::take(&mut self.scratch);
        let delivered = scratch.deliver(burst, frame, edit, |Segment { head, payload, .. }| {
            let len = (head.len() + payload.len()) as u32;
            let prefix = self.sink.prefix(Offload::PLAIN, len);
            let front = &prefix[PREFIX_MAX - S::PREFIX..];
            let (taken, refusal) = self.sink.send(&[Outgoing::plain(front, head, payload)]);
            let bytes = u64::from(len) * taken as u64;
            let mut sent = Delivered { frames: taken as u32, bytes, ..Delivered::default() };
            self.account(refusal, &mut sent);
            sent
        });
        self.scratch = scratch;
        delivered
    }
}

impl<S: Sink> Receive for KernelTx<S> {
    fn swap(&mut self, area: &mut BurstBuffers) {
        std::mem::swap(&mut self.scratch, &mut area.scratch);
    }

    fn deliver(&mut self, burst: &Burst<'_>, indices: &[u8], edit: VlanEdit) -> Delivered {
        let mut delivered = Delivered::default();
        if self.condition.is_lost() {
            delivered.no_buffer = indices.len() as u32;
            return delivered;
        }
        self.is_full = false;
        let mut left = indices;
        while let [index, rest @ ..] = left {
            let direct = left
                .iter()
                .take(outgoing::BATCH)
                .take_while(|index| self.goes_directly(burst, usize::from(**index)))
                .count();
            let more = match direct {
                0 => {
                    left = rest;
                    self.send_plain(burst, usize::from(*index), edit)
                }
                _ => {
                    let (done, more) = self.send(burst, &left[..direct], edit);
                    left = &left[done..];
                    more
                }
            };
            delivered.add(more);
            if self.is_full {
                delivered.no_buffer += left.len() as u32;
                break;
            }
        }
        (delivered.copies, delivered.copied_bytes) = self.sink.take_copies();
        delivered
    }

    fn makes_copies(&self) -> bool {
        self.sink.makes_copies()
    }

    fn allow_copies(&mut self, copies: u32) {
        self.sink.allow_copies(copies);
    }

    fn publish(&mut self) -> bool {
        false
    }
}

/// Whether a file can be read from now.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    // Who cannot tell is looked at once more.
    poll(&mut fds, Some(&now)).map_or(true, |ready| ready > 0)
}

const _: () = assert!(BURST <= guestmem::STAGED_MAX);
