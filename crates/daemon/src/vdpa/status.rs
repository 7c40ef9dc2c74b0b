//! State of a vDPA device, for reports.

use api::clock::unix_ms;
use model::state::{ActualDevice, DeviceState};

use super::super::port_events::PortEvents;

/// State of a vDPA device and its last failure.
#[derive(Debug)]
pub(super) struct VdpaStatus {
    /// Display name, such as `vduse:web`.
    name: String,
    pub(super) events: PortEvents,
    pub(super) actual: ActualDevice,
    /// Last failure, until it is over.
    failure: Option<String>,
}

impl VdpaStatus {
    pub(super) fn new(name: String, events: PortEvents) -> VdpaStatus {
        let actual = ActualDevice {
            state: DeviceState::Down,
            since_ms: unix_ms(),
            reason: Some("not opened yet".to_owned()),
            notes: Vec::new(),
        };
        VdpaStatus { name, events, actual, failure: None }
    }

    /// Stores a failure.
    pub(super) fn fail(&mut self, why: String) {
        self.failure = Some(why);
    }

    /// Clears the failure.
    pub(super) fn forget(&mut self) {
        self.failure = None;
    }

    /// Updates the state; returns a text if it changed.
    pub(super) fn note(&mut self, has_device: bool, is_running: bool) -> Option<String> {
        if is_running {
            self.forget();
        }
        let (state, reason) = match (has_device, is_running) {
            (true, true) => (DeviceState::Up, None),
            (true, false) => (DeviceState::Down, Some("no driver has started it")),
            (false, _) => (DeviceState::Gone, Some("it is being created")),
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
