//! Searches on simulated devices.

mod device;

use proptest::prelude::*;

use super::*;
use crate::statistics::random::Random;
use device::{Device, unit};

const LIMITS: SearchLimits = SearchLimits {
    min_load_fps: 1e4,
    max_load_fps: 14.88e6,
    trials_max: 2000,
    seconds_max: 2000.0,
};

fn search(goals: &[Goal], limits: SearchLimits) -> ThroughputSearch {
    ThroughputSearch::new(goals.to_vec(), limits).unwrap()
}

/// NDR and PDR of one trial of 1 s per load: enough if trials repeat exactly.
fn single() -> [Goal; 2] {
    [Goal::ndr(), Goal::pdr(0.005)].map(|goal| Goal { duration_sum_s: 1.0, ..goal })
}

fn check_limits(result: &SearchResult, limits: &SearchLimits) {
    assert!(result.trials.len() <= limits.trials_max);
    assert!(result.seconds <= limits.seconds_max);
    let loads = limits.min_load_fps..=limits.max_load_fps;
    assert!(result.trials.iter().all(|trial| loads.contains(&trial.load_fps)));
    for goal in &result.goals {
        let both = goal.lower_fps.zip(goal.upper_fps);
        assert!(both.is_none_or(|(lower, upper)| lower < upper));
        let is_narrow = both.is_some_and(|(lower, upper)| upper - lower <= goal.goal.width * upper);
        assert!(is_narrow || !goal.is_regular(), "{goal:?}");
        if let Some((lower, throughput)) = goal.lower_fps.zip(goal.conditional_throughput_fps) {
            let least = lower * (1.0 - goal.goal.loss_ratio_max() - 1e-9);
            assert!((least..=lower).contains(&throughput), "{goal:?}");
        }
    }
}

#[test]
fn a_steady_device_is_found_within_the_width() {
    for (i, queue) in [0.0, 256.0, 4096.0].into_iter().cycle().take(60).enumerate() {
        let capacity = 3e4 * 1.1f64.powi(i as i32);
        let mut device = Device::steady(capacity, queue);
        let result = search(&single(), LIMITS).run(&mut device).unwrap();
        check_limits(&result, &LIMITS);
        for goal in &result.goals {
            // Without loss, a trial of 1 s passes the service rate and one queue.
            let truth = (capacity + queue) / (1.0 - goal.goal.loss_ratio_max());
            let [lower, upper] = [goal.lower_fps, goal.upper_fps].map(Option::unwrap);
            assert!(goal.is_regular());
            assert!(lower <= truth * 1.0001 && truth <= upper * 1.0001, "{truth} {goal:?}");
        }
        assert!(result.trials.len() < 60, "{} trials", result.trials.len());
    }
}

/// Searches 200 noisy devices and sweeps them, with 0.2 steals per trial of `final_trial_s` on
/// average; at least `agree_min` results must be within the width.
fn check_noisy(final_trial_s: f64, agree_min: u64) {
    const SEEDS: u64 = 200;
    let goals = [Goal::ndr(), Goal::pdr(0.005)].map(|goal| Goal {
        final_trial_s,
        duration_sum_s: 21.0 * final_trial_s,
        ..goal
    });
    let (mut agree, mut trials, mut seconds, mut worst) = ([0; 2], 0, 0.0, 0f64);
    for seed in 0..SEEDS {
        let mut device = Device { steals_per_s: 0.2 / final_trial_s, ..Device::noisy(seed) };
        let result = search(&goals, LIMITS).run(&mut device).unwrap();
        check_limits(&result, &LIMITS);
        trials += result.trials.len() as u64;
        seconds += result.seconds;
        for (i, goal) in result.goals.iter().enumerate() {
            assert!(goal.is_regular(), "seed {seed}: {goal:?}");
            let width = goal.goal.width;
            let swept = device.sweep(&goal.goal, (0.965, 1.035), width / 4.0, 21);
            let [lower, upper] = [goal.lower_fps, goal.upper_fps].map(Option::unwrap);
            let off = ((lower / swept).ln()).max((swept / upper).ln());
            worst = worst.max(off);
            agree[i] += u64::from(off <= width);
        }
    }
    let each = (trials / SEEDS, seconds / SEEDS as f64);
    println!(
        "trials of {final_trial_s} s: {agree:?} of {SEEDS} (NDR, PDR) within the width, worst \
         {worst:.4}; {each:?} trials and seconds each"
    );
    assert!(agree.iter().all(|n| *n >= agree_min), "{agree:?} of {SEEDS}");
}

#[test]
fn a_noisy_device_is_found_where_a_sweep_finds_it() {
    check_noisy(1.0, 199);
}

#[test]
fn short_trials_find_a_device_that_is_often_stalled() {
    check_noisy(0.25, 194);
}

#[test]
fn a_second_knee_separates_ndr_from_pdr() {
    for seed in 0..20 {
        let mut device = Device::noisy(seed);
        // Above 60 % of its capacity the device loses 0.2 % of all frames.
        let knee = 0.6 * device.capacity_fps;
        device.knee = Some((knee, 0.002));
        let goals = [Goal::ndr(), Goal::pdr(0.005)];
        let result = search(&goals, LIMITS).run(&mut device).unwrap();
        let [ndr, pdr] = [0, 1].map(|i| result.goals[i]);
        assert!(ndr.is_regular() && pdr.is_regular());
        assert!(ndr.lower_fps.unwrap() <= knee && knee < ndr.upper_fps.unwrap(), "{ndr:?}");
        assert!(pdr.lower_fps.unwrap() > 0.97 * device.capacity_fps, "{pdr:?}");
        let throughput = pdr.conditional_throughput_fps.unwrap();
        assert!(throughput <= pdr.lower_fps.unwrap() * 0.9981, "{pdr:?}");
    }
}

#[test]
fn capacities_outside_the_loads_give_irregular_results() {
    let below = search(&single(), LIMITS).run(&mut Device::steady(5e3, 0.0)).unwrap();
    for goal in &below.goals {
        assert!(goal.stop == StopReason::MinLoad && !goal.is_regular());
        let bounds = (goal.lower_fps, goal.upper_fps, goal.conditional_throughput_fps);
        assert_eq!(bounds, (None, Some(LIMITS.min_load_fps), None));
    }
    let above = search(&single(), LIMITS).run(&mut Device::steady(20e6, 0.0)).unwrap();
    for goal in &above.goals {
        assert!(goal.stop == StopReason::MaxLoad && !goal.is_regular());
        let max = Some(LIMITS.max_load_fps);
        let bounds = (goal.lower_fps, goal.upper_fps, goal.conditional_throughput_fps);
        assert_eq!(bounds, (max, None, max));
    }
}

#[test]
fn a_slow_generator_is_a_limit_and_no_result() {
    for (generator_fps, is_limit) in [(2e6, true), (4.9e6, true), (5.5e6, false)] {
        let mut device = Device { generator_fps, ..Device::steady(5e6, 0.0) };
        let result = search(&single(), LIMITS).run(&mut device).unwrap();
        check_limits(&result, &LIMITS);
        for goal in &result.goals {
            assert_eq!(goal.is_regular(), !is_limit, "{goal:?}");
            let lower = goal.lower_fps.unwrap();
            if is_limit {
                assert_eq!(goal.stop, StopReason::GeneratorLimit);
                assert!(lower <= generator_fps && lower > 0.99 * generator_fps, "{goal:?}");
            }
        }
        assert!(result.trials.iter().all(|t| t.regular == (t.load_fps <= generator_fps)));
    }
    let mut device = Device { generator_fps: 5e3, ..Device::steady(5e6, 0.0) };
    let result = search(&single(), LIMITS).run(&mut device).unwrap();
    for goal in result.goals {
        assert_eq!(
            (goal.stop, goal.lower_fps, goal.upper_fps),
            (StopReason::GeneratorLimit, None, None)
        );
    }
}

#[test]
fn trials_with_a_stalled_generator_do_not_count() {
    let mut regular = 0;
    for seed in 0..50 {
        let device = Device { random: Random::new(seed), ..Device::steady(5e6, 0.0) };
        let mut device = Device { generator_fails: 0.05, ..device };
        let result = search(&single(), LIMITS).run(&mut device).unwrap();
        for goal in result.goals.iter().filter(|goal| goal.is_regular()) {
            regular += 1;
            let truth = 5e6 / (1.0 - goal.goal.loss_ratio_max());
            assert!(goal.lower_fps.unwrap() <= truth * 1.0001, "{goal:?}");
            assert!(goal.upper_fps.unwrap() >= truth * 0.9999, "{goal:?}");
        }
    }
    assert!(regular >= 98, "{regular} of 100");
}

#[test]
fn limits_end_a_search_with_what_it_has() {
    for (limits, stop) in [
        (SearchLimits { trials_max: 5, ..LIMITS }, StopReason::TrialLimit),
        (SearchLimits { seconds_max: 3.0, ..LIMITS }, StopReason::TimeLimit),
    ] {
        let result = search(&single(), limits).run(&mut Device::steady(3e6, 64.0)).unwrap();
        check_limits(&result, &limits);
        assert!(result.goals.iter().all(|goal| goal.stop == stop && !goal.is_regular()));
    }
}

#[test]
fn an_error_of_a_trial_ends_the_search() {
    let mut left = 3;
    let mut device = |load: f64, seconds: f64| {
        left -= 1;
        let frames = (load * seconds) as u64;
        let outcome = TrialOutcome { offered: frames, delivered: 0, seconds, generator_ok: true };
        if left == 0 { Err("no device") } else { Ok(outcome) }
    };
    assert_eq!(search(&single(), LIMITS).run(&mut device), Err("no device"));
}

/// A goal with any valid setting.
fn any_goal() -> impl Strategy<Value = Goal> {
    let durations = (0.001..1.0f64, 1.0..8.0f64, 1.0..30.0f64);
    (0.0..0.5f64, 0.0..0.4f64, 0.0..0.99f64, durations, 1e-4..0.5f64).prop_map(
        |(loss_ratio, loss_tolerance, exceed_ratio, (initial, longer, sum), width)| Goal {
            loss_ratio,
            loss_tolerance,
            exceed_ratio,
            initial_trial_s: initial,
            final_trial_s: initial * longer,
            duration_sum_s: initial * longer * sum,
            width,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Arbitrary loss function of the load, different from trial to trial.
    #[test]
    fn any_search_ends_within_its_limits(
        goals in prop::collection::vec(any_goal(), 1..4),
        shape in prop::collection::vec(0.0..1.0f64, 8),
        noise in 0.0..1.0f64,
        fails in 0.0..1.0f64,
        seed: u64,
        trials_max in 1..300usize,
    ) {
        let limits = SearchLimits { trials_max, seconds_max: 200.0, ..LIMITS };
        let mut random = Random::new(seed);
        let mut device = |load: f64, seconds: f64| {
            let bin = (load / limits.max_load_fps * 7.999) as usize;
            let loss = shape[bin] * (1.0 - noise) + noise * unit(&mut random);
            let offered = (load * seconds) as u64;
            let delivered = (offered as f64 * (1.0 - loss)) as u64;
            let generator_ok = unit(&mut random) >= fails * 0.5;
            Ok::<_, ()>(TrialOutcome { offered, delivered, seconds, generator_ok })
        };
        let result = search(&goals, limits).run(&mut device).unwrap();
        check_limits(&result, &limits);
        let is_limit = |stop| matches!(stop, StopReason::TrialLimit | StopReason::TimeLimit);
        let is_limited = result.goals.iter().any(|goal| is_limit(goal.stop));
        // A final trial of these goals takes up to 8 s.
        let is_at_limit = result.trials.len() == trials_max || result.seconds > 192.0;
        prop_assert!(is_at_limit || !is_limited);
    }

    /// Loss that grows with load without noise: the bounds contain the largest load that passes.
    #[test]
    fn bounds_of_a_monotone_device_contain_the_truth(
        goals in prop::collection::vec(any_goal(), 1..4),
        capacity in 1e3..20e6f64,
        generator in 1e5..20e6f64,
        power in 0.2..5.0f64,
    ) {
        let limits = SearchLimits { trials_max: 100_000, seconds_max: 1e9, ..LIMITS };
        let loss = |load: f64| if load <= capacity { 0.0 } else {
            1.0 - (capacity / load).powf(power)
        };
        let mut device = |load: f64, seconds: f64| {
            let offered_fps = load.min(generator);
            let offered = (offered_fps * 1e6) as u64;
            let delivered = (offered as f64 * (1.0 - loss(offered_fps))) as u64;
            let generator_ok = generator >= load;
            Ok::<_, ()>(TrialOutcome { offered, delivered, seconds, generator_ok })
        };
        let result = search(&goals, limits).run(&mut device).unwrap();
        for goal in &result.goals {
            let low_loss = |load: f64| loss(load) <= goal.goal.loss_ratio_max() + 1e-6;
            prop_assert!(goal.lower_fps.is_none_or(low_loss));
            prop_assert!(goal.upper_fps.is_none_or(|load| !low_loss(load * 1.00001)));
            let reach = generator.min(limits.max_load_fps);
            match goal.stop {
                StopReason::Width => {}
                StopReason::MaxLoad => prop_assert!(low_loss(limits.max_load_fps)),
                StopReason::MinLoad => prop_assert!(!low_loss(limits.min_load_fps * 1.00001)),
                StopReason::GeneratorLimit => {
                    prop_assert!(goal.upper_fps.is_none() && generator < limits.max_load_fps);
                    prop_assert!(goal.lower_fps.unwrap() >= reach * (1.0 - goal.goal.width));
                }
                stop => prop_assert!(false, "{stop:?} without limits"),
            }
        }
    }
}
