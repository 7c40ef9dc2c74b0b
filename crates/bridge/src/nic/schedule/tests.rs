//! A lane in virtual time: what it costs to send, and who sends how much.

use proptest::prelude::*;

use super::*;
use crate::BURST;
use crate::nic::WEIGHT_DEFAULT;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Cost of examining a sender without a turn.
const SKIP_NS: u64 = 4;

fn share(weight: u8, min_mbit: u32, max_mbit: u32) -> Share {
    Share { weight, min_mbit, max_mbit }
}

fn plain() -> Share {
    Share::default()
}

/// A ring with frames of one size.
#[derive(Clone, Debug)]
struct Ring {
    frame: u64,
    /// Nanoseconds between its frames; 0 if there are always more.
    every_ns: u64,
    /// Nanoseconds that a frame costs beside its bytes: headers, pieces, copies of a flood.
    frame_ns: u64,
    sent_frames: u64,
    sent_bytes: u64,
    sent_ns: u64,
    /// The longest that a frame waited.
    waited_ns: u64,
}

impl Ring {
    fn busy(frame: u64) -> Self {
        Self {
            frame,
            every_ns: 0,
            frame_ns: 0,
            sent_frames: 0,
            sent_bytes: 0,
            sent_ns: 0,
            waited_ns: 0,
        }
    }

    fn of_rate(frame: u64, mbit: u64) -> Self {
        Self { every_ns: frame * 8000 / mbit, ..Self::busy(frame) }
    }

    fn dear(frame: u64, frame_ns: u64) -> Self {
        Self { frame_ns, ..Self::busy(frame) }
    }

    fn waiting(&self, now: u64) -> u64 {
        match self.every_ns {
            0 => u64::MAX,
            every => (now / every).saturating_sub(self.sent_frames),
        }
    }
}

/// A lane that carries so many Mbit/s, of frames that cost nothing beside their bytes.
struct Lane {
    schedule: Schedule,
    rings: Vec<Ring>,
    mbit: u64,
    now: u64,
    /// Time spent on senders that had a turn for nothing, or none.
    idle_ns: u64,
    /// Set if it sleeps when no sender has a turn.
    sleeps: bool,
}

impl Lane {
    fn new(mbit: u64, senders: &[(Share, Ring)]) -> Self {
        let mut schedule = Schedule::new();
        for (i, (share, _)) in senders.iter().enumerate() {
            assert_eq!(schedule.add(*share, [i as u32], 0), i);
        }
        let rings = senders.iter().map(|(_, ring)| ring.clone()).collect();
        Self { schedule, rings, mbit, now: 0, idle_ns: 0, sleeps: false }
    }

    fn step(&mut self) {
        let Some(number) = self.schedule.next(self.now) else {
            self.idle_ns += SKIP_NS;
            self.now += SKIP_NS;
            return;
        };
        let ring = &mut self.rings[number as usize];
        let waiting = ring.waiting(self.now);
        let frames = waiting.min(BURST as u64);
        if ring.every_ns > 0 && frames > 0 {
            let arrived = (ring.sent_frames + 1) * ring.every_ns;
            ring.waited_ns = ring.waited_ns.max(self.now - arrived);
        }
        let bytes = frames * ring.frame;
        ring.sent_frames += frames;
        let cost_ns = bytes * 8000 / self.mbit + frames * ring.frame_ns;
        ring.sent_bytes += bytes;
        ring.sent_ns += cost_ns;
        self.schedule.took(bytes, cost_ns, waiting > frames);
        self.now += cost_ns;
        if frames == 0 {
            self.now += SKIP_NS;
            self.idle_ns += SKIP_NS;
        }
    }

    /// Rounds as a lane makes them, up to a time.
    fn run(&mut self, until: u64) {
        while self.now < until {
            let round = self.schedule.len();
            (0..round).for_each(|_| self.step());
            if let (true, true, Some(wake)) =
                (self.sleeps, self.schedule.is_silent(), self.schedule.wake_ns())
            {
                self.now = self.now.max(wake);
            }
        }
    }

    /// Share of each ring in the lane's time from one time to another.
    fn time_shares(&mut self, from: u64, until: u64) -> Vec<f64> {
        self.run(from);
        let (start, before) = (self.now, self.rings.clone());
        self.run(until);
        let elapsed = (self.now - start) as f64;
        let pairs = self.rings.iter().zip(before);
        pairs.map(|(now, was)| (now.sent_ns - was.sent_ns) as f64 / elapsed).collect()
    }

    /// Mbit/s of each ring from one time to another, after some time to settle.
    fn rates(&mut self, from: u64, until: u64) -> Vec<f64> {
        self.run(from);
        let (start, before) = (self.now, self.rings.clone());
        let idle = self.idle_ns;
        self.run(until);
        self.idle_ns -= idle;
        let elapsed = (self.now - start) as f64;
        let pairs = self.rings.iter().zip(before);
        pairs
            .map(|(now, was)| (now.sent_bytes - was.sent_bytes) as f64 * 8000.0 / elapsed)
            .collect()
    }
}

#[track_caller]
fn near(is: f64, should: f64, percent: f64) {
    let off = (is / should - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{is:.1} is {off:.2} % off {should:.1}");
}

fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    sum * sum / (rates.len() as f64 * rates.iter().map(|rate| rate * rate).sum::<f64>())
}

#[test]
fn equal_senders_get_the_same_whatever_their_frames() {
    let frames = [60, 124, 252, 508, 1020, 1514, 9000, 60];
    let senders = frames.map(|frame| (plain(), Ring::busy(frame)));
    let mut lane = Lane::new(10_000, &senders);
    let rates = lane.rates(50 * MS, SECOND);
    assert!(jain(&rates) >= 0.9999, "{rates:.0?}");
    assert!(lane.idle_ns < SECOND / 50, "{} ns in vain", lane.idle_ns);
}

/// Small frames, large ones, chains of 256 pieces and floods to 255 receivers.
const COSTS: [(u64, u64); 8] =
    [(60, 10), (1514, 10), (60, 40), (1514, 2500), (60, 2500), (9000, 0), (60, 6000), (508, 20)];

#[test]
fn time_is_shared_whatever_a_frame_costs() {
    let senders = COSTS.map(|(frame, frame_ns)| (plain(), Ring::dear(frame, frame_ns)));
    let shares = Lane::new(10_000, &senders).time_shares(100 * MS, 2 * SECOND);
    for share in shares {
        near(share, 0.125, 2.0);
    }
}

#[test]
fn a_sender_of_small_frames_costs_one_of_large_frames_no_share() {
    let large = |other: Ring| {
        let senders = [(plain(), Ring::dear(1514, 10)), (plain(), other)];
        Lane::new(10_000, &senders).rates(100 * MS, SECOND)[0]
    };
    near(large(Ring::dear(60, 10)), large(Ring::dear(1514, 10)), 1.0);
}

#[test]
fn time_by_weight_whatever_a_frame_costs() {
    let weights = [1, 2, 5, 10, 30, 100, 7, 20];
    let each = weights.iter().zip(COSTS);
    let senders: Vec<_> = each
        .map(|(weight, (frame, cost))| (share(*weight, 0, 0), Ring::dear(frame, cost)))
        .collect();
    let shares = Lane::new(10_000, &senders).time_shares(SECOND, 11 * SECOND);
    for (share, weight) in shares.iter().zip(weights) {
        near(*share, f64::from(weight) / 175.0, 3.0);
    }
}

#[test]
fn minima_in_bytes_come_first_then_time_by_weight() {
    let minima = [1000, 2500, 0, 0, 0, 0, 0, 0];
    let each = minima.iter().zip(COSTS);
    let senders: Vec<_> =
        each.map(|(min, (frame, cost))| (share(10, *min, 0), Ring::dear(frame, cost))).collect();
    let mut lane = Lane::new(10_000, &senders);
    let rates = lane.rates(SECOND, 5 * SECOND);
    near(rates[0], 1000.0, 2.0);
    near(rates[1], 2500.0, 2.0);
    let shares = lane.time_shares(5 * SECOND, 10 * SECOND);
    let rest = shares[2..].iter().sum::<f64>() / 6.0;
    for share in &shares[2..] {
        near(*share, rest, 3.0);
    }
}

#[test]
fn a_minimum_of_dear_frames_takes_its_cycles_a_byte_and_no_more() {
    // 60 B in 256 pieces: the minimum alone would take 1.5 times the lane's time.
    let mut senders = vec![(share(10, 100, 0), Ring::dear(60, 7000))];
    senders.extend(vec![(plain(), Ring::busy(1514)); 16]);
    let shares = Lane::new(10_000, &senders).time_shares(SECOND, 5 * SECOND);
    // 100 Mbit/s at 32 cycles a byte, of 10^9 cycles a second.
    near(shares[0], 0.4, 3.0);
}

#[test]
fn large_frames_alone_cost_one_look_in_vain_a_burst() {
    let senders = vec![(plain(), Ring::busy(1514)); 16];
    let mut lane = Lane::new(10_000, &senders);
    lane.run(SECOND);
    let bursts: u64 = lane.rings.iter().map(|ring| ring.sent_frames).sum::<u64>() / BURST as u64;
    assert!(lane.idle_ns / SKIP_NS <= bursts + 32, "{} for {bursts}", lane.idle_ns / SKIP_NS);
}

#[test]
fn small_frames_go_in_turn() {
    let mut schedule = Schedule::new();
    (0..3).for_each(|ring| {
        schedule.add(plain(), [ring + 7], 0);
    });
    let rings: Vec<u32> = (0..9)
        .map(|_| {
            let ring = schedule.next(0).unwrap();
            schedule.took(64 * 64, 2500, true);
            ring
        })
        .collect();
    assert_eq!(rings, [7, 7, 8, 8, 9, 9, 7, 7, 8]);
}

#[test]
fn a_debt_without_a_competitor_is_lost() {
    // Ring 7 sends bursts of 20 quanta; ring 8 has frames, or has none.
    let rings = |frames: u64| {
        let mut schedule = Schedule::new();
        schedule.add(plain(), [7], 0);
        schedule.add(plain(), [8], 0);
        let turns = (0..12).filter_map(|_| {
            let ring = schedule.next(0)?;
            match ring {
                7 => schedule.took(64 * 1514, 100_000, true),
                _ => schedule.took(frames * 1514, frames * 5000, frames > 0),
            }
            Some(ring)
        });
        turns.collect::<Vec<_>>()
    };
    assert_eq!(rings(0), [7, 8, 7, 8, 7, 8, 7, 8, 7, 8, 7, 8]);
    assert_eq!(rings(1), [7, 8, 8, 8, 8, 8, 8]);
}

#[test]
fn weights() {
    let weights = [1, 2, 5, 10, 30, 100];
    let frames = [1514, 60, 9000, 508, 60, 1514];
    let senders: Vec<_> = weights
        .iter()
        .zip(frames)
        .map(|(weight, frame)| (share(*weight, 0, 0), Ring::busy(frame)))
        .collect();
    let rates = Lane::new(10_000, &senders).rates(SECOND, 6 * SECOND);
    let total: f64 = rates.iter().sum();
    for (rate, weight) in rates.iter().zip(weights) {
        near(*rate, total * f64::from(weight) / 148.0, 2.0);
    }
}

#[test]
fn maxima() {
    let maxima = [1, 10, 100, 333, 1000, 2500];
    let mut senders: Vec<_> = maxima
        .iter()
        .zip([60, 1514, 1514, 60, 9000, 508])
        .map(|(max, frame)| (share(10, 0, *max), Ring::busy(frame)))
        .collect();
    senders.push((plain(), Ring::busy(1514)));
    for sleeps in [false, true] {
        let mut lane = Lane::new(10_000, &senders);
        lane.sleeps = sleeps;
        let rates = lane.rates(SECOND, 11 * SECOND);
        for (rate, max) in rates.iter().zip(maxima) {
            near(*rate, f64::from(max), 1.0);
        }
        // The one without a limit takes the rest.
        near(rates.iter().sum(), 10_000.0, 1.0);
    }
}

#[test]
fn a_lane_can_sleep_while_all_rest() {
    let senders = [100, 300, 47].map(|max| (share(10, 0, max), Ring::busy(1514)));
    let mut lane = Lane::new(10_000, &senders);
    lane.sleeps = true;
    let rates = lane.rates(SECOND, 5 * SECOND);
    for (rate, max) in rates.iter().zip([100.0, 300.0, 47.0]) {
        near(*rate, max, 1.0);
    }
    // It is awake for what it sends, and for hardly more.
    assert!(lane.idle_ns < 10 * MS, "{} ns in vain", lane.idle_ns);
}

#[test]
fn nobody_rests_without_a_maximum() {
    let mut lane =
        Lane::new(1000, &[(share(10, 50, 0), Ring::busy(60)), (plain(), Ring::busy(60))]);
    lane.run(MS);
    assert_eq!(lane.schedule.wake_ns(), None);
    assert_eq!(Schedule::new().next(0), None);
    assert_eq!(Schedule::new().wake_ns(), None);
}

#[test]
fn minima_hold_under_contention() {
    for frames in [[1514; 8], [60; 8], [1514, 60, 60, 9000, 60, 1514, 508, 60]] {
        let minima = [4000, 2000, 1500, 100, 0, 0, 0, 0];
        let senders: Vec<_> = minima
            .iter()
            .zip(frames)
            .map(|(min, frame)| (share(10, *min, 0), Ring::busy(frame)))
            .collect();
        let mut lane = Lane::new(10_000, &senders);
        let rates = lane.rates(SECOND, 5 * SECOND);
        let total: f64 = rates.iter().sum();
        near(total, 10_000.0, 2.0);
        for (rate, min) in rates.iter().zip(minima).take(3) {
            near(*rate, f64::from(min), 2.0);
        }
        // A minimum below its share changes nothing.
        let rest = (total - 7500.0) / 5.0;
        for rate in &rates[3..] {
            near(*rate, rest, 5.0);
        }
    }
}

#[test]
fn minima_of_many_senders() {
    let senders: Vec<_> = (0..255_u32)
        .map(|n| {
            let min = if n % 51 == 0 { 1200 } else { 0 };
            (share(10, min, 0), Ring::busy(if n % 2 == 0 { 1514 } else { 60 }))
        })
        .collect();
    let rates = Lane::new(10_000, &senders).rates(SECOND, 4 * SECOND);
    for rate in rates.iter().step_by(51) {
        near(*rate, 1200.0, 2.0);
    }
    let others: Vec<f64> =
        rates.iter().enumerate().filter(|(n, _)| n % 51 != 0).map(|(_, rate)| *rate).collect();
    assert!(jain(&others) >= 0.99);
}

#[test]
fn minima_below_the_share_change_nothing() {
    let senders = [300, 900, 0, 50, 0, 1100, 0, 0].map(|min| (share(10, min, 0), Ring::busy(1514)));
    let rates = Lane::new(10_000, &senders).rates(SECOND, 4 * SECOND);
    assert!(jain(&rates) >= 0.999, "{rates:.0?}");
}

#[test]
fn a_minimum_is_not_saved_up_in_silence() {
    // Silent for a second, then as busy as the other: it gets its minimum from then on, no more.
    let mut lane = Lane::new(
        1000,
        &[(share(10, 800, 0), Ring::of_rate(1514, 1)), (plain(), Ring::busy(1514))],
    );
    lane.run(SECOND);
    lane.rings[0] = Ring::busy(1514);
    let start = lane.now;
    lane.run(start + 100 * MS);
    let rate = lane.rings[0].sent_bytes as f64 * 8000.0 / (lane.now - start) as f64;
    near(rate, 800.0, 2.0);
}

#[test]
fn too_large_minima_are_cut_in_proportion_and_nobody_starves() {
    let minima = [8000, 4000, 8000];
    let mut senders: Vec<_> =
        minima.iter().map(|min| (share(10, *min, 0), Ring::busy(1514))).collect();
    senders.push((plain(), Ring { every_ns: 2 * MS, ..Ring::busy(60) }));
    senders.push((plain(), Ring::busy(60)));
    let mut lane = Lane::new(10_000, &senders);
    let rates = lane.rates(SECOND, 5 * SECOND);
    near(rates[0], 4000.0, 5.0);
    near(rates[1], 2000.0, 5.0);
    near(rates[2], 4000.0, 5.0);
    // A burst of each every 50 ms, which is what the minima of a pass take.
    near(rates[3], 0.24, 2.0);
    assert!(rates[4] > 0.5, "{rates:.1?}");
    assert!(lane.rings[3].waited_ns < 100 * MS, "{} ns", lane.rings[3].waited_ns);
}

#[test]
fn a_light_sender_waits_for_one_burst_of_each_other() {
    let mut senders = vec![(plain(), Ring::busy(1514)); 7];
    senders.push((plain(), Ring::of_rate(60, 1)));
    let mut lane = Lane::new(10_000, &senders);
    lane.run(SECOND);
    let burst_ns = 64 * 1514 * 8000 / 10_000;
    let waited = lane.rings[7].waited_ns;
    assert!(waited <= 8 * burst_ns, "{waited} ns, a burst is {burst_ns}");
    assert!(lane.rings[7].waiting(lane.now) <= 64);
}

#[test]
fn rings_of_one_function_share() {
    let mut lane = Lane::new(10_000, &vec![(plain(), Ring::busy(508)); 6]);
    lane.schedule = Schedule::new();
    lane.schedule.add(plain(), [0, 1, 2, 3], 0);
    lane.schedule.add(plain(), [4], 0);
    lane.schedule.add(plain(), [], 0);
    lane.schedule.add(share(10, 0, 1000), [5], 0);
    let rates = lane.rates(100 * MS, SECOND);
    near(rates[..4].iter().sum(), 4500.0, 2.0);
    near(rates[4], 4500.0, 2.0);
    near(rates[5], 1000.0, 1.0);
    assert!(jain(&rates[..4]) >= 0.999, "{rates:.0?}");
    // One busy ring among empty ones is as good as one alone.
    (0..3).for_each(|n| lane.rings[n] = Ring { every_ns: u64::MAX, ..Ring::busy(60) });
    let (from, until) = (lane.now + MS, lane.now + SECOND);
    near(lane.rates(from, until)[3], 4500.0, 2.0);
}

#[test]
fn shares_change_while_it_runs() {
    let mut lane = Lane::new(10_000, &[(plain(), Ring::busy(60)), (plain(), Ring::busy(1514))]);
    near(lane.rates(100 * MS, SECOND)[0], 5000.0, 2.0);
    lane.schedule.set(0, share(30, 0, 0), lane.now);
    near(lane.rates(1100 * MS, 2 * SECOND)[0], 7500.0, 2.0);
    lane.schedule.set(0, share(30, 0, 1000), lane.now);
    near(lane.rates(2100 * MS, 3 * SECOND)[0], 1000.0, 1.0);
    lane.schedule.set(0, share(WEIGHT_DEFAULT, 6000, 0), lane.now);
    near(lane.rates(3100 * MS, 4 * SECOND)[0], 6000.0, 2.0);
}

fn any_sender() -> impl Strategy<Value = (Share, Ring)> {
    let rate = || prop_oneof![2 => Just(0_u32), 1 => 1_u32..3000];
    let frame = prop_oneof![Just(60_u64), Just(1514), 60_u64..9000];
    let ring = (frame, prop::option::of(1_u64..4000));
    (1_u8..=100, rate(), rate(), ring).prop_map(|(weight, min, max, (frame, mbit))| {
        let min = if max > 0 { min.min(max) } else { min };
        let ring = mbit.map_or(Ring::busy(frame), |mbit| Ring::of_rate(frame, mbit));
        (share(weight, min, max), ring)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_mixture_keeps_maxima_conserves_work_and_starves_no_sender(
        senders in prop::collection::vec(any_sender(), 1..12),
    ) {
        let mut lane = Lane::new(10_000, &senders);
        lane.run(100 * MS);
        let now = lane.now;
        for (ring, (share, _)) in lane.rings.iter().zip(&senders) {
            let max = u128::from(share.max_mbit);
            if max > 0 {
                // Tokens that flowed, the size of the bucket, and the excess of the last burst.
                let bucket = TokenBucket::of_bytes(share.max_mbit, 0).size() as u128;
                let excess = BURST as u128 * u128::from(ring.frame);
                let most = max * u128::from(now) / 8000 + bucket + excess;
                prop_assert!(u128::from(ring.sent_bytes) <= most);
            }
            prop_assert!(ring.sent_frames > 0 || ring.waiting(now) < 64, "{ring:?} starves");
        }
        // Someone without a maximum always has more: the lane is never idle for long.
        if lane.rings.iter().zip(&senders).any(|(r, (s, _))| r.every_ns == 0 && s.max_mbit == 0) {
            let sent: u64 = lane.rings.iter().map(|ring| ring.sent_bytes).sum();
            let rate = sent as f64 * 8000.0 / now as f64;
            prop_assert!(rate >= 9_000.0, "{rate:.0} Mbit/s");
        }
    }

    #[test]
    fn nothing_that_a_caller_says_breaks_it(
        shares in prop::collection::vec((0_u8..=255, 0..=u32::MAX, 0..=u32::MAX), 0..5),
        said in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()), 0..200),
    ) {
        let mut schedule = Schedule::new();
        for (n, (weight, min, max)) in shares.into_iter().enumerate() {
            schedule.add(share(weight, min, max), [n as u32], 3);
        }
        for (now, bytes, cycles, more) in said {
            if schedule.next(now).is_some() {
                schedule.took(bytes, cycles, more);
            }
            schedule.wake_ns();
        }
    }
}
