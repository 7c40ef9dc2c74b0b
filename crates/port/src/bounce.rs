//! Bounce buffers: frames are copied out of a guest's memory before they are forwarded.
//!
//! Copying a frame from one guest to another accesses the memory of both, under the receiver's
//! lock. An access to a suspect guest's memory may block. [`BouncedTransmit`] copies a burst of
//! such a guest into memory of our own and returns its buffers at once; from then on nothing
//! accesses that guest's memory. Other frames do not pass here.

use std::os::fd::BorrowedFd;

use guestmem::{FramePool, MapError};

use crate::burst::{
    BURST, Burst, HeaderBytes, HeaderSnapshot, NetHeader, Polled, snapshot_headers,
};
use crate::burst_buffers::BurstBuffers;
use crate::half::Transmit;

/// Bytes of the longest frame: a virtio-net frame to be segmented, with its tags.
const FRAME_BYTES_MAX: u32 = 68 << 10;

/// Memory for one burst. Pages are allocated on first use.
#[derive(Debug)]
pub struct BounceBuffer {
    pool: FramePool,
    headers: Box<[HeaderBytes; BURST]>,
    snapshots: Vec<HeaderSnapshot>,
    has_snapshots: bool,
    offloads: Vec<NetHeader>,
    malformed: u64,
}

impl BounceBuffer {
    /// Reserves memory for a burst of the longest frames.
    ///
    /// # Errors
    /// The kernel has no memory left.
    pub fn new() -> Result<BounceBuffer, MapError> {
        Ok(BounceBuffer {
            pool: FramePool::create("shunt-bounce", u64::from(FRAME_BYTES_MAX) * BURST as u64)?,
            headers: Box::new([[0; 16]; BURST]),
            snapshots: Vec::new(),
            has_snapshots: false,
            offloads: Vec::new(),
            malformed: 0,
        })
    }

    /// Copies a burst. Each copy begins with the frame's snapshot, which was validated.
    fn take(&mut self, burst: &Burst<'_>) {
        self.pool.clear();
        self.has_snapshots = false;
        self.headers[..burst.headers.len()].copy_from_slice(burst.headers);
        self.offloads.clear();
        self.offloads.extend_from_slice(burst.offloads);
        self.malformed = burst.malformed;
        for (i, frame) in burst.frames.iter().enumerate() {
            let at = i as u64 * u64::from(FRAME_BYTES_MAX);
            if frame.len > FRAME_BYTES_MAX {
                self.malformed |= 1 << i;
            }
            let len = frame.len.min(FRAME_BYTES_MAX);
            if !self.pool.lend(at, len) {
                return;
            }
            if self.malformed >> i & 1 == 1 {
                continue; // it is dropped
            }
            let Some(all) = self.pool.slice(at, len) else { return };
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
    }

    fn snapshot_headers(&mut self) {
        if self.has_snapshots {
            return;
        }
        let frames = self.pool.buffers();
        snapshot_headers(&mut self.snapshots, &self.headers[..], frames, &[]);
        self.has_snapshots = true;
    }

    fn burst(&self) -> Burst<'_> {
        let frames = self.pool.buffers();
        let snapshots = if self.has_snapshots { &self.snapshots[..frames.len()] } else { &[] };
        Burst {
            headers: &self.headers[..frames.len()],
            snapshots,
            frames,
            arena: &[],
            offloads: &self.offloads,
            malformed: self.malformed,
        }
    }
}

/// A transmit half whose guest memory is accessed only by [`poll`](Transmit::poll).
pub struct BouncedTransmit<'a> {
    half: &'a mut dyn Transmit,
    buffer: &'a mut BounceBuffer,
    notified: bool,
}

impl<'a> BouncedTransmit<'a> {
    /// Takes the frames of `half` through `buffer`.
    pub fn new(half: &'a mut dyn Transmit, buffer: &'a mut BounceBuffer) -> BouncedTransmit<'a> {
        BouncedTransmit { half, buffer, notified: false }
    }
}

impl Transmit for BouncedTransmit<'_> {
    fn swap(&mut self, buffers: &mut BurstBuffers) {
        self.half.swap(buffers);
    }

    fn poll(&mut self) -> Polled {
        let polled = self.half.poll();
        self.buffer.take(&self.half.burst());
        self.notified = polled.frames > 0 && self.half.complete();
        polled
    }

    fn snapshot_headers(&mut self) {
        self.buffer.snapshot_headers();
    }

    fn burst(&self) -> Burst<'_> {
        self.buffer.burst()
    }

    fn complete(&mut self) -> bool {
        self.notified
    }

    fn enable_notification(&mut self) -> bool {
        self.half.enable_notification()
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.half.kick()
    }
}
