//! Frames on their way from a lane to the writer: one ring of bytes, one thread at either end.
//!
//! Model: two positions that only grow, each moved by one side and read by the other. Bytes from
//! `taken` to `published` are the consumer's, all others the producer's. A record is a header and
//! the frame's bytes, and may run over the ring's end. The memory is a file of our own because
//! guests' bytes can be copied to such without a step between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guestmem::{GuestSlice, MapError, Pages, SharedFile};

use super::CaptureLimits;

const PAGE: u32 = 4096;

/// What is known of a frame in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// When it was delivered, since the epoch.
    pub(super) time_ns: u64,
    /// Bytes that follow.
    pub(super) captured: u32,
    /// Bytes that the frame had.
    pub(super) len: u32,
    /// Frames for which there was no room between the last record and this.
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
pub(super) struct Ring {
    memory: SharedFile,
    size: u32,
    published: AtomicU64,
    taken: AtomicU64,
}

impl Ring {
    /// The `len` bytes at a position: up to the ring's end, and from its start.
    fn pieces(&self, position: u64, len: u32) -> [GuestSlice<'_>; 2] {
        let size = self.size as usize;
        let all = self.memory.mapping().slice(0, size).unwrap_or(GuestSlice::EMPTY);
        let at = (position % u64::from(self.size)) as u32;
        [all.skip(at).first(len), all.first(len.saturating_sub(self.size - at))]
    }
}

/// The lane's end.
#[derive(Debug)]
pub(super) struct Producer {
    ring: Arc<Ring>,
    /// Bytes ever claimed.
    position: u64,
    /// What `taken` was when last looked at.
    taken: u64,
}

/// The writer's end.
#[derive(Debug)]
pub(super) struct Consumer {
    ring: Arc<Ring>,
    /// Bytes ever taken.
    position: u64,
    /// What `published` was when last looked at.
    published: u64,
}

/// Memory between lane and disk. Making it takes milliseconds, so that can be done before a capture
/// begins.
#[derive(Debug)]
pub struct Buffer(Arc<Ring>);

impl Buffer {
    /// A buffer as a capture with these limits needs it.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(limits: CaptureLimits) -> Result<Buffer, MapError> {
        let size = limits.buffer_bytes;
        let memory = SharedFile::create("shunt-capture", u64::from(size), Pages::Ordinary)?;
        let (published, taken) = (AtomicU64::new(0), AtomicU64::new(0));
        let ring = Arc::new(Ring { memory, size, published, taken });
        let [all, _] = ring.pieces(0, size);
        // Touched now, so that no lane waits for the kernel to find a page.
        for at in (0..size).step_by(PAGE as usize) {
            all.write(at, [0]);
        }
        Ok(Buffer(ring))
    }

    /// Both ends of an empty ring, and another hold on its memory.
    pub(super) fn begin(self) -> (Producer, Consumer, Hold) {
        let Buffer(ring) = self;
        ring.published.store(0, Ordering::Relaxed);
        ring.taken.store(0, Ordering::Relaxed);
        let producer = Producer { ring: ring.clone(), position: 0, taken: 0 };
        let consumer = Consumer { ring: ring.clone(), position: 0, published: 0 };
        (producer, consumer, Hold(ring))
    }
}

/// A hold on a buffer that is in use: to free 32 MiB takes milliseconds, which are the holder's.
#[derive(Clone, Debug)]
pub(super) struct Hold(Arc<Ring>);

impl Hold {
    /// The buffer, if its ends are gone.
    pub(super) fn into_buffer(self) -> Option<Buffer> {
        (Arc::strong_count(&self.0) == 1).then_some(Buffer(self.0))
    }
}

/// A place in the ring, in two pieces where it is at the ring's end.
pub(super) type Room<'a> = std::array::IntoIter<GuestSlice<'a>, 2>;

impl Producer {
    /// Room for `len` more bytes, if there is any.
    pub(super) fn claim(&mut self, len: u32) -> Option<Room<'_>> {
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

    /// Shows what was written to the consumer.
    pub(super) fn publish(&mut self) {
        self.ring.published.store(self.position, Ordering::Release);
    }
}

impl Consumer {
    /// Sees what was published since the last look.
    pub(super) fn look(&mut self) {
        self.published = self.ring.published.load(Ordering::Acquire);
    }

    /// The next frame, into `frame`, of those that were there at the last look.
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
