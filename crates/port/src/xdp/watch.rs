//! The interface under the sockets, watched from outside the lanes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use wire::ethernet::OVERHEAD_MAX;
use xdp::{Handle, Interface, Interfaces};

use super::{Device, Filter};
use crate::Housekeeping;

/// How often the interface is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Tells what lanes do not see: a device that is gone though no frame asks for it, another MTU,
/// other queues. Also hands the filter's changes to the program.
#[derive(Debug)]
pub(super) struct Watch {
    interfaces: Interfaces,
    /// As it was when it was opened.
    interface: Interface,
    /// Not held: the halves alone keep the program on the interface.
    device: Weak<Device>,
    sockets: Vec<Watched>,
    filter: Option<Arc<Filter>>,
    /// The filter's changes that are in effect.
    changes: u32,
    looked: Option<Instant>,
}

/// A pair's socket, and whether the kernel must be called again to send what is queued.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) socket: Weak<Handle>,
    pub(super) unsent: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn new(
        interfaces: Interfaces,
        interface: Interface,
        device: &Arc<Device>,
        sockets: Vec<Watched>,
        filter: Option<Arc<Filter>>,
        changes: u32,
    ) -> Watch {
        let device = Arc::downgrade(device);
        Watch { interfaces, interface, device, sockets, filter, changes, looked: None }
    }

    /// Asks each socket: one whose interface is gone or off says so. What another lane could not
    /// send while the pair's own sleeps is sent here.
    fn ask(&self, device: &Device) {
        for Watched { socket, unsent } in &self.sockets {
            let Some(socket) = socket.upgrade() else { continue };
            let asked = match unsent.load(Ordering::Relaxed) {
                true => socket.wake_tx(),
                false => socket.wake_rx(),
            };
            if let Err(errno) = asked {
                device.condition.lose(errno);
            }
        }
    }

    fn sockets(&self) -> impl Iterator<Item = Arc<Handle>> {
        self.sockets.iter().filter_map(|watched| watched.socket.upgrade())
    }

    /// Looks whether the interface is what it was.
    fn look(&self, device: &Device) {
        let now = match self.interfaces.find(&self.interface.name) {
            Ok(now) => now,
            Err(xdp::XdpError::NoInterface(_)) => return device.condition.lose(Errno::NODEV),
            Err(_) => return, // the kernel does not tell just now
        };
        let longest = now.mtu + OVERHEAD_MAX;
        let too_long =
            |socket: Arc<Handle>| !socket.has_fragments() && longest > socket.umem().room();
        if now.index != self.interface.index {
            device.condition.lose(Errno::NODEV);
        } else if !now.up {
            device.condition.lose(Errno::NETDOWN);
        } else if now.rx_queues != self.interface.rx_queues {
            device.condition.lose(Errno::NXIO);
        } else if self.sockets().any(too_long) {
            device.condition.lose(Errno::MSGSIZE);
        }
        device.frame_bytes_max.store(longest, Ordering::Relaxed);
    }

    /// Hands the filter's addresses to the program if they were changed.
    fn update(&mut self, device: &Device) {
        let Some(filter) = &self.filter else { return };
        let changes = filter.changes();
        if changes != self.changes {
            // What fails is tried again: too many addresses, until there are fewer.
            if device.set_filter(&filter.addresses()) {
                self.changes = changes;
            }
        }
    }
}

impl Housekeeping for Watch {
    fn tend(&mut self, now: Instant) {
        let Some(device) = self.device.upgrade().filter(|device| !device.condition.is_lost())
        else {
            return;
        };
        self.ask(&device);
        self.update(&device);
        if self.looked.is_none_or(|looked| now.duration_since(looked) >= LOOK) {
            self.looked = Some(now);
            self.look(&device);
        }
    }

    fn is_connected(&self) -> bool {
        self.device.upgrade().is_some_and(|device| !device.condition.is_lost())
    }
}
