//! Devices: what is behind a port and no guest's memory, such as an interface or a stream socket.
//!
//! # Life
//! 1. [`Open::open`] gives the halves for the lanes, and what is kept here.
//! 2. [`Devices::look`] tends it several times a second, and sees how it is.
//! 3. When it is lost its halves are taken out, which closes it, and it is opened again every
//!    [`RETRY`] until that succeeds. One that is not there yet begins here.
//!
//! Nobody else is concerned: the port stays where it is, and frames for it are counted as without a
//! buffer meanwhile.

mod kinds;
mod life;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Port;
use model::state::{ActualDevice, DeviceState};
use port::xdp::GuestQueues;
use port::{OpenedDevice, PortHandover};
use vhost_user::backend::Half;
use wire::Mac;

use super::port_events::PortEvents;
use life::Device;

pub(super) use kinds::{Context, device, tunnel};

/// How often devices are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// How often one that is gone is tried.
const RETRY: Duration = Duration::from_millis(500);

/// How a device is opened, as often as need be.
pub(super) trait Open: Send + std::fmt::Debug {
    /// Opens it.
    fn open(&self) -> Result<OpenedDevice, NotOpened>;

    /// Goes on with it as another process had it open.
    fn resume(&self, _legacy: PortHandover) -> Result<OpenedDevice, NotOpened> {
        self.open()
    }

    /// The interface that it is, and the network namespace where that is.
    fn interface(&self) -> Option<(&str, Option<&str>)> {
        None
    }

    /// Whether it must be opened again to take frames of the interface's new MTU.
    fn follows_mtu(&self) -> bool {
        false
    }

    /// Queues behind those of the port, if it was opened last and has such.
    fn queues(&self) -> Option<GuestQueues> {
        None
    }

    /// The same device with another address, if it has one.
    fn set_mac(&mut self, _mac: Mac) {}

    /// The most that its MTU may be, if others may set it.
    fn mtu_max(&self) -> Option<u16> {
        None
    }

    /// Another set of addresses whose frames it takes, if it chooses.
    fn set_addresses(&mut self, _addresses: Vec<port::xdp::Address>) {}
}

/// Why a device cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotOpened {
    /// What is wrong, and what to do.
    pub(super) text: String,
    /// Whether it is only not there yet.
    pub(super) may_come: bool,
}

/// All devices, by their tokens.
#[derive(Debug, Default)]
pub(super) struct Devices {
    kept: BTreeMap<u64, Device>,
    next: u64,
    due: Option<Instant>,
}

impl Devices {
    /// Puts a device behind a port, as it was opened or why it was not; returns its token. Lanes
    /// get it by [`plug`](Self::plug).
    pub(super) fn add(
        &mut self,
        port: Arc<Port>,
        (name, open): (String, Box<dyn Open>),
        events: PortEvents,
        opened: Result<OpenedDevice, NotOpened>,
    ) -> u64 {
        let mut device = Device::new(name, port, open, events);
        device.begin(opened, Instant::now());
        device.look();
        let token = self.next;
        self.next += 1;
        self.kept.insert(token, device);
        token
    }

    /// The same for a device that is handed over: it is opened by [`inherit`](Self::inherit) or
    /// [`resume`](Self::resume).
    pub(super) fn add_later(
        &mut self,
        port: Arc<Port>,
        (name, open): (String, Box<dyn Open>),
        events: PortEvents,
    ) -> u64 {
        let token = self.next;
        self.next += 1;
        self.kept.insert(token, Device::new(name, port, open, events));
        token
    }

    /// Takes half of every device out of the lanes' hands.
    pub(super) fn let_go(&mut self, half: Half) {
        self.kept.values_mut().for_each(|device| device.let_go(half));
    }

    /// What a process needs to go on with a device that was let go of. One that cannot be handed
    /// over is closed.
    pub(super) fn legacy(&mut self, token: u64) -> Option<PortHandover> {
        self.kept.get_mut(&token)?.legacy()
    }

    /// Goes on with a device that another process has open: it is the other's until
    /// [`adopt`](Self::adopt).
    pub(super) fn inherit(&mut self, token: u64, legacy: PortHandover) -> anyhow::Result<()> {
        let Some(device) = self.kept.get_mut(&token) else { return Ok(()) };
        device.inherit(legacy)?;
        device.look();
        Ok(())
    }

    /// What was inherited is this process's from now on.
    pub(super) fn adopt(&mut self) {
        self.kept.values_mut().for_each(Device::adopt);
    }

    /// Hands devices that were added to the lanes: to be called when their ports have their places,
    /// for one may have frames at once.
    pub(super) fn plug(&mut self) {
        self.kept.values_mut().for_each(Device::plug);
    }

    /// Closes a device, and forgets it.
    pub(super) fn remove(&mut self, token: u64) {
        if let Some(mut device) = self.kept.remove(&token) {
            device.events.guest(false);
            device.port.detach_all();
        }
    }

    /// Closes a device so that another can have its place, until it is removed, or
    /// [resumed](Self::resume).
    pub(super) fn suspend(&mut self, token: u64) {
        if let Some(device) = self.kept.get_mut(&token) {
            device.port.detach_all();
            device.halves.clear();
            device.held = None;
        }
    }

    /// Opens a device again that gave way for nothing.
    pub(super) fn resume(&mut self, token: u64) {
        let Some(device) = self.kept.get_mut(&token) else { return };
        if device.held.is_none() {
            let opened = match device.left.take() {
                Some(legacy) => device.open.resume(legacy),
                None => device.open.open(),
            };
            device.begin(opened, Instant::now());
            device.adopt();
            device.plug();
            device.look();
        }
    }

    /// How a device is.
    pub(super) fn status(&self, token: u64) -> Option<&ActualDevice> {
        self.kept.get(&token).map(|device| &device.status)
    }

    /// The MTU of a device that is an interface, while it is there.
    pub(super) fn mtu(&self, token: u64) -> Option<u32> {
        self.kept.get(&token)?.mtu
    }

    /// Gives a device that stands for a guest the MTU of its representor, if it has one.
    pub(super) fn set_mtu(&mut self, token: u64, mtu: Option<u32>) {
        if let (Some(device), Some(mtu)) = (self.kept.get_mut(&token), mtu) {
            device.set_mtu(mtu);
        }
    }

    /// Lets a device that stands for a guest show that its link is up, or down.
    pub(super) fn set_carrier(&mut self, token: u64, up: bool) {
        if let Some(device) = self.kept.get_mut(&token) {
            device.set_carrier(up);
        }
    }

    /// Whether a device is an interface without a link.
    pub(super) fn has_no_link(&self, token: u64) -> bool {
        self.kept.get(&token).is_some_and(|device| {
            device.status.state != DeviceState::Up && device.open.interface().is_some()
        })
    }

    /// Queues behind those of a device's port, while it is open.
    pub(super) fn queues(&self, token: u64) -> Option<GuestQueues> {
        let device = self.kept.get(&token)?;
        device.open.queues().filter(GuestQueues::are_open)
    }

    /// Time until the next poll of devices; `None` without devices.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let due = self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now));
        (!self.kept.is_empty()).then_some(due)
    }

    /// Looks at every device if that is due; says whether it was.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        if self.due.is_some_and(|due| now < due) {
            return false;
        }
        self.due = Some(now + LOOK);
        for device in self.kept.values_mut() {
            device.tend(now);
            device.look();
        }
        true
    }

    /// Gives a device another address: its interface has it from now on.
    pub(super) fn set_mac(&mut self, token: u64, mac: Mac) {
        let Some(device) = self.kept.get_mut(&token) else { return };
        device.open.set_mac(mac);
        let Some((interface, _)) = device.open.interface() else { return };
        let link = device.held.as_ref().and_then(|held| held.link.as_ref());
        if let Some(Err(error)) = link.map(|(link, _)| link.set_mac(interface, mac.0)) {
            let error = anyhow::Error::from(error);
            let label = &device.port.label;
            device.quiet.warn(&format!("{label}: it keeps its old address: {error:#}"));
        }
    }

    /// Tells a device whose frames it takes, if it chooses.
    pub(super) fn set_addresses(&mut self, token: u64, addresses: Vec<port::xdp::Address>) {
        if let Some(device) = self.kept.get_mut(&token) {
            device.open.set_addresses(addresses);
        }
    }

    /// Closes every device.
    pub(super) fn clear(&mut self) {
        while let Some((token, _)) = self.kept.first_key_value() {
            self.remove(*token);
        }
    }
}
