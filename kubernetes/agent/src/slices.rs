//! The pool of this node: its devices in ResourceSlices.
//!
//! A pool has a generation, which all its slices have; it grows with each change, so that the
//! scheduler takes no half of one. Slices are compared with earlier answers of the API server, and
//! not with what was sent: it writes defaults and quantities its own way.

use k8s_openapi::api::resource::v1::{Device, ResourceSlice, ResourceSliceSpec};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::options::Options;

/// Most devices of a slice with taints (limit of the API).
const SLICE_MAX: usize = 64;

/// Publisher of the pool.
pub struct Pool {
    cluster: Cluster,
    node: String,
    driver: String,
    /// Devices that were sent, and the slices that came back.
    published: Option<(Vec<Device>, Vec<ResourceSlice>)>,
}

impl Pool {
    /// The pool of that agent's node.
    pub fn new(cluster: Cluster, options: &Options) -> Pool {
        let (node, driver) = (options.node.clone(), options.driver.clone());
        Pool { cluster, node, driver, published: None }
    }

    /// `true` if these devices are published, as far as the agent knows.
    pub fn is(&self, devices: &[Device]) -> bool {
        self.published.as_ref().is_some_and(|(sent, _)| sent == devices)
    }

    /// Devices that are published, without their taints.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn devices(&self) -> kube::Result<Vec<Device>> {
        if let Some((sent, _)) = &self.published {
            return Ok(sent.iter().cloned().map(without_taints).collect());
        }
        let slices = self.cluster.published().await?.into_iter();
        let devices = slices.flat_map(|slice| slice.spec.devices.unwrap_or_default());
        Ok(devices.map(without_taints).collect())
    }

    /// Publishes devices, unless the API server has them already.
    ///
    /// # Errors
    /// The API server does not answer, or rejects a slice.
    pub async fn publish(&mut self, devices: Vec<Device>) -> kube::Result<()> {
        let there = self.cluster.published().await?;
        match &self.published {
            Some((sent, slices)) if *sent == devices && specs(slices) == specs(&there) => {
                return Ok(());
            }
            // Those of the process before.
            None if is_pool(&there, &devices) => {
                self.published = Some((devices, there));
                return Ok(());
            }
            _ => {}
        }
        let generation = there.iter().map(|slice| slice.spec.pool.generation).max();
        let generation = generation.unwrap_or_default() + 1;
        let owner = self.cluster.node_uid().await?;
        let parts: Vec<&[Device]> = devices.chunks(SLICE_MAX).collect();
        let mut slices = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let slice = self.slice(index, part, generation, parts.len(), &owner);
            slices.push(self.cluster.publish(&slice).await?);
        }
        let names: Vec<_> = slices.iter().map(|slice| slice.metadata.name.clone()).collect();
        for slice in there.iter().filter(|slice| !names.contains(&slice.metadata.name)) {
            self.cluster.withdraw(slice.metadata.name.as_deref().unwrap_or_default()).await?;
        }
        self.published = Some((devices, slices));
        Ok(())
    }

    fn slice(
        &self,
        index: usize,
        devices: &[Device],
        generation: i64,
        count: usize,
        owner: &str,
    ) -> Value {
        let Pool { node, driver, .. } = self;
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {
                "name": format!("{node}-{driver}-{index}"),
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": node, "uid": owner,
                    "controller": true,
                }],
            },
            "spec": {
                "driver": driver, "nodeName": node, "devices": devices,
                "pool": {"name": node, "generation": generation, "resourceSliceCount": count},
            },
        })
    }
}

fn without_taints(device: Device) -> Device {
    Device { taints: None, ..device }
}

/// Specifications of slices, in the order of their names.
fn specs(slices: &[ResourceSlice]) -> Vec<&ResourceSliceSpec> {
    let mut all: Vec<_> = slices.iter().collect();
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all.into_iter().map(|slice| &slice.spec).collect()
}

/// `true` if slices are a whole pool with these devices, whenever their taints were added.
fn is_pool(slices: &[ResourceSlice], devices: &[Device]) -> bool {
    let specs = specs(slices);
    let count = i64::try_from(specs.len()).unwrap_or_default();
    let generation = specs.first().map(|spec| spec.pool.generation);
    let is_whole = specs.iter().all(|spec| {
        spec.pool.resource_slice_count == count && Some(spec.pool.generation) == generation
    });
    let mut there: Vec<Device> =
        specs.iter().flat_map(|spec| spec.devices.clone().unwrap_or_default()).collect();
    for taint in there.iter_mut().flat_map(|device| device.taints.iter_mut().flatten()) {
        taint.time_added = None;
    }
    there.sort_by(|a, b| a.name.cmp(&b.name));
    is_whole && there == devices
}
