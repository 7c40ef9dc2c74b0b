//! A daemon serves on when its log cannot be written, or is not read.

mod ready;

use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longest wait; only a bug reaches it.
const WAIT: Duration = Duration::from_secs(60);

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + WAIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A daemon with one VF and an API, in a temporary directory.
struct Daemon {
    dir: tempfile::TempDir,
    child: Child,
}

impl Daemon {
    /// Starts a daemon that logs to `log`, and waits until it is ready.
    fn start(log: impl Into<Stdio>) -> Daemon {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = dir.path().join("shunt.toml");
        let text = format!(
            "run_dir = \"{}\"\n[api]\n[[nic]]\nname = \"nic0\"\nkind = \"soft\"\n\
             [[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment = \"vhost-user:vf0\"\n",
            dir.path().display()
        );
        std::fs::write(&config, text).expect("a file in a temporary directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command
            .args(["up", "--with-parent", "--config"])
            .arg(config)
            .env("SHUNT_LOG", "debug")
            .stderr(log);
        let child = ready::spawn(&mut command, "ready");
        Daemon { dir, child }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Output of a command with the run directory, while the daemon runs.
    fn ask(&mut self, args: &[&str]) -> Output {
        let ended = self.child.try_wait().expect("our own child");
        assert_eq!(ended, None, "the daemon ended");
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command.args(args).arg("--json").arg("--run-dir").arg(self.dir.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut asked = command.spawn().expect("shunt was built");
        // A command that hangs is ended, so that the error is reported.
        until("an answer", || asked.try_wait().expect("our own child").map(|_| ()));
        asked.wait_with_output().expect("our own child")
    }

    fn json(&mut self, args: &[&str]) -> Value {
        let output = self.ask(args);
        assert!(output.status.success(), "{args:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Makes it log at least two lines.
    fn attach_and_leave(&self) {
        drop(UnixStream::connect(self.path("vf0")).expect("its socket"));
    }

    /// Makes it log a line `times` times, at level debug.
    fn disturb(&self, times: usize) {
        for _ in 0..times {
            let mut stream = UnixStream::connect(self.path("api.sock")).expect("its socket");
            let _ = stream.write_all(b"nonsense\r\n\r\n");
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }

    fn dropped(&mut self) -> u64 {
        let stats = self.json(&["stats"]);
        stats["log_lines_dropped"].as_u64().expect("a counter")
    }

    fn end(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        until("the daemon to end", || self.child.try_wait().expect("our own child"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A full pipe, and its reading end.
fn full_pipe() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let size = rustix::pipe::fcntl_getpipe_size(&writer).expect("a pipe has a size");
    writer.write_all(&vec![b'\n'; size]).expect("it fits");
    (reader, writer.into())
}

#[test]
fn a_log_on_a_full_disk_or_without_a_reader_ends_no_daemon() {
    let full = File::options().write(true).open("/dev/full").expect("a device of every Linux");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    for log in [Stdio::from(full), Stdio::from(writer)] {
        let mut daemon = Daemon::start(log);
        daemon.attach_and_leave();
        daemon.disturb(10);
        assert_eq!(daemon.json(&["nic", "list"])[0]["name"], "nic0");
        until("lines to be counted", || (daemon.dropped() >= 12).then_some(()));
        assert_eq!(daemon.end().code(), Some(0));
    }
}

#[test]
fn a_log_reader_that_stands_still_holds_up_nobody_and_is_told_what_it_missed() {
    let (mut reader, log) = full_pipe();
    let mut daemon = Daemon::start(log);
    daemon.attach_and_leave();
    assert_eq!(daemon.json(&["nic", "list"])[0]["name"], "nic0");
    assert_eq!(daemon.dropped(), 0, "what fits waits");
    daemon.disturb(5000);
    let dropped = until("lines to be counted", || Some(daemon.dropped()).filter(|n| *n > 0));
    // The daemon continues, and counts the missing lines.
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    std::thread::sleep(Duration::from_millis(100));
    daemon.attach_and_leave();
    assert_eq!(daemon.end().code(), Some(0));
    let text = reading.join().expect("a thread of this test").expect("UTF-8");
    let notices =
        text.lines().filter_map(|line| line.strip_suffix(NOTICE)?.strip_prefix("shunt: "));
    let told: u64 = notices.map(|lines| lines.parse::<u64>().expect("a number")).sum();
    assert!(told >= dropped, "{told} told, {dropped} counted");
    let end: Vec<&str> = text.lines().rev().take(5).collect();
    assert!(end.iter().any(|line| line.ends_with("stopping")), "the last lines are: {end:?}");
}

const NOTICE: &str =
    " log lines dropped: this log could not be written, or was not read fast enough";

#[test]
fn a_daemon_that_nobody_hears_ends_when_told() {
    let (_reader, log) = full_pipe();
    let mut daemon = Daemon::start(log);
    daemon.attach_and_leave();
    assert_eq!(daemon.end().code(), Some(0));
    assert!(!daemon.path("vf0").exists(), "its socket was left behind");
}

#[test]
fn a_daemon_that_nobody_hears_is_replaced() {
    let (mut reader, log) = full_pipe();
    let mut daemon = Daemon::start(log);
    daemon.attach_and_leave();
    let upgraded = until("guests to have had time to come back", || {
        let output = daemon.ask(&["upgrade"]);
        output.status.success().then_some(output.stdout)
    });
    let upgraded: Value = serde_json::from_slice(&upgraded).expect("JSON");
    let status = until("the old one to end", || daemon.child.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(0));
    // The new daemon logs to the same pipe.
    daemon.attach_and_leave();
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    let pid = upgraded["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32));
    kill_process(pid.expect("its number"), Signal::TERM).expect("it runs");
    let text = reading.join().expect("a thread of this test").expect("UTF-8");
    assert!(text.contains("has taken over from") && text.contains("stopping"), "{text}");
    assert!(!daemon.path("vf0").exists(), "its socket was left behind");
}

#[test]
fn lines_for_the_journal_have_priorities() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let [config, log, token] = ["shunt.toml", "log", "token"].map(|name| dir.path().join(name));
    let (run_dir, missing) = (dir.path().display(), token.display());
    let text = format!(
        "run_dir = \"{run_dir}\"\n[api]\ntcp = \"127.0.0.1:0\"\ntoken_file = \"{missing}\"\n"
    );
    std::fs::write(&config, text).expect("a file in a temporary directory");
    let logged = |is_journal: bool| {
        let file = File::create(&log).expect("a file in a temporary directory");
        let facts = file.metadata().expect("of our own file");
        let stream = format!("{}:{}", facts.dev(), facts.ino() + u64::from(!is_journal));
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command.args(["up", "--config"]).arg(&config).env("JOURNAL_STREAM", stream).stderr(file);
        assert_eq!(command.status().expect("shunt was built").code(), Some(1));
        std::fs::read_to_string(&log).expect("our own file")
    };
    let lines = logged(true);
    let of = |text: &str| lines.lines().find(|line| line.contains(text)).expect(text).to_owned();
    assert!(of("INFO changes are stored").starts_with("<6>20"), "{lines}");
    assert!(of("cannot open the token file").starts_with("<3>shunt: "), "{lines}");
    assert!(!logged(false).contains('<'), "of another stream");
}
