//! Watch on the interface of the sockets, outside the lanes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use wire::ethernet::OVERHEAD_MAX;
use xdp::{Interface, Interfaces, SocketHandle};

use super::{AddressFilter, XdpShared};
use crate::opened::Housekeeping;

/// Interval of checks of the interface.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Detects changes that lanes do not see: a removed interface without traffic, a new MTU, other
/// queues. Also passes changes of the filter to the program.
#[derive(Debug)]
pub(super) struct InterfaceWatch {
    interfaces: Interfaces,
    /// State of the interface when it was opened.
    interface: Interface,
    /// Weak: only the halves keep the program on the interface.
    device: Weak<XdpShared>,
    sockets: Vec<WatchedSocket>,
    filter: Option<Arc<AddressFilter>>,
    /// Generation of the filter that is in effect.
    changes: u32,
    checked: Option<Instant>,
}

/// Socket of a pair, and its flag for unsent frames.
#[derive(Debug)]
pub(super) struct WatchedSocket {
    pub(super) socket: Weak<SocketHandle>,
    pub(super) unsent: Arc<AtomicBool>,
}

impl InterfaceWatch {
    pub(super) fn new(
        interfaces: Interfaces,
        interface: Interface,
        device: &Arc<XdpShared>,
        sockets: Vec<WatchedSocket>,
        filter: Option<Arc<AddressFilter>>,
        changes: u32,
    ) -> InterfaceWatch {
        let device = Arc::downgrade(device);
        InterfaceWatch { interfaces, interface, device, sockets, filter, changes, checked: None }
    }

    /// Calls the kernel for each socket, which fails if the interface is removed or down. Also
    /// sends frames that another lane queued while the pair's own lane sleeps.
    fn call_sockets(&self, device: &XdpShared) {
        for WatchedSocket { socket, unsent } in &self.sockets {
            let Some(socket) = socket.upgrade() else { continue };
            let called = match unsent.load(Ordering::Relaxed) {
                true => socket.wake_tx(),
                false => socket.wake_rx(),
            };
            if let Err(errno) = called {
                device.health.lose(errno);
            }
        }
    }

    fn sockets(&self) -> impl Iterator<Item = Arc<SocketHandle>> {
        self.sockets.iter().filter_map(|watched| watched.socket.upgrade())
    }

    /// Compares the interface with its state at opening.
    fn check_interface(&self, device: &XdpShared) {
        let now = match self.interfaces.find(&self.interface.name) {
            Ok(now) => now,
            Err(xdp::XdpError::NoInterface(_)) => return device.health.lose(Errno::NODEV),
            Err(_) => return, // state unknown for now
        };
        let longest = now.mtu + OVERHEAD_MAX;
        let too_long =
            |socket: Arc<SocketHandle>| !socket.has_fragments() && longest > socket.umem().room();
        if now.index != self.interface.index {
            device.health.lose(Errno::NODEV);
        } else if !now.up {
            device.health.lose(Errno::NETDOWN);
        } else if now.rx_queues != self.interface.rx_queues {
            device.health.lose(Errno::NXIO);
        } else if self.sockets().any(too_long) {
            device.health.lose(Errno::MSGSIZE);
        }
        device.frame_bytes_max.store(longest, Ordering::Relaxed);
    }

    /// Passes changed addresses of the filter to the program.
    fn update(&mut self, device: &XdpShared) {
        let Some(filter) = &self.filter else { return };
        let changes = filter.changes();
        if changes != self.changes {
            // Retried on failure: too many addresses, until there are fewer.
            if device.set_filter(&filter.addresses()) {
                self.changes = changes;
            }
        }
    }
}

impl Housekeeping for InterfaceWatch {
    fn tick(&mut self, now: Instant) {
        let Some(device) = self.device.upgrade().filter(|device| !device.health.is_lost()) else {
            return;
        };
        self.call_sockets(&device);
        self.update(&device);
        if self.checked.is_none_or(|checked| now.duration_since(checked) >= CHECK_INTERVAL) {
            self.checked = Some(now);
            self.check_interface(&device);
        }
    }

    fn is_connected(&self) -> bool {
        self.device.upgrade().is_some_and(|device| !device.health.is_lost())
    }
}
