//! One device: opened, attached to lanes, polled, lost, and reopened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use api::clock::unix_ms;
use api::log_limiter::{LogLimiter, RepeatFilter};
use engine::Port;
use host::interface::{InterfaceError, Interfaces};
use host::netns;
use model::state::{ActualDevice, DeviceState};
use port::{Housekeeping, LinkHealth, OpenedDevice, PortHandover, QueuePair, Transmit};
use rustix::io::Errno;
use vhost_user::backend::RingDirection;

use super::super::port_events::PortEvents;
use super::open::{DeviceOpener, OpenError};

/// Interval of attempts to reopen a device.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// An open device, without the halves attached to the lanes.
pub(super) struct ActiveDevice {
    health: Arc<LinkHealth>,
    housekeeping: Option<Box<dyn Housekeeping>>,
    /// Its interface, if it is one, with the MTU at the time of opening.
    pub(super) link: Option<(Interfaces, u32)>,
    /// Its network namespace. A namespace lives as long as something in it is open, but is
    /// unreachable once its name is gone.
    netns: Option<netns::Identity>,
}

/// Settings last applied to an interface that stands for a guest.
#[derive(Debug, Default)]
struct AppliedSettings {
    mtu: Option<u32>,
    carrier: Option<bool>,
}

/// A port's device.
pub(super) struct ManagedDevice {
    /// Display name, such as `xdp:eth1`.
    name: String,
    pub(super) port: Arc<Port>,
    pub(super) open: Box<dyn DeviceOpener>,
    pub(super) opened: Option<ActiveDevice>,
    /// It was open once, by this process or the previous one.
    was_open: bool,
    /// Halves to be attached to the lanes.
    pub(super) halves: Vec<QueuePair>,
    /// Detached transmit halves during a handover.
    detached_transmit: Vec<Box<dyn Transmit>>,
    /// Handover state, kept until the handover is final.
    pub(super) handover_state: Option<PortHandover>,
    pub(super) status: ActualDevice,
    /// MTU of its interface, as of the last poll.
    pub(super) mtu: Option<u32>,
    /// Settings applied to its interface since it was opened.
    applied: AppliedSettings,
    retry: Instant,
    pub(super) limiter: LogLimiter,
    failures: RepeatFilter,
    pub(super) events: PortEvents,
}

impl std::fmt::Debug for ManagedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.name).field("status", &self.status).finish()
    }
}

impl ManagedDevice {
    /// A device that is not open yet.
    pub(super) fn new(
        name: String,
        port: Arc<Port>,
        open: Box<dyn DeviceOpener>,
        events: PortEvents,
    ) -> ManagedDevice {
        let status = ActualDevice {
            state: DeviceState::Down,
            since_ms: unix_ms(),
            reason: Some("not opened yet".to_owned()),
            notes: Vec::new(),
        };
        ManagedDevice {
            name,
            port,
            open,
            opened: None,
            was_open: false,
            halves: Vec::new(),
            detached_transmit: Vec::new(),
            handover_state: None,
            status,
            mtu: None,
            applied: AppliedSettings::default(),
            retry: Instant::now(),
            limiter: LogLimiter::default(),
            failures: RepeatFilter::default(),
            events,
        }
    }

    /// Starts an opened device, or stores the error.
    pub(super) fn begin(&mut self, opened: Result<OpenedDevice, OpenError>, now: Instant) {
        self.retry = now + RETRY;
        let OpenedDevice { pairs, health, housekeeping, notes } = match opened {
            Ok(opened) => opened,
            Err(error) => return self.status.reason = Some(error.to_string()),
        };
        self.halves = pairs;
        for note in &notes {
            self.limiter.info(&format!("{}: {note}", self.port.label));
        }
        // On failure a lost carrier goes unnoticed; all else works.
        let link = self.open.interface().and_then(|(interface, netns)| {
            let link = Interfaces::of(netns).ok()?;
            let mtu = link.state(interface).ok()?.mtu;
            Some((link, mtu))
        });
        let netns = self.netns();
        self.applied = AppliedSettings::default();
        self.opened = Some(ActiveDevice { health, housekeeping, link, netns });
        self.was_open = true;
        self.status.notes = notes;
        self.failures.forget();
    }

    /// Attaches its halves to the lanes, if any are left.
    pub(super) fn attach(&mut self) {
        // Attach transmit last: then a receiver for replies exists.
        for (i, pair) in self.halves.drain(..).enumerate().take(self.port.pairs()) {
            self.port.attach_receive(i, pair.receive);
            self.port.attach_transmit(i, pair.transmit);
        }
    }

    /// Detaches one half from the lanes.
    pub(super) fn detach(&mut self, half: RingDirection) {
        for pair in 0..self.port.pairs() {
            match half {
                RingDirection::Transmit => {
                    self.detached_transmit.extend(self.port.detach_transmit(pair))
                }
                RingDirection::Receive => drop(self.port.detach_receive(pair)),
            }
        }
    }

    /// Hands the device over; this process no longer has it.
    pub(super) fn handover(&mut self) -> Option<PortHandover> {
        let ManagedDevice {
            // From the configuration, or for logging.
            name: _,
            port: _,
            open: _,
            was_open: _,
            status: _,
            limiter: _,
            failures: _,
            events: _,
            // Retried at once.
            retry: _,
            // Queried and applied again.
            mtu: _,
            applied: _,
            // Empty: all are attached.
            halves: _,
            opened,
            detached_transmit,
            handover_state,
        } = self;
        let states: Vec<Vec<u8>> =
            detached_transmit.drain(..).map(|half| half.handover_state()).collect();
        let mut opened = opened.take()?;
        if opened.health.is_lost() {
            return None;
        }
        *handover_state =
            opened.housekeeping.as_mut().and_then(|housekeeping| housekeeping.handover(&states));
        handover_state.clone()
    }

    /// Adopts the device from the old process.
    pub(super) fn inherit(&mut self, handover: PortHandover) -> Result<()> {
        match self.open.resume(handover) {
            Ok(opened) => self.begin(Ok(opened), Instant::now()),
            Err(error) => bail!("{}: {error}", self.port.label),
        }
        self.attach();
        Ok(())
    }

    /// Takes ownership, if the device was inherited.
    pub(super) fn adopt(&mut self) {
        if let Some(housekeeping) =
            self.opened.as_mut().and_then(|opened| opened.housekeeping.as_mut())
        {
            housekeeping.adopt();
        }
    }

    /// Identity of its current network namespace, if it has one.
    fn netns(&self) -> Option<netns::Identity> {
        Some(netns::identity(Some(self.open.interface()?.1?)))
    }

    /// Runs housekeeping.
    pub(super) fn housekeep(&mut self, now: Instant) {
        if self
            .opened
            .as_ref()
            .is_some_and(|opened| opened.netns.is_some() && opened.netns != self.netns())
        {
            if let Some(opened) = self.opened.take() {
                opened.health.lose(Errno::NODEV); // other holders of a part release it
            }
            self.port.detach_all();
            self.retry = now + RETRY;
            self.status.reason = Some("its network namespace was removed".to_owned());
        }
        match &mut self.opened {
            Some(opened) => {
                if let Some(housekeeping) = &mut opened.housekeeping {
                    housekeeping.tick(now);
                }
                if opened.health.is_lost() {
                    // Detach before reopening: a device can be open only once.
                    self.port.detach_all();
                } else if self.open.follows_mtu() && self.has_other_mtu() {
                    self.port.detach_all();
                    self.opened = None;
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
        self.attach();
    }

    fn has_other_mtu(&self) -> bool {
        let link = self.opened.as_ref().and_then(|opened| opened.link.as_ref());
        link.zip(self.open.interface()).is_some_and(|((link, mtu), (interface, _))| {
            link.state(interface).is_ok_and(|state| state.mtu != *mtu)
        })
    }

    /// Sets the MTU of its interface, up to the allowed maximum.
    pub(super) fn set_mtu(&mut self, mtu: u32) {
        let (Some(most), Some((interface, _))) = (self.open.mtu_max(), self.open.interface())
        else {
            return;
        };
        let mtu = mtu.min(most.into());
        let link = self.opened.as_ref().and_then(|opened| opened.link.as_ref());
        if let Some((link, _)) = link.filter(|_| self.applied.mtu != Some(mtu)) {
            self.applied.mtu = Some(mtu);
            if let Err(error) = link.set_mtu(interface, mtu) {
                let error = anyhow::Error::from(error);
                let label = &self.port.label;
                self.limiter.warn(&format!("{label}: cannot set its representor's MTU: {error:#}"));
            }
        }
    }

    /// Sets its carrier, if supported.
    pub(super) fn set_carrier(&mut self, up: bool) {
        let housekeeping = self.opened.as_mut().and_then(|opened| opened.housekeeping.as_mut());
        if let Some(housekeeping) = housekeeping.filter(|_| self.applied.carrier != Some(up)) {
            self.applied.carrier = Some(up);
            housekeeping.set_carrier(up);
        }
    }

    /// Updates its state, and reports a change.
    pub(super) fn update_status(&mut self) {
        self.mtu = None;
        let (state, reason) = self.state();
        if state == DeviceState::Gone {
            self.opened = None;
            self.status.notes.clear();
        }
        let same = state == self.status.state;
        if same && (reason == self.status.reason || state == DeviceState::Gone) {
            self.status.reason = reason;
            return self.log_failure();
        }
        let since_ms = if same { self.status.since_ms } else { unix_ms() };
        self.status = ActualDevice { state, reason, since_ms, ..self.status.clone() };
        let why = self.status.reason.as_deref().map_or(String::new(), |why| format!(": {why}"));
        let text = match (state, self.was_open) {
            (DeviceState::Gone, false) => format!("{} is not there yet{why}", self.name),
            _ => format!("{} is {state}{why}", self.name),
        };
        let line = format!("{}: {text}", self.port.label);
        if state == DeviceState::Gone {
            self.limiter.warn(&format!("{line}; waiting for it: retrying twice a second"));
            let _ = self.failures.is_new(&self.failure(), Instant::now()); // it is said
        } else {
            self.limiter.info(&line);
        }
        self.events.device(&text);
        self.events.guest(state == DeviceState::Up);
    }

    /// Logs why a device is missing: once, on a change, and again after a while.
    fn log_failure(&mut self) {
        if self.status.state != DeviceState::Gone {
            return;
        }
        let line = self.failure();
        if self.failures.is_new(&line, Instant::now()) {
            self.limiter.warn(&format!("{line}; retrying"));
        }
    }

    fn failure(&self) -> String {
        let why = self.status.reason.as_deref().unwrap_or_default();
        format!("{}: {} cannot be opened: {why}", self.port.label, self.name)
    }

    fn state(&mut self) -> (DeviceState, Option<String>) {
        let Some(opened) = &self.opened else {
            return (DeviceState::Gone, self.status.reason.clone());
        };
        if let Some(errno) = opened.health.failure() {
            let removed = [Errno::BADFD, Errno::BADF, Errno::NODEV, Errno::NXIO];
            let reason = match self.open.interface() {
                Some(_) if removed.contains(&errno) => "its interface was removed".to_owned(),
                _ => std::io::Error::from(errno).to_string(),
            };
            return (DeviceState::Gone, Some(reason));
        }
        let down = |why: &str| (DeviceState::Down, Some(why.to_owned()));
        // A carrier that was switched off, with the adapter's link, is no fault.
        let has_carrier = self.applied.carrier != Some(false);
        if let (Some((link, _)), Some((interface, _))) = (&opened.link, self.open.interface()) {
            let state = link.state(interface);
            self.mtu = state.as_ref().ok().map(|state| state.mtu);
            match state {
                Ok(state) if !state.is_up => return down("it is switched off"),
                Ok(state) if !state.is_running && has_carrier => return down("it has no carrier"),
                Err(InterfaceError::Missing { .. }) => return down("the interface does not exist"),
                Ok(_) | Err(_) => {} // an unknown state is not a fault
            }
        }
        let housekeeping = opened.housekeeping.as_ref().filter(|_| has_carrier);
        match housekeeping.is_none_or(|housekeeping| housekeeping.is_connected()) {
            true => (DeviceState::Up, None),
            false => down("no peer is connected"),
        }
    }
}
