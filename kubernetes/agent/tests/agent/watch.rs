//! Work of the agent without a call: it publishes the devices of its node, and releases adapters
//! whose pod is gone.

use std::thread::sleep;

use serde_json::{Value, json};
use shunt_agent::proto::health::dra_resource_health_client::DraResourceHealthClient;
use shunt_agent::proto::health::{HealthStatus, NodeWatchResourcesRequest};

use crate::test_node::{TestNode, channel, eventually, wait};

fn generation(test_node: &TestNode) -> i64 {
    let slices = test_node.api.all("resourceslices");
    slices.first().map_or(0, |slice| slice["spec"]["pool"]["generation"].as_i64().unwrap())
}

/// Names of the published devices, each with its taints; none while a part of the pool is missing.
fn published(test_node: &TestNode) -> Vec<(String, Vec<String>)> {
    let slices = test_node.api.all("resourceslices");
    let mut all = Vec::new();
    for slice in &slices {
        let pool = &slice["spec"]["pool"];
        if pool["resourceSliceCount"] != slices.len() || pool["generation"] != generation(test_node)
        {
            return Vec::new();
        }
        for device in slice["spec"]["devices"].as_array().unwrap() {
            let taints = device["taints"].as_array().cloned().unwrap_or_default();
            let keys = taints.iter().map(|taint| taint["key"].as_str().unwrap().to_owned());
            all.push((device["name"].as_str().unwrap().to_owned(), keys.collect()));
        }
    }
    all
}

fn untainted(names: &[&str]) -> Vec<(String, Vec<String>)> {
    names.iter().map(|name| ((*name).to_owned(), vec![])).collect()
}

#[test]
fn devices_are_published_and_change_as_one() {
    let mut test_node = TestNode::new();
    let all = untainted(&["nic0-vf0", "nic0-vf1", "sw0-port"]);
    eventually("the devices are published", || published(&test_node) == all);
    let slice = &test_node.api.all("resourceslices")[0];
    assert_eq!(
        (&slice["spec"]["driver"], &slice["spec"]["nodeName"]),
        (&json!("shunt.dev"), &json!("node1"))
    );
    assert_eq!(slice["metadata"]["ownerReferences"][0]["uid"], "n1");
    assert_eq!(generation(&test_node), 1);
    // An agent that starts again leaves them.
    test_node.stop();
    test_node.start();
    // The kubelet deletes the slices of a driver that was away too long.
    test_node.api.remove("resourceslices", "", "node1-shunt.dev-0");
    eventually("they are published again", || published(&test_node) == all);
    // An operator's adapter takes a VF.
    test_node.site.apply(json!({"version": 1, "adapter": [{
        "name": "web", "nic": "nic0", "vf": 0, "mac": "02:00:00:00:00:01", "iov_weight": 100,
        "attachment": {"socket": "/run/shunt/web.sock"},
    }]}));
    let used = vec![("nic0-vf0".to_owned(), vec!["shunt.dev/in-use".to_owned()])];
    let expected = [used, untainted(&["nic0-vf1", "sw0-port"])].concat();
    eventually("the VF is tainted", || published(&test_node) == expected);
    let before = generation(&test_node);
    test_node.api.writes();
    sleep(test_node.options.interval * 3);
    assert_eq!(
        (test_node.api.writes(), generation(&test_node)),
        (vec![], before),
        "nothing has changed"
    );
    test_node.site.server = None;
    eventually("the daemon's end is a taint of all", || {
        let all = published(&test_node);
        all.len() == 3 && all.iter().all(|(_, taints)| taints == &["shunt.dev/daemon-down"])
    });
    test_node.stop();
    test_node.start();
    sleep(test_node.options.interval);
    assert_eq!(published(&test_node).len(), 3, "an agent without a daemon keeps them");
    test_node.site.start(None);
    eventually("it is back", || published(&test_node) == expected);
}

#[test]
fn many_devices_are_several_slices_of_one_generation() {
    let test_node = TestNode::new();
    let nic = json!({"name": "nic1", "num_vfs": 200});
    test_node.site.apply(json!({"version": 1, "nic": [nic]}));
    eventually("all are published", || published(&test_node).len() == 203);
    let slices = test_node.api.all("resourceslices");
    assert_eq!(slices.len(), 4);
    let generations: Vec<&Value> =
        slices.iter().map(|it| &it["spec"]["pool"]["generation"]).collect();
    assert!(generations.iter().all(|it| *it == generations[0]), "{generations:?}");
    test_node.site.does("DELETE", "/v1/nics/nic1", Value::Null);
    eventually("the others are withdrawn", || test_node.api.all("resourceslices").len() == 1);
    assert_eq!(published(&test_node).len(), 3);
}

#[test]
fn adapters_without_a_pod_are_released_and_no_others() {
    let test_node = TestNode::new();
    for (name, uid) in [("gone", "u1"), ("lives", "u2"), ("shared", "u3"), ("again", "u4")] {
        test_node.add_claim(name, uid, "sw0-port", &json!({}));
        assert_eq!(test_node.prepare(&[(name, uid)])[uid].error, "");
    }
    test_node.add_pod("cni-lives", "c1");
    let mirror = json!({"kubernetes.io/config.mirror": "c2"});
    test_node.api.put("pods", json!({
        "apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "node1"},
        "metadata": {"name": "static", "namespace": "default", "uid": "x", "annotations": mirror},
    }));
    let adapter = |name: &str, last: u8, owner: Value| {
        json!({
            "name": name, "switch": "sw0", "mac": format!("02:00:00:00:01:{last:02x}"),
            "owner": owner, "attachment": {"socket": format!("/run/shunt/{name}.sock")},
        })
    };
    test_node.site.apply(json!({"version": 1, "adapter": [
        adapter("cni-lives", 1, json!({"cni": "blue", "uid": "c1"})),
        adapter("cni-static", 2, json!({"cni": "blue", "uid": "c2"})),
        adapter("cni-gone", 3, json!({"cni": "blue", "uid": "c3"})),
        adapter("cni-podman", 4, json!({"cni": "blue", "container": "c4"})),
        adapter("operators", 5, json!({"uid": "c5"})),
        adapter("dra-lost", 6, json!({"claim": "u9", "uid": "c6"})),
    ]}));
    // The claim of one pod is shared: its other pod lives.
    test_node.api.remove("pods", "default", "pod-shared");
    test_node.add_pod("other", "p9");
    let mut shared = test_node
        .api
        .all("resourceclaims")
        .into_iter()
        .find(|it| it["metadata"]["name"] == "shared")
        .unwrap();
    shared["status"]["reservedFor"] = json!([{"resource": "pods", "name": "other", "uid": "p9"}]);
    test_node.api.put("resourceclaims", shared);
    // Without the API server nothing is released.
    test_node.api.set_down(true);
    test_node.remove_pod("gone");
    test_node.remove_pod("again");
    sleep(test_node.options.interval * 3);
    assert_eq!(test_node.adapters().len(), 10);
    // A claim of the same name, for another pod.
    test_node.add_claim("again", "u5", "sw0-port", &json!({}));
    test_node.api.set_down(false);
    assert_eq!(test_node.prepare(&[("again", "u5")])["u5"].error, "");
    let left = ["cni-lives", "cni-podman", "cni-static", "operators", "u2", "u3", "u5"];
    let names = || {
        let name =
            |it: &Value| it["owner"]["claim"].as_str().or(it["name"].as_str()).unwrap().to_owned();
        let mut names: Vec<String> = test_node.adapters().iter().map(name).collect();
        names.sort();
        names
    };
    eventually("what has no pod is released", || names() == left);
    sleep(test_node.options.interval * 2);
    assert_eq!(names(), left, "the others stay");
    let checkpoint = test_node.checkpoint();
    let uids: Vec<&String> = checkpoint.as_object().unwrap().keys().collect();
    assert_eq!(uids, ["u2", "u3", "u5"]);
    assert_eq!(test_node.cdi_files().len(), 3);
    assert_eq!(test_node.unprepare(&[("gone", "u1")]), [""], "the kubelet may still ask");
}

#[test]
fn a_pod_that_is_deleted_while_it_is_prepared_leaves_nothing() {
    let test_node = TestNode::new();
    test_node.add_claim("web", "u1", "nic0-vf0", &json!({}));
    // The pod is gone when the answer comes, and no other call ever does.
    test_node.api.remove("pods", "default", "pod-web");
    assert_eq!(test_node.prepare(&[("web", "u1")])["u1"].error, "");
    test_node.api.remove("resourceclaims", "default", "web");
    eventually("it is released", || {
        test_node.adapters().is_empty() && test_node.checkpoint() == json!({})
    });
    assert!(test_node.cdi_files().is_empty());
}

#[test]
fn the_kubelet_hears_of_the_health_of_devices() {
    let mut test_node = TestNode::new();
    wait(async {
        let mut client = DraResourceHealthClient::new(channel(test_node.socket()).await);
        let stream = client.node_watch_resources(NodeWatchResourcesRequest {}).await;
        let mut stream = stream.unwrap().into_inner();
        for expected in [HealthStatus::Healthy, HealthStatus::Unhealthy] {
            loop {
                let devices = stream.message().await.unwrap().unwrap().devices;
                if devices.len() == 3 && devices.iter().all(|it| it.health() == expected) {
                    assert_eq!(devices[0].device.as_ref().unwrap().pool_name, "node1");
                    let is_healthy = expected == HealthStatus::Healthy;
                    assert_eq!(devices[0].message.is_empty(), is_healthy);
                    break;
                }
            }
            test_node.site.server = None;
        }
    });
}

fn add_node(test_node: &TestNode, name: &str, address: &str) {
    let host = json!({"type": "Hostname", "address": name});
    let addresses = json!([host, {"type": "InternalIP", "address": address}]);
    let metadata = json!({"name": name, "uid": name});
    let status = json!({"addresses": addresses});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status});
    test_node.api.put("nodes", node);
}

#[test]
fn the_daemon_gets_the_document_of_its_node_and_the_other_nodes_as_peers() {
    let mut test_node = TestNode::without_agent();
    add_node(&test_node, "node1", "10.0.0.1");
    add_node(&test_node, "node2", "10.0.0.2");
    let directory = test_node.directory.path().join("nodes");
    std::fs::create_dir(&directory).unwrap();
    let document = "[[nic]]\nname = \"nic1\"\nnum_vfs = 1\n[[switch]]\nname = \"sw1\"\nnic = \"nic1\"\n\
                    [[switch.vxlan]]\nname = \"nodes\"\nvni = 7\n";
    std::fs::write(directory.join("default.toml"), document).unwrap();
    let peers = |test_node: &TestNode| {
        let switches = test_node.site.get("/v1/switches");
        let switch = switches.as_array().unwrap().iter().find(|it| it["name"] == "sw1").cloned();
        switch.map(|switch| switch["vxlan"][0]["peers"].clone())
    };
    test_node.options.node_config = Some(directory.clone());
    test_node.start();
    eventually("the daemon has the switch", || peers(&test_node) == Some(json!(["10.0.0.2"])));
    let all = untainted(&["nic0-vf0", "nic0-vf1", "nic1-vf0", "sw0-port", "sw1-port"]);
    eventually("its devices are published", || published(&test_node) == all);
    add_node(&test_node, "node3", "10.0.0.3");
    let both = json!(["10.0.0.2", "10.0.0.3"]);
    eventually("a new node is a peer", || peers(&test_node) == Some(both.clone()));
    test_node.api.remove("nodes", "", "node2");
    eventually("a node that is gone is none", || peers(&test_node) == Some(json!(["10.0.0.3"])));
    // Objects that the document no longer names go, and those of others stay.
    std::fs::write(directory.join("default.toml"), "[[nic]]\nname = \"nic1\"\nnum_vfs = 1\n")
        .unwrap();
    eventually("the switch is removed", || peers(&test_node).is_none());
    assert_eq!(test_node.site.get("/v1/switches").as_array().unwrap().len(), 1);
    test_node.site.does("DELETE", "/v1/nics/nic1", Value::Null);
    let has_nic =
        |test_node: &TestNode| test_node.site.get("/v1/nics").as_array().unwrap().len() == 2;
    eventually("what is lost comes again", || has_nic(&test_node));
}
