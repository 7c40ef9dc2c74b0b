//! An interface under a port, watched from outside the lanes.

use std::sync::Arc;
use std::time::Instant;

use host::interface::{InterfaceError, Interfaces};
use rustix::io::Errno;

use crate::{Condition, Tend};

/// Tells when the interface is gone, even if no frame asks for it, and whether it is up.
#[derive(Debug)]
pub(crate) struct Link {
    interfaces: Interfaces,
    name: String,
    /// The kernel's number for it: one of the same name that was made since is another.
    index: u32,
    is_running: bool,
    condition: Arc<Condition>,
}

impl Link {
    /// Watches the interface that has this name now.
    pub(crate) fn new(
        interfaces: Interfaces,
        name: &str,
        condition: Arc<Condition>,
    ) -> Result<Link, InterfaceError> {
        let state = interfaces.state(name)?;
        let (index, is_running) = (state.index, state.is_running);
        Ok(Link { interfaces, name: name.to_owned(), index, is_running, condition })
    }
}

impl Tend for Link {
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

    fn is_connected(&self) -> bool {
        self.is_running && !self.condition.is_lost()
    }
}
