//! Sleep of a lane: no kick is missed, and no rate limit keeps it awake.
//!
//! After its last frame a lane polls for [`poll`](crate::IdlePolicy::poll), then polls and yields
//! its CPU for [`yielding`](crate::IdlePolicy::yielding). Then it enables notifications on every
//! ring, polls **once more**, and sleeps on the eventfds if it found no frame. The full fence
//! between the two is in the ring's `enable_notification()`; without it guest and lane could both
//! sleep. Kicks are watched edge-triggered, so a wake-up costs no read. With [`IdlePolicy::sleep`]
//! `false` the last step is left out. While the lane is awake notifications are disabled. Frames of
//! a sender that is over its limit do not keep it awake: a timer ends that sleep.
//!
//! [`IdlePolicy::sleep`]: crate::IdlePolicy::sleep

use std::sync::atomic::Ordering;
use std::time::Duration;

use host::tsc;
use port::Readiness;

use super::lane_ports::LaneRing;
use super::worker::Worker;
use crate::lane::clock::Clock;
use crate::lane::counter;

/// Longest sleep while frames wait for their sender's limit, since the limit may change.
const REST_MAX: Duration = Duration::from_millis(10);

/// State of the rings when notifications were enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RingState {
    /// No frame.
    Silent,
    /// Frames.
    Waiting,
    /// A ring without a kick.
    WithoutKick,
}

impl Worker {
    /// Enables notifications, polls once more, and sleeps if no frame may be sent now. Returns the
    /// time at which it woke, in cycles; `last_round` if it did not sleep.
    pub(super) fn sleep(&mut self, is_paused: bool, last_round: u64) -> u64 {
        let mut awake_since = last_round;
        self.scratch.switch.flush();
        let longest = match self.enable_notifications() {
            RingState::Silent => Some(None),
            RingState::Waiting if !is_paused => self.rest().map(Some),
            RingState::Waiting | RingState::WithoutKick => None,
        };
        if let Some(longest) = longest
            && !self.stop.load(Ordering::Acquire)
        {
            self.block.add(counter::SLEEPS, 1);
            self.note_gap(tsc::now().wrapping_sub(last_round));
            self.marker.rest();
            self.wake.sleep(longest);
            awake_since = tsc::now();
        }
        for LaneRing { ring, .. } in &self.rings {
            self.marker.begin(ring.port.id);
            ring.disable_notification();
        }
        awake_since
    }

    /// Enables notifications on every ring; returns their state.
    fn enable_notifications(&mut self) -> RingState {
        let mut state = RingState::Silent;
        for poll in &mut self.rings {
            poll.silence.ends();
            poll.waits = false;
            self.marker.begin(poll.ring.port.id);
            poll.ring.with(|attached| {
                poll.waits = attached.ring.enable_notification() == Readiness::Ready;
                // A ring without a kick must be polled; a broken ring is ignored.
                if attached.ring.kick().is_none() && !attached.fault_seen {
                    state = RingState::WithoutKick;
                } else if poll.waits && state == RingState::Silent {
                    state = RingState::Waiting;
                }
            });
        }
        state
    }

    /// Gives every sender within its limit a turn. If none has frames, returns the time until the
    /// next sender is within its limit.
    fn rest(&mut self) -> Option<Duration> {
        let begin = tsc::now();
        let now_ns = Clock::get().at(begin);
        self.closed_ns = u64::MAX;
        // As many turns as two passes have, so that one of them is whole.
        for _ in 0..2 * self.rings.len() {
            let frames = self.turn::<false>(now_ns);
            if frames > 0 {
                self.account(frames, tsc::now().wrapping_sub(begin));
                return None;
            }
        }
        let ready_ns = self.schedule.wake_ns().unwrap_or(u64::MAX).min(self.closed_ns);
        if !self.schedule.is_silent() || ready_ns == u64::MAX {
            return None;
        }
        // Rings whose frames must wait need no notification.
        let waiting = self.rings.iter().filter(|poll| poll.waits);
        waiting.for_each(|poll| poll.ring.disable_notification());
        Some(Duration::from_nanos(ready_ns.saturating_sub(now_ns)).min(REST_MAX))
    }
}
