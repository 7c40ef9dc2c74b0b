//! Receive buffer: frames received into memory of our own.

use guestmem::{FramePool, GuestSlice, MapError, Pages};

use crate::burst::{BURST, Burst, HeaderBytes, NetHeader, Polled};
use crate::burst_buffers::BurstBuffers;
use crate::validate::{FRAME_MIN_TAGGED, FrameRules};

/// Memory of a transmit half, and the frames of its burst.
#[derive(Debug)]
pub(crate) struct RxBuffer {
    pool: FramePool,
    rules: FrameRules,
    offloads: Box<[NetHeader; BURST]>,
    has_offloads: bool,
    /// Set if a frame of the burst must be validated by itself.
    is_odd: bool,
}

impl RxBuffer {
    /// Allocates `bytes` bytes.
    pub(crate) fn new(name: &str, bytes: u64, rules: FrameRules) -> Result<RxBuffer, MapError> {
        Ok(RxBuffer::of(FramePool::create(name, bytes, Pages::Collapsed)?, rules))
    }

    /// Takes frames in the memory of `pool`.
    pub(crate) fn of(pool: FramePool, rules: FrameRules) -> RxBuffer {
        let offloads = Box::new([NetHeader::PLAIN; BURST]);
        RxBuffer { pool, rules, offloads, has_offloads: false, is_odd: false }
    }

    /// Limits by which the frames are validated.
    pub(crate) fn rules(&self) -> FrameRules {
        self.rules
    }

    /// Drops all frames.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.pool.clear();
        (self.has_offloads, self.is_odd) = (false, false);
    }

    /// Number of frames.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.pool.buffers().len()
    }

    /// Memory at `at`, which must be inside.
    #[inline]
    pub(crate) fn room(&self, at: u64, len: u32) -> GuestSlice<'_> {
        self.pool.slice(at, len).unwrap_or(GuestSlice::EMPTY)
    }

    /// Takes the frame of `len` bytes at `at`, with its offload.
    #[inline]
    pub(crate) fn take(&mut self, at: u64, len: u32, offload: NetHeader) {
        let i = self.len();
        if i == BURST || !self.pool.lend(at, len) {
            return;
        }
        self.offloads[i] = offload;
        self.has_offloads |= !offload.is_plain();
        self.is_odd |= len < FRAME_MIN_TAGGED || len > self.rules.frame_bytes_max;
    }

    /// Length and first 16 bytes of each frame; a shorter one is padded with zeros.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (u32, HeaderBytes)> {
        self.pool.buffers().iter().map(|frame| match frame.len {
            16.. => (frame.len, frame.first.read_header()),
            len => {
                let mut header = [0; 16];
                frame.first.read_bytes(&mut header);
                (len, header)
            }
        })
    }

    /// Snapshots and validates the frames taken.
    pub(crate) fn validate(&self, buffers: &mut BurstBuffers) -> Polled {
        let frames = self.pool.buffers();
        let mut polled = Polled { frames: frames.len() as u32, ..Polled::default() };
        polled.bytes = frames.iter().map(|frame| u64::from(frame.len)).sum();
        buffers.headers.iter_mut().zip(self.headers()).for_each(|(to, (_, header))| *to = header);
        if self.has_offloads {
            buffers.has_offloads = true;
            buffers.snapshot_frames(frames, &[]);
        }
        if !self.has_offloads && !self.is_odd {
            return polled;
        }
        for (i, frame) in frames.iter().enumerate() {
            let header = match self.has_offloads {
                true => buffers.snapshots[i].bytes(),
                false => &buffers.headers[i],
            };
            let valid = self.rules.validate((header, frame.len), self.offloads[i], &mut polled);
            buffers.note_valid(i, valid);
        }
        polled
    }

    pub(crate) fn burst<'a>(&'a self, buffers: &'a BurstBuffers) -> Burst<'a> {
        buffers.burst(self.pool.buffers(), &[])
    }
}
