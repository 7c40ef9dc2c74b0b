//! Captures as ports: frames of a file are sent as if a guest did, and what is delivered to the
//! port is written to another.
//!
//! # Model
//! The file, pcap or pcapng, is read into memory when the port is opened ([`recording`]), and its
//! frames are lent from there, as often as they are to be played. When each is due is a matter of
//! the pace alone ([`player`]). A lane that asks gets the frames that are due; it never waits, and
//! when it sleeps a timer wakes it for the next. What is delivered goes to a [`Capture`], or, where
//! there is none, nowhere.
//!
//! # Limits
//! Ethernet. [`FILE_BYTES_MAX`]. Frames that the capture cut are left out, for they cannot be sent
//! as they were. A player that was not asked for [`LATE_MAX`] goes on from there, and does not
//! catch up.

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

use crate::burst::{BURST, Burst, BurstBuffers, VlanEdit};
use crate::capture::{Buffer, Capture, CaptureError, CaptureLimits};
use crate::device::{KernelRx, RxBuffer, Source};
use crate::legacy::{Said, Words};
use crate::{
    Delivered, Housekeeping, Incomplete, Legacy, LinkHealth, Offload, Opened, Pair, Receive,
};
use player::Player;

pub use player::LATE_MAX;
pub use recording::FILE_BYTES_MAX;

/// When frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As far from each other as they are in the file; where all have one time, as fast as may be.
    Recorded,
    /// So many megabits of frames a second, without what Ethernet adds on a wire.
    Mbps(u32),
    /// So many frames a second.
    Pps(u32),
}

/// What is played, and what becomes of the frames that come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The capture to play, pcap or pcapng.
    pub file: PathBuf,
    /// The pcapng file for what is delivered; `None`: it is counted and dropped.
    pub sink: Option<PathBuf>,
    /// What the sink's readers are to call the interface.
    pub name: String,
    /// When frames are sent.
    pub pace: Pace,
    /// How often the file is played; 0: for ever.
    pub repeat: u32,
}

/// Why a capture cannot be a port.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file cannot be read.
    #[error("{}: cannot be read; name a capture that this user may read", path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// The file is no capture, or not whole.
    #[error("{}: not a whole capture (after {frames} frames); name a pcap or pcapng file", path.display())]
    Format {
        /// The path.
        path: PathBuf,
        /// Frames that could be read.
        frames: usize,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file has nothing to play.
    #[error("{}: {what}", path.display())]
    Content {
        /// The path.
        path: PathBuf,
        /// What is wrong, and what is allowed.
        what: &'static str,
    },
    /// Another process handed over something else.
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
    /// There is no memory for it.
    #[error("{}: no memory to hold it; free memory, or cut it (editcap -c)", path.display())]
    Memory {
        /// The path.
        path: PathBuf,
        /// The kernel's word.
        source: MapError,
    },
    /// There is no timer to be had.
    #[error("{}: no timer to play it; raise the limit of open files", path.display())]
    Timer {
        /// The path.
        path: PathBuf,
        /// The kernel's word.
        source: io::Error,
    },
    /// The sink cannot be written.
    #[error(transparent)]
    Sink(#[from] CaptureError),
}

/// Opens the port. The file begins to be played when its frames are first asked for.
///
/// # Errors
/// [`PcapError`].
pub fn open(spec: &Spec) -> Result<Opened, PcapError> {
    open_at(spec, None)
}

/// Goes on with a file that another process was playing, from where that was, and with its sink.
///
/// # Errors
/// [`PcapError`].
pub fn resume(spec: &Spec, legacy: Legacy) -> Result<Opened, PcapError> {
    open_at(spec, Some(legacy))
}

/// Where another process was: since when, where in the file, and how far in the sink.
struct Place {
    begin: Option<Instant>,
    sink_bytes: Option<u64>,
}

/// Brings the player to where it was.
fn place(player: &mut Player, legacy: &Legacy) -> Option<Place> {
    let mut said = Said(&legacy.words);
    let sink_bytes = said.flag()?.then(|| said.number()).flatten();
    let mut played = Said(said.bytes()?);
    let (begun, since_ns) = (played.flag()?, played.number()?);
    let begin = Instant::now().checked_sub(Duration::from_nanos(since_ns));
    player.go_on(&mut played)?;
    Some(Place { begin: begin.filter(|_| begun), sink_bytes })
}

fn open_at(spec: &Spec, legacy: Option<Legacy>) -> Result<Opened, PcapError> {
    let (recording, rx_buffer) = recording::load(&spec.file)?;
    let mut notes = Vec::new();
    if recording.cut > 0 {
        let (file, cut) = (spec.file.display(), recording.cut);
        notes.push(format!("{file}: {cut} frames are not whole and are left out"));
    }
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)
        .map_err(|e| PcapError::Timer { path: spec.file.clone(), source: e.into() })?;
    let condition = Arc::new(LinkHealth::default()); // memory of ours is not lost
    let mut player = Player::new(recording, spec.pace, spec.repeat);
    let incomplete = Incomplete("a recording");
    let was = match &legacy {
        Some(legacy) => Some(place(&mut player, legacy).ok_or(incomplete)?),
        None => None,
    };
    let limits = CaptureLimits::default();
    let (capture, receive): (_, Box<dyn Receive>) = match &spec.sink {
        Some(sink) => {
            let file = legacy.as_ref().and_then(|legacy| legacy.fds.first()?.try_clone().ok());
            let written = was.as_ref().and_then(|was| was.sink_bytes);
            let (capture, half) = match file.zip(written) {
                Some(file) => {
                    let buffer = Buffer::new(limits).map_err(CaptureError::from)?;
                    Capture::go_on(sink, file, &spec.name, limits, buffer)?
                }
                None => Capture::create(sink, &spec.name, limits)?,
            };
            (Some(capture), half)
        }
        None => (None, Box::new(Nowhere)),
    };
    let source = Played { player, begin: was.and_then(|was| was.begin), timer };
    let transmit = Box::new(KernelRx::new(source, rx_buffer, condition.clone()));
    let tend: Option<Box<dyn Housekeeping>> = Some(Box::new(Kept { capture }));
    Ok(Opened { pairs: vec![Pair { transmit, receive }], condition, tend, notes })
}

/// The frames of the file, as they are due.
#[derive(Debug)]
struct Played {
    player: Player,
    /// When they were first asked for.
    begin: Option<Instant>,
    timer: OwnedFd,
}

impl Played {
    fn now_ns(&mut self) -> u64 {
        let now = Instant::now();
        let begin = *self.begin.get_or_insert(now);
        now.saturating_duration_since(begin).as_nanos() as u64
    }
}

impl Source for Played {
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
            rx_buffer.take(frame.at, frame.len, Offload::PLAIN);
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
        // Without a timer the lane must look by itself.
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time).is_err()
    }

    fn kick(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    fn remains(&self, _: &RxBuffer) -> Vec<u8> {
        let mut words = Words::default();
        words.flag(self.begin.is_some());
        words.number(self.begin.map_or(0, |begin| begin.elapsed().as_nanos() as u64));
        self.player.place(&mut words);
        words.0
    }
}

/// Keeps the sink's writer for as long as the port is open.
#[derive(Debug)]
struct Kept {
    capture: Option<Capture>,
}

impl Housekeeping for Kept {
    fn tend(&mut self, _: Instant) {}

    fn legacy(&mut self, remains: &[Vec<u8>]) -> Option<Legacy> {
        let Kept { capture } = self;
        let (mut fds, mut words) = (Vec::new(), Words::default());
        words.flag(capture.is_some());
        if let Some(capture) = capture {
            capture.finish();
            let (file, bytes) = capture.file();
            fds.push(file);
            words.number(bytes);
        }
        words.bytes(remains.first()?);
        Some(Legacy { fds, words: words.0 })
    }
}

/// Where frames go that nobody wants.
#[derive(Debug)]
struct Nowhere;

impl Receive for Nowhere {
    fn swap(&mut self, _: &mut BurstBuffers) {}

    fn deliver(&mut self, burst: &Burst<'_>, indices: &[u8], _: VlanEdit) -> Delivered {
        let bytes =
            indices.iter().map(|index| u64::from(burst.frames[usize::from(*index)].len)).sum();
        Delivered { frames: indices.len() as u32, bytes, ..Delivered::default() }
    }

    fn publish(&mut self) -> bool {
        false
    }
}
