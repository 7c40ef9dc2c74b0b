//! The client against a simulated server, which may be hostile.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use super::*;

const GREETING: &str =
    r#"{"QMP": {"version": {"qemu": {"major": 11, "minor": 1}}, "capabilities": ["oob"]}}"#;
const PATIENCE: Duration = Duration::from_secs(20);

/// A server with one client: `serve` gets its lines and the stream.
struct Fake {
    path: PathBuf,
    server: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

type Lines = std::io::Lines<BufReader<UnixStream>>;

impl Fake {
    fn new(serve: impl FnOnce(Lines, UnixStream) + Send + 'static) -> Fake {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qmp.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            serve(BufReader::new(stream.try_clone().unwrap()).lines(), stream);
        });
        Fake { path, server: Some(server), _dir: dir }
    }

    /// A server that greets and negotiates correctly, and then does as `serve` says.
    fn polite(serve: impl FnOnce(Lines, UnixStream) + Send + 'static) -> Fake {
        Fake::new(move |mut lines, mut stream| {
            writeln!(stream, "{GREETING}").unwrap();
            let hello = command(&mut lines);
            assert_eq!(hello["execute"], "qmp_capabilities");
            answer(&mut stream, &hello, json!({}));
            serve(lines, stream);
        })
    }

    fn connect(&self) -> Qmp {
        Qmp::connect(&self.path, PATIENCE).unwrap()
    }

    fn ends(mut self) {
        self.server.take().unwrap().join().unwrap();
    }
}

fn command(lines: &mut Lines) -> Value {
    serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
}

fn answer(stream: &mut UnixStream, to: &Value, value: Value) {
    writeln!(stream, "{}", json!({"return": value, "id": to["id"]})).unwrap();
}

#[test]
fn commands_have_their_answers_and_events_are_kept_in_order() {
    let fake = Fake::polite(|mut lines, mut stream| {
        let asked = command(&mut lines);
        assert_eq!(asked["execute"], "query-status");
        assert!(asked.get("arguments").is_none());
        writeln!(stream, r#"{{"event": "STOP", "timestamp": {{}}}}"#).unwrap();
        // The answer to a command that timed out, then ours in two pieces.
        writeln!(stream, r#"{{"return": {{"old": true}}, "id": 77}}"#).unwrap();
        let text = format!("{}\r\n", json!({"return": {"status": "running"}, "id": asked["id"]}));
        stream.write_all(&text.as_bytes()[..9]).unwrap();
        stream.write_all(&text.as_bytes()[9..]).unwrap();
        let asked = command(&mut lines);
        assert_eq!(asked["arguments"], json!({"uri": "unix:/x"}));
        writeln!(stream, r#"{{"event": "MIGRATION", "data": {{"status": "setup"}}}}"#).unwrap();
        answer(&mut stream, &asked, json!({}));
    });
    let mut qmp = fake.connect();
    assert_eq!(qmp.path(), fake.path);
    let status = qmp.execute("query-status", Value::Null).unwrap();
    assert_eq!(status, json!({"status": "running"}));
    assert_eq!(qmp.execute("migrate", json!({"uri": "unix:/x"})).unwrap(), json!({}));
    let mut names = Vec::new();
    while let Ok(Some(event)) = qmp.next_event(PATIENCE) {
        names.push((event.name, event.data["status"].clone()));
    }
    let stop = ("STOP".to_owned(), Value::Null);
    assert_eq!(names, [stop, ("MIGRATION".to_owned(), json!("setup"))]);
    fake.ends();
}

#[test]
fn a_refusal_says_what_qemu_says_and_the_connection_goes_on() {
    let fake = Fake::polite(|mut lines, mut stream| {
        let asked = command(&mut lines);
        let error = json!({"class": "GenericError", "desc": "There's a migration process"});
        writeln!(stream, "{}", json!({"error": error, "id": asked["id"]})).unwrap();
        let asked = command(&mut lines);
        answer(&mut stream, &asked, json!([1]));
    });
    let mut qmp = fake.connect();
    let refused = qmp.execute("migrate", json!({"uri": "x"})).unwrap_err();
    assert!(refused.is_refusal());
    let text = refused.to_string();
    assert_eq!(text, "QEMU refuses migrate: There's a migration process (GenericError)");
    assert_eq!(qmp.execute("query-pci", Value::Null).unwrap(), json!([1]));
    fake.ends();
}

#[test]
fn who_does_not_answer_is_not_waited_for_without_end() {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let fake = Fake::polite(move |mut lines, _stream| {
        command(&mut lines);
        let _ = wait.recv();
    });
    let mut qmp = fake.connect();
    assert_eq!(qmp.next_event(Duration::from_millis(5)).unwrap(), None);
    qmp.timeout = Duration::from_millis(30);
    let late = qmp.execute("stop", Value::Null).unwrap_err();
    assert!(matches!(&late, QmpError::Late { what, .. } if what == "stop"), "{late}");
    assert!(!late.is_refusal());
    drop(done);
    fake.ends();
}

#[test]
fn a_qemu_that_ends_is_told_as_that() {
    let fake = Fake::polite(|mut lines, _stream| drop(command(&mut lines)));
    let mut qmp = fake.connect();
    let closed = qmp.execute("cont", Value::Null).unwrap_err();
    assert!(matches!(&closed, QmpError::Closed(what) if what == "cont"), "{closed}");
    assert!(qmp.next_event(PATIENCE).is_err());
    assert!(qmp.execute("cont", Value::Null).is_err(), "it stays gone");
    fake.ends();
}

#[test]
fn what_is_no_qmp_server_is_told_as_that() {
    for (said, why) in [
        ("SSH-2.0-OpenSSH\n", "no JSON object"),
        ("[1]\n", "no JSON object"),
        ("{\"hello\": 1}\n", "greets in another way"),
    ] {
        let fake = Fake::new(move |_, mut stream| stream.write_all(said.as_bytes()).unwrap());
        let wrong = Qmp::connect(&fake.path, PATIENCE).unwrap_err();
        assert!(
            matches!(&wrong, QmpError::NotQmp { why: told, .. } if told.contains(why)),
            "{wrong}"
        );
        fake.ends();
    }
    let fake = Fake::polite(|mut lines, mut stream| {
        let asked = command(&mut lines);
        writeln!(stream, "{}", json!({"id": asked["id"]})).unwrap();
    });
    let wrong = fake.connect().execute("cont", Value::Null).unwrap_err();
    assert!(matches!(&wrong, QmpError::NotQmp { .. }), "{wrong}");
    fake.ends();
    let absent = Qmp::connect(Path::new("/nowhere/qmp.sock"), PATIENCE).unwrap_err();
    assert!(absent.to_string().contains("-qmp unix:/nowhere/qmp.sock,server=on"), "{absent}");
}

#[test]
fn neither_a_message_nor_events_fill_the_memory() {
    const LARGE: usize = EVENT_BYTES_MAX / 4;
    let fake = Fake::polite(|mut lines, mut stream| {
        let asked = command(&mut lines);
        for number in 0..EVENTS_MAX + 3 {
            writeln!(stream, "{}", json!({"event": format!("E{number}")})).unwrap();
        }
        answer(&mut stream, &asked, json!({}));
        let asked = command(&mut lines);
        for number in 0..8 {
            let data = "x".repeat(LARGE);
            writeln!(stream, "{}", json!({"event": format!("L{number}"), "data": data})).unwrap();
        }
        answer(&mut stream, &asked, json!({}));
        let asked = command(&mut lines);
        let data = "x".repeat(2 * EVENT_BYTES_MAX);
        writeln!(stream, "{}", json!({"event": "HUGE", "data": data})).unwrap();
        answer(&mut stream, &asked, json!({}));
        command(&mut lines);
        let endless = vec![b'x'; 1 << 20];
        while stream.write_all(&endless).is_ok() {}
    });
    let mut qmp = fake.connect();
    qmp.execute("query-status", Value::Null).unwrap();
    assert_eq!(qmp.events_lost(), 3);
    assert_eq!(qmp.next_event(PATIENCE).unwrap().unwrap().name, "E3");
    qmp.execute("query-status", Value::Null).unwrap();
    let kept: usize = qmp.events.iter().map(|(event, _)| event.data.to_string().len()).sum();
    assert!(kept <= EVENT_BYTES_MAX, "{kept} bytes are kept");
    let last = qmp.events.back().map(|(event, _)| event.name.clone());
    assert_eq!(last.as_deref(), Some("L7"), "the latest stay");
    qmp.execute("query-status", Value::Null).unwrap();
    assert_eq!((qmp.events.len(), qmp.event_bytes), (0, 0), "one that never fits is lost, too");
    assert_eq!(qmp.events_lost(), 3 + EVENTS_MAX as u64 - 1 + 8 + 1);
    let endless = qmp.execute("query-status", Value::Null).unwrap_err();
    assert!(matches!(endless, QmpError::TooLong { .. }), "{endless}");
    assert_eq!(qmp.input.capacity(), 0);
    let after = [qmp.execute("cont", Value::Null).map(drop), qmp.next_event(PATIENCE).map(drop)];
    assert!(after.iter().all(|one| matches!(one, Err(QmpError::Closed(_)))), "{after:?}");
    fake.ends();
}

#[test]
fn only_who_is_certainly_not_there_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp.sock");
    let absent = || Qmp::connect(&path, Duration::from_millis(30)).unwrap_err();
    assert!(absent().is_absence());
    let listener = UnixListener::bind(&path).unwrap();
    let silent = absent(); // as one that hangs, or has another client
    assert!(matches!(silent, QmpError::Late { .. }) && !silent.is_absence(), "{silent}");
    drop(listener);
    assert!(absent().is_absence(), "the file is there, and nothing listens");
}
