//! Account of received sequence numbers: lost, duplicated, reordered.

use std::collections::BTreeSet;

/// Maximum missing numbers that are remembered, to limit memory; later ones count as duplicates.
const MISSING_MAX: usize = 1 << 20;

/// Account of numbers that should come once each, in order, from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    /// Number after the highest that came.
    seen: u64,
    /// Number after the highest that came or was given up.
    next: u64,
    /// Lower numbers that have not come.
    missing: BTreeSet<u64>,
    /// Missing numbers beyond the limit of the set.
    forgotten: u64,
    pub(super) received: u64,
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
}

impl Ledger {
    /// Number after the highest that came or was given up.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Records a number. A skipped one that comes after a higher one is reordered; a known one is a
    /// duplicate.
    pub(super) fn take(&mut self, number: u64) {
        if number >= self.next {
            self.give_up(number);
            self.next = number + 1;
            self.received += 1;
        } else if self.missing.remove(&number) {
            self.reordered += u64::from(number < self.seen);
            self.received += 1;
        } else {
            self.duplicated += 1;
        }
        self.seen = self.seen.max(number + 1);
    }

    /// Gives up the numbers below `end`; those that still come are not lost.
    pub(super) fn give_up(&mut self, end: u64) {
        let from = self.next.min(end);
        let room = (MISSING_MAX - self.missing.len()) as u64;
        let kept = from + (end - from).min(room);
        self.missing.extend(from..kept);
        self.forgotten += end - kept;
        self.next = self.next.max(end);
    }

    /// Numbers that never came, below [`next`](Self::next).
    pub(super) fn lost(&self) -> u64 {
        self.missing.len() as u64 + self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(numbers: &[u64]) -> Ledger {
        let mut ledger = Ledger::default();
        numbers.iter().for_each(|number| ledger.take(*number));
        ledger
    }

    /// Received, lost, duplicated, reordered.
    fn told(ledger: &Ledger) -> [u64; 4] {
        [ledger.received, ledger.lost(), ledger.duplicated, ledger.reordered]
    }

    #[test]
    fn each_kind_of_trouble_is_told_apart() {
        assert_eq!(told(&after(&[0, 1, 2, 3])), [4, 0, 0, 0]);
        assert_eq!(told(&after(&[0, 3])), [2, 2, 0, 0], "two are lost");
        assert_eq!(told(&after(&[1, 0, 2])), [3, 0, 0, 1], "one was overtaken");
        assert_eq!(told(&after(&[0, 1, 1, 0])), [2, 0, 2, 0], "two came twice");
        assert_eq!(told(&after(&[2, 0, 0])), [2, 1, 1, 1], "late, and twice, and one lost");
    }

    #[test]
    fn what_was_given_up_is_lost_unless_it_comes() {
        let mut ledger = after(&[0]);
        ledger.give_up(4);
        assert_eq!((ledger.next(), ledger.lost()), (4, 3));
        ledger.take(2);
        assert_eq!(told(&ledger), [2, 2, 0, 0], "late, and in order");
        ledger.give_up(1);
        assert_eq!((ledger.next(), ledger.lost()), (4, 2), "not backwards");
        ledger.take(1);
        assert_eq!(told(&ledger), [3, 1, 0, 1], "overtaken by 2");
    }

    #[test]
    fn a_great_gap_is_counted_without_being_kept() {
        let mut ledger = Ledger::default();
        ledger.take(3 * MISSING_MAX as u64);
        assert_eq!(ledger.lost(), 3 * MISSING_MAX as u64);
        assert_eq!(ledger.missing.len(), MISSING_MAX);
        ledger.take(0);
        assert_eq!(told(&ledger), [2, 3 * MISSING_MAX as u64 - 1, 0, 1]);
    }
}
