//! What happened lately: a bounded list, each entry with a number that only grows.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most events that are kept; older ones go.
pub const MAX_EVENTS: usize = 1024;

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

/// The events that are kept.
#[derive(Debug, Default)]
pub(super) struct Events {
    kept: VecDeque<Event>,
    last: u64,
}

impl Events {
    pub(super) fn add(&mut self, kind: EventKind, subject: String, text: String) {
        self.last += 1;
        if self.kept.len() == MAX_EVENTS {
            self.kept.pop_front();
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = now.as_millis() as u64;
        self.kept.push_back(Event { sequence: self.last, time_ms, kind, subject, text });
    }

    /// Goes on behind the events of another process.
    pub(super) fn go_on(&mut self, before: EventList) {
        let own = std::mem::take(&mut self.kept);
        let EventList { events, last, lost: _ } = before;
        (self.kept, self.last) = (events.into(), last);
        for Event { kind, subject, text, .. } in own {
            self.add(kind, subject, text);
        }
    }

    /// Those after number `since`.
    pub(super) fn since(&self, since: u64) -> EventList {
        let first = self.kept.front().map_or(self.last + 1, |event| event.sequence);
        let events = self.kept.iter().filter(|event| event.sequence > since);
        EventList {
            events: events.cloned().collect(),
            last: self.last,
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
    use super::*;

    #[test]
    fn the_list_is_bounded_and_says_what_is_lost() {
        let mut events = Events::default();
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
