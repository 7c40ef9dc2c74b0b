//! Devices: port backends without guest memory, such as interfaces and stream sockets.
//!
//! # Life cycle
//! 1. [`DeviceOpener::open`] returns the halves for the lanes, and the part that stays here.
//! 2. [`Devices::poll`] runs housekeeping several times a second, and updates the state.
//! 3. A lost device is closed by detaching its halves, and reopened every
//!    [`RETRY`](managed_device::RETRY) until that succeeds. A device that does not exist yet starts
//!    here.
//!
//! Other ports are not affected: the port keeps its place, and frames for it are counted as dropped
//! for lack of a buffer.

mod kinds;
mod managed_device;
mod open;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Port;
use model::state::{ActualDevice, DeviceState};
use port::xdp::GuestQueues;
use port::{OpenedDevice, PortHandover};
use vhost_user::backend::RingDirection;
use wire::Mac;

use super::port_events::PortEvents;
use managed_device::ManagedDevice;

pub(super) use kinds::{DeviceContext, device, tunnel};
pub(super) use open::{DeviceOpener, OpenError};

/// Poll interval of devices.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// All devices, by token.
#[derive(Debug, Default)]
pub(super) struct Devices {
    devices: BTreeMap<u64, ManagedDevice>,
    next: u64,
    due: Option<Instant>,
}

impl Devices {
    /// Adds a device behind a port, with the result of opening it; returns its token.
    /// [`attach`](Self::attach) hands it to the lanes.
    pub(super) fn add(
        &mut self,
        port: Arc<Port>,
        (name, open): (String, Box<dyn DeviceOpener>),
        events: PortEvents,
        opened: Result<OpenedDevice, OpenError>,
    ) -> u64 {
        let mut device = ManagedDevice::new(name, port, open, events);
        device.begin(opened, Instant::now());
        device.update_status();
        let token = self.next;
        self.next += 1;
        self.devices.insert(token, device);
        token
    }

    /// Adds a device that is handed over: [`inherit`](Self::inherit) or [`resume`](Self::resume)
    /// opens it.
    pub(super) fn add_handed_over(
        &mut self,
        port: Arc<Port>,
        (name, open): (String, Box<dyn DeviceOpener>),
        events: PortEvents,
    ) -> u64 {
        let token = self.next;
        self.next += 1;
        self.devices.insert(token, ManagedDevice::new(name, port, open, events));
        token
    }

    /// Detaches one half of every device from the lanes.
    pub(super) fn detach(&mut self, half: RingDirection) {
        self.devices.values_mut().for_each(|device| device.detach(half));
    }

    /// Hands over a released device. A device that does not support it is closed.
    pub(super) fn handover(&mut self, token: u64) -> Option<PortHandover> {
        self.devices.get_mut(&token)?.handover()
    }

    /// Opens a device of the old process, which owns it until [`adopt`](Self::adopt).
    pub(super) fn inherit(&mut self, token: u64, handover: PortHandover) -> anyhow::Result<()> {
        let Some(device) = self.devices.get_mut(&token) else { return Ok(()) };
        device.inherit(handover)?;
        device.update_status();
        Ok(())
    }

    /// Takes ownership of inherited devices.
    pub(super) fn adopt(&mut self) {
        self.devices.values_mut().for_each(ManagedDevice::adopt);
    }

    /// Hands added devices to the lanes. To be called once their ports are in the snapshot, since a
    /// device may have frames at once.
    pub(super) fn attach(&mut self) {
        self.devices.values_mut().for_each(ManagedDevice::attach);
    }

    /// Closes and removes a device.
    pub(super) fn remove(&mut self, token: u64) {
        if let Some(mut device) = self.devices.remove(&token) {
            device.events.guest(false);
            device.port.detach_all();
        }
    }

    /// Closes a device to free its resource, until it is removed or [resumed](Self::resume).
    pub(super) fn suspend(&mut self, token: u64) {
        if let Some(device) = self.devices.get_mut(&token) {
            device.port.detach_all();
            device.halves.clear();
            device.opened = None;
        }
    }

    /// Reopens a suspended device.
    pub(super) fn resume(&mut self, token: u64) {
        let Some(device) = self.devices.get_mut(&token) else { return };
        if device.opened.is_none() {
            let opened = match device.handover_state.take() {
                Some(handover) => device.open.resume(handover),
                None => device.open.open(),
            };
            device.begin(opened, Instant::now());
            device.adopt();
            device.attach();
            device.update_status();
        }
    }

    /// State of a device.
    pub(super) fn status(&self, token: u64) -> Option<&ActualDevice> {
        self.devices.get(&token).map(|device| &device.status)
    }

    /// Current MTU of a device that is an interface.
    pub(super) fn mtu(&self, token: u64) -> Option<u32> {
        self.devices.get(&token)?.mtu
    }

    /// Sets the MTU of an interface that stands for a guest, from its representor.
    pub(super) fn set_mtu(&mut self, token: u64, mtu: Option<u32>) {
        if let (Some(device), Some(mtu)) = (self.devices.get_mut(&token), mtu) {
            device.set_mtu(mtu);
        }
    }

    /// Sets the carrier of an interface that stands for a guest.
    pub(super) fn set_carrier(&mut self, token: u64, up: bool) {
        if let Some(device) = self.devices.get_mut(&token) {
            device.set_carrier(up);
        }
    }

    /// Returns `true` if the device is an interface without link.
    pub(super) fn has_no_link(&self, token: u64) -> bool {
        self.devices.get(&token).is_some_and(|device| {
            device.status.state != DeviceState::Up && device.open.interface().is_some()
        })
    }

    /// Queues beyond those of the port, while the device is open.
    pub(super) fn queues(&self, token: u64) -> Option<GuestQueues> {
        let device = self.devices.get(&token)?;
        device.open.queues().filter(GuestQueues::are_open)
    }

    /// Time until the next poll of devices; `None` without devices.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let due = self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now));
        (!self.devices.is_empty()).then_some(due)
    }

    /// Polls all devices if due; returns `true` if it was.
    pub(super) fn poll(&mut self, now: Instant) -> bool {
        if self.due.is_some_and(|due| now < due) {
            return false;
        }
        self.due = Some(now + POLL_INTERVAL);
        for device in self.devices.values_mut() {
            device.housekeep(now);
            device.update_status();
        }
        true
    }

    /// Changes the MAC address of a device and of its interface.
    pub(super) fn set_mac(&mut self, token: u64, mac: Mac) {
        let Some(device) = self.devices.get_mut(&token) else { return };
        device.open.set_mac(mac);
        let Some((interface, _)) = device.open.interface() else { return };
        let link = device.opened.as_ref().and_then(|opened| opened.link.as_ref());
        if let Some(Err(error)) = link.map(|(link, _)| link.set_mac(interface, mac.0)) {
            let error = anyhow::Error::from(error);
            let label = &device.port.label;
            device.limiter.warn(&format!("{label}: cannot change its MAC address: {error:#}"));
        }
    }

    /// Replaces the receive filter of a device, if it has one.
    pub(super) fn set_addresses(&mut self, token: u64, addresses: Vec<port::xdp::Address>) {
        if let Some(device) = self.devices.get_mut(&token) {
            device.open.set_addresses(addresses);
        }
    }

    /// Closes every device.
    pub(super) fn clear(&mut self) {
        while let Some((token, _)) = self.devices.first_key_value() {
            self.remove(*token);
        }
    }
}
