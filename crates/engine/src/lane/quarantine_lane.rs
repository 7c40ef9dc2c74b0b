//! The quarantine lane: it serves ports that must not hold up others, and may wait itself.
//!
//! It is pinned nowhere and sleeps after each round, so that it takes no lane's CPU for long.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use host::tsc;

use super::worker::Worker;
use crate::lane::clock::Clock;
use crate::lane::counter;

/// Sleep between two rounds. With one burst a round this is 320 000 frames/s for each ring.
const REST: Duration = Duration::from_micros(200);

impl Worker {
    /// Serves the ports in quarantine until the lane is stopped.
    pub(super) fn run_quarantine_lane(mut self) {
        let clock = Clock::get();
        let mut begin = tsc::now();
        while !self.stop.load(Ordering::Relaxed) {
            let (change, is_paused) = self.pause.get();
            let served = self.quarantine.turn(Instant::now());
            let frames = if is_paused { 0 } else { self.poll_all::<true>(begin, clock.at(begin)) };
            // During a pause, frames taken before it are delivered once.
            if let Some(bounce) = &self.bounce
                && (!is_paused || change != self.seen_pause)
            {
                for port in &served {
                    self.marker.begin(port.id);
                    port.deliver_detoured(&bounce.arena, &mut self.scratch.receive);
                }
            }
            self.marker.rest();
            self.acknowledge(change);
            self.account(frames, tsc::now().wrapping_sub(begin));
            self.scratch.switch.flush();
            self.block.add(counter::SLEEPS, 1);
            self.wake.sleep((!served.is_empty()).then_some(REST));
            begin = tsc::now();
        }
    }
}
