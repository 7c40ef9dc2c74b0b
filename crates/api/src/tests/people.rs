//! Access control of the API.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::{Client, ClientError, Listen, Server, Tcp, Token};
use super::{Site, eventually_in, exchange, request};

const TOKEN: &str = "correct-horse-battery";

fn tcp(address: &str) -> Tcp {
    let token = Token::new(TOKEN).unwrap();
    Tcp { address: address.parse().unwrap(), token, tls: None, public_read: false }
}

#[test]
fn the_socket_is_its_owners_alone() {
    let site = Site::new();
    let mode = site.socket().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Runs `act` as user nobody, if this process may change its user. A thread has a user of its own.
fn as_nobody<T: Send>(act: impl FnOnce() -> T + Send) -> Option<T> {
    let nobody = rustix::fs::Uid::from_raw(65534);
    std::thread::scope(|scope| {
        let changed = || rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_ok();
        scope.spawn(move || changed().then(act)).join().unwrap()
    })
}

/// Only root can become another user; otherwise this tests the mode alone.
#[test]
fn another_user_gets_no_answer_not_even_past_the_mode() {
    let site = Site::new();
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    open(site.dir.path(), 0o755);
    let socket = site.socket();
    let client = Client::new(&socket);
    let asked = as_nobody(|| client.send(hyper::Method::GET, "/v1/state", None, None));
    if let Some(asked) = asked {
        assert!(matches!(&asked, Err(ClientError::NotOwner(_))), "{asked:?}");
        assert!(asked.unwrap_err().to_string().contains("run this as the daemon's user"));
        open(&socket, 0o666);
        let answer = as_nobody(|| site.raw(&request("GET /v1/state", "", "")));
        assert_eq!(answer.as_deref(), Some(""), "closed without a word");
    }
    assert_eq!(site.get("/v1/nics"), json!([]));
}

#[test]
fn over_tcp_every_request_shows_the_token() {
    let site = Site::with_tcp(Some(tcp("127.0.0.1:0")));
    let address = site.server.as_ref().unwrap().tcp_address().unwrap();
    let ask = |line: &str, headers: &str| {
        exchange(TcpStream::connect(address).unwrap(), &request(line, headers, ""))
    };
    let good = format!("Authorization: Bearer {TOKEN}\r\n");
    assert!(ask("GET /v1/state", &good).starts_with("HTTP/1.1 200"));
    let lower = format!("authorization: bearer {TOKEN}\r\n");
    assert!(ask("GET /v1/state", &lower).starts_with("HTTP/1.1 200"));
    for headers in [
        String::new(),
        "Authorization: Bearer \r\n".to_owned(),
        "Authorization: Bearer wrong-horse-battery\r\n".to_owned(),
        format!("Authorization: Bearer {TOKEN}x\r\n"),
        format!("Authorization: Bearer {}\r\n", &TOKEN[1..]),
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("Authorization: {TOKEN}\r\n"),
    ] {
        // A client without the token learns nothing about existing objects.
        for line in ["GET /v1/state", "GET /openapi.json", "GET /nothing", "DELETE /v1/state"] {
            let answer = ask(line, &headers);
            assert!(answer.starts_with("HTTP/1.1 401"), "{line} {headers}: {answer}");
            assert!(answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
            assert!(answer.contains("Authorization: Bearer TOKEN") && !answer.contains(TOKEN));
        }
    }
    assert_eq!(site.get("/v1/nics"), json!([]), "the socket needs none");
}

/// Reads one answer of a connection that stays.
fn answer(stream: &mut TcpStream) -> String {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
        text.extend(byte);
    }
    let head = String::from_utf8(text).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    head
}

fn ask(stream: &mut TcpStream, headers: &str) -> String {
    let request = format!("GET /v1/nics HTTP/1.1\r\nHost: shunt\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    answer(stream)
}

#[test]
fn over_tcp_who_has_no_token_gets_one_answer_and_no_connection() {
    let site = Site::with_tcp(Some(tcp("127.0.0.1:0")));
    let address = site.server.as_ref().unwrap().tcp_address().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let good = format!("Authorization: Bearer {TOKEN}\r\n");
    for _ in 0..2 {
        assert!(ask(&mut stream, &good).starts_with("http/1.1 200"));
    }
    let refused = ask(&mut stream, "");
    assert!(refused.starts_with("http/1.1 401"), "{refused}");
    assert!(refused.contains("connection: close"), "{refused}");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is closed");
}

/// Connections that say nothing, half a request, or one without a token: more than there is room
/// for.
#[test]
fn over_tcp_who_has_no_token_keeps_nobody_out_who_has_it() {
    let site = Site::with_tcp(Some(tcp("127.0.0.1:0")));
    let address = site.server.as_ref().unwrap().tcp_address().unwrap();
    let good = format!("Authorization: Bearer {TOKEN}\r\n");
    let connect = || {
        let stream = TcpStream::connect(address).unwrap();
        // Half of what strangers had once.
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream
    };
    let mut before = connect();
    assert!(ask(&mut before, &good).starts_with("http/1.1 200"));
    let begun = Instant::now();
    let mut strangers: Vec<TcpStream> = (0..100)
        .map(|n| {
            let mut stream = connect();
            let half = ["", "GET /v1/st", "GET /v1/state HTTP/1.1\r\nHost: shunt\r\nX: "][n % 3];
            stream.write_all(half.as_bytes()).unwrap();
            stream
        })
        .collect();
    let mut after = connect();
    assert!(ask(&mut after, &good).starts_with("http/1.1 200"));
    assert!(ask(&mut before, &good).starts_with("http/1.1 200"), "who is known stays");
    let ended = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).unwrap();
        !stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    let open = strangers.iter_mut().filter_map(|stream| (!ended(stream)).then_some(()));
    let open = open.count();
    if begun.elapsed() < Duration::from_secs(2) {
        assert!((1..=62).contains(&open), "the oldest made room, and no more: {open} are left");
    }
    // Without new connections the others end too.
    eventually_in(Duration::from_secs(6), "strangers end", || strangers.iter_mut().all(ended));
    assert!(ask(&mut after, &good).starts_with("http/1.1 200"), "who is known stays");
}

#[test]
fn a_token_is_not_sent_in_the_clear() {
    let site = Site::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Site { dir: elsewhere, plane: site.plane.clone(), server: None };
    let listen = Listen { socket: other.socket(), tcp: Some(tcp("0.0.0.0:0")) };
    let told = Server::start(other.manager().unwrap(), &listen).unwrap_err().to_string();
    assert!(told.contains("in the clear; configure TLS, or use 127.0.0.1"), "{told}");
}

#[test]
fn a_socket_in_use_is_left_and_a_stale_one_is_taken() {
    let mut site = Site::new();
    let listen = Listen { socket: site.socket(), tcp: None };
    let elsewhere = Site::new();
    drop(site.server.take());
    assert!(!site.socket().exists(), "the socket goes with the server");

    let used = UnixListener::bind(site.socket()).unwrap();
    let told = Server::start(site.manager().unwrap(), &listen).unwrap_err().to_string();
    assert!(told.contains("is in use"), "{told}");
    assert!(UnixStream::connect(site.socket()).is_ok(), "and was left alone");
    drop(used);
    site.start(None);
    assert_eq!(site.get("/v1/nics"), elsewhere.get("/v1/nics"));
}

#[test]
fn without_a_daemon_the_client_says_where_it_looked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    let told = Client::new(&path).send(hyper::Method::GET, "/v1/state", None, None).unwrap_err();
    assert!(!told.is_mistake());
    let told = told.to_string();
    assert!(told.contains(path.to_str().unwrap()) && told.contains("--run-dir"), "{told}");
}
