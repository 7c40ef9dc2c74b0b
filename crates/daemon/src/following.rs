//! Adapters with `path = "auto"`: what they carried, and what follows from it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::{EventKind, Events};
use engine::PortTraffic;
use model::state::PathInForce;

use crate::follow::{Amount, Follower, Traffic};

/// How often traffic is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// The traffic of adapters that follow it.
#[derive(Debug, Default)]
pub(super) struct Following {
    follower: Follower,
    /// When the last interval ended, and what was counted by then.
    last: Option<(Instant, BTreeMap<String, PortTraffic>)>,
}

impl Following {
    /// Whether it is time to look.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.last.as_ref().is_none_or(|(then, _)| now.duration_since(*then) >= INTERVAL)
    }

    /// Samples the counters of adapters; returns `true` if one is to change its path.
    pub(super) fn look(
        &mut self,
        now: Instant,
        counted: BTreeMap<String, PortTraffic>,
        events: &Events,
    ) -> bool {
        self.follower.retain(|adapter| counted.contains_key(adapter));
        let mut changes = false;
        if let Some((then, before)) = &self.last {
            let interval_ms = now.duration_since(*then).as_millis() as u64;
            for (adapter, now) in &counted {
                let Some(before) = before.get(adapter) else { continue };
                let traffic = between(interval_ms, before, now);
                if let Some(decision) = self.follower.observe(adapter, &traffic) {
                    let (subject, text) = (format!("adapter {adapter}"), decision.to_string());
                    tracing::info!("{subject}: {text}");
                    changes |= !decision.held;
                    events.caused(EventKind::Traffic, subject, text, Instant::now());
                }
            }
        }
        self.last = Some((now, counted));
        changes
    }

    /// Takes up an adapter that was found to suit this path before.
    pub(super) fn resume(&mut self, adapter: &str, path: PathInForce) {
        self.follower.resume(adapter, path);
    }

    /// The path that suits each adapter.
    pub(super) fn suited(&self) -> BTreeMap<String, PathInForce> {
        self.follower.suited()
    }
}

/// What was counted in an interval. A port that was made anew begins at zero.
fn between(interval_ms: u64, before: &PortTraffic, now: &PortTraffic) -> Traffic {
    let amount = |frames: fn(&PortTraffic) -> u64, bytes: fn(&PortTraffic) -> u64| Amount {
        frames: frames(now).saturating_sub(frames(before)),
        bytes: bytes(now).saturating_sub(bytes(before)),
    };
    Traffic {
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

    /// What an adapter has sent after so many seconds at 100 000 frames of 1000 bytes each.
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
        let (mut following, start) = (Following::default(), Instant::now());
        let events = Events::default();
        let at = |second| start + Duration::from_secs(second);
        assert!(following.is_due(start));
        let changed: Vec<u64> =
            (0..20).filter(|&s| following.look(at(s), sent(s, false), &events)).collect();
        assert_eq!(changed.len(), 1, "one change, and it stays: {changed:?}");
        assert_eq!(following.suited()["web"], PathInForce::Synthetic);
        let noted = events.since(0).events;
        assert_eq!((noted.len(), noted[0].kind), (1, EventKind::Traffic));
        assert!(noted[0].text.starts_with("vf -> synthetic: "), "{noted:?}");
        // One that talks with the wire stays where it is.
        let mut following = Following::default();
        assert!((0..20).all(|s| !following.look(at(s), sent(s, true), &events)));
        assert!(!following.is_due(at(19)) && following.is_due(at(20)));
        // And one that is not followed any more is forgotten.
        following.look(at(21), BTreeMap::new(), &events);
        assert!(following.suited().is_empty());
    }
}
