//! Requests for captures, and what is wrong with them. The data plane of these tests has no ports;
//! `tests/e2e/test_capture.py` has.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use super::super::{Tcp, Token};
use super::{Site, null};

#[test]
fn a_wrong_request_for_a_capture_names_field_value_and_what_is_allowed() {
    let site = Site::new();
    let of = |filter: &str| json!({"ports": ["web"], "filter": filter});
    for (status, body, parts) in [
        (422, json!({}), &["ports", "is empty", "set dropped"][..]),
        (422, json!({"ports": vec!["web"; 65]}), &["ports", "65", "at most 64"]),
        (422, json!({"ports": ["web"], "snap_len": 15}), &["snap_len", "15", "16 to 262144"]),
        (422, of("tcp port http"), &["filter", "column 10", "no port", "docs/capture.md"]),
        (422, of(""), &["filter", "a term is missing"]),
        (404, json!({"ports": ["web"]}), &["port web", "does not exist"]),
        (400, json!({"ports": ["web"], "direction": "up"}), &["unknown variant `up`"]),
        (400, json!({"port": "web"}), &["unknown field `port`"]),
        (400, json!(7), &["no request for a capture"]),
    ] {
        let told = site.refuses(status, "POST", "/v1/capture", body).body.to_string();
        for part in parts {
            assert!(told.contains(part), "no {part} in {told}");
        }
    }
    site.refuses(405, "GET", "/v1/capture", null());
}

#[test]
fn over_tcp_a_capture_needs_the_token_though_reading_does_not() {
    let token = Token::new("correct-horse-battery").unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let site = Site::with_tcp(Some(Tcp { address, token, tls: None, public_read: true }));
    let address = site.server.as_ref().unwrap().tcp_address().unwrap();
    let ask = |line: &str, body: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let len = body.len();
        write!(stream, "{line} HTTP/1.1\r\nHost: shunt\r\nContent-Length: {len}\r\n\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("GET /v1/stats", "").starts_with("HTTP/1.1 200"));
    let answer = ask("POST /v1/capture", r#"{"dropped": true}"#);
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}
