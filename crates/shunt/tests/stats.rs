//! `shunt stats` and `shunt explain` against a running daemon with a guest that makes mistakes.

mod ready;
mod terminal;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::tcgetattr;
use serde_json::Value;
use testguest::{GUEST_ADDR, HEADER, QueuePair, RX, TX};
use vhost_user::{Features, Frontend, ProtocolFeatures};

/// Timeout for events that must happen; only a bug exceeds it.
const WAIT: Duration = Duration::from_secs(20);

const CONFIG: &str = "
    [[nic]]
    name = \"nic0\"
    kind = \"soft\"
    [[nic.vf]]
    mac = \"02:00:00:00:00:01\"
    attachment = \"vhost-user:vf0\"
";

/// A daemon with one VF; ended with SIGTERM.
struct Daemon {
    dir: tempfile::TempDir,
    child: Child,
}

impl Daemon {
    fn start() -> Daemon {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = dir.path().join("shunt.toml");
        let text = format!("run_dir = \"{}\"\n{CONFIG}", dir.path().display());
        std::fs::write(&config, text).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command.args(["up", "--with-parent", "--config"]).arg(config).stderr(Stdio::null());
        let child = ready::spawn(&mut command, "ready");
        Daemon { dir, child }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn says(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        let output = command.args(words).output().expect("shunt was built for this test");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {told}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    fn stats(&self, words: &[&str]) -> String {
        let run_dir = self.dir.path().to_str().expect("UTF-8");
        self.says(&[&["stats", "--run-dir", run_dir], words].concat())
    }

    /// Waits until the counter of the port's table reaches a number.
    fn wait_for(&self, table: &str, name: &str, number: u64) {
        let end = Instant::now() + WAIT;
        loop {
            let stats: Value = serde_json::from_str(&self.stats(&["--json"])).expect("JSON");
            if stats["ports"][0][table][name] == number {
                return;
            }
            assert!(Instant::now() < end, "no {number} {name}: {stats:#}");
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Connects a guest to the VF's socket, and starts its rings.
fn connect(daemon: &Daemon, pair: &QueuePair) -> Frontend {
    let mut frontend = Frontend::connect(daemon.path("vf0"), WAIT).expect("a socket");
    let features = Features::VERSION_1 | Features::PROTOCOL_FEATURES;
    frontend.negotiate(features.bits(), ProtocolFeatures::SUPPORTED).expect("features");
    frontend.set_memory(&[pair.region()]).expect("memory");
    for index in [RX, TX] {
        frontend.start_ring(index, &pair.ring(index)).expect("a ring");
        frontend.enable_ring(index, true).expect("a ring");
    }
    frontend
}

#[test]
fn drops_and_ring_faults_of_a_guest_are_counted_and_each_name_is_explained() {
    let daemon = Daemon::start();
    let mut pair = QueuePair::new(virtq::Features::empty(), 2048).expect("a guest");
    let _frontend = connect(&daemon, &pair);
    assert!(!daemon.stats(&[]).contains("drop reason"), "nothing to tell yet");

    let mut foreign = [0; 60];
    foreign[..6].fill(0xff);
    foreign[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    pair.post([0; HEADER], &foreign).expect("room");
    pair.post([0; HEADER], &[0; 10]).expect("room");
    pair.flush();
    daemon.wait_for("drops", "tx_spoofed_mac", 1);
    daemon.wait_for("drops", "tx_runt", 1);
    pair.post_at(GUEST_ADDR - 4096, 100).expect("room"); // no memory is there
    pair.flush();
    daemon.wait_for("faults", "tx_outside_memory", 1);

    let text = daemon.stats(&[]);
    assert!(text.contains("drop reason") && text.contains("ring fault"), "{text}");
    for name in ["tx_runt", "tx_spoofed_mac", "tx_outside_memory"] {
        let told: Value =
            serde_json::from_str(&daemon.says(&["explain", name, "--json"])).expect("JSON");
        let kind = if name == "tx_outside_memory" { "fault" } else { "drop" };
        assert_eq!(told["kind"], kind);
        let row = text.lines().find(|line| line.contains(name)).expect("a row");
        assert!(row.ends_with(told["meaning"].as_str().expect("a sentence")), "{row}: {told}");
        let sentences = daemon.says(&["explain", name]);
        for part in ["meaning", "cause", "remedy"] {
            let part = told[part].as_str().expect("a sentence");
            assert!(!part.is_empty() && sentences.contains(part), "{sentences}");
        }
    }
}

#[test]
fn tables_of_counters_fit_terminals_of_80_and_60_columns() {
    let daemon = Daemon::start();
    let run_dir = daemon.dir.path().to_str().expect("UTF-8");
    for line in ["stats", "stats --interval 0.01 --count 1"] {
        let words = line.split(' ').chain(["--run-dir", run_dir]);
        terminal::fits(&words.map(str::to_owned).collect::<Vec<_>>());
    }
}

#[test]
fn rates_for_a_pipe_are_an_object_a_line_and_end_with_their_reader() {
    let daemon = Daemon::start();
    let text = daemon.stats(&["--watch", "0.05", "--count", "2"]);
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert!(line["seconds"].as_f64() >= Some(0.05), "{line}");
        assert_eq!(line["ports"][0]["name"], "nic0/vf0");
        assert_eq!(line["total"]["drops_per_s"], 0.0);
        assert!(line["lanes"][0]["cycles_per_frame"].is_f64(), "{line}");
    }

    // The reader closes after a line, long before the next.
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.arg("stats").arg("--run-dir").arg(daemon.dir.path()).args(["--watch", "0.3"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("shunt was built for this test");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("it was piped"));
    out.read_line(&mut line).expect("a line");
    assert!(line.starts_with('{'), "{line}");
    drop(out);
    let end = Instant::now() + WAIT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            break status;
        }
        assert!(Instant::now() < end, "it goes on without a reader");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{status}");
}

#[test]
fn top_shows_rates_until_q_and_restores_the_terminal() {
    let daemon = Daemon::start();
    let [mut from, end] = terminal::open(80);
    let modes = || tcgetattr(&end).expect("a terminal").local_modes;
    let before = modes();
    let other_end = || end.try_clone().expect("a descriptor");
    let mut child = Command::new(env!("CARGO_BIN_EXE_shunt"))
        .args(["top", "--interval", "0.05", "--run-dir"])
        .arg(daemon.dir.path())
        .env("TERM", "xterm-256color")
        .stdin(other_end())
        .stdout(other_end())
        .spawn()
        .expect("shunt was built for this test");
    let (mut text, mut has_quit) = (String::new(), false);
    let timeout = Timespec::try_from(WAIT).expect("20 s");
    loop {
        let mut fds = [PollFd::new(&from, PollFlags::IN)];
        assert!(poll(&mut fds, Some(&timeout)).expect("it is ours") > 0, "silent: {text:?}");
        let mut part = [0; 4096];
        let length = from.read(&mut part).expect("this test has the other end");
        text += &String::from_utf8_lossy(&part[..length]);
        if !has_quit && text.contains("nic0/vf0") && text.contains("bit/s") {
            assert_ne!(modes(), before, "keys are read at once");
            from.write_all(b"q").expect("room");
            has_quit = true;
        }
        if text.contains("\x1b[?1049l") {
            break;
        }
    }
    assert!(child.wait().expect("it ends").success());
    assert_eq!(modes(), before, "the terminal is as it was");
    for part in ["shunt top", "busy%", "quit", "\x1b[?1049h"] {
        assert!(text.contains(part), "{part}: {text:?}");
    }
}

#[test]
fn top_in_a_pipe_says_where_it_runs() {
    let daemon = Daemon::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.arg("top").arg("--run-dir").arg(daemon.dir.path()).stdin(Stdio::null());
    let output = command.output().expect("shunt was built for this test");
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("no terminal") && told.contains("shunt stats --watch"), "{told}");
}
