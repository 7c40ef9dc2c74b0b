//! Messages of a QEMU, and of a guest agent, to their clients.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use host::agent::Agent;
use host::qmp::{EVENTS_MAX, Qmp};
use serde_json::json;

use crate::Reached;
use crate::input::Input;

/// Longer than any input takes: the peer closes at its end.
const TIMEOUT: Duration = Duration::from_secs(10);

struct Socket {
    listener: UnixListener,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

fn socket() -> &'static Socket {
    static SOCKET: OnceLock<Socket> = OnceLock::new();
    SOCKET.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        Socket { listener, path, _dir: dir }
    })
}

/// Runs a client, whose peer writes in a thread of its own, and closes.
fn talk<T>(write: impl FnOnce(UnixStream) + Send, client: impl FnOnce(&Socket) -> T) -> T {
    // A test's threads take turns: the socket is one.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock();
    let socket = socket();
    thread::scope(|scope| {
        scope.spawn(|| write(socket.listener.accept().expect("a client").0));
        client(socket)
    })
}

/// Writes, and reads what the client sends, so that it never waits.
fn finish(mut stream: UnixStream, bytes: &[u8]) {
    // The client may have closed.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

/// `data` is what a QEMU says; two commands are run, and events are taken.
pub(crate) fn qmp(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let is_polite = input.flag();
    let said = data.get(1..).unwrap_or_default();
    let greeting = json!({"QMP": {"version": {}}});
    let hello = format!("{greeting}\n{}\n", json!({"return": {}, "id": 1}));
    let bytes = [if is_polite { hello.as_bytes() } else { b"" }, said].concat();
    talk(
        |stream| finish(stream, &bytes),
        |socket| {
            let mut reached = Reached::default();
            let Ok(mut qmp) = Qmp::connect(&socket.path, TIMEOUT) else {
                reached.add("not connected", 1);
                return reached;
            };
            for command in ["query-status", "migrate"] {
                match qmp.execute(command, json!({"uri": "x"})) {
                    Ok(_) => reached.add("answers", 1),
                    Err(error) if error.is_refusal() => reached.add("refusals", 1),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
            // With all of the input read, only what is kept comes.
            for _ in 0..=EVENTS_MAX {
                match qmp.next_event(Duration::ZERO) {
                    Ok(Some(_)) => reached.add("events", 1),
                    Ok(None) | Err(_) => break,
                }
            }
            reached
        },
    )
}

/// `data` is what a guest agent says, after it answered to the number that separates clients.
pub(crate) fn agent(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let is_polite = input.byte() & 3 != 0;
    let said = data.get(1..).unwrap_or_default();
    let write = |stream: UnixStream| {
        let mut line = Vec::new();
        let mut reader = BufReader::new(&stream);
        let read = reader.read_until(b'\n', &mut line);
        let message = line.strip_prefix(b"\xff").unwrap_or_default();
        let command: serde_json::Value = serde_json::from_slice(message).unwrap_or_default();
        assert!(read.is_ok() && command["execute"] == "guest-sync");
        let answer = format!("{}\n", json!({"return": command["arguments"]["id"]}));
        let answer = if is_polite { answer.as_bytes() } else { b"" };
        finish(stream, &[answer, said].concat());
    };
    talk(write, |socket| {
        let mut reached = Reached::default();
        match Agent::connect(&socket.path, TIMEOUT) {
            Ok(mut agent) => {
                reached.add("connected", 1);
                reached.add("commands", u64::from(agent.shell("true").is_ok()));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        reached
    })
}
