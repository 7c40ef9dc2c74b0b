//! Bounce buffers: frames are copied out of a guest's memory before they are forwarded.
//!
//! Copying a frame from one guest to another accesses the memory of both, under the receiver's
//! lock. An access to a suspect guest's memory may block. [`BouncedTransmit`] copies a burst of
//! such a guest into memory of our own and returns its buffers at once; from then on nothing
//! accesses that guest's memory. Other frames do not pass here.

use std::os::fd::BorrowedFd;

use guestmem::{FramePool, MapError, Pages};

use crate::burst::{BURST, Burst, HeaderSnapshot, Polled};
use crate::burst_buffers::BurstBuffers;
use crate::half::{GuestRing, Notification, Readiness, Transmit};
use crate::validate::FrameRules;

/// Bytes of the longest frame: a virtio-net frame to be segmented, with its tags.
const FRAME_BYTES_MAX: u32 = 68 << 10;

/// Memory for one burst. Pages are allocated on first use.
#[derive(Debug)]
pub struct BounceBuffer(FramePool);

impl BounceBuffer {
    /// Reserves memory for a burst of the longest frames.
    ///
    /// # Errors
    /// The kernel has no memory left.
    pub fn new() -> Result<BounceBuffer, MapError> {
        // Collapsing pages makes the kernel wait for every CPU, also for one that a guest keeps
        // busy. That can take seconds, and each daemon makes this memory at its start.
        let bytes = u64::from(FRAME_BYTES_MAX) * BURST as u64;
        FramePool::create("shunt-bounce", bytes, Pages::Ordinary).map(BounceBuffer)
    }

    /// Copies a burst; returns [`Burst::malformed`] of the copies. Each copy begins with the
    /// frame's snapshot, which was validated.
    fn take(&mut self, burst: &Burst<'_>) -> u64 {
        let BounceBuffer(pool) = self;
        pool.clear();
        let mut malformed = burst.malformed;
        for (i, frame) in burst.frames.iter().enumerate() {
            let at = i as u64 * u64::from(FRAME_BYTES_MAX);
            if frame.len > FRAME_BYTES_MAX {
                malformed |= 1 << i;
            }
            let len = frame.len.min(FRAME_BYTES_MAX);
            if !pool.lend(at, len) {
                break;
            }
            let Some(all) = pool.slice(at, len) else { break };
            let mut to = all;
            for from in frame.slices(burst.arena) {
                let n = from.len().min(to.len());
                to.copy_from(from, n);
                to = to.skip(n);
            }
            let snapshot =
                burst.snapshots.get(i).map_or(&burst.headers[i][..], HeaderSnapshot::bytes);
            all.write_bytes(&snapshot[..snapshot.len().min(len as usize)]);
        }
        malformed
    }
}

/// A transmit half whose guest memory is accessed only by [`poll`](Transmit::poll).
pub struct BouncedTransmit<'a> {
    half: &'a mut dyn Transmit,
    buffer: &'a mut BounceBuffer,
    notification: Notification,
}

impl<'a> BouncedTransmit<'a> {
    /// Takes the frames of `half` through `buffer`.
    pub fn new(half: &'a mut dyn Transmit, buffer: &'a mut BounceBuffer) -> BouncedTransmit<'a> {
        BouncedTransmit { half, buffer, notification: Notification::Unneeded }
    }
}

impl Transmit for BouncedTransmit<'_> {
    fn poll(&mut self, buffers: &mut BurstBuffers) -> Polled {
        let polled = self.half.poll(buffers);
        if polled.frames > 0 {
            buffers.malformed = self.buffer.take(&self.half.burst(buffers));
            self.notification = self.half.complete();
        }
        polled
    }

    fn burst<'a>(&'a self, buffers: &'a BurstBuffers) -> Burst<'a> {
        buffers.burst(self.buffer.0.buffers(), &[])
    }

    fn complete(&mut self) -> Notification {
        self.notification
    }

    fn enable_notification(&mut self) -> Readiness {
        self.half.enable_notification()
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.half.kick()
    }

    fn guest_ring(&mut self) -> Option<&mut dyn GuestRing> {
        self.half.guest_ring()
    }

    fn frame_rules(&self) -> FrameRules {
        self.half.frame_rules()
    }
}
