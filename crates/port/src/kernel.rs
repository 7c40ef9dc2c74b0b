//! Halves of a port backed by a file descriptor of the kernel: an interface, a socket.
//!
//! # Model
//! A kind of port implements receiving ([`RxSource`]) and sending ([`TxSink`]); the rest is here.
//! [`KernelRx`] receives into memory of its own ([`RxBuffer`]) and lends frames from there, as a
//! ring lends those of its guest. [`KernelTx`] copies nothing: the kernel takes each frame in
//! pieces from its sender's memory ([`TxFrame`]).
//!
//! A failure of the device is recorded in its [`LinkHealth`]; from then on both halves are silent.

mod link;
mod rx_buffer;
mod tx;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use wire::segment::Segment;

use crate::burst::{BURST, Burst, Delivered, NetHeader, Polled, VlanEdit};
use crate::burst_buffers::BurstBuffers;
use crate::half::{Notification, Readiness, Receive, Transmit};
use crate::opened::LinkHealth;
use crate::software_offload::OffloadScratch;
use crate::validate::FrameRules;

pub(crate) use link::Link;
pub(crate) use rx_buffer::RxBuffer;
pub(crate) use tx::{PREFIX_MAX, TxBatch, TxFrame, TxRefusal, TxSink};

/// A source of received frames.
pub(crate) trait RxSource: Send {
    /// Takes up to a burst of frames; returns `true` if more may wait.
    ///
    /// # Errors
    /// The device failed permanently. Frames taken before that count.
    fn take(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno>;

    /// Enables kicks; returns `true` if a frame is already there.
    fn enable_notification(&mut self) -> bool;

    /// Descriptor that becomes readable when a frame arrives.
    fn kick(&self) -> BorrowedFd<'_>;

    /// State for a process that takes over, as [`Transmit::handover_state`].
    fn handover_state(&self, _rx_buffer: &RxBuffer) -> Vec<u8> {
        Vec::new()
    }
}

/// A transmit half.
#[derive(Debug)]
pub(crate) struct KernelRx<S> {
    source: S,
    rx_buffer: RxBuffer,
    health: Arc<LinkHealth>,
}

impl<S: RxSource> KernelRx<S> {
    pub(crate) fn new(source: S, rx_buffer: RxBuffer, health: Arc<LinkHealth>) -> Self {
        KernelRx { source, rx_buffer, health }
    }
}

impl<S: RxSource> Transmit for KernelRx<S> {
    fn poll(&mut self, buffers: &mut BurstBuffers) -> Polled {
        self.rx_buffer.clear();
        buffers.begin();
        if self.health.is_lost() {
            return Polled::default();
        }
        let backlog = match self.source.take(&mut self.rx_buffer) {
            Ok(backlog) => backlog,
            Err(errno) => {
                self.health.lose(errno);
                false
            }
        };
        Polled { backlog, ..self.rx_buffer.validate(buffers) }
    }

    fn burst<'a>(&'a self, buffers: &'a BurstBuffers) -> Burst<'a> {
        self.rx_buffer.burst(buffers)
    }

    fn complete(&mut self) -> Notification {
        self.rx_buffer.clear();
        Notification::Unneeded
    }

    fn enable_notification(&mut self) -> Readiness {
        Readiness::ready(!self.health.is_lost() && self.source.enable_notification())
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        Some(self.source.kick())
    }

    fn frame_rules(&self) -> FrameRules {
        self.rx_buffer.rules()
    }

    fn handover_state(&self) -> Vec<u8> {
        self.source.handover_state(&self.rx_buffer)
    }
}

/// A receive half.
#[derive(Debug)]
pub(crate) struct KernelTx<S> {
    sink: S,
    health: Arc<LinkHealth>,
    /// Set if no more frames of this burst can be sent.
    is_full: bool,
}

impl<S: TxSink> KernelTx<S> {
    pub(crate) fn new(sink: S, health: Arc<LinkHealth>) -> Self {
        KernelTx { sink, health, is_full: false }
    }

    /// Returns `true` if a frame can be sent without a copy.
    #[inline]
    fn goes_directly(&self, burst: &Burst<'_>, frame: usize) -> bool {
        let offload = burst.offload(frame);
        let fits = offload.is_plain()
            || offload.fits(self.sink.takes())
                && offload.moved_by(4).is_some()
                && offload.moved_by(-4).is_some();
        fits && usize::from(burst.frames[frame].rest_len) <= tx::SLICES_MAX
    }

    /// Sends up to a batch of frames without a copy; returns the number handled, and the result.
    fn send(&mut self, burst: &Burst<'_>, indices: &[u8], edit: VlanEdit) -> (usize, Delivered) {
        let batch = TxBatch::new::<S>(&self.sink, burst, indices, edit);
        let mut delivered = Delivered::default();
        let frames = batch.frames(burst);
        let (taken, refusal) = self.sink.send(frames.as_slice());
        delivered.frames = taken as u32;
        delivered.bytes = frames.as_slice()[..taken].iter().map(|frame| u64::from(frame.len)).sum();
        let refused = self.account(refusal, &mut delivered);
        (taken + usize::from(refused), delivered)
    }

    /// Counts a refused frame, if there is one.
    fn account(&mut self, refusal: Option<TxRefusal>, delivered: &mut Delivered) -> bool {
        let Some(refusal) = refusal else {
            return false;
        };
        match refusal {
            TxRefusal::Frame => delivered.too_small += 1,
            TxRefusal::Copies => delivered.over_limit += 1,
            _ => delivered.no_buffer += 1,
        }
        self.is_full = matches!(refusal, TxRefusal::NoRoom | TxRefusal::Lost(_));
        if let TxRefusal::Lost(errno) = refusal {
            self.health.lose(errno);
        }
        true
    }

    /// Sends a frame whose offload must be completed in software.
    #[cold]
    fn send_plain(
        &mut self,
        burst: &Burst<'_>,
        frame: usize,
        edit: VlanEdit,
        scratch: &mut OffloadScratch,
    ) -> Delivered {
        scratch.deliver(burst, frame, edit, |Segment { headers, payload, .. }| {
            let len = (headers.len() + payload.len()) as u32;
            let prefix = self.sink.prefix(NetHeader::PLAIN, len);
            let prefix = &prefix[PREFIX_MAX - S::PREFIX..];
            let (taken, refusal) = self.sink.send(&[TxFrame::plain(prefix, headers, payload)]);
            let bytes = u64::from(len) * taken as u64;
            let mut sent = Delivered { frames: taken as u32, bytes, ..Delivered::default() };
            self.account(refusal, &mut sent);
            sent
        })
    }
}

impl<S: TxSink> Receive for KernelTx<S> {
    fn deliver(
        &mut self,
        burst: &Burst<'_>,
        indices: &[u8],
        edit: VlanEdit,
        buffers: &mut BurstBuffers,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        if self.health.is_lost() {
            delivered.no_buffer = indices.len() as u32;
            return delivered;
        }
        self.is_full = false;
        let mut left = indices;
        while let [index, rest @ ..] = left {
            let direct = left
                .iter()
                .take(tx::BATCH)
                .take_while(|index| self.goes_directly(burst, usize::from(**index)))
                .count();
            let more = match direct {
                0 => {
                    left = rest;
                    self.send_plain(burst, usize::from(*index), edit, &mut buffers.scratch)
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

    fn replicates(&self) -> bool {
        self.sink.replicates()
    }

    fn allow_copies(&mut self, copies: u32) {
        self.sink.allow_copies(copies);
    }

    fn publish(&mut self) -> Notification {
        Notification::Unneeded
    }
}

/// Returns `true` if a file is readable now.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    // On an error the source is polled once more.
    poll(&mut fds, Some(&now)).map_or(true, |ready| ready > 0)
}

const _: () = assert!(BURST <= guestmem::STAGED_MAX);
