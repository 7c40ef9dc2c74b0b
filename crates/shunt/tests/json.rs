//! Shape of `--json` for every command that has it (docs/commands.md), against a running daemon.
//!
//! The commands come from the manual pages, which are made of the command table: a command without
//! a row here fails the test.

mod ready;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Shape of an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    /// An array of flat objects, not empty.
    List,
    /// One object.
    Object,
    /// One object a line, without end: read up to the second line.
    Stream,
    /// No answer: a group of commands, or one that needs what a test does not have.
    Error,
}
use Shape::{Error, List, Object, Stream};

/// Manual page, arguments of a command, shape, and fields of (each object of) the answer. The rows
/// are run in this order with one daemon; `@` is its directory.
const OF_DAEMON: &[(&str, &str, Shape, &[&str])] = &[
    ("shunt-nic", "nic", Error, &[]),
    ("shunt-nic-create", "nic create nic1 --total-vfs 2", Object, &["name", "total_vfs"]),
    ("shunt-nic-set", "nic set nic1 --bridging vepa", Object, &["name", "bridging"]),
    ("shunt-nic-set", "nic set nic1 --num-vfs 2 --dry-run", Object, &["plan", "generation"]),
    ("shunt-apply", "apply -f @/switchdev.toml", Object, &["plan", "kept", "generation"]),
    ("shunt-nic-rules", "nic rules nic2 --add 'vf0 vf1 vlan=5'", Object, &["rule"]),
    ("shunt-nic-rules", "nic rules nic2", List, &["rule", "from", "to", "vlan", "frames"]),
    (
        "shunt-nic-list",
        "nic list",
        List,
        &["name", "num_vfs", "actual_support", "managed", "pci_address"],
    ),
    ("shunt-nic-show", "nic show nic0", Object, &["nic"]),
    ("shunt-nic-boot-files", "nic boot-files nic0", Error, &[]),
    ("shunt-nic-delete", "nic delete nic1", Object, &[]),
    ("shunt-switch", "switch", Error, &[]),
    ("shunt-switch-create", "switch create sw0 --nic nic0 --iov", Object, &["name", "nic"]),
    ("shunt-switch-set", "switch set sw0 --ageing-s 60", Object, &["ageing_s"]),
    ("shunt-switch-list", "switch list", List, &["name", "nic", "iov", "adapters"]),
    ("shunt-switch-show", "switch show sw0", Object, &["switch"]),
    ("shunt-adapter", "adapter", Error, &[]),
    (
        "shunt-adapter-create",
        "adapter create web --switch sw0 --mac 02:00:00:00:00:01 --socket @/web --iov-weight 9",
        Object,
        &["name", "mac", "attachment"],
    ),
    (
        "shunt-adapter-create",
        "adapter create db --switch sw0 --mac 02:00:00:00:00:02 --socket @/db --trunks 5,7",
        Object,
        &["trunks"],
    ),
    ("shunt-adapter-set", "adapter set web --vlan 7", Object, &["vlan"]),
    (
        "shunt-adapter-list",
        "adapter list",
        List,
        &["name", "path", "actual_path", "vlan_id", "trunks", "attachment_kind"],
    ),
    ("shunt-adapter-show", "adapter show web", Object, &["adapter"]),
    ("shunt-vf", "vf", Error, &[]),
    ("shunt-vf-set", "vf set nic0 1 --vlan 5", Object, &["vlan"]),
    ("shunt-vf-show", "vf show nic0 1", Object, &["vlan"]),
    ("shunt-vf-list", "vf list nic0", List, &["index", "enabled", "owner_holder", "vlan_id"]),
    ("shunt-vf-reset", "vf reset nic0 1", Object, &[]),
    ("shunt-switch-port", "switch port sw0 db --isolated on", Object, &["isolated"]),
    ("shunt-switch-acl", "switch acl sw0 db --add count", Object, &["acl"]),
    ("shunt-switch-acl", "switch acl sw0 db", List, &["rule", "action", "frames"]),
    ("shunt-switch-ports", "switch ports sw0", List, &["adapter", "isolated", "rules"]),
    ("shunt-switch-fdb", "switch fdb sw0", List, &["mac", "vlan", "port", "kind", "age_s"]),
    (
        "shunt-switch-tunnel",
        "switch tunnel sw0 far --vni 7 --peers 127.0.0.9 --local 127.0.0.8 --port 47890",
        Object,
        &["name", "vni", "peers"],
    ),
    (
        "shunt-switch-tunnels",
        "switch tunnels sw0",
        List,
        &["name", "vni", "peers", "actual_device_state"],
    ),
    ("shunt-vpf", "vpf vm7 --vfs 2 --nic nic0", Object, &["vpf", "qemu", "notes"]),
    ("shunt-vpf", "vpf", List, &["name", "model", "pf", "vfs"]),
    ("shunt-vpf", "vpf vm7 --remove", Object, &["generation"]),
    // A QEMU is needed; tests/e2e/test_vm.py reads the others.
    ("shunt-vm", "vm", Error, &[]),
    ("shunt-vm-attach", "vm attach web --qmp @/none --primary e1000e", Error, &[]),
    ("shunt-vm-detach", "vm detach web --qmp @/none", Error, &[]),
    ("shunt-vm-status", "vm status web --qmp @/none", Error, &[]),
    ("shunt-vm-xml", "vm xml web --vf 0000:01:10.0", Object, &["xml"]),
    ("shunt-conform", "conform --nic nic0", Error, &[]), // it is no card
    ("shunt-export", "export", Object, &["version", "nic", "switch", "adapter"]),
    ("shunt-apply", "apply -f @/shunt.toml --dry-run", Object, &["plan", "kept", "generation"]),
    ("shunt-apply", "apply -f @/shunt.toml", Object, &["plan", "kept", "generation"]),
    ("shunt-events", "events", List, &["sequence", "time_ms", "kind", "subject", "text"]),
    (
        "shunt-events",
        "events --follow",
        Stream,
        &["sequence", "time_ms", "kind", "subject", "text"],
    ),
    (
        "shunt-trace",
        "trace db --frame 'ffffffffffff 020000000002 0806'",
        Object,
        &["port", "frames"],
    ),
    // Guests are needed; tests/e2e/test_capture.py reads the frames.
    ("shunt-capture", "capture nosuch", Error, &[]),
    ("shunt-stats", "stats", Object, &["ports", "lanes", "daemon_runs"]),
    ("shunt-stats", "stats --watch 0.01", Stream, &["seconds", "total", "ports", "lanes"]),
    ("shunt-stats", "stats --interval 0.01", Stream, &["seconds", "ports", "lanes"]),
    ("shunt-adapter-delete", "adapter delete web", Object, &[]),
    ("shunt-switch-delete", "switch delete sw0", Error, &[]), // it has a port
    // Two QEMUs are needed; tests/e2e/test_migrate.py reads the report.
    ("shunt-migrate", "migrate web --abort --from-qmp @/none --to @/none", Error, &[]),
    ("shunt-upgrade", "upgrade", Object, &["pid", "version"]),
];

/// Commands without `--json`, whose output has a form of its own: a script, files, a drawing, a
/// screen, and a server that answers with lines of JSON.
const WITHOUT: [&str; 6] = [
    "shunt",
    "shunt-completions",
    "shunt-man",
    "shunt-plan-explain",
    "shunt-lab-bare",
    "shunt-top",
];

/// Commands without a daemon, in the same form. `#` is a directory for results, with a
/// configuration file, `%` that of the repository. An experiment may lack something on this
/// machine: then its error has the shape.
const OTHERS: &[(&str, &str, Shape, &[&str])] = &[
    ("shunt-up", "up --config #/none", Error, &[]),
    ("shunt-up", "up --config #/shunt.toml --check", Object, &["config", "good"]),
    ("shunt-explain", "explain", List, &["name", "counters", "meaning", "cause", "remedy"]),
    ("shunt-explain", "explain spoofed_mac", Object, &["name", "counters"]),
    ("shunt-conform", "conform --list", List, &["name", "thread", "promise"]),
    ("shunt-conform", "conform iommu-group", Object, &["tests"]),
    ("shunt-plan", "plan --workload %/docs/chain.toml", Object, &["adapters"]),
    (
        "shunt-plan-predict",
        "plan predict --pattern north-south --path vf --frame 64 --guests 2",
        Object,
        &["mpps", "terms"],
    ),
    ("shunt-plan-validate", "plan validate", Object, &["points"]),
    ("shunt-plan-fleet", "plan fleet --fleet %/docs/fleet.toml", Object, &["plan"]),
    ("shunt-lab", "lab vmdq --rounds 1 --seconds 0.1 --frame 1518 --out #", Object, &["receives"]),
    (
        "shunt-lab-history",
        "lab history --out #/runs",
        List,
        &["started", "experiment", "steps_done", "steps", "directory", "command", "error"],
    ),
    ("shunt-lab-list", "lab list", List, &["name", "paper", "steps", "title"]),
    ("shunt-lab-show", "lab show nfv", Object, &["name", "title", "forward"]),
    ("shunt-lab-show", "lab show --schema results", Object, &["$schema"]),
    ("shunt-doctor", "doctor", Object, &["version", "kernel", "checks", "nics"]),
    ("shunt-lab", "lab nfv --no-such-option", Error, &[]),
    ("shunt-lab-resume", "lab resume #/none", Error, &[]),
    ("shunt-lab-run", "lab run --pattern east-west --seconds 0.1", Object, &["path"]),
    (
        "shunt-lab-throughput",
        "lab throughput --pattern east-west --trial-seconds 0.1 --trials-max 2 --seconds-max 1",
        Object,
        &[],
    ),
    ("shunt-lab-fairness", "lab fairness --guests 4 --seconds 0.1", Object, &["minima"]),
    ("shunt-lab-hostile", "lab hostile --bursts 100", Object, &["faults"]),
    ("shunt-lab-idle", "lab idle --guests 2 --seconds 0.1 --frames 5", Object, &[]),
    ("shunt-lab-path-changes", "lab path-changes --count 5", Object, &[]),
    ("shunt-lab-upgrade", "lab upgrade --count 1 --rate 10000", Object, &[]),
    ("shunt-lab-kill", "lab kill --count 1 --rate 10000", Object, &[]),
    ("shunt-lab-soak", "lab soak --seconds 6 --seed 1", Object, &["causes"]),
    ("shunt-lab-scale", "lab scale --rounds 1 --seconds 0.1", Object, &[]),
    ("shunt-lab-distance", "lab distance --samples 1", Object, &[]),
    ("shunt-lab-compare", "lab compare bare bare --pairs 8 --seconds 0.1", Object, &["ratio"]),
    ("shunt-lab-calibrate", "lab calibrate --rate 10000 --trials 1 --seconds 0.1", Object, &[]),
    (
        "shunt-lab-switches",
        "lab switches --switch shunt,bare --guest lab --pairs 2 --rounds 1 --slot 0.05 \
         --no-hugepages",
        Object,
        &["results"],
    ),
    ("shunt-lab-overhead", "lab overhead --pairs 2 --rounds 1", Object, &["results"]),
    ("shunt-lab-switching", "lab switching --pairs 2 --rounds 1", Object, &["results"]),
];

/// Writes the configuration file of a daemon with one NIC and this run directory.
fn write_config(dir: &Path) -> PathBuf {
    let text = "[[nic]]\nname = \"nic0\"\nkind = \"soft\"\ntotal_vfs = 4\nnum_vfs = 2\n";
    let top = format!("version = 1\nrun_dir = \"{}\"\n", dir.display());
    let config = dir.join("shunt.toml");
    std::fs::write(&config, top + text).expect("a file");
    config
}

/// Writes the results of a run without a measured step: a busy machine may measure none.
fn write_run(out: &Path) {
    let text = report::experiment::Experiment::shipped("vmdq").expect("it is shipped");
    let results = report::Results {
        schema: report::results::SCHEMA,
        version: "0.1.0".into(),
        command: "shunt lab vmdq".into(),
        started: report::Started::now(),
        machine: Value::Null,
        notes: Vec::new(),
        experiment: Some(report::experiment::Experiment::parse(text, &[]).expect("it is right")),
        steps_done: 0,
        ended_early: None,
        points: Vec::new(),
        transfers: Vec::new(),
        receives: Vec::new(),
        copies: Vec::new(),
    };
    report::save(&out.join("run"), &results).expect("a directory");
}

/// A NIC with representors that need no rights, as taps would.
fn write_switchdev(dir: &Path) {
    let mut text = "version = 1\n[[nic]]\nname = \"nic2\"\nmode = \"switchdev\"\n".to_owned();
    text += "total_vfs = 2\nnum_vfs = 2\n";
    for of in ["vf0", "vf1"] {
        let socket = dir.join(format!("rep-{of}")).display().to_string();
        text += &format!("[[nic.representor]]\nof = \"{of}\"\nattachment.socket = \"{socket}\"\n");
    }
    std::fs::write(dir.join("switchdev.toml"), text).expect("a file");
}

/// A daemon with one NIC; ended with SIGTERM.
struct Daemon {
    dir: tempfile::TempDir,
    child: Child,
    /// The process that replaced it.
    successor: Option<Pid>,
}

impl Daemon {
    fn start() -> Daemon {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = write_config(dir.path());
        write_switchdev(dir.path());
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command.args(["up", "--json", "--config"]).arg(config).stderr(Stdio::null());
        let child = ready::spawn(&mut command, "{\"ready\":true}");
        Daemon { dir, child, successor: None }
    }

    fn words(&self, line: &str) -> Vec<String> {
        let mut words = words(&line.replace('@', &self.dir.path().display().to_string()));
        words.push("--json".to_owned());
        words
    }

    fn run(&self, line: &str, run_dir: &Path) -> Output {
        shunt(&self.words(line)).arg("--run-dir").arg(run_dir).output().expect("it was built")
    }

    /// The first two lines of a command that does not end.
    fn stream(&self, line: &str) -> Vec<u8> {
        let mut command = shunt(&self.words(line));
        let child = command.arg("--run-dir").arg(self.dir.path()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("it was built");
        let mut lines = Vec::new();
        let mut out = BufReader::new(child.stdout.take().expect("it was piped"));
        for _ in 0..2 {
            out.read_until(b'\n', &mut lines).expect("a line");
        }
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        lines
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = self.successor.unwrap_or_else(|| Pid::from_child(&self.child));
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.child.wait();
    }
}

fn shunt(words: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(words).stdin(Stdio::null());
    command
}

/// Words between blanks; quoted text in single quotes is one word.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(i, part)| match i % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

/// Asserts that an output has that shape, and returns its first object.
fn check(line: &str, shape: Shape, fields: &[&str], out: &[u8]) -> Value {
    let text = std::str::from_utf8(out).expect("UTF-8");
    assert!(text.ends_with('\n'), "{line}: {text}");
    let parsed = |text: &str| -> Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
    };
    let objects = match shape {
        List => parsed(text).as_array().unwrap_or_else(|| panic!("{line}: {text}")).clone(),
        Object => vec![parsed(text)],
        Stream => text.lines().map(parsed).collect(),
        Error => unreachable!("it has no output"),
    };
    assert!(!objects.is_empty(), "{line}: an empty list shows nothing");
    let names = |object: &Value| -> BTreeSet<String> {
        let object = object.as_object().unwrap_or_else(|| panic!("{line}: {text}"));
        object.keys().cloned().collect()
    };
    for object in &objects {
        for field in fields {
            assert!(names(object).contains(*field), "{line}: no {field}: {object:#}");
        }
        if shape == List {
            assert_eq!(names(object), names(&objects[0]), "{line}: the fields differ");
            for (name, value) in object.as_object().expect("an object") {
                let is_scalar = |value: &Value| !value.is_object() && !value.is_array();
                let array = value.as_array();
                let is_flat = array.map_or(is_scalar(value), |all| all.iter().all(is_scalar));
                assert!(is_flat, "{line}: {name} is not flat: {value}");
            }
        }
    }
    objects[0].clone()
}

/// Fields of each list in docs/commands.md, by command without `shunt`. A word in capitals stands
/// for the fields in its own row.
fn documented_fields() -> BTreeMap<String, BTreeSet<String>> {
    let page = include_str!("../../../docs/commands.md");
    let section = page.split("### Fields of lists").nth(1).expect("the section");
    let block = section.split("```").nth(1).and_then(|block| block.strip_prefix("text\n"));
    let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut row = String::new();
    for line in block.expect("the fields").lines() {
        match line.strip_prefix("  ") {
            None => row = line.to_owned(),
            Some(fields) => rows
                .entry(row.clone())
                .or_default()
                .extend(fields.split_whitespace().map(str::to_owned)),
        }
    }
    let expanded = |field: &String| -> Vec<String> {
        let shared = rows.iter().find_map(|(name, below)| Some((field.strip_suffix(name)?, below)));
        match shared {
            Some((before, below)) => below.iter().map(|field| format!("{before}{field}")).collect(),
            None => vec![field.clone()],
        }
    };
    let lists = rows.iter().filter(|(name, _)| !name.starts_with(|c: char| c.is_uppercase()));
    lists.map(|(name, fields)| (name.clone(), fields.iter().flat_map(expanded).collect())).collect()
}

/// Asserts that a list has the documented fields.
fn check_documented(page: &str, object: &Value) {
    let name = page.trim_start_matches("shunt-").replace('-', " ");
    let found: BTreeSet<String> = object.as_object().expect("an object").keys().cloned().collect();
    assert_eq!(documented_fields().get(&name), Some(&found), "{name} in docs/commands.md");
}

#[test]
fn each_list_is_documented_and_no_other() {
    let rows = OF_DAEMON.iter().chain(OTHERS).filter(|(_, _, shape, _)| *shape == List);
    let lists: BTreeSet<String> =
        rows.map(|(page, ..)| page.trim_start_matches("shunt-").replace('-', " ")).collect();
    assert_eq!(documented_fields().into_keys().collect::<BTreeSet<_>>(), lists);
}

/// Asserts that a command failed, with nothing but errors as JSON in one line.
fn check_error(line: &str, output: &Output) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{line}: {told}");
    assert!(output.stdout.is_empty(), "{line}");
    // Experiments report progress before.
    let last = told.lines().last().unwrap_or_default();
    let body: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{line}: {told}"));
    let errors = body["errors"].as_array().unwrap_or_else(|| panic!("{line}: {told}"));
    assert!(!errors.is_empty(), "{line}: {told}");
    for error in errors {
        for part in ["object", "field", "value", "message", "allowed", "remedy"] {
            assert!(error[part].is_string(), "{line}: no {part}: {told}");
        }
        assert_ne!(error["message"], "", "{line}: {told}");
    }
}

#[test]
fn every_command_has_json_and_a_row_but_for_those_with_another_form() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().to_str().expect("UTF-8");
    let made = shunt(&["man".to_owned(), path.to_owned()]).status().expect("it was built");
    assert!(made.success());
    let mut pages = BTreeSet::new();
    for page in std::fs::read_dir(dir.path()).expect("pages") {
        let page = page.expect("a page").path();
        let name = page.file_stem().expect("a name").to_str().expect("UTF-8").to_owned();
        let has_json = std::fs::read_to_string(&page).expect("text").contains(r"\-\-json\fR");
        assert_eq!(has_json, !WITHOUT.contains(&&*name), "--json of {name}");
        pages.insert(name);
    }
    let rows: BTreeSet<String> = OF_DAEMON
        .iter()
        .chain(OTHERS)
        .map(|(page, ..)| *page)
        .chain(WITHOUT)
        .map(str::to_owned)
        .collect();
    assert!(pages.len() > 50, "{pages:?}");
    assert_eq!(pages, rows);
}

#[test]
fn answers_of_a_daemon_have_the_shape_and_so_have_errors_without_one() {
    let mut daemon = Daemon::start();
    let nowhere = tempfile::tempdir().expect("a temporary directory");
    for (page, line, shape, fields) in OF_DAEMON {
        check_error(line, &daemon.run(line, nowhere.path()));
        let run_dir = daemon.dir.path();
        match shape {
            Error => check_error(line, &daemon.run(line, run_dir)),
            Stream => drop(check(line, Stream, fields, &daemon.stream(line))),
            _ => {
                let output = daemon.run(line, run_dir);
                let told = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{line}: {told}");
                let answer = check(line, *shape, fields, &output.stdout);
                if *shape == List {
                    check_documented(page, &answer);
                }
                if *line == "upgrade" {
                    let pid = answer["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
                    daemon.successor = pid.and_then(Pid::from_raw);
                }
            }
        }
    }
}

#[test]
fn answers_without_a_daemon_have_the_shape() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    write_config(dir.path());
    write_run(&dir.path().join("runs"));
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for (page, line, shape, fields) in OTHERS {
        let line = line.replace('%', repository).replace('#', dir.path().to_str().expect("UTF-8"));
        let words = [words(&line), vec!["--json".to_owned()]].concat();
        let output = shunt(&words).output().expect("it was built");
        if *shape == Error || page.starts_with("shunt-lab") && output.status.code() == Some(1) {
            check_error(&line, &output);
            continue;
        }
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {told}");
        let answer = check(&line, *shape, fields, &output.stdout);
        if *shape == List {
            check_documented(page, &answer);
        }
    }
}
