//! Frames that were received into memory of ours, on their way.

use guestmem::{GuestSlice, MapError, Pool};

use crate::Offload;
use crate::burst::{BURST, Burst, BurstBuffers, DeepHead, Head, Polled, snapshot_headers};
use crate::judge::{FRAME_MIN_TAGGED, Rules};

/// The memory of a transmit half, and the frames of its burst.
#[derive(Debug)]
pub(crate) struct RxBuffer {
    pool: Pool,
    rules: Rules,
    heads: Box<[Head; BURST]>,
    /// Lent by the lane, like the heads and offloads.
    deep: Vec<DeepHead>,
    is_deep: bool,
    offloads: Box<[Offload; BURST]>,
    has_offloads: bool,
    /// Whether a frame of the burst has to be looked at by itself.
    is_odd: bool,
    malformed: u64,
}

impl RxBuffer {
    /// Of `bytes` bytes of memory.
    pub(crate) fn new(name: &str, bytes: u64, rules: Rules) -> Result<RxBuffer, MapError> {
        Ok(RxBuffer {
            pool: Pool::create(name, bytes)?,
            rules,
            heads: Box::new([[0; 16]; BURST]),
            deep: Vec::new(),
            is_deep: false,
            offloads: Box::new([Offload::PLAIN; BURST]),
            has_offloads: false,
            is_odd: false,
            malformed: 0,
        })
    }

    /// Has no frames any more.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.pool.clear();
        (self.is_deep, self.has_offloads, self.is_odd) = (false, false, false);
        self.malformed = 0;
    }

    /// How many frames there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.pool.buffers().len()
    }

    /// The memory from `at`, which must be inside.
    #[inline]
    pub(crate) fn room(&self, at: u64, len: u32) -> GuestSlice<'_> {
        self.pool.slice(at, len).unwrap_or(GuestSlice::EMPTY)
    }

    /// Takes the frame of `len` bytes that is at `at`, on which `offload` is left to do.
    #[inline]
    pub(crate) fn take(&mut self, at: u64, len: u32, offload: Offload) {
        let i = self.len();
        if i == BURST || !self.pool.lend(at, len) {
            return;
        }
        self.offloads[i] = offload;
        self.has_offloads |= !offload.is_plain();
        self.is_odd |= len < FRAME_MIN_TAGGED || len > self.rules.frame_bytes_max;
        let frame = self.pool.buffers()[i].first;
        self.heads[i] = match frame.len() {
            16.. => frame.read_head(),
            _ => {
                let mut head = [0; 16];
                frame.read_bytes(&mut head);
                head
            }
        };
    }

    /// Judges what was taken.
    pub(crate) fn judge(&mut self) -> Polled {
        let frames = self.len();
        let mut polled = Polled { frames: frames as u32, ..Polled::default() };
        polled.bytes = self.pool.buffers().iter().map(|frame| u64::from(frame.len)).sum();
        if self.has_offloads {
            self.snapshot_headers();
        }
        if !self.has_offloads && !self.is_odd {
            return polled;
        }
        for (i, frame) in self.pool.buffers().iter().enumerate() {
            let head = if self.is_deep { self.deep[i].bytes() } else { &self.heads[i][..] };
            let judged = self.rules.judge((head, frame.len), self.offloads[i], &mut polled);
            self.malformed |= u64::from(judged.is_none()) << i;
            self.offloads[i] = judged.unwrap_or(Offload::PLAIN);
        }
        polled
    }

    pub(crate) fn swap(&mut self, area: &mut BurstBuffers) {
        std::mem::swap(&mut self.heads, &mut area.heads);
        std::mem::swap(&mut self.deep, &mut area.deep);
        std::mem::swap(&mut self.offloads, &mut area.offloads);
        self.is_deep = false;
    }

    pub(crate) fn snapshot_headers(&mut self) {
        if self.is_deep {
            return;
        }
        let frames = self.pool.buffers();
        snapshot_headers(&mut self.deep, &self.heads[..], frames, &[]);
        self.is_deep = true;
    }

    pub(crate) fn burst(&self) -> Burst<'_> {
        let frames = self.pool.buffers();
        let n = frames.len();
        Burst {
            heads: &self.heads[..n],
            deep: if self.is_deep { &self.deep[..n] } else { &[] },
            frames,
            arena: &[],
            offloads: if self.has_offloads { &self.offloads[..n] } else { &[] },
            malformed: self.malformed,
        }
    }
}
