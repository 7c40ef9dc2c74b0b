use super::*;

/// A slice of a second in which four guests received so many frames.
fn slice(received: [u64; 4]) -> Slice {
    Slice { seconds: 1.0, received: received.to_vec(), sent: vec![0; 4], ..Slice::default() }
}

#[test]
fn rounds_begin_with_each_kind_in_turn() {
    let phases = rounds();
    assert_eq!(phases.len(), 3 * ROUNDS);
    for (round, phases) in phases.chunks(3).enumerate() {
        for (i, phase) in phases.iter().enumerate() {
            let kind = (round + i) % 3;
            assert_eq!(phase.deaf.is_empty(), kind == 0);
            assert_eq!(phase.mute.is_empty(), kind != 2);
        }
    }
}

#[test]
fn only_the_other_pairs_count_beside_a_stuck_one() {
    let million = 1_000_000;
    let receiving = slice([9, 9, 10 * million, 10 * million]);
    let stuck = slice([9, 9, 11 * million, 11 * million]);
    let silent = slice([9, 9, 20 * million, 20 * million]);
    // Three rounds, each of which begins with another kind.
    let slices = [
        [&receiving, &stuck, &silent],
        [&stuck, &silent, &receiving],
        [&silent, &receiving, &stuck],
    ];
    let slices: Vec<Slice> = slices.into_iter().flatten().cloned().collect();
    let told = super::stuck(&slices);
    assert_eq!(told.rounds, 3);
    assert_eq!(told.receiving_mpps, [20.0; 3]);
    assert_eq!(told.stuck_mpps, [22.0; 3]);
    assert_eq!(told.silent_mpps, [40.0; 3]);
    assert_eq!((told.ratio[1], told.ratio_to_silent[1]), (1.1, 0.55));
    assert!((told.cost_pct + 10.0).abs() < 1e-9);
}

#[test]
fn settings_are_given_to_the_first_guests() {
    let plans = vec![Plan::frames_of(SMALL); 4];
    let minima: Vec<_> = with_minima(&plans, 10_000.0).iter().map(|p| p.min_tx_mbps).collect();
    assert_eq!(minima, [Some(2500), Some(2000), None, None]);
    let maxima: Vec<_> = with_maxima(&plans).iter().map(|p| p.max_tx_mbps).collect();
    assert_eq!(maxima, [Some(100), Some(500), Some(2000), None]);
}

#[test]
fn an_odd_crowd_is_refused() {
    let check = |guests, seconds| FairnessSpec { guests, seconds }.check();
    assert!(check(8, 2.0).is_ok() && check(4, 0.1).is_ok());
    assert!(check(7, 2.0).unwrap_err().contains("--guests 7"));
    assert!(check(66, 2.0).is_err() && check(2, 2.0).is_err());
    assert!(check(8, f64::NAN).unwrap_err().contains("--seconds NaN"));
}
