//! The event file descriptors of a ring, which a front-end shares with us.
//!
//! They are made non-blocking when they arrive, but a front-end can take that back, and then fill
//! the counter: the next write waits until the front-end reads. So a write is made to be brief
//! ([`host::brief`]), and whoever made one wait is not written to again. A write that does not wait
//! may still be slow: then it is made off the lanes ([`crate::notifier`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use vhost_user::ForeignFd;

use crate::notifier::{self, Budget, Line, Timer};

/// What interrupts a guest that no eventfd does, such as a driver of this kernel's. It never waits.
pub trait Interrupt: fmt::Debug + Send + Sync {
    /// Interrupts the guest; says whether it did.
    fn raise(&self) -> bool;
}

/// Event file descriptors of a ring.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// Readable when the guest kicked.
    pub kick: Option<Arc<ForeignFd>>,
    /// Written to interrupt the guest.
    pub call: Option<Arc<ForeignFd>>,
    /// In its stead, where there is one.
    pub interrupt: Option<Arc<dyn Interrupt>>,
    /// Written when the guest broke the ring.
    pub error: Option<Arc<ForeignFd>>,
    /// Set once a write to one of them had to be ended because it waited; from then on there are
    /// none. All rings of a front-end share it, for it is the front-end that cannot be trusted.
    pub stalled: Arc<AtomicBool>,
    /// Time that writes to them take. All rings of a front-end share it.
    pub budget: Arc<Budget>,
    /// State of the writes to `call`.
    pub line: Arc<Line>,
    /// State of the writes to `error`.
    pub error_line: Arc<Line>,
}

impl Events {
    /// Replaces `call`. A write that is pending goes to the former one.
    pub fn set_call(&mut self, call: Option<Arc<ForeignFd>>) {
        (self.call, self.line) = (call, Arc::default());
    }

    /// Replaces `error`, likewise.
    pub fn set_error(&mut self, error: Option<Arc<ForeignFd>>) {
        (self.error, self.error_line) = (error, Arc::default());
    }

    /// Interrupts the guest, if it can be; says whether it did.
    pub fn notify(&self) -> bool {
        match &self.interrupt {
            Some(interrupt) => interrupt.raise(),
            None => self.signal(self.call.as_ref(), &self.line),
        }
    }

    /// Says that the guest broke the ring, if anybody wants to know.
    pub(crate) fn raise_error(&self) {
        self.signal(self.error.as_ref(), &self.error_line);
    }

    /// Adds one to an eventfd. A full counter (EAGAIN) is a pending signal; any other failure is
    /// the front-end's own, which chose the file.
    fn signal(&self, event: Option<&Arc<ForeignFd>>, line: &Arc<Line>) -> bool {
        let Some(event) = event else {
            return false;
        };
        if self.stalled.load(Ordering::Relaxed) {
            return false;
        }
        if self.budget.is_moved() {
            notifier::hand_over(self, event, line);
            return true;
        }
        self.write(event, line)
    }

    /// The write itself, timed.
    pub(crate) fn write(&self, event: &ForeignFd, line: &Line) -> bool {
        if self.stalled.load(Ordering::Relaxed) {
            return false;
        }
        let timer = Timer::start(line);
        let result = host::brief::call(|| rustix::io::write(event, &1u64.to_ne_bytes()));
        let (now, cost) = timer.stop();
        self.budget.charge(line, now, cost);
        if result == Err(Errno::INTR) {
            self.stalled.store(true, Ordering::Relaxed);
        }
        result.is_ok()
    }
}
