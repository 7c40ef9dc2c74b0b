//! The kubelet's calls: claims are prepared and unprepared, repeatedly, wrongly, and after crashes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::test_node::{TestNode, channel, eventually, wait};
use serde_json::{Value, json};
use shunt_agent::proto::registration::registration_client::RegistrationClient;
use shunt_agent::proto::registration::{InfoRequest, RegistrationStatus};

#[test]
fn the_kubelet_finds_the_driver() {
    let mut test_node = TestNode::new();
    for _ in 0..2 {
        let info = wait(async {
            let mut client = RegistrationClient::new(channel(test_node.registry()).await);
            let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
            for plugin_registered in [true, false] {
                let error = "refused ".repeat(100);
                let status = RegistrationStatus { plugin_registered, error };
                client.notify_registration_status(status).await.unwrap();
            }
            info
        });
        assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", "shunt.dev"));
        assert_eq!(info.supported_versions, ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]);
        assert_eq!(info.endpoint, test_node.socket().display().to_string());
        test_node.stop();
        assert!(!test_node.registry().exists(), "the kubelet unregisters it");
        fs::write(test_node.registry(), "left by a crash").unwrap();
        test_node.start();
    }
}

#[test]
fn a_claim_is_prepared_and_unprepared_twice() {
    let test_node = TestNode::new();
    test_node.add_claim("web", "u1", "sw0-port", &json!({"vlan": 7, "ips": ["10.0.0.5/24"]}));
    let first = test_node.prepare(&[("web", "u1")]);
    let [device] = &first["u1"].devices[..] else { panic!("{first:?}") };
    assert_eq!((device.pool_name.as_str(), device.device_name.as_str()), ("node1", "sw0-port"));
    assert_eq!(device.request_names, ["net1"]);
    let [adapter] = &test_node.adapters()[..] else { panic!() };
    let name = adapter["name"].as_str().unwrap();
    assert_eq!(device.cdi_device_ids, [format!("shunt.dev/adapter={name}")]);
    assert_eq!((&adapter["vlan"]["id"], &adapter["switch"]), (&json!(7), &json!("sw0")));
    let owner = json!({
        "claim": "u1", "claim-name": "web", "namespace": "default", "request": "net1",
        "interface": "net1", "pod": "pod-web", "uid": "pod-u1",
    });
    assert_eq!(adapter["owner"], owner);
    assert_eq!(test_node.checkpoint()["u1"]["devices"][0]["adapter"]["name"], name);
    let file = test_node.options.cdi_dir.join("shunt.dev-claim-u1.json");
    let cdi: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let hook = &cdi["devices"][0]["containerEdits"]["hooks"][0];
    assert_eq!(
        (&hook["hookName"], &hook["path"]),
        (&json!("createRuntime"), &json!("/opt/cni/bin/shunt-cni"))
    );
    assert_eq!(hook["args"], json!(["shunt-cni", "attach", test_node.options.run_dir, name]));
    // A pod that has its interface keeps it when the kubelet asks again.
    let netns = json!({"attachment": {"netns": "/run/netns/web"}});
    test_node.site.does("PATCH", &format!("/v1/adapters/{name}"), netns);
    assert_eq!(test_node.prepare(&[("web", "u1")]), first);
    assert_eq!(test_node.adapters()[0]["attachment"]["netns"], "/run/netns/web");
    eventually("the status is written", || {
        let claims = test_node.api.all("resourceclaims");
        let device = &claims[0]["status"]["devices"][0];
        device["networkData"]
            == json!({
                "interfaceName": "net1", "hardwareAddress": adapter["mac"], "ips": ["10.0.0.5/24"],
            })
            && device["conditions"][0]["type"] == "Ready"
    });
    for _ in 0..2 {
        assert_eq!(test_node.unprepare(&[("web", "u1"), ("other", "u9")]), ["", ""]);
        assert_eq!((test_node.adapters(), test_node.checkpoint()), (vec![], json!({})));
        assert!(test_node.cdi_files().is_empty());
    }
}

#[test]
fn a_socket_for_dpdk_is_a_mount() {
    let test_node = TestNode::new();
    test_node.add_claim("dpdk", "u1", "nic0-vf1", &json!({"attachment": "vhost-user"}));
    assert_eq!(test_node.prepare(&[("dpdk", "u1")])["u1"].error, "");
    let [adapter] = &test_node.adapters()[..] else { panic!() };
    assert_eq!((&adapter["nic"], &adapter["vf"]), (&json!("nic0"), &json!(1)));
    let socket = adapter["attachment"]["socket"].as_str().unwrap();
    let directory = std::path::Path::new(socket).parent().unwrap();
    assert!(directory.is_dir());
    assert_eq!(adapter["attachment"]["socket_mode"], "0666");
    let mode = |it: &std::path::Path| fs::metadata(it).unwrap().permissions().mode() & 0o777;
    let modes = [mode(directory), mode(directory.parent().unwrap())];
    assert_eq!(modes, [0o755, 0o700], "of the pod, and of no other user of the node");
    let file = test_node.options.cdi_dir.join("shunt.dev-claim-u1.json");
    let cdi: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let edits = &cdi["devices"][0]["containerEdits"];
    let mount = json!({
        "hostPath": directory, "containerPath": "/run/shunt/net1", "options": ["rbind", "rw"],
    });
    let [first, metadata] = &edits["mounts"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((first, edits["hooks"].as_array().unwrap().len()), (&mount, 1));
    let inside = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/dpdk/net1";
    assert_eq!(metadata["containerPath"], format!("{inside}/shunt.dev-metadata.json"));
    let file = std::path::Path::new(metadata["hostPath"].as_str().unwrap());
    let read: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let device = &read["requests"][0]["devices"][0];
    assert_eq!(device["attributes"]["vhost-user-path"]["string"], "/run/shunt/net1/vhost.sock");
    assert_eq!(test_node.unprepare(&[("dpdk", "u1")]), [""]);
    assert!(!directory.exists() && !file.exists());
}

#[test]
fn one_claims_mistake_is_no_others() {
    let test_node = TestNode::new();
    test_node.add_claim("first", "u1", "nic0-vf0", &json!({}));
    assert_eq!(test_node.prepare(&[("first", "u1")])["u1"].error, "");
    test_node.add_claim("late", "u2", "nic0-vf0", &json!({})); // the last VF, a second time
    test_node.add_claim("wrong", "u3", "sw0-port", &json!({"vlan": 5000}));
    test_node.add_claim("unknown", "u4", "sw0-port", &json!({"vlam": 7}));
    test_node.add_claim("good", "u5", "sw0-port", &json!({}));
    test_node.add_claim("again", "u6", "sw0-port", &json!({}));
    test_node.add_claim("cni", "u7", "nic0-vf1", &json!({"attachment": "cni"}));
    let all = [
        ("late", "u2"),
        ("wrong", "u3"),
        ("unknown", "u4"),
        ("good", "u5"),
        ("again", "u0"),
        ("gone", "u8"),
        ("cni", "u7"),
    ];
    let answers = test_node.prepare(&all);
    for (uid, expected) in [
        ("u2", "vf"),
        ("u3", "vlan.id: 5000 is out of range"),
        ("u3", "write a whole number, 1 to 4094"),
        ("u4", "request net1: parameter vlam is unknown; expected one of"),
        ("u0", "was made again: its UID is u6, not u0"),
        ("u8", "does not exist any more"),
    ] {
        let error = &answers[uid].error;
        assert!(error.contains(expected) && answers[uid].devices.is_empty(), "{uid}: {error}");
    }
    assert_eq!((answers["u5"].error.as_str(), answers["u5"].devices.len()), ("", 1));
    let cni = &answers["u7"];
    assert_eq!((cni.error.as_str(), cni.devices.len()), ("", 1));
    assert!(cni.devices[0].cdi_device_ids.is_empty(), "shunt-cni makes the adapter");
    let checkpoint = test_node.checkpoint();
    let uids: Vec<&String> = checkpoint.as_object().unwrap().keys().collect();
    assert_eq!(uids, ["u1", "u5", "u7"]);
    assert_eq!(test_node.adapters().len(), 2);
}

#[test]
fn what_a_crash_leaves_is_found_again() {
    let mut test_node = TestNode::new();
    test_node.add_claim("web", "u1", "sw0-port", &json!({}));
    test_node.add_claim("db", "u2", "nic0-vf0", &json!({}));
    let both = [("web", "u1"), ("db", "u2")];
    let answers = test_node.prepare(&both);
    let adapters = test_node.adapters();
    test_node.stop();
    // A reboot: run directories are empty, and another driver's file is no concern.
    fs::remove_dir_all(&test_node.options.cdi_dir).unwrap();
    fs::create_dir_all(&test_node.options.cdi_dir).unwrap();
    for stray in ["shunt.dev-claim-u9.json", "shunt.dev-claim-u1.new", "gpu.example.json"] {
        fs::write(test_node.options.cdi_dir.join(stray), "{}").unwrap();
    }
    test_node.start();
    let files = test_node.cdi_files();
    for uid in ["u1", "u2"] {
        assert!(files.contains(&format!("shunt.dev-claim-{uid}.json")), "{files:?}");
    }
    assert!(files.contains("gpu.example.json") && !files.contains("shunt.dev-claim-u9.json"));
    assert_eq!(test_node.prepare(&both), answers);
    // Killed before the checkpoint was written.
    test_node.stop();
    fs::remove_file(test_node.options.plugin_dir().join("claims.json")).unwrap();
    test_node.start();
    assert_eq!(test_node.prepare(&both[..1])["u1"], answers["u1"]);
    assert_eq!(test_node.unprepare(&both[1..]), [""], "its adapter is found by its owner");
    assert_eq!(test_node.adapters().len(), 1);
    assert_eq!(
        test_node.adapters()[0]["mac"],
        adapters.iter().find(|it| it["owner"]["claim"] == "u1").unwrap()["mac"]
    );
}

#[test]
fn a_daemon_that_forgets_gets_the_adapters_again() {
    let test_node = TestNode::new();
    test_node.add_claim("web", "u1", "sw0-port", &json!({}));
    test_node.prepare(&[("web", "u1")]);
    let name = test_node.adapters()[0]["name"].as_str().unwrap().to_owned();
    let path = format!("/v1/adapters/{name}");
    test_node.site.does("PATCH", &path, json!({"attachment": {"netns": "/run/netns/web"}}));
    eventually("the namespace is in the checkpoint", || {
        let adapter = &test_node.checkpoint()["u1"]["devices"][0]["adapter"];
        adapter["attachment"]["netns"] == "/run/netns/web"
    });
    test_node.site.does("DELETE", &path, Value::Null);
    eventually("the adapter is there again", || test_node.adapters().len() == 1);
    assert_eq!(test_node.adapters()[0]["attachment"]["netns"], "/run/netns/web");
}

#[test]
fn a_call_waits_for_the_daemon_and_then_fails() {
    let mut test_node = TestNode::new();
    test_node.add_claim("web", "u1", "sw0-port", &json!({}));
    test_node.site.server = None;
    let error = test_node.prepare(&[("web", "u1")])["u1"].error.clone();
    assert!(error.contains("daemon at "), "{error}");
    assert!(test_node.unprepare(&[("web", "u1")])[0].contains("does not run"));
    let socket = test_node.socket();
    let waiting = std::thread::spawn(move || {
        wait(async {
            let mut client = shunt_agent::proto::dra::dra_plugin_client::DraPluginClient::new(
                channel(socket).await,
            );
            let claim = shunt_agent::proto::dra::Claim {
                namespace: "default".to_owned(),
                name: "web".to_owned(),
                uid: "u1".to_owned(),
            };
            let request =
                shunt_agent::proto::dra::NodePrepareResourcesRequest { claims: vec![claim] };
            client.node_prepare_resources(request).await.unwrap().into_inner()
        })
    });
    test_node.site.start(None);
    assert_eq!(waiting.join().unwrap().claims["u1"].error, "");
    assert_eq!(test_node.adapters().len(), 1);
}
