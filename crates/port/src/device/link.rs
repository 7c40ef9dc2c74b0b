//! An interface under a port, watched from outside the lanes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use host::interface::{InterfaceError, Interfaces};
use host::tun;
use rustix::io::Errno;

use crate::{Housekeeping, LinkHealth};

/// Tells when the interface is gone, even if no frame asks for it, and whether it is up.
#[derive(Debug)]
pub(crate) struct Link {
    interfaces: Interfaces,
    name: String,
    /// The kernel's number for it: one of the same name that was made since is another.
    index: u32,
    is_running: bool,
    condition: Arc<LinkHealth>,
    /// A queue of it, if it is a tap: whoever has one says whether there is a carrier.
    queue: Weak<OwnedFd>,
}

impl Link {
    /// Watches the interface that has this name now.
    pub(crate) fn new(
        interfaces: Interfaces,
        name: &str,
        condition: Arc<LinkHealth>,
    ) -> Result<Link, InterfaceError> {
        let state = interfaces.state(name)?;
        let (index, is_running) = (state.index, state.is_running);
        let queue = Weak::new();
        Ok(Link { interfaces, name: name.to_owned(), index, is_running, condition, queue })
    }

    /// Of a tap, with a queue of it.
    pub(crate) fn with_queue(self, queue: &Arc<OwnedFd>) -> Link {
        Link { queue: Arc::downgrade(queue), ..self }
    }
}

impl Housekeeping for Link {
    fn tend(&mut self, _: Instant) {
        self.is_running = match self.interfaces.state(&self.name) {
            Ok(state) if state.index == self.index => state.is_running,
            Ok(_) | Err(InterfaceError::Missing { .. }) => {
                self.condition.lose(Errno::NODEV);
                false
            }
            Err(_) => self.is_running, // the kernel does not tell just now
        };
    }

    fn set_carrier(&mut self, up: bool) {
        if let Some(queue) = self.queue.upgrade() {
            // A kernel before 5.0 has no way to; its taps show a carrier always.
            let _ = tun::set_carrier(queue.as_fd(), up);
        }
    }

    fn is_connected(&self) -> bool {
        self.is_running && !self.condition.is_lost()
    }
}
