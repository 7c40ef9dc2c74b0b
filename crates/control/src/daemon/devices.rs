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
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::Port;
use host::interface::{InterfaceError, Interfaces};
use port::xdp::Queues;
use port::{Condition, Opened, Pair, Tend};
use wire::Mac;

use super::log::{Quiet, Repeated};
use crate::state::{ActualDevice, DeviceNews, DeviceState};

pub(super) use kinds::{Context, device, tunnel};

/// How often devices are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// How often one that is gone is tried.
const RETRY: Duration = Duration::from_millis(500);
/// News that nobody has asked for yet; more are forgotten, the oldest first.
const NEWS_MAX: usize = 256;

/// How a device is opened, as often as need be.
pub(super) trait Open: Send + std::fmt::Debug {
    /// Opens it.
    fn open(&self) -> Result<Opened, NotOpened>;

    /// The interface that it is, and the network namespace where that is.
    fn interface(&self) -> Option<(&str, Option<&str>)> {
        None
    }

    /// Whether it must be opened again to take frames of the interface's new MTU.
    fn follows_mtu(&self) -> bool {
        false
    }

    /// Queues behind those of the port, if it was opened last and has such.
    fn queues(&self) -> Option<Queues> {
        None
    }

    /// The same device with another address, if it has one.
    fn set_mac(&mut self, _mac: Mac) {}

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

/// A device that is open, without the halves that the lanes have.
struct Held {
    condition: Arc<Condition>,
    tend: Option<Box<dyn Tend>>,
    /// Its interface, if it is one, and the MTU of that when it was opened.
    link: Option<(Interfaces, u32)>,
    /// The network namespace that it is in. It lives as long as we hold something in it, though nobody
    /// can reach it any more once its name is gone.
    netns: Option<(u64, u64)>,
}

/// A port's device.
struct Device {
    /// What people call it, such as `xdp:eth1`.
    name: String,
    port: Arc<Port>,
    open: Box<dyn Open>,
    held: Option<Held>,
    /// Its halves, until the lanes get them.
    halves: Vec<Pair>,
    status: ActualDevice,
    retry: Instant,
    quiet: Quiet,
    failures: Repeated,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.name).field("status", &self.status).finish()
    }
}

/// All devices, by their tokens.
#[derive(Debug, Default)]
pub(super) struct Devices {
    kept: BTreeMap<u64, Device>,
    next: u64,
    due: Option<Instant>,
    news: VecDeque<DeviceNews>,
}

impl Devices {
    /// Puts a device behind a port, as it was opened or why it was not; returns its token. Lanes get it
    /// by [`plug`](Self::plug).
    pub(super) fn add(
        &mut self,
        port: Arc<Port>,
        (name, open): (String, Box<dyn Open>),
        opened: Result<Opened, NotOpened>,
    ) -> u64 {
        let status = ActualDevice {
            state: DeviceState::Down,
            since_ms: now_ms(),
            reason: Some("it was not opened yet".to_owned()),
            notes: Vec::new(),
        };
        let mut device = Device {
            name,
            port,
            open,
            held: None,
            halves: Vec::new(),
            status,
            retry: Instant::now(),
            quiet: Quiet::default(),
            failures: Repeated::default(),
        };
        device.begin(opened, Instant::now());
        self.tell(device.look());
        let token = self.next;
        self.next += 1;
        self.kept.insert(token, device);
        token
    }

    /// Hands devices that were added to the lanes: to be called when their ports have their places, for
    /// one may have frames at once.
    pub(super) fn plug(&mut self) {
        self.kept.values_mut().for_each(Device::plug);
    }

    /// Closes a device, and forgets it.
    pub(super) fn remove(&mut self, token: u64) {
        if let Some(device) = self.kept.remove(&token) {
            device.port.detach_all();
        }
    }

    /// How a device is.
    pub(super) fn status(&self, token: u64) -> Option<&ActualDevice> {
        self.kept.get(&token).map(|device| &device.status)
    }

    /// Whether a device is an interface without a link.
    pub(super) fn has_no_link(&self, token: u64) -> bool {
        self.kept.get(&token).is_some_and(|device| {
            device.status.state != DeviceState::Up && device.open.interface().is_some()
        })
    }

    /// Queues behind those of a device's port, while it is open.
    pub(super) fn queues(&self, token: u64) -> Option<Queues> {
        let device = self.kept.get(&token)?;
        device.open.queues().filter(Queues::are_open)
    }

    /// How long until a look is due; `None` if there is nothing to look at.
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
        let mut news = Vec::new();
        for device in self.kept.values_mut() {
            device.tend(now);
            news.extend(device.look());
        }
        self.tell(news);
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

    /// What became of devices since somebody last asked.
    pub(super) fn take_news(&mut self) -> Vec<DeviceNews> {
        self.news.drain(..).collect()
    }

    /// Closes every device.
    pub(super) fn clear(&mut self) {
        while let Some((token, _)) = self.kept.first_key_value() {
            self.remove(*token);
        }
    }

    fn tell(&mut self, news: impl IntoIterator<Item = DeviceNews>) {
        self.news.extend(news);
        let old = self.news.len().saturating_sub(NEWS_MAX);
        self.news.drain(..old);
    }
}

impl Device {
    /// Takes up a device that was opened, or notes why it was not.
    fn begin(&mut self, opened: Result<Opened, NotOpened>, now: Instant) {
        self.retry = now + RETRY;
        let Opened { pairs, condition, tend, notes } = match opened {
            Ok(opened) => opened,
            Err(NotOpened { text, .. }) => return self.status.reason = Some(text),
        };
        self.halves = pairs;
        for note in &notes {
            self.quiet.info(&format!("{}: {note}", self.port.label));
        }
        // Without it a carrier that is lost is not seen, and all else is.
        let link = self.open.interface().and_then(|(interface, netns)| {
            let link = Interfaces::of(netns).ok()?;
            let mtu = link.state(interface).ok()?.mtu;
            Some((link, mtu))
        });
        let netns = self.netns();
        self.held = Some(Held { condition, tend, link, netns });
        self.status.notes = notes;
        self.failures.forget();
    }

    /// Hands its halves to the lanes, if they have them not yet.
    fn plug(&mut self) {
        // The lanes are asked for frames last: there is somebody then who takes the answers.
        for (i, pair) in self.halves.drain(..).enumerate().take(self.port.pairs()) {
            self.port.attach_receive(i, pair.receive);
            self.port.attach_transmit(i, pair.transmit);
        }
    }

    /// What its network namespace is now, if it is in one.
    fn netns(&self) -> Option<(u64, u64)> {
        host::netns::identity(self.open.interface()?.1?)
    }

    /// Does what is due for it.
    fn tend(&mut self, now: Instant) {
        if self.held.as_ref().is_some_and(|held| held.netns.is_some() && held.netns != self.netns())
        {
            self.port.detach_all();
            self.held = None;
            self.retry = now + RETRY;
            self.status.reason = Some("its network namespace was removed".to_owned());
        }
        match &mut self.held {
            Some(held) => {
                if let Some(tend) = &mut held.tend {
                    tend.tend(now);
                }
                if held.condition.is_lost() {
                    // Before it is opened again: two cannot have it.
                    self.port.detach_all();
                } else if self.open.follows_mtu() && self.has_other_mtu() {
                    self.port.detach_all();
                    self.held = None;
                    let opened = self.open.open();
                    self.begin(opened, now);
                }
            }
            None if now >= self.retry => {
                let opened = self.open.open();
                self.begin(opened, now);
            }
            None => {}
        }
        self.plug();
    }

    fn has_other_mtu(&self) -> bool {
        let link = self.held.as_ref().and_then(|held| held.link.as_ref());
        link.zip(self.open.interface()).is_some_and(|((link, mtu), (interface, _))| {
            link.state(interface).is_ok_and(|state| state.mtu != *mtu)
        })
    }

    /// Sees how it is now, and says so if that is another thing than before.
    fn look(&mut self) -> Option<DeviceNews> {
        let (state, reason) = self.state();
        if state == DeviceState::Gone {
            self.held = None;
            self.status.notes.clear();
        }
        let same = state == self.status.state;
        if same && (reason == self.status.reason || state == DeviceState::Gone) {
            self.status.reason = reason;
            self.say_again();
            return None;
        }
        let since_ms = if same { self.status.since_ms } else { now_ms() };
        self.status = ActualDevice { state, reason, since_ms, ..self.status.clone() };
        let why = self.status.reason.as_deref().map_or(String::new(), |why| format!(": {why}"));
        let text = format!("{} is {state}{why}", self.name);
        let line = format!("{}: {text}", self.port.label);
        match state {
            DeviceState::Gone => self.quiet.warn(&line),
            _ => self.quiet.info(&line),
        }
        Some(DeviceNews { port: self.port.label.clone(), text })
    }

    /// Says why a device is not there, once, and again when that changes or a while has passed.
    fn say_again(&mut self) {
        if self.status.state != DeviceState::Gone {
            return;
        }
        let why = self.status.reason.as_deref().unwrap_or_default();
        let line = format!("{}: {} cannot be opened: {why}", self.port.label, self.name);
        if self.failures.is_news(&line, Instant::now()) {
            self.quiet.warn(&format!("{line}; trying again and again"));
        }
    }

    fn state(&self) -> (DeviceState, Option<String>) {
        let Some(held) = &self.held else {
            return (DeviceState::Gone, self.status.reason.clone());
        };
        if let Some(errno) = held.condition.failure() {
            return (DeviceState::Gone, Some(std::io::Error::from(errno).to_string()));
        }
        let down = |why: &str| (DeviceState::Down, Some(why.to_owned()));
        if let (Some((link, _)), Some((interface, _))) = (&held.link, self.open.interface()) {
            match link.state(interface) {
                Ok(state) if !state.is_up => return down("it is switched off"),
                Ok(state) if !state.is_running => return down("it has no carrier"),
                Err(InterfaceError::Missing { .. }) => return down("there is no such interface"),
                Ok(_) | Err(_) => {} // what the kernel does not tell is no reason
            }
        }
        match held.tend.as_ref().is_none_or(|tend| tend.is_connected()) {
            true => (DeviceState::Up, None),
            false => down("nobody is at the other end"),
        }
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
