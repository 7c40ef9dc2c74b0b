//! The plugin's commands against the API of a daemon without a data plane, and an IPAM plugin that
//! writes down what it is asked for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use api::testing::Site;
use serde_json::{Value, json};

/// Prints a fixed result for ADD, and writes down each command.
const IPAM: &str = r#"#!/bin/sh
cat >/dev/null
echo "$CNI_COMMAND $CNI_CONTAINERID" >>"$(dirname "$0")/asked"
[ "$CNI_COMMAND" != "$(cat "$(dirname "$0")/fails" 2>/dev/null)" ] || {
    echo '{"cniVersion": "1.1.0", "code": 102, "msg": "no address is left", "details": "enlarge it"}'
    exit 1
}
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.1.0", "dns": {"nameservers": ["10.0.0.53"]},
    "ips": [{"address": "10.0.0.5/24", "gateway": "10.0.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]}'
"#;

/// A daemon with a switch, and a directory with the IPAM plugin.
struct Node {
    site: Site,
    plugins: tempfile::TempDir,
}

impl Node {
    fn new() -> Node {
        let site = Site::new();
        site.apply(json!({
            "version": 1, "nic": [{"name": "nic0", "num_vfs": 4}],
            "switch": [{"name": "sw0", "nic": "nic0", "iov": true}],
        }));
        let plugins = tempfile::tempdir().unwrap();
        let program = plugins.path().join("fake-ipam");
        fs::write(&program, IPAM).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Node { site, plugins }
    }

    fn network(&self) -> Value {
        json!({
            "cniVersion": "1.1.0", "name": "blue", "type": "shunt-cni", "switch": "sw0",
            "runDir": self.site.dir.path(), "ipam": {"type": "fake-ipam"}, "vlan": 7,
        })
    }

    fn run(&self, command: &str, container: &str, network: &Value) -> Result<Option<Value>, Value> {
        let netns = format!("/run/netns/{container}");
        let get = |name: &str| {
            let value = match name {
                "CNI_COMMAND" => command,
                "CNI_CONTAINERID" => container,
                "CNI_IFNAME" => "net1",
                "CNI_NETNS" => &netns,
                "CNI_PATH" => self.plugins.path().to_str().unwrap(),
                _ => return None,
            };
            Some(value.to_owned())
        };
        let text = network.to_string();
        shunt_cni::run(get, text.as_bytes())
    }

    fn add(&self, container: &str, network: &Value) -> Value {
        self.run("ADD", container, network).unwrap().unwrap()
    }

    /// Commands that the IPAM plugin was asked for.
    fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.plugins.path().join("asked")).unwrap_or_default();
        let _ = fs::remove_file(self.plugins.path().join("asked"));
        text.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    }

    fn adapters(&self) -> Vec<Value> {
        self.site.get("/v1/adapters").as_array().unwrap().clone()
    }
}

#[test]
fn a_container_is_added_checked_and_deleted_twice() {
    let node = Node::new();
    let network = node.network();
    let added = node.add("c1", &network);
    assert_eq!(node.asked(), ["ADD"]);
    let [adapter] = &node.adapters()[..] else { panic!() };
    assert_eq!(adapter["attachment"]["interface"], "net1");
    assert_eq!(adapter["attachment"]["netns"], "/run/netns/c1");
    assert_eq!(adapter["attachment"]["ip"], json!(["10.0.0.5/24"]));
    assert_eq!(adapter["attachment"]["gateway"], json!(["10.0.0.1"]));
    assert_eq!((&adapter["vlan"]["id"], &adapter["owner"]["container"]), (&json!(7), &json!("c1")));
    let interface = json!({
        "name": "net1", "mac": adapter["mac"], "sandbox": "/run/netns/c1", "mtu": 1500,
    });
    assert_eq!(added["interfaces"], json!([interface]));
    assert_eq!(added["dns"]["nameservers"][0], "10.0.0.53");
    // Repeated, it allocates no other address.
    let again = node.add("c1", &network);
    assert_eq!((&again["ips"], &again["interfaces"]), (&added["ips"], &added["interfaces"]));
    assert_eq!((node.asked(), node.adapters().len()), (vec![], 1));
    for _ in 0..2 {
        assert_eq!(node.run("DEL", "c1", &network), Ok(None));
        assert_eq!((node.asked(), node.adapters()), (vec!["DEL".to_owned()], vec![]));
    }
    assert_eq!(node.run("CHECK", "c1", &network).unwrap_err()["code"], 100);
}

#[test]
fn a_socket_for_dpdk_is_described() {
    let node = Node::new();
    let file = node.site.dir.path().join("info.json");
    let mut network = node.network();
    network["attachment"] = json!("vhost-user");
    network["socketDir"] = json!(node.site.dir.path().join("sockets"));
    network["ipam"] = json!({});
    network["runtimeConfig"] = json!({"CNIDeviceInfoFile": file});
    let added = node.add("c1", &network);
    let socket = added["interfaces"][0]["socketPath"].as_str().unwrap();
    assert!(Path::new(socket).parent().unwrap().is_dir());
    let info: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(info["vhost-user"], json!({"mode": "client", "path": socket}));
    network["prevResult"] = added.clone();
    for _ in 0..2 {
        assert_eq!(node.run("CHECK", "c1", &network), Ok(None));
    }
    network["prevResult"]["interfaces"][0]["mac"] = json!("02:00:00:00:00:01");
    assert_eq!(node.run("CHECK", "c1", &network).unwrap_err()["code"], 100);
    assert_eq!(node.run("DEL", "c1", &network), Ok(None));
    assert!(!file.exists() && node.asked().is_empty());
}

#[test]
fn nothing_is_left_of_an_add_that_fails() {
    let node = Node::new();
    let mut network = node.network();
    network["vlan"] = json!(5000);
    let error = node.run("ADD", "c1", &network).unwrap_err();
    assert_eq!(error["code"], 7, "{error}");
    assert!(error["msg"].as_str().unwrap().contains("vlan"), "{error}");
    assert!(!error["details"].as_str().unwrap().is_empty(), "{error}");
    assert_eq!((node.asked(), node.adapters()), (vec!["ADD".to_owned(), "DEL".to_owned()], vec![]));
    let mut network = node.network();
    fs::write(node.plugins.path().join("fails"), "ADD").unwrap();
    let error = node.run("ADD", "c1", &network).unwrap_err();
    assert_eq!((&error["code"], &error["msg"]), (&json!(102), &json!("no address is left")));
    assert!(node.adapters().is_empty());
    network["ipam"] = json!({"type": "no-such-ipam"});
    assert_eq!(node.run("ADD", "c1", &network).unwrap_err()["code"], 7);
    network["ipam"] = json!({});
    network["runtimeConfig"] = json!({"ips": ["10.0.0.5"]});
    let error = node.run("ADD", "c1", &network).unwrap_err();
    assert!(error["msg"].as_str().unwrap().contains("10.0.0.5"), "{error}");
    network["deviceID"] = json!("0000:ff:1f.7");
    let error = node.run("ADD", "c1", &network).unwrap_err();
    assert!(error["msg"].as_str().unwrap().contains("0000:ff:1f.7"), "{error}");
}

#[test]
fn garbage_is_what_no_container_has() {
    let node = Node::new();
    let mut network = node.network();
    for container in ["c1", "c2", "c3"] {
        node.add(container, &network);
    }
    let mut other = network.clone();
    (other["name"], other["vlan"]) = (json!("red"), json!(8));
    node.add("c4", &other);
    node.asked();
    assert_eq!(node.run("GC", "", &network), Ok(None));
    assert_eq!((node.asked().len(), node.adapters().len()), (0, 4), "no list says what is left");
    network["cni.dev/valid-attachments"] = json!([{"containerID": "c3", "ifname": "net1"}]);
    for _ in 0..2 {
        assert_eq!(node.run("GC", "", &network), Ok(None));
        assert_eq!(node.asked(), ["GC"]);
        let owners = node.adapters();
        let mut owners: Vec<_> =
            owners.iter().map(|it| (&it["owner"]["cni"], &it["owner"]["container"])).collect();
        owners.sort_by_key(|(cni, _)| cni.to_string());
        assert_eq!(owners, [(&json!("blue"), &json!("c3")), (&json!("red"), &json!("c4"))]);
    }
    network["cni.dev/valid-attachments"] = Value::Null; // an empty list of a program in Go
    assert_eq!(node.run("GC", "", &network), Ok(None));
    assert_eq!(node.adapters().len(), 1, "of the other network");
}

#[test]
fn the_status_is_that_of_the_daemon_and_its_switch() {
    let node = Node::new();
    let mut network = node.network();
    assert_eq!(node.run("STATUS", "", &network), Ok(None));
    network["switch"] = json!("sw9");
    let error = node.run("STATUS", "", &network).unwrap_err();
    assert_eq!(
        (&error["code"], &error["msg"]),
        (&json!(50), &json!("the daemon has no switch sw9"))
    );
    network["runDir"] = json!("/nowhere");
    assert_eq!(node.run("STATUS", "", &network).unwrap_err()["code"], 50);
    let error = node.run("DEL", "c1", &network).unwrap_err();
    assert_eq!(error["code"], 11, "the runtime tries again");
    let version = node.run("VERSION", "", &json!({})).unwrap().unwrap();
    assert_eq!(version["supportedVersions"].as_array().unwrap().last().unwrap(), "1.1.0");
}

#[test]
fn a_vf_of_a_soft_nic_is_given_by_its_name() {
    let node = Node::new();
    let mut network = node.network();
    network["deviceID"] = json!("nic0/vf2");
    node.add("c1", &network);
    let [adapter] = &node.adapters()[..] else { panic!() };
    assert_eq!((&adapter["vf"], &adapter["iov_weight"]), (&json!(2), &json!(100)));
    let actual = node.site.get("/v1/actual");
    assert_eq!(actual["actual"]["adapters"][0]["path"], "vf");
    let taken = node.run("ADD", "c2", &network).unwrap_err();
    assert_eq!(taken["code"], 7, "{taken}");
}

#[test]
fn the_hook_gives_an_adapter_the_namespace_of_its_container() {
    let node = Node::new();
    let run_dir = node.site.dir.path().to_str().unwrap().to_owned();
    let bundle = tempfile::tempdir().unwrap();
    let config = json!({"linux": {"namespaces": [{"type": "network", "path": "/run/netns/c1"}]}});
    fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
    let state = json!({"ociVersion": "1.1.0", "pid": 1, "bundle": bundle.path()}).to_string();
    let attach = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned());
        let arguments: Vec<String> = [run_dir.clone()].into_iter().chain(names).collect();
        shunt_cni::hook::attach(&arguments, state.as_bytes())
    };
    let error = attach(&["dra-1"]).unwrap_err();
    assert_eq!((error.code(), error.message()), (11, "the daemon has no adapter dra-1"));
    let adapter = |name: &str, mac: &str, attachment: Value| {
        let mac = format!("02:00:00:00:00:{mac}");
        json!({"name": name, "switch": "sw0", "mac": mac, "attachment": attachment})
    };
    let tap = json!({"kind": "tap", "interface": "net1", "netns": "/run/netns/claim-1"});
    let socket = json!({"kind": "vhost-user", "socket": "/run/shunt/dra-2.sock"});
    node.site.apply(json!({
        "version": 1, "adapter": [adapter("dra-1", "01", tap), adapter("dra-2", "02", socket)],
    }));
    for _ in 0..2 {
        attach(&["dra-1", "dra-2"]).unwrap();
        let made = node.site.get("/v1/adapters/dra-1");
        assert_eq!(made["attachment"]["netns"], "/run/netns/c1");
    }
    assert_eq!(node.site.get("/v1/state")["adapter"].as_array().unwrap().len(), 2);
    let without_vf = json!({
        "name": "dra-3", "nic": "nic0", "mac": "02:00:00:00:00:03",
        "attachment": {"socket": "/run/shunt/dra-3.sock"},
    });
    node.site.apply(json!({"version": 1, "adapter": [without_vf]}));
    let error = attach(&["dra-1", "dra-3"]).unwrap_err();
    assert_eq!(error.message(), "adapter dra-3 is not connected: WeightZero");
    assert!(shunt_cni::hook::attach(&[], state.as_bytes()).is_err());
    assert!(shunt_cni::hook::attach(&[run_dir], "{".as_bytes()).is_err());
}
