//! Requests that are malformed, too large, too many or too slow: a clear 4xx, and the API goes on.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use model::testing::document;
use serde_json::json;

use super::super::MAX_BODY_BYTES;
use super::{Site, null, request};

/// A document that is allowed.
const LEAST: &str = r#"{"version": 1, "nic": [{"name": "n", "total_vfs": 0}]}"#;

/// The status of an answer and its body.
fn parsed(answer: &str) -> (u16, serde_json::Value) {
    let status = answer.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{answer}: {error}")))
}

#[test]
fn malformed_bodies_are_400_and_say_where() {
    let site = Site::new();
    let deep = "[".repeat(100_000);
    for body in ["", "{", "nonsense", "{\"nic\": [}", "\u{0}", "{} {}", deep.as_str()] {
        let (status, body) = parsed(&site.raw(&request("PUT /v1/state", "", body)));
        assert_eq!(status, 400, "{body}");
        assert!(
            body["errors"][0]["message"].as_str().unwrap().starts_with("the body is not JSON:"),
            "{body}"
        );
    }
    assert_eq!(site.get("/v1/nics"), json!([]));
}

#[test]
fn a_key_that_is_there_twice_is_400_and_changes_nothing() {
    let site = Site::new();
    site.apply(document());
    for (body, object, field) in [
        (r#"{"version": 1, "nic": [], "nic": []}"#, "", "nic"),
        (r#"{"version": 1, "nic": [{"mtu": 1, "mtu": 2, "name": "b"}]}"#, "NIC b", "mtu"),
    ] {
        for path in ["PUT /v1/state", "POST /v1/apply", "POST /v1/apply?dry_run=true"] {
            let (status, answer) = parsed(&site.raw(&request(path, "", body)));
            let error = &answer["errors"][0];
            assert_eq!(status, 400, "{error}");
            assert_eq!((&error["object"], &error["field"]), (&json!(object), &json!(field)));
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with("is there twice, the second time at line 1"), "{error}");
            assert_eq!(error["remedy"], "keep one of them");
        }
    }
    assert_eq!(site.get("/v1/nics").as_array().unwrap().len(), 1);
}

#[test]
fn bodies_that_are_too_large_are_413() {
    let site = Site::new();
    let blanks = " ".repeat(MAX_BODY_BYTES + 1);
    let (status, body) = parsed(&site.raw(&request("PUT /v1/state", "", &blanks)));
    assert_eq!(status, 413);
    assert!(body["errors"][0]["remedy"].as_str().unwrap().contains("1048576 bytes"), "{body}");
    // The most that is allowed, and of an unknown length.
    let most = format!("{LEAST}{}", " ".repeat(MAX_BODY_BYTES - LEAST.len()));
    assert_eq!(parsed(&site.raw(&request("PUT /v1/state", "", &most))).0, 200);
    let endless = format!(
        "PUT /v1/state HTTP/1.1\r\nHost: shunt\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{blanks}\r\n",
        blanks.len()
    );
    assert_eq!(parsed(&site.raw(endless.as_bytes())).0, 413);
}

#[test]
fn other_media_and_odd_headers_are_refused() {
    let site = Site::new();
    let put = |headers: &str| parsed(&site.raw(&request("PUT /v1/state", headers, LEAST)));
    assert_eq!(put("Content-Type: text/plain\r\n").0, 415);
    assert_eq!(put("Content-Type: application/json; charset=utf-8\r\n").0, 200);
    for tag in ["5", "\"x\"", "W/\"5\"", "\"5\", \"6\"", ""] {
        let (status, body) = put(&format!("If-Match: {tag}\r\n"));
        assert_eq!(status, 400, "{tag}");
        assert!(body["errors"][0]["remedy"].as_str().unwrap().contains("\"5\""), "{body}");
    }
    assert_eq!(put("If-Match: \"7\"\r\n").0, 412);
    assert_eq!(put("If-Match: *\r\n").0, 200);
}

#[test]
fn parameters_are_obeyed_or_refused_never_ignored() {
    let site = Site::new();
    for (method, path, says) in [
        ("POST", "/v1/apply?dryrun=true", "this path takes dry_run"),
        ("POST", "/v1/apply?dry_run=yes", "write true or false"),
        ("POST", "/v1/apply?dry_run", "write true or false"),
        ("GET", "/v1/events?since=-1", "write a whole number from 0"),
        ("GET", "/v1/events?since=+1", "write a whole number from 0"),
        ("GET", "/v1/state?since=1", "leave it out"),
        ("DELETE", "/v1/adapters/x?owner=me", "write a whole number from 0"),
        ("DELETE", "/v1/nics/x?owner=1", "this path takes dry_run"),
    ] {
        let refusal = site.refuses(400, method, path, json!({}));
        assert!(refusal.first().remedy.contains(says), "{method} {path}: {refusal:?}");
    }
}

#[test]
fn what_is_no_http_at_all_ends_that_connection_only() {
    let site = Site::new();
    for bytes in
        [&b"\x16\x03\x01\x02\x00"[..], b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", &[b'x'; 1 << 20]]
    {
        let answer = site.raw(bytes);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let headers = "X: y\r\n".repeat(10_000);
    let answer = site.raw(&request("GET /v1/state", &headers, ""));
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(site.get("/v1/nics"), json!([]));
}

#[test]
fn half_a_request_holds_up_nobody() {
    let site = Site::new();
    let mut halves: Vec<UnixStream> = Vec::new();
    for half in
        ["GET /v1/st", "PUT /v1/state HTTP/1.1\r\nHost: shunt\r\nContent-Length: 100\r\n\r\n{"]
    {
        let mut stream = UnixStream::connect(site.socket()).unwrap();
        stream.write_all(half.as_bytes()).unwrap();
        halves.push(stream);
    }
    assert_eq!(site.get("/v1/nics"), json!([]));
    // One that breaks off is refused, and has changed nothing.
    let mut broken = halves.pop().unwrap();
    broken.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    let _ = broken.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(site.does("GET", "/v1/state", null()).generation, Some(0));
}

#[test]
fn connections_beyond_the_limit_wait_and_are_served() {
    let site = Site::new();
    let idle: Vec<UnixStream> =
        (0..70).map(|_| UnixStream::connect(site.socket()).unwrap()).collect();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| site.get("/v1/nics"));
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(idle);
        assert_eq!(waits.join().unwrap(), json!([]));
    });
}
