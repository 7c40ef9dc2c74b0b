//! `shunt trace` against a running daemon: text, JSON, files and errors.

mod ready;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const CONFIG: &str = "
    [[nic]]
    name = \"nic0\"
    kind = \"soft\"
    total_vfs = 2
    num_vfs = 2
    [[switch]]
    name = \"sw0\"
    nic = \"nic0\"
    iov = true
    [[adapter]]
    name = \"web\"
    switch = \"sw0\"
    mac = \"02:00:00:00:00:01\"
    iov_weight = 100
    max_tx_mbps = 100
    attachment = \"vhost-user:web\"
    [[adapter]]
    name = \"db\"
    switch = \"sw0\"
    path = \"synthetic\"
    mac = \"02:00:00:00:00:02\"
    attachment = \"vhost-user:db\"
";
/// Broadcast of adapter `web`.
const ALL: &str = "ffffffffffff 020000000001 0806";

/// A daemon with two adapters; ended with SIGTERM.
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

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command.arg("trace").args(words).arg("--run-dir").arg(self.dir.path());
        command.output().expect("shunt was built for this test")
    }

    fn says(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {told}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Text of an error with exit code 2.
    fn refuses(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Writes a pcap file with these frames.
fn write_pcap(path: &Path, frames: &[&[u8]]) {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    // Magic number of microseconds, version 2.4, zone, accuracy, snap length, Ethernet.
    let mut bytes: Vec<u8> = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for frame in frames {
        let len = frame.len() as u32;
        bytes.extend::<Vec<u8>>(words(&[1, 0, len, len]));
        bytes.extend(*frame);
    }
    std::fs::write(path, bytes).expect("a file");
}

/// Words of a line, between blanks.
fn row(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn a_trace_is_shown_with_stages_limits_and_reasons() {
    let daemon = Daemon::start();
    let text = daemon.says(&["web", "--frame", ALL]);
    let lines: Vec<&str> = text.lines().collect();
    let first = "frame 1: 02:00:00:00:00:01 to ff:ff:ff:ff:ff:ff, type 0x0806, 14 bytes";
    assert_eq!(lines[0], first);
    assert_eq!(row(lines[1]), ["stage", "from", "rule", "result", "detail"]);
    assert!(lines.contains(&"limits of the sender: max_tx_mbps 100"), "{text}");
    for part in [
        "no transmit ring runs",
        "flood to uplink (not attached), the switch, VF 1 (not attached)",
        "is a static address of this port",
        "dropped: rx_down of nic0/db. The receiver has no running receive ring.",
        "remedy: Start the guest",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    let spoofed =
        daemon.says(&["nic0/web", "--frame", "02:00:00:00:00:02:02:00:00:00:00:99:08:00"]);
    let step = spoofed.lines().map(row).find(|row| row.contains(&"spoof"));
    assert_eq!(step.expect("the rule")[..5], ["nic", "nic0/web", "spoof", "check", "spoofed_mac"]);
    assert!(spoofed.contains("dropped: tx_spoofed_mac of nic0/web."), "{spoofed}");
}

#[test]
fn frames_of_a_file_are_traced_in_their_order() {
    let daemon = Daemon::start();
    let file = daemon.dir.path().join("frames.pcap");
    let frame = |last: u8| [&[2, 0, 0, 0, 0, last][..], &[2, 0, 0, 0, 0, 1], &[8, 0]].concat();
    let frames: Vec<Vec<u8>> = (0..200).map(frame).collect();
    write_pcap(&file, &frames.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let file = file.to_str().expect("UTF-8");
    let of = |words: &[&str]| -> Value {
        let words = [&["web", "--json", "--pcap", file], words].concat();
        serde_json::from_str(&daemon.says(&words)).expect("JSON")
    };
    assert_eq!(of(&[])["frames"].as_array().map(Vec::len), Some(64));
    let all = of(&["--count", "1000"]);
    assert_eq!((&all["port"], all["frames"].as_array().unwrap().len()), (&"nic0/web".into(), 200));
    // To the sender itself, to the other adapter, and to an unknown address.
    let drops = |n: usize| all["frames"][n]["drops"][0]["counter"].as_str().unwrap_or("none");
    assert_eq!([drops(1), drops(2)], ["tx_hairpin", "rx_down"]);
    let counters = all["frames"][1]["counters"].as_array().expect("counters");
    let moved: Vec<_> = counters.iter().map(|it| (&it["counter"], &it["by"])).collect();
    let expected = [("tx_frames", 1), ("tx_bytes", 14), ("tx_hairpin", 1)];
    let expected = expected.map(|(name, by)| (Value::from(name), Value::from(by)));
    assert!(moved.into_iter().eq(expected.iter().map(|(name, by)| (name, by))), "{counters:?}");
}

#[test]
fn mistakes_name_the_option_and_what_is_allowed() {
    let daemon = Daemon::start();
    let file = daemon.dir.path().join("shunt.toml");
    let file = file.to_str().expect("UTF-8");
    for (words, parts) in [
        (&["webb", "--frame", ALL][..], &["port webb does not exist", "nic0/web"][..]),
        (&["web", "--frame", "xyz"], &["--frame", "two hexadecimal digits a byte"]),
        (&["web"], &["--frame"]),
        (&["web", "--frame", ALL, "--pcap", file], &["--pcap"]),
        (&["web", "--pcap", file], &["--pcap", "shunt.toml", "name a pcap or pcapng file"]),
        (&["web", "--pcap", "/none"], &["/none", "name a capture"]),
    ] {
        let told = daemon.refuses(words);
        for part in parts {
            assert!(told.contains(part), "{words:?}: no {part} in {told}");
        }
    }
}
