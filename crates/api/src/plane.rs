//! Interface of the data plane to the control: it moves from one state to another, and reports its
//! own.

use std::collections::BTreeMap;

use engine::capture::{CaptureSpec, CaptureStream};
use model::state::{Actual, Problems, State};

use crate::Events;
use crate::capture::CaptureError;
use crate::fdb::FdbEntry;
use crate::trace::{TraceAnswer, TraceError};

/// Data plane.
pub trait Plane: Send {
    /// Sets the VF that each adapter had when the daemon last ran, so it gets the same one again.
    /// Called before the first [`reconcile`](Self::reconcile). A data plane may have a memory of
    /// its own.
    fn recall(&mut self, _held: BTreeMap<String, u16>) {}

    /// Sets the event list, for events that no call of this trait causes. Called before the first
    /// [`reconcile`](Self::reconcile).
    fn record_in(&mut self, _events: Events) {}

    /// Changes the state in force from `from` to `to`. A repeated call with the same `to` changes
    /// nothing.
    ///
    /// After a crash only part of `from` may exist, so an implementation accepts what it finds.
    ///
    /// # Errors
    /// The part that is impossible, now or with the current links. Nothing has changed then.
    fn reconcile(&mut self, from: &State, to: &State) -> Result<Actual, PlaneError>;

    /// Tries again what has failed, such as a card that its driver refused to set up: the document
    /// in force is applied again.
    fn retry(&mut self) {}

    /// The state in force.
    fn actual(&self) -> Actual;

    /// Takes the frames parked for an adapter whose guest has left, oldest first.
    fn take_parked(&mut self, _adapter: &str) -> TakenFrames {
        TakenFrames::default()
    }

    /// Adds frames that were parked on the other host, for an adapter whose guest arrives. They
    /// precede frames parked here, and follow those of earlier calls.
    fn put_parked(&mut self, _adapter: &str, _frames: Vec<Vec<u8>>) {}

    /// Counters of an adapter's parked frames.
    fn parked(&self, _adapter: &str) -> ParkedCounters {
        ParkedCounters::default()
    }

    /// Addresses that a switch knows, learned and static.
    fn fdb(&self, _switch: &str) -> Vec<FdbEntry> {
        Vec::new()
    }

    /// Traces frames that enter at a port.
    ///
    /// # Errors
    /// There is no such port, or no memory.
    fn trace(&self, _port: &str, _frames: &[Vec<u8>]) -> Result<TraceAnswer, TraceError> {
        Err(TraceError::NoPort { known: Vec::new() })
    }

    /// Begins a capture. `spec` names ports as a client does; none for all.
    ///
    /// # Errors
    /// There is no such port, or no memory.
    fn capture(&self, spec: CaptureSpec) -> Result<CaptureStream, CaptureError> {
        let error = TraceError::NoPort { known: Vec::new() };
        Err(CaptureError::Port { name: spec.ports.into_iter().next().unwrap_or_default(), error })
    }

    /// Announces an adapter's addresses to all ports; returns the number of ports.
    fn announce(&mut self, _adapter: &str) -> usize {
        0
    }
}

/// Frames taken out of the data plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenFrames {
    /// The frames, oldest first.
    pub frames: Vec<Vec<u8>>,
    /// Number of leading frames that came from [`put_parked`](Plane::put_parked).
    pub brought: usize,
}

/// Counters of parked frames, for an adapter whose guest is between two hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParkedCounters {
    /// Waiting frames.
    pub frames: u64,
    /// Frames dropped for lack of room.
    pub lost: u64,
    /// Frames that the guest has received here.
    pub received: u64,
    /// Frames that the guest has sent here.
    pub sent: u64,
}

/// Rejection by the data plane, which has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlaneError(pub Problems);
