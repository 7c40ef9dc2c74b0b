//! The client against a simulated agent.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;

use serde_json::Value;

use super::*;

/// An agent that first sends an answer for an earlier client. Its commands end at the second query,
/// with this status.
fn agent(listener: UnixListener, status: Value) -> Vec<Value> {
    let (mut stream, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut say = |value: Value| writeln!(stream, "{value}").unwrap();
    say(json!({"return": {"pid": 1}}));
    let mut first = [0];
    lines.read_exact(&mut first).unwrap();
    assert_eq!(first, [0xff], "what was half said is forgotten");
    say(json!({"error": {"class": "GenericError", "desc": "JSON parse error"}}));
    say(json!({"return": 5}));
    let (mut heard, mut looks) = (Vec::new(), 0);
    for line in lines.lines().map_while(Result::ok) {
        let asked: Value = serde_json::from_str(&line).unwrap();
        let value = match asked["execute"].as_str().unwrap() {
            "guest-sync" => asked["arguments"]["id"].clone(),
            "guest-exec" => json!({"pid": 77}),
            "guest-exec-status" => {
                looks += 1;
                if looks < 2 { json!({"exited": false}) } else { status.clone() }
            }
            other => panic!("{other}"),
        };
        say(json!({"return": value, "id": asked["id"]}));
        heard.push(asked);
    }
    heard
}

#[test]
fn a_script_is_run_and_waited_for() {
    for (status, expected) in
        [(json!({"exited": true, "exitcode": 3}), 3), (json!({"exited": true, "signal": 9}), -1)]
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || agent(listener, status));
        let mut client = Agent::connect(&path, Duration::from_secs(20)).unwrap();
        assert_eq!(client.shell("exit 3").unwrap(), expected);
        drop(client);
        let heard = server.join().unwrap();
        let script = json!({"path": "/bin/sh", "arg": ["-c", "exit 3"]});
        assert_eq!(
            (&heard[1]["arguments"], &heard[2]["arguments"]),
            (&script, &json!({"pid": 77}))
        );
    }
}

#[test]
fn a_guest_without_an_agent_is_not_waited_for_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let _listener = UnixListener::bind(&path).unwrap(); // QEMU takes what the guest does not
    let late = Agent::connect(&path, Duration::from_millis(30)).unwrap_err();
    assert!(matches!(&late, QmpError::Late { what, .. } if what == "guest-sync"), "{late}");
}

/// Lines before the answer to `guest-sync` are skipped, since they may be answers to an earlier
/// client; a line without an end is an error.
#[test]
fn an_agent_that_never_ends_its_line_is_left() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (left, is_left) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"rubbish\n[1]\n");
        let bytes = vec![b'x'; 1 << 20];
        let mut sent = 0_usize;
        while stream.write_all(&bytes).is_ok() {
            sent += bytes.len();
        }
        sent
    });
    let client = std::thread::spawn(move || left.send(Agent::connect(&path, PATIENCE).map(drop)));
    let error = is_left.recv_timeout(PATIENCE / 2).expect("it spins").unwrap_err();
    assert!(matches!(error, QmpError::TooLong { .. }), "{error}");
    assert!(error.to_string().contains("without an end of line"), "{error}");
    client.join().unwrap().unwrap();
    let sent = server.join().unwrap();
    assert!(sent < 4 * crate::qmp::MESSAGE_BYTES_MAX, "{sent} bytes were taken");
}
