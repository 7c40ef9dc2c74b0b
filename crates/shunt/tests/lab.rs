//! The lab's experiments from the command line, each as small as it goes: daemon and guests are
//! real processes on real sockets. Nothing is said of how fast they are, which is not for a test.

use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs `shunt lab` with these arguments; says its exit code and the JSON object it printed.
fn lab(args: &[&str]) -> (Option<i32>, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_shunt"))
        .arg("lab")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("shunt was built for this test");
    let said = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("shunt lab {}: {error}\n{said}", args.join(" ")));
    (output.status.code(), json)
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {value:#}"))
}

/// Checks that a point has all that was promised of it.
fn check_point(pattern: &str, vms: &str) {
    let args = ["run", "--pattern", pattern, "--path", "vf", "--vms", vms, "--frame", "256"];
    let (code, point) = lab(&[&args[..], &["--seconds", "0.2", "--json"]].concat());
    assert_eq!(code, Some(0), "{point:#}");
    for field in [
        "pattern",
        "path",
        "vms",
        "frame_bytes",
        "seconds",
        "mpps",
        "gbps",
        "rx_mpps",
        "lost_frames",
        "switch_cycles_per_frame",
        "generator_limit_mpps",
        "bottleneck",
        "cpu",
    ] {
        assert!(point.get(field).is_some(), "no {field} in {point:#}");
    }
    assert_eq!(point["pattern"], pattern);
    assert_eq!(point["path"], "vf");
    assert_eq!(number(&point, "/vms").to_string(), vms);
    for positive in
        ["/mpps", "/gbps", "/rx_mpps", "/switch_cycles_per_frame", "/generator_limit_mpps"]
    {
        assert!(number(&point, positive) > 0.0, "{positive} in {point:#}");
    }
    // 252 bytes of a frame are in memory: published rates leave the FCS out.
    let gbps = number(&point, "/mpps") * 252.0 * 8.0 / 1e3;
    assert!((number(&point, "/gbps") / gbps - 1.0).abs() < 0.001, "{point:#}");
    let limiters = ["switch", "guest", "generator", "uplink"];
    assert!(limiters.iter().any(|limiter| point["bottleneck"] == *limiter), "{point:#}");
    assert!(point["cpu"].is_object(), "{point:#}");
}

#[test]
fn a_north_south_point_is_whole() {
    check_point("north-south", "2");
}

#[test]
fn an_east_west_point_is_whole() {
    check_point("east-west", "3");
}

#[test]
fn fairness_is_told_as_a_whole() {
    let (code, told) = lab(&["fairness", "--guests", "4", "--seconds", "0.1", "--json"]);
    assert_eq!(code, Some(0), "{told:#}");
    for index in ["/jain_index", "/mixed/jain_index"] {
        let index = number(&told, index);
        assert!((0.25..=1.0 + 1e-9).contains(&index), "{told:#}");
    }
    for shares in ["/shares", "/mixed/shares"] {
        let shares = told.pointer(shares).and_then(Value::as_array).expect("a list of shares");
        let sum: f64 = shares.iter().filter_map(Value::as_f64).sum();
        assert!(shares.len() == 4 && (sum - 1.0).abs() < 1e-6, "{told:#}");
    }
    for i in 0..4 {
        assert_eq!(number(&told, &format!("/weights/{i}/weight")), (i + 1) as f64);
        let expected = number(&told, &format!("/weights/{i}/expected"));
        assert!((expected - (i + 1) as f64 / 10.0).abs() < 1e-6, "{told:#}");
        // On a busy machine the minima may be more than there is.
        assert!(number(&told, &format!("/minima/{i}/expected_mbps")).is_finite(), "{told:#}");
    }
    assert_eq!(number(&told, "/maxima/2/max_tx_mbps"), 2000.0);
    assert!(number(&told, "/stuck/rounds") > 0.0 && told["situations"].is_array(), "{told:#}");
    for positive in ["/generator_limit_mpps", "/stuck/ratio/1", "/situations/0/mpps"] {
        assert!(number(&told, positive) > 0.0, "{positive} in {told:#}");
    }
}

#[test]
fn honest_guests_lose_nothing_beside_a_hostile_one() {
    let (code, run) = lab(&["hostile", "--bursts", "2000", "--seed", "1", "--json"]);
    assert_eq!(code, Some(0), "{run:#}");
    assert!(number(&run, "/bursts") >= 2000.0, "{run:#}");
    assert!(number(&run, "/control_mutations") > 0.0, "{run:#}");
    assert!(number(&run, "/honest/sent") > 0.0, "{run:#}");
    assert_eq!(run["honest"]["received"], run["honest"]["sent"], "{run:#}");
    for wrong in ["lost", "corrupted", "spoofed", "misplaced"] {
        assert_eq!(run["honest"][wrong], 0, "{wrong} in {run:#}");
    }
    assert_eq!(run["daemon_alive"], true, "{run:#}");
    assert_eq!(run["reattached"], true, "{run:#}");
    // It did attack: rings were stopped in both directions, and spoofed frames dropped.
    let faults = run["faults"].as_object().expect("faults by name");
    for direction in ["tx_", "rx_"] {
        assert!(faults.keys().any(|fault| fault.starts_with(direction)), "{run:#}");
    }
    let drops = run["drops"].as_object().expect("drops by name");
    assert!(drops.keys().any(|drop| drop.ends_with("tx_spoofed_mac")), "{run:#}");
    assert_eq!(run["daemon_fds_before"], run["daemon_fds_after"], "{run:#}");
}

#[test]
fn silence_and_the_first_frame_after_it_are_measured() {
    let args = ["--guests", "4", "--seconds", "0.2", "--frames", "20", "--json"];
    let (code, idle) = lab(&[&["idle"][..], &args].concat());
    assert_eq!(code, Some(0), "{idle:#}");
    assert_eq!(idle["guests"], 4);
    assert_eq!(idle["samples"], 20);
    assert!(number(&idle, "/cpu_share") >= 0.0, "{idle:#}");
    assert!(number(&idle, "/sleeps") > 0.0, "the lane never slept: {idle:#}");
    assert!(number(&idle, "/kicks") <= 20.0, "{idle:#}");
    for of in ["wake_us", "floor_us"] {
        let [p50, p99, max] = ["p50", "p99", "max"].map(|q| number(&idle, &format!("/{of}/{q}")));
        assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{of} in {idle:#}");
    }
    assert!(idle["pinned"].is_array(), "{idle:#}");
    assert!(idle["cpu_latency_us"].is_null(), "the CPUs were not left alone: {idle:#}");
}

#[test]
fn a_held_wake_up_latency_is_part_of_the_result() {
    let args = ["--guests", "2", "--seconds", "0.1", "--frames", "5", "--cpu-latency", "7"];
    let output = Command::new(env!("CARGO_BIN_EXE_shunt"))
        .args(["lab", "idle"])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("shunt was built for this test");
    let (out, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Not everybody may hold it.
    if std::fs::File::options().write(true).open("/dev/cpu_dma_latency").is_ok() {
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(out.contains("wake-up latency of the CPUs: held at 7 us"), "{out}");
    } else {
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot keep lanes.cpu_latency_us"), "{said}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_by_name() {
    for (args, word) in [
        (&["idle", "--guests", "1"][..], "--guests 1: 2 to 255"),
        (&["idle", "--seconds", "0"], "--seconds 0"),
        (&["idle", "--frames", "0"], "--frames 0"),
        (&["idle", "--cpu-latency", "1000001"], "--cpu-latency 1000001: 0 to 1000000"),
        (&["idle", "--cpu-latency", "soon"], "--cpu-latency"),
        (&["hostile", "--bursts", "0"], "--bursts 0"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_shunt")).arg("lab").args(args).output();
        let output = output.expect("shunt was built for this test");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(word), "no {word:?} in {said:?}");
    }
}
