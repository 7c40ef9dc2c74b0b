//! Frames that are copied out of a guest's memory before they go anywhere.
//!
//! Copying a frame from one guest to another touches the memory of both, under the receiver's lock.
//! Frames of a guest whose memory may hold up who touches it go another way: [`Bounced`] copies a
//! burst into memory of ours and gives its buffers back at once; from then on nothing of that guest
//! is touched. It is not on the way of other frames.

use std::os::fd::BorrowedFd;

use guestmem::{MapError, Pool};

use crate::Transmit;
use crate::burst::{BURST, Burst, BurstBuffers, DeepHead, Head, Offload, Polled, snapshot_headers};

/// The longest frame: a virtio-net frame with segments left to do, and its tags.
const FRAME_BYTES_MAX: u32 = 68 << 10;

/// Memory for one burst. Only what frames have used of it is allocated.
#[derive(Debug)]
pub struct Room {
    pool: Pool,
    heads: Box<[Head; BURST]>,
    deep: Vec<DeepHead>,
    is_deep: bool,
    offloads: Vec<Offload>,
    malformed: u64,
}

impl Room {
    /// Room for a burst of the longest frames.
    ///
    /// # Errors
    /// The kernel has no memory left.
    pub fn new() -> Result<Room, MapError> {
        Ok(Room {
            pool: Pool::create("shunt-bounce", u64::from(FRAME_BYTES_MAX) * BURST as u64)?,
            heads: Box::new([[0; 16]; BURST]),
            deep: Vec::new(),
            is_deep: false,
            offloads: Vec::new(),
            malformed: 0,
        })
    }

    /// Copies a burst. What was judged of a frame, its snapshot, is what it begins with.
    fn take(&mut self, burst: &Burst<'_>) {
        self.pool.clear();
        self.is_deep = false;
        self.heads[..burst.heads.len()].copy_from_slice(burst.heads);
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
                continue; // it goes nowhere
            }
            let Some(all) = self.pool.slice(at, len) else { return };
            let mut to = all;
            for from in frame.slices(burst.arena) {
                let n = from.len().min(to.len());
                to.copy_from(from, n);
                to = to.skip(n);
            }
            let snapshot = burst.deep.get(i).map_or(&burst.heads[i][..], DeepHead::bytes);
            all.write_bytes(&snapshot[..snapshot.len().min(len as usize)]);
        }
    }

    fn snapshot_headers(&mut self) {
        if self.is_deep {
            return;
        }
        let frames = self.pool.buffers();
        snapshot_headers(&mut self.deep, &self.heads[..], frames, &[]);
        self.is_deep = true;
    }

    fn burst(&self) -> Burst<'_> {
        let frames = self.pool.buffers();
        let deep = if self.is_deep { &self.deep[..frames.len()] } else { &[] };
        Burst {
            heads: &self.heads[..frames.len()],
            deep,
            frames,
            arena: &[],
            offloads: &self.offloads,
            malformed: self.malformed,
        }
    }
}

/// A transmit half whose memory is touched by [`poll`](Transmit::poll) only.
pub struct Bounced<'a> {
    half: &'a mut dyn Transmit,
    room: &'a mut Room,
    notified: bool,
}

impl<'a> Bounced<'a> {
    /// Takes the frames of `half` by way of `room`.
    pub fn new(half: &'a mut dyn Transmit, room: &'a mut Room) -> Bounced<'a> {
        Bounced { half, room, notified: false }
    }
}

impl Transmit for Bounced<'_> {
    fn swap(&mut self, area: &mut BurstBuffers) {
        self.half.swap(area);
    }

    fn poll(&mut self) -> Polled {
        let polled = self.half.poll();
        self.room.take(&self.half.burst());
        self.notified = polled.frames > 0 && self.half.complete();
        polled
    }

    fn snapshot_headers(&mut self) {
        self.room.snapshot_headers();
    }

    fn burst(&self) -> Burst<'_> {
        self.room.burst()
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
