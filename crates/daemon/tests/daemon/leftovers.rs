//! Files that a daemon finds at its start, and files that it removes.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use api::store::{Directory, Store};
use api::{Method, Reply};
use daemon::Daemon;
use model::config::Config;
use serde_json::json;

use crate::host::*;

/// A stopped daemon that keeps its state in `kept`.
fn with_state_dir(nics: &str) -> Host {
    Host::with(|dir| Config { state_dir: Some(dir.join("kept")), ..config(dir, nics) })
}

fn put(path: PathBuf) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "precious").unwrap();
    path
}

fn is_whole(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes == b"precious")
}

fn refusal(host: &Host) -> String {
    format!("{:#}", Daemon::start(&host.config).unwrap_err())
}

/// Names of the adapters in force.
fn adapters(host: &Host) -> Vec<String> {
    let adapters = ask(host, Method::GET, "/v1/adapters", None).body;
    let names = adapters.as_array().unwrap().iter();
    names.map(|adapter| adapter["name"].as_str().unwrap().to_owned()).collect()
}

fn ask(host: &Host, method: Method, path: &str, body: Option<&serde_json::Value>) -> Reply {
    host.client().send(method, path, body, None).unwrap()
}

#[test]
fn changes_survive_a_restart_without_a_state_dir() {
    let mut host = Host::start(TWO);
    let reply = ask(&host, Method::DELETE, "/v1/adapters/n-vf0", None);
    assert_eq!(reply.warning, None);
    host.stop();
    host.restart();
    assert_eq!(adapters(&host), ["n-vf1"]);
}

#[test]
fn an_edited_file_is_in_force_until_a_command_has_changed_the_state() {
    let mut host = Host::start(TWO);
    let edited = |host: &Host, name: &str| {
        let text =
            TWO.replace("attachment.socket = \"vf1\"", &format!("attachment.socket = \"{name}\""));
        config(host.path(), &text)
    };
    for name in ["vf1-b", "vf1-c"] {
        host.stop();
        host.config = edited(&host, name);
        host.restart();
        assert!(host.socket(name).exists(), "{name}");
    }
    host.stop();
    host.restart();
    assert!(host.socket("vf1-c").exists(), "and without an edit");
    ask(&host, Method::PATCH, "/v1/adapters/n-vf0", Some(&json!({"link_state": "disable"})));
    host.stop();
    host.config = edited(&host, "vf1-d");
    host.restart();
    assert!(host.socket("vf1-c").exists() && !host.socket("vf1-d").exists());
    let in_force = ask(&host, Method::GET, "/v1/adapters/n-vf0", None).body;
    assert_eq!(in_force["link_state"], "disable");
}

#[test]
fn a_file_that_cannot_be_brought_into_force_can_be_edited() {
    let mut host = Host::start(TWO);
    host.stop();
    let good = host.config.clone();
    let nowhere = format!("{}/no/vf1", host.path().display());
    host.config = config(host.path(), &TWO.replace("\"vf1\"", &format!("\"{nowhere}\"")));
    assert!(refusal(&host).contains("no/vf1"));
    host.config = good;
    host.restart();
    assert!(host.socket("vf1").exists());
}

#[test]
fn files_of_others_in_the_state_directory_stay() {
    let mut host = Host::stopped(TWO);
    let theirs =
        ["state/file", "state/below/file", "state/state.json.bak", "state/below/state.json"];
    let theirs = theirs.map(|name| put(host.socket(name)));
    for _ in 0..2 {
        host.restart();
        host.stop();
        assert!(theirs.iter().all(|path| is_whole(path)), "{theirs:?}");
    }
}

#[test]
fn a_link_in_the_place_of_the_state_directory_is_refused() {
    let host = Host::stopped(TWO);
    let theirs = put(host.socket("elsewhere/state.json"));
    symlink(host.socket("elsewhere"), host.socket("state")).unwrap();
    let told = refusal(&host);
    assert!(
        told.contains("is a symbolic link") && told.contains("choose another run_dir"),
        "{told}"
    );
    assert!(is_whole(&theirs) && host.socket("state").is_symlink());
    assert!(!host.socket("elsewhere/lock").exists(), "nothing was written there");
}

#[test]
fn a_link_in_the_place_of_the_counters_stays() {
    let host = Host::stopped(TWO);
    let theirs = put(host.socket("elsewhere"));
    symlink(&theirs, host.socket("counters")).unwrap();
    let told = refusal(&host);
    assert!(told.contains("counters"), "{told}");
    assert!(is_whole(&theirs) && host.socket("counters").is_symlink());
}

#[test]
fn a_directory_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can give a directory away
    }
    let host = Host::stopped(TWO);
    let theirs = put(host.socket("state/state.json"));
    std::os::unix::fs::chown(host.socket("state"), Some(65534), None).unwrap();
    let told = refusal(&host);
    assert!(told.contains("belongs to user 65534"), "{told}");
    assert!(is_whole(&theirs));
}

#[test]
fn a_check_reads_the_token() {
    let mut host = Host::stopped(TWO);
    let token = host.socket("token");
    host.config.api.tcp = Some("127.0.0.1:0".parse().unwrap());
    host.config.api.token_file = Some(token.clone());
    let told = || daemon::check_machine(&host.config).map_err(|problems| problems.to_string());
    assert!(told().unwrap_err().contains("cannot open the token file"));
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(told().unwrap_err().contains("chmod 600"));
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    told().unwrap();
}

#[test]
fn a_check_tells_of_a_running_daemon() {
    let mut host = Host::start(TWO);
    let warnings = daemon::check_machine(&host.config).unwrap();
    let is = |warning: &String| warning.contains("is in use by a running daemon");
    assert_eq!(warnings.iter().filter(|warning| is(warning)).count(), 1, "{warnings:?}");
    host.stop();
    let warnings = daemon::check_machine(&host.config).unwrap();
    assert!(!warnings.iter().any(is), "{warnings:?}");
}

/// A socket without a listener: its process was killed.
fn dead_socket(path: PathBuf) -> PathBuf {
    drop(UnixListener::bind(&path).unwrap());
    path
}

/// Writes the journal of an apply that was interrupted at its start; its adapters are on VFs of
/// their own.
fn interrupted(host: &Host, sockets: &[(PathBuf, &str)]) {
    let directory = Directory::open(&host.socket("kept")).unwrap();
    let (mut store, _) = Store::open(directory).unwrap();
    let mut to = store.record().state.clone();
    for (number, (socket, mode)) in sockets.iter().enumerate() {
        let adapter = json!({
            "name": format!("more{number}"),
            "nic": "n",
            "mac": format!("02:00:00:00:01:{number:02x}"),
            "attachment": {"socket": socket, "mode": mode},
        });
        to.adapters.push(serde_json::from_value(adapter).unwrap());
    }
    store.begin(&to).unwrap();
}

#[test]
fn dead_sockets_of_an_interrupted_apply_are_removed() {
    let mut host = with_state_dir(TWO);
    host.restart();
    host.stop();
    let dead = dead_socket(host.socket("dead"));
    let missing = host.socket("missing");
    let used = host.socket("used");
    let listens = UnixListener::bind(&used).unwrap();
    let (file, behind_link) = (put(host.socket("file")), host.socket("link"));
    let unnamed = dead_socket(host.socket("unnamed"));
    symlink(&unnamed, &behind_link).unwrap();
    let front_ends = dead_socket(host.socket("front-end's"));
    let named = [&dead, &missing, &used, &file, &behind_link];
    let mut named: Vec<_> = named.map(|path| (path.clone(), "server")).into();
    named.push((front_ends.clone(), "client"));
    interrupted(&host, &named);
    host.restart();
    assert!(!dead.exists(), "the journal names it, and no process listens");
    assert!(is_whole(&file) && behind_link.is_symlink() && front_ends.exists());
    assert!(unnamed.exists(), "no journal names it");
    std::os::unix::net::UnixStream::connect(&used).expect("a process listens");
    drop(listens);
    let [mut a, mut b] = host.guests(["vf0", "vf1"]);
    a.send(&frame(mac(1), mac(0), 1));
    b.wait_for(1);
}

#[test]
fn a_damaged_journal_does_not_keep_a_daemon_from_starting() {
    let mut host = with_state_dir(TWO);
    host.restart();
    host.stop();
    for text in ["", "{", "{\"version\":1,\"checksum\":\"0\",\"content\":{}}"] {
        std::fs::write(host.socket("kept/journal.json"), text).unwrap();
        host.restart();
        let [mut a, mut b] = host.guests(["vf0", "vf1"]);
        a.send(&frame(mac(1), mac(0), 1));
        b.wait_for(1);
        host.stop();
        assert!(!host.socket("kept/journal.json").exists());
        let aside = std::fs::read_to_string(host.socket("kept/journal.json.damaged")).unwrap();
        assert_eq!(aside, text, "the last one");
    }
}
