//! The `createRuntime` hook of containers whose adapters `shunt-agent` has prepared: gives each
//! adapter the network namespace of its container (OCI runtime specification 1.1, "Hooks").
//!
//! The runtime starts no container whose hook fails, so none starts without its adapter. The hook
//! is repeated for each container of a pod, and changes nothing then.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use api::Method;
use common::Daemon;
use host::netns::{Identity, identity};
use serde_json::{Value, json};

use crate::error::{CniError, Code};

/// First argument of the hook.
pub const ATTACH: &str = "attach";
/// Directory of namespaces' names.
const NAMED: &str = "/run/netns";
/// Time for the daemon to open a device that it has found missing before.
const OPEN_TIME: Duration = Duration::from_secs(10);

/// Attaches adapters to the container whose state is `input`; `arguments` are the directory of the
/// daemon and the names of the adapters.
///
/// # Errors
/// An adapter cannot be attached.
pub fn attach(arguments: &[String], mut input: impl Read) -> Result<(), CniError> {
    let [run_dir, adapters @ ..] = arguments else {
        let message = format!("{ATTACH} needs the daemon's directory and names of adapters");
        return Err(CniError::new(Code::Config, message, "let shunt-agent write the hook"));
    };
    let mut state = String::new();
    let unreadable = |error: &dyn std::fmt::Display| {
        let message = format!("the state of the container cannot be read: {error}");
        CniError::new(Code::Decoding, message, "a runtime writes it to a hook's standard input")
    };
    input.read_to_string(&mut state).map_err(|error| unreadable(&error))?;
    let state: Value = serde_json::from_str(&state).map_err(|error| unreadable(&error))?;
    let netns = namespace(&state)?;
    let daemon = Daemon::at(Path::new(run_dir));
    for name in adapters {
        attach_one(&daemon, name, &netns)?;
    }
    Ok(())
}

/// Path of the container's network namespace: a lasting one, if there is one.
fn namespace(state: &Value) -> Result<String, CniError> {
    let file = Path::new(state["bundle"].as_str().unwrap_or_default()).join("config.json");
    let config = fs::read(&file).map_err(|error| error.to_string());
    let config =
        config.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    let config: Value = config.map_err(|error| {
        let message = format!("{} cannot be read: {error}", file.display());
        CniError::new(Code::Io, message, "a runtime writes the container's bundle there")
    })?;
    let namespaces = config["linux"]["namespaces"].as_array().cloned().unwrap_or_default();
    let Some(network) = namespaces.iter().find(|it| it["type"] == "network") else {
        let message = "the container is in the network namespace of its node";
        let remedy = "use no hostNetwork in a pod with a claim for an interface";
        return Err(CniError::new(Code::Config, message, remedy));
    };
    let path = match network["path"].as_str() {
        Some(path) => path.to_owned(),
        None => format!("/proc/{}/ns/net", state["pid"]),
    };
    Ok(lasting(&path, Path::new(NAMED)).unwrap_or(path))
}

/// Name of the namespace in `directory`: that of a process can become another process's.
fn lasting(path: &str, directory: &Path) -> Option<String> {
    let wanted = identity(Some(path));
    if path.starts_with(directory.to_str()?) || matches!(wanted, Identity::Missing(_)) {
        return None;
    }
    let names = fs::read_dir(directory).ok()?.filter_map(Result::ok);
    let mut paths = names.filter_map(|name| name.path().to_str().map(str::to_owned));
    paths.find(|path| identity(Some(path)) == wanted)
}

fn attach_one(daemon: &Daemon, name: &str, netns: &str) -> Result<(), CniError> {
    let path = format!("/v1/adapters/{name}");
    let Some(adapter) = daemon.find(Method::GET, &path)? else {
        let message = format!("the daemon has no adapter {name}");
        let remedy = "shunt-agent makes it again within its interval; see its log";
        return Err(CniError::new(Code::Later, message, remedy));
    };
    let attachment = &adapter["attachment"];
    if attachment["interface"].is_string() && attachment["netns"] != netns {
        let change = json!({"attachment": {"netns": netns}});
        daemon.ask(Method::PATCH, &path, Some(&change))?;
    }
    let end = Instant::now() + OPEN_TIME;
    loop {
        let actual = daemon.ask(Method::GET, "/v1/actual", None)?;
        let adapters = actual["actual"]["adapters"].as_array().cloned().unwrap_or_default();
        let one = adapters.iter().find(|it| it["name"] == name).cloned().unwrap_or_default();
        let (device, has_path) = (&one["device"], one["path"] != "none");
        if has_path && device["state"] != "gone" {
            return Ok(());
        }
        if !has_path || Instant::now() > end {
            let reason = if has_path { &device["reason"] } else { &one["reason"] };
            let reason = reason.as_str().unwrap_or("no reason is given");
            let message = format!("adapter {name} is not connected: {reason}");
            let remedy = format!("see shunt adapter show {name}");
            return Err(CniError::new(Code::Daemon, message, remedy));
        }
        sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_that_of_the_bundle_by_a_lasting_name() {
        let bundle = tempfile::tempdir().unwrap();
        let write = |namespaces: Value| {
            let config = json!({"linux": {"namespaces": namespaces}});
            fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
            namespace(&json!({"bundle": bundle.path(), "pid": 7}))
        };
        let given = write(json!([{"type": "pid"}, {"type": "network", "path": "/nowhere/net"}]));
        assert_eq!(given.unwrap(), "/nowhere/net");
        assert_eq!(write(json!([{"type": "network"}])).unwrap(), "/proc/7/ns/net");
        let error = write(json!([{"type": "pid"}])).unwrap_err();
        assert!(error.message().contains("of its node"), "{error:?}");
        let names = tempfile::tempdir().unwrap();
        let name = names.path().join("cni-1");
        assert_eq!(lasting("/proc/self/ns/net", names.path()), None);
        std::os::unix::fs::symlink("/proc/self/ns/net", &name).unwrap();
        assert_eq!(lasting("/proc/self/ns/net", names.path()).as_deref(), name.to_str());
        assert_eq!(lasting("/nowhere/net", names.path()), None);
    }
}
