//! What front-ends and guests can make us log: as often as they like, and so a limited number of
//! lines each.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use engine::Fabric;
use virtq::Fault;

/// Log lines that one socket may cause a second.
const LINES_A_SECOND: u32 = 10;

/// How often the same line is said again while nothing changes.
const REPEAT: Duration = Duration::from_secs(60);

/// How often faults are looked for.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// Lines of one look.
const LINES_A_LOOK: usize = 10;

/// Lets a limited number of lines through a second, and says how many it held back.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    since: Option<Instant>,
    lines: u32,
    held: u64,
}

impl Quiet {
    pub(super) fn info(&mut self, line: &str) {
        if self.lets_through(Instant::now()) {
            tracing::info!("{line}");
        }
    }

    pub(super) fn warn(&mut self, line: &str) {
        if self.lets_through(Instant::now()) {
            tracing::warn!("{line}");
        }
    }

    fn lets_through(&mut self, now: Instant) -> bool {
        let over = |since| now.duration_since(since) >= Duration::from_secs(1);
        if self.since.is_none_or(over) {
            if self.held > 0 {
                tracing::warn!("{} lines like the last one were held back", self.held);
            }
            *self = Quiet { since: Some(now), lines: 0, held: 0 };
        }
        self.lines += 1;
        let through = self.lines <= LINES_A_SECOND;
        self.held += u64::from(!through);
        through
    }
}

/// Holds back what was just said: a line is news if it is another one than the last, or a minute has
/// passed.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    last: Option<(String, Instant)>,
}

impl Repeated {
    /// Whether this line is to be said now.
    pub(super) fn is_news(&mut self, line: &str, now: Instant) -> bool {
        if let Some((last, said)) = &self.last
            && last == line
            && now.duration_since(*said) < REPEAT
        {
            return false;
        }
        self.last = Some((line.to_owned(), now));
        true
    }

    /// What was wrong is over: if it comes again, it is news.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}

/// Says which rings guests broke, once for each new fault.
#[derive(Debug, Default)]
pub(super) struct FaultLog {
    next: Option<Instant>,
    said: HashMap<(String, &'static str, Fault), u64>,
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
    pub(super) fn look(&mut self, fabric: &Fabric, now: Instant) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + LOOK);
        let ports: Vec<_> = fabric.nics().iter().flat_map(|nic| nic.ports()).collect();
        let faults = ports.iter().flat_map(|port| {
            let faults = port.faults().into_iter();
            faults.map(|(ring, fault, count)| (port.label.as_str(), ring, fault, count))
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_and_no_more() {
        let mut quiet = Quiet::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let through =
            |quiet: &mut Quiet, ms| (0..100).filter(|_| quiet.lets_through(at(ms))).count();
        assert_eq!(through(&mut quiet, 0), 10);
        assert_eq!(through(&mut quiet, 999), 0);
        assert_eq!(quiet.held, 190);
        assert_eq!(through(&mut quiet, 1000), 10);
        assert_eq!(quiet.held, 90, "the second before was accounted for");
        assert_eq!(through(&mut quiet, 60_000), 10);
    }

    #[test]
    fn the_same_line_is_said_once_a_minute_and_a_change_at_once() {
        let mut repeated = Repeated::default();
        let start = Instant::now();
        let mut news = |line, s| repeated.is_news(line, start + Duration::from_secs(s));
        let said: Vec<u64> = (0..150).filter(|&s| news("refused", s)).collect();
        assert_eq!(said, [0, 60, 120]);
        assert!(news("forbidden", 150) && !news("forbidden", 151));
        assert!(news("refused", 152) && !news("refused", 153));
        repeated.forget();
        assert!(repeated.is_news("refused", start + Duration::from_secs(154)));
    }

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
