//! Thread that writes a capture's file.
//!
//! Model: blocks are built in memory and written whole, at the file's known length. After a failure
//! the file is cut back to that length, so that it is readable at any time. Frames of the next
//! second are lost and counted; then the write is retried.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pcap_file::Endianness;
use pcap_file::pcapng::PcapNgWriteError;

use super::blocks::{Blocks, PacketBlock};
use super::ring::Consumer;
use super::{CaptureError, CaptureLimits, CaptureState, IDLE_POLL_INTERVAL, POLL_INTERVAL};

/// Bytes of blocks written together.
const WRITE_BYTES: usize = 256 << 10;
/// Time after a failure until the next write.
const RETRY: Duration = Duration::from_secs(1);

/// Storage of the file.
pub(super) trait CaptureDisk {
    /// Writes all of `bytes` at an offset.
    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Truncates the file to `len` bytes.
    fn cut(&self, len: u64) -> io::Result<()>;
}

impl CaptureDisk for File {
    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        // Even a truncation to the same length can cost a transaction of the file system.
        if self.metadata()?.len() == len { Ok(()) } else { self.set_len(len) }
    }
}

/// Blocks not yet in the file.
#[derive(Default)]
struct Pending {
    frames: u64,
    /// Missing frames that they report.
    missed: u64,
}

pub(super) struct CaptureWriter<D> {
    disk: D,
    consumer: Consumer,
    shared: Arc<CaptureState>,
    file_bytes_max: u64,
    blocks: Blocks,
    pending: Pending,
    /// Bytes of the file, in whole blocks.
    len: u64,
    /// Frames missing before the next block.
    missed: u64,
    /// Time of the next try, after a failure.
    retry_at: Option<Instant>,
    /// Set once a frame did not fit into the file; no others are written then.
    full: bool,
    frame: Vec<u8>,
}

impl<D> fmt::Debug for CaptureWriter<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<D: CaptureDisk> CaptureWriter<D> {
    /// Begins the file, or continues behind its first `bytes` bytes, which begin with the same
    /// blocks.
    pub(super) fn begin(
        disk: D,
        consumer: Consumer,
        shared: Arc<CaptureState>,
        limits: CaptureLimits,
        (interface, bytes): (&str, u64),
    ) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::Write { path: shared.path.clone(), source };
        let mut blocks = preamble(interface, limits.snap_len).map_err(|e| failed(other(e)))?;
        match bytes {
            0 => disk.put(blocks.bytes(), 0).map_err(failed)?,
            _ => {
                disk.cut(bytes).map_err(failed)?;
                blocks.bytes_mut().clear();
            }
        }
        let mut writer = Self {
            disk,
            consumer,
            shared,
            file_bytes_max: limits.file_bytes_max,
            blocks,
            pending: Pending::default(),
            len: bytes,
            missed: 0,
            retry_at: None,
            full: false,
            frame: Vec::new(),
        };
        writer.written();
        Ok(writer)
    }

    /// Writes frames until the capture is closed or paused.
    pub(super) fn run(mut self) -> Self {
        loop {
            // Read first: frames published before a close are then taken.
            let closed = self.shared.closed.load(Ordering::Acquire);
            let ends = closed || self.shared.paused.load(Ordering::Acquire);
            let any = self.drain(Instant::now());
            if ends {
                return self;
            }
            std::thread::park_timeout(if any { POLL_INTERVAL } else { IDLE_POLL_INTERVAL });
        }
    }

    /// Writes all frames published now, but none that come meanwhile, which might never end.
    /// Returns `true` if there were any.
    pub(super) fn drain(&mut self, now: Instant) -> bool {
        self.consumer.refresh();
        let mut any = false;
        while let Some(record) = self.consumer.next(&mut self.frame) {
            any = true;
            self.missed += record.missed;
            self.add(record.time_ns, record.len, now);
            if self.blocks.bytes().len() >= WRITE_BYTES {
                self.flush(now);
            }
        }
        self.flush(now);
        any
    }

    /// Makes a block of the current frame.
    fn add(&mut self, time_ns: u64, len: u32, now: Instant) {
        if self.full || self.retry_at.is_some_and(|at| now < at) {
            return self.lose(1);
        }
        let before = self.blocks.bytes().len();
        let result = self.blocks.packet(&PacketBlock {
            time_ns,
            len,
            data: &self.frame,
            missed: self.missed,
            ..PacketBlock::default()
        });
        let end = self.len + self.blocks.bytes().len() as u64;
        self.full = end > self.file_bytes_max;
        if let (Ok(()), false) = (&result, self.full) {
            self.pending.frames += 1;
            self.pending.missed += std::mem::take(&mut self.missed);
            return;
        }
        self.blocks.bytes_mut().truncate(before);
        self.lose(1);
        match result {
            Ok(()) => {
                let bytes = self.file_bytes_max;
                self.report(|path| CaptureError::Full { path, bytes });
                // The file is full, so the lane need not copy.
                self.shared.closed.store(true, Ordering::Release);
            }
            Err(error) => self.report(|path| CaptureError::Write { path, source: other(error) }),
        }
    }

    /// Writes the pending blocks.
    fn flush(&mut self, now: Instant) {
        if self.blocks.bytes().is_empty() {
            return;
        }
        // After a failure, cuts off the rest that could not be cut off then.
        let cut = if self.retry_at.is_some() { self.disk.cut(self.len) } else { Ok(()) };
        match cut.and_then(|()| self.disk.put(self.blocks.bytes(), self.len)) {
            Ok(()) => {
                self.retry_at = None;
                self.written();
            }
            Err(error) => {
                // On failure, cut off before the next try.
                let _ = self.disk.cut(self.len);
                self.retry_at = Some(now + RETRY);
                self.report(|path| CaptureError::Write { path, source: error });
                let Pending { frames, missed } = std::mem::take(&mut self.pending);
                self.missed += missed;
                self.lose(frames);
                self.blocks.bytes_mut().clear();
            }
        }
    }

    /// Counts the pending blocks as written.
    fn written(&mut self) {
        self.len += self.blocks.bytes().len() as u64;
        self.blocks.bytes_mut().clear();
        let Pending { frames, .. } = std::mem::take(&mut self.pending);
        self.shared.file_bytes.store(self.len, Ordering::Relaxed);
        self.shared.written.fetch_add(frames, Ordering::Relaxed);
    }

    fn lose(&mut self, frames: u64) {
        self.missed += frames;
        self.shared.lost.fetch_add(frames, Ordering::Relaxed);
    }

    /// Keeps the first error; later ones follow from it.
    fn report(&self, error: impl FnOnce(PathBuf) -> CaptureError) {
        self.shared.error.get_or_init(|| error(self.shared.path.clone()));
    }
}

/// A write to memory fails only for invalid blocks, and ours are valid.
fn other(error: PcapNgWriteError) -> io::Error {
    io::Error::other(error)
}

/// First blocks of a file.
fn preamble(interface: &str, snap_len: u32) -> Result<Blocks, PcapNgWriteError> {
    // The order of a file that another daemon began.
    let mut blocks = Blocks::begin(Endianness::Big)?;
    blocks.interface(interface, snap_len)?;
    Ok(blocks)
}
