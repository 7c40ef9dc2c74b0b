//! Group and permissions of the sockets of guests.

use std::os::unix::fs::MetadataExt;

use api::Method;
use model::config::Config;
use serde_json::{Value, json};

use crate::host::*;

/// A group that this process may give files to, by number.
fn group() -> u32 {
    let ours = rustix::process::getegid().as_raw();
    if rustix::process::geteuid().is_root() { 12345 } else { ours }
}

/// VFs with a vhost-user socket, one with settings of its own, and a stream socket.
const THREE: &str = r#"
    [[nic]]
    name = "n"
    kind = "soft"
    [[nic.vf]]
    mac = "02:00:00:00:00:01"
    attachment.socket = "vf0"
    [[nic.vf]]
    mac = "02:00:00:00:00:02"
    attachment = { socket = "vf1", socket_mode = "0600" }
    [[nic.vf]]
    mac = "02:00:00:00:00:03"
    attachment = { kind = "stream", socket = "vf2" }
"#;

/// Group and permissions of a file in the run directory.
fn access(host: &Host, name: &str) -> (u32, u32) {
    let file = std::fs::symlink_metadata(host.socket(name)).unwrap();
    (file.gid(), file.mode() & 0o7777)
}

/// Permissions of the daemon's own files: no other user may write to one.
fn are_own_files_safe(host: &Host) -> bool {
    let own = ["api.sock", "counters", "lock", "state", "state/lock", "state/state.json"];
    own.iter().all(|name| access(host, name).1 & 0o022 == 0)
}

fn change(host: &Host, adapter: &str, attachment: &Value) -> Result<(), String> {
    let (path, body) = (format!("/v1/adapters/{adapter}"), json!({"attachment": attachment}));
    let client = host.client();
    client
        .send(Method::PATCH, &path, Some(&body), None)
        .map(drop)
        .map_err(|error| error.to_string())
}

fn with_group() -> Host {
    Host::with(|dir| Config { socket_group: Some(group().to_string()), ..config(dir, THREE) })
}

#[test]
fn sockets_are_their_owners_without_settings() {
    let host = Host::start(THREE);
    let ours = rustix::process::getegid().as_raw();
    assert_eq!(["vf0", "vf1", "vf2"].map(|name| access(&host, name)), [(ours, 0o600); 3]);
    assert!(are_own_files_safe(&host));
}

#[test]
fn the_daemons_group_may_connect_to_the_sockets_of_guests_only() {
    let mut host = with_group();
    for _ in 0..2 {
        host.restart();
        assert_eq!(access(&host, "vf0"), (group(), 0o660));
        assert_eq!(access(&host, "vf1"), (group(), 0o600), "its own permissions");
        assert_eq!(access(&host, "vf2"), (group(), 0o660));
        assert!(are_own_files_safe(&host));
        assert_eq!(access(&host, "api.sock").1, 0o600);
        // A front-end that leaves and returns does not change the file.
        let [guest] = host.guests(["vf0"]);
        drop(guest);
        host.wait_for_rings("n/vf0", 0);
        let [_guest] = host.guests(["vf0"]);
        assert_eq!(access(&host, "vf0"), (group(), 0o660));
        host.stop();
    }
}

#[test]
fn a_changed_access_keeps_the_session() {
    let host = Host::start(THREE);
    let [_a] = host.guests(["vf0"]);
    host.wait_for_rings("n/vf0", 2);
    let before = host.events(0).events.len();
    let group = group();
    change(&host, "n-vf0", &json!({"socket_group": group.to_string()})).unwrap();
    assert_eq!(access(&host, "vf0"), (group, 0o660));
    change(&host, "n-vf0", &json!({"socket_mode": "0666"})).unwrap();
    assert_eq!(access(&host, "vf0"), (group, 0o666));
    change(&host, "n-vf0", &json!({"socket_group": null, "socket_mode": null})).unwrap();
    assert_eq!(access(&host, "vf0"), (rustix::process::getegid().as_raw(), 0o600));
    assert_eq!(host.port("n/vf0").rings_attached, 2);
    let events = host.events(0).events;
    let ended = events[before..].iter().any(|event| event.text.contains("closed"));
    assert!(!ended, "{events:?}");
    change(&host, "n-vf2", &json!({"socket_mode": "0660"})).unwrap();
    assert_eq!(access(&host, "vf2").1, 0o660, "a stream socket");
}

#[test]
fn a_rejected_change_leaves_the_access() {
    let host = Host::start(THREE);
    let error = change(&host, "n-vf0", &json!({"socket_group": "no-such-group"})).unwrap_err();
    assert!(error.contains("attachment.socket_group: \"no-such-group\" is no group"), "{error}");
    assert!(error.contains("create the group, or name another"), "{error}");
    for wrong in ["0770", "660", "0060", "rw", "01660"] {
        let error = change(&host, "n-vf0", &json!({"socket_mode": wrong})).unwrap_err();
        assert!(error.contains("socket_mode") && error.contains("\"0660\""), "{error}");
    }
    let client = json!({"mode": "client", "socket_mode": "0660"});
    let error = change(&host, "n-vf0", &client).unwrap_err();
    assert!(error.contains("needs mode = \"server\""), "{error}");
    // One adapter's access is changed before the other's socket cannot be opened.
    let mut state = host.client().send(Method::GET, "/v1/state", None, None).unwrap().body;
    state["adapter"][0]["attachment"]["socket_mode"] = json!("0666");
    state["adapter"][1]["attachment"]["socket"] = json!(host.socket("no/vf1"));
    let sent = host.client().send(Method::POST, "/v1/apply", Some(&state), None);
    assert!(sent.unwrap_err().to_string().contains("no/vf1"));
    assert_eq!(access(&host, "vf0").1, 0o600);
}

#[test]
fn an_unknown_group_keeps_the_daemon_from_starting() {
    let group = Some("no-such-group".to_owned());
    let host = Host::with(|dir| Config { socket_group: group, ..config(dir, THREE) });
    let error = format!("{:#}", daemon::Daemon::start(&host.config).unwrap_err());
    assert!(error.contains("socket_group: \"no-such-group\""), "{error}");
    assert!(error.contains("is no group of this machine"), "{error}");
}
