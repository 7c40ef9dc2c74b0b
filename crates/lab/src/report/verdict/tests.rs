use super::super::model::{Bottleneck, PathKind, Pattern, Point};
use super::super::samples::{limited, one_path, point, three_paths};
use super::super::table;
use super::{all, sentence};

fn said(points: &[Point]) -> String {
    let lines: Vec<String> = all(points).into_iter().map(|(_, sentence)| sentence).collect();
    lines.join("\n")
}

#[test]
fn verdict_of_one_path() {
    insta::assert_snapshot!(said(&one_path()), @r#"
    North/south on the vf path: 64 B frames go from 6.60 Mpps with 1 guest to 8.40 with 4 (1.27 times); 1518 B frames reach at least 42.4 Gbps with 4 guests; the switch spends 66 to 212 cycles on a frame; it is limited by the switch in 7 of 9 points, by the guests in 1 and by the generator in 1 (a lower bound).
    East/west on the vf path: 64 B frames go from 7.20 Mpps with 2 guests to 8.40 with 4 (1.17 times); 1518 B frames reach 42.4 Gbps with 4 guests; the switch spends 66 to 212 cycles on a frame; it is limited by the switch in all 6 points.
    "#);
}

#[test]
fn verdict_of_three_paths() {
    insta::assert_snapshot!(said(&three_paths()), @"North/south: vf carries more frames in 6 of 9 comparisons (at 64 and 256 B; 1.33 to 2.25 times the next path's); 3 comparisons are even (within 5 %); vf reaches 16.2 Mpps (64 B, 4 guests), limited by the switch in all 9 points; vhost reaches 8.10 Mpps (256 B, 4 guests), limited by the switch in all 9 points; virtio reaches 0.40 Mpps (1518 B, 4 guests), limited by the switch in all 9 points.");
}

#[test]
fn verdict_names_a_peak_between() {
    let vf = |vms, mpps| point(Pattern::NorthSouth, PathKind::Vf, 64, vms, mpps);
    let sentence = said(&[vf(1, 5.0), vf(2, 9.0), vf(4, 8.0)]);
    assert!(
        sentence.contains("to 8.00 with 4 (1.60 times), with a peak of 9.00 at 2;"),
        "{sentence}"
    );
    assert!(!said(&[vf(1, 5.0), vf(2, 8.2), vf(4, 8.0)]).contains("peak"));
}

#[test]
fn verdict_of_few_points() {
    let vf = |frame, vms, mpps| point(Pattern::EastWest, PathKind::Vf, frame, vms, mpps);
    insta::assert_snapshot!(sentence(&[], Pattern::EastWest), @"East/west was not measured.");
    insta::assert_snapshot!(said(&[vf(64, 2, 5.0)]), @"East/west on the vf path: 64 B frames reach 5.00 Mpps with 2 guests; the switch spends 66 cycles on a frame; it is limited by the switch.");
    insta::assert_snapshot!(said(&[limited(vf(64, 2, 5.0), Bottleneck::Generator)]), @"East/west on the vf path: 64 B frames reach at least 5.00 Mpps with 2 guests; the switch spends 66 cycles on a frame; the generator was the limit everywhere, so the switch was not measured out.");
    let mut silent = vf(64, 2, 0.0);
    silent.switch_cycles_per_frame = None;
    insta::assert_snapshot!(said(&[silent, vf(64, 4, 5.0)]), @"East/west on the vf path: 64 B frames go from 0 Mpps with 2 guests to 5.00 with 4; the switch spends 66 cycles on a frame; it is limited by the switch in both points.");
}

/// A lower bound may win, but a path must not be called slower because its generator was.
#[test]
fn verdict_with_lower_bounds() {
    let vf = |mpps| point(Pattern::NorthSouth, PathKind::Vf, 64, 1, mpps);
    let vhost = |mpps| point(Pattern::NorthSouth, PathKind::Vhost, 64, 1, mpps);
    let bound = |point| limited(point, Bottleneck::Generator);
    insta::assert_snapshot!(said(&[bound(vf(9.0)), vhost(4.0)]), @"North/south: vf carries more frames in the one comparison (2.25 times the next path's or more); vf reaches at least 9.00 Mpps (64 B, 1 guest), limited by the generator (a lower bound); vhost reaches 4.00 Mpps (64 B, 1 guest), limited by the switch.");
    insta::assert_snapshot!(said(&[vf(9.0), bound(vhost(4.0))]), @"North/south: 1 comparison is open because the generator was the limit; vf reaches 9.00 Mpps (64 B, 1 guest), limited by the switch; vhost reaches at least 4.00 Mpps (64 B, 1 guest), limited by the generator (a lower bound).");
    insta::assert_snapshot!(said(&[bound(vf(4.1)), vhost(4.0)]), @"North/south: 1 comparison is open because the generator was the limit; vf reaches at least 4.10 Mpps (64 B, 1 guest), limited by the generator (a lower bound); vhost reaches 4.00 Mpps (64 B, 1 guest), limited by the switch.");
    insta::assert_snapshot!(said(&[vf(4.1), vhost(4.0)]), @"North/south: 1 comparison is even (within 5 %); vf reaches 4.10 Mpps (64 B, 1 guest), limited by the switch; vhost reaches 4.00 Mpps (64 B, 1 guest), limited by the switch.");
}

#[test]
fn verdict_of_paths_that_never_met() {
    let vf = point(Pattern::NorthSouth, PathKind::Vf, 64, 1, 9.0);
    let vhost = point(Pattern::NorthSouth, PathKind::Vhost, 64, 2, 4.0);
    insta::assert_snapshot!(said(&[vf, vhost]), @"North/south: the paths were not measured at the same frame size and number of guests, so none can be called faster; vf reaches 9.00 Mpps (64 B, 1 guest), limited by the switch; vhost reaches 4.00 Mpps (64 B, 2 guests), limited by the switch.");
}

#[test]
fn of_repeated_points_the_median_counts() {
    let vf = |mpps| point(Pattern::NorthSouth, PathKind::Vf, 64, 1, mpps);
    let sentence = said(&[vf(9.0), vf(1.0), vf(5.0)]);
    assert!(sentence.contains("5.00 Mpps") && !sentence.contains("points"), "{sentence}");
    let rows = table::all(&[vf(9.0), vf(1.0), vf(5.0)]);
    assert!(["9.00", "1.00", "5.00"].iter().all(|mpps| rows.contains(mpps)), "{rows}");
}
