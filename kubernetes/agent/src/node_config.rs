//! Configuration of the node's daemon from the cluster: a directory of documents, such as the
//! volume of a ConfigMap.
//!
//! A node has the document of its name, `NODE.toml`, or else `default.toml`. Its objects come
//! beside those that others make; adapters of pods stay. A tunnel without `peers` leads to all
//! other nodes: the agent fills in their addresses, and the node's own as `local`. Objects get the
//! label [`MANAGER`] as owner, by which those that the document no longer names are found and
//! removed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, anyhow};
use api::Method;
use common::Daemon;
use model::config::SourceFile;
use serde_json::{Value, json};

use crate::options::Options;

/// Label of the objects' owner, whose value is the driver's name.
pub const MANAGER: &str = "manager";
/// Lists of the document, in the order in which objects can be removed.
const LISTS: [&str; 4] = ["vpf", "adapter", "switch", "nic"];

/// Addresses of the cluster's nodes by their names.
pub type Nodes = BTreeMap<String, IpAddr>;

/// The document of a node in `directory`; `None` if there is neither of its files.
///
/// # Errors
/// It cannot be read, or is no document.
pub fn read(directory: &Path, options: &Options, nodes: &Nodes) -> anyhow::Result<Option<Value>> {
    let files = [options.node.as_str(), "default"].map(|it| directory.join(format!("{it}.toml")));
    let Some(path) = files.iter().find(|path| path.exists()) else { return Ok(None) };
    let file = SourceFile::read(path, "--node-config").map_err(|error| anyhow!("{error}"))?;
    let document = file.document(&options.run_dir).map_err(|error| anyhow!("{error}"))?;
    Ok(Some(completed(document, options, nodes)))
}

/// A document with the tunnels' addresses, and with owners.
fn completed(mut document: Value, options: &Options, nodes: &Nodes) -> Value {
    for list in LISTS {
        for object in document[list].as_array_mut().into_iter().flatten() {
            object["owner"][MANAGER] = json!(options.driver);
        }
    }
    let own = nodes.get(&options.node);
    let is_peer = |it: &IpAddr| own.is_some_and(|own| own != it && own.is_ipv4() == it.is_ipv4());
    let peers: Vec<&IpAddr> = nodes.values().filter(|it| is_peer(it)).collect();
    let switches = document["switch"].as_array_mut().into_iter().flatten();
    for tunnels in switches.filter_map(|it| it["vxlan"].as_array_mut()) {
        // The only node has none to lead to.
        tunnels.retain(|tunnel| !(tunnel["peers"].is_null() && peers.is_empty()));
        for tunnel in tunnels.iter_mut().filter(|tunnel| tunnel["peers"].is_null()) {
            tunnel["peers"] = json!(peers);
            if tunnel["local"].is_null() {
                tunnel["local"] = json!(own);
            }
        }
    }
    // Lists that were only asked for are none.
    document.as_object_mut().into_iter().for_each(|it| it.retain(|_, value| !value.is_null()));
    document
}

/// Names of a list's objects.
fn names<'a>(document: &'a Value, list: &str) -> impl Iterator<Item = &'a str> {
    document[list].as_array().into_iter().flatten().filter_map(|it| it["name"].as_str())
}

/// `true` if `document`, the daemon's, has all objects of the wanted one, and no other of ours.
pub fn is_complete(document: &Value, wanted: &Value, driver: &str) -> bool {
    let has_all = |list: &&str| {
        let mut all = names(wanted, list);
        all.all(|name| names(document, list).any(|it| it == name))
    };
    LISTS.iter().all(has_all) && left(document, wanted, driver).next().is_none()
}

/// Objects of ours that are wanted no longer: their list, and their name.
fn left<'a>(
    document: &'a Value,
    wanted: &'a Value,
    driver: &'a str,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    LISTS.into_iter().flat_map(move |list| {
        let all = document[list].as_array().into_iter().flatten();
        let ours = all.filter(move |it| it["owner"][MANAGER] == driver);
        let names_of = ours.filter_map(|it| it["name"].as_str());
        names_of
            .filter(move |name| !names(wanted, list).any(|it| it == *name))
            .map(move |it| (list, it))
    })
}

/// Brings the daemon to the wanted document; `document` is what it has.
///
/// # Errors
/// The daemon does not answer, or rejects it.
pub fn apply(
    daemon: &Daemon,
    document: &Value,
    wanted: &Value,
    driver: &str,
) -> anyhow::Result<()> {
    if LISTS.iter().any(|list| names(wanted, list).next().is_some()) {
        let applied = daemon.ask(Method::POST, "/v1/apply", Some(wanted));
        applied.context("the document of the node is not applied")?;
    }
    for (list, name) in left(document, wanted, driver) {
        let path = format!(
            "/v1/{}/{name}",
            if list == "switch" { "switches".into() } else { format!("{list}s") }
        );
        let removed = daemon.find(Method::DELETE, &path);
        removed.with_context(|| {
            format!("{list} {name}, which the document of the node no longer has, stays")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use api::testing::Site;

    use super::*;

    const DEFAULT: &str = r#"
        [[nic]]
        name = "nic0"
        [[switch]]
        name = "sw0"
        nic = "nic0"
        [[switch.vxlan]]
        name = "nodes"
        vni = 7
        [[switch.vxlan]]
        name = "others"
        vni = 8
        peers = ["192.0.2.1"]
    "#;

    fn nodes() -> Nodes {
        let all = [
            ("node1", "10.0.0.1"),
            ("node2", "10.0.0.2"),
            ("node3", "10.0.0.3"),
            ("six", "fd00::1"),
        ];
        all.map(|(name, address)| (name.to_owned(), address.parse().unwrap())).into()
    }

    #[test]
    fn a_node_has_its_own_document_or_the_default_one() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::of("node1");
        let read = |nodes: &Nodes| super::read(directory.path(), &options, nodes);
        assert_eq!(read(&nodes()).unwrap(), None);
        fs::write(directory.path().join("default.toml"), DEFAULT).unwrap();
        let document = read(&nodes()).unwrap().unwrap();
        assert_eq!(document["nic"][0]["owner"], json!({"manager": "shunt.dev"}));
        let tunnels = &document["switch"][0]["vxlan"];
        assert_eq!(tunnels[0]["peers"], json!(["10.0.0.2", "10.0.0.3"]));
        assert_eq!(tunnels[0]["local"], "10.0.0.1");
        assert_eq!(
            (&tunnels[1]["peers"], &tunnels[1]["local"]),
            (&json!(["192.0.2.1"]), &Value::Null)
        );
        assert_eq!(document.get("adapter"), None);

        fs::write(directory.path().join("node1.toml"), "[[nic]]\nname = \"nic7\"").unwrap();
        assert_eq!(read(&nodes()).unwrap().unwrap()["nic"][0]["name"], "nic7");
        fs::write(directory.path().join("node1.toml"), "[[nic]\n").unwrap();
        let error = read(&nodes()).unwrap_err().to_string();
        assert!(error.contains("node1.toml:1"), "{error}");
    }

    #[test]
    fn the_daemon_gets_it_and_loses_what_it_no_longer_names() {
        let site = Site::new();
        site.apply(json!({"version": 1, "nic": [{"name": "by-hand"}]}));
        let options = Options { run_dir: site.dir.path().to_owned(), ..Options::of("node1") };
        let daemon = Daemon::at(site.dir.path());
        let file = SourceFile::new("default.toml", DEFAULT);
        let document =
            |nodes: &Nodes| completed(file.document(&options.run_dir).unwrap(), &options, nodes);
        let state = || site.get("/v1/state");
        let alone = Nodes::from([("node1".to_owned(), "10.0.0.1".parse().unwrap())]);
        for nodes in [alone, nodes()] {
            let wanted = document(&nodes);
            apply(&daemon, &state(), &wanted, "shunt.dev").unwrap();
            assert!(is_complete(&state(), &wanted, "shunt.dev"));
            let tunnels = state()["switch"][0]["vxlan"].as_array().unwrap().len();
            assert_eq!(tunnels, if nodes.len() == 1 { 1 } else { 2 });
        }
        let less = json!({"version": 1, "nic": [{"name": "nic0"}]});
        let less = completed(less, &options, &nodes());
        assert!(!is_complete(&state(), &less, "shunt.dev"));
        apply(&daemon, &state(), &less, "shunt.dev").unwrap();
        let names: Vec<String> = names(&state(), "nic").map(str::to_owned).collect();
        assert_eq!(
            (names, site.get("/v1/switches")),
            (vec!["by-hand".to_owned(), "nic0".to_owned()], json!([]))
        );
    }
}
