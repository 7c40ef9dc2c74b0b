//! Captures as ports: a file's frames are sent as if by a guest, and delivered frames are written
//! to another file.
//!
//! # Model
//! The file, pcap or pcapng, is read into memory when the port is opened ([`recording`]). Its
//! frames are lent from there, as often as the file is played. The pace alone decides the time of
//! each frame ([`player`]). A poll takes the frames that are due and never waits; a timer wakes a
//! sleeping lane for the next frame. Delivered frames go to a [`Capture`], or are dropped without
//! one.
//!
//! # Limits
//! Ethernet only, files of up to [`FILE_BYTES_MAX`]. Truncated frames are left out, because they
//! cannot be sent as they were. A player that was not polled for [`LATE_MAX`] continues from there,
//! and does not catch up.

mod player;
mod recording;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use guestmem::MapError;
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::burst::{BURST, NetHeader};
use crate::capture::{Capture, CaptureBuffer, CaptureError, CaptureLimits};
use crate::half::{DiscardReceive, Receive};
use crate::handover::{IncompleteHandover, PortHandover, StateReader, StateWriter};
use crate::kernel::{KernelRx, RxBuffer, RxSource};
use crate::opened::{Housekeeping, LinkHealth, OpenedDevice, QueuePair};
use player::Player;

pub use player::LATE_MAX;
pub(crate) use recording::SECTION_HEADER;
pub use recording::{FILE_BYTES_MAX, OpenRecording, read_frames};

/// Pace of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Intervals as recorded; frames with equal times follow as fast as possible.
    Recorded,
    /// Megabits of frames a second, without the overhead of Ethernet on a wire.
    Mbps(u32),
    /// Frames a second.
    Pps(u32),
}

/// Configuration of a capture port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapSpec {
    /// The capture to play, pcap or pcapng.
    pub file: PathBuf,
    /// The pcapng file for delivered frames; `None`: they are counted and dropped.
    pub sink: Option<PathBuf>,
    /// Name of the interface in the sink.
    pub name: String,
    /// Pace of sending.
    pub pace: Pace,
    /// Number of times that the file is played; 0: forever.
    pub repeat: u32,
}

/// Reason for which a capture port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file cannot be read.
    #[error("{}: cannot be read; name a capture that this user may read", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The file is not a capture, or truncated.
    #[error("{}: truncated, or no capture (after {frames} frames); name a pcap or pcapng file", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Frames read before the problem.
        frames: usize,
        /// Error of the parser.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file cannot be played.
    #[error("{}: {what}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Problem, and the remedy.
        what: &'static str,
    },
    /// The hand-over state is incomplete.
    #[error(transparent)]
    IncompleteHandover(#[from] IncompleteHandover),
    /// No memory for the file.
    #[error("{}: no memory to load it; free memory, or split it (editcap -c)", path.display())]
    Memory {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: MapError,
    },
    /// No timer is left.
    #[error("{}: no timer; raise the limit of open files (ulimit -n)", path.display())]
    Timer {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The sink cannot be written.
    #[error(transparent)]
    Sink(#[from] CaptureError),
}

/// Opens the port. The file starts at the first poll.
///
/// # Errors
/// [`PcapError`].
pub fn open(spec: &PcapSpec) -> Result<OpenedDevice, PcapError> {
    open_at(spec, None)
}

/// Continues the playback of the previous process (hot restart), and its sink.
///
/// # Errors
/// [`PcapError`].
pub fn resume(spec: &PcapSpec, handover: PortHandover) -> Result<OpenedDevice, PcapError> {
    open_at(spec, Some(handover))
}

/// Position of the previous process: start time, and length of the sink.
struct PlaybackPosition {
    begin: Option<Instant>,
    sink_bytes: Option<u64>,
}

/// Moves the player to the position of the previous process.
fn restore(player: &mut Player, handover: &PortHandover) -> Option<PlaybackPosition> {
    let mut state = StateReader(&handover.state);
    let sink_bytes = state.flag()?.then(|| state.number()).flatten();
    let mut played = StateReader(state.bytes()?);
    let (begun, since_ns) = (played.flag()?, played.number()?);
    let begin = Instant::now().checked_sub(Duration::from_nanos(since_ns));
    player.restore(&mut played)?;
    Some(PlaybackPosition { begin: begin.filter(|_| begun), sink_bytes })
}

fn open_at(spec: &PcapSpec, handover: Option<PortHandover>) -> Result<OpenedDevice, PcapError> {
    let (recording, rx_buffer) = recording::load(&spec.file)?;
    let mut notes = Vec::new();
    if recording.cut > 0 {
        let (file, cut) = (spec.file.display(), recording.cut);
        notes.push(format!("{file}: skipped {cut} truncated or oversize frames"));
    }
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)
        .map_err(|e| PcapError::Timer { path: spec.file.clone(), source: e.into() })?;
    let health = Arc::new(LinkHealth::default()); // memory is never lost
    let mut player = Player::new(recording, spec.pace, spec.repeat);
    let incomplete = IncompleteHandover("a recording");
    let was = match &handover {
        Some(handover) => Some(restore(&mut player, handover).ok_or(incomplete)?),
        None => None,
    };
    let limits = CaptureLimits::default();
    let (capture, receive): (_, Box<dyn Receive>) = match &spec.sink {
        Some(sink) => {
            let file =
                handover.as_ref().and_then(|handover| handover.fds.first()?.try_clone().ok());
            let written = was.as_ref().and_then(|was| was.sink_bytes);
            let (capture, half) = match file.zip(written) {
                Some(file) => {
                    let buffer = CaptureBuffer::new(limits).map_err(CaptureError::from)?;
                    Capture::resume(sink, file, &spec.name, limits, buffer)?
                }
                None => Capture::create(sink, &spec.name, limits)?,
            };
            (Some(capture), half)
        }
        None => (None, Box::new(DiscardReceive)),
    };
    let source = PcapSource { player, begin: was.and_then(|was| was.begin), timer };
    let transmit = Box::new(KernelRx::new(source, rx_buffer, health.clone()));
    let housekeeping: Option<Box<dyn Housekeeping>> = Some(Box::new(PcapHousekeeping { capture }));
    Ok(OpenedDevice { pairs: vec![QueuePair { transmit, receive }], health, housekeeping, notes })
}

/// Frames of the file, as they are due.
#[derive(Debug)]
struct PcapSource {
    player: Player,
    /// Time of the first poll.
    begin: Option<Instant>,
    timer: OwnedFd,
}

impl PcapSource {
    fn now_ns(&mut self) -> u64 {
        let now = Instant::now();
        let begin = *self.begin.get_or_insert(now);
        now.saturating_duration_since(begin).as_nanos() as u64
    }
}

impl RxSource for PcapSource {
    fn take(&mut self, rx_buffer: &mut RxBuffer) -> Result<bool, Errno> {
        if self.player.is_over() {
            return Ok(false);
        }
        let now_ns = self.now_ns();
        self.player.catch_up(now_ns);
        while rx_buffer.len() < BURST {
            let Some(frame) = self.player.next(now_ns) else {
                return Ok(false);
            };
            rx_buffer.take(frame.at, frame.len, NetHeader::PLAIN);
        }
        Ok(true)
    }

    fn enable_notification(&mut self) -> bool {
        let Some(due_ns) = self.player.due_ns() else {
            return false;
        };
        let wait_ns = due_ns.saturating_sub(self.now_ns());
        if wait_ns == 0 {
            return true;
        }
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let nsec = (wait_ns % 1_000_000_000) as i64;
        let value = Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: nsec };
        let time = Itimerspec { it_interval: none, it_value: value };
        // Without a timer the lane must keep polling.
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time).is_err()
    }

    fn kick(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    fn handover_state(&self, _: &RxBuffer) -> Vec<u8> {
        let mut state = StateWriter::default();
        state.flag(self.begin.is_some());
        state.number(self.begin.map_or(0, |begin| begin.elapsed().as_nanos() as u64));
        self.player.save(&mut state);
        state.0
    }
}

/// Keeps the sink's writer while the port is open.
#[derive(Debug)]
struct PcapHousekeeping {
    capture: Option<Capture>,
}

impl Housekeeping for PcapHousekeeping {
    fn tick(&mut self, _: Instant) {}

    fn handover(&mut self, handover_state: &[Vec<u8>]) -> Option<PortHandover> {
        let PcapHousekeeping { capture } = self;
        let (mut fds, mut state) = (Vec::new(), StateWriter::default());
        state.flag(capture.is_some());
        if let Some(capture) = capture {
            capture.finish();
            let (file, bytes) = capture.file();
            fds.push(file);
            state.number(bytes);
        }
        state.bytes(handover_state.first()?);
        Some(PortHandover { fds, state: state.0 })
    }
}
