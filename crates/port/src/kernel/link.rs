//! Watch on a port's interface, outside the lanes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use host::interface::{InterfaceError, Interfaces};
use host::tun;
use rustix::io::Errno;

use crate::opened::{Housekeeping, LinkHealth};

/// Detects removal of the interface without traffic, and tracks its carrier.
#[derive(Debug)]
pub(crate) struct Link {
    interfaces: Interfaces,
    name: String,
    /// Index of the interface: a new interface of the same name is another one.
    index: u32,
    is_running: bool,
    health: Arc<LinkHealth>,
    /// A queue of a tap, through which its carrier is set.
    queue: Weak<OwnedFd>,
}

impl Link {
    /// Watches the interface that has this name now.
    pub(crate) fn new(
        interfaces: Interfaces,
        name: &str,
        health: Arc<LinkHealth>,
    ) -> Result<Link, InterfaceError> {
        let state = interfaces.state(name)?;
        let (index, is_running) = (state.index, state.is_running);
        let queue = Weak::new();
        Ok(Link { interfaces, name: name.to_owned(), index, is_running, health, queue })
    }

    /// Adds a queue of a tap, to set its carrier.
    pub(crate) fn with_queue(self, queue: &Arc<OwnedFd>) -> Link {
        Link { queue: Arc::downgrade(queue), ..self }
    }
}

impl Housekeeping for Link {
    fn tick(&mut self, _: Instant) {
        self.is_running = match self.interfaces.state(&self.name) {
            Ok(state) if state.index == self.index => state.is_running,
            Ok(_) | Err(InterfaceError::Missing { .. }) => {
                self.health.lose(Errno::NODEV);
                false
            }
            Err(_) => self.is_running, // state unknown for now
        };
    }

    fn set_carrier(&mut self, up: bool) {
        if let Some(queue) = self.queue.upgrade() {
            // Kernels before 5.0 cannot; a tap has its carrier always on there.
            let _ = tun::set_carrier(queue.as_fd(), up);
        }
    }

    fn is_connected(&self) -> bool {
        self.is_running && !self.health.is_lost()
    }
}
