use super::super::results::{Bottleneck, GeneratorLoad, PathKind, Pattern, Point, RingKind};
use super::super::samples::{limited, one_path, point, three_paths};
use super::super::{TextFormat, table};
use super::{all, answers};

fn said(points: &[Point]) -> String {
    let lines: Vec<String> = all(points).into_iter().map(|(_, sentence)| sentence).collect();
    lines.join("\n")
}

#[test]
fn verdict_of_one_path() {
    insta::assert_snapshot!(said(&one_path()), @"
    North/south on the vf path: 64 B frames go from 6.60 Mpps with 1 guest to 8.40 with 4 (1.27 times); 1518 B frames reach at least 42.4 Gbps with 4 guests; the switch spends 66 to 212 cycles on a frame; the bottleneck is the switch in 7 of 9 points, the guests in 1 and the generator in 1 (a lower bound).
    East/west on the vf path: 64 B frames go from 7.20 Mpps with 2 guests to 8.40 with 4 (1.17 times); 1518 B frames reach 42.4 Gbps with 4 guests; the switch spends 66 to 212 cycles on a frame; the bottleneck is the switch in all 6 points.
    ");
}

/// One slot of each path in north/south, `places` times, the CPUs so far apart.
fn slots(rates: &[(PathKind, f64)], places: u32, round_trip_cycles: f64) -> Vec<Point> {
    let at = |place: u32| {
        rates.iter().map(move |(path, mpps)| {
            // Places differ by more than the paths do.
            let mpps = mpps * (1.0 + 0.3 * f64::from(place % 3));
            let slot = point(Pattern::NorthSouth, *path, 64, 1 + place % 3, mpps);
            Point { round_trip_cycles: Some(round_trip_cycles), ..slot }
        })
    };
    (0..places).flat_map(at).collect()
}

#[test]
fn verdict_of_three_paths() {
    let sentence = said(&three_paths());
    // 1.02 to 2.25 times in nine pairs.
    for part in [
        "North/south: vf carries 1.",
        " times vhost's frames (99 % interval 1.",
        "; 9 pairs); vf carries ",
        " times virtio's frames (99 %",
        "; vhost carries ",
        "; vf reaches 16.2 Mpps (64 B, 4 guests), and the bottleneck is the switch in all 9 points",
    ] {
        assert!(sentence.contains(part), "{part:?}: {sentence}");
    }
}

#[test]
fn a_planted_difference_is_found_and_none_where_there_is_none() {
    let (vf, vhost) = (PathKind::Vf, PathKind::Vhost);
    let sentence = said(&slots(&[(vf, 4.0), (vhost, 4.4)], 12, 200.0));
    assert!(sentence.contains("vhost carries 1.10 times vf's frames (99 %"), "{sentence}");
    // Alternating gains and losses of the same size.
    let mut even = slots(&[(vf, 4.0), (vhost, 4.1)], 6, 200.0);
    even.extend(slots(&[(vf, 4.1), (vhost, 4.0)], 6, 200.0));
    let sentence = said(&even);
    let start = "no difference found between vf and vhost (12 pairs; one of ";
    assert!(sentence.contains(start), "{sentence}");
}

#[test]
fn pairs_whose_cpus_moved_are_counted_and_not_compared() {
    let rates = [(PathKind::Vf, 4.0), (PathKind::Vhost, 8.0)];
    let mut points = slots(&rates, 8, 200.0);
    points.extend(slots(&rates, 2, 200.0));
    let last = points.len() - 1;
    points[last].round_trip_cycles = Some(900.0);
    let sentence = said(&points);
    assert!(sentence.contains("9 pairs, 1 more whose CPUs moved)"), "{sentence}");
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
    insta::assert_snapshot!(said(&[vf(64, 2, 5.0)]), @"East/west on the vf path: 64 B frames reach 5.00 Mpps with 2 guests; the switch spends 66 cycles on a frame; the bottleneck is the switch.");
    insta::assert_snapshot!(said(&[limited(vf(64, 2, 5.0), Bottleneck::Generator)]), @"East/west on the vf path: 64 B frames reach at least 5.00 Mpps with 2 guests; the switch spends 66 cycles on a frame; the generator was the limit everywhere, so the switch was not measured out.");
    let mut silent = vf(64, 2, 0.0);
    silent.switch_cycles_per_frame = None;
    insta::assert_snapshot!(said(&[silent, vf(64, 4, 5.0)]), @"East/west on the vf path: 64 B frames go from 0 Mpps with 2 guests to 5.00 with 4; the switch spends 66 cycles on a frame; the bottleneck is the switch in both points.");
}

/// Pairs limited by the generator say nothing about the paths.
#[test]
fn verdict_with_lower_bounds() {
    let mut points = slots(&[(PathKind::Vf, 9.0), (PathKind::Vhost, 4.0)], 9, 200.0);
    points[0] = limited(points[0].clone(), Bottleneck::Generator);
    let sentence = said(&points);
    let part = "vf carries 2.25 times vhost's frames (99 % interval 2.25 to 2.25; 8 pairs, 1 more \
                limited by the generator)";
    assert!(sentence.contains(part), "{sentence}");
    let sentence = said(&points[..4]);
    let part =
        "vf and vhost cannot be compared (1 pair, 1 more limited by the generator; at least 8";
    assert!(sentence.contains(part), "{sentence}");
}

#[test]
fn verdict_of_paths_that_never_met() {
    let vf = point(Pattern::NorthSouth, PathKind::Vf, 64, 1, 9.0);
    let vhost = point(Pattern::NorthSouth, PathKind::Vhost, 64, 2, 4.0);
    insta::assert_snapshot!(said(&[vf, vhost]), @"North/south: vf and vhost cannot be compared (0 pairs; at least 8 are needed); vf reaches 9.00 Mpps (64 B, 1 guest), and the bottleneck is the switch; vhost reaches 4.00 Mpps (64 B, 2 guests), and the bottleneck is the switch.");
}

#[test]
fn of_repeated_points_the_median_counts() {
    let vf = |mpps| point(Pattern::NorthSouth, PathKind::Vf, 64, 1, mpps);
    let sentence = said(&[vf(9.0), vf(1.0), vf(5.0)]);
    assert!(sentence.contains("5.00 Mpps") && !sentence.contains("points"), "{sentence}");
    let rows = table::all(&[vf(9.0), vf(1.0), vf(5.0)], TextFormat::LINES);
    assert!(rows.contains("5.00") && !rows.contains("9.00") && !rows.contains("1.00"), "{rows}");
}

#[test]
fn rings_and_loads_are_not_mixed() {
    let slot = |path, ring, load, mpps| Point {
        ring,
        load,
        ..point(Pattern::EastWest, path, 64, 2, mpps)
    };
    let (split, packed) = (RingKind::Split, RingKind::Packed);
    let mut points = Vec::new();
    for _ in 0..8 {
        points.push(slot(PathKind::Vf, split, GeneratorLoad::Closed, 10.0));
        points.push(slot(PathKind::Vhost, split, GeneratorLoad::Closed, 5.0));
        points.push(slot(PathKind::Vf, packed, GeneratorLoad::Closed, 5.0));
        points.push(slot(PathKind::Vhost, packed, GeneratorLoad::Closed, 10.0));
        points.push(slot(PathKind::Vf, split, GeneratorLoad::Overload, 20.0));
    }
    let said: Vec<(String, String)> =
        all(&points).into_iter().map(|(kind, text)| (kind.id(), text)).collect();
    let ids: Vec<&str> = said.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["east-west", "east-west-packed", "east-west-overload"]);
    assert!(said[0].1.starts_with("East/west: vf carries 2.00 times"), "{}", said[0].1);
    let packed = "East/west, packed rings: vhost carries 2.00 times";
    assert!(said[1].1.starts_with(packed), "{}", said[1].1);
    assert!(said[2].1.starts_with("East/west, overload on the vf path: 64 B"), "{}", said[2].1);
}

#[test]
fn an_answer_tells_why_there_is_none() {
    let (vf, vhost) = (PathKind::Vf, PathKind::Vhost);
    let answer = |points: &[Point]| answers(points).remove(0).1;
    let few = slots(&[(vf, 4.0), (vhost, 4.4)], 3, 200.0);
    let text = answer(&few);
    let told = "vf or vhost; vhost carried 1.10 times vf's frames in 3 pairs: too few for a test";
    assert!(text.starts_with(told), "{text}");
    let bound: Vec<Point> =
        few.into_iter().map(|point| limited(point, Bottleneck::Generator)).collect();
    let text = answer(&bound);
    assert!(text.starts_with("vf or vhost; the generator was the limit"), "{text}");
    let better = slots(&[(vf, 4.0), (vhost, 8.0)], 12, 200.0);
    let said = "vhost; vhost carries 2.00 times vf's frames; cycles of the switch for a frame \
                (64 B, 3 guests): 66 on vf and 66 on vhost";
    assert_eq!(answer(&better), said);
    let hardly = answer(&slots(&[(vf, 4.0), (vhost, 4.1)], 12, 200.0));
    let said = "vf or vhost; vhost carries 1.03 times vf's frames, too little to choose by; cycles";
    assert!(hardly.starts_with(said), "{hardly}");
    let mut uneven = slots(&[(vf, 4.0), (vhost, 8.0)], 12, 200.0);
    for point in uneven.iter_mut().filter(|point| point.vms == 2 && point.path == vhost) {
        point.mpps /= 2.5;
    }
    let (said, part) = (
        answer(&uneven),
        "no difference was found over all sizes (vf over vhost from 0.50 at 64 B, 1 guest \
         to 1.25 at 64 B, 2 guests)",
    );
    assert!(said.contains(part), "{said}");
}

#[test]
fn more_pairs_than_the_test_takes_are_thinned() {
    let many = slots(&[(PathKind::Vf, 4.0), (PathKind::Vhost, 4.4)], 2400, 200.0);
    let sentence = said(&many);
    assert!(sentence.contains("vhost carries 1.10 times vf's frames (99 %"), "{sentence}");
    assert!(sentence.contains("2400 pairs"), "{sentence}");
}
