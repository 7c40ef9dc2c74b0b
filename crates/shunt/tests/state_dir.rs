//! Changes by commands survive a restart of the daemon.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A user with directories of its own, and a configuration without `run_dir` and `state_dir`.
struct User {
    dir: tempfile::TempDir,
}

impl User {
    fn new() -> User {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let text = "[[nic]]\nname = \"nic0\"\nkind = \"soft\"\n\
                    [[nic.vf]]\nmac = \"02:00:00:00:00:01\"\nattachment = \"vhost-user:vf0\"\n";
        let user = User { dir };
        std::fs::write(user.path("shunt.toml"), text).expect("a file");
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command.args(args).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", self.dir.path()).env("XDG_STATE_HOME", self.path("state"));
        command.env("SHUNT_RUN_DIR", self.path("shunt")); // another daemon may run
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

fn set_vlan(user: &User) -> String {
    user.says(&["vf", "set", "nic0", "0", "--vlan", "7"]).1
}

#[test]
fn a_change_is_stored_in_the_users_state_directory() {
    let user = User::new();
    let daemon = user.up();
    assert_eq!(user.vlan(), Value::Null);
    assert_eq!(set_vlan(&user), "", "no warning");
    stop(daemon);
    assert!(user.path("state/shunt/state.json").exists());
    assert!(!user.path("shunt/state").exists());
    let daemon = user.up();
    assert_ne!(user.vlan(), Value::Null);
    stop(daemon);
}

#[test]
fn without_a_writable_directory_log_and_answers_have_a_warning() {
    let user = User::new();
    std::fs::write(user.path("state"), "").expect("a file in its place");
    let daemon = user.up();
    let warning = format!(
        "changes survive a restart of the daemon, but no reboot: cannot create the state directory {}: \
         Not a directory",
        user.path("state/shunt").display()
    );
    assert!(user.log().contains(&warning), "{}", user.log());
    let told = set_vlan(&user);
    assert!(told.starts_with(&format!("warning: {warning}")), "{told}");
    assert!(told.contains("set state_dir"), "{told}");
    assert_eq!(user.says(&["export"]).1, "", "a query has no warning");
    assert_eq!(user.says(&["vf", "set", "nic0", "0", "--vlan", "8", "--dry-run"]).1, "");
    stop(daemon);
    let daemon = user.up();
    assert_ne!(user.vlan(), Value::Null, "a restart");
    stop(daemon);
    assert!(user.path("shunt/state/state.json").exists());
}

#[test]
fn a_stored_state_that_overrides_objects_of_the_file_is_in_the_log_and_no_other() {
    let warning = "the stored state is in force";
    let user = User::new();
    let daemon = user.up();
    set_vlan(&user);
    stop(daemon);
    let daemon = user.up();
    assert!(user.log().contains(warning), "{}", user.log());
    stop(daemon);
    let user = User::new();
    std::fs::write(user.path("shunt.toml"), "").expect("a file without objects");
    let daemon = user.up();
    user.says(&["nic", "create", "nic0", "--total-vfs", "1"]);
    stop(daemon);
    let daemon = user.up();
    assert!(user.says(&["nic", "list"]).0.contains("nic0"));
    assert!(!user.log().contains(warning), "{}", user.log());
    stop(daemon);
}

#[test]
fn a_mirror_file_that_cannot_be_created_is_refused_with_the_systems_reason() {
    let user = User::new();
    let daemon = user.up();
    let args = ["vf", "set", "nic0", "0", "--mirror-file", "/proc/shunt.pcapng"];
    let output = user.command(&args).output().expect("shunt was built");
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("\"/proc/shunt.pcapng\" cannot be created"), "{told}");
    assert!(told.contains("No such file or directory"), "{told}");
    stop(daemon);
}
