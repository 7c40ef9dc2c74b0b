//! Held frames, each with its own release time.
//!
//! A frame with a short delay overtakes one with a long delay: frames are released in the order of
//! their release times, and those of the same time in the order of arrival. All times are
//! parameters, in any unit.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A held frame.
#[derive(Clone, Debug)]
pub struct HeldFrame<T> {
    /// Start of its delay.
    pub from: u64,
    /// Release time.
    pub due: u64,
    /// Arrival number, from 0.
    number: u64,
    /// The frame.
    pub frame: T,
}

impl<T> PartialEq for HeldFrame<T> {
    fn eq(&self, other: &HeldFrame<T>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for HeldFrame<T> {}

impl<T> PartialOrd for HeldFrame<T> {
    fn partial_cmp(&self, other: &HeldFrame<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for HeldFrame<T> {
    fn cmp(&self, other: &HeldFrame<T>) -> Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

/// Held frames, the next to be released first.
#[derive(Debug)]
pub struct DelayLine<T> {
    held: BinaryHeap<Reverse<HeldFrame<T>>>,
    /// Number of frames that arrived.
    arrivals: u64,
    /// Number after the highest released one.
    next: u64,
    /// Frames released after one that arrived later.
    reordered: u64,
}

impl<T> Default for DelayLine<T> {
    fn default() -> DelayLine<T> {
        DelayLine { held: BinaryHeap::new(), arrivals: 0, next: 0, reordered: 0 }
    }
}

impl<T> DelayLine<T> {
    /// Holds an arrived frame until `delay` has passed since `from`.
    pub fn hold(&mut self, from: u64, delay: u64, frame: T) {
        let number = self.arrivals;
        self.arrivals += 1;
        let due = from.saturating_add(delay);
        self.held.push(Reverse(HeldFrame { from, due, number, frame }));
    }

    /// `true` if a frame is due.
    pub fn is_due(&self, now: u64) -> bool {
        self.held.peek().is_some_and(|Reverse(held)| held.due <= now)
    }

    /// Releases the next due frame; `None` if none is due.
    pub fn release(&mut self, now: u64) -> Option<HeldFrame<T>> {
        if !self.is_due(now) {
            return None;
        }
        let Reverse(held) = self.held.pop()?;
        self.reordered += u64::from(held.number < self.next);
        self.next = self.next.max(held.number + 1);
        Some(held)
    }

    /// Number of held frames.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// `true` if no frame is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Frames released so far after one that arrived later: a receiver counts as many as reordered.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::statistics::random::Random;

    /// Frames released at each of the times.
    fn released(line: &mut DelayLine<char>, times: &[u64]) -> Vec<String> {
        let at = |now: &u64| {
            let frames = std::iter::from_fn(|| line.release(*now));
            frames.map(|held| held.frame).collect::<String>()
        };
        times.iter().map(at).collect()
    }

    #[test]
    fn a_frame_is_released_when_it_is_due_and_not_before() {
        let mut line = DelayLine::default();
        line.hold(1_000, 500, 'a');
        line.hold(1_200, 500, 'b');
        assert_eq!(released(&mut line, &[1_000, 1_499, 1_500, 1_699]), ["", "", "a", ""]);
        assert_eq!((line.len(), line.is_empty()), (1, false));
        // Late: the device had no CPU.
        let held = line.release(9_000).unwrap();
        assert_eq!((held.from, held.due, held.frame), (1_200, 1_700, 'b'));
        assert!(line.is_empty() && line.release(u64::MAX).is_none());
        assert_eq!(line.reordered(), 0);
    }

    #[test]
    fn short_delays_overtake_and_equal_ones_do_not() {
        let mut line = DelayLine::default();
        for (now, delay, frame) in [(0, 100, 'a'), (1, 10, 'b'), (2, 98, 'c'), (3, 5, 'd')] {
            line.hold(now, delay, frame);
        }
        // d is due at 8, b at 11, a and c at 100.
        assert_eq!(released(&mut line, &[7, 8, 11, 99, 100]), ["", "d", "b", "", "ac"]);
        assert_eq!(line.reordered(), 3, "d overtook all others");
    }

    #[test]
    fn every_frame_is_released_once_at_the_first_look_after_its_time() {
        let (mut line, mut random) = (DelayLine::default(), Random::new(5));
        let mut seen = vec![false; 10_000];
        for now in (0..20_000).step_by(2) {
            line.hold(now, random.below(1_000), now / 2);
            while let Some(held) = line.release(now) {
                assert!(held.due <= now && now < held.due + 2, "{held:?} at {now}");
                assert!(!std::mem::replace(&mut seen[held.frame as usize], true));
            }
        }
        while let Some(held) = line.release(u64::MAX) {
            assert!(!std::mem::replace(&mut seen[held.frame as usize], true));
        }
        assert!(seen.iter().all(|seen| *seen));
        assert!(line.reordered() > 1_000);
    }
}
