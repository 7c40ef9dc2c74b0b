//! Conformance suite in a running daemon: its adapters keep their frames and settings.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use conform::soft::SoftNic;
use conform::subject::{AdapterLocation, ManagerRequest, NicSetup, Subject};
use conform::{Interrupt, TestResult};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::broken::{Broken, Fault};
use super::{FAULTS, NOT_APPLICABLE, SHUNT};

const ADDRESSES: [&str; 2] = ["02:00:00:00:00:0a", "02:00:00:00:00:0b"];
/// Time limit for an event that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user's daemon with two adapters, `web` on a VF and `db` on the switch, and their guests.
struct User {
    nic: SoftNic,
    sent: u64,
    received: u64,
}

impl User {
    fn new() -> User {
        let mut nic = SoftNic::new(Path::new(SHUNT), Interrupt::default());
        nic.begin(&NicSetup::with_switch(2)).unwrap();
        for (name, mac, path) in [("web", ADDRESSES[0], "vf"), ("db", ADDRESSES[1], "synthetic")] {
            let settings = json!({"mac": mac, "path": path, "iov_weight": 50});
            let (name, location) = (name.to_owned(), AdapterLocation::Switch);
            let add = ManagerRequest::Add { name, location, settings, guest_first: false };
            nic.change(&add).unwrap().unwrap();
        }
        ["web", "db"].iter().for_each(|name| nic.attach(name).unwrap());
        User { nic, sent: 0, received: 0 }
    }

    /// Sends 32 frames each way, which must arrive in order.
    fn exchange(&mut self) {
        let mac = |text: &str| text.parse::<wire::Mac>().unwrap().0;
        for (from, to, other) in [(0, 1, "db"), (1, 0, "web")] {
            let station = ["web", "db"][from];
            let frame = |number: u64| {
                let mut frame = [mac(ADDRESSES[to]), mac(ADDRESSES[from])].concat();
                frame.extend([0x88, 0xb5]);
                frame.extend(number.to_be_bytes());
                frame.resize(60, 0);
                frame
            };
            let frames: Vec<Vec<u8>> = (self.sent..self.sent + 32).map(frame).collect();
            self.nic.send(station, &frames).unwrap();
            self.sent += 32;
            self.nic.settle().unwrap();
            for (station, arrived) in self.nic.take().unwrap() {
                if station == other {
                    assert_eq!(arrived, frames, "at {station}");
                    self.received += arrived.len() as u64;
                } else {
                    assert!(arrived.is_empty(), "{} frames at {station}", arrived.len());
                }
            }
        }
    }

    /// The document, and the objects in force.
    fn state(&mut self) -> (Value, String) {
        let in_force = self.nic.in_force().unwrap();
        let (actual, owners) = (in_force.actual, in_force.owners);
        (self.nic.document().unwrap(), format!("{actual:#?}\n{owners:#?}"))
    }

    /// Adds an adapter on the switch.
    fn add_adapter(&mut self, name: &str) {
        let settings = json!({"mac": "02:00:00:00:00:0c"});
        let (name, location) = (name.to_owned(), AdapterLocation::Switch);
        let add = ManagerRequest::Add { name, location, settings, guest_first: false };
        self.nic.change(&add).unwrap().unwrap();
    }

    fn start(&mut self, args: &[&str]) -> Child {
        let run_dir = self.nic.run_dir().unwrap();
        let mut command = Command::new(SHUNT);
        command.arg("conform").arg("--run-dir").arg(run_dir).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("shunt was built for this test")
    }

    /// Waits until a run has an adapter in the daemon.
    fn wait_for_an_adapter(&mut self) {
        let begun = Instant::now();
        let has_one = |state: &Value| {
            let adapters = state["adapter"].as_array().unwrap();
            adapters.iter().any(|one| one["name"].as_str().unwrap().starts_with("conform-"))
        };
        while !has_one(&self.nic.document().unwrap()) {
            assert!(begun.elapsed() < PATIENCE, "no adapter of the run");
        }
    }

    fn files(&mut self) -> Vec<String> {
        let entries = std::fs::read_dir(self.nic.run_dir().unwrap()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("conform-")).collect()
    }
}

fn adapter_of<'d>(document: &'d Value, name: &str) -> &'d Value {
    let adapters = document["adapter"].as_array().unwrap();
    adapters.iter().find(|adapter| adapter["name"] == name).expect("the adapter is there")
}

#[test]
fn adapters_of_a_running_daemon_lose_no_frame_and_no_setting() {
    let mut user = User::new();
    let before = user.state();
    let mut child = user.start(&["--json"]);
    while child.try_wait().unwrap().is_none() {
        user.exchange();
    }
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tests = report["tests"].as_array().unwrap();
    assert_eq!(tests.len(), conform::tests().count());
    let failed: Vec<_> = tests.iter().filter(|test| test["result"] == "fail").collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let not_run = tests.iter().filter(|test| test["result"] == "n/a");
    for test in not_run.clone() {
        let name = test["name"].as_str().unwrap();
        let why = test["detail"].as_str().unwrap();
        let is_the_users = ["it would restart", "the daemon's devices"];
        let is_expected = is_the_users.iter().any(|reason| why.starts_with(reason));
        assert!(is_expected || NOT_APPLICABLE.contains(&name), "{test}");
    }
    println!(
        "{} frames sent, {} received; {} tests not run",
        user.sent,
        user.received,
        not_run.count()
    );
    assert!(user.sent > 0 && user.received == user.sent);
    assert_eq!(user.state(), before);
    assert_eq!(user.files(), [""; 0]);
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let mut user = User::new();
    let before = user.state();
    let child = user.start(&[]);
    user.wait_for_an_adapter();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted after"), "{said}");
    assert_eq!(user.state(), before);
    assert_eq!(user.files(), [""; 0]);
}

#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    let mut user = User::new();
    let before = user.state();
    let mut child = user.start(&[]);
    user.wait_for_an_adapter();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(user.state(), before);
    // Another program's, with a name as of the killed run.
    user.add_adapter("conform-0-other");
    let others = adapter_of(&user.nic.document().unwrap(), "conform-0-other").clone();
    let output = user.start(&["vlan-gone"]).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document = user.nic.document().unwrap();
    assert_eq!(adapter_of(&document, "conform-0-other"), &others);
    let name = "conform-0-other".to_owned();
    user.nic.change(&ManagerRequest::Remove { name, owner: None }).unwrap().unwrap();
    assert_eq!(user.state(), before);
    assert_eq!(user.files(), [""; 0]);
    user.exchange();
}

#[test]
fn an_object_of_the_user_is_never_taken_for_one_of_a_run() {
    let mut user = User::new();
    user.add_adapter("conform-0-a"); // as an adapter of the first run
    let before = user.state();
    let run_dir = user.nic.run_dir().unwrap();
    let mut nic = SoftNic::running_in(&run_dir, Interrupt::default()).unwrap();
    let report = conform::run(&mut nic, |test| test.name == "vlan-gone-after-release", |_| {});
    assert_eq!(report.count(TestResult::Pass), 1, "{report:#?}");
    nic.finish().unwrap();
    assert_eq!(user.state(), before);
}

#[test]
fn a_broken_property_of_a_running_daemon_is_found() {
    let mut user = User::new();
    let before = user.state();
    let run_dir = user.nic.run_dir().unwrap();
    let mut found = 0;
    for fault in [Fault::NeverChecks, Fault::StripsTags, Fault::KeepsAdapters, Fault::Doubles] {
        let (_, names) = FAULTS.iter().find(|(one, _)| *one == fault).unwrap();
        let run = |subject: &mut dyn Subject| {
            conform::run(subject, |test| names.contains(&test.name), |_| {})
        };
        let nic = || SoftNic::running_in(&run_dir, Interrupt::default()).unwrap();
        let whole = run(&mut nic());
        assert_eq!(whole.count(TestResult::Fail), 0, "{whole:#?}");
        let broken = run(&mut Broken::new(nic(), fault));
        let failed = broken.count(TestResult::Fail);
        assert!(failed > 0 && failed == whole.count(TestResult::Pass), "{fault:?}: {broken:#?}");
        found += failed;
        assert_eq!(user.state(), before, "after {fault:?}");
    }
    println!("{found} tests found the faults");
    user.exchange();
}

#[test]
fn without_a_daemon_no_test_is_run_and_nothing_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(SHUNT);
    let output = command.args(["conform", "--run-dir"]).arg(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(dir.path().to_str().unwrap()), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
