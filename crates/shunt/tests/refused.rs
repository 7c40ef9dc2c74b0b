//! Wrong inputs of every kind: files, requests and command lines.
//!
//! Each is refused with object, field, value, allowed values and remedy, from which the text and
//! the JSON are made. The exit code is 2, and nothing changes.

mod ready;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use api::store::Directory;
use api::{Client, ClientError, Listen, Manager, Method, Server};
use model::config::socket_path;
use model::state::{Problem, Problems};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Values in the document of [`Site::new`]: a pointer and the value put there. Below each: object |
/// field | value | allowed | remedy; of several mistakes, the first.
const DOCUMENTS: &str = include_str!("refused/documents.txt");

/// Commands, in the same form.
const COMMANDS: &str = include_str!("refused/commands.txt");

/// Commands for a daemon with a data plane, in the same form; `@` is its run directory.
const RUNNING: &str = include_str!("refused/running.txt");

/// The NIC's VFs in the file of that daemon; the second is free.
const VF: &str = "
    total_vfs = 2
    [[nic.vf]]
    mac = \"02:00:00:00:00:09\"
    attachment = \"vhost-user:vf0.sock\"
";

/// A daemon's API with a NIC, a switch and two adapters.
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
        let server = Server::start(manager, &listen).expect("an API");
        let site = Site { dir, _server: server };
        let document = json!({
            "version": 1,
            "nic": [{"name": "nic0", "total_vfs": 4, "num_vfs": 2,
                "uplink": {"socket": "/run/shunt/wire.sock"}}],
            "switch": [{"name": "sw0", "nic": "nic0", "iov": true}],
            "adapter": [
                {"name": "db", "switch": "sw0", "mac": "02:00:00:00:00:02", "iov_weight": 0,
                    "attachment": "vhost-user:/run/db.sock"},
                {"name": "web", "switch": "sw0", "mac": "02:00:00:00:00:01", "iov_weight": 9,
                    "attachment": "vhost-user:/run/web.sock"},
            ],
        });
        let client = Client::new(&socket_path(site.dir.path()));
        client.send(Method::POST, "/v1/apply", Some(&document), None).expect("it is right");
        site
    }

    fn run(&self, words: &[&str]) -> Output {
        run(self.dir.path(), words)
    }

    fn export(&self) -> Value {
        let output = self.run(&["export", "--json"]);
        serde_json::from_slice(&output.stdout).expect("the state")
    }

    fn refuses(&self, words: &[&str]) -> Problems {
        refuses(self.dir.path(), words)
    }
}

/// Runs a command for the daemon with this run directory.
fn run(run_dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(words).stdin(Stdio::null());
    if !["lab", "plan"].contains(&words[0]) {
        command.arg("--run-dir").arg(run_dir);
    }
    command.output().expect("shunt was built for this test")
}

/// The problems of a command that is refused: the same as text and as JSON, with code 2.
fn refuses(run_dir: &Path, words: &[&str]) -> Problems {
    let output = run(run_dir, &[words, &["--json"]].concat());
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{words:?}: {told}");
    assert!(output.stdout.is_empty(), "{words:?}");
    let problems: Problems =
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{words:?}: {error}: {told}"));
    let output = run(run_dir, words);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
    let first = problems.problems.first().expect("at least one").to_string();
    let clap = text.strip_prefix("error: ").unwrap_or(&text);
    assert!(clap.starts_with(&first), "{words:?}: {text} is not {first}");
    problems
}

/// The inputs of a table, each with its expected problem.
fn rows(table: &str) -> Vec<(&str, &str)> {
    let lines: Vec<&str> = table.lines().filter(|line| !line.starts_with('#')).collect();
    lines.chunks(2).map(|pair| (pair[0], pair[1].trim())).collect()
}

/// The first problem, in the form of the tables.
fn shown(problems: &Problems) -> String {
    let Problem { object, field, value, allowed, remedy, .. } = &problems.problems[0];
    [object, field, value, allowed, remedy]
        .map(|part| if part.is_empty() { "-" } else { part })
        .join(" | ")
}

/// The document with the value at the pointer, or without the field for null.
fn with(mut document: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let fields = document.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
    match value {
        Value::Null => drop(fields.remove(name)),
        value => drop(fields.insert(name.to_owned(), value)),
    }
    document
}

/// Compares a table with the results; on a difference prints the whole table as it would be.
fn matches(table: &str, results: &[(&str, String)]) {
    let all: String =
        results.iter().map(|(input, told)| format!("{input}\n    {told}\n")).collect();
    let expected: String = rows(table).iter().map(|(a, b)| format!("{a}\n    {b}\n")).collect();
    let wrong: Vec<&str> =
        all.lines().zip(expected.lines()).filter(|(is, was)| is != was).map(|(is, _)| is).collect();
    assert!(wrong.is_empty(), "the results:\n{all}\ndifferent are:\n{}", wrong.join("\n"));
}

#[test]
fn a_wrong_document_is_refused_with_the_same_structure_from_a_file_and_over_the_api() {
    let site = Site::new();
    let before = site.export();
    let client = Client::new(&socket_path(site.dir.path()));
    let file = site.dir.path().join("state.toml");
    let name = file.to_str().expect("UTF-8");
    let mut results = Vec::new();
    for (input, _) in rows(DOCUMENTS) {
        let (pointer, value) = input.split_once(' ').expect("a pointer and a value");
        let value = serde_json::from_str(value).expect("JSON");
        let document = with(before.clone(), pointer, value);
        let sent = client.send(Method::POST, "/v1/apply", Some(&document), None);
        let Err(ClientError::Refused(refusal)) = sent else { panic!("{input}: {sent:?}") };
        assert!([409, 422].contains(&refusal.status), "{input}: {refusal:?}");
        fs::write(&file, toml::to_string(&document).expect("TOML")).expect("a file");
        let told = site.refuses(&["apply", "-f", name]);
        let of_file = &told.problems[0];
        assert!(of_file.file == name && of_file.line > 0, "{input}: {of_file:?}");
        // The order is that of the file's lines, and TOML has tables instead of objects.
        let same = |one: &Problem| {
            let of_api = refusal.body.problems.iter();
            of_api
                .map(|it| (&it.object, &it.field, &it.value))
                .any(|it| it == (&one.object, &one.field, &one.value))
        };
        assert!(told.problems.iter().all(same), "{input}: {told:?}\n{refusal:?}");
        for problem in &told.problems {
            assert!(
                !problem.message.is_empty() && !problem.to_string().contains("[0]"),
                "{problem}"
            );
        }
        results.push((input, shown(&told)));
    }
    matches(DOCUMENTS, &results);
    assert_eq!(site.export(), before);
}

#[test]
fn a_wrong_command_line_is_refused_with_the_same_structure() {
    let site = Site::new();
    let before = site.export();
    let results: Vec<_> = rows(COMMANDS)
        .into_iter()
        .map(|(line, _)| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (line, shown(&site.refuses(&words)))
        })
        .collect();
    matches(COMMANDS, &results);
    assert_eq!(site.export(), before);
}

/// Mistakes that only a daemon with a data plane finds.
#[test]
fn a_running_daemon_refuses_with_the_same_structure() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let text = format!("run_dir = \"{}\"\n[[nic]]\nname = \"nic0\"\nkind = \"soft\"\n", path(""));
    fs::write(path("shunt.toml"), text + VF).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(["up", "--config", &path("shunt.toml")]).stderr(Stdio::null());
    let mut daemon = ready::spawn(&mut command, "ready");
    let results: Vec<_> = rows(RUNNING)
        .into_iter()
        .map(|(line, _)| {
            let given = line.replace('@', dir.path().to_str().expect("UTF-8"));
            let told = refuses(dir.path(), &given.split(' ').collect::<Vec<_>>());
            (line, shown(&told).replace(dir.path().to_str().expect("UTF-8"), "@"))
        })
        .collect();
    let still_runs = daemon.try_wait();
    kill_process(Pid::from_child(&daemon), Signal::TERM).expect("it runs");
    daemon.wait().expect("our own child");
    matches(RUNNING, &results);
    assert_eq!(still_runs.expect("our own child"), None, "it was neither ended nor replaced");
}

/// Commands of a daemon, each with the arguments that it requires.
const OF_DAEMON: [&str; 12] = [
    "adapter list",
    "nic set nic0 --num-vfs 1",
    "vf list nic0",
    "switch delete sw0",
    "switch acl sw0 web --clear",
    "vpf",
    "export",
    "events",
    "stats",
    "stats --interval 1",
    "stats --watch",
    "upgrade",
];

#[test]
fn an_error_of_a_daemon_that_does_not_run_has_object_message_and_remedy() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for line in OF_DAEMON {
        let words: Vec<&str> = line.split(' ').chain(["--json"]).collect();
        let output = run(dir.path(), &words);
        let told = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{line}: {told}");
        let problems: Problems =
            serde_json::from_str(&told).unwrap_or_else(|error| panic!("{line}: {error}: {told}"));
        let Problem { object, message, remedy, .. } = &problems.problems[0];
        assert_eq!(*object, format!("daemon at {}", dir.path().display()), "{line}: {told}");
        assert!(message.starts_with("does not run"), "{line}: {told}");
        assert_eq!(remedy, "start it, or name its --run-dir", "{line}");
    }
}

#[test]
fn the_tables_have_a_hundred_wrong_inputs_and_more() {
    assert!(rows(DOCUMENTS).len() + rows(COMMANDS).len() >= 100);
}
