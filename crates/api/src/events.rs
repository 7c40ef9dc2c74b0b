//! Recent events: a bounded list, numbered in ascending order.
//!
//! The list is the operator's audit log, so others must not displace entries. Events that guests
//! and devices cause are limited for each subject, and dropped ones are counted. An event is
//! recorded when it happens, not when a client asks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::state::{Allocation, Reason};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::clock::unix_ms;
use crate::token_bucket::TokenBucket;

/// Most events kept; the oldest are dropped.
pub const MAX_EVENTS: usize = 1024;

/// Limit of events for one subject that others than the operator cause: burst, and rate per second.
const CAUSED: (u32, f64) = (20, 0.2);
/// Most subjects with a limit in memory; above that, full buckets are dropped.
const BUCKETS_MAX: usize = 1024;

/// Subject of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The daemon restored the stored state.
    Start,
    /// A hot restart succeeded or failed.
    Upgrade,
    /// An apply interrupted by a crash was undone.
    Undo,
    /// One step of an apply was done.
    Step,
    /// The path of an adapter, or its reason, changed.
    Path,
    /// The traffic of an adapter with `path = "auto"` suits another path.
    Traffic,
    /// A guest was attached or left.
    Guest,
    /// A guest changed its VFs' settings, or the change was rejected.
    GuestControl,
    /// A device, such as an interface or a stream socket, came up, went down or vanished.
    Device,
    /// A card vanished or came back, or its settings differ from the document's.
    Card,
    /// Memory or an eventfd of a guest blocked a lane. Its rings or interrupts moved off the lanes,
    /// or its rings moved back.
    Quarantine,
    /// The sandbox refused a system call of the daemon.
    Forbidden,
    /// A front-end met a limit, or all of them together could exceed one of the daemon.
    Limit,
    /// A migration step of an adapter's guest.
    Move,
    /// The data plane or the disk rejected an apply.
    Refused,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number; the first after a start of the daemon is 1.
    pub sequence: u64,
    /// Time in milliseconds since 1970.
    pub time_ms: u64,
    /// Kind of the event.
    pub kind: EventKind,
    /// Subject, such as `adapter web`; empty for the whole daemon.
    pub subject: String,
    /// Text for the operator.
    pub text: String,
}

/// Origin of a change: events from others than the operator are limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The operator, by a change.
    Operator,
    /// Guests, front-ends or devices.
    Others,
}

/// List of events. Clones share it: each part of the daemon records an event when it happens.
#[derive(Debug, Clone, Default)]
pub struct Events(Arc<Mutex<EventLog>>);

#[derive(Debug, Default)]
struct EventLog {
    events: VecDeque<Event>,
    last: u64,
    /// By subject: token bucket, and the number of dropped events.
    buckets: BTreeMap<String, (TokenBucket, u64)>,
}

impl EventLog {
    fn add(&mut self, kind: EventKind, subject: String, text: String) {
        self.last += 1;
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        let time_ms = unix_ms();
        self.events.push_back(Event { sequence: self.last, time_ms, kind, subject, text });
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, EventLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event with the current time.
    pub fn add(&self, kind: EventKind, subject: String, text: String) {
        self.lock().add(kind, subject, text);
    }

    /// Records an event caused by a guest, a front-end or a device, within the limit for `subject`.
    pub fn caused(&self, kind: EventKind, subject: String, text: String, now: Instant) {
        let mut kept = self.lock();
        if kept.buckets.len() >= BUCKETS_MAX {
            kept.buckets.retain(|_, (bucket, held)| *held > 0 || !bucket.is_full(now));
        }
        let full = || (TokenBucket::new(CAUSED.0, CAUSED.1, now), 0);
        let (bucket, held) = kept.buckets.entry(subject.clone()).or_insert_with(full);
        if !bucket.admits(now) {
            *held += 1;
            return;
        }
        let text = match std::mem::take(held) {
            0 => text,
            held => format!("({held} earlier ones were dropped) {text}"),
        };
        kept.add(kind, subject, text);
    }

    /// Records an event for each adapter whose path or reason changed.
    pub fn paths(&self, before: &[Allocation], now: &[Allocation], cause: Cause) {
        for given in now {
            let before = before.iter().find(|one| one.adapter == given.adapter);
            if before == Some(given) {
                continue;
            }
            let from = before.map_or("none".to_owned(), Allocation::place);
            let (subject, to) = (format!("adapter {}", given.adapter), given.place());
            let why = match given.reason {
                Reason::Supported => String::new(),
                reason => format!(" ({reason})"),
            };
            let text = format!("{from} -> {to}{why}");
            match cause {
                Cause::Operator => self.add(EventKind::Path, subject, text),
                Cause::Others => self.caused(EventKind::Path, subject, text, Instant::now()),
            }
        }
    }

    /// Continues the list of the previous process. Replaces the events recorded so far, which
    /// belong to the handover itself.
    pub fn go_on(&self, before: EventList, text: String) {
        let EventList { events, last, lost: _ } = before;
        let mut kept = self.lock();
        *kept = EventLog { events: events.into(), last, buckets: BTreeMap::new() };
        kept.add(EventKind::Upgrade, String::new(), text);
    }

    /// Events after number `since`.
    pub fn since(&self, since: u64) -> EventList {
        let kept = self.lock();
        let first = kept.events.front().map_or(kept.last + 1, |event| event.sequence);
        let events = kept.events.iter().filter(|event| event.sequence > since);
        EventList {
            events: events.cloned().collect(),
            last: kept.last,
            lost: first.saturating_sub(since.saturating_add(1)),
        }
    }
}

/// Events, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// The requested events.
    pub events: Vec<Event>,
    /// Number of the newest event, for the next request.
    pub last: u64,
    /// Number of requested events that are no longer kept.
    pub lost: u64,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_others_cause_is_rationed_for_each_thing() {
        let (events, start) = (Events::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        events.add(EventKind::GuestControl, "vpf vm".into(), "the operator's audit".into());
        for i in 0..10 * MAX_EVENTS {
            events.caused(EventKind::Guest, "adapter a".into(), i.to_string(), at(0));
        }
        events.caused(EventKind::Guest, "adapter b".into(), "another".into(), at(0));
        events.caused(EventKind::Guest, "adapter a".into(), "later".into(), at(5));
        let all = events.since(0).events;
        assert_eq!((all.len(), all[0].text.as_str()), (23, "the operator's audit"));
        assert_eq!(all[21].text, "another");
        let held = 10 * MAX_EVENTS - 20;
        assert_eq!(all[22].text, format!("({held} earlier ones were dropped) later"));
    }

    #[test]
    fn rations_of_many_things_are_forgotten_when_they_are_whole() {
        let (events, start) = (Events::default(), Instant::now());
        for i in 0..3 * BUCKETS_MAX as u64 {
            let at = start + Duration::from_secs(i);
            events.caused(EventKind::Guest, format!("adapter {i}"), String::new(), at);
        }
        assert!(events.lock().buckets.len() <= BUCKETS_MAX);
    }

    #[test]
    fn the_list_is_bounded_and_says_what_is_lost() {
        let events = Events::default();
        assert_eq!(events.since(0), EventList { events: vec![], last: 0, lost: 0 });
        for i in 0..MAX_EVENTS + 5 {
            events.add(EventKind::Step, String::new(), i.to_string());
        }
        let all = events.since(0);
        assert_eq!((all.events.len(), all.lost, all.last), (MAX_EVENTS, 5, MAX_EVENTS as u64 + 5));
        assert_eq!(all.events[0].sequence, 6);
        let few = events.since(all.last - 2);
        assert_eq!((few.events.len(), few.lost), (2, 0));
        let none = events.since(u64::MAX);
        assert_eq!((none.events.len(), none.lost), (0, 0));
    }
}
