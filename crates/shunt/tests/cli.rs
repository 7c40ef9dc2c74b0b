//! Errors of the command line: each is reported once, with its remedy.
//!
//! Exit code 2 is an error in the command line or the configuration, 1 a failure of the machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use api::stats::ReasonEntry;

/// Runs shunt to its end; no command here gets as far as doing its work.
fn shunt(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shunt"))
        .args(args)
        .stdin(Stdio::null())
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .expect("shunt was built for this test")
}

/// Asserts that shunt fails with this code, prints nothing on standard output, and prints all
/// `words` on standard error, in one line unless it is clap's.
fn fails(code: i32, args: &[&str], words: &[&str]) {
    let output = shunt(args);
    let said = String::from_utf8_lossy(&output.stderr);
    let shown = format!("shunt {}: {said}", args.join(" "));
    assert_eq!(output.status.code(), Some(code), "{shown}");
    assert!(output.stdout.is_empty(), "{shown}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {shown}");
    }
    let claps = said.starts_with("error: ");
    assert!(claps || said.lines().count() == 1, "more than one line: {shown}");
    assert!(!said.contains('\x1b'), "colours without a terminal: {shown}");
}

/// A directory with a configuration in it: one NIC with one VF.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Site { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a configuration with this run directory, VF socket and further lines at its top.
    fn config(&self, run_dir: &Path, socket: &Path, more: &str) -> String {
        let (run_dir, socket) = (run_dir.display(), socket.display());
        self.file(&format!(
            "run_dir = \"{run_dir}\"\n{more}\n[[nic]]\nname = \"nic0\"\nkind = \"soft\"\n\
             [[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment = \"vhost-user:{socket}\"\n"
        ))
    }

    fn file(&self, text: &str) -> String {
        let path = self.path("shunt.toml");
        fs::write(&path, text).expect("a file in a temporary directory");
        path.display().to_string()
    }

    /// Fails to start with code 1, and with all of `words`.
    fn does_not_start(&self, config: &str, words: &[&str]) {
        fails(1, &["up", "--config", config], words);
    }
}

#[test]
fn mistakes_in_the_command_line() {
    for (args, words) in [
        (&["--bogus"][..], &["--bogus", "--help"][..]),
        (&["frobnicate"], &["frobnicate", "--help"]),
        (&["up", "--check"], &["--config <FILE>", "--help"]),
        (&["up", "--config"], &["--config", "value"]),
        (&["up", "--config", ""], &["--config", "value"]),
        (&["up", "--config", "x", "--chek"], &["--chek", "--check"]),
        (&["explain", "storm", "surplus"], &["\"surplus\" is one argument too many"]),
        (&["lab", "nvf"], &["did you mean nfv?"]),
        (&["explain", "runtt"], &["<REASON>", "runtt", "did you mean runt?"]),
        (&["explain", "tx_spoofed_mak"], &["did you mean tx_spoofed_mac?"]),
        (&["explain", "weather"], &["<REASON>", "write one of runt, "]),
        (&["up", "--run-dir", "/x"], &["--run-dir", "set run_dir in the file of --config"]),
        (&["up", "--socket-group", "kvm"], &["set socket_group in the file of --config"]),
        (&["stats", "--run-dir"], &["--run-dir: has no value"]),
        (&["lab", "run"], &["--pattern <PATTERN>"]),
        (&["lab", "frobnicate"], &["frobnicate"]),
    ] {
        fails(2, args, words);
    }
}

#[test]
fn a_checked_file_names_only_cpus_of_this_machine() {
    let site = Site::new();
    let lanes = "[lanes]\ncpus = [1000]\n";
    let text = "[[nic]]\nname = \"nic0\"\nkind = \"soft\"\ntotal_vfs = 0\n";
    let config = site.file(&format!("{lanes}{text}"));
    let words = [":2:9: lanes.cpus: 1000 is no CPU of this machine", "; choose from 0"];
    fails(2, &["up", "--config", &config, "--check"], &words);
}

#[test]
fn nothing_at_all_is_answered_with_the_help() {
    let output = shunt(&[]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Usage: shunt") && said.contains("Examples:"), "{said}");
}

#[test]
fn values_that_the_lab_cannot_measure() {
    let north_south = ["lab", "run", "--pattern", "north-south"];
    for (flag, value, words) in [
        ("--vms", "0", &["--vms: 0", "1 to 8"][..]),
        ("--vms", "9", &["--vms: 9", "1 to 8"]),
        ("--vms", "two", &["--vms", "two"]),
        ("--vms", "99999999999999999999999", &["--vms", "too large"]),
        ("--frame", "63", &["--frame: 63", "64 to 1518"]),
        ("--frame", "1519", &["--frame: 1519", "64 to 1518"]),
        ("--frame", "4294967296", &["--frame"]),
        ("--seconds", "0", &["--seconds: 0", "0.1 to 3600"]),
        ("--seconds", "3601", &["--seconds: 3601", "0.1 to 3600"]),
        ("--seconds", "nan", &["--seconds", "0.1 to 3600"]),
        ("--seconds", "inf", &["--seconds", "0.1 to 3600"]),
        ("--path", "carrier-pigeon", &["carrier-pigeon", "vf"]),
    ] {
        fails(2, &[&north_south[..], &[flag, value]].concat(), words);
    }
    fails(2, &["lab", "run", "--pattern", "up-down"], &["up-down", "north-south, east-west"]);
    let chain = ["lab", "run", "--pattern", "east-west", "--vms", "1"];
    fails(2, &chain, &["--vms: 1", "east-west", "2 to 8"]);
    fails(2, &["lab", "--seconds", "0"], &["seconds: 0", "0.1 to 3600"]);
    fails(2, &["lab", "scale", "--rounds", "0"], &["--rounds: 0", "1 to 100"]);
    fails(2, &["lab", "ntttcp", "--rounds", "101"], &["rounds: 101", "1 to 100"]);
    fails(2, &["lab", "netperf", "--seconds", "0"], &["seconds: 0", "0.1 to 3600"]);
    fails(
        2,
        &["lab", "hyperv", "--seconds", "1"],
        &["seconds: is no setting of experiment hyperv"],
    );
    fails(2, &["lab", "hyperv", "--rounds", "0"], &["rounds: 0", "1 to 100"]);
    fails(2, &["lab", "vpf", "--path", "sriov"], &["sriov", "vf, vhost, virtio"]);
    fails(2, &["lab", "distance", "--samples", "0"], &["--samples: 0", "1 to 100000"]);
    for cpus in ["0", "0,0", "0,x", "0,1,2"] {
        fails(2, &["lab", "distance", "--cpus", cpus], &["--cpus", "two different CPUs", "0,1"]);
    }
}

#[test]
fn configurations_that_cannot_be_read() {
    let site = Site::new();
    let up = |config: &str, words: &[&str]| fails(2, &["up", "--config", config], words);
    up("/nowhere/shunt.toml", &["/nowhere/shunt.toml", "does not exist", "--config"]);
    up(&site.path("").display().to_string(), &["is a directory"]);
    up(&"x".repeat(5000), &["xxx", "cannot be read"]);
    let long = site.file(&"#".repeat(2 << 20));
    up(&long, &["shunt.toml", "1048576 bytes"]);
}

#[test]
fn configurations_that_are_wrong() {
    let site = Site::new();
    let up = |config: &str, words: &[&str]| fails(2, &["up", "--config", config], words);
    up(&site.file("nic = = 3\n"), &["shunt.toml:1:", "not TOML"]);
    up(
        &site.file("[[nic]]\nname = \"n\"\nkind = \"hard\"\n"),
        &["shunt.toml:3:", "kind", "\"soft\""],
    );
    let huge = site.config(&site.path("run"), &site.path(&"x".repeat(200)), "");
    up(&huge, &["VF 0 of NIC nic0, attachment.socket", "bytes long", "at most 107"]);
    let lanes = "[lanes]\ncpus = [5000]";
    let no_cpu = site.config(&site.path("run"), &site.path("s"), lanes);
    up(&no_cpu, &["cpus", "5000", "0 to 1023"]);
    assert!(!site.path("run").exists(), "a wrong configuration changed something");
}

#[test]
fn a_good_configuration_is_checked_without_being_run() {
    let site = Site::new();
    let config = site.config(&site.path("run"), Path::new("vf0.sock"), "");
    let output = shunt(&["up", "--config", &config, "--check"]);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, format!("{config}: good\n"));
    assert!(!site.path("run").exists(), "the check changed something");
    // The check and the start use one reader, but the check reports all errors.
    fails(2, &["up", "--check", "--config", &site.file("nic = 3")], &["shunt.toml:1:7"]);
}

#[test]
fn a_socket_in_use_is_left_alone() {
    let site = Site::new();
    let socket = site.path("vf0.sock");
    let _listener = UnixListener::bind(&socket).expect("a socket in a temporary directory");
    let config = site.config(&site.path("run"), &socket, "");
    site.does_not_start(&config, &["vf0.sock", "in use", "choose another path"]);
    assert!(socket.exists(), "another process's socket was removed");
}

#[test]
fn a_file_in_the_sockets_place_is_left_alone() {
    let site = Site::new();
    let socket = site.path("precious");
    fs::write(&socket, "data").expect("a file in a temporary directory");
    let config = site.config(&site.path("run"), &socket, "");
    site.does_not_start(&config, &["precious", "not a socket", "choose another path"]);
    assert_eq!(fs::read(&socket).expect("the file is still there"), b"data");
}

#[test]
fn a_missing_directory_of_a_socket_is_named() {
    let site = Site::new();
    let config = site.config(&site.path("run"), &site.path("missing/vf0.sock"), "");
    site.does_not_start(&config, &["missing/vf0.sock", "missing does not exist", "create it"]);
}

#[test]
fn a_run_directory_that_cannot_be_made_is_named() {
    let site = Site::new();
    // Root may write anywhere, but cannot make a directory below a file.
    fs::write(site.path("file"), "").expect("a file in a temporary directory");
    for run_dir in ["file", "file/below"] {
        let config = site.config(&site.path(run_dir), &site.path("s"), "");
        site.does_not_start(&config, &["run_dir", run_dir, "choose another one"]);
    }
}

#[test]
fn a_state_that_cannot_be_stored_is_told_with_file_cause_and_remedy() {
    let site = Site::new();
    // Root, too, cannot write a file in the place of a directory.
    let state_dir = site.path("state");
    fs::create_dir_all(state_dir.join("journal.json.new")).expect("our own directory");
    let more = format!("state_dir = \"{}\"", state_dir.display());
    let config = site.config(&site.path("run"), &site.path("s"), &more);
    let message = format!(
        "shunt: the state could not be stored: cannot write {}/journal.json: Is a directory (os \
         error 21); free disk space or correct the permissions",
        state_dir.display()
    );
    site.does_not_start(&config, &[&message]);
}

#[test]
fn a_cpu_that_is_not_online_is_named() {
    let site = Site::new();
    let config = site.config(&site.path("run"), &site.path("s"), "[lanes]\ncpus = [1023]");
    site.does_not_start(&config, &["lane 0", "CPU 1023 is not online", "choose one of those"]);
    assert!(!site.path("s").exists(), "the socket was left behind");
}

#[test]
fn a_wake_up_latency_that_may_not_be_held_keeps_the_daemon_from_starting() {
    let site = Site::new();
    // An unprivileged user, who must reach the program and write beside it.
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(site.path(""), open).expect("our own directory");
    let program = site.path("shunt");
    // Copied by another process: a file open for writing, here or in another test's child, cannot
    // be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_shunt")).arg(&program).status();
    assert!(copied.expect("cp is there").success());
    let config = site.config(&site.path("run"), &site.path("s"), "[lanes]\ncpu_latency_us = 0");
    let mut command = Command::new(program);
    command.args(["up", "--config", &config]).stdin(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let device = fs::metadata("/dev/cpu_dma_latency");
    if device.as_ref().is_ok_and(|device| device.mode() & 0o002 != 0) {
        return; // all users have permission here
    }
    let output = command.output().expect("shunt was copied for this test");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let why = if device.is_ok() { "no permission to write to" } else { "this machine has no" };
    let cause = "/dev/cpu_dma_latency: ";
    for word in ["cannot apply lanes.cpu_latency_us: ", why, cause, "(os error ", "; "] {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
    assert!(!site.path("s").exists(), "the socket was left behind");
}

#[test]
fn counters_of_no_daemon() {
    let site = Site::new();
    let empty = site.path("").display().to_string();
    let words = ["daemon at ", "does not run", "counters", "--run-dir"];
    fails(1, &["stats", "--run-dir", &empty], &words);
    fs::write(site.path("counters"), "something else").expect("a file");
    fails(1, &["stats", "--run-dir", &empty, "--json"], &["not a counter file"]);
}

#[test]
fn a_daemon_says_when_it_is_ready_is_counted_and_ends_when_told() {
    let site = Site::new();
    let run_dir = site.path("run");
    let config = site.config(&run_dir, Path::new("vf0.sock"), "");
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_shunt"))
        .args(["up", "--config", &config])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("shunt was built for this test");
    let mut line = String::new();
    let mut out = BufReader::new(daemon.stdout.take().expect("it was piped"));
    out.read_line(&mut line).expect("a line, or the end");
    assert_eq!(line, "ready\n");
    assert!(run_dir.join("vf0.sock").exists(), "ready before its socket was there");

    let run_dir_text = run_dir.display().to_string();
    let table = shunt(&["stats", "--run-dir", &run_dir_text]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("nic0/vf0") && table.contains("cycles/frame"), "{table}");
    let json = shunt(&["stats", "--run-dir", &run_dir_text, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("one JSON object");
    assert_eq!(json["ports"][0]["name"], "nic0/vf0");
    assert_eq!(json["daemon_runs"], true);

    let only = shunt(&["stats", "vf0", "--run-dir", &run_dir_text]);
    assert!(String::from_utf8_lossy(&only.stdout).contains("nic0/vf0"));
    let none = shunt(&["stats", "vf9", "--run-dir", &run_dir_text]);
    assert_eq!(none.status.code(), Some(2));
    let told = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(told.contains("did you mean vf0? Write one of nic0/vf0"), "{told}");
    let args =
        ["stats", "--interval", "0.01", "--count", "2", "--json", "--run-dir", &run_dir_text];
    let rates = String::from_utf8(shunt(&args).stdout).expect("UTF-8");
    let rates: Vec<serde_json::Value> =
        rates.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    assert_eq!(rates.len(), 2);
    assert_eq!(rates[1]["ports"][0]["name"], "nic0/vf0");
    assert!(rates[1]["lanes"][0]["load"].is_f64() && rates[1]["seconds"].as_f64() >= Some(0.01));

    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(daemon.wait().expect("it ended").code(), Some(0));
    assert!(!run_dir.join("vf0.sock").exists(), "its socket was left behind");
}

#[test]
fn signals_that_are_no_orders_to_end_leave_a_daemon_running() {
    use rustix::process::Signal;
    let site = Site::new();
    let run_dir = site.path("run");
    let config = site.config(&run_dir, Path::new("vf0.sock"), "");
    let (log, log_path) = (fs::File::create(site.path("log")).expect("a file"), site.path("log"));
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_shunt"))
        .args(["up", "--config", &config])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("shunt was built for this test");
    let mut out = BufReader::new(daemon.stdout.take().expect("it was piped"));
    out.read_line(&mut String::new()).expect("a line, or the end");
    let pid = rustix::process::Pid::from_child(&daemon);
    let ignored = [(Signal::HUP, "SIGHUP"), (Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")];
    for (signal, name) in ignored {
        rustix::process::kill_process(pid, signal).expect("it runs");
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !fs::read_to_string(&log_path).expect("text").contains(&format!("{name} ignored")) {
            assert_eq!(daemon.try_wait().expect("a child"), None, "{name} ended it");
            assert!(std::time::Instant::now() < end, "{name} is not logged");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    rustix::process::kill_process(pid, Signal::PIPE).expect("it runs");
    let run_dir_text = run_dir.display().to_string();
    assert_eq!(shunt(&["nic", "list", "--run-dir", &run_dir_text]).status.code(), Some(0));
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(daemon.wait().expect("it ended").code(), Some(0));
    assert!(!run_dir.join("vf0.sock").exists(), "its socket was left behind");
}

#[test]
fn counters_of_a_daemon_that_was_killed_are_told_apart() {
    let site = Site::new();
    let run_dir = site.path("run");
    let config = site.config(&run_dir, Path::new("vf0.sock"), "");
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_shunt"))
        .args(["up", "--config", &config])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("shunt was built for this test");
    let mut out = BufReader::new(daemon.stdout.take().expect("it was piped"));
    out.read_line(&mut String::new()).expect("a line, or the end");
    let run_dir = run_dir.display().to_string();
    assert_eq!(shunt(&["stats", "--run-dir", &run_dir]).status.code(), Some(0));
    daemon.kill().expect("it runs");
    daemon.wait().expect("it was killed");

    let output = shunt(&["stats", "--run-dir", &run_dir]);
    let (table, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(table.contains("nic0/vf0"), "{table}");
    assert!(said.contains(&format!("daemon at {run_dir} does not run")), "{said}");
    let output = shunt(&["stats", "--run-dir", &run_dir, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(json["daemon_runs"], false);
    assert_eq!(json["ports"][0]["name"], "nic0/vf0");
}

#[test]
fn drop_reasons_and_ring_faults_are_explained() {
    let all = shunt(&["explain"]);
    let all = String::from_utf8(all.stdout).expect("UTF-8");
    for reason in ReasonEntry::all() {
        assert!(all.lines().any(|line| line.starts_with(reason.name)), "{}", reason.name);
        for name in reason.counters().chain([reason.name]) {
            let one = String::from_utf8(shunt(&["explain", name]).stdout).expect("UTF-8");
            for text in [reason.name, reason.meaning, reason.cause, reason.remedy] {
                assert!(one.contains(text), "{name}: {one}");
            }
        }
    }
    let json = shunt(&["explain", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let entries = json.as_array().expect("an array").iter();
    let of_frames = entries.filter(|entry| entry["kind"] != "path");
    assert_eq!(of_frames.count(), ReasonEntry::all().count());
    fails(2, &["explain", "tx_moonbeam"], &["tx_moonbeam", "write one of", "bad_index"]);
}

#[test]
fn every_command_has_help_with_examples() {
    let mut waiting = vec![vec![]];
    let mut seen = Vec::new();
    while let Some(command) = waiting.pop() {
        let output = shunt(&[&command[..], &["--help"]].concat());
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        let name = command.join(" ");
        assert!(output.status.success(), "shunt {name} --help");
        let examples = help.split("\nExample").nth(1);
        let examples = examples.unwrap_or_else(|| panic!("no examples for {name:?}:\n{help}"));
        assert!(examples.contains("\n  shunt "), "no command among the examples:\n{help}");
        for sub in subcommands(&help) {
            waiting.push([&command[..], &[sub.leak()]].concat());
        }
        seen.push(name);
    }
    for command in ["", "up", "stats", "lab", "lab run", "lab scale"] {
        assert!(seen.iter().any(|name| name == command), "{command:?} is not in the help");
    }
    assert!(!seen.iter().any(|name| name == "lab guest"), "guests are not for people");
}

/// Names in the list of commands, without clap's own `help`, which has no examples.
fn subcommands(help: &str) -> Vec<String> {
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let rows = list.lines().take_while(|line| line.starts_with("  "));
    let names = rows.filter(|row| !row.starts_with("   ")).map(|row| row.trim_start());
    let names = names.filter_map(|row| row.split(' ').next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn output_that_cannot_be_written_is_no_file_of_ours() {
    for words in [&["explain"][..], &["lab", "list", "--json"]] {
        let full = fs::File::options().write(true).open("/dev/full").expect("a device of Linux");
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        let output = command.args(words).stdout(full).output().expect("shunt was built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot write to standard output: No space left"), "{said}");
        assert!(said.contains("free space where it goes"), "{said}");
        assert!(!said.contains("choose another directory"), "{said}");
    }
}

#[test]
fn without_a_daemon_message_and_remedy_are_apart() {
    let place = ["adapter", "list", "--run-dir", "/nowhere"];
    let text = "shunt: daemon at /nowhere does not run: its API should be at /nowhere/api.sock: No \
                such file or directory (os error 2); start it, or name its --run-dir";
    fails(1, &place, &[text]);
    let output = shunt(&[&place[..], &["--json"]].concat());
    let told: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    let message = told["errors"][0]["message"].as_str().expect("a text");
    assert!(message.ends_with("No such file or directory (os error 2)"), "{message}");
    assert_eq!(told["errors"][0]["remedy"], "start it, or name its --run-dir");
}

#[test]
fn a_command_tells_that_it_waits_for_a_daemon() {
    let site = Site::new();
    // Accepts connections, and never answers.
    let socket = site.path("api.sock");
    let _silent = UnixListener::bind(&socket).expect("a socket in a temporary directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(["adapter", "list", "--run-dir"]).arg(site.path(""));
    let mut child = command.stderr(Stdio::piped()).spawn().expect("shunt was built");
    let mut line = String::new();
    let mut told = BufReader::new(child.stderr.take().expect("it was piped"));
    told.read_line(&mut line).expect("a line");
    child.kill().expect("our own child");
    child.wait().expect("our own child");
    let place = socket.display();
    assert_eq!(line, format!("shunt: waiting for the daemon at {place}, up to 60 s\n"));
}

#[test]
fn a_check_refuses_directories_that_a_start_could_not_have() {
    let site = Site::new();
    let config = site.path("shunt.toml");
    let name = config.to_str().expect("UTF-8");
    for field in ["run_dir", "state_dir"] {
        let run_dir = format!("run_dir = \"{}\"\n", site.path("run").display());
        let before = if field == "run_dir" { "" } else { &run_dir };
        let text = format!("{before}{field} = \"{name}/below\"\n");
        fs::write(&config, text).expect("a file");
        fails(2, &["up", "--check", "--config", name], &[field, "Not a directory", "choose"]);
        assert!(!site.path("run").exists());
    }
}
