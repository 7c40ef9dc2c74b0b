//! A port that writes what is delivered to it to a pcapng file: the far end of a mirror.
//!
//! # Model
//! The receive half ([`Capture::create`]) copies frames, with their edits and cut to a snap length,
//! into a ring of bytes in memory that was taken beforehand. A thread of the capture takes them
//! out, looking every [`LOOK`] while there are any, and appends whole blocks to the file. So a lane
//! does here what it does for a guest's ring, one copy, and never waits: no lock, no allocation, no
//! system call, whatever the disk does. A full ring is a receiver without buffers.
//!
//! The file is complete after every write, at most a moment after the frames came; a write that
//! failed is cut off again. Who drops the receive half ends the capture; who drops the [`Capture`]
//! ends it too, and waits for the disk.
//!
//! # What is in the file
//! Frames as they are on a wire: where a checksum or the cutting of segments was left to the
//! receiver, it is done before the frame is copied.
//!
//! pcapng 1.0 (draft-ietf-opsawg-pcapng, sections 4.1 to 4.3), one interface, which has the
//! adapter's name. Time stamps are taken once a delivery, in ns. Where frames are missing because
//! the ring or the disk was full, the next frame says how many (`epb_dropcount`).
//!
//! # Limits
//! [`CaptureLimits`]: what guests send must not fill the host's disk or memory.

mod file;
mod half;
mod ring;
mod writer;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Receive;
use half::Half;
use ring::{Hold, Record};
use writer::Writer;

pub use ring::Buffer;

/// How often the ring is looked at while frames come.
pub const LOOK: Duration = Duration::from_millis(1);
/// How often it is looked at while none do.
pub const LOOK_SILENT: Duration = Duration::from_millis(20);

/// Longest name of an interface, bytes.
const INTERFACE_LEN_MAX: u64 = 255;

/// What a capture may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// Bytes of a frame that are kept, 16 to 262144. By default the latter, which is what tcpdump
    /// keeps and more than any frame has.
    pub snap_len: u32,
    /// Bytes of the ring between lane and disk, 64 KiB to 1 GiB, and enough for a frame of
    /// `snap_len`. By default 32 MiB: what 10 Gbit/s bring in [`LOOK_SILENT`], and a third more.
    pub buffer_bytes: u32,
    /// Bytes of the file, 4 KiB or more. By default 1 GiB.
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

/// Why a capture cannot be made, or why frames are missing from its file.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A limit is out of range.
    #[error("{field}: {value} is not allowed; choose {min} to {max}")]
    Limit {
        /// Field of [`CaptureLimits`].
        field: &'static str,
        /// What was asked for.
        value: u64,
        /// Least value allowed.
        min: u64,
        /// Greatest value allowed.
        max: u64,
    },
    /// The path names something that cannot hold a capture, or a symbolic link.
    #[error("{}: not a regular file; name a new file, or one to overwrite", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file holds something else than a capture.
    #[error("{}: not a capture; name a new file, or remove this one", path.display())]
    NotACapture {
        /// The path.
        path: PathBuf,
    },
    /// Another capture writes to the file.
    #[error("{}: another capture writes to this file; name a different one", path.display())]
    Busy {
        /// The path.
        path: PathBuf,
    },
    /// The file could not be made or emptied.
    #[error("{}: cannot be written; check the directory and its permissions", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// There is no memory for the ring.
    #[error("no buffer for the capture; free memory, or lower buffer_bytes")]
    Memory(#[from] guestmem::MapError),
    /// The writer could not be started.
    #[error("no thread for the capture; raise the limit of tasks")]
    Thread(#[source] std::io::Error),
    /// Frames could not be written. It is tried again every second.
    #[error("{}: frames are lost; make room on the disk", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// The file has its greatest size, and the capture is over.
    #[error("{}: full after {bytes} bytes; raise file_bytes_max", path.display())]
    Full {
        /// The path.
        path: PathBuf,
        /// [`CaptureLimits::file_bytes_max`].
        bytes: u64,
    },
}

/// What became of the frames that were taken into the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Frames in the file.
    pub written: u64,
    /// Frames that the file has no room for, or that could not be written.
    pub lost: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// What the handle, the receive half and the writer share.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// Whether no frame is taken any more.
    closed: AtomicBool,
    /// Whether the writer's thread is to end, though frames are still taken.
    paused: AtomicBool,
    written: AtomicU64,
    lost: AtomicU64,
    file_bytes: AtomicU64,
    /// The first.
    error: OnceLock<CaptureError>,
}

impl Shared {
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

/// A capture, for those who watch and end it. The frames go to its receive half.
#[derive(Debug)]
pub struct Capture {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<Writer<File>>>,
    /// The writer without its thread, after [`pause`](Self::pause).
    paused: Option<Writer<File>>,
    /// Another hold on the file.
    file: Arc<OwnedFd>,
    buffer: Hold,
}

impl Capture {
    /// Starts a capture to the file at `path`, which only its owner may read and which is emptied
    /// if it is there already and holds a capture. `interface` is what readers of the file call the
    /// interface.
    ///
    /// # Errors
    /// The limits are refused, the path is not a regular file, holds something else or cannot be
    /// written to, or there is neither memory nor a thread. An existing file is left as it was
    /// unless it is this one's.
    pub fn create(
        path: &Path,
        interface: &str,
        limits: CaptureLimits,
    ) -> Result<(Capture, Box<dyn Receive>), CaptureError> {
        limits.check(interface)?;
        Capture::write(path, (file::open(path)?, 0), interface, limits, Buffer::new(limits)?)
    }

    /// Goes on with the file of a capture that was [finished](Self::finish), here or in another
    /// process, behind its `bytes` bytes. `buffer` was made with the same limits.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn go_on(
        path: &Path,
        (file, bytes): (OwnedFd, u64),
        interface: &str,
        limits: CaptureLimits,
        buffer: Buffer,
    ) -> Result<(Capture, Box<dyn Receive>), CaptureError> {
        limits.check(interface)?;
        Capture::write(path, (File::from(file), bytes), interface, limits, buffer)
    }

    /// The file, and how many bytes of it are whole blocks.
    pub fn file(&self) -> (Arc<OwnedFd>, u64) {
        (self.file.clone(), self.counts().file_bytes)
    }

    /// Writes to the file behind its first bytes.
    fn write(
        path: &Path,
        (disk, bytes): (File, u64),
        interface: &str,
        limits: CaptureLimits,
        buffer: Buffer,
    ) -> Result<(Capture, Box<dyn Receive>), CaptureError> {
        let (producer, consumer, buffer) = buffer.begin();
        let shared = Arc::new(Shared::new(path.to_owned()));
        let file = disk.try_clone();
        let file = file.map_err(|source| CaptureError::Open { path: path.to_owned(), source })?;
        let shape = (interface, bytes);
        let writer = Writer::begin(disk, consumer, shared.clone(), limits, shape)?;
        let writer = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || writer.run())
            .map_err(CaptureError::Thread)?;
        let half = Half::new(producer, limits.snap_len, shared.clone(), writer.thread().clone());
        let file = Arc::new(OwnedFd::from(file));
        let capture = Capture { shared, writer: Some(writer), paused: None, file, buffer };
        Ok((capture, Box::new(half)))
    }

    /// What became of the frames so far.
    pub fn counts(&self) -> CaptureCounts {
        self.shared.counts()
    }

    /// Why frames are lost, if any were: the first reason there was.
    pub fn error(&self) -> Option<&CaptureError> {
        self.shared.error.get()
    }

    /// Ends the writer's thread. Frames that come wait in the buffer for [`finish`](Self::finish),
    /// which then waits for no thread to be scheduled: for a caller that has little time between
    /// the two.
    pub fn pause(&mut self) {
        self.shared.paused.store(true, Ordering::Release);
        if let Some(writer) = self.writer.take() {
            writer.thread().unpark();
            // A writer that panicked has said so, and there is nothing left to write with.
            self.paused = writer.join().ok();
        }
    }

    /// Ends the capture: takes no more frames, and returns when those that came are in the file.
    /// That lasts as long as the disk needs for what the ring holds.
    pub fn finish(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.pause();
        if let Some(mut writer) = self.paused.take() {
            writer.drain(Instant::now());
        }
    }

    /// Ends the capture as [`finish`](Self::finish) does; its buffer can be another's if the
    /// receive half was dropped.
    pub fn into_buffer(self) -> Option<Buffer> {
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

#[cfg(test)]
mod tests;
