//! Requests to the API server.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, anyhow};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::checkpoint::Claim;
use crate::options::Options;

/// Name under which the agent's fields are recorded.
const MANAGER: &str = "shunt-agent";
/// Annotation of the mirror of a static pod: the UID under which its kubelet knows it.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Limit for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The API server, as an agent uses it.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
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
        let client = Client::try_from(config).context("the API server's address is invalid")?;
        Ok(Cluster { client, node: options.node.clone(), driver: options.driver.clone() })
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

    /// UID of this node.
    ///
    /// # Errors
    /// The API server does not answer, or has no such node.
    pub async fn node_uid(&self) -> kube::Result<String> {
        let node = Api::<Node>::all(self.client.clone()).get_metadata(&self.node).await?;
        Ok(node.metadata.uid.unwrap_or_default())
    }
}

/// `true` if the API server has answered, and will not answer otherwise.
pub fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
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
        status["networkData"] = json!({
            "interfaceName": adapter["owner"]["interface"], "hardwareAddress": adapter["mac"],
            "ips": attachment["ip"].as_array().cloned().unwrap_or_default(),
        });
    } else {
        status["conditions"][0]["message"] = json!("shunt-cni makes its adapter");
    }
    status
}
