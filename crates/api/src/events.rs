//! What happened lately: a bounded list, each entry with a number that only grows.
//!
//! The list is the operator's audit, so nobody may push others' entries out of it: what guests and
//! devices cause is rationed for each thing that it is about, and what was left out is counted. An
//! event is recorded when it happens, not when a client asks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::state::{Allocation, Reason};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::clock::unix_ms;
use crate::token_bucket::TokenBucket;

/// The most events that are kept; older ones go.
pub const MAX_EVENTS: usize = 1024;

/// Events that others than the operator may cause at once about one thing, and a second.
const CAUSED: (u32, f64) = (20, 0.2);
/// Things about which a ration is remembered; beyond that, those forget it that have all of theirs.
const RATIONS_MAX: usize = 1024;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The daemon brought back the stored state.
    Start,
    /// Another process took over from the daemon, or could not.
    Upgrade,
    /// An apply that a crash had interrupted was undone.
    Undo,
    /// One step of an apply was done.
    Step,
    /// An adapter has another path, or another reason for it.
    Path,
    /// The traffic of an adapter that follows it suits another path.
    Traffic,
    /// A guest was attached or left.
    Guest,
    /// A guest set something of the VFs of its virtual PF, or was refused.
    GuestControl,
    /// An interface, a stream socket or another device came up, went down or vanished.
    Device,
    /// The memory or the eventfd of a guest held up a lane: its rings or its interrupts were taken
    /// off the lanes, or its rings came back.
    Quarantine,
    /// A step of the move of an adapter's guest to or from another host.
    Move,
    /// The data plane or the disk refused an apply.
    Refused,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number; the first after a start of the daemon is 1.
    pub sequence: u64,
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// What it is about.
    pub kind: EventKind,
    /// The thing it is about, such as `adapter web`; empty if it is about all.
    pub subject: String,
    /// What happened.
    pub text: String,
}

/// Origin of a change: what others than the operator cause is rationed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The operator, by a change.
    Operator,
    /// Guests, front-ends or devices.
    Others,
}

/// List of events. Clones share it: each part of the daemon records an event when it happens.
#[derive(Debug, Clone, Default)]
pub struct Events(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Event>,
    last: u64,
    /// By subject: how many events others may still cause, and how many were held back.
    rations: BTreeMap<String, (TokenBucket, u64)>,
}

impl Kept {
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
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event of now.
    pub fn add(&self, kind: EventKind, subject: String, text: String) {
        self.lock().add(kind, subject, text);
    }

    /// Adds what a guest, a front-end or a device caused, unless there was too much of that about
    /// `subject` lately.
    pub fn caused(&self, kind: EventKind, subject: String, text: String, now: Instant) {
        let mut kept = self.lock();
        if kept.rations.len() >= RATIONS_MAX {
            kept.rations.retain(|_, (ration, held)| *held > 0 || !ration.is_full(now));
        }
        let full = || (TokenBucket::new(CAUSED.0, CAUSED.1, now), 0);
        let (ration, held) = kept.rations.entry(subject.clone()).or_insert_with(full);
        if !ration.admits(now) {
            *held += 1;
            return;
        }
        let text = match std::mem::take(held) {
            0 => text,
            held => format!("({held} earlier ones are not shown) {text}"),
        };
        kept.add(kind, subject, text);
    }

    /// Adds an event for each adapter that has another path now, or another reason for it.
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

    /// Continues the list of the previous process. Replaces what was recorded so far, which is the
    /// hand-over itself.
    pub fn go_on(&self, before: EventList, text: String) {
        let EventList { events, last, lost: _ } = before;
        let mut kept = self.lock();
        *kept = Kept { events: events.into(), last, rations: BTreeMap::new() };
        kept.add(EventKind::Upgrade, String::new(), text);
    }

    /// Those after number `since`.
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
    /// Those that were asked for.
    pub events: Vec<Event>,
    /// The number of the last one there is, to go on from.
    pub last: u64,
    /// How many that were asked for are no longer kept.
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
        assert_eq!(all[22].text, format!("({held} earlier ones are not shown) later"));
    }

    #[test]
    fn rations_of_many_things_are_forgotten_when_they_are_whole() {
        let (events, start) = (Events::default(), Instant::now());
        for i in 0..3 * RATIONS_MAX as u64 {
            let at = start + Duration::from_secs(i);
            events.caused(EventKind::Guest, format!("adapter {i}"), String::new(), at);
        }
        assert!(events.lock().rations.len() <= RATIONS_MAX);
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
