//! Health of the devices (`v1alpha1.DRAResourceHealth`), which the kubelet shows in the status of
//! pods. It follows from the taints, and is repeated with each reading of the daemon.

use std::pin::Pin;

use k8s_openapi::api::resource::v1::Device;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::inventory::Taint;
use crate::options::Options;
use crate::proto::health::dra_resource_health_server::DraResourceHealth;
use crate::proto::health::{
    DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest,
    NodeWatchResourcesResponse,
};

/// Health of devices at a time in seconds since 1970.
pub fn of(devices: &[Device], options: &Options, now: i64) -> NodeWatchResourcesResponse {
    let reasons = [
        (Taint::DaemonDown, "the daemon does not answer: see its log"),
        (Taint::NicDown, "the NIC has no link, or is gone: see shunt nic list"),
    ];
    let one = |device: &Device| {
        let taints = device.taints.as_deref().unwrap_or_default();
        let has = |taint: Taint| taints.contains(&taint.of(&options.driver));
        let reason = reasons.iter().find(|(taint, _)| has(*taint)).map(|(_, reason)| *reason);
        let health = if reason.is_some() { HealthStatus::Unhealthy } else { HealthStatus::Healthy };
        DeviceHealth {
            device: Some(DeviceIdentifier {
                pool_name: options.node.clone(),
                device_name: device.name.clone(),
            }),
            health: health.into(),
            last_updated_time: now,
            health_check_timeout_seconds: 0,
            message: reason.unwrap_or_default().to_owned(),
        }
    };
    NodeWatchResourcesResponse { devices: devices.iter().map(one).collect() }
}

/// The service.
#[derive(Debug)]
pub struct Health(pub watch::Receiver<NodeWatchResourcesResponse>);

#[tonic::async_trait]
impl DraResourceHealth for Health {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        Ok(Response::new(Box::pin(WatchStream::new(self.0.clone()).map(Ok))))
    }
}
