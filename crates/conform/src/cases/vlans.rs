//! VLANs of a VF: access ports, trunks, and VLAN 0.

use anyhow::Result;
use serde_json::json;

use crate::Test;
use crate::context::{A, B, TestContext, W};
use crate::frame::mac;
use crate::subject::{AdapterLocation, Capability, ManagerRequest, NicSetup, WIRE};

pub(super) const TESTS: &[Test] = &[
    Test {
        name: "access-vlan-per-vf",
        thread: "OpenNebula/one#7679",
        promise: "A VF with a VLAN sends and receives untagged, is tagged on the wire, and receives no other VLAN.",
        needs: &[Capability::Wire],
        test: Some(access),
    },
    Test {
        name: "trunk-per-vf",
        thread: "k8snetworkplumbingwg/sriov-cni#291",
        promise: "A trunk VF tags frames itself, for the allowed VLANs only.",
        needs: &[Capability::Trunk, Capability::Wire],
        test: Some(trunk),
    },
    Test {
        name: "vlan-zero-keeps-the-trunk",
        thread: "k8snetworkplumbingwg/sriov-cni PR#166",
        promise: "No VLAN means untagged: it removes an access VLAN and keeps a trunk.",
        needs: &[Capability::Trunk, Capability::Wire],
        test: Some(vlan_zero),
    },
    Test {
        name: "vlan-qos-enforced",
        thread: "k8snetworkplumbingwg/sriov-cni PR#129",
        promise: "Tags on the wire have the priority of the VF's VLAN.",
        needs: &[Capability::Wire],
        test: Some(qos),
    },
    Test {
        name: "vlan-proto-enforced",
        thread: "k8snetworkplumbingwg/sriov-cni (vlanProto)",
        promise: "An 802.1ad VLAN adds a service tag and keeps the guest's own tag below it.",
        needs: &[Capability::ServiceTag, Capability::Wire],
        test: Some(service_tag),
    },
];

fn access(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.guest_on("c", AdapterLocation::Vf(2), mac(0xc), json!({}))?;
    t.set_vf(0, json!({"vlan": {"id": 20}}))?;
    t.set_vf(1, json!({"vlan": {"id": 20}}))?;
    t.set_vf(2, json!({"vlan": {"id": 21}}))?;
    t.talk(("a", A), ("b", B))?;
    t.shows("vlan");
    let frame = t.frame(A, W);
    t.expect("a", &frame, &[(WIRE, &frame.tagged(20))])?;
    let frame = t.frame(W, A);
    t.expect(WIRE, &frame.tagged(20), &[("a", &frame)])?;
    t.is_dropped(WIRE, &frame.tagged(21))?;
    t.is_dropped(WIRE, &frame)?;
    // To a station of another VLAN: to the wire at most, and in the sender's VLAN.
    let frame = t.frame(A, mac(0xc));
    if !t.send("a", std::slice::from_ref(&frame))?.is_empty() {
        t.expect("a", &frame, &[(WIRE, &frame.tagged(20))])?;
    }
    let everybody = t.frame(A, wire::Mac::BROADCAST);
    t.expect("a", &everybody, &[("b", &everybody), (WIRE, &everybody.tagged(20))])?;
    Ok("VLANs 20 and 21 were isolated, on the wire too".to_owned())
}

fn trunk(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.set_vf(0, json!({"trunks": ["10", "20-29"]}))?;
    t.set_vf(1, json!({"vlan": {"id": 25}}))?;
    for vid in [10, 20, 29] {
        let frame = t.frame(A, W).tagged(vid);
        t.expect("a", &frame, &[(WIRE, &frame)])?;
        let frame = t.frame(W, A).tagged(vid);
        t.expect(WIRE, &frame, &[("a", &frame)])?;
    }
    for vid in [11, 30, 4094] {
        let frame = t.frame(A, W).tagged(vid);
        t.is_dropped("a", &frame)?;
        let frame = t.frame(W, A).tagged(vid);
        t.is_dropped(WIRE, &frame)?;
    }
    let frame = t.frame(A, B);
    t.expect("a", &frame.tagged(25), &[("b", &frame)])?;
    let frame = t.frame(B, A);
    t.expect("b", &frame, &[("a", &frame.tagged(25))])?;
    Ok("VLANs 10 and 20 to 29 passed, 11, 30 and 4094 did not".to_owned())
}

fn vlan_zero(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.set_vf(0, json!({"trunks": ["10"], "vlan": {"id": 5}}))?;
    let frame = t.frame(A, W);
    t.expect("a", &frame, &[(WIRE, &frame.tagged(5))])?;
    let zero = ManagerRequest::Vf { index: 0, settings: json!({"vlan": {"id": 0}}) };
    let said = t.rejects(&zero, &["vlan"])?;
    t.set_vf(0, json!({"vlan": null}))?;
    let frame = t.frame(A, W);
    t.expect("a", &frame, &[(WIRE, &frame)])?;
    let frame = t.frame(A, W).tagged(10);
    t.expect("a", &frame, &[(WIRE, &frame)])?;
    Ok(format!("without a VLAN the trunk remained; VLAN 0 is rejected ({})", said.allowed))
}

fn qos(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(2))?;
    t.guest_on("a", AdapterLocation::Vf(0), A, json!({"vlan": {"id": 20, "qos": 5}}))?;
    t.shows("vlan");
    let frame = t.frame(A, W);
    t.expect("a", &frame, &[(WIRE, &frame.with_priority(20, 5))])?;
    t.set_adapter("a", json!({"vlan": {"qos": 0}}))?;
    let frame = t.frame(A, W);
    t.expect("a", &frame, &[(WIRE, &frame.tagged(20))])?;
    Ok("the tag had priority 5, then 0".to_owned())
}

fn service_tag(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(2))?;
    t.guest_on("a", AdapterLocation::Vf(0), A, json!({"vlan": {"id": 20, "proto": "802.1ad"}}))?;
    t.shows("vlan");
    let frame = t.frame(A, W);
    t.expect("a", &frame, &[(WIRE, &frame.service_tagged(20))])?;
    let frame = t.frame(W, A);
    t.expect(WIRE, &frame.service_tagged(20), &[("a", &frame)])?;
    Ok("a service tag was added and removed".to_owned())
}
