//! A node without a cluster: the API of a daemon without a data plane, an API server, and a kubelet
//! that calls the agent's sockets.

pub(crate) mod api_server;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use api::testing::{Site, eventually_in};
use serde_json::{Value, json};
use shunt_agent::agent::Agent;
use shunt_agent::options::Options;
use shunt_agent::proto::dra::dra_plugin_client::DraPluginClient;
use shunt_agent::proto::dra::{
    Claim, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
};
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};

use api_server::ApiServer;

/// Time in which what is to happen happens, on a machine that does much else.
const SOON: Duration = Duration::from_secs(20);

pub(crate) struct TestNode {
    pub(crate) api: ApiServer,
    pub(crate) site: Site,
    pub(crate) directory: tempfile::TempDir,
    pub(crate) options: Options,
    agent: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

/// Waits for what comes soon.
pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_in(SOON, what, holds);
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

impl TestNode {
    /// A node with a NIC of two VFs and a switch; its agent runs.
    pub(crate) fn new() -> TestNode {
        let mut test_node = TestNode::without_agent();
        test_node.start();
        test_node
    }

    pub(crate) fn without_agent() -> TestNode {
        let site = Site::new();
        site.apply(json!({
            "version": 1, "nic": [{"name": "nic0", "num_vfs": 2}],
            "switch": [{"name": "sw0", "nic": "nic0", "iov": true}],
        }));
        let api = ApiServer::start();
        api.put(
            "nodes",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1", "uid": "n1"}}),
        );
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            run_dir: site.dir.path().to_owned(),
            kubelet_dir: directory.path().join("kubelet"),
            cdi_dir: directory.path().join("cdi"),
            interval: Duration::from_millis(400),
            patience: Duration::from_secs(2),
            sysfs: "/nowhere".into(),
            ..Options::of("node1")
        };
        TestNode { api, site, directory, options, agent: None }
    }

    pub(crate) fn start(&mut self) {
        let address = format!("http://127.0.0.1:{}", self.api.port);
        let config = kube::Config::new(address.parse().unwrap());
        let options = self.options.clone();
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            wait(async {
                let agent = Agent::new(options, config).unwrap();
                ready.send(()).unwrap();
                agent.run(async { drop(stopped.await) }).await.unwrap();
            });
        });
        is_ready.recv().unwrap();
        self.agent = Some((stop, thread));
        let socket = self.registry(); // the last one that is made
        eventually("the agent listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    pub(crate) fn stop(&mut self) {
        let (stop, thread) = self.agent.take().unwrap();
        stop.send(()).unwrap();
        thread.join().unwrap();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.options.plugin_dir().join("dra.sock")
    }

    pub(crate) fn registry(&self) -> PathBuf {
        self.options.kubelet_dir.join("plugins_registry/shunt.dev-reg.sock")
    }

    /// A pod of this node, in the API server.
    pub(crate) fn add_pod(&self, name: &str, uid: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "node1"},
            "metadata": {"name": name, "namespace": "default", "uid": uid},
        });
        self.api.put("pods", pod);
    }

    /// A claim with a device for a pod, and the pod.
    pub(crate) fn add_claim(&self, name: &str, uid: &str, device: &str, parameters: &Value) {
        let (pod, pod_uid) = (format!("pod-{name}"), format!("pod-{uid}"));
        self.add_pod(&pod, &pod_uid);
        let result =
            json!({"request": "net1", "driver": "shunt.dev", "pool": "node1", "device": device});
        let config = json!([{
            "source": "FromClass", "opaque": {"driver": "shunt.dev", "parameters": parameters},
        }]);
        self.api.put(
            "resourceclaims",
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default", "uid": uid}, "spec": {},
                "status": {
                    "allocation": {"devices": {"results": [result], "config": config}},
                    "reservedFor": [{"resource": "pods", "name": pod, "uid": pod_uid}],
                },
            }),
        );
    }

    /// Deletes a pod and its claim, as a claim that is made of a template goes with its pod.
    pub(crate) fn remove_pod(&self, claim: &str) {
        self.api.remove("pods", "default", &format!("pod-{claim}"));
        self.api.remove("resourceclaims", "default", claim);
    }

    /// The kubelet's call for claims, given as name and UID.
    pub(crate) fn prepare(
        &self,
        claims: &[(&str, &str)],
    ) -> HashMap<String, NodePrepareResourceResponse> {
        wait(async {
            let request = NodePrepareResourcesRequest { claims: named(claims) };
            let mut client = DraPluginClient::new(channel(self.socket()).await);
            client.node_prepare_resources(request).await.unwrap().into_inner().claims
        })
    }

    /// The same, which returns the errors.
    pub(crate) fn unprepare(&self, claims: &[(&str, &str)]) -> Vec<String> {
        wait(async {
            let request = NodeUnprepareResourcesRequest { claims: named(claims) };
            let mut client = DraPluginClient::new(channel(self.socket()).await);
            let answer = client.node_unprepare_resources(request).await.unwrap().into_inner();
            assert_eq!(answer.claims.len(), claims.len(), "each has its answer");
            answer.claims.into_values().map(|it| it.error).collect()
        })
    }

    pub(crate) fn adapters(&self) -> Vec<Value> {
        self.site.get("/v1/adapters").as_array().unwrap().clone()
    }

    pub(crate) fn cdi_files(&self) -> BTreeSet<String> {
        let files =
            fs::read_dir(&self.options.cdi_dir).into_iter().flatten().filter_map(Result::ok);
        files.map(|file| file.file_name().into_string().unwrap()).collect()
    }

    pub(crate) fn checkpoint(&self) -> Value {
        let file = self.options.plugin_dir().join("claims.json");
        let text = fs::read(file).unwrap_or_else(|_| br#"{"claims":{}}"#.to_vec());
        serde_json::from_slice::<Value>(&text).unwrap()["claims"].clone()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.agent.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

pub(crate) async fn channel(socket: PathBuf) -> Channel {
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display())).unwrap();
    endpoint.connect().await.unwrap()
}

fn named(claims: &[(&str, &str)]) -> Vec<Claim> {
    let claim = |(name, uid): &(&str, &str)| Claim {
        namespace: "default".to_owned(),
        name: (*name).to_owned(),
        uid: (*uid).to_owned(),
    };
    claims.iter().map(claim).collect()
}
