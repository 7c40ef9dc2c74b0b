//! The data plane, as control sees it: something that can be brought from one state to another, and
//! asked.

use std::collections::BTreeMap;

use model::state::{Actual, Problems, State};

use crate::Events;

/// What carries frames.
pub trait Plane: Send {
    /// Says which VF each adapter had when a daemon last ran, so that it has the same one again,
    /// whatever came and went since it got it. Called before the first
    /// [`reconcile`](Self::reconcile); a plane may have a memory of its own.
    fn recall(&mut self, _held: BTreeMap<String, u16>) {}

    /// Sets the list in which events are recorded that no call of this trait causes, at the time
    /// when they happen. Called before the first [`reconcile`](Self::reconcile).
    fn record_in(&mut self, _events: Events) {}

    /// Brings what is in force from `from` to `to`. Calling it again with the same `to` changes
    /// nothing.
    ///
    /// After a crash `from` may name what is only partly there, so an implementation takes what it
    /// finds.
    ///
    /// # Errors
    /// What it cannot do, or could not with other links. Then everything is as it was before the
    /// call.
    fn reconcile(&mut self, from: &State, to: &State) -> Result<Actual, Refused>;

    /// What is in force now.
    fn actual(&self) -> Actual;

    /// Takes the frames that were kept for an adapter whose guest has left, oldest first.
    fn take_kept(&mut self, _adapter: &str) -> Taken {
        Taken::default()
    }

    /// Gives an adapter whose guest arrives frames that were kept for it elsewhere: they come
    /// before those kept here, and behind those that were given so before.
    fn put_kept(&mut self, _adapter: &str, _frames: Vec<Vec<u8>>) {}

    /// What is kept for an adapter, and what there was no room for.
    fn kept(&self, _adapter: &str) -> Kept {
        Kept::default()
    }

    /// Tells all who can hear it that an adapter's addresses are here; how many ports it went to.
    fn announce(&mut self, _adapter: &str) -> usize {
        0
    }
}

/// Frames that were kept for an adapter, and are not any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// The frames, oldest first.
    pub frames: Vec<Vec<u8>>,
    /// How many of them, the first ones, were given by [`put_kept`](Plane::put_kept).
    pub brought: usize,
}

/// Frames kept for an adapter whose guest is between two hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// Frames that wait.
    pub frames: u64,
    /// Frames that were dropped, for there was no room.
    pub lost: u64,
    /// Frames that its guest has received here.
    pub received: u64,
    /// Frames that its guest has sent here.
    pub sent: u64,
}

/// Why a data plane cannot do what was asked; it has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub Problems);
