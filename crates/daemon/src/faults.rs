//! Log of ring faults. Guests can cause any number of faults, so the lines are limited.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use api::{EventKind, Events};
use engine::{Fabric, QuarantineNews};
use virtq::Fault;

/// Poll interval of faults.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of lines per poll.
const LINES_PER_POLL: usize = 10;

/// Log of ring faults: one line for each new fault.
#[derive(Debug, Default)]
pub(super) struct FaultLog {
    next: Option<Instant>,
    logged: HashMap<(String, &'static str, Fault), u64>,
    /// The loss of the counter file has been logged.
    counter_loss_logged: bool,
}

impl FaultLog {
    /// Marks all current faults as logged.
    pub(super) fn mark_logged(&mut self, fabric: &Fabric) {
        for port in fabric.nics().iter().flat_map(|nic| nic.ports()) {
            for (ring, fault, count) in port.faults() {
                self.logged.insert((port.label.clone(), ring, fault), count);
            }
        }
    }

    /// Logs new faults, if a poll is due.
    pub(super) fn poll(&mut self, fabric: &Fabric, events: &Events, now: Instant) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + POLL_INTERVAL);
        if fabric.has_lost_counters() && !std::mem::replace(&mut self.counter_loss_logged, true) {
            tracing::warn!(
                "the counter file in run_dir is lost: it was truncated, or its file system is full; \
                 free space there, and run `shunt upgrade` to create it again"
            );
        }
        let ports: Vec<_> = fabric.nics().iter().flat_map(|nic| nic.ports()).collect();
        let faults = ports.iter().flat_map(|port| {
            let faults = port.faults().into_iter();
            faults.map(|(ring, fault, count)| (port.label.as_str(), ring, fault, count))
        });
        for new_faults in fabric.take_quarantine_news(LINES_PER_POLL) {
            log_quarantine(new_faults, events, now);
        }
        for (label, ring, fault, count) in self.new_faults(faults) {
            tracing::warn!("{label}: {ring} ring stopped: {fault} ({count} times so far)");
        }
    }

    /// New faults, up to the limit; the rest stays new.
    fn new_faults<'a>(
        &mut self,
        faults: impl Iterator<Item = (&'a str, &'static str, Fault, u64)>,
    ) -> Vec<(&'a str, &'static str, Fault, u64)> {
        let logged = &mut self.logged;
        let is_new = |(label, ring, fault, count): &(&str, _, _, u64)| {
            let logged = logged.entry((label.to_string(), *ring, *fault)).or_default();
            std::mem::replace(logged, *count) != *count
        };
        faults.filter(is_new).take(LINES_PER_POLL).collect()
    }
}

/// Logs a change of the quarantine, and records the event.
fn log_quarantine(new_faults: QuarantineNews, events: &Events, now: Instant) {
    let record = |subject, text| events.caused(EventKind::Quarantine, subject, text, now);
    match new_faults {
        QuarantineNews::Begun { port, lane, other, quiet } => {
            let or = other.map_or(String::new(), |other| format!(", or that of {other},"));
            tracing::warn!(
                "{port}: its memory{or} blocks lane {lane} by a page fault; its rings are served off \
                 the lanes until {} s have passed without another; let its VMM allocate all memory \
                 (prealloc=on), and keep it from being swapped out",
                quiet.as_secs()
            );
            record(
                format!("port {port}"),
                format!(
                    "its memory{or} blocks lane {lane} by a page fault: served off the lanes until \
                     {} s have passed without another",
                    quiet.as_secs()
                ),
            );
        }
        QuarantineNews::Stood { lane, stood } => {
            let text = format!("blocked for {} ms in that page fault", stood.as_millis());
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
        let mut logged = Vec::new();
        for lines in [10, 10, 5, 0] {
            let new_faults = log.new_faults(faults(1));
            assert_eq!(new_faults.len(), lines);
            logged.extend(new_faults);
        }
        assert!(logged.into_iter().eq(faults(1)));
        let again = log.new_faults(faults(2).take(1));
        assert_eq!(again, [("n/vf0", "transmit", Fault::BadIndex, 2)]);
        let other = [("n/vf0", "receive", Fault::BadIndex, 1)];
        assert_eq!(log.new_faults(other.into_iter()), other);
    }
}
