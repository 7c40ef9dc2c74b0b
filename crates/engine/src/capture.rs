//! Captures: copies of frames that enter and leave ports, and of dropped frames, for one reader.
//!
//! # Model
//! A capture is a [point](CapturePoint) in the forwarding snapshot of each of its NICs. With one,
//! no burst takes the direct way: [`slow`](crate::slow) notes what happens to its frames in a
//! [`BurstLog`](log), and records them after it, before the sender gets its buffers back:
//!
//! - **in**: each frame that a guest sends, once, with the reason if it is dropped;
//! - **out**: each frame that a guest receives, as the guest sees it, or with the reason if the
//!   receiver drops it.
//!
//! Without a capture a burst costs no more than before: one flag of the snapshot also covers
//! mirrors and budgets. With one, frames are delivered singly to the ports that are captured, so
//! that each result is known; and each frame is copied once more, up to the snap length.
//!
//! The stream is pcapng ([`port::capture::live`]). Comments of a frame:
//!
//! ```text
//! path vf, VF 3
//! dropped: tx_spoofed_mac: The source MAC is not the sender's, or ...
//! waits: the guest migrates, or is in quarantine
//! ```
//!
//! # Limits
//! A ring that is full takes no frame; neither does a burst with more than [`log::EVENTS_MAX`]
//! events. Such frames are counted as lost. The memory of a lane's log grows with the first bursts.
//! A frame is recorded as it is in the ring: before its checksum is completed and before it is
//! segmented. Behind the headers that were classified, a guest that changes a frame meanwhile can
//! show the capture other bytes than the receiver. Frames that a device places in guest memory
//! itself, and parked frames when they are delivered, are not seen here.

pub(crate) mod log;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use port::capture::CaptureError;
use port::capture::filter::Filter;
use port::capture::live::{Direction, LiveCapture, LiveInput, LiveOutput, LiveRecord, Note};

use crate::drops::DROPS;
use crate::snapshot::PortPath;
use crate::soft_nic::SoftNic;

/// Frames that a capture is of.
#[derive(Clone, Debug)]
pub struct CaptureSpec {
    /// Labels of the ports; empty for all ports of the NICs.
    pub ports: Vec<String>,
    /// Only dropped frames.
    pub dropped: bool,
    /// Only this direction.
    pub direction: Option<Direction>,
    /// Only frames that match.
    pub filter: Option<Filter>,
    /// Bytes kept of a frame.
    pub snap_len: u32,
}

/// A capture, as lanes see it.
pub(crate) struct CapturePoint {
    spec: CaptureSpec,
    /// `None` once the capture has ended.
    input: Mutex<Option<LiveInput>>,
    ended: AtomicBool,
    recorded: AtomicU64,
    lost: AtomicU64,
}

impl std::fmt::Debug for CapturePoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CapturePoint").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl CapturePoint {
    /// Returns `true` if the capture is of such frames at a port.
    pub(crate) fn wants(&self, port: &str, direction: Direction, is_dropped: bool) -> bool {
        let CaptureSpec { ports, dropped, direction: only, .. } = &self.spec;
        (!dropped || is_dropped)
            && only.is_none_or(|only| only == direction)
            && (ports.is_empty() || ports.iter().any(|one| one == port))
    }

    /// Returns `true` if a frame of `len` bytes passes the filter; `bytes` holds what it reads.
    fn passes(&self, bytes: &[u8], len: u32) -> bool {
        self.spec.filter.as_ref().is_none_or(|filter| filter.matches(bytes, len))
    }

    fn record(&self, record: &LiveRecord<'_>) {
        let mut input = self.input();
        let Some(input) = &mut *input else { return };
        let counter = if input.put(record) { &self.recorded } else { &self.lost };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes kept of a frame.
    fn snap_len(&self) -> u32 {
        self.spec.snap_len
    }

    /// Counts frames that were not recorded.
    fn lose(&self, frames: u64) {
        if let Some(input) = &mut *self.input() {
            input.lose(frames);
            self.lost.fetch_add(frames, Ordering::Relaxed);
        }
    }

    /// The lanes take turns, for one copy within memory of the daemon each.
    fn input(&self) -> MutexGuard<'_, Option<LiveInput>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handle that ends a capture.
#[derive(Clone, Debug)]
pub struct CaptureEnd(std::sync::Weak<CapturePoint>);

impl CaptureEnd {
    /// Ends the capture: its stream ends once it has been read.
    pub fn end(&self) {
        if let Some(point) = self.0.upgrade() {
            point.ended.store(true, Ordering::Release);
        }
    }

    /// Returns `true` while the stream exists.
    pub fn is_held(&self) -> bool {
        self.0.upgrade().is_some_and(|point| point.input().is_some())
    }
}

/// Stream of a capture. Dropping it ends the capture.
#[derive(Debug)]
pub struct CaptureStream {
    point: Arc<CapturePoint>,
    nics: Vec<Arc<SoftNic>>,
    output: LiveOutput,
    is_over: bool,
}

impl CaptureStream {
    /// Begins a capture on these NICs.
    ///
    /// # Errors
    /// The snap length is out of range, or no memory is left.
    pub fn begin(
        nics: Vec<Arc<SoftNic>>,
        spec: CaptureSpec,
    ) -> Result<CaptureStream, CaptureError> {
        let (input, mut output) = LiveCapture::begin(spec.snap_len)?;
        spec.ports.iter().for_each(|port| output.describe(port));
        let point = Arc::new(CapturePoint {
            spec,
            input: Mutex::new(Some(input)),
            ended: AtomicBool::new(false),
            recorded: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        nics.iter().for_each(|nic| nic.add_capture(&point));
        Ok(CaptureStream { point, nics, output, is_over: false })
    }

    /// Handle that ends the capture.
    pub fn end_handle(&self) -> CaptureEnd {
        CaptureEnd(Arc::downgrade(&self.point))
    }

    /// The next bytes; empty if there are none now, `None` at the end of the stream.
    pub fn next_bytes(&mut self) -> Option<Vec<u8>> {
        if self.is_over {
            return None;
        }
        // Read first: frames recorded before the end are then taken.
        let has_ended = self.point.ended.load(Ordering::Acquire);
        let bytes = self.output.read(comments);
        if bytes.is_empty() && has_ended {
            self.is_over = true;
            self.report();
            return Some(self.output.read(comments));
        }
        Some(bytes)
    }

    /// Adds the totals to the stream, if they have changed.
    pub fn report(&mut self) {
        self.output.report(self.totals());
    }

    /// Frames recorded, and frames lost.
    pub fn totals(&self) -> [u64; 2] {
        [&self.point.recorded, &self.point.lost].map(|counter| counter.load(Ordering::Relaxed))
    }
}

impl Drop for CaptureStream {
    fn drop(&mut self) {
        self.nics.iter().for_each(|nic| nic.remove_capture(&self.point));
        // Here, not by a lane: a lane frees no memory.
        drop(self.point.input().take());
    }
}

/// Result for a frame at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameResult {
    /// Sent or received.
    Passed,
    /// It waits in the daemon.
    Waits,
    /// Dropped, with its counter in a port's block.
    Dropped(usize),
}

const PASSED: u16 = u16::MAX;
const WAITS: u16 = u16::MAX - 1;
const NO_VF: u16 = u16::MAX;

/// Codes facts about a frame.
fn note(path: Option<PortPath>, vf: Option<u16>, result: FrameResult) -> Note {
    let result = match result {
        FrameResult::Passed => PASSED,
        FrameResult::Waits => WAITS,
        FrameResult::Dropped(counter) => counter as u16,
    };
    let ([a, b], [c, d]) = (vf.unwrap_or(NO_VF).to_ne_bytes(), result.to_ne_bytes());
    [path.map_or(u8::MAX, |path| path as u8), 0, a, b, c, d]
}

/// Explains a note.
fn comments(note: Note) -> Vec<String> {
    let [path, _, a, b, c, d] = note;
    let (vf, result) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
    let mut comments = Vec::new();
    if let Some(path) = PortPath::ALL.get(usize::from(path)) {
        let vf = if vf == NO_VF { String::new() } else { format!(", VF {vf}") };
        comments.push(format!("path {}{vf}", path.name()));
    }
    match result {
        PASSED => {}
        WAITS => comments.push("waits: the guest migrates, or is in quarantine".to_owned()),
        counter => {
            let named = DROPS.iter().find_map(|reason| {
                let mut counters = reason.counters.iter();
                let (name, _) = counters.find(|(_, at)| *at == usize::from(counter))?;
                Some(format!("dropped: {name}: {}", reason.meaning))
            });
            comments.extend(named);
        }
    }
    comments
}
