//! Events about the device or guest of one port, recorded when they happen.

use std::time::Instant;

use api::{EventKind, Events};
use engine::limits::{Limit, LimitCounters};

/// Recorder for one port.
#[derive(Debug, Clone, Default)]
pub(super) struct PortEvents {
    events: Events,
    /// The port's label.
    port: String,
    /// Adapter of the port; `None` for an uplink, PF, representor or tunnel.
    adapter: Option<String>,
    /// Counters of limits; `None` in tests.
    limits: Option<LimitCounters>,
    /// Last recorded state of the guest.
    is_attached: bool,
}

impl PortEvents {
    pub(super) fn new(events: Events, port: &str, adapter: Option<&str>) -> PortEvents {
        let (port, adapter) = (port.to_owned(), adapter.map(str::to_owned));
        PortEvents { events, port, adapter, limits: None, is_attached: false }
    }

    /// A recorder that also counts limits that are met.
    pub(super) fn counting(self, limits: LimitCounters) -> PortEvents {
        PortEvents { limits: Some(limits), ..self }
    }

    /// Counts that a limit was met, and records the effect.
    pub(super) fn met(&self, limit: Limit, effect: &str) {
        self.limits.iter().for_each(|limits| limits.refuse(limit, 1));
        let (subject, name) = (format!("port {}", self.port), limit.entry().name);
        let text = format!("met its limit {name}: {effect}");
        self.events.caused(EventKind::Limit, subject, text, Instant::now());
    }

    /// Records a new state of the port's device.
    pub(super) fn device(&self, text: &str) {
        let subject = format!("port {}", self.port);
        self.events.caused(EventKind::Device, subject, text.to_owned(), Instant::now());
    }

    /// Records that the guest's interrupts were taken off the lanes.
    pub(super) fn moved_notifies(&self) {
        let subject = format!("port {}", self.port);
        let text = "its interrupts are slow, and are sent off the lanes".to_owned();
        self.events.caused(EventKind::Quarantine, subject, text, Instant::now());
    }

    /// Records that the adapter's guest was attached or left, if that is a change.
    pub(super) fn guest(&mut self, is_attached: bool) {
        if std::mem::replace(&mut self.is_attached, is_attached) == is_attached {
            return;
        }
        let Some(adapter) = &self.adapter else { return };
        let (subject, text) = (format!("adapter {adapter}"), ["left", "attached"]);
        let text = text[usize::from(is_attached)].to_owned();
        self.events.caused(EventKind::Guest, subject, text, Instant::now());
    }
}
