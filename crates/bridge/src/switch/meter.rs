//! Storm control: limits of floods of each kind from a port.
//!
//! Model: the generic cell rate algorithm (ITU-T I.371, annex A), which is a token bucket in one
//! word: the time at which the bucket would be full again. Lanes share a meter through `&self`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::PortId;
use crate::switch::MAX_PORTS;

/// Burst size as a time at the rate, ns.
const DEPTH_NS: u64 = 100_000_000;
/// Kinds of flood that are metered apart: broadcast, multicast, unknown unicast.
pub(crate) const KINDS: usize = 3;

/// Cost of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// Nothing: there is no limit.
    Free,
    /// No frame may pass.
    Forbidden,
    /// So many ns until the next.
    Ns(u64),
}

impl Cost {
    /// From frames a second.
    pub(crate) fn of_rate(rate: Option<u32>) -> Self {
        match rate {
            None => Self::Free,
            Some(0) => Self::Forbidden,
            Some(rate) => Self::Ns((1_000_000_000 + u64::from(rate) / 2) / u64::from(rate)),
        }
    }
}

/// The meters of all ports.
#[derive(Debug)]
pub(crate) struct Meters(Box<[[AtomicU64; KINDS]]>);

impl Meters {
    pub(crate) fn new() -> Self {
        Self((0..MAX_PORTS).map(|_| [const { AtomicU64::new(0) }; KINDS]).collect())
    }

    /// A copy with the same charges.
    pub(crate) fn copy(&self) -> Self {
        let copy = |kinds: &[AtomicU64; KINDS]| {
            kinds.each_ref().map(|full_at| full_at.load(Relaxed).into())
        };
        Self(self.0.iter().map(copy).collect())
    }

    /// Number of `frames` of a kind that may pass now.
    pub(crate) fn take(
        &self,
        (port, kind): (PortId, usize),
        cost: Cost,
        frames: usize,
        now_ns: u64,
    ) -> usize {
        let cost = match cost {
            Cost::Free => return frames,
            Cost::Forbidden => return 0,
            Cost::Ns(cost) => cost,
        };
        let Some(full_at) = self.0.get(port.index()).and_then(|kinds| kinds.get(kind)) else {
            return 0;
        };
        let latest = now_ns.saturating_add(DEPTH_NS);
        let mut granted = 0;
        // The closure never refuses, so the result has nothing to say.
        let _ = full_at.fetch_update(Relaxed, Relaxed, |full_at| {
            let from = full_at.max(now_ns);
            granted = match latest.checked_sub(from) {
                Some(room) => (room / cost + 1).min(frames as u64),
                None => 0,
            };
            Some(from.saturating_add(granted * cost))
        });
        granted as usize
    }

    /// Charges further frames made of frames that passed. The meter may be overdrawn; then no frame
    /// passes until it has recovered.
    pub(crate) fn charge(
        &self,
        (port, kind): (PortId, usize),
        cost: Cost,
        frames: u32,
        now_ns: u64,
    ) {
        let Cost::Ns(cost) = cost else { return };
        if let Some(full_at) = self.0.get(port.index()).and_then(|kinds| kinds.get(kind)) {
            let cost = cost.saturating_mul(frames.into());
            let later = |full_at: u64| Some(full_at.max(now_ns).saturating_add(cost));
            // The closure never refuses, so the result has nothing to say.
            let _ = full_at.fetch_update(Relaxed, Relaxed, later);
        }
    }

    /// Number of frames of a kind that could pass now; `u32::MAX` without a limit.
    pub(crate) fn room(&self, (port, kind): (PortId, usize), cost: Cost, now_ns: u64) -> u32 {
        let cost = match cost {
            Cost::Free => return u32::MAX,
            Cost::Forbidden => return 0,
            Cost::Ns(cost) => cost,
        };
        let Some(full_at) = self.0.get(port.index()).and_then(|kinds| kinds.get(kind)) else {
            return 0;
        };
        let from = full_at.load(Relaxed).max(now_ns);
        let room = now_ns.saturating_add(DEPTH_NS).checked_sub(from);
        room.map_or(0, |room| u32::try_from(room / cost + 1).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: (PortId, usize) = (PortId(3), 1);

    #[test]
    fn rates_hold_over_time() {
        for rate in [1, 7, 100, 5_000, 1_000_000, 10_000_000] {
            let meters = Meters::new();
            let cost = Cost::of_rate(Some(rate));
            let step_ns = 1_000_000_000 / 50_000;
            let passed: usize =
                (1..=50_000).map(|n| meters.take(KIND, cost, 250, 77 + n * step_ns)).sum();
            let burst = f64::from(rate) / 10.0 + 1.0;
            let rate = f64::from(rate);
            let most = rate + burst + 1.0;
            let passed = passed as f64;
            assert!(passed >= rate * 0.999 && passed <= most * 1.001, "{rate}: {passed}");
        }
    }

    #[test]
    fn a_quiet_port_may_send_a_tenth_of_a_second_at_once() {
        let meters = Meters::new();
        let cost = Cost::of_rate(Some(100));
        assert_eq!(meters.take(KIND, cost, 64, 5_000_000_000), 11);
        assert_eq!(meters.take(KIND, cost, 64, 5_000_000_000), 0);
        assert_eq!(meters.take((PortId(3), 0), cost, 64, 5_000_000_000), 11);
        assert_eq!(meters.take(KIND, cost, 64, 5_010_000_000), 1);
        // A clock that stands still or goes back gives nothing.
        assert_eq!(meters.take(KIND, cost, 64, 0), 0);
        assert_eq!(meters.take(KIND, cost, 64, u64::MAX), 1);
        assert_eq!(meters.take(KIND, cost, 64, u64::MAX), 1);
    }

    #[test]
    fn what_comes_of_a_frame_is_paid_before_the_next() {
        let meters = Meters::new();
        let (cost, now) = (Cost::of_rate(Some(100)), 5_000_000_000);
        assert_eq!((meters.room(KIND, cost, now), meters.take(KIND, cost, 1, now)), (11, 1));
        meters.charge(KIND, cost, 5, now);
        assert_eq!(meters.room(KIND, cost, now), 5);
        meters.charge(KIND, cost, 104, now);
        // 100 frames too many: a second.
        let paid = now + 1_000_000_000;
        assert_eq!(
            (meters.room(KIND, cost, paid - 1), meters.take(KIND, cost, 9, paid - 1)),
            (0, 0)
        );
        assert_eq!((meters.room(KIND, cost, paid), meters.take(KIND, cost, 9, paid)), (1, 1));
        for (rate, room) in [(None, u32::MAX), (Some(0), 0)] {
            meters.charge(KIND, Cost::of_rate(rate), u32::MAX, now);
            assert_eq!(meters.room(KIND, Cost::of_rate(rate), paid), room);
        }
        meters.charge(KIND, cost, u32::MAX, u64::MAX);
        assert_eq!(meters.room((PortId(u16::MAX), 0), cost, 0), 0);
    }

    #[test]
    fn no_limit_and_no_frame() {
        let meters = Meters::new();
        assert_eq!(meters.take(KIND, Cost::of_rate(None), 64, 0), 64);
        assert_eq!(meters.take(KIND, Cost::of_rate(Some(0)), 64, u64::MAX), 0);
        assert_eq!(meters.take((PortId(u16::MAX), 0), Cost::Ns(1), 64, 0), 0);
    }
}
