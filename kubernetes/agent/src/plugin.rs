//! The calls of the kubelet (`DRAPlugin`, version v1).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use api::{ClientError, Method};
use common::Daemon;
use k8s_openapi::api::resource::v1::ResourceClaim;
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use tonic::{Request, Response, Status};

use crate::allocation;
use crate::cdi::Cdi;
use crate::checkpoint::Claim;
use crate::cluster::{Cluster, is_final, reason};
use crate::keeper::{Keeper, Work};
use crate::options::Options;
use crate::proto::dra::dra_plugin_server::DraPlugin;
use crate::proto::dra::{
    Claim as Named, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest,
    NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};

/// Pause before the API server or the daemon is asked again.
const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(200);

/// The plugin.
#[derive(Clone)]
pub struct Plugin {
    /// Options of the agent.
    pub options: Arc<Options>,
    /// The API server.
    pub cluster: Cluster,
    /// The keeper of the claims.
    pub keeper: Keeper,
    /// Told of each change of the claims.
    pub changed: Arc<Notify>,
}

impl Plugin {
    /// Prepares a claim; returns it with its devices.
    async fn prepare(&self, named: &Named) -> anyhow::Result<Claim> {
        let until = Instant::now() + self.options.patience;
        let resource = self.read(named, until).await?;
        let options = self.options.clone();
        let plan = spawn_blocking(move || {
            let daemon = Daemon::at(&options.run_dir);
            allocation::claim(&resource, &options, &|nic| is_card(&daemon, nic, until))
        });
        let claim = plan.await.context("the plan has failed")??;
        let done = self.keeper.change(Work::Prepare(claim.clone())).await;
        done.map_err(anyhow::Error::msg)?;
        self.changed.notify_one();
        Ok(claim)
    }

    /// The claim as the API server has it.
    async fn read(&self, named: &Named, until: Instant) -> anyhow::Result<ResourceClaim> {
        let resource = loop {
            match self.cluster.claim(&named.namespace, &named.name).await {
                Ok(resource) => break resource,
                Err(error) if is_final(&error) || Instant::now() > until => {
                    return Err(reason(error))
                        .context("the claim cannot be read from the API server");
                }
                Err(_) => sleep(RETRY_PAUSE).await,
            }
        };
        let Some(resource) = resource else { bail!("the claim does not exist any more") };
        match resource.metadata.uid.as_deref() {
            Some(uid) if uid == named.uid => Ok(resource),
            other => bail!(
                "the claim was made again: its UID is {}, not {}; make the pod again too",
                other.unwrap_or("none"),
                named.uid
            ),
        }
    }

    fn answer(&self, claim: &Claim) -> NodePrepareResourceResponse {
        let devices = claim.devices.iter().map(|device| Device {
            request_names: vec![device.request.clone()],
            pool_name: device.pool.clone(),
            device_name: device.device.clone(),
            cdi_device_ids: device
                .adapter
                .iter()
                .map(|it| Cdi::id(&self.options.driver, it))
                .collect(),
            share_id: device.share.clone(),
        });
        NodePrepareResourceResponse { devices: devices.collect(), error: String::new() }
    }
}

/// `true` if a NIC is a card of the machine.
fn is_card(daemon: &Daemon, nic: &str, until: Instant) -> anyhow::Result<bool> {
    loop {
        match daemon.find(Method::GET, &format!("/v1/nics/{nic}")) {
            Ok(Some(found)) => return Ok(found["kind"] == "pci"),
            Ok(None) => bail!("the daemon has no NIC {nic}: add it (shunt apply)"),
            Err(error) if matches!(error, ClientError::Refused(_)) || Instant::now() > until => {
                return Err(error.into());
            }
            Err(_) => std::thread::sleep(RETRY_PAUSE),
        }
    }
}

/// Does the same for all claims of a call, at once.
async fn for_each<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    claims: Vec<Named>,
    work: impl Fn(Named) -> F,
) -> Result<HashMap<String, T>, Status> {
    let mut all = JoinSet::new();
    for named in claims {
        let (uid, done) = (named.uid.clone(), work(named));
        all.spawn(async move { (uid, done.await) });
    }
    let mut answers = HashMap::new();
    while let Some(done) = all.join_next().await {
        let (uid, answer) = done.map_err(|error| Status::internal(error.to_string()))?;
        answers.insert(uid, answer);
    }
    Ok(answers)
}

#[tonic::async_trait]
impl DraPlugin for Plugin {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let claims = for_each(request.into_inner().claims, |named| {
            let plugin = self.clone();
            async move {
                plugin.prepare(&named).await.map_or_else(
                    |error| {
                        let error = failed(&named, "prepared", &format!("{error:#}"));
                        NodePrepareResourceResponse { devices: Vec::new(), error }
                    },
                    |claim| plugin.answer(&claim),
                )
            }
        });
        Ok(Response::new(NodePrepareResourcesResponse { claims: claims.await? }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let claims = for_each(request.into_inner().claims, |named| {
            let plugin = self.clone();
            async move {
                let done = plugin.keeper.change(Work::Unprepare(named.uid.clone())).await;
                let error = done.err().map(|error| failed(&named, "unprepared", &error));
                NodeUnprepareResourceResponse { error: error.unwrap_or_default() }
            }
        });
        Ok(Response::new(NodeUnprepareResourcesResponse { claims: claims.await? }))
    }
}

/// Writes the error of a claim to the log, and returns it for the kubelet, which names the claim.
fn failed(named: &Named, done: &str, error: &str) -> String {
    crate::log(&format!("claim {}/{} is not {done}: {error}", named.namespace, named.name));
    error.to_owned()
}
