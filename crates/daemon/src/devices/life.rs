//! One device: opened, handed to the lanes, tended, lost, and opened again.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use api::clock::unix_ms;
use api::log_limiter::{LogLimiter, RepeatFilter};
use engine::Port;
use host::interface::{InterfaceError, Interfaces};
use model::state::{ActualDevice, DeviceState};
use port::{Housekeeping, LinkHealth, OpenedDevice, PortHandover, QueuePair, Transmit};
use rustix::io::Errno;
use vhost_user::backend::Half;

use super::super::port_events::PortEvents;
use super::{NotOpened, Open, RETRY};

/// A device that is open, without the halves that the lanes have.
pub(super) struct Held {
    condition: Arc<LinkHealth>,
    tend: Option<Box<dyn Housekeeping>>,
    /// Its interface, if it is one, and the MTU of that when it was opened.
    pub(super) link: Option<(Interfaces, u32)>,
    /// The network namespace that it is in. It lives as long as we hold something in it, though
    /// nobody can reach it any more once its name is gone.
    netns: Option<(u64, u64)>,
}

/// What an interface that stands for a guest was given last.
#[derive(Debug, Default)]
struct Given {
    mtu: Option<u32>,
    carrier: Option<bool>,
}

/// A port's device.
pub(super) struct Device {
    /// What people call it, such as `xdp:eth1`.
    name: String,
    pub(super) port: Arc<Port>,
    pub(super) open: Box<dyn Open>,
    pub(super) held: Option<Held>,
    /// Its halves, until the lanes get them.
    pub(super) halves: Vec<QueuePair>,
    /// Its transmit halves, while it is about to be handed over.
    silenced: Vec<Box<dyn Transmit>>,
    /// As it was handed over, until that is known to be for good.
    pub(super) left: Option<PortHandover>,
    pub(super) status: ActualDevice,
    /// Its interface's, as of the last look.
    pub(super) mtu: Option<u32>,
    /// What its interface was given as a guest's, since it was opened.
    given: Given,
    retry: Instant,
    pub(super) quiet: LogLimiter,
    failures: RepeatFilter,
    pub(super) events: PortEvents,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.name).field("status", &self.status).finish()
    }
}

impl Device {
    /// One that was not opened yet.
    pub(super) fn new(
        name: String,
        port: Arc<Port>,
        open: Box<dyn Open>,
        events: PortEvents,
    ) -> Device {
        let status = ActualDevice {
            state: DeviceState::Down,
            since_ms: unix_ms(),
            reason: Some("it was not opened yet".to_owned()),
            notes: Vec::new(),
        };
        Device {
            name,
            port,
            open,
            held: None,
            halves: Vec::new(),
            silenced: Vec::new(),
            left: None,
            status,
            mtu: None,
            given: Given::default(),
            retry: Instant::now(),
            quiet: LogLimiter::default(),
            failures: RepeatFilter::default(),
            events,
        }
    }

    /// Takes up a device that was opened, or notes why it was not.
    pub(super) fn begin(&mut self, opened: Result<OpenedDevice, NotOpened>, now: Instant) {
        self.retry = now + RETRY;
        let OpenedDevice { pairs, health: condition, housekeeping: tend, notes } = match opened {
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
        self.given = Given::default();
        self.held = Some(Held { condition, tend, link, netns });
        self.status.notes = notes;
        self.failures.forget();
    }

    /// Hands its halves to the lanes, if they have them not yet.
    pub(super) fn plug(&mut self) {
        // The lanes are asked for frames last: there is somebody then who takes the answers.
        for (i, pair) in self.halves.drain(..).enumerate().take(self.port.pairs()) {
            self.port.attach_receive(i, pair.receive);
            self.port.attach_transmit(i, pair.transmit);
        }
    }

    /// Takes half of it out of the lanes' hands.
    pub(super) fn let_go(&mut self, half: Half) {
        for pair in 0..self.port.pairs() {
            match half {
                Half::Transmit => self.silenced.extend(self.port.detach_transmit(pair)),
                Half::Receive => drop(self.port.detach_receive(pair)),
            }
        }
    }

    /// What a process needs to go on with it; this one has it no more.
    pub(super) fn legacy(&mut self) -> Option<PortHandover> {
        let Device {
            // As the configuration says, or for people.
            name: _,
            port: _,
            open: _,
            status: _,
            quiet: _,
            failures: _,
            events: _,
            // It is looked for at once.
            retry: _,
            // Looked at, and given, anew.
            mtu: _,
            given: _,
            // There are none: they were plugged.
            halves: _,
            held,
            silenced,
            left,
        } = self;
        let remains: Vec<Vec<u8>> = silenced.drain(..).map(|half| half.handover_state()).collect();
        let mut held = held.take()?;
        if held.condition.is_lost() {
            return None;
        }
        *left = held.tend.as_mut().and_then(|tend| tend.handover(&remains));
        left.clone()
    }

    /// Goes on with it as another process had it.
    pub(super) fn inherit(&mut self, legacy: PortHandover) -> Result<()> {
        match self.open.resume(legacy) {
            Ok(opened) => self.begin(Ok(opened), Instant::now()),
            Err(NotOpened { text, .. }) => bail!("{}: {text}", self.port.label),
        }
        self.plug();
        Ok(())
    }

    /// It is this process's for good, if another one had it open.
    pub(super) fn adopt(&mut self) {
        if let Some(tend) = self.held.as_mut().and_then(|held| held.tend.as_mut()) {
            tend.adopt();
        }
    }

    /// What its network namespace is now, if it is in one.
    fn netns(&self) -> Option<(u64, u64)> {
        host::netns::identity(self.open.interface()?.1?)
    }

    /// Does what is due for it.
    pub(super) fn tend(&mut self, now: Instant) {
        if self.held.as_ref().is_some_and(|held| held.netns.is_some() && held.netns != self.netns())
        {
            if let Some(held) = self.held.take() {
                held.condition.lose(Errno::NODEV); // whoever else has a part of it lets go
            }
            self.port.detach_all();
            self.retry = now + RETRY;
            self.status.reason = Some("its network namespace was removed".to_owned());
        }
        match &mut self.held {
            Some(held) => {
                if let Some(tend) = &mut held.tend {
                    tend.tick(now);
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

    /// Gives its interface an MTU, up to what it may have.
    pub(super) fn set_mtu(&mut self, mtu: u32) {
        let (Some(most), Some((interface, _))) = (self.open.mtu_max(), self.open.interface())
        else {
            return;
        };
        let mtu = mtu.min(most.into());
        let link = self.held.as_ref().and_then(|held| held.link.as_ref());
        if let Some((link, _)) = link.filter(|_| self.given.mtu != Some(mtu)) {
            self.given.mtu = Some(mtu);
            if let Err(error) = link.set_mtu(interface, mtu) {
                let error = anyhow::Error::from(error);
                let label = &self.port.label;
                self.quiet.warn(&format!("{label}: it has not its representor's MTU: {error:#}"));
            }
        }
    }

    /// Lets it show that its link is up or down, if it can.
    pub(super) fn set_carrier(&mut self, up: bool) {
        let tend = self.held.as_mut().and_then(|held| held.tend.as_mut());
        if let Some(tend) = tend.filter(|_| self.given.carrier != Some(up)) {
            self.given.carrier = Some(up);
            tend.set_carrier(up);
        }
    }

    /// Sees how it is now, and says so if that is another thing than before.
    pub(super) fn look(&mut self) {
        self.mtu = None;
        let (state, reason) = self.state();
        if state == DeviceState::Gone {
            self.held = None;
            self.status.notes.clear();
        }
        let same = state == self.status.state;
        if same && (reason == self.status.reason || state == DeviceState::Gone) {
            self.status.reason = reason;
            return self.say_again();
        }
        let since_ms = if same { self.status.since_ms } else { unix_ms() };
        self.status = ActualDevice { state, reason, since_ms, ..self.status.clone() };
        let why = self.status.reason.as_deref().map_or(String::new(), |why| format!(": {why}"));
        let text = format!("{} is {state}{why}", self.name);
        let line = format!("{}: {text}", self.port.label);
        match state {
            DeviceState::Gone => self.quiet.warn(&line),
            _ => self.quiet.info(&line),
        }
        self.events.device(&text);
        self.events.guest(state == DeviceState::Up);
    }

    /// Says why a device is not there, once, and again when that changes or a while has passed.
    fn say_again(&mut self) {
        if self.status.state != DeviceState::Gone {
            return;
        }
        let why = self.status.reason.as_deref().unwrap_or_default();
        let line = format!("{}: {} cannot be opened: {why}", self.port.label, self.name);
        if self.failures.is_new(&line, Instant::now()) {
            self.quiet.warn(&format!("{line}; trying again and again"));
        }
    }

    fn state(&mut self) -> (DeviceState, Option<String>) {
        let Some(held) = &self.held else {
            return (DeviceState::Gone, self.status.reason.clone());
        };
        if let Some(errno) = held.condition.failure() {
            return (DeviceState::Gone, Some(std::io::Error::from(errno).to_string()));
        }
        let down = |why: &str| (DeviceState::Down, Some(why.to_owned()));
        if let (Some((link, _)), Some((interface, _))) = (&held.link, self.open.interface()) {
            let state = link.state(interface);
            self.mtu = state.as_ref().ok().map(|state| state.mtu);
            match state {
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
