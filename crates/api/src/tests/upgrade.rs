//! Orders to have another process take over.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use std::time::{Duration, Instant};

use model::state::{Problem, Problems};
use serde_json::json;

use super::super::{Tcp, Token, UpgradeOrder, Upgraded};
use super::{Site, request};

fn failed(message: &str) -> Problems {
    Problem::new("", (), message, "").into()
}

/// Installs a hot-restart function with this result; returns the orders it gets.
fn answer(site: &Site, answer: Result<Upgraded, Problems>) -> Arc<Mutex<Vec<UpgradeOrder>>> {
    let orders = Arc::new(Mutex::new(Vec::new()));
    let heard = orders.clone();
    let server = site.server.as_ref().unwrap();
    server.manager().lock().unwrap().on_upgrade(Box::new(move |order| {
        heard.lock().unwrap().push(order);
        answer.clone()
    }));
    orders
}

#[test]
fn a_refusal_is_told_and_noted_and_changes_nothing() {
    let site = Site::new();
    let order = json!({"binary": "/opt/shunt"});
    let refused = site.refuses(409, "POST", "/v1/upgrade", order.clone());
    assert!(refused.first().message.contains("cannot be replaced"), "{refused:?}");
    let orders = answer(&site, Err(failed("it was silent for too long")));
    let refusal = site.refuses(409, "POST", "/v1/upgrade", order);
    assert_eq!(refusal.first().message, "it was silent for too long");
    let events = site.get("/v1/events");
    let last = events["events"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["kind"], &last["text"]),
        (&json!("upgrade"), &json!(refusal.first().message))
    );
    for odd in [json!({"program": "/opt/shunt"}), json!(7), json!({"binary": 7})] {
        site.refuses(400, "POST", "/v1/upgrade", odd);
    }
    let orders = orders.lock().unwrap();
    let us = rustix::process::geteuid().as_raw();
    assert_eq!(orders.len(), 1, "nothing odd got through");
    assert_eq!(orders[0].binary, Some(PathBuf::from("/opt/shunt")));
    assert_eq!((orders[0].user, orders[0].generation), (Some(us), 0), "who asks is known");
}

#[test]
fn a_daemon_that_was_replaced_says_so_and_does_nothing_more() {
    let site = Site::new();
    let (version, binary) = ("9.9".to_owned(), "/usr/bin/shunt".to_owned());
    let done = Upgraded {
        pid: 7,
        version,
        binary,
        silent_us: 400,
        release_us: 100,
        transfer_us: 100,
        attach_us: 200,
        total_ms: 12,
    };
    let orders = answer(&site, Ok(done.clone()));
    let reply = site.does("POST", "/v1/upgrade", json!({}));
    assert_eq!(serde_json::from_value::<Upgraded>(reply.body).unwrap(), done);
    assert_eq!(orders.lock().unwrap()[0].binary, None);
    // A request that the client would repeat.
    let late = site.raw(&request("GET /v1/state", "", ""));
    assert!(late.starts_with("HTTP/1.1 421 "), "{late}");
    let late = site.raw(&request("POST /v1/upgrade", "", "{}"));
    assert!(late.starts_with("HTTP/1.1 421 "), "{late}");
    assert_eq!(orders.lock().unwrap().len(), 1);
}

#[test]
fn nobody_upgrades_over_tcp() {
    let token = "correct-horse-battery";
    let address = "127.0.0.1:0".parse().unwrap();
    let tcp = Tcp { address, token: Token::new(token).unwrap(), tls: None, public_read: false };
    let site = Site::with_tcp(Some(tcp));
    let orders = answer(&site, Err(failed("")));
    let address = site.server.as_ref().unwrap().tcp_address().unwrap();
    let header = format!("Authorization: Bearer {token}\r\n");
    let stream = std::net::TcpStream::connect(address).unwrap();
    let told = super::exchange(stream, &request("POST /v1/upgrade", &header, "{}"));
    assert!(told.starts_with("HTTP/1.1 403 ") && told.contains("UNIX socket"), "{told}");
    assert!(orders.lock().unwrap().is_empty());
}

/// Frames that wait for a guest would be lost with the process.
#[test]
fn a_daemon_is_not_replaced_while_a_guest_moves() {
    let site = Site::new();
    site.apply(model::testing::document());
    let orders = answer(&site, Err(failed("it was asked")));
    let step = |step: &str| {
        let body = json!({"id": "m1", "step": step});
        site.does("POST", "/v1/adapters/web/move", body);
    };
    step("leave");
    let refusal = site.refuses(409, "POST", "/v1/upgrade", json!({}));
    let told = "adapter web has a guest that is migrating; wait until that is over";
    assert_eq!(refusal.first().to_string(), told);
    assert!(orders.lock().unwrap().is_empty());
    step("abort");
    let error = || site.refuses(409, "POST", "/v1/upgrade", json!({})).first().to_string();
    assert_eq!(error(), "it was asked");
    // The move is over, and its guest has not come back.
    site.plane.0.lock().unwrap().kept.insert("web".into(), vec![vec![0; 60]; 3]);
    let told = "adapter web has 3 frames that wait for its guest; wait until that is over";
    assert_eq!(error(), told);
    site.plane.0.lock().unwrap().kept.clear();
    // No migration waits for a client that is gone.
    step("leave");
    step("hand-over");
    let manager = site.server.as_ref().unwrap().manager();
    manager.lock().unwrap().tick(Instant::now() + Duration::from_secs(70));
    assert_eq!(error(), "it was asked");
}
