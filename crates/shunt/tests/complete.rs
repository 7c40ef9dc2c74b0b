//! Completion of the command line: what a shell gets for the words that are typed so far.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use api::store::Directory;
use api::{Listen, Manager, Server};
use model::config::socket_path;

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

const STATE: &str = r#"
version = 1
[[nic]]
name = "nic0"
kind = "soft"
total_vfs = 3
[[nic]]
name = "card"
kind = "soft"
total_vfs = 12
[[switch]]
name = "sw0"
nic = "nic0"
[[switch.vxlan]]
name = "far"
vni = 7
peers = ["10.0.0.2"]
[[switch]]
name = "sw1"
nic = "card"
[[adapter]]
name = "web"
switch = "sw0"
mac = "02:00:00:00:00:01"
attachment = "vhost-user:web.sock"
[[adapter]]
name = "db"
switch = "sw1"
mac = "02:00:00:00:00:02"
attachment = "vhost-user:db.sock"
"#;

/// A served API with a state.
struct Site {
    dir: tempfile::TempDir,
    _server: Server,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = Directory::open(&dir.path().join("state")).expect("a state directory");
        let stats = Box::new(|| anyhow::Ok(api::stats::of(Vec::new())));
        let plane = Box::<api::testing::Paper>::default();
        let manager = Manager::open(state, None, plane, stats).expect("a manager");
        let listen = Listen { socket: socket_path(dir.path()), tcp: None };
        let site = Site { _server: Server::start(manager, &listen).expect("an API"), dir };
        std::fs::write(site.path("state.toml"), STATE).expect("a file");
        let done = Command::new(env!("CARGO_BIN_EXE_shunt"))
            .args(["apply", "--yes", "-f"])
            .arg(site.path("state.toml"))
            .env("SHUNT_RUN_DIR", site.dir.path())
            .output()
            .expect("shunt was built for this test");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Completions of the last word, which may be empty, with the daemon in the environment.
    fn completes(&self, line: &str) -> Vec<String> {
        let all = SHELLS.map(|shell| {
            ask(shell, line, &[("SHUNT_RUN_DIR", self.dir.path().to_str().expect("UTF-8"))])
        });
        assert!(all.iter().all(|of| *of == all[0]), "the shells differ: {line}: {all:?}");
        all[0].clone()
    }
}

/// Values that shunt answers to the shell, without descriptions; options only after a dash.
fn ask(shell: &str, line: &str, env: &[(&str, &str)]) -> Vec<String> {
    let words: Vec<&str> = std::iter::once("shunt").chain(line.split(' ')).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_shunt"))
        .arg0("shunt")
        .arg("--")
        .args(&words)
        .env_remove("SHUNT_RUN_DIR")
        .env("SHUNT_COMPLETE", shell)
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .env("_CLAP_IFS", "\n")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("shunt was built for this test");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{shell}: {line}: {errors}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    // fish separates the description by a tab, zsh by a colon that is not escaped.
    let value = |line: &str| {
        let value = line.split('\t').next().unwrap_or_default();
        let plain = value.replace("\\:", "\0");
        let plain =
            if shell == "zsh" { plain.split(':').next().unwrap_or_default() } else { &plain };
        plain.trim_end().replace('\0', ":")
    };
    let mut values: Vec<String> = text.lines().map(value).collect();
    let wants_option = words.last().is_some_and(|word| word.starts_with('-'));
    values.retain(|value| wants_option || !value.starts_with('-'));
    values.sort();
    values
}

#[test]
fn names_of_the_daemon_are_completed() {
    let site = Site::new();
    for (line, values) in [
        ("nic show ", &["card", "nic0"][..]),
        ("nic show n", &["nic0"]),
        ("nic rules ", &["card", "nic0"]),
        ("vf list ", &["card", "nic0"]),
        ("vf show nic0 ", &["0", "1", "2"]),
        ("vf set card 1", &["1", "10", "11"]),
        ("switch show ", &["sw0", "sw1"]),
        ("switch create new --nic ", &["card", "nic0"]),
        ("switch port sw0 ", &["far", "uplink", "web"]),
        ("switch acl sw1 ", &["db", "uplink"]),
        ("switch fdb sw0 --port ", &["far", "uplink", "web"]),
        ("switch tunnel sw0 ", &["far"]),
        ("adapter set ", &["db", "web"]),
        ("adapter set web --vf ", &["0", "1", "2"]),
        ("adapter set web --mirror-to ", &["db", "web"]),
        ("adapter create new --switch ", &["sw0", "sw1"]),
        ("vpf vm --nic ", &["card", "nic0"]),
        ("vm attach ", &["db", "web"]),
        ("vm xml w", &["web"]),
        ("migrate vm --adapter ", &["db", "web"]),
        ("migrate vm --socket ", &["db=", "web="]),
        ("migrate vm --to-switch ", &[]),
        (&*format!("migrate vm --to {} --to-switch ", site.dir.path().display()), &["sw0", "sw1"]),
        (&*format!("migrate vm --to={} --to-nic n", site.dir.path().display()), &["nic0"]),
    ] {
        assert_eq!(site.completes(line), values, "{line}");
    }
}

#[test]
fn the_option_names_the_daemon_and_without_a_daemon_there_are_no_names() {
    let site = Site::new();
    let dir = site.dir.path().display();
    for option in [format!("--run-dir {dir}"), format!("--run-dir={dir}")] {
        let line = format!("adapter {option} show ");
        assert_eq!(ask("bash", &line, &[("SHUNT_RUN_DIR", "/nowhere")]), ["db", "web"], "{line}");
    }
    let none: [&str; 0] = [];
    assert_eq!(ask("bash", "adapter show ", &[("SHUNT_RUN_DIR", "/nowhere")]), none);
}

#[test]
fn commands_and_options_are_completed() {
    let site = Site::new();
    assert_eq!(site.completes("ad"), ["adapter"]);
    assert_eq!(site.completes("adapter s"), ["set", "show"]);
    assert_eq!(site.completes("adapter set web --iov"), ["--iov-weight"]);
}

#[test]
fn words_of_enumerations_are_completed() {
    let site = Site::new();
    for (line, values) in [
        ("adapter set web --path ", &["auto", "synthetic", "vf", "vmq"][..]),
        ("adapter set web --mode ", &["client", "server"]),
        ("adapter set web --spoof-check ", &["off", "on"]),
        ("adapter set web --link-state ", &["auto", "disable", "enable"]),
        ("adapter set web --proto ", &["802.1ad", "802.1q"]),
        ("adapter set web --mirror-direction ", &["both", "rx", "tx"]),
        ("adapter set web --attachment t", &["tap:"]),
        ("nic set nic0 --mode ", &["legacy", "switchdev"]),
        ("nic set nic0 --bridging ", &["isolated", "veb", "vepa"]),
        ("nic set nic0 --uplink x", &["xdp:"]),
        ("nic create new --profile 825", &["82576"]),
        ("vpf vm --model ", &["igb", "virtio"]),
        ("vpf vm --format ", &["args", "libvirt"]),
        ("vpf vm --grant mac,vl", &["mac,vlan"]),
        ("explain spoofed", &["spoofed_mac"]),
        ("explain PortP", &["PortPolicy"]),
        ("adapter set web --attachment-set socket_", &["socket_group=", "socket_mode="]),
        ("lab run --pattern ", &["east-west", "north-south"]),
        ("plan predict --path ", &["kernel", "synthetic", "vf"]),
        ("lab run --path ", &["vf", "vhost", "virtio"]),
        ("lab run --ring p", &["packed", "packed-in-order"]),
        ("lab run --load ", &["closed", "overload"]),
        ("lab throughput --path ", &["vf", "vhost"]),
        ("lab compare bare bare --path ", &["vf", "vhost"]),
        ("lab compare bar", &["bare"]),
        ("lab calibrate --delay t", &["two-valued:"]),
        ("lab --path vf,vh", &["vf,vhost"]),
        ("lab show vm", &["vmdq"]),
        ("lab n", &["netperf", "nfv", "ntttcp"]),
        ("completions z", &["zsh"]),
    ] {
        assert_eq!(site.completes(line), values, "{line}");
    }
}

#[test]
fn each_shell_gets_a_script_that_runs_this_program() {
    let unknown = Command::new(env!("CARGO_BIN_EXE_shunt")).args(["completions", "tcl"]).output();
    assert_eq!(unknown.expect("shunt was built for this test").status.code(), Some(2));
    for shell in SHELLS {
        let output = Command::new(env!("CARGO_BIN_EXE_shunt"))
            .args(["completions", shell])
            .output()
            .expect("shunt was built for this test");
        let script = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(output.status.success() && script.contains("SHUNT_COMPLETE"), "{shell}: {script}");
        assert!(script.contains(env!("CARGO_BIN_EXE_shunt")), "{shell}: {script}");
    }
}

/// bash itself, with the script.
#[test]
fn bash_completes_an_adapter() {
    let site = Site::new();
    let script = "source <(\"$1\" completions bash)
        COMP_WORDS=(shunt adapter show w) COMP_CWORD=3 COMP_TYPE=9
        _clap_complete_shunt shunt w show
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["-c", script, "bash", env!("CARGO_BIN_EXE_shunt")])
        .env("SHUNT_RUN_DIR", site.dir.path())
        .output()
        .expect("bash");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "web\n", "{errors}");
}
