//! Event file descriptors of a ring, shared with a front-end.
//!
//! They are set non-blocking on arrival, but a front-end can undo that and fill the counter; then
//! the next write blocks until the front-end reads. So each write is interrupted after a short time
//! ([`host::watchdog`]), and a front-end whose write blocked gets no more. A write that does not
//! block may still be slow; then it is made off the lanes ([`crate::notifier`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vhost_user::ForeignFd;

use crate::notifier::{self, WriteBudget, WriteState};

/// Interrupts a guest that has no eventfd, such as a driver of this kernel. Must not block.
pub trait Interrupt: fmt::Debug + Send + Sync {
    /// Interrupts the guest; returns `true` on success.
    fn raise(&self) -> bool;
}

/// Event file descriptors of a ring.
#[derive(Clone, Debug, Default)]
pub struct RingEvents {
    /// Readable when the guest kicked.
    pub kick: Option<Arc<ForeignFd>>,
    /// Written to interrupt the guest.
    pub call: Option<Arc<ForeignFd>>,
    /// Used instead of `call`, if present.
    pub interrupt: Option<Arc<dyn Interrupt>>,
    /// Written when the guest broke the ring.
    pub error: Option<Arc<ForeignFd>>,
    /// Set once a write to one of them blocked and was interrupted; then there are no more writes.
    /// All rings of a front-end share it, because the front-end is not trusted.
    pub stalled: Arc<AtomicBool>,
    /// Time spent in writes to them. All rings of a front-end share it.
    pub budget: Arc<WriteBudget>,
    /// State of the writes to `call`.
    pub call_state: Arc<WriteState>,
    /// State of the writes to `error`.
    pub error_state: Arc<WriteState>,
}

impl RingEvents {
    /// Replaces `call`. A pending write goes to the previous descriptor.
    pub fn set_call(&mut self, call: Option<Arc<ForeignFd>>) {
        (self.call, self.call_state) = (call, Arc::default());
    }

    /// Replaces `error`; a pending write goes to the previous descriptor.
    pub fn set_error(&mut self, error: Option<Arc<ForeignFd>>) {
        (self.error, self.error_state) = (error, Arc::default());
    }

    /// Interrupts the guest if it has a descriptor for that; returns `true` on success.
    pub fn notify(&self) -> bool {
        match &self.interrupt {
            Some(interrupt) => interrupt.raise(),
            None => self.signal(self.call.as_ref(), &self.call_state),
        }
    }

    /// Reports that the guest broke the ring, if the front-end asked for that.
    pub fn raise_error(&self) {
        self.signal(self.error.as_ref(), &self.error_state);
    }

    /// Adds one to an eventfd, or queues that for the notifier.
    fn signal(&self, event: Option<&Arc<ForeignFd>>, state: &Arc<WriteState>) -> bool {
        let Some(event) = event else {
            return false;
        };
        if self.stalled.load(Ordering::Relaxed) {
            return false;
        }
        if self.budget.is_moved() {
            notifier::queue_write(event, state, &self.stalled, &self.budget);
            return true;
        }
        notifier::write(event, state, &self.stalled, &self.budget)
    }
}
