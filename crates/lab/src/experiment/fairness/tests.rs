use super::*;

/// A slice of a second in which four guests received these frames.
fn slice(received: [u64; 4]) -> Slice {
    Slice { seconds: 1.0, received: received.to_vec(), sent: vec![0; 4], ..Slice::default() }
}

#[test]
fn only_the_other_pairs_count_beside_a_stuck_one() {
    let million = 1_000_000;
    let receiving = slice([9, 9, 10 * million, 10 * million]);
    let stuck = slice([9, 9, 11 * million, 11 * million]);
    let silent = slice([9, 9, 20 * million, 20 * million]);
    let kinds = [receiving, stuck, silent];
    let phases = with_a_deaf_one().phases();
    let kind = |phase: &Phase| with_a_deaf_one().round.iter().position(|kind| kind == phase);
    let seen =
        phases.into_iter().map(|phase| (phase.clone(), kinds[kind(&phase).unwrap()].clone()));
    let told = super::stuck(&seen.collect::<Vec<_>>());
    assert_eq!(told.rounds, ROUNDS);
    assert_eq!(told.receiving_mpps, [20.0; 3]);
    assert_eq!(told.stuck_mpps, [22.0; 3]);
    assert_eq!(told.silent_mpps, [40.0; 3]);
    assert_eq!((told.ratio[1], told.ratio_to_silent[1]), (1.1, 0.55));
    assert!((told.cost_pct + 10.0).abs() < 1e-9);
}

#[test]
fn settings_are_given_to_the_first_guests() {
    let plans = vec![ContenderPlan::frames_of(SMALL); 4];
    let minima: Vec<_> = with_minima(&plans, 10_000.0).iter().map(|p| p.min_tx_mbps).collect();
    assert_eq!(minima, [Some(2500), Some(2000), None, None]);
    let maxima: Vec<_> = with_maxima(&plans).iter().map(|p| p.max_tx_mbps).collect();
    assert_eq!(maxima, [Some(500), Some(1000), Some(2000), None]);
}

#[test]
fn an_odd_crowd_is_refused() {
    let check = |guests, seconds| FairnessSpec { guests, seconds }.check();
    assert!(check(8, 2.0).is_ok() && check(4, 0.1).is_ok());
    assert!(check(7, 2.0).unwrap_err().to_string().contains("--guests: 7 is not allowed"));
    assert!(check(66, 2.0).is_err() && check(2, 2.0).is_err());
    assert!(check(8, f64::NAN).unwrap_err().to_string().contains("--seconds: is out of range"));
}
