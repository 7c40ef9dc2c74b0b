//! Experiments of the lab from the command line, as short as possible: daemon and guests are real
//! processes on real sockets. Speed is not tested.

mod terminal;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Runs `shunt lab` with these arguments; returns its exit code and the JSON object it printed.
fn lab(args: &[&str]) -> (Option<i32>, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_shunt"))
        .arg("lab")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("shunt was built for this test");
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("shunt lab {}: {error}", args.join(" ")));
    (output.status.code(), json)
}

/// Runs an experiment that needs network namespaces; `None` if the machine allows none.
fn lab_in_namespaces(args: &[&str]) -> Option<Value> {
    lab_in_namespaces_with(args, &[])
}

/// Runs such an experiment with environment variables.
fn lab_in_namespaces_with(args: &[&str], variables: &[(&str, &Path)]) -> Option<Value> {
    let mut shunt = Command::new(env!("CARGO_BIN_EXE_shunt"));
    shunt.envs(variables.iter().copied());
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

/// Checks that a point has all promised fields.
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
    // The kernel's bridge has no lane, and so no cycles.
    let cycles = &point["switch_cycles_per_frame"];
    assert_eq!(cycles.as_f64().is_some_and(|cycles| cycles > 0.0), path != "virtio", "{point:#}");
    // 252 bytes of a frame are in memory: published rates exclude the FCS.
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
        // On a busy machine the minima may exceed the lane's rate.
        assert!(number(&told, &format!("/minima/{i}/expected_mbps")).is_finite(), "{told:#}");
    }
    for (i, burden) in ["none", "interrupt", "pieces", "flood"].iter().enumerate() {
        assert_eq!(told["burdens"][i]["burden"], *burden);
        assert!(number(&told, &format!("/burdens/{i}/cycles_per_frame")) > 0.0, "{told:#}");
    }
    assert_eq!(told["burdens_minima"].as_array().map(Vec::len), Some(1), "{told:#}");
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
    // The attack was effective: rings were stopped in both directions, and spoofed frames dropped.
    let faults = run["faults"].as_object().expect("faults by name");
    for direction in ["tx_", "rx_"] {
        assert!(faults.keys().any(|fault| fault.starts_with(direction)), "{run:#}");
    }
    let drops = run["drops"].as_object().expect("drops by name");
    assert!(drops.keys().any(|drop| drop.ends_with("tx_spoofed_mac")), "{run:#}");
    assert_eq!(run["daemon_fds_before"], run["daemon_fds_after"], "{run:#}");
}

#[test]
fn a_soak_accounts_for_every_frame_and_repeats_its_actions() {
    let args = ["soak", "--seconds", "6", "--seed", "2", "--json"];
    let (code, told) = lab(&args);
    assert_eq!(code, Some(0), "{told:#}");
    assert_eq!(told["problems"], serde_json::json!([]), "{told:#}");
    let frames = |name: &str| number(&told, &format!("/frames/{name}"));
    assert!(frames("received") > 0.0 && told["points"].as_array().map(Vec::len) == Some(12));
    assert_eq!(frames("sent"), frames("received") + frames("lost"), "{told:#}");
    let causes = told["causes"].as_object().expect("causes by kind");
    let explained = causes.values().filter_map(|cause| cause["lost"].as_object());
    let explained = explained.flat_map(|lost| lost.values().filter_map(Value::as_f64));
    assert_eq!(explained.sum::<f64>(), frames("lost"), "{told:#}");
    let actions = causes.values().filter_map(|cause| cause["actions"].as_u64()).sum::<u64>();
    assert_eq!(actions, 24, "{told:#}");
    let (_, again) = lab(&args);
    assert_eq!(told["actions"], again["actions"]);
}

#[test]
fn silence_and_the_first_frame_after_it_are_measured() {
    let args = ["--guests", "4", "--seconds", "0.2", "--frames", "20", "--json"];
    let (code, idle) = lab(&[&["idle"][..], &args].concat());
    assert_eq!(code, Some(0), "{idle:#}");
    assert_eq!(idle["guests"], 4);
    let policies = idle["policies"].as_array().expect("a list");
    let names: Vec<_> = policies.iter().map(|cost| &cost["policy"]).collect();
    assert_eq!(names, ["poll", "yield", "sleep"]);
    for cost in policies {
        assert_eq!(cost["samples"], 20);
        assert!(number(cost, "/cpu_share") >= 0.0, "{idle:#}");
        assert_eq!(number(cost, "/sleeps") > 0.0, cost["policy"] == "sleep", "{idle:#}");
        assert!(number(cost, "/kicks") <= 20.0, "{idle:#}");
        for of in ["wake_us", "floor_us"] {
            let times = ["p50", "p99", "max"].map(|time| number(cost, &format!("/{of}/{time}")));
            assert!(0.0 < times[0] && times.is_sorted(), "{of} in {idle:#}");
        }
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
    // Setting the latency may need a permission.
    if std::fs::File::options().write(true).open("/dev/cpu_dma_latency").is_ok() {
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(out.contains("wake-up latency of the CPUs: limited to 7 us"), "{out}");
    } else {
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot apply lanes.cpu_latency_us"), "{said}");
    }
}

#[test]
fn back_to_back_frames_are_searched_for() {
    let args = ["throughput", "--pattern", "east-west", "--trial-seconds", "0.1", "--json"];
    let args = [&args[..], &["--trials-max", "3", "--seconds-max", "1", "--back-to-back", "1"]];
    let (code, found) = lab(&args.concat());
    assert_eq!(code, Some(0), "{found:#}");
    let of = |name: &str| number(&found, &format!("/back_to_back/{name}"));
    assert_eq!((of("searches"), of("deviation_frames")), (1.0, 0.0), "{found:#}");
    assert_eq!(of("min_frames"), of("max_frames"), "{found:#}");
    assert!(of("average_frames") <= of("longest_tried_frames"), "{found:#}");
    assert!(of("trials") >= 1.0 && of("without_loss") <= 1.0, "{found:#}");
    assert!(found["back_to_back"]["statement"].is_string(), "{found:#}");
}

#[test]
fn what_cannot_be_measured_is_refused_by_name() {
    for (args, word) in [
        (&["idle", "--guests", "1"][..], "--guests: 1 is out of range; write a number, 2 to 255"),
        (&["idle", "--seconds", "0"], "--seconds: 0"),
        (&["idle", "--frames", "0"], "--frames: 0"),
        (&["idle", "--cpu-latency", "1000001"], "--cpu-latency: 1000001 is out of range"),
        (&["idle", "--cpu-latency", "soon"], "--cpu-latency"),
        (&["hostile", "--bursts", "0"], "--bursts: 0"),
        (&["soak", "--minutes", "0"], "--minutes: 0 is out of range"),
        (&["soak", "--without", "kills"], "expected one of path, settings"),
        (
            &["calibrate", "--rate", "999"],
            "--rate: 999 is out of range; write a number, 1000 to 1000000",
        ),
        (&["calibrate", "--seconds", "0"], "--seconds: 0"),
        (&["calibrate", "--delay", "normal:1"], "write constant:US"),
        (&["calibrate", "--delay", "uniform:9,8"], "shortest delay 9: allowed are 0 to 8"),
        (
            &["throughput", "--pattern", "east-west", "--back-to-back", "101"],
            "--back-to-back: 101 is out of range; write a number, 0 to 100",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_shunt")).arg("lab").args(args).output();
        let output = output.expect("shunt was built for this test");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(word), "no {word:?} in {said:?}");
    }
}

/// Runs an experiment over sockets on the path virtio, and returns its transfers.
fn transfers(experiment: &str, pattern: &str) -> Vec<Value> {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().to_str().unwrap();
    let args = [experiment, "--path", "virtio", "--pattern", pattern, "--rounds", "1", "--json"];
    let args = [&args[..], &["--seconds", "0.1", "--out", dir]].concat();
    let Some(results) = lab_in_namespaces(&args) else { return Vec::new() };
    let folder = out.path().read_dir().unwrap().next().expect("a report").unwrap().path();
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    let section = if pattern == "north-south" { "" } else { "-east-west" };
    assert!(page.contains(&format!("<h2 id=\"{experiment}{section}\">")), "{page}");
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
fn file_copies_are_whole_on_both_paths_and_leave_nothing_behind() {
    let [temporary, out] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let dir = out.path().to_str().unwrap();
    let mine = temporary.path().join("mine.toml");
    let text = told(&["show", "hyperv"]).1.replace("[512]", "[8]");
    std::fs::write(&mine, text).unwrap();
    let mine = mine.to_str().unwrap();
    let args = [mine, "--rounds", "2", "--json", "--out", dir];
    let results = lab_in_namespaces_with(&args, &[("TMPDIR", temporary.path())]);
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 1, "directories are left");
    let Some(results) = results else { return };
    let copies = results["copies"].as_array().expect("copies");
    let paths = |copy: &Value| {
        let guests = copy["guests"].as_array().expect("guests").iter();
        guests.map(|guest| guest["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let [together, vf, synthetic] = &copies[..] else { panic!("{results:#}") };
    assert_eq!(paths(together), ["vf", "vf", "synthetic", "synthetic"]);
    assert_eq!((paths(vf), paths(synthetic)), (vec!["vf".into()], vec!["synthetic".into()]));
    for copy in copies {
        check_file_copy(copy);
    }
    let folder = out.path().read_dir().unwrap().next().expect("a report").unwrap().path();
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("<h2 id=\"copies-") && page.contains("no large difference"));
    assert!(folder.join("copies.csv").exists() && !folder.join("results.csv").exists());
}

/// Checks that every guest has the whole file, and that the figures of a copy are plausible.
fn check_file_copy(copy: &Value) {
    assert_eq!((number(copy, "/file_mib"), number(copy, "/rounds")), (8.0, 2.0), "{copy:#}");
    let least_to_most = |path: &str| {
        let [least, median, most] = [0, 1, 2].map(|i| number(copy, &format!("{path}/{i}")));
        assert!(0.0 <= least && least <= median && median <= most, "{path} in {copy:#}");
        median
    };
    let guests = copy["guests"].as_array().expect("guests");
    for (i, guest) in guests.iter().enumerate() {
        assert_eq!(number(guest, "/bytes"), f64::from(8 << 20), "{copy:#}");
        assert_eq!(guest["checksum"], copy["checksum"], "{copy:#}");
        for positive in ["seconds", "gbps", "cpu_s_per_gib"] {
            assert!(least_to_most(&format!("/guests/{i}/{positive}")) > 0.0, "{copy:#}");
        }
        // A guest's copy is part of the whole.
        let seconds = least_to_most(&format!("/guests/{i}/seconds"));
        assert!(seconds <= number(copy, "/seconds/2"), "{copy:#}");
    }
    assert!(least_to_most("/host/lane_cycles_per_kib") > 0.0, "{copy:#}");
    assert!(number(copy, "/host/lane_busy_share/2") <= 1.0, "{copy:#}");
    for cores in ["server_user", "server_system", "daemon_user", "daemon_system", "softirq"] {
        least_to_most(&format!("/host/{cores}_cores"));
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
            return; // the machine has no namespaces for it, as other tests report
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let children = children();
    running.kill().unwrap();
    running.wait().unwrap();
    for child in children.split_whitespace() {
        // Ended, or a zombie: no process has waited for it yet.
        while std::fs::read_to_string(format!("/proc/{child}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
        {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// A process of the lab with its standard input and output; killed when dropped.
struct Piped {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Piped {
    fn start(args: &[&str]) -> Piped {
        let mut child = Command::new(env!("CARGO_BIN_EXE_shunt"))
            .arg("lab")
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("shunt was built for this test");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        Piped { child, input, output }
    }

    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{line}").expect("the process reads");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the process writes");
        line
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs two guests that exchange numbered frames over the bare loop, which spins `delay_cycles` for
/// each frame. Checks that no frame is lost, and returns the loop's busy cycles per frame.
fn exchange_over_bare_loop(ring: &str, delay_cycles: u64) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let sockets = ["a.sock", "b.sock"].map(|name| dir.path().join(name).display().to_string());
    let macs = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
    let delay = delay_cycles.to_string();
    let [a, b] = &sockets;
    let mut bare = Piped::start(&[
        "bare",
        "--with-parent",
        "--socket",
        a,
        "--socket",
        b,
        "--delay-cycles",
        &delay,
    ]);
    assert_eq!(bare.hear(), "ready\n");
    let mut guests = Piped::start(&["guest"]);
    let spec = serde_json::json!({ "numbered": {
        "cpu": null,
        "guests": [[a, macs[0]], [b, macs[1]]],
        "ring": ring,
    }});
    guests.say(&spec.to_string());
    assert!(guests.hear().contains("ready"));
    guests.say("go");
    std::thread::sleep(Duration::from_millis(300));
    bare.say("counters");
    let counters: Value = serde_json::from_str(&bare.hear()).unwrap();
    drop(guests.input.take());
    let result: Value = serde_json::from_str(&guests.hear()).unwrap();
    for direction in ["/directions/0", "/directions/1"] {
        let count = |name: &str| number(&result, &format!("{direction}/{name}"));
        assert!(count("received") > 0.0, "{result:#}");
        for fault in ["lost", "duplicated", "reordered", "corrupted", "foreign"] {
            assert_eq!(count(fault), 0.0, "{ring}: {fault} in {result:#}");
        }
    }
    for fault in ["/dropped", "/unknown", "/chained"] {
        assert_eq!(number(&counters, fault), 0.0, "{ring}: {fault} in {counters:#}");
    }
    number(&counters, "/busy_cycles") / number(&counters, "/frames")
}

#[test]
fn two_guests_lose_nothing_over_the_bare_loop() {
    for ring in ["split", "packed", "packed-in-order"] {
        assert!(exchange_over_bare_loop(ring, 0) > 0.0);
    }
}

#[test]
fn the_bare_loop_spins_for_each_frame() {
    for ring in ["split", "packed"] {
        let cycles = exchange_over_bare_loop(ring, 20_000);
        assert!(cycles >= 20_000.0, "{cycles} cycles a frame");
    }
}

#[test]
fn the_bare_loop_rejects_what_it_cannot_serve() {
    for (args, words) in [
        (&["bare", "--socket", "a"][..], "--socket: must be given an even number of times"),
        (&["bare", "--socket", "a", "--socket", "b", "--mac", "02:00:00:00:00:01"], "--mac: must"),
        (
            &["bare", "--socket", "a", "--socket", "b", "--delay-cycles", "1000001"],
            "1000001 is out of range; write a number, 0 to 1000000",
        ),
    ] {
        let mut shunt = Command::new(env!("CARGO_BIN_EXE_shunt"));
        let output = shunt.arg("lab").args(args).output().expect("it was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{args:?}: {said}");
    }
}

/// Runs a comparison of switches, as short as possible; `None` if the machine lacks one of `lacks`.
fn switches(args: &[&str], lacks: &[&str]) -> Option<Value> {
    let short = ["--pairs", "2", "--rounds", "1", "--slot", "0.05", "--no-hugepages", "--json"];
    let mut shunt = Command::new(env!("CARGO_BIN_EXE_shunt"));
    let shunt = shunt.args(["lab", "switches"]).args(args).args(short);
    let output = shunt.stdin(Stdio::null()).output().expect("it was built");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Some(serde_json::from_slice(&output.stdout).expect(&said));
    }
    let lacks = [lacks, &["two CPUs are needed"]].concat();
    assert!(lacks.iter().any(|words| said.contains(words)), "{said}");
    None
}

/// Checks that no frame was lost at any setting.
fn check_drains(result: &Value) {
    for rings in result["results"].as_array().expect("results") {
        for drain in rings["drains"].as_array().expect("drains") {
            assert_eq!(drain["frames"], drain["expected"], "{result:#}");
        }
    }
}

#[test]
fn switches_with_the_same_guest_lose_nothing() {
    let lacks = ["dpdk-testpmd, is not installed"];
    let args = ["--switch", "shunt,bare", "--sizes", "64"];
    let Some(result) = switches(&args, &lacks) else { return };
    check_drains(&result);
    let rings = &result["results"][0];
    assert_eq!(rings["slots"].as_array().map(Vec::len), Some(4), "{result:#}");
    let [shunt, bare] = [0, 1].map(|i| &rings["features"][i][1]);
    assert_eq!(shunt, bare, "both guests have the same features");
    assert_eq!(rings["sizes"][0]["bands"].as_array().map(Vec::len), Some(4), "{result:#}");
}

#[test]
fn the_lab_s_own_guest_loses_nothing_on_any_rings() {
    let args = ["--switch", "shunt,bare", "--guest", "lab", "--sizes", "64,1518"];
    let rings = ["--ring", "split,packed", "--mergeable", "on,off"];
    let Some(result) = switches(&[&args[..], &rings].concat(), &[]) else { return };
    check_drains(&result);
    let (packed, mergeable) = (1u64 << 34, 1u64 << 15);
    let results = result["results"].as_array().expect("results");
    assert_eq!(results.len(), 4, "{result:#}");
    for rings in results {
        assert_eq!(rings["slots"].as_array().map(Vec::len), Some(8), "{result:#}");
        for (switch, port) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let bits = rings["features"][switch][1][port].as_str().expect("features");
            let bits = u64::from_str_radix(bits.trim_start_matches("0x"), 16).unwrap();
            assert_eq!(bits & packed != 0, rings["rings"]["packed"], "{rings:#}");
            assert_eq!(bits & mergeable != 0, rings["rings"]["mergeable"], "{rings:#}");
        }
    }
}

#[test]
fn switches_of_the_kernel_s_network_have_figures_and_lose_nothing() {
    let lacks = [
        "is not installed",
        "no network namespace",
        "cannot make bridge",
        "cannot make the pair of interfaces",
    ];
    for name in ["linux-bridge", "ovs-userspace"] {
        let args = ["--switch", name, "--sizes", "64,1518", "--bursts", "4"];
        let Some(result) = switches(&args, &lacks) else { continue };
        check_drains(&result);
        for slot in result["results"][0]["slots"].as_array().expect("slots") {
            assert_eq!(slot["switch"], name, "{result:#}");
            assert!(number(slot, "/mpps") > 0.0, "{result:#}");
        }
    }
}

#[test]
fn wrong_settings_of_a_comparison_are_rejected() {
    for (args, words) in [
        (&["--bursts", "31"][..], "--bursts: 31 is out of range; write a number, 1 to 30"),
        (&["--switch-cpu", "0", "--guest-cpu", "0"], "two CPUs are needed"),
        (&["--switch", "shunt,shunt"], "--switch: has a switch twice; give each once"),
        (
            &["--switch", "nothing"],
            "expected one of bare, shunt, shunt-beside-switch, shunt-switch",
        ),
        (&["--guest", "nothing"], "expected one of testpmd, lab, qemu"),
        (
            &["--guest", "lab", "--switch", "linux-bridge"],
            "--guest: \"lab\" has no ports for switch linux-bridge; write one of testpmd",
        ),
        (&["--ring", "split,split"], "--ring: has a value twice; give each once"),
        (&["--sizes", "63"], "--sizes: 63 is out of range; write a number, 64 to 1518"),
    ] {
        let mut shunt = Command::new(env!("CARGO_BIN_EXE_shunt"));
        let cpus = ["--switch-cpu", "0", "--guest-cpu", "1"];
        let cpus = if args[0].ends_with("cpu") { &[][..] } else { &cpus };
        let output = shunt.args(["lab", "switches"]).args(args).args(cpus).output();
        let output = output.expect("it was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{args:?}: {said}");
    }
}

/// A user's experiment: 16 short slots.
const MINE: &str = r#"
name = "mine"
title = "Two paths"
question = "Which one?"

[[forward]]
patterns = ["north-south"]
paths = ["vf", "vhost"]
guests = [1]
frame_bytes = [64]
load = "closed"
ring = "split"
rounds = 4
warmup_s = 0.1
seconds = 0.1
"#;

/// SIGINT in the middle of an experiment, which is then resumed.
#[test]
fn an_interrupted_run_keeps_its_results_leaves_nothing_behind_and_is_resumed() {
    let [temporary, out] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let mine = temporary.path().join("mine.toml");
    std::fs::write(&mine, MINE).unwrap();
    let mut shunt = Command::new(env!("CARGO_BIN_EXE_shunt"));
    shunt.arg("lab").arg(&mine).arg("--out").arg(out.path());
    shunt.env("TMPDIR", temporary.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = shunt.spawn().unwrap();
    // Each slot has a directory of its own; the results file exists from the beginning.
    let mut seen = std::collections::BTreeSet::new();
    let end = Instant::now() + Duration::from_secs(60);
    while seen.len() < 4 {
        assert!(Instant::now() < end, "slots do not come");
        seen.extend(std::fs::read_dir(temporary.path()).unwrap().map(|dir| dir.unwrap().path()));
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(said.contains("shunt lab resume "), "{said}");
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 1, "directories are left");
    let report = std::fs::read_dir(out.path()).unwrap().next().expect("a report").unwrap().path();
    let results = || -> Value {
        serde_json::from_slice(&std::fs::read(report.join("results.json")).unwrap()).unwrap()
    };
    let early = results();
    let why = early["ended_early"].as_str().unwrap_or_default();
    assert!(why.starts_with("INCOMPLETE: the run ended after "), "{early:#}");
    let history = history(out.path());
    assert!(history.contains("/16") && history.contains("mine"), "{history}");

    let (code, whole) = lab(&["resume", report.to_str().unwrap(), "--json"]);
    assert_eq!((code, &whole["steps_done"]), (Some(0), &Value::from(16)), "{whole:#}");
    let points = |results: &Value| results["points"].as_array().expect("points").clone();
    assert_eq!(points(&whole).len(), 16, "{whole:#}");
    let before = points(&early);
    assert_eq!(points(&whole)[..before.len()], before[..], "what was measured before is kept");
    assert_eq!(whole.get("ended_early"), None, "{whole:#}");
    let page = std::fs::read_to_string(report.join("report.html")).unwrap();
    assert!(page.contains("Which interface for my traffic?"), "{page}");
    std::fs::create_dir(out.path().join("damaged")).unwrap();
    std::fs::write(out.path().join("damaged/results.json"), "{").unwrap();
    let history = self::history(out.path());
    assert!(history.contains(" 16/16 ") && history.contains("damaged"), "{history}");
    assert_eq!(history.lines().count(), 3, "one line a run: {history}");
    let words = ["lab", "history", "--out", out.path().to_str().unwrap()];
    terminal::fits(&words.map(str::to_owned));
}

fn history(out: &std::path::Path) -> String {
    let mut shunt = Command::new(env!("CARGO_BIN_EXE_shunt"));
    let output = shunt.args(["lab", "history", "--out"]).arg(out).output().expect("it was built");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Output of a command, with its exit code.
fn told(args: &[&str]) -> (Option<i32>, String) {
    let mut shunt = Command::new(env!("CARGO_BIN_EXE_shunt"));
    let output = shunt.arg("lab").args(args).stdin(Stdio::null()).output().expect("it was built");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("UTF-8"))
}

#[test]
fn experiments_are_listed_and_shown() {
    let (code, list) = told(&["list"]);
    assert_eq!(code, Some(0), "{list}");
    for name in ["quick", "nfv", "netperf", "vmdq", "hyperv", "ntttcp", "vpf"] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{list}");
        let (code, file) = told(&["show", name]);
        assert!(code == Some(0) && file.contains(&format!("name = \"{name}\"")), "{file}");
    }
    for (of, title) in [("experiment", "Experiment"), ("results", "Results")] {
        let (code, schema) = told(&["show", "--schema", of]);
        let title = format!("\"title\": \"{title}\"");
        assert!(code == Some(0) && schema.contains(&title), "{schema}");
    }
}

#[test]
fn mistakes_in_experiments_are_told() {
    for (args, words) in [
        (&["nothing"][..], "is no experiment and no command; write quick, nfv"),
        (&["vmdq", "--path", "vf"], "--path: is no setting of experiment vmdq; leave it out"),
        (&["nfv", "--guests", "9"], "write a number, 1 to 8"),
        (&["ntttcp", "--seconds", "0"], "write a number, 0.1 to 3600"),
        (&["nfv", "--frame", "1519"], "write a number, 64 to 1518"),
        (&["nfv", "--colour"], "unexpected argument"),
        (&["--rounds", "0"], "write a number, 1 to 100"),
    ] {
        let (code, text) = told(args);
        assert!(code == Some(2) && text.contains(words), "{args:?}: {code:?} {text}");
    }
    let (code, text) = told(&["./missing.toml"]);
    assert!(
        code == Some(2) && text.contains("<NAME>: \"./missing.toml\" does not exist"),
        "{text}"
    );
    let (code, text) = told(&["resume", "/nowhere"]);
    assert!(code == Some(2) && text.contains("\"/nowhere\" has no results of a run"), "{text}");
}

#[test]
fn frames_are_received_with_queues_and_without() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().to_str().unwrap();
    let short = ["--rounds", "1", "--seconds", "0.1", "--frame", "1518", "--out", dir, "--json"];
    let (code, told) = lab(&[&["vmdq"][..], &short].concat());
    assert_eq!(code, Some(0), "{told:#}");
    for path in ["vmq", "synthetic"] {
        for figure in ["mpps", "switch_cycles_per_frame"] {
            assert!(number(&told, &format!("/receives/0/{path}/{figure}/1")) > 0.0, "{told:#}");
        }
    }
    assert_eq!(number(&told, "/receives/0/published/with_gbps"), 9.3, "{told:#}");
}

#[test]
fn a_slower_side_is_found() {
    // On a busy machine the bare loop takes some 600 cycles per frame, otherwise 60.
    let args = ["compare", "bare", "bare+2000", "--pairs", "8", "--json"];
    let (code, told) = lab(&args);
    assert_eq!(code, Some(0), "{told:#}");
    assert!(number(&told, "/ratio") > 1.2, "{told:#}");
    let (code, text) = self::told(&["compare", "bare", "bare", "--vms", "2"]);
    assert!(code == Some(2) && text.contains("--vms 1"), "{text}");
    let (code, text) = self::told(&["compare", "bare", "bare*2"]);
    assert!(code == Some(2) && text.contains("bare+CYCLES"), "{text}");
}
