//! The executable, killed at different moments of a call.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::test_node::{TestNode, channel, eventually, wait};
use serde_json::json;
use shunt_agent::proto::dra::dra_plugin_client::DraPluginClient;
use shunt_agent::proto::dra::{Claim, NodePrepareResourcesRequest};

/// An agent as a process of its own, which is killed at the end.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(test_node: &TestNode) -> Process {
    let kubeconfig = test_node.directory.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://127.0.0.1:{}", test_node.api.port)}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
    });
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt-agent"));
    command.env("KUBECONFIG", &kubeconfig).env("NODE_NAME", "node1").stderr(Stdio::null());
    command.arg("--run-dir").arg(&test_node.options.run_dir);
    command.arg("--kubelet-dir").arg(&test_node.options.kubelet_dir);
    command.arg("--cdi-dir").arg(&test_node.options.cdi_dir);
    let process = Process(command.spawn().unwrap());
    eventually("the agent listens", || UnixStream::connect(test_node.registry()).is_ok());
    process
}

#[test]
fn a_claim_is_prepared_once_whenever_the_agent_is_killed() {
    let test_node = TestNode::without_agent();
    for round in 0..12 {
        let (name, uid) = (format!("claim-{round}"), format!("u{round}"));
        test_node.add_claim(&name, &uid, "sw0-port", &json!({}));
        let process = start(&test_node);
        let claim = Claim { namespace: "default".to_owned(), name: name.clone(), uid: uid.clone() };
        wait(async {
            let mut client = DraPluginClient::new(channel(test_node.socket()).await);
            let request = NodePrepareResourcesRequest { claims: vec![claim] };
            let call = client.node_prepare_resources(request);
            // Before, within or after the call, as it happens.
            let _ = tokio::time::timeout(Duration::from_millis(3 * round), call).await;
        });
        drop(process);
        let promised = test_node.checkpoint();
        let adapters = test_node.adapters();
        let has = |uid: &String| adapters.iter().any(|it| it["owner"]["claim"] == uid.as_str());
        assert!(promised.as_object().unwrap().keys().all(has), "{promised}: no adapter");
        let process = start(&test_node);
        let named = [(name.as_str(), uid.as_str())];
        let first = test_node.prepare(&named);
        assert_eq!((first[&uid].error.as_str(), first[&uid].devices.len()), ("", 1));
        assert_eq!(test_node.prepare(&named), first);
        let adapters = test_node.adapters();
        let of: Vec<_> =
            adapters.iter().filter(|it| it["owner"]["claim"] == uid.as_str()).collect();
        assert_eq!(of.len(), 1);
        assert!(test_node.cdi_files().contains(&format!("shunt.dev-claim-{uid}.json")));
        if round % 2 == 0 {
            assert_eq!(test_node.unprepare(&named), [""]);
        }
        drop(process);
    }
    assert_eq!(
        (test_node.adapters().len(), test_node.checkpoint().as_object().unwrap().len()),
        (6, 6)
    );
}
