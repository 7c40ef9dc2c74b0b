//! How a vDPA device is, for whoever asks.

use api::clock::unix_ms;
use model::state::{ActualDevice, DeviceState};

use super::super::port_events::PortEvents;

/// How a device is, and what became of it.
#[derive(Debug)]
pub(super) struct Status {
    /// What people call it, such as `vduse:web`.
    name: String,
    pub(super) events: PortEvents,
    pub(super) actual: ActualDevice,
    /// What did not work last, if it has not since.
    failure: Option<String>,
}

impl Status {
    pub(super) fn new(name: String, events: PortEvents) -> Status {
        let actual = ActualDevice {
            state: DeviceState::Down,
            since_ms: unix_ms(),
            reason: Some("it was not opened yet".to_owned()),
            notes: Vec::new(),
        };
        Status { name, events, actual, failure: None }
    }

    /// Notes why it is not as it should be.
    pub(super) fn fail(&mut self, why: String) {
        self.failure = Some(why);
    }

    /// What was wrong is over.
    pub(super) fn forget(&mut self) {
        self.failure = None;
    }

    /// Notes how it is; returns what is new in that.
    pub(super) fn note(&mut self, has_device: bool, is_running: bool) -> Option<String> {
        if is_running {
            self.forget();
        }
        let (state, reason) = match (has_device, is_running) {
            (true, true) => (DeviceState::Up, None),
            (true, false) => (DeviceState::Down, Some("no driver has started it")),
            (false, _) => (DeviceState::Gone, Some("it is being made")),
        };
        let reason = self.failure.clone().or_else(|| reason.map(str::to_owned));
        if (state, &reason) == (self.actual.state, &self.actual.reason) {
            return None;
        }
        if state != self.actual.state {
            self.actual.since_ms = unix_ms();
        }
        (self.actual.state, self.actual.reason) = (state, reason);
        let why = self.actual.reason.as_deref().map_or(String::new(), |why| format!(": {why}"));
        let text = format!("{} is {state}{why}", self.name);
        self.events.device(&text);
        self.events.guest(state == DeviceState::Up);
        Some(text)
    }
}
