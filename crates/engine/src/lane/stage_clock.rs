//! Clock of a lane that measures the [stages](crate::lane::stages) of sampled bursts.

use std::cell::Cell;
use std::time::Duration;

use host::tsc;

use crate::counters::CounterBlock;
use crate::lane::counter;
use crate::lane::stages::{SAMPLED_ONE_IN, Stage};

/// A burst that takes longer, a cycle a byte apart, was interrupted.
const LONGEST: Duration = Duration::from_micros(100);

/// Reads the counter at the borders of sampled bursts. One for each lane.
#[derive(Debug)]
pub(crate) struct StageClock {
    now: fn() -> u64,
    /// Usual cycles of a reading.
    reading: u64,
    /// Cycles of [`LONGEST`].
    longest: u64,
    /// The next burst, or the current one, is sampled.
    sampling: Cell<bool>,
    /// Bursts before the next sampled one.
    left: Cell<u32>,
    /// Position of the sampled burst among its [`SAMPLED_ONE_IN`].
    place: Cell<u32>,
    random: Cell<u32>,
    /// The previous border.
    last: Cell<u64>,
    cycles: [Cell<u64>; Stage::ALL.len()],
    /// Cycles of the readings themselves.
    readings: Cell<u64>,
}

impl StageClock {
    /// A clock that samples nothing.
    pub(crate) fn off() -> StageClock {
        StageClock {
            now: tsc::now,
            reading: 0,
            longest: u64::MAX,
            sampling: Cell::new(false),
            left: Cell::new(u32::MAX),
            place: Cell::new(0),
            random: Cell::new(0x9e37_79b9),
            last: Cell::new(0),
            cycles: std::array::from_fn(|_| Cell::new(0)),
            readings: Cell::new(0),
        }
    }

    /// The clock of a lane, which this thread runs.
    pub(crate) fn start() -> StageClock {
        StageClock::with(tsc::now, tsc::duration_to_cycles(LONGEST))
    }

    fn with(now: fn() -> u64, longest: u64) -> StageClock {
        let mut clock = StageClock { now, longest, ..StageClock::off() };
        clock.reading = clock.usual_reading();
        clock.place.set(clock.draw());
        clock.await_burst(clock.place.get());
        clock
    }

    /// Median of 64: the minimum could be of two readings that overlap.
    fn usual_reading(&self) -> u64 {
        self.restart();
        let mut each = [0; 64];
        for cycles in &mut each {
            let before = self.last.get();
            self.stamp(Stage::Poll);
            *cycles = self.last.get().saturating_sub(before);
        }
        each.sort_unstable();
        each[each.len() / 2]
    }

    /// Random position among [`SAMPLED_ONE_IN`] bursts, by xorshift.
    fn draw(&self) -> u32 {
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        self.random.set(random);
        random & (SAMPLED_ONE_IN - 1)
    }

    /// Samples a burst after `left` others.
    fn await_burst(&self, left: u32) {
        self.left.set(left);
        self.sampling.set(left == 0);
    }

    /// Returns `true` if the current burst is sampled.
    #[inline(always)]
    pub(crate) fn is_sampling(&self) -> bool {
        self.sampling.get()
    }

    /// Begins a turn, in which a burst may be found.
    #[inline(always)]
    pub(crate) fn begin(&self) {
        if self.is_sampling() {
            self.restart();
        }
    }

    /// Ends a stage: charges it the cycles since the previous border.
    #[inline(always)]
    pub(crate) fn end(&self, stage: Stage) {
        if self.is_sampling() {
            self.stamp(stage);
        }
    }

    /// Ends the turn in which a burst was found; counts the burst if it was sampled.
    #[inline(always)]
    pub(crate) fn finish(&self, frames: u32, bytes: u64, block: &CounterBlock) {
        if self.is_sampling() {
            return self.count(frames, bytes, block);
        }
        self.await_burst(self.left.get() - 1);
    }

    #[cold]
    fn restart(&self) {
        self.cycles.iter().for_each(|cycles| cycles.set(0));
        self.readings.set(0);
        self.last.set((self.now)());
    }

    #[cold]
    #[inline(never)]
    fn stamp(&self, stage: Stage) {
        let now = (self.now)();
        // Time stamps of two CPUs may disagree, and a lane may be pinned to none.
        let passed = now.saturating_sub(self.last.replace(now));
        let reading = passed.min(self.reading);
        let add = |sum: &Cell<u64>, cycles: u64| sum.set(sum.get() + cycles);
        add(&self.readings, reading);
        add(&self.cycles[stage as usize], passed - reading);
    }

    #[cold]
    #[inline(never)]
    fn count(&self, frames: u32, bytes: u64, block: &CounterBlock) {
        self.stamp(Stage::Poll);
        let cycles: u64 = self.cycles.iter().map(Cell::get).sum();
        if cycles > self.longest.saturating_add(bytes) {
            block.add(counter::SAMPLED_INTERRUPTED, 1);
        } else {
            block.add(counter::SAMPLED_BURSTS, 1);
            block.add(counter::SAMPLED_FRAMES, u64::from(frames));
            block.add(counter::SAMPLING_CYCLES, self.readings.get());
            for (i, cycles) in self.cycles.iter().enumerate() {
                block.add(counter::STAGES + i, cycles.get());
            }
        }
        let place = self.draw();
        let behind = SAMPLED_ONE_IN - 1 - self.place.replace(place);
        self.await_burst(behind + place);
    }
}

#[cfg(test)]
mod tests;
