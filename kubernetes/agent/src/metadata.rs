//! Device metadata of Kubernetes (KEP 5304, `metadata.resource.k8s.io/v1alpha1`): a file for each
//! request of a claim, which its containers read.
//!
//! A device with a vhost-user socket has the attributes `vhost-user-path`, the socket in the
//! container, and `mtu`: KubeVirt's network binding for vhost-user gives them to QEMU.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::checkpoint::{Claim, Device};

/// Directory of the files in a container.
const DIRECTORY: &str = "/var/run/kubernetes.io/dra-device-attributes";
/// Directory in a container with a directory for each of its vhost-user sockets.
const CONTAINER_DIR: &str = "/run/shunt";
/// MTU of an adapter that has none.
const MTU: u64 = 1500;

/// Requests of a claim that have adapters of the agent's, without their alternatives.
pub fn requests(claim: &Claim) -> BTreeSet<&str> {
    let own = claim.devices.iter().filter(|device| device.adapter.is_some());
    own.map(|device| base(&device.request)).collect()
}

/// Name of a request without that of its alternative.
pub fn base(request: &str) -> &str {
    request.split_once('/').map_or(request, |(base, _)| base)
}

/// Path of the file in a container. That of a claim from a template has the pod's name for it.
pub fn container_path(claim: &Claim, request: &str, driver: &str) -> String {
    let (kind, name) = match &claim.pod_claim {
        Some(name) => ("resourceclaimtemplates", name),
        None => ("resourceclaims", &claim.name),
    };
    format!("{DIRECTORY}/{kind}/{name}/{request}/{driver}-metadata.json")
}

/// Contents of the file.
pub fn contents(claim: &Claim, request: &str, driver: &str) -> Value {
    let devices: Vec<&Device> =
        claim.devices.iter().filter(|device| base(&device.request) == request).collect();
    let name = devices.first().map_or(request, |device| &device.request);
    let devices: Vec<Value> = devices.iter().map(|device| of_device(device, driver)).collect();
    let mut contents = json!({
        "apiVersion": "metadata.resource.k8s.io/v1alpha1", "kind": "DeviceMetadata",
        "metadata": {
            "name": claim.name, "namespace": claim.namespace, "uid": claim.uid, "generation": 1,
        },
        "requests": [{"name": name, "devices": devices}],
    });
    if let Some(name) = &claim.pod_claim {
        contents["podClaimName"] = json!(name);
    }
    contents
}

fn of_device(device: &Device, driver: &str) -> Value {
    let mut of = json!({"driver": driver, "pool": device.pool, "name": device.device});
    let Some(adapter) = &device.adapter else { return of };
    let attachment = &adapter["attachment"];
    let mtu = attachment["mtu"].as_u64().unwrap_or(MTU);
    of["attributes"] = json!({"adapter": {"string": adapter["name"]}, "mtu": {"int": mtu}});
    if let Some(socket) = attachment["socket"].as_str() {
        let file = socket.rsplit('/').next().unwrap_or_default();
        let path = format!("{}/{file}", socket_directory(adapter));
        of["attributes"]["vhost-user-path"] = json!({"string": path});
    }
    of["networkData"] = network(adapter);
    of
}

/// Directory of an adapter's socket in a container.
pub fn socket_directory(adapter: &Value) -> String {
    let interface = adapter["owner"]["interface"].as_str().unwrap_or_default();
    format!("{CONTAINER_DIR}/{interface}")
}

/// Interface and addresses of an adapter, in the form of Kubernetes.
pub fn network(adapter: &Value) -> Value {
    json!({
        "interfaceName": adapter["owner"]["interface"], "hardwareAddress": adapter["mac"],
        "ips": adapter["attachment"]["ip"].as_array().cloned().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::tests::made;

    fn result(request: &str, device: &str) -> Value {
        json!({"request": request, "driver": "shunt.dev", "pool": "node1", "device": device})
    }

    /// KubeVirt's binding looks for the pod's name of a claim and for a request, and reads the
    /// strings and integers of `attributes`.
    #[test]
    fn kubevirts_binding_finds_the_socket_and_the_mtu() {
        let results = json!([result("port", "sw0-port"), result("net/fast", "nic0-vf1")]);
        let parameters = json!({"attachment": "vhost-user", "mode": "client", "mtu": 9000});
        let mut claim = made(&results, &parameters).unwrap();
        claim.pod_claim = Some("dpdk".to_owned());
        assert_eq!(requests(&claim), BTreeSet::from(["net", "port"]));
        let driver = "sockets.example";
        assert_eq!(
            container_path(&claim, "port", driver),
            "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/dpdk/port/\
             sockets.example-metadata.json"
        );
        let read = contents(&claim, "port", driver);
        assert_eq!(read["podClaimName"], "dpdk");
        let request = &read["requests"][0];
        assert_eq!(request["name"], "port");
        let attributes = &request["devices"][0]["attributes"];
        assert_eq!(attributes["vhost-user-path"]["string"], "/run/shunt/port/vhost.sock");
        assert_eq!(attributes["mtu"]["int"], 9000);
        assert_eq!(contents(&claim, "net", driver)["requests"][0]["name"], "net/fast");
        assert_eq!(claim.adapters().next().unwrap()["attachment"]["mode"], "client");
    }

    #[test]
    fn a_claim_of_its_own_has_its_name_and_an_interface_no_socket() {
        let claim = made(&json!([result("net1", "sw0-port")]), &json!({"ips": ["10.0.0.5/24"]}));
        let claim = claim.unwrap();
        let path = container_path(&claim, "net1", "shunt.dev");
        assert!(path.ends_with("/resourceclaims/web/net1/shunt.dev-metadata.json"), "{path}");
        let device = &contents(&claim, "net1", "shunt.dev")["requests"][0]["devices"][0];
        assert_eq!(device["attributes"]["mtu"]["int"], 1500);
        assert!(device["attributes"].get("vhost-user-path").is_none());
        assert_eq!(device["networkData"]["interfaceName"], "net1");
        assert_eq!(device["networkData"]["ips"], json!(["10.0.0.5/24"]));
    }
}
