//! The quarantine lane: it serves ports that must not hold up others, and may wait itself.
//!
//! It is pinned nowhere and sleeps after each round, so that it takes no lane's CPU for long.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use host::tsc;
use port::bounce::Room;
use port::kept::Arena;

use super::Worker;
use crate::clock::Clock;
use crate::lane::slot;

/// Sleep between two rounds. With one burst a round this is 320 000 frames/s for each ring.
const REST: Duration = Duration::from_micros(200);

/// Memory that frames are copied to, so that only one guest's is touched at a time.
#[derive(Debug)]
pub(crate) struct OffLane {
    /// Frames on their way from a guest.
    pub(super) room: Room,
    /// Frames on their way to one.
    pub(crate) arena: Arena,
}

impl OffLane {
    pub(crate) fn new() -> Option<OffLane> {
        Some(OffLane { room: Room::new().ok()?, arena: Arena::new()? })
    }
}

impl Worker {
    /// Serves the ports in quarantine until the lane is stopped.
    pub(super) fn run_off_lane(mut self) {
        let clock = Clock::get();
        let mut begin = tsc::now();
        while !self.stop.load(Ordering::Relaxed) {
            let (change, held) = self.held.get();
            let served = self.quarantine.turn(Instant::now());
            let frames = if held { 0 } else { self.poll_all::<true>(clock.at(begin)) };
            // While guests' frames are to wait, those that were taken before are handed on once.
            if let Some(off_lane) = &self.off_lane
                && (!held || change != self.known)
            {
                for port in &served {
                    self.standing.begin(port.id);
                    port.hand_on_detoured(&off_lane.arena, &mut self.scratch.receive);
                }
            }
            self.standing.rest();
            self.acknowledge(change);
            self.account(frames, tsc::now().wrapping_sub(begin));
            self.scratch.switch.flush();
            self.block.add(slot::SLEEPS, 1);
            self.wake.sleep((!served.is_empty()).then_some(REST));
            begin = tsc::now();
        }
    }
}
