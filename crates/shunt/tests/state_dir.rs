//! Changes by commands survive a restart of the daemon.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A configuration with directories of its own, one of which is for the state.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        Site::with(
            "[[nic]]\nname = \"nic0\"\nkind = \"soft\"\n\
             [[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment = \"vhost-user:vf0\"\n",
        )
    }

    /// A configuration with these objects.
    fn with(objects: &str) -> Site {
        let site = Site { dir: tempfile::tempdir().expect("a temporary directory") };
        let (run, state) = (site.path("run"), site.path("state"));
        let text = format!("run_dir = {run:?}\nstate_dir = {state:?}\n{objects}");
        std::fs::write(site.path("shunt.toml"), text).expect("a file");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command.args(args).stdin(Stdio::null());
        command.env("SHUNT_RUN_DIR", self.path("run"));
        command
    }

    /// Starts a daemon, and waits until it is ready. Its log is in the file `log`.
    fn up(&self) -> Child {
        let config = self.path("shunt.toml");
        let log = std::fs::File::create(self.path("log")).expect("a file");
        let mut child = self
            .command(&["up", "--with-parent", "--config", config.to_str().expect("UTF-8")])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("shunt was built for this test");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("it was piped"));
        out.read_line(&mut line).expect("a line, or the end");
        assert_eq!(line, "ready\n", "{}", self.log());
        child
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).expect("a log")
    }

    /// Standard output and standard error of a command that succeeds.
    fn says(&self, args: &[&str]) -> (String, String) {
        let output = self.command(args).output().expect("shunt was built");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let (out, errors) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "{args:?}: {errors}");
        (out, errors)
    }

    fn vlan(&self) -> Value {
        let document: Value =
            serde_json::from_str(&self.says(&["export", "--json"]).0).expect("JSON");
        document["nic"][0]["vf"][0]["vlan"].clone()
    }
}

fn stop(mut daemon: Child) {
    let pid = Pid::from_child(&daemon);
    kill_process(pid, Signal::TERM).expect("our own child");
    assert!(daemon.wait().expect("our own child").success());
}

fn set_vlan(site: &Site) -> String {
    site.says(&["vf", "set", "nic0", "0", "--vlan", "7"]).1
}

#[test]
fn a_change_is_stored_in_the_state_directory() {
    let site = Site::new();
    let daemon = site.up();
    assert_eq!(site.vlan(), Value::Null);
    assert_eq!(set_vlan(&site), "", "no warning");
    stop(daemon);
    assert!(site.path("state/state.json").exists());
    assert!(!site.path("run/state").exists());
    let daemon = site.up();
    assert_ne!(site.vlan(), Value::Null);
    stop(daemon);
}

#[test]
fn a_stored_state_that_overrides_objects_of_the_file_is_in_the_log_and_no_other() {
    let warning = "the stored state is in force";
    let site = Site::new();
    let daemon = site.up();
    set_vlan(&site);
    stop(daemon);
    let daemon = site.up();
    assert!(site.log().contains(warning), "{}", site.log());
    stop(daemon);
    let site = Site::with("");
    let daemon = site.up();
    site.says(&["nic", "create", "nic0", "--total-vfs", "1"]);
    stop(daemon);
    let daemon = site.up();
    assert!(site.says(&["nic", "list"]).0.contains("nic0"));
    assert!(!site.log().contains(warning), "{}", site.log());
    stop(daemon);
}

#[test]
fn a_mirror_file_that_cannot_be_created_is_refused_with_the_systems_reason() {
    let site = Site::new();
    let daemon = site.up();
    let args = ["vf", "set", "nic0", "0", "--mirror-file", "/proc/shunt.pcapng"];
    let output = site.command(&args).output().expect("shunt was built");
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("\"/proc/shunt.pcapng\" cannot be created"), "{told}");
    assert!(told.contains("No such file or directory"), "{told}");
    stop(daemon);
}
