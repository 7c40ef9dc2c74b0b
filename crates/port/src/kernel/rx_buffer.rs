//! Receive buffer: frames received into memory of our own.

use guestmem::{FramePool, GuestSlice, MapError};

use crate::burst::{
    BURST, Burst, HeaderBytes, HeaderSnapshot, NetHeader, Polled, snapshot_headers,
};
use crate::burst_buffers::BurstBuffers;
use crate::validate::{FRAME_MIN_TAGGED, FrameRules};

/// Memory of a transmit half, and the frames of its burst.
#[derive(Debug)]
pub(crate) struct RxBuffer {
    pool: FramePool,
    rules: FrameRules,
    headers: Box<[HeaderBytes; BURST]>,
    /// Lent by the lane, like `headers` and `offloads`.
    snapshots: Vec<HeaderSnapshot>,
    has_snapshots: bool,
    offloads: Box<[NetHeader; BURST]>,
    has_offloads: bool,
    /// Set if a frame of the burst must be validated by itself.
    is_odd: bool,
    malformed: u64,
}

impl RxBuffer {
    /// Allocates `bytes` bytes.
    pub(crate) fn new(name: &str, bytes: u64, rules: FrameRules) -> Result<RxBuffer, MapError> {
        Ok(RxBuffer {
            pool: FramePool::create(name, bytes)?,
            rules,
            headers: Box::new([[0; 16]; BURST]),
            snapshots: Vec::new(),
            has_snapshots: false,
            offloads: Box::new([NetHeader::PLAIN; BURST]),
            has_offloads: false,
            is_odd: false,
            malformed: 0,
        })
    }

    /// Drops all frames.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.pool.clear();
        (self.has_snapshots, self.has_offloads, self.is_odd) = (false, false, false);
        self.malformed = 0;
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
        let frame = self.pool.buffers()[i].first;
        self.headers[i] = match frame.len() {
            16.. => frame.read_header(),
            _ => {
                let mut header = [0; 16];
                frame.read_bytes(&mut header);
                header
            }
        };
    }

    /// Validates the frames taken.
    pub(crate) fn validate(&mut self) -> Polled {
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
            let header =
                if self.has_snapshots { self.snapshots[i].bytes() } else { &self.headers[i][..] };
            let valid = self.rules.validate((header, frame.len), self.offloads[i], &mut polled);
            self.malformed |= u64::from(valid.is_none()) << i;
            self.offloads[i] = valid.unwrap_or(NetHeader::PLAIN);
        }
        polled
    }

    pub(crate) fn swap(&mut self, buffers: &mut BurstBuffers) {
        std::mem::swap(&mut self.headers, &mut buffers.headers);
        std::mem::swap(&mut self.snapshots, &mut buffers.snapshots);
        std::mem::swap(&mut self.offloads, &mut buffers.offloads);
        self.has_snapshots = false;
    }

    pub(crate) fn snapshot_headers(&mut self) {
        if self.has_snapshots {
            return;
        }
        let frames = self.pool.buffers();
        snapshot_headers(&mut self.snapshots, &self.headers[..], frames, &[]);
        self.has_snapshots = true;
    }

    pub(crate) fn burst(&self) -> Burst<'_> {
        let frames = self.pool.buffers();
        let n = frames.len();
        Burst {
            headers: &self.headers[..n],
            snapshots: if self.has_snapshots { &self.snapshots[..n] } else { &[] },
            frames,
            arena: &[],
            offloads: if self.has_offloads { &self.offloads[..n] } else { &[] },
            malformed: self.malformed,
        }
    }
}
