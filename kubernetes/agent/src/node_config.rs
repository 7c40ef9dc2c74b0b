//! Configuration of the node's daemon from the cluster: a directory of documents, such as the
//! volume of a ConfigMap.
//!
//! A node has the document of its name, `NODE.toml`, or else `default.toml`. Its objects come
//! beside those that others make; adapters of pods stay. A tunnel without `peers` leads to all
//! other nodes: the agent fills in their addresses, and the node's own as `local`. Objects get the
//! label [`MANAGER`] as owner, by which those that the document no longer names are found and
//! removed. An object without it is another's, and neither replaced nor removed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use api::Method;
use common::Daemon;
use model::config::SourceFile;
use serde_json::{Value, json};

use crate::keeper::forget;
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
/// It cannot be read, is no document, has settings of the daemon, names no object, or has a tunnel
/// without `peers` while the node's own address is unknown.
pub fn read(directory: &Path, options: &Options, nodes: &Nodes) -> anyhow::Result<Option<Value>> {
    let files = [options.node.as_str(), "default"].map(|it| directory.join(format!("{it}.toml")));
    let Some(path) = files.iter().find(|path| path.exists()) else { return Ok(None) };
    let file = SourceFile::read(path, "--node-config").map_err(|error| anyhow!("{error}"))?;
    let document = file.document(&options.run_dir).map_err(|error| anyhow!("{error}"))?;
    let (name, settings) = (file.name(), file.settings());
    if !settings.is_empty() {
        bail!(
            "{name}: {} is for the daemon's own file: remove it here, and give `shunt up` that file",
            settings.join(", ")
        );
    }
    if LISTS.iter().all(|list| names(&document, list).next().is_none()) {
        bail!("{name} names no NIC or switch; to remove all, delete them: shunt nic delete");
    }
    if !nodes.contains_key(&options.node) && has_open_tunnel(&document) {
        bail!(
            "{name}: a tunnel without peers waits for the InternalIP of node {}; give it one, or \
             name peers",
            options.node
        );
    }
    Ok(Some(completed(document, options, nodes)))
}

/// `true` with a tunnel whose peers are the other nodes.
fn has_open_tunnel(document: &Value) -> bool {
    let switches = document["switch"].as_array().into_iter().flatten();
    switches.flat_map(|it| it["vxlan"].as_array().into_iter().flatten()).any(is_open)
}

fn is_open(tunnel: &Value) -> bool {
    tunnel.is_object() && tunnel["peers"].is_null()
}

/// A document with the tunnels' addresses, and with owners. Values of wrong types are left for the
/// daemon to reject.
fn completed(mut document: Value, options: &Options, nodes: &Nodes) -> Value {
    for list in LISTS {
        let objects = document[list].as_array_mut().into_iter().flatten();
        for object in objects.filter_map(Value::as_object_mut) {
            if let Value::Object(owner) = object.entry("owner").or_insert_with(|| json!({})) {
                owner.insert(MANAGER.to_owned(), json!(options.driver));
            }
        }
    }
    let own = nodes.get(&options.node);
    let is_peer = |it: &IpAddr| own.is_some_and(|own| own != it && own.is_ipv4() == it.is_ipv4());
    let peers: Vec<&IpAddr> = nodes.values().filter(|it| is_peer(it)).collect();
    for switch in document["switch"].as_array_mut().into_iter().flatten() {
        let Some(tunnels) = switch.get_mut("vxlan").and_then(Value::as_array_mut) else { continue };
        // The only node has none to lead to.
        let is_gone = |tunnel: &mut Value| is_open(tunnel) && peers.is_empty();
        let gone: Vec<Value> =
            tunnels.extract_if(.., is_gone).map(|it| it["name"].clone()).collect();
        for tunnel in tunnels.iter_mut().filter(|tunnel| is_open(tunnel)) {
            tunnel["peers"] = json!(peers);
            if tunnel["local"].is_null() {
                tunnel["local"] = json!(own);
            }
        }
        forget(switch, &gone);
    }
    // Lists that were only asked for are none.
    document.as_object_mut().into_iter().for_each(|it| it.retain(|_, value| !value.is_null()));
    document
}

/// Names of a list's objects.
fn names<'a>(document: &'a Value, list: &str) -> impl Iterator<Item = &'a str> {
    document[list].as_array().into_iter().flatten().filter_map(|it| it["name"].as_str())
}

/// `true` if `document`, the daemon's, has all objects of the wanted one as ours, and no other of
/// ours.
pub fn is_complete(document: &Value, wanted: &Value, driver: &str) -> bool {
    let has_all = |list: &&str| {
        let is_ours = |name| find(document, list, name).is_some_and(|it| is_of(it, driver));
        names(wanted, list).all(is_ours)
    };
    LISTS.iter().all(has_all) && left(document, wanted, driver).next().is_none()
}

fn find<'a>(document: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    document[list].as_array()?.iter().find(|it| it["name"] == name)
}

/// `true` for an object that an agent with this driver has made.
fn is_of(object: &Value, driver: &str) -> bool {
    object["owner"][MANAGER] == driver
}

/// Objects of ours that are wanted no longer: their list, and their name.
fn left<'a>(
    document: &'a Value,
    wanted: &'a Value,
    driver: &'a str,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    LISTS.into_iter().flat_map(move |list| {
        let all = document[list].as_array().into_iter().flatten();
        let ours = all.filter(move |it| is_of(it, driver));
        let names_of = ours.filter_map(|it| it["name"].as_str());
        names_of
            .filter(move |name| !names(wanted, list).any(|it| it == *name))
            .map(move |it| (list, it))
    })
}

/// Brings the daemon to the wanted document; `document` is what it has.
///
/// # Errors
/// The daemon does not answer, rejects it, or has an object of that name which is another's.
pub fn apply(
    daemon: &Daemon,
    document: &Value,
    wanted: &Value,
    driver: &str,
) -> anyhow::Result<()> {
    for list in LISTS {
        let others = |name: &&str| find(document, list, name).is_some_and(|it| !is_of(it, driver));
        if let Some(name) = names(wanted, list).find(others) {
            bail!(
                "{list} {name} of the node's document is there already, and not the agent's: give \
                 it another name, or delete the one that is there"
            );
        }
    }
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
        [[switch.static]]
        mac = "02:00:00:00:00:09"
        port = "nodes"
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
        for (text, told) in [
            ("[[nic]\n", "node1.toml:1"),
            ("[lanes]\ncpus = [1]\n[[nic]]\nname = \"nic7\"", "lanes is for the daemon's own file"),
            ("version = 1", "names no NIC or switch"),
        ] {
            fs::write(directory.path().join("node1.toml"), text).unwrap();
            let error = read(&nodes()).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn only_tunnels_need_addresses_of_nodes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("default.toml");
        let read = || super::read(directory.path(), &Options::of("node1"), &Nodes::new());
        fs::write(&file, "[[nic]]\nname = \"nic0\"").unwrap();
        assert_eq!(read().unwrap().unwrap()["nic"][0]["name"], "nic0");
        fs::write(&file, DEFAULT).unwrap();
        assert!(read().unwrap_err().to_string().contains("InternalIP of node node1"));
    }

    #[test]
    fn values_of_wrong_types_are_left_to_the_daemon() {
        let wrong = json!({
            "nic": ["x", {"name": "nic0", "owner": "me"}],
            "switch": ["y", {"name": "sw0", "vxlan": ["z"]}],
        });
        for nodes in [nodes(), Nodes::new()] {
            let completed = completed(wrong.clone(), &Options::of("node1"), &nodes);
            assert_eq!(completed["nic"], wrong["nic"]);
            assert_eq!(completed["switch"][1]["vxlan"], json!(["z"]));
        }
    }

    #[test]
    fn an_object_of_others_is_left_alone() {
        let site = Site::new();
        site.apply(json!({"version": 1, "nic": [{"name": "nic0", "num_vfs": 3}]}));
        let daemon = Daemon::at(site.dir.path());
        let wanted = json!({"version": 1, "nic": [{"name": "nic0"}, {"name": "nic1"}]});
        let wanted = completed(wanted, &Options::of("node1"), &nodes());
        let state = site.get("/v1/state");
        assert!(!is_complete(&state, &wanted, "shunt.dev"));
        let error = apply(&daemon, &state, &wanted, "shunt.dev").unwrap_err().to_string();
        assert!(error.contains("nic nic0") && error.contains("not the agent's"), "{error}");
        assert_eq!(site.get("/v1/state"), state);
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
