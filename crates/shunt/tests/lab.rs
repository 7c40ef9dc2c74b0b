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

/// The same of what needs network namespaces, which a machine may refuse: then it says so, and nothing
/// else may be wrong.
fn lab_in_namespaces(args: &[&str]) -> Option<Value> {
    let mut shunt = Command::new(env!("CARGO_BIN_EXE_shunt"));
    let output = shunt.arg("lab").args(args).stdin(Stdio::null()).output().expect("it was built");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Some(serde_json::from_slice(&output.stdout).expect(&said));
    }
    let refused = ["no network namespace", "/dev/net/tun cannot be opened", "cannot make bridge"];
    assert!(refused.iter().any(|words| said.contains(words)), "{said}");
    None
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {value:#}"))
}

/// Checks that a point has all that was promised of it.
fn check_point(pattern: &str, path: &str, vms: &str) {
    let args = ["run", "--pattern", pattern, "--path", path, "--vms", vms, "--frame", "256"];
    let args = [&args[..], &["--seconds", "0.2", "--json"]].concat();
    let point = match path {
        "virtio" => match lab_in_namespaces(&args) {
            Some(point) => point,
            None => return,
        },
        _ => {
            let (code, point) = lab(&args);
            assert_eq!(code, Some(0), "{point:#}");
            point
        }
    };
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
    assert_eq!(point["path"], path);
    assert_eq!(number(&point, "/vms").to_string(), vms);
    for positive in ["/mpps", "/gbps", "/rx_mpps", "/generator_limit_mpps"] {
        assert!(number(&point, positive) > 0.0, "{positive} in {point:#}");
    }
    // The kernel's bridge has no lane whose cycles could be told.
    let cycles = &point["switch_cycles_per_frame"];
    assert_eq!(cycles.as_f64().is_some_and(|cycles| cycles > 0.0), path != "virtio", "{point:#}");
    // 252 bytes of a frame are in memory: published rates leave the FCS out.
    let gbps = number(&point, "/mpps") * 252.0 * 8.0 / 1e3;
    assert!((number(&point, "/gbps") / gbps - 1.0).abs() < 0.001, "{point:#}");
    let limiters = ["switch", "guest", "generator", "uplink"];
    assert!(limiters.iter().any(|limiter| point["bottleneck"] == *limiter), "{point:#}");
    assert!(point["cpu"].is_object(), "{point:#}");
}

#[test]
fn a_north_south_point_is_whole() {
    check_point("north-south", "vf", "2");
}

#[test]
fn a_point_through_the_switch_is_whole() {
    check_point("north-south", "vhost", "2");
}

#[test]
fn points_through_the_kernels_bridge_are_whole() {
    check_point("north-south", "virtio", "2");
    check_point("east-west", "virtio", "3");
}

#[test]
fn an_east_west_point_is_whole() {
    check_point("east-west", "vf", "3");
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

/// Runs an experiment over sockets on the path virtio, and gives its transfers.
fn transfers(experiment: &str, pattern: &str) -> Vec<Value> {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().to_str().unwrap();
    let args = [experiment, "--path", "virtio", "--pattern", pattern, "--rounds", "1", "--json"];
    let args = [&args[..], &["--seconds", "0.1", "--out", dir]].concat();
    let Some(results) = lab_in_namespaces(&args) else { return Vec::new() };
    let folder = out.path().read_dir().unwrap().next().expect("a report").unwrap().path();
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains(&format!("<h2 id=\"{experiment}\">")), "{page}");
    assert!(folder.join("transfers.csv").exists() && !folder.join("results.csv").exists());
    results["transfers"].as_array().expect("transfers").clone()
}

#[test]
fn tcp_goes_over_the_kernels_bridge_in_bulk() {
    let all = transfers("ntttcp", "north-south");
    assert!([0, 4].contains(&all.len()), "1 and 4 streams, two sizes of buffers: {all:#?}");
    for transfer in &all {
        for positive in ["/gbps/1", "/limit", "/granted_kib"] {
            assert!(number(transfer, positive) > 0.0, "{positive} in {transfer:#}");
        }
        assert_eq!((&transfer["path"], &transfer["send_bytes"]), (&"virtio".into(), &65536.into()));
    }
}

#[test]
fn udp_goes_over_the_kernels_bridge_both_ways_and_is_answered() {
    let all = transfers("vpf", "east-west");
    assert!([0, 3].contains(&all.len()), "{all:#?}");
    for transfer in &all {
        let figures = match transfer["workload"].as_str() {
            Some("udp-request") => ["/round_trip/p50_us", "/round_trip/per_s", "/limit"],
            _ => ["/gbps/0", "/gbps/1", "/limit"],
        };
        for positive in figures {
            assert!(number(transfer, positive) > 0.0, "{positive} in {transfer:#}");
        }
    }
    if let [.., requests] = &all[..] {
        let [p50, p999] = ["/round_trip/p50_us", "/round_trip/p999_us"];
        assert!(number(requests, p50) <= number(requests, p999), "{requests:#}");
    }
}

#[test]
fn a_lab_that_is_killed_leaves_nobody_behind() {
    let out = tempfile::tempdir().unwrap();
    let mut shunt = Command::new(env!("CARGO_BIN_EXE_shunt"));
    let shunt = shunt.args(["lab", "vpf", "--path", "virtio", "--seconds", "60", "--out"]);
    let quiet = shunt.arg(out.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let mut running = quiet.spawn().expect("it was built");
    let path = format!("/proc/{0}/task/{0}/children", running.id());
    let children = || std::fs::read_to_string(&path).unwrap_or_default();
    // Both ends of the first measurement.
    while children().split_whitespace().count() < 2 {
        if running.try_wait().unwrap().is_some() {
            return; // the machine has no namespaces for it, as the other tests are told
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let children = children();
    running.kill().unwrap();
    running.wait().unwrap();
    for child in children.split_whitespace() {
        // Gone, or about to be: nobody has waited for it yet.
        while std::fs::read_to_string(format!("/proc/{child}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
        {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
