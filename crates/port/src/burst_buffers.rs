//! Working buffers of a lane.

use guestmem::{Buffer, GuestSlice};
use host::tsc;

use crate::burst::{BURST, Burst, HeaderBytes, HeaderSnapshot, NetHeader, snapshot_headers};
use crate::half::Transmit;
use crate::software_offload::OffloadScratch;
use crate::validate::Malformed;
use crate::virtio_net::NextLines;

/// Working buffers for one burst. A lane has a pair, one for each direction, and lends them to the
/// half that it serves. So many halves use no more of its L1 cache than one.
#[derive(Debug)]
pub struct BurstBuffers {
    /// Time-stamp counter when the last poll found that there may be frames. If a lane sets it
    /// before, it is kept; 0 for none.
    pub began: u64,
    /// The first 16 bytes of each frame of the burst.
    pub(crate) headers: Box<[HeaderBytes; BURST]>,
    /// Longer snapshots of the frames; valid if `has_snapshots`.
    pub(crate) snapshots: Vec<HeaderSnapshot>,
    pub(crate) has_snapshots: bool,
    /// Offload of each frame; valid if `has_offloads`.
    pub(crate) offloads: Box<[NetHeader; BURST]>,
    pub(crate) has_offloads: bool,
    /// As [`Burst::malformed`].
    pub(crate) malformed: u64,
    /// Reason of each malformed frame.
    pub(crate) reasons: Box<[Malformed; BURST]>,
    /// As [`Burst::is_one_flow`].
    pub(crate) is_one_flow: bool,
    pub(crate) scratch: OffloadScratch,
    /// Lines that the next burst of the ring served last touches first, if it is a guest's.
    pub next: Option<NextLines>,
    /// Set if receive rings stage as many buffers for the next burst as for this one, so that they
    /// arrive from another core's cache meanwhile. Not for many rings: the lines would leave the
    /// cache again.
    pub stages_ahead: bool,
}

impl Default for BurstBuffers {
    fn default() -> BurstBuffers {
        BurstBuffers {
            began: 0,
            headers: Box::new([[0; 16]; BURST]),
            snapshots: vec![HeaderSnapshot::EMPTY; BURST],
            has_snapshots: false,
            offloads: Box::new([NetHeader::PLAIN; BURST]),
            has_offloads: false,
            malformed: 0,
            reasons: Box::new([Malformed::Disabled; BURST]),
            is_one_flow: false,
            scratch: OffloadScratch::default(),
            next: None,
            stages_ahead: false,
        }
    }
}

impl BurstBuffers {
    /// Snapshots up to 128 bytes of each frame that `transmit` polled into these buffers, once: the
    /// first snapshot counts. [`Transmit::burst`] lends them as [`Burst::snapshots`].
    pub fn snapshot_headers<T: Transmit + ?Sized>(&mut self, transmit: &T) {
        if self.has_snapshots {
            return;
        }
        let mut snapshots = std::mem::take(&mut self.snapshots);
        let Burst { headers, frames, arena, .. } = transmit.burst(self);
        snapshot_headers(&mut snapshots, headers, frames, arena);
        (self.snapshots, self.has_snapshots) = (snapshots, true);
    }

    /// As [`snapshot_headers`](Self::snapshot_headers), of frames that a half is about to lend.
    pub(crate) fn snapshot_frames(&mut self, frames: &[Buffer<'_>], arena: &[GuestSlice<'_>]) {
        if !self.has_snapshots {
            snapshot_headers(&mut self.snapshots, &self.headers[..], frames, arena);
            self.has_snapshots = true;
        }
    }

    /// Reason of a malformed frame of the burst.
    pub fn malformed_reason(&self, frame: usize) -> Malformed {
        self.reasons[frame]
    }

    /// Notes the result of a frame's validation.
    pub(crate) fn note_valid(&mut self, frame: usize, valid: Result<NetHeader, Malformed>) {
        self.malformed |= u64::from(valid.is_err()) << frame;
        self.offloads[frame] = valid.unwrap_or(NetHeader::PLAIN);
        if let Err(reason) = valid {
            self.reasons[frame] = reason;
        }
    }

    /// Begins a poll that may find frames.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        self.clear();
        self.note_time();
    }

    /// Clears what the former burst left: snapshots, offloads and malformed frames.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        (self.has_snapshots, self.has_offloads, self.malformed) = (false, false, 0);
        self.is_one_flow = false;
    }

    /// Sets [`began`](Self::began), unless it is set.
    #[inline(always)]
    pub(crate) fn note_time(&mut self) {
        if self.began == 0 {
            self.began = tsc::now();
        }
    }

    /// The burst of `frames`, whose headers are here.
    #[inline(always)]
    pub(crate) fn burst<'a>(
        &'a self,
        frames: &'a [Buffer<'a>],
        arena: &'a [GuestSlice<'a>],
    ) -> Burst<'a> {
        let n = frames.len();
        Burst {
            headers: &self.headers[..n],
            snapshots: if self.has_snapshots { &self.snapshots[..n] } else { &[] },
            frames,
            arena,
            offloads: if self.has_offloads { &self.offloads[..n] } else { &[] },
            malformed: self.malformed,
            is_one_flow: self.is_one_flow,
        }
    }
}
