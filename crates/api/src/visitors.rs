//! Connections over TCP whose clients have not shown the token yet. They must not lock out the
//! token's holder.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::AbortHandle;

/// Authentication state of a connection: set once its client has shown the token.
#[derive(Debug, Clone, Default)]
pub(super) struct Known(Arc<AtomicBool>);

impl Known {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Connections without the token, oldest first, with the task of each.
#[derive(Debug, Default)]
pub(super) struct Visitors(VecDeque<(Known, AbortHandle)>);

impl Visitors {
    pub(super) fn add(&mut self, known: Known, served: AbortHandle) {
        self.0.retain(|(known, served)| !known.get() && !served.is_finished());
        self.0.push_back((known, served));
    }

    /// Closes the oldest connection that has not shown the token, if there is one.
    pub(super) fn close_oldest(&mut self) {
        while let Some((known, served)) = self.0.pop_front() {
            if !known.get() && !served.is_finished() {
                return served.abort();
            }
        }
    }
}
