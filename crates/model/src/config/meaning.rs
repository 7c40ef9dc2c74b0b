//! Checks a daemon's settings against each other, and against the sockets of its state.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::source_file::sockets;
use super::{COUNTERS, LOCK, socket_path};
use crate::state::{ApiSettings, DaemonSettings, Problem, Problems};

/// Checks the settings of a daemon with this run directory and state.
pub(super) fn check(
    daemon: &DaemonSettings,
    run_dir: &Path,
    state: &Value,
    problems: &mut Problems,
) {
    if daemon.state_dir.as_deref() == Some(run_dir) {
        let error = "is also run_dir, which may not survive a reboot";
        let path = run_dir.to_string_lossy();
        problems.push(Problem::new("state_dir", path, error, "choose another"));
    }
    let cpus = &daemon.lanes.cpus;
    for (i, cpu) in cpus.iter().enumerate() {
        if let Some(first) = cpus[..i].iter().position(|other| other == cpu) {
            let error = format!("is lanes.cpus[{first}] already");
            let field = format!("lanes.cpus[{i}]");
            problems.push(Problem::new(field, *cpu, error, "name each CPU once"));
        }
    }
    api(&daemon.api, problems);
    let mut own = [COUNTERS, LOCK].map(|name| run_dir.join(name)).to_vec();
    let mut apart = |own: &[PathBuf], field: &str, socket: &Path| {
        if own.iter().any(|file| file == socket) {
            let (error, allowed) = ("is a file of the daemon", "choose another name");
            problems.push(Problem::new(field, socket.to_string_lossy(), error, allowed));
        }
    };
    let api = daemon.api.socket.clone().unwrap_or_else(|| socket_path(run_dir));
    apart(&own, "api.socket", &api);
    // With the API disabled an attachment may have the name.
    own.extend(daemon.api.enabled.then_some(api));
    for (field, socket) in sockets(state) {
        apart(&own, &field, Path::new(&socket));
    }
}

fn api(api: &ApiSettings, problems: &mut Problems) {
    let ApiSettings {
        enabled: _,
        socket: _,
        tcp,
        token_file,
        tls_certificate,
        tls_key,
        public_read,
    } = api;
    let shown = |path: &Option<PathBuf>| path.as_ref().map(|it| it.to_string_lossy().into_owned());
    let given = [
        ("tcp", tcp.map(|tcp| tcp.to_string())),
        ("token_file", shown(token_file)),
        ("tls_certificate", shown(tls_certificate)),
        ("tls_key", shown(tls_key)),
    ];
    let value =
        |name: &str| given.iter().find(|(it, _)| *it == name).and_then(|(_, it)| it.clone());
    let needs = [
        ("tcp", "token_file", "the token for clients"),
        ("token_file", "tcp", "the address it is for"),
        ("tls_certificate", "tcp", "the address it is for"),
        ("tls_key", "tcp", "the address it is for"),
        ("tls_certificate", "tls_key", "the certificate's key"),
        ("tls_key", "tls_certificate", "the key's certificate"),
    ];
    for (name, other, what) in needs {
        if let (Some(value), None) = (value(name), value(other)) {
            let allowed = format!("write {other}, {what}");
            problems.push(Problem::new(
                format!("api.{name}"),
                value,
                format!("needs {other}"),
                allowed,
            ));
        }
    }
    if *public_read && tcp.is_none() {
        let allowed = "write tcp, the address it is for";
        problems.push(Problem::new("api.public_read", true, "needs tcp", allowed));
    }
    if let (Some(tcp), None) = (tcp, tls_certificate)
        && !tcp.ip().is_loopback()
    {
        let error = "would send the token in the clear";
        let allowed = "write tls_certificate and tls_key, or listen on 127.0.0.1";
        problems.push(Problem::new("api.tcp", tcp.to_string(), error, allowed));
    }
}
