//! The clock with time that the tests make.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use super::*;

thread_local! {
    /// The time, the next step, and how often the clock was read.
    static CLOCK: Cell<(u64, u64, u64)> = const { Cell::new((0, READING, 0)) };
}

/// Cycles of a reading, as the clock finds them when it starts.
const READING: u64 = 10;
const LIMIT: u64 = 100_000;

fn now() -> u64 {
    let (time, step, reads) = CLOCK.get();
    CLOCK.set((time + step, step, reads + 1));
    time + step
}

fn reads() -> u64 {
    CLOCK.get().2
}

/// The next readings are so many cycles apart.
fn set_step(step: u64) {
    let (time, _, reads) = CLOCK.get();
    CLOCK.set((time, step, reads));
}

/// A clock, and the counters of its lane.
fn clock() -> (StageClock, CounterBlock) {
    set_step(READING);
    let words = (0..counter::END).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    (StageClock::with(now, LIMIT), CounterBlock::new(words.leak()))
}

/// A burst of 32 frames, 1000 cycles and more from border to border; the time from the first
/// reading to the last, if it was sampled.
fn burst(clock: &StageClock, block: &CounterBlock) -> Option<u64> {
    let sampled = clock.is_sampling();
    clock.begin();
    let begin = CLOCK.get().0;
    for (i, stage) in Stage::ALL.into_iter().enumerate() {
        set_step(1000 * (i as u64 + 1));
        clock.end(stage);
    }
    clock.finish(32, 2048, block);
    sampled.then(|| CLOCK.get().0 - begin)
}

fn stages(block: &CounterBlock) -> [u64; Stage::ALL.len()] {
    std::array::from_fn(|i| block.get(counter::STAGES + i))
}

#[test]
fn stages_and_readings_add_up_to_the_time_of_sampled_bursts() {
    let (clock, block) = clock();
    let times: Vec<u64> = (0..1000).filter_map(|_| burst(&clock, &block)).collect();
    let sum: u64 = stages(&block).iter().sum();
    assert_eq!(sum + block.get(counter::SAMPLING_CYCLES), times.iter().sum::<u64>());
    let sampled = times.len() as u64;
    assert_eq!(block.get(counter::SAMPLED_BURSTS), sampled);
    assert_eq!(block.get(counter::SAMPLED_FRAMES), 32 * sampled);
    // Seven borders, one of them behind the burst, which is the lane's turn again.
    assert_eq!(block.get(counter::SAMPLING_CYCLES), 7 * READING * sampled);
    let [poll, descriptors, classify, copy, publish, notify] =
        stages(&block).map(|cycles| cycles / sampled);
    assert_eq!([poll, descriptors, classify], [6980, 1990, 2990]);
    assert_eq!([copy, publish, notify], [3990, 4990, 5990]);
}

#[test]
fn one_burst_in_each_64_is_sampled_and_not_always_the_same() {
    let (clock, block) = clock();
    let mut places = BTreeSet::new();
    for _ in 0..200 {
        let sampled: Vec<u32> =
            (0..SAMPLED_ONE_IN).filter(|_| burst(&clock, &block).is_some()).collect();
        assert_eq!(sampled.len(), 1, "{sampled:?}");
        places.extend(sampled);
    }
    assert!(places.len() > 48, "{places:?}");
    assert_eq!(block.get(counter::SAMPLED_BURSTS), 200);
}

#[test]
fn the_counter_is_not_read_for_other_bursts() {
    let (clock, block) = clock();
    for _ in 0..500 {
        let before = reads();
        let expected = if burst(&clock, &block).is_some() { 8 } else { 0 };
        assert_eq!(reads() - before, expected);
    }
}

#[test]
fn empty_polls_are_not_sampled() {
    let (clock, block) = clock();
    for _ in 0..5 * SAMPLED_ONE_IN {
        // Polls that find no frame end no turn and count nothing, in any number.
        let before = stages(&block);
        for _ in 0..3 {
            clock.begin();
            set_step(50_000);
            clock.end(Stage::Poll);
            clock.end(Stage::Descriptors);
        }
        assert_eq!(stages(&block), before);
        burst(&clock, &block);
    }
    assert_eq!(block.get(counter::SAMPLED_BURSTS), 5);
    assert_eq!(stages(&block)[Stage::Descriptors as usize], 5 * 1990);
}

#[test]
fn a_burst_that_was_interrupted_is_left_out() {
    let (clock, block) = clock();
    for _ in 0..SAMPLED_ONE_IN {
        clock.begin();
        set_step(LIMIT);
        clock.end(Stage::Copy);
        set_step(READING);
        clock.finish(1, 0, &block);
    }
    for _ in 0..SAMPLED_ONE_IN {
        clock.begin();
        set_step(LIMIT);
        clock.end(Stage::Copy);
        set_step(READING);
        clock.finish(1, LIMIT, &block);
    }
    let counted = [counter::SAMPLED_INTERRUPTED, counter::SAMPLED_BURSTS].map(|at| block.get(at));
    assert_eq!(counted, [0, 2], "at the limit, and a large burst");
    for _ in 0..SAMPLED_ONE_IN {
        clock.begin();
        set_step(LIMIT + 2 * READING);
        clock.end(Stage::Copy);
        clock.finish(1, 0, &block);
    }
    let counted = [counter::SAMPLED_INTERRUPTED, counter::SAMPLED_BURSTS].map(|at| block.get(at));
    assert_eq!(counted, [1, 2]);
}

#[test]
fn a_clock_that_is_off_reads_nothing() {
    let clock = StageClock { now, ..StageClock::off() };
    let before = reads();
    clock.begin();
    clock.end(Stage::Copy);
    assert_eq!((clock.is_sampling(), reads()), (false, before));
}

#[test]
fn time_that_goes_back_counts_nothing() {
    let (clock, _) = clock();
    clock.restart();
    let (_, step, reads) = CLOCK.get();
    CLOCK.set((0, step, reads));
    clock.stamp(Stage::Copy);
    assert_eq!(clock.cycles[Stage::Copy as usize].get(), 0);
}
