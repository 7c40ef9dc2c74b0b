//! TCP connections that have not authenticated yet. They must not lock out a client with the token.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::AbortHandle;

/// Authentication state of a connection: set once its client has presented the token.
#[derive(Debug, Clone, Default)]
pub(super) struct Authenticated(Arc<AtomicBool>);

impl Authenticated {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Unauthenticated connections, oldest first, with the task of each.
#[derive(Debug, Default)]
pub(super) struct Unauthenticated(VecDeque<(Authenticated, AbortHandle)>);

impl Unauthenticated {
    pub(super) fn add(&mut self, known: Authenticated, served: AbortHandle) {
        self.0.retain(|(known, served)| !known.get() && !served.is_finished());
        self.0.push_back((known, served));
    }

    /// Closes the oldest unauthenticated connection, if any.
    pub(super) fn close_oldest(&mut self) {
        while let Some((known, served)) = self.0.pop_front() {
            if !known.get() && !served.is_finished() {
                return served.abort();
            }
        }
    }
}
