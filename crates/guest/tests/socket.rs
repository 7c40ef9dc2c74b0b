//! The tool against a host simulated by a socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::JoinHandle;

/// Runs the tool on a channel.
fn tool(port: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt-guest"));
    command.arg("--port").arg(port).args(words).output().expect("the tool was built for this test")
}

/// A host that answers the requests of one connection with these in turn, `ID` replaced by the
/// request's number; returns the requests.
fn host(path: &Path, answers: Vec<&'static str>) -> JoinHandle<Vec<String>> {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut requests = Vec::new();
        for answer in answers {
            let request = loop {
                let line = lines.next().unwrap().unwrap();
                if !line.is_empty() {
                    break line;
                }
            };
            let (_, id) = request.rsplit_once("\"id\":").unwrap();
            let answer = answer.replace("ID", id.trim_end_matches('}'));
            writeln!(&stream, "{answer}").unwrap();
            requests.push(request);
        }
        requests
    })
}

#[test]
fn settings_are_one_request_and_strays_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ctl");
    let stray = "rest of an answer}\n{\"v\":1,\"id\":12,\"error\":{\"errno\":1}}\n\n";
    let answer: &'static str =
        Box::leak(format!("{stray}{{\"v\":1,\"id\":ID,\"result\":{{}}}}").into());
    let host = host(&path, vec![answer]);
    let output = tool(&path, &["vf", "3", "vlan", "100", "qos", "3"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
    let requests = host.join().unwrap();
    assert!(
        requests[0].starts_with(r#"{"v":1,"op":"set","vf":3,"vlan":100,"qos":3,"id":"#),
        "{requests:?}"
    );
}

#[test]
fn refusals_have_the_kernels_words_and_exit_code() {
    let refusal = r#"{"v":1,"id":ID,"error":{"errno":1,"name":"EPERM","text":"the host says no"}}"#;
    for (words, told) in [
        (
            vec!["vf", "0", "trust", "on"],
            "shunt-guest: Operation not permitted: the host says no\n",
        ),
        (
            vec!["-j", "vf", "0", "trust", "on"],
            "{\"error\":{\"errno\":1,\"name\":\"EPERM\",\"text\":\"the host says no\"}}\n",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ctl");
        let host = host(&path, vec![refusal]);
        let output = tool(&path, &words);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(String::from_utf8_lossy(&output.stderr), told);
        host.join().unwrap();
    }
}

#[test]
fn a_channel_that_is_not_there_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let output = tool(&dir.path().join("none"), &["vf", "list"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot open"), "{output:?}");
    // One whose host hangs up.
    let path = dir.path().join("ctl");
    let host = host(&path, vec![]);
    let output = tool(&path, &["pf"]);
    assert_eq!(output.status.code(), Some(1));
    host.join().unwrap();
    assert_eq!(tool(&path, &["vf", "x"]).status.code(), Some(2), "a mistake needs no channel");
}
