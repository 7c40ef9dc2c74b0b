//! Requests to the API server.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, anyhow};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_stream::StreamExt as _;

use crate::checkpoint::Claim;
use crate::metadata;
use crate::node_config::Nodes;
use crate::options::Options;

/// Name under which the agent's fields are recorded.
const MANAGER: &str = "shunt-agent";
/// Annotation of the mirror of a static pod: the UID under which its kubelet knows it.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Limit for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Longest time for which the API server sends changes after one request, in seconds.
const WATCH_S: u32 = 240;

/// The API server, as an agent uses it.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    /// The same, for answers that take as long as changes are sent.
    watcher: Client,
    node: String,
    driver: String,
}

impl Cluster {
    /// The API server of a configuration.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn connect(mut config: Config, options: &Options) -> anyhow::Result<Cluster> {
        config.connect_timeout = Some(ANSWER_LIMIT);
        config.read_timeout = Some(ANSWER_LIMIT);
        let client =
            |config| Client::try_from(config).context("the API server's address is invalid");
        let watching = Duration::from_secs((WATCH_S + 20).into());
        let mut watcher = config.clone();
        watcher.read_timeout = Some(watching);
        let (watcher, client) = (client(watcher)?, client(config)?);
        Ok(Cluster { client, watcher, node: options.node.clone(), driver: options.driver.clone() })
    }

    fn claims(&self, namespace: &str) -> Api<ResourceClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn slices(&self) -> Api<ResourceSlice> {
        Api::all(self.client.clone())
    }

    /// The claim of that name; `None` if there is none.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn claim(&self, namespace: &str, name: &str) -> kube::Result<Option<ResourceClaim>> {
        self.claims(namespace).get_opt(name).await
    }

    /// UIDs of the pods of this node.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn pods(&self) -> kube::Result<BTreeSet<String>> {
        let of_node = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let pods = Api::<Pod>::all(self.client.clone()).list_metadata(&of_node).await?;
        let uids = pods.items.into_iter().flat_map(|pod| {
            let mirror = pod.metadata.annotations.and_then(|mut all| all.remove(MIRROR));
            [pod.metadata.uid, mirror].into_iter().flatten()
        });
        Ok(uids.collect())
    }

    /// Writes the status of a claim's devices. A claim of the same name with another UID is left.
    ///
    /// # Errors
    /// The API server does not answer, or rejects it.
    pub async fn report(&self, claim: &Claim, now: &str) -> kube::Result<()> {
        let devices: Vec<Value> =
            claim.devices.iter().map(|device| device_status(&self.driver, device, now)).collect();
        let status = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
            "status": {"devices": devices},
        });
        let apply = PatchParams::apply(MANAGER).force();
        let claims = self.claims(&claim.namespace);
        claims.patch_status(&claim.name, &apply, &Patch::Apply(&status)).await.map(drop)
    }

    /// Slices of this driver on this node.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn published(&self) -> kube::Result<Vec<ResourceSlice>> {
        let selector = format!("spec.nodeName={},spec.driver={}", self.node, self.driver);
        let slices = self.slices().list(&ListParams::default().fields(&selector)).await?;
        let is_ours = |it: &ResourceSlice| {
            it.spec.driver == self.driver && it.spec.node_name.as_deref() == Some(&*self.node)
        };
        Ok(slices.items.into_iter().filter(is_ours).collect())
    }

    /// Writes a slice; returns it as the API server has it.
    ///
    /// # Errors
    /// The API server does not answer, or rejects it.
    pub async fn publish(&self, slice: &Value) -> kube::Result<ResourceSlice> {
        let name = slice["metadata"]["name"].as_str().unwrap_or_default();
        let apply = PatchParams::apply(MANAGER).force();
        self.slices().patch(name, &apply, &Patch::Apply(slice)).await
    }

    /// Deletes a slice; one that is gone is no error.
    ///
    /// # Errors
    /// The API server does not answer, or rejects it.
    pub async fn withdraw(&self, name: &str) -> kube::Result<()> {
        match self.slices().delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            done => done.map(drop),
        }
    }

    /// Follows the addresses of all nodes for some minutes.
    ///
    /// # Errors
    /// The API server does not answer, or no longer.
    pub async fn follow_nodes(&self, addresses: &watch::Sender<Nodes>) -> kube::Result<()> {
        let nodes = Api::<Node>::all(self.watcher.clone());
        let list = nodes.list(&ListParams::default()).await?;
        let mut known: Nodes = list.items.iter().filter_map(address_of).collect();
        set(addresses, &known);
        let version = list.metadata.resource_version.unwrap_or_default();
        let changes = nodes.watch(&WatchParams::default().timeout(WATCH_S), &version).await?;
        let mut changes = pin!(changes);
        while let Some(change) = changes.try_next().await? {
            match change {
                WatchEvent::Added(node) | WatchEvent::Modified(node) => {
                    known.remove(node.metadata.name.as_deref().unwrap_or_default());
                    known.extend(address_of(&node));
                }
                WatchEvent::Deleted(node) => {
                    known.remove(node.metadata.name.as_deref().unwrap_or_default());
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
            set(addresses, &known);
        }
        Ok(())
    }

    /// UID of this node.
    ///
    /// # Errors
    /// The API server does not answer, or has no such node.
    pub async fn node_uid(&self) -> kube::Result<String> {
        let node = Api::<Node>::all(self.client.clone()).get_metadata(&self.node).await?;
        Ok(node.metadata.uid.unwrap_or_default())
    }
}

fn set(addresses: &watch::Sender<Nodes>, known: &Nodes) {
    addresses.send_if_modified(|before| {
        let is_new = before != known;
        before.clone_from(known);
        is_new
    });
}

/// Name of a node and its address in the cluster's network.
fn address_of(node: &Node) -> Option<(String, IpAddr)> {
    let mut addresses = node.status.as_ref()?.addresses.as_ref()?.iter();
    let internal = addresses.find(|it| it.type_ == "InternalIP")?;
    Some((node.metadata.name.clone()?, internal.address.parse().ok()?))
}

/// `true` if the API server has answered, and will not answer otherwise.
pub fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [404, 422].contains(&status.code))
}

/// Reason of an error, in the words of the API server.
pub fn reason(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => {
            anyhow!("the API server answers {}: {}", status.code, status.message)
        }
        error => error.into(),
    }
}

fn device_status(driver: &str, device: &crate::checkpoint::Device, now: &str) -> Value {
    let mut status = json!({
        "driver": driver, "pool": device.pool, "device": device.device,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Prepared", "lastTransitionTime": now,
            "message": "its adapter is in the daemon's document",
        }],
    });
    if let Some(share) = &device.share {
        status["shareID"] = json!(share);
    }
    if let Some(adapter) = &device.adapter {
        let attachment = &adapter["attachment"];
        status["data"] = json!({"adapter": adapter["name"], "kind": attachment["kind"]});
        status["networkData"] = metadata::network(adapter);
    } else {
        status["conditions"][0]["message"] = json!("shunt-cni makes its adapter");
    }
    status
}
