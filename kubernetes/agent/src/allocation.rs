//! From the allocation of a claim, which the scheduler has written, to the adapters that it needs.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use common::{Key, Kind};
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use serde_json::{Value, json};

use crate::checkpoint::{Claim, Device};
use crate::options::Options;
use crate::parameters::{Attachment, Mode, Parameters, interface, mbps};

/// End of the name of the device for ports of a switch.
const PORT: &str = "-port";
/// Part of the name of a VF's device between NIC and index.
const VF: &str = "-vf";
/// Annotation of a claim made from a template: the pod's name for it.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Capacity of a switch in bit/s.
pub const BANDWIDTH: &str = "bandwidth";

/// Object of the daemon behind a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Ports of a switch.
    Switch(String),
    /// A VF of a NIC.
    Vf(String, u16),
}

impl Place {
    /// The place of a device.
    pub fn of(device: &str) -> Option<Place> {
        if let Some(switch) = device.strip_suffix(PORT) {
            return Some(Place::Switch(switch.to_owned()));
        }
        let (nic, index) = device.rsplit_once(VF)?;
        Some(Place::Vf(nic.to_owned(), index.parse().ok()?))
    }

    /// Name of its device.
    pub fn device(&self) -> String {
        match self {
            Place::Switch(switch) => format!("{switch}{PORT}"),
            Place::Vf(nic, index) => format!("{nic}{VF}{index}"),
        }
    }
}

/// A claim, with the adapters of its devices of this driver. `is_card` is `true` for a NIC that is
/// a card of the machine.
///
/// # Errors
/// The claim is not allocated, or its parameters are invalid.
pub fn claim(
    resource: &ResourceClaim,
    options: &Options,
    is_card: &dyn Fn(&str) -> anyhow::Result<bool>,
) -> anyhow::Result<Claim> {
    let metadata = &resource.metadata;
    let status = resource.status.clone().unwrap_or_default();
    let allocation = status.allocation.and_then(|allocation| allocation.devices);
    let allocation =
        allocation.context("the claim is not allocated: the scheduler allocates it")?;
    let reserved = status.reserved_for.unwrap_or_default();
    let pods: Vec<_> = reserved.iter().filter(|it| it.resource == "pods").collect();
    let mut claim = Claim {
        uid: metadata.uid.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        pod_claim: metadata.annotations.as_ref().and_then(|all| all.get(POD_CLAIM)).cloned(),
        pods: pods.iter().map(|pod| pod.uid.clone()).collect(),
        devices: Vec::new(),
    };
    let pod = pods.first().map(|pod| (pod.name.clone(), pod.uid.clone()));
    let configs = allocation.config.unwrap_or_default();
    let mut interfaces: BTreeMap<String, usize> = BTreeMap::new();
    let results = allocation.results.unwrap_or_default();
    for result in results.iter().filter(|result| result.driver == options.driver) {
        let adapter = Parameters::read(&configs, &options.driver, &result.request).and_then(|it| {
            let count = interfaces.entry(it.interface_of(&result.request)).or_default();
            *count += 1;
            adapter(&claim, pod.as_ref(), result, *count - 1, &it, options, is_card)
        });
        claim.devices.push(Device {
            request: result.request.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            share: result.share_id.clone(),
            adapter: adapter.with_context(|| format!("request {}", result.request))?,
        });
    }
    Ok(claim)
}

/// Adapter of a device; `None` if `shunt-cni` makes it.
fn adapter(
    claim: &Claim,
    pod: Option<&(String, String)>,
    result: &DeviceRequestAllocationResult,
    index: usize,
    parameters: &Parameters,
    options: &Options,
    is_card: &dyn Fn(&str) -> anyhow::Result<bool>,
) -> anyhow::Result<Option<Value>> {
    let Some(place) = Place::of(&result.device).filter(|_| result.pool == options.node) else {
        let (device, pool, node) = (&result.device, &result.pool, &options.node);
        bail!("device {device} of pool {pool} is none of node {node}: delete the claim");
    };
    let kind = match (parameters.attachment, &place) {
        (Some(Attachment::Cni(_)), _) => return Ok(None),
        (Some(Attachment::Own(kind)), _) => kind,
        (None, Place::Vf(nic, _)) if is_card(nic)? => Kind::Vf,
        (None, _) => Kind::Tap,
    };
    let interface = interface(&parameters.interface_of(&result.request), index)?;
    let share = result.share_id.as_deref().unwrap_or_default();
    let key = Key::of(&[&claim.uid, &result.request, &result.device, share]);
    let name = key.name("dra");
    let mut attachment = match kind {
        // Its directory is a mount of the pod, whatever user that has, and of no others.
        Kind::VhostUser => {
            let socket = options.socket_dir().join(&name).join("vhost.sock");
            match parameters.mode {
                None | Some(Mode::Server) => {
                    json!({"kind": "vhost-user", "socket": socket, "socket_mode": "0666"})
                }
                Some(Mode::Client) => {
                    json!({"kind": "vhost-user", "socket": socket, "mode": "client"})
                }
            }
        }
        // The hook sets the namespace of the pod; until then this one is missing.
        kind => json!({
            "kind": if kind == Kind::Vf { "vf" } else { "tap" }, "interface": interface,
            "netns": format!("/run/netns/claim-{}", claim.uid), "ip": parameters.ips,
            "gateway": parameters.gateways,
        }),
    };
    if let Some(mtu) = parameters.settings.mtu {
        attachment["mtu"] = json!(mtu);
    }
    let mut owner = json!({
        "claim": claim.uid, "claim-name": claim.name, "namespace": claim.namespace,
        "request": result.request, "interface": interface,
    });
    if let Some((pod, uid)) = pod {
        (owner["pod"], owner["uid"]) = (json!(pod), json!(uid));
    }
    let mut adapter = parameters.settings.fields();
    let mac = parameters.settings.mac.as_deref().filter(|mac| !mac.is_empty());
    let mac = mac.map_or_else(|| key.mac(), str::to_ascii_lowercase);
    let mut put = |field: &str, value: Value| drop(adapter.insert(field.to_owned(), value));
    put("name", json!(name));
    put("owner", owner);
    put("mac", json!(mac));
    put("attachment", attachment);
    match &place {
        Place::Switch(switch) => put("switch", json!(switch)),
        Place::Vf(nic, index) => {
            put("nic", json!(nic));
            put("vf", json!(index));
            put("iov_weight", json!(parameters.settings.iov_weight.unwrap_or(100)));
        }
    }
    let consumed = result.consumed_capacity.as_ref().and_then(|it| it.get(BANDWIDTH));
    if let Some(bandwidth) = consumed {
        let wanted = u64::from(parameters.settings.min_tx_rate.unwrap_or_default());
        put("min_tx_mbps", json!(mbps(&bandwidth.0)?.max(wanted)));
    }
    Ok(Some(Value::Object(adapter)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A claim that is allocated, as the API server has it.
    pub(crate) fn resource(uid: &str, results: &Value, config: &Value) -> ResourceClaim {
        let resource = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": "web", "namespace": "default", "uid": uid}, "spec": {},
            "status": {
                "allocation": {"devices": {"results": results, "config": config}},
                "reservedFor": [{"resource": "pods", "name": "web-0", "uid": "p1"}],
            },
        });
        serde_json::from_value(resource).unwrap()
    }

    fn result(request: &str, device: &str) -> Value {
        json!({"request": request, "driver": "shunt.dev", "pool": "node1", "device": device})
    }

    pub(crate) fn made(results: &Value, parameters: &Value) -> anyhow::Result<Claim> {
        let config = json!([{
            "source": "FromClass", "opaque": {"driver": "shunt.dev", "parameters": parameters},
        }]);
        let is_card = |nic: &str| Ok(nic == "card0");
        claim(&resource("u1", results, &config), &Options::of("node1"), &is_card)
    }

    /// The adapters, which the daemon's own model takes.
    fn adapters(results: &Value, parameters: &Value) -> Vec<model::state::Adapter> {
        let claim = made(results, parameters).unwrap();
        let read = |it: &Value| serde_json::from_value(it.clone()).unwrap();
        claim.adapters().map(read).collect()
    }

    #[test]
    fn devices_become_adapters() {
        let mut port = result("net1", "sw0-port");
        port["shareID"] = json!("5c1f");
        port["consumedCapacity"] = json!({"bandwidth": "500M", "ports": "1"});
        let mut other = result("net9", "gpu0");
        other["driver"] = json!("gpu.example");
        let all = json!([port, result("net2", "nic0-vf3"), result("net3", "card0-vf1"), other]);
        let [tap, soft, card] = &adapters(&all, &json!({"vlan": 7}))[..] else { panic!() };
        assert_eq!((tap.switch.as_deref(), tap.settings.min_tx_mbps), (Some("sw0"), 500));
        assert_eq!(tap.attachment.interface().unwrap().0, "net1");
        assert_eq!(tap.owner["uid"], "p1");
        assert_eq!(tap.owner["claim"], "u1");
        assert_eq!(tap.settings.vlan.unwrap().id, 7);
        assert_eq!((soft.nic.as_deref(), soft.vf, soft.iov_weight), (Some("nic0"), Some(3), 100));
        assert_eq!(soft.attachment.kind().word(), "tap");
        assert_eq!((card.nic.as_deref(), card.vf), (Some("card0"), Some(1)));
        assert_eq!(card.attachment.kind().word(), "vf");
        assert!(tap.name != soft.name && tap.mac != soft.mac);
        let again = adapters(&all, &json!({"vlan": 7}));
        assert_eq!(&again[0], tap, "names and addresses are stable");
    }

    #[test]
    fn sockets_and_several_devices_of_a_request() {
        let two = json!([result("net1", "nic0-vf0"), result("net1", "nic0-vf1")]);
        let socket = json!({"attachment": "vhost-user", "mtu": 9000});
        let [first, second] = &adapters(&two, &socket)[..] else { panic!() };
        assert!(first.attachment.socket().unwrap().ends_with("/vhost.sock"));
        assert_ne!(first.attachment.socket(), second.attachment.socket());
        assert_eq!(second.owner["interface"], "net1-1");
        let cni = made(&two, &json!({"attachment": "cni"})).unwrap();
        assert_eq!((cni.adapters().count(), cni.devices.len()), (0, 2));
    }

    #[test]
    fn a_claim_that_cannot_be_prepared_says_why() {
        let error = |results: Value| format!("{:#}", made(&results, &json!({})).unwrap_err());
        let unknown = error(json!([result("net1", "gpu0")]));
        assert!(unknown.starts_with("request net1: device gpu0 of pool node1"), "{unknown}");
        let mut elsewhere = result("net1", "sw0-port");
        elsewhere["pool"] = json!("node2");
        assert!(error(json!([elsewhere])).contains("is none of node node1"));
        assert!(error(json!([result("a-very-long-request", "sw0-port")])).contains("interface"));
        let bare = ResourceClaim::default();
        let error = claim(&bare, &Options::of("node1"), &|_| Ok(false)).unwrap_err();
        assert!(error.to_string().contains("not allocated"));
    }

    #[test]
    fn names_of_devices_tell_their_place() {
        for place in [Place::Switch("sw-vf1".to_owned()), Place::Vf("nic-port".to_owned(), 7)] {
            assert_eq!(Place::of(&place.device()), Some(place));
        }
        assert_eq!(Place::of("nic0-vfx"), None);
    }
}
