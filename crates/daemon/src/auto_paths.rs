//! Adapters with `path = "auto"`: traffic sampling, and changes of path.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::{EventKind, Events};
use engine::PortTraffic;
use model::state::PathInForce;

use crate::path_selector::{FrameCount, PathSelector, TrafficSample};

/// Sampling interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// Traffic of adapters with `path = "auto"`.
#[derive(Debug, Default)]
pub(super) struct AutoPaths {
    selector: PathSelector,
    /// End of the last interval, with the counters at that time.
    last: Option<(Instant, BTreeMap<String, PortTraffic>)>,
}

impl AutoPaths {
    /// Returns `true` if a sample is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.last.as_ref().is_none_or(|(then, _)| now.duration_since(*then) >= INTERVAL)
    }

    /// Samples the counters of adapters; returns `true` if one is to change its path.
    pub(super) fn sample(
        &mut self,
        now: Instant,
        counted: BTreeMap<String, PortTraffic>,
        events: &Events,
    ) -> bool {
        self.selector.retain(|adapter| counted.contains_key(adapter));
        let mut changes = false;
        if let Some((then, before)) = &self.last {
            let interval_ms = now.duration_since(*then).as_millis() as u64;
            for (adapter, now) in &counted {
                let Some(before) = before.get(adapter) else { continue };
                let traffic = between(interval_ms, before, now);
                if let Some(decision) = self.selector.observe(adapter, &traffic) {
                    let (subject, text) = (format!("adapter {adapter}"), decision.to_string());
                    tracing::info!("{subject}: {text}");
                    changes |= !decision.suppressed;
                    events.caused(EventKind::Traffic, subject, text, Instant::now());
                }
            }
        }
        self.last = Some((now, counted));
        changes
    }

    /// Restores the path of an adapter, as after a restart.
    pub(super) fn resume(&mut self, adapter: &str, path: PathInForce) {
        self.selector.resume(adapter, path);
    }

    /// Path suited to each adapter.
    pub(super) fn suited(&self) -> BTreeMap<String, PathInForce> {
        self.selector.suited()
    }
}

/// Traffic of an interval. A new port starts at zero.
fn between(interval_ms: u64, before: &PortTraffic, now: &PortTraffic) -> TrafficSample {
    let amount = |frames: fn(&PortTraffic) -> u64, bytes: fn(&PortTraffic) -> u64| FrameCount {
        frames: frames(now).saturating_sub(frames(before)),
        bytes: bytes(now).saturating_sub(bytes(before)),
    };
    TrafficSample {
        interval_ms,
        sent: amount(|of| of.tx_frames, |of| of.tx_bytes),
        received: amount(|of| of.rx_frames, |of| of.rx_bytes),
        sent_to_wire: amount(|of| of.tx_uplink_frames, |of| of.tx_uplink_bytes),
        received_from_wire: amount(|of| of.rx_uplink_frames, |of| of.rx_uplink_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters after this many seconds of sending 100 000 frames of 1000 bytes each.
    fn sent(seconds: u64, to_wire: bool) -> BTreeMap<String, PortTraffic> {
        let (frames, bytes) = (seconds * 100_000, seconds * 100_000_000);
        let wire = if to_wire { (frames, bytes) } else { (0, 0) };
        let counted = PortTraffic {
            tx_frames: frames,
            tx_bytes: bytes,
            tx_uplink_frames: wire.0,
            tx_uplink_bytes: wire.1,
            ..PortTraffic::default()
        };
        BTreeMap::from([("web".to_owned(), counted)])
    }

    #[test]
    fn who_talks_within_the_server_goes_to_the_switch_and_the_reason_is_kept() {
        let (mut auto_paths, start) = (AutoPaths::default(), Instant::now());
        let events = Events::default();
        let at = |second| start + Duration::from_secs(second);
        assert!(auto_paths.is_due(start));
        let changed: Vec<u64> =
            (0..20).filter(|&s| auto_paths.sample(at(s), sent(s, false), &events)).collect();
        assert_eq!(changed.len(), 1, "one change, and it stays: {changed:?}");
        assert_eq!(auto_paths.suited()["web"], PathInForce::Synthetic);
        let noted = events.since(0).events;
        assert_eq!((noted.len(), noted[0].kind), (1, EventKind::Traffic));
        assert!(noted[0].text.starts_with("vf -> synthetic: "), "{noted:?}");
        // An adapter that talks to the wire keeps its path.
        let mut auto_paths = AutoPaths::default();
        assert!((0..20).all(|s| !auto_paths.sample(at(s), sent(s, true), &events)));
        assert!(!auto_paths.is_due(at(19)) && auto_paths.is_due(at(20)));
        // An adapter that is no longer sampled is removed.
        auto_paths.sample(at(21), BTreeMap::new(), &events);
        assert!(auto_paths.suited().is_empty());
    }
}
