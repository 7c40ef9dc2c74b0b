//! Who may use the API.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use serde_json::json;

use super::super::{Client, ClientError, Listen, Server, Tcp, Token};
use super::{Site, exchange, request};

const TOKEN: &str = "correct-horse-battery";

fn tcp(address: &str) -> Tcp {
    let token = Token::new(TOKEN).unwrap();
    Tcp { address: address.parse().unwrap(), token, tls: None }
}

#[test]
fn the_socket_is_its_owners_alone() {
    let site = Site::new();
    let mode = site.socket().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Runs `act` as nobody, if this process may become that. A thread's user is its own.
fn as_nobody<T: Send>(act: impl FnOnce() -> T + Send) -> Option<T> {
    let nobody = rustix::fs::Uid::from_raw(65534);
    std::thread::scope(|scope| {
        let changed = || rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_ok();
        scope.spawn(move || changed().then(act)).join().unwrap()
    })
}

/// Only root can become somebody else, so elsewhere this tests the mode alone.
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
        assert!(matches!(&asked, Err(ClientError::NotOwner { .. })), "{asked:?}");
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
        // Whoever has no token learns nothing of what there is.
        for line in ["GET /v1/state", "GET /openapi.json", "GET /nothing", "DELETE /v1/state"] {
            let answer = ask(line, &headers);
            assert!(answer.starts_with("HTTP/1.1 401"), "{line} {headers}: {answer}");
            assert!(answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
            assert!(answer.contains("Authorization: Bearer TOKEN") && !answer.contains(TOKEN));
        }
    }
    assert_eq!(site.get("/v1/nics"), json!([]), "the socket needs none");
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
