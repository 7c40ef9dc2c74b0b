//! Page of an experiment: the answer, published results, and the CPU distance.

use super::super::receive::{PublishedThroughput, ReceivePath};
use super::super::results::{PathKind, Pattern, Point, Receive, Results};
use super::super::samples::{point, results};
use super::super::{csv, html, json};
use super::{check_html, parse_csv};
use crate::experiment::Experiment;

#[test]
fn a_page_of_an_experiment_begins_with_the_answer_and_stands_beside_the_paper() {
    let slots = |path, mpps: f64| {
        let slot =
            move |n: u32| point(Pattern::NorthSouth, path, 64, 1 + n % 2, mpps + f64::from(n));
        (0..24).map(slot)
    };
    let points: Vec<Point> =
        slots(PathKind::Vf, 90.0).chain(slots(PathKind::Vhost, 30.0)).collect();
    let side = ReceivePath {
        mpps: [1.0, 2.0, 3.0],
        gbps: [1.0, 2.0, 3.0],
        switch_cycles_per_frame: [50.0, 60.0, 70.0],
        lost_share: 0.25,
    };
    let receive = Receive {
        frame_bytes: 64,
        guests: 4,
        vmq: side,
        synthetic: side,
        cycles_ratio: [1.5, 1.6, 1.7],
        throughput_ratio: [1.0, 1.1, 1.2],
        generator_limit_mpps: 20.0,
        generator_bound: false,
        rounds: 3,
        published: Some(PublishedThroughput { without_gbps: 5.4, with_gbps: 9.3 }),
        pinned: vec![0, 1],
    };
    let file = Experiment::shipped("nfv").unwrap();
    let experiment = Some(Experiment::parse(file, &[]).unwrap());
    let run = Results { experiment, receives: vec![receive], ..results(points) };
    let page = html::page(&run);
    check_html(&page).unwrap();
    for words in [
        "Which interface for my traffic?",
        "vf; vf carries ",
        "Compared with nfv-2017",
        "Reasons for differences",
        "By CPU distance",
        "a frame costs the lane 1.60 times the cycles",
        "5.4 and 9.3 Gbit/s, 1.72 times",
    ] {
        assert!(page.contains(words), "{words}");
    }
    let answer = page.find("Which interface").unwrap();
    assert!(answer < page.find("Verdict").unwrap(), "the answer comes first");
    assert_eq!(json::read(&json::results(&run).unwrap()).unwrap(), run);
    let rows = parse_csv(&csv::receives(&run.receives));
    assert_eq!(rows[0][..5], ["frame_bytes", "guests", "rounds", "path", "lost_share"]);
    assert_eq!(rows[1][..7], ["64", "4", "3", "vmq", "0.25", "1", "2"]);
    assert_eq!((rows.len(), rows[2][3].as_str()), (3, "synthetic"));
    let other = Results { experiment: None, ..run };
    assert!(!html::page(&other).contains("Beside"), "nfv-2017 is beside its own experiment only");
}
