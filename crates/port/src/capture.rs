//! Captures: a port that writes delivered frames to a pcapng file, for example the target of a
//! mirror.
//!
//! # Model
//! The receive half ([`Capture::create`]) copies frames, with their edits and cut to a snap length,
//! into a ring of bytes in preallocated memory. A thread of the capture takes them out and appends
//! whole blocks to the file; it polls every [`POLL_INTERVAL`] while frames come. So a lane makes
//! one copy, as for a guest's ring, and never waits: no lock, no allocation, no system call,
//! whatever the disk does. A full ring counts as a receiver without buffers.
//!
//! The file is complete after every write, shortly after the frames came; a failed write is cut off
//! again. Dropping the receive half ends the capture. Dropping the [`Capture`] also ends it, and
//! waits for the disk.
//!
//! # File format
//! Frames are written as on a wire: checksums and segmentation are completed before the copy.
//!
//! pcapng 1.0 (draft-ietf-opsawg-pcapng, sections 4.1 to 4.3), with one interface named after the
//! adapter. Time stamps are taken once a delivery, in ns. After a gap, the next frame has the
//! number of missing frames (`epb_dropcount`).
//!
//! # Limits
//! [`CaptureLimits`] bound the disk space and memory that guests' frames can use.

mod blocks;
mod file;
pub mod filter;
pub mod live;
mod receive;
mod ring;
mod writer;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::half::Receive;
use receive::CaptureReceive;
use ring::{BufferRef, Record};
use writer::CaptureWriter;

pub use file::OpenCapture;
pub use ring::CaptureBuffer;

/// Interval of polls of the ring while frames come.
pub const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Interval of polls of the ring while idle.
pub const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Longest name of an interface, bytes.
const INTERFACE_LEN_MAX: u64 = 255;

/// Limits of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// Bytes kept of a frame, 16 to 262144. Default: 262144, as in tcpdump and more than any frame
    /// has.
    pub snap_len: u32,
    /// Bytes of the ring between lane and disk, 64 KiB to 1 GiB, and enough for a frame of
    /// `snap_len`. Default: 32 MiB, which is 10 Gbit/s for [`IDLE_POLL_INTERVAL`] and a third more.
    pub buffer_bytes: u32,
    /// Bytes of the file, 4 KiB or more. Default: 1 GiB.
    pub file_bytes_max: u64,
}

impl Default for CaptureLimits {
    fn default() -> Self {
        Self { snap_len: 262_144, buffer_bytes: 32 << 20, file_bytes_max: 1 << 30 }
    }
}

impl CaptureLimits {
    fn check(&self, interface: &str) -> Result<(), CaptureError> {
        let buffer_min = u64::from(self.snap_len.saturating_add(Record::LEN)).max(64 << 10);
        let name_len = interface.len() as u64;
        for (field, value, min, max) in [
            ("bytes of the interface's name", name_len, 1, INTERFACE_LEN_MAX),
            ("snap_len", self.snap_len.into(), 16, 262_144),
            ("buffer_bytes", self.buffer_bytes.into(), buffer_min, 1 << 30),
            ("file_bytes_max", self.file_bytes_max, 4096, u64::MAX),
        ] {
            if !(min..=max).contains(&value) {
                return Err(CaptureError::Limit { field, value, min, max });
            }
        }
        Ok(())
    }
}

/// Reason for which a capture cannot be made, or frames are missing from its file.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A limit is out of range.
    #[error("{field}: {value} is not allowed; choose {min} to {max}")]
    Limit {
        /// Field of [`CaptureLimits`].
        field: &'static str,
        /// Value requested.
        value: u64,
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// The path is not a regular file, or is a symbolic link.
    #[error("{}: not a regular file; name a new file, or one to overwrite", path.display())]
    NotAFile {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is not a capture.
    #[error("{}: not a capture; name a new file, or remove this one", path.display())]
    NotACapture {
        /// Path of the file.
        path: PathBuf,
    },
    /// The sandbox allows no file of this name there.
    #[error(
        "{}: outside run_dir and state_dir the sandbox allows only *.pcapng, and none in \
         directories of settings (/etc, /usr, hidden ones); choose another path",
        path.display()
    )]
    Place {
        /// Path of the file.
        path: PathBuf,
    },
    /// Another capture writes to the file.
    #[error("{}: another capture writes to this file; name a different one", path.display())]
    Busy {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file cannot be created or emptied.
    #[error("{}: cannot be written; check the directory and its permissions", path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// No memory for the ring.
    #[error("no memory for the capture; free memory, or lower buffer_bytes")]
    Memory(#[from] guestmem::MapError),
    /// The writer's thread cannot be started.
    #[error("no thread for the capture; raise the limit of tasks (ulimit -u)")]
    Thread(#[source] std::io::Error),
    /// Frames cannot be written. Retried every second.
    #[error("{}: frames are lost; make room on the disk", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// Blocks cannot be built.
    #[error("no blocks for the capture; report this")]
    Live(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The file has reached its maximum size, and the capture has ended.
    #[error("{}: full after {bytes} bytes; raise file_bytes_max", path.display())]
    Full {
        /// Path of the file.
        path: PathBuf,
        /// [`CaptureLimits::file_bytes_max`].
        bytes: u64,
    },
}

/// Counts of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Frames in the file.
    pub written: u64,
    /// Frames dropped because the file is full or cannot be written.
    pub lost: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// State shared by the handle, the receive half and the writer.
#[derive(Debug)]
struct CaptureState {
    path: PathBuf,
    /// Set when no more frames are taken.
    closed: AtomicBool,
    /// Set to end the writer's thread, though frames are still taken.
    paused: AtomicBool,
    written: AtomicU64,
    lost: AtomicU64,
    file_bytes: AtomicU64,
    /// The first error.
    error: OnceLock<CaptureError>,
}

impl CaptureState {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            closed: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            file_bytes: AtomicU64::new(0),
            error: OnceLock::new(),
        }
    }

    fn counts(&self) -> CaptureCounts {
        CaptureCounts {
            written: self.written.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            file_bytes: self.file_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Handle of a capture. The frames go to its receive half.
#[derive(Debug)]
pub struct Capture {
    shared: Arc<CaptureState>,
    writer: Option<JoinHandle<CaptureWriter<File>>>,
    /// Writer without its thread, after [`pause`](Self::pause).
    paused: Option<CaptureWriter<File>>,
    /// Second descriptor of the file.
    file: Arc<OwnedFd>,
    buffer: BufferRef,
}

impl Capture {
    /// Starts a capture to the file at `path`, readable by its owner only. An existing capture
    /// there is overwritten. `interface` is the interface's name in the file.
    ///
    /// # Errors
    /// A limit is out of range, the path is not a regular file, holds other data or cannot be
    /// written, or memory or threads are exhausted. An existing file is unchanged unless it is a
    /// capture.
    pub fn create(
        path: &Path,
        interface: &str,
        limits: CaptureLimits,
    ) -> Result<(Capture, Box<dyn Receive>), CaptureError> {
        limits.check(interface)?;
        Capture::write(path, (file::open(path)?, 0), interface, limits, CaptureBuffer::new(limits)?)
    }

    /// Continues the file of a [finished](Self::finish) capture, of this or another process, behind
    /// its `bytes` bytes. `buffer` must be made with the same limits.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn resume(
        path: &Path,
        (file, bytes): (OwnedFd, u64),
        interface: &str,
        limits: CaptureLimits,
        buffer: CaptureBuffer,
    ) -> Result<(Capture, Box<dyn Receive>), CaptureError> {
        limits.check(interface)?;
        Capture::write(path, (File::from(file), bytes), interface, limits, buffer)
    }

    /// The file, and its length in whole blocks, bytes.
    pub fn file(&self) -> (Arc<OwnedFd>, u64) {
        (self.file.clone(), self.counts().file_bytes)
    }

    /// Writes to the file behind its first bytes.
    fn write(
        path: &Path,
        (disk, bytes): (File, u64),
        interface: &str,
        limits: CaptureLimits,
        buffer: CaptureBuffer,
    ) -> Result<(Capture, Box<dyn Receive>), CaptureError> {
        let (producer, consumer, buffer) = buffer.begin();
        let shared = Arc::new(CaptureState::new(path.to_owned()));
        let file = disk.try_clone();
        let file = file.map_err(|source| CaptureError::Open { path: path.to_owned(), source })?;
        let shape = (interface, bytes);
        let writer = CaptureWriter::begin(disk, consumer, shared.clone(), limits, shape)?;
        let writer = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || writer.run())
            .map_err(CaptureError::Thread)?;
        let receive =
            CaptureReceive::new(producer, limits.snap_len, shared.clone(), writer.thread().clone());
        let file = Arc::new(OwnedFd::from(file));
        let capture = Capture { shared, writer: Some(writer), paused: None, file, buffer };
        Ok((capture, Box::new(receive)))
    }

    /// Counts so far.
    pub fn counts(&self) -> CaptureCounts {
        self.shared.counts()
    }

    /// First reason for lost frames, if any were lost.
    pub fn error(&self) -> Option<&CaptureError> {
        self.shared.error.get()
    }

    /// Stops the writer's thread. Further frames wait in the buffer for [`finish`](Self::finish),
    /// which then waits for no thread: for a caller with little time between the two.
    pub fn pause(&mut self) {
        self.shared.paused.store(true, Ordering::Release);
        if let Some(writer) = self.writer.take() {
            writer.thread().unpark();
            // A writer that panicked has reported it; there is nothing left to write with.
            self.paused = writer.join().ok();
        }
    }

    /// Ends the capture: takes no more frames, and returns when all are in the file. Lasts as long
    /// as the disk needs for the ring's contents.
    pub fn finish(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.pause();
        if let Some(mut writer) = self.paused.take() {
            writer.drain(Instant::now());
        }
    }

    /// Ends the capture as [`finish`](Self::finish) does; returns its buffer for reuse if the
    /// receive half was dropped.
    pub fn into_buffer(self) -> Option<CaptureBuffer> {
        let buffer = self.buffer.clone();
        drop(self);
        buffer.into_buffer()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Time since the epoch; 0 if the clock is before it.
fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests;
