//! Silent rings are polled less often, so that they cost the busy ones little.
//!
//! Each ring counts its own visits. Counts of the lane's rounds would be in step with the schedule:
//! a round has as many visits as there are senders, and a sender with more frames than a burst is
//! visited twice in a pass. With such a steady pattern, the visits of a ring could miss every round
//! in which it is due, for seconds.

/// Visits without a frame after which a ring is cold.
const COLD_AFTER: u32 = 1024;
/// A cold ring is polled in one of so many visits.
const STRIDE: u32 = 8;

/// Visits of a ring since its last frame, up to [`COLD_AFTER`]; then plus those since its last
/// poll.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence(u32);

impl Silence {
    /// Returns `true` if the ring is polled in some visits only.
    #[inline]
    pub(super) fn is_cold(self) -> bool {
        self.0 >= COLD_AFTER
    }

    /// Begins a visit; returns `true` if the ring must be polled.
    #[inline]
    pub(super) fn visit(&mut self) -> bool {
        if !self.is_cold() {
            return true;
        }
        self.0 += 1;
        if self.0 < COLD_AFTER + STRIDE {
            return false;
        }
        self.0 = COLD_AFTER;
        true
    }

    /// Records a poll without a frame in ring number `ring`. Numbers spread cold rings over visits.
    #[inline]
    pub(super) fn lasts(&mut self, ring: usize) {
        if self.0 < COLD_AFTER {
            self.0 += 1;
            if self.0 == COLD_AFTER {
                self.0 += ring as u32 % STRIDE;
            }
        }
    }

    /// Records a frame, or requests a poll in the next visit.
    #[inline]
    pub(super) fn ends(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use bridge::nic::{Schedule, Share};

    use super::*;

    #[test]
    fn a_cold_ring_is_polled_in_one_of_eight_visits() {
        let mut silence = Silence::default();
        for _ in 0..COLD_AFTER {
            assert!(silence.visit());
            silence.lasts(3);
        }
        let mut visit = || {
            let is_polled = silence.visit();
            if is_polled {
                silence.lasts(3);
            }
            is_polled
        };
        let polled: Vec<bool> = (0..4 * STRIDE).map(|_| visit()).collect();
        assert_eq!(polled.iter().filter(|polled| **polled).count(), 4);
        let gaps = polled.split(|polled| *polled).map(<[bool]>::len);
        assert!(gaps.max() == Some(STRIDE as usize - 1), "{polled:?}");
        silence.ends();
        assert!(silence.visit() && silence.visit());
    }

    /// Senders with two bursts a pass are visited twice in it, and rounds are as long as there are
    /// senders. With six senders of which two are busy, a pass always takes a round and a third.
    /// Each silent ring is polled all the same.
    #[test]
    fn no_pattern_of_busy_rings_leaves_a_silent_one_out() {
        const BUSY: u32 = 2;
        for senders in 3..12_u32 {
            let mut schedule = Schedule::new();
            for ring in 0..senders {
                schedule.add(Share::default(), [ring], 0);
            }
            let mut silences = vec![Silence(COLD_AFTER); senders as usize];
            let mut polls = vec![0; senders as usize];
            let mut second = [false; BUSY as usize];
            for _ in 0..1000 * senders {
                let Some(number) = schedule.next(0) else { continue };
                let ring = number as usize;
                if number < BUSY {
                    // Two bursts, of which the first leaves more.
                    second[ring] = !second[ring];
                    schedule.took(1500, 1500, second[ring]);
                    continue;
                }
                if silences[ring].visit() {
                    silences[ring].lasts(ring);
                    polls[ring] += 1;
                }
                schedule.took(0, 0, false);
            }
            let least = polls[BUSY as usize..].iter().min().unwrap();
            assert!(*least > 1000 / (3 * STRIDE), "{senders} senders: {polls:?}");
        }
    }
}
