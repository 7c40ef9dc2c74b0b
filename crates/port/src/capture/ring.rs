//! Byte ring between a lane and the writer: one producer thread, one consumer thread.
//!
//! Model: two positions that only grow, each moved by one side and read by the other. Bytes from
//! `taken` to `published` belong to the consumer, all others to the producer. A record is a header
//! and the frame's bytes, and may wrap around the end of the ring. The memory is a file of our own,
//! because guest memory can be copied to such memory directly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guestmem::{GuestSlice, MapError, Pages, SharedFile};

use super::CaptureLimits;

const PAGE: u32 = 4096;

/// Header of a frame in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Time of delivery since the epoch.
    pub(super) time_ns: u64,
    /// Bytes of the frame that follow.
    pub(super) captured: u32,
    /// Length of the frame.
    pub(super) len: u32,
    /// Frames dropped between the previous record and this one.
    pub(super) missed: u64,
}

impl Record {
    /// Bytes of the header.
    pub(super) const LEN: u32 = 24;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN as usize] {
        let lens = u64::from(self.captured) << 32 | u64::from(self.len);
        let mut bytes = [0; Self::LEN as usize];
        for (to, word) in bytes.chunks_exact_mut(8).zip([self.time_ns, lens, self.missed]) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::LEN as usize]) -> Self {
        let word = |n: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[8 * n + i]));
        let (captured, len) = ((word(1) >> 32) as u32, word(1) as u32);
        Self { time_ns: word(0), captured, len, missed: word(2) }
    }
}

#[derive(Debug)]
pub(super) struct CaptureRing {
    memory: SharedFile,
    size: u32,
    published: AtomicU64,
    taken: AtomicU64,
}

impl CaptureRing {
    /// Slices of `len` bytes at a position: up to the ring's end, and from its start.
    fn pieces(&self, position: u64, len: u32) -> [GuestSlice<'_>; 2] {
        let size = self.size as usize;
        let all = self.memory.mapping().slice(0, size).unwrap_or(GuestSlice::EMPTY);
        let at = (position % u64::from(self.size)) as u32;
        [all.skip(at).first(len), all.first(len.saturating_sub(self.size - at))]
    }
}

/// End of the lane.
#[derive(Debug)]
pub(super) struct Producer {
    ring: Arc<CaptureRing>,
    /// Total bytes claimed.
    position: u64,
    /// Last value seen of `taken`.
    taken: u64,
}

/// End of the writer.
#[derive(Debug)]
pub(super) struct Consumer {
    ring: Arc<CaptureRing>,
    /// Total bytes taken.
    position: u64,
    /// Last value seen of `published`.
    published: u64,
}

/// Memory between lane and disk. Allocating it takes milliseconds, so that can be done before a
/// capture begins.
#[derive(Debug)]
pub struct CaptureBuffer(Arc<CaptureRing>);

impl CaptureBuffer {
    /// Allocates a buffer for a capture with these limits.
    ///
    /// # Errors
    /// No memory is left.
    pub fn new(limits: CaptureLimits) -> Result<CaptureBuffer, MapError> {
        let size = limits.buffer_bytes;
        let memory = SharedFile::create("shunt-capture", u64::from(size), Pages::Ordinary)?;
        let (published, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        let ring = Arc::new(CaptureRing { memory, size, published, taken });
        let [all, _] = ring.pieces(0, size);
        // Touched now, so that no lane takes a page fault.
        for at in (0..size).step_by(PAGE as usize) {
            all.write(at, [0]);
        }
        Ok(CaptureBuffer(ring))
    }

    /// Both ends of an empty ring, and another reference to its memory.
    pub(super) fn begin(self) -> (Producer, Consumer, BufferRef) {
        let CaptureBuffer(ring) = self;
        ring.published.store(0, Ordering::Relaxed);
        ring.taken.store(0, Ordering::Relaxed);
        let producer = Producer { ring: ring.clone(), position: 0, taken: 0 };
        let consumer = Consumer { ring: ring.clone(), position: 0, published: 0 };
        (producer, consumer, BufferRef(ring))
    }
}

/// Reference to a buffer in use. Freeing 32 MiB takes milliseconds; the last holder does it.
#[derive(Clone, Debug)]
pub(super) struct BufferRef(Arc<CaptureRing>);

impl BufferRef {
    /// Returns the buffer, if its ends are dropped.
    pub(super) fn into_buffer(self) -> Option<CaptureBuffer> {
        (Arc::strong_count(&self.0) == 1).then_some(CaptureBuffer(self.0))
    }
}

/// Slices of the ring: two where the range wraps around its end.
pub(super) type RingSlices<'a> = std::array::IntoIter<GuestSlice<'a>, 2>;

impl Producer {
    /// Claims `len` bytes, if there is room.
    pub(super) fn claim(&mut self, len: u32) -> Option<RingSlices<'_>> {
        let end = self.position + u64::from(len);
        if end - self.taken > u64::from(self.ring.size) {
            self.taken = self.ring.taken.load(Ordering::Acquire);
            if end - self.taken > u64::from(self.ring.size) {
                return None;
            }
        }
        let at = std::mem::replace(&mut self.position, end);
        Some(self.ring.pieces(at, len).into_iter())
    }

    /// Publishes all claimed bytes to the consumer.
    pub(super) fn publish(&mut self) {
        self.ring.published.store(self.position, Ordering::Release);
    }
}

impl Consumer {
    /// Updates the published position.
    pub(super) fn refresh(&mut self) {
        self.published = self.ring.published.load(Ordering::Acquire);
    }

    /// Reads the next frame into `frame`, of those published at the last update.
    pub(super) fn next(&mut self, frame: &mut Vec<u8>) -> Option<Record> {
        if self.position == self.published {
            return None;
        }
        let mut header = [0; Record::LEN as usize];
        self.read(&mut header);
        let record = Record::from_bytes(&header);
        frame.resize(record.captured as usize, 0);
        self.read(frame);
        self.ring.taken.store(self.position, Ordering::Release);
        Some(record)
    }

    fn read(&mut self, bytes: &mut [u8]) {
        let [first, second] = self.ring.pieces(self.position, bytes.len() as u32);
        let n = first.read_bytes(bytes) as usize;
        second.read_bytes(&mut bytes[n..]);
        self.position += bytes.len() as u64;
    }
}
