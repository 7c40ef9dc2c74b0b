//! What guests can make us log by their rings: as often as they like, and so a limited number of
//! lines.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use api::{EventKind, Events};
use engine::{Fabric, QuarantineNews};
use virtq::Fault;

/// How often faults are looked for.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// Lines of one look.
const LINES_A_LOOK: usize = 10;

/// Says which rings guests broke, once for each new fault.
#[derive(Debug, Default)]
pub(super) struct FaultLog {
    next: Option<Instant>,
    said: HashMap<(String, &'static str, Fault), u64>,
    /// Whether it was said that the counter file is lost.
    counters_said: bool,
}

impl FaultLog {
    /// Takes all that there are for said.
    pub(super) fn remember(&mut self, fabric: &Fabric) {
        for port in fabric.nics().iter().flat_map(|nic| nic.ports()) {
            for (ring, fault, count) in port.faults() {
                self.said.insert((port.label.clone(), ring, fault), count);
            }
        }
    }

    /// Looks whether it is time to.
    pub(super) fn look(&mut self, fabric: &Fabric, events: &Events, now: Instant) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + LOOK);
        if fabric.has_lost_counters() && !std::mem::replace(&mut self.counters_said, true) {
            tracing::warn!(
                "the counter file in run_dir is lost: it was cut off, or its file system is full; \
                 free space there, and run `shunt upgrade` to have it written again"
            );
        }
        let ports: Vec<_> = fabric.nics().iter().flat_map(|nic| nic.ports()).collect();
        let faults = ports.iter().flat_map(|port| {
            let faults = port.faults().into_iter();
            faults.map(|(ring, fault, count)| (port.label.as_str(), ring, fault, count))
        });
        for news in fabric.take_quarantine_news(LINES_A_LOOK) {
            tell_quarantine(news, events, now);
        }
        for (label, ring, fault, count) in self.news(faults) {
            tracing::warn!("{label}: {ring} ring stopped: {fault} ({count} times so far)");
        }
    }

    /// What was not said yet, as much as may be said at once; the rest stays news.
    fn news<'a>(
        &mut self,
        faults: impl Iterator<Item = (&'a str, &'static str, Fault, u64)>,
    ) -> Vec<(&'a str, &'static str, Fault, u64)> {
        let said = &mut self.said;
        let is_new = |(label, ring, fault, count): &(&str, _, _, u64)| {
            let said = said.entry((label.to_string(), *ring, *fault)).or_default();
            std::mem::replace(said, *count) != *count
        };
        faults.filter(is_new).take(LINES_A_LOOK).collect()
    }
}

/// Logs news of the quarantine, and records the event.
fn tell_quarantine(news: QuarantineNews, events: &Events, now: Instant) {
    let record = |subject, text| events.caused(EventKind::Quarantine, subject, text, now);
    match news {
        QuarantineNews::Begun { port, lane, other, quiet } => {
            let or = other.map_or(String::new(), |other| format!(", or that of {other},"));
            tracing::warn!(
                "{port}: its memory{or} holds up lane {lane} by a page fault; its rings are served off \
                 the lanes until {} s have passed without another; have its VMM allocate all memory \
                 (prealloc=on), and keep that from being swapped out",
                quiet.as_secs()
            );
            record(
                format!("port {port}"),
                format!(
                    "its memory{or} holds up lane {lane} by a page fault: served off the lanes until \
                     {} s have passed without another",
                    quiet.as_secs()
                ),
            );
        }
        QuarantineNews::Stood { lane, stood } => {
            let text = format!("stood for {} ms in that page fault", stood.as_millis());
            tracing::warn!("lane {lane} {text}");
            record(format!("lane {lane}"), text);
        }
        QuarantineNews::Ended { port } => {
            tracing::info!("{port}: its rings are served by lanes again");
            record(format!("port {port}"), "served by lanes again".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_said_once_and_a_flood_of_them_in_turn() {
        let mut log = FaultLog::default();
        let labels: Vec<String> = (0..25).map(|i| format!("n/vf{i}")).collect();
        let faults = |count| {
            let of = move |label| (label, "transmit", Fault::BadIndex, count);
            labels.iter().map(String::as_str).map(of)
        };
        let mut said = Vec::new();
        for lines in [10, 10, 5, 0] {
            let news = log.news(faults(1));
            assert_eq!(news.len(), lines);
            said.extend(news);
        }
        assert!(said.into_iter().eq(faults(1)));
        let again = log.news(faults(2).take(1));
        assert_eq!(again, [("n/vf0", "transmit", Fault::BadIndex, 2)]);
        let other = [("n/vf0", "receive", Fault::BadIndex, 1)];
        assert_eq!(log.news(other.into_iter()), other);
    }
}
