//! Comparisons of simulated builds, with the noise of a shared machine.

mod machine;

use proptest::prelude::*;

use super::*;
use crate::statistics::random::Random;
use machine::measure;

const ALPHA: f64 = 0.01;
/// Pairs for an effect of 5 % at 3 % noise.
const PAIRS: usize = 32;

fn compared(pairs: &[CyclePair]) -> Comparison {
    compare(pairs, ALPHA, || unreachable!("the distribution is exact")).unwrap()
}

/// Number of `trials` with each verdict at a planted ratio: faster, slower, none.
fn verdicts(seed: u64, trials: usize, n: usize, ratio: f64) -> [usize; 3] {
    let mut random = Random::new(seed);
    let mut counts = [0; 3];
    for _ in 0..trials {
        counts[match compared(&measure(&mut random, n, 0.03, ratio)).verdict {
            PairedVerdict::Faster(_) => 0,
            PairedVerdict::Slower(_) => 1,
            PairedVerdict::NoDifferenceFound => 2,
        }] += 1;
    }
    counts
}

fn ranks(n: u64) -> Vec<u64> {
    (1..=n).map(|rank| 2 * rank).collect()
}

#[test]
fn many_pairs_are_compared_by_random_permutations() {
    let mut random = Random::new(5);
    let pairs = measure(&mut random, 400, 0.03, 1.015);
    let monte_carlo = compare(&pairs, ALPHA, || random.bits()).unwrap();
    assert_eq!(monte_carlo.method, Method::MonteCarlo);
    assert!(monte_carlo.p >= 1.0 / (PERMUTATIONS + 1) as f64);
    assert!(matches!(monte_carlo.verdict, PairedVerdict::Slower(_)), "{monte_carlo:?}");
    let exact = compared(&pairs[..330]);
    assert_eq!(exact.method, Method::Exact);
    // The same interval up to the number of pairs.
    let length = |comparison: &Comparison| comparison.estimate.high - comparison.estimate.low;
    assert!((length(&monte_carlo) / length(&exact) - 0.91).abs() < 0.05);
    // p-values of random permutations are near those of the normal approximation.
    let null = Null::new(&ranks(400), &mut || random.bits());
    let mean = 400.0 * 401.0 / 2.0;
    let deviation = (400.0 * 401.0 * 801.0 / 6.0f64).sqrt();
    for (z, p) in [(1.0, 0.3173), (1.96, 0.05), (2.576, 0.01)] {
        assert!((null.p((mean - z * deviation) as u64) / p - 1.0).abs() < 0.25, "{z}");
    }
    let critical = null.critical(ALPHA).unwrap();
    assert!(null.p(critical) <= ALPHA && null.p(critical + 2) > ALPHA);
}

#[test]
fn equal_builds_are_rarely_told_apart() {
    for seed in 1..=10 {
        let [faster, slower, _] = verdicts(seed, 100, PAIRS, 1.0);
        assert!(faster + slower <= 3, "seed {seed}: {faster} faster, {slower} slower");
    }
}

#[test]
fn the_rate_of_false_alarms_is_alpha() {
    const TRIALS: usize = 20_000;
    let mut random = Random::new(20);
    let null = Null::new(&ranks(PAIRS as u64), &mut || 0);
    let mut alarms = 0;
    for trial in 0..TRIALS {
        let pairs = measure(&mut random, PAIRS, 0.03, 1.0);
        // As `compare` does, without the slow interval.
        let ratios = log_ratios(&[&pairs]).unwrap().remove(0);
        let ranked = ratios.iter().zip(doubled_ranks(&ratios));
        let positive = ranked.filter(|(ratio, _)| **ratio > 0.0).map(|(_, rank)| rank).sum();
        let is_alarm = null.p(positive) <= ALPHA;
        alarms += usize::from(is_alarm);
        if trial < 500 {
            assert_eq!(is_alarm, compared(&pairs).verdict != PairedVerdict::NoDifferenceFound);
        }
    }
    let rate = alarms as f64 / TRIALS as f64;
    println!("false alarms: {rate:.4} of {TRIALS} comparisons of {PAIRS} pairs");
    assert!((0.007..=0.012).contains(&rate), "{rate}");
}

#[test]
fn a_planted_effect_is_found_at_the_recommended_number_of_pairs() {
    assert_eq!(pairs_needed(0.03, 0.05, ALPHA), PAIRS);
    for seed in 1..=3 {
        let [_, slower, _] = verdicts(seed, 100, PAIRS, 1.05);
        let [faster, _, _] = verdicts(seed + 50, 100, PAIRS, 1.0 / 1.05);
        println!("seed {seed}: 5 % found in {slower} and {faster} of 100");
        assert!(slower >= 90 && faster >= 90, "{slower}, {faster}");
    }
}

#[test]
fn pairs_needed_gives_the_power_it_promises() {
    for (sigma, effect) in [(0.02, 0.03), (0.03, 0.03), (0.05, 0.10), (0.02, 0.10)] {
        let n = pairs_needed(sigma, effect, ALPHA);
        let mut random = Random::new(9);
        let mut is_found = || {
            let pairs = measure(&mut random, n, sigma, 1.0 + effect);
            matches!(compared(&pairs).verdict, PairedVerdict::Slower(_))
        };
        let found = (0..200).filter(|_| is_found()).count();
        println!("sigma {sigma}, effect {effect}: {found} of 200 with {n} pairs");
        assert!(found >= 174, "sigma {sigma}, effect {effect}: {found} of 200 with {n} pairs");
    }
}

#[test]
fn estimates_are_unbiased_and_intervals_cover_the_truth() {
    const TRIALS: usize = 1500;
    let mut random = Random::new(11);
    let (mut covered, mut sum) = (0, 0.0);
    for _ in 0..TRIALS {
        let estimate = compared(&measure(&mut random, 20, 0.03, 1.04)).estimate;
        covered += usize::from((estimate.low..=estimate.high).contains(&1.04));
        assert!((estimate.low..=estimate.high).contains(&estimate.ratio));
        sum += estimate.ratio;
    }
    let (share, mean) = (covered as f64 / TRIALS as f64, sum / TRIALS as f64);
    println!("99 % interval: covers {share:.4}; mean estimate of 1.04: {mean:.4}");
    assert!((0.984..=0.998).contains(&share), "{share}");
    assert!((mean - 1.04).abs() < 0.001, "{mean}");
}

#[test]
fn the_detectable_effect_is_found_in_nine_of_ten() {
    for (n, sigma) in [(20, 0.03), (32, 0.03), (60, 0.05)] {
        let mut random = Random::new(12);
        let mut stated: Vec<f64> = (0..50)
            .map(|_| compared(&measure(&mut random, n, sigma, 1.0)).detectable.unwrap())
            .collect();
        stated.sort_by(f64::total_cmp);
        let effect = stated[25];
        let mut is_found = || {
            let pairs = measure(&mut random, n, sigma, 1.0 + effect);
            matches!(compared(&pairs).verdict, PairedVerdict::Slower(_))
        };
        let share = (0..300).filter(|_| is_found()).count() as f64 / 300.0;
        println!("{n} pairs, sigma {sigma}: {effect:.4} detectable, found in {share:.3}");
        assert!((0.84..=0.97).contains(&share), "{n} pairs: {share}");
    }
}

#[test]
fn steady_drift_is_balanced_by_the_order() {
    let mut random = Random::new(15);
    let mut alarms = 0;
    for _ in 0..500 {
        // 1 % more cycles from slot to slot: B is the later slot of one pair, A of the next.
        let drift = |(i, pair): (usize, CyclePair)| match i % 2 {
            0 => CyclePair { b: 1.01 * pair.b, ..pair },
            _ => CyclePair { a: 1.01 * pair.a, ..pair },
        };
        let pairs = measure(&mut random, PAIRS, 0.03, 1.0).into_iter().enumerate().map(drift);
        let comparison = compared(&pairs.collect::<Vec<CyclePair>>());
        alarms += usize::from(comparison.verdict != PairedVerdict::NoDifferenceFound);
    }
    assert!(alarms <= 10, "{alarms} of 500");
}

/// Bands of different sizes, levels and noise.
fn banded(random: &mut Random, ratio: f64) -> Vec<Vec<CyclePair>> {
    [(3, 0.02), (14, 0.03), (10, 0.04), (5, 0.06)]
        .map(|(n, sigma)| measure(random, n, sigma, ratio))
        .into()
}

fn compared_bands(bands: &[Vec<CyclePair>]) -> Comparison {
    let strata: Vec<&[CyclePair]> = bands.iter().map(|pairs| &pairs[..]).collect();
    compare_stratified(&strata, ALPHA, || unreachable!("the distribution is exact")).unwrap()
}

#[test]
fn bands_are_compared_together() {
    const TRIALS: usize = 1000;
    let mut random = Random::new(13);
    let (mut alarms, mut covered, mut found) = (0, 0, 0);
    for _ in 0..TRIALS {
        let equal = compared_bands(&banded(&mut random, 1.0));
        alarms += usize::from(equal.verdict != PairedVerdict::NoDifferenceFound);
        covered += usize::from((equal.estimate.low..=equal.estimate.high).contains(&1.0));
        assert_eq!(equal.pairs, 32);
    }
    for _ in 0..200 {
        let slower = compared_bands(&banded(&mut random, 1.06));
        found += usize::from(matches!(slower.verdict, PairedVerdict::Slower(_)));
    }
    println!("strata: {alarms} false alarms, {covered} covered of {TRIALS}; 6 % in {found} of 200");
    assert!(alarms <= 20 && covered >= 980 && found >= 180, "{alarms}, {covered}, {found}");
}

#[test]
fn a_single_stratum_is_the_plain_comparison() {
    let pairs = measure(&mut Random::new(14), 20, 0.03, 1.02);
    let strata: [&[CyclePair]; 3] = [&[], &pairs, &[]];
    let random = || unreachable!("the distribution is exact");
    assert_eq!(compare_stratified(&strata, ALPHA, random).unwrap(), compared(&pairs));
}

#[test]
fn too_few_pairs_find_nothing_and_say_so() {
    for n in 1..8 {
        let pairs = vec![CyclePair { a: 1.0, b: 2.0 }; n];
        let few = compared(&pairs);
        assert_eq!((few.verdict, few.detectable), (PairedVerdict::NoDifferenceFound, None));
        assert_eq!(few.estimate, RatioEstimate { ratio: 2.0, low: 0.0, high: f64::INFINITY });
    }
    let enough: Vec<CyclePair> =
        (0..8).map(|i| CyclePair { a: 1.0, b: 2.0 + f64::from(i) }).collect();
    assert!(matches!(compared(&enough).verdict, PairedVerdict::Slower(_)));
    let same = compared(&[CyclePair { a: 3.0, b: 3.0 }; 30]);
    assert_eq!((same.verdict, same.p), (PairedVerdict::NoDifferenceFound, 1.0));
}

#[test]
fn intervals_are_order_statistics_of_the_walsh_averages() {
    let pair = |log_ratio: &f64| CyclePair { a: 1.0, b: log_ratio.exp() };
    let log_ratios = [0.9, -0.1, 0.3, 0.35, -0.4, 0.08, 0.6, 0.02, 0.17, -0.25];
    for (n, critical) in [(8, 0), (10, 3)] {
        let values = &log_ratios[..n];
        let walsh = values.iter().enumerate();
        let walsh = walsh.flat_map(|(i, a)| values[i..].iter().map(move |b| (a + b) / 2.0));
        let mut walsh: Vec<f64> = walsh.collect();
        walsh.sort_by(f64::total_cmp);
        let pairs: Vec<CyclePair> = values.iter().map(pair).collect();
        let RatioEstimate { ratio, low, high } = compared(&pairs).estimate;
        let middle = super::super::quantile::median(&walsh).unwrap();
        let expected = [middle, walsh[critical], walsh[walsh.len() - 1 - critical]];
        for (value, expected) in [ratio, low, high].into_iter().zip(expected) {
            assert!((value.ln() - expected).abs() < 1e-9, "{n} pairs: {value}");
        }
    }
}

#[test]
fn ties_share_the_mean_of_their_ranks() {
    assert_eq!(doubled_ranks(&[3.0, -1.0, 0.0, 1.0, -1.0]), [10, 6, 2, 6, 6]);
    assert_eq!(doubled_ranks(&[]), [0u64; 0]);
}

#[test]
fn invalid_samples_are_rejected() {
    let error = |pairs: &[CyclePair], alpha| compare(pairs, alpha, || 0).unwrap_err().to_string();
    assert_eq!(error(&[], ALPHA), "no pairs to compare; measure at least 8");
    assert_eq!(error(&[CyclePair { a: 1.0, b: 1.0 }; 2001], ALPHA), "2001 pairs exceed max 2000");
    let text = error(&[CyclePair { a: 1.0, b: 0.0 }], ALPHA);
    assert_eq!(text, "pair with 1 and 0 cycles per frame; both must be finite and above 0");
    assert!(error(&[CyclePair { a: f64::NAN, b: 1.0 }], ALPHA).starts_with("pair with NaN"));
    let text = error(&[CyclePair { a: 1.0, b: 1.0 }], 1.0);
    assert_eq!(text, "alpha 1 is out of range; allowed: above 0 and below 1");
}

/// Whole numbers, so that there are ties and zeros.
fn any_pairs() -> impl Strategy<Value = Vec<CyclePair>> {
    let pair = (1..20u32, 1..20u32).prop_map(|(a, b)| CyclePair { a: a.into(), b: b.into() });
    prop::collection::vec(pair, 1..40)
}

#[test]
fn an_interval_that_begins_at_1_but_for_rounding_is_no_verdict() {
    let pair = |(a, b): (i32, i32)| CyclePair { a: f64::from(a), b: f64::from(b) };
    let strata: [&[(i32, i32)]; 3] = [
        &[(1, 5), (2, 5), (12, 6), (10, 3), (5, 10)],
        &[(4, 6), (3, 1), (1, 4), (10, 7), (1, 4), (5, 4), (4, 2), (1, 2), (10, 7), (9, 5)],
        &[
            &[(1, 2), (3, 2), (10, 6), (5, 6), (10, 10), (4, 5), (4, 4), (10, 1), (2, 3)][..],
            &[(1, 2); 13],
        ]
        .concat(),
    ];
    let result = compared_bands(&strata.map(|pairs| pairs.iter().copied().map(pair).collect()));
    assert_eq!((result.estimate.low, result.verdict), (1.0, PairedVerdict::NoDifferenceFound));
    assert!(result.p <= ALPHA);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Any samples: p in range, the estimate within its interval, a verdict only with an interval
    /// that excludes 1, and the opposite result for exchanged builds.
    #[test]
    fn results_are_consistent(strata in prop::collection::vec(any_pairs(), 1..4)) {
        let result = compared_bands(&strata);
        let RatioEstimate { ratio, low, high } = result.estimate;
        prop_assert!(result.p > 0.0 && result.p <= 1.0);
        prop_assert!(low <= ratio && ratio <= high);
        match result.verdict {
            PairedVerdict::Faster(_) => prop_assert!(high < 1.0 && result.p <= ALPHA),
            PairedVerdict::Slower(_) => prop_assert!(low > 1.0 && result.p <= ALPHA),
            PairedVerdict::NoDifferenceFound => {}
        }
        let exchange = |pair: &CyclePair| CyclePair { a: pair.b, b: pair.a };
        let exchanged: Vec<Vec<CyclePair>> =
            strata.iter().map(|pairs| pairs.iter().map(exchange).collect()).collect();
        let opposite = compared_bands(&exchanged);
        prop_assert!((opposite.estimate.ratio * ratio - 1.0).abs() < 1e-9);
        prop_assert!((opposite.p - result.p).abs() < 1e-9);
    }
}
