//! Forwarding within one NIC: between VFs, the switch on the PF, and stations behind it.

use anyhow::{Result, ensure};
use model::state::PathInForce;
use serde_json::json;
use wire::Mac;

use crate::Test;
use crate::context::{A, B, TestContext, W};
use crate::frame::{TestFrame, mac};
use crate::subject::{AdapterLocation, Capability, NicSetup, WIRE};

pub(super) const TESTS: &[Test] = &[
    Test {
        name: "vf-and-switch-port-on-one-pf-talk",
        thread: "k8snetworkplumbingwg/sriov-network-operator#832",
        promise: "A guest on a VF and one on the switch of the same PF reach each other, both ways.",
        needs: &[Capability::Switch],
        test: Some(vf_and_switch_port),
    },
    Test {
        name: "vfs-of-two-kinds-of-guests-talk",
        thread: "kubevirt/kubevirt#13674",
        promise: "Two guests on VFs of one PF reach each other, with VFs chosen by the manager or by the operator.",
        needs: &[Capability::Adapters, Capability::Wire],
        test: Some(two_kinds),
    },
    Test {
        name: "bridge-behind-the-pf-is-reached",
        thread: "canonical/hotsos#365",
        promise: "A VF reaches stations behind a guest that bridges on the switch, learned from their frames.",
        needs: &[Capability::Switch],
        test: Some(bridge_learned),
    },
    Test {
        name: "added-macs-behind-pf-are-reached",
        thread: "yujincheng08/mlx4_br#1",
        promise: "Addresses that the operator adds to an adapter on the switch are reached without flooding.",
        needs: &[Capability::Switch, Capability::FurtherMacs],
        test: Some(bridge_added),
    },
    Test {
        name: "promiscuous-vf-hears-unknown-macs",
        thread: "DPDK/grout PR#653",
        promise: "A trusted promiscuous VF that bridges receives frames of other VFs for stations behind it.",
        needs: &[Capability::Wire],
        test: Some(bridge_on_vf),
    },
    Test {
        name: "switch-clients-reach-vf-peers",
        thread: "SoftEtherVPN/SoftEtherVPN#464",
        promise: "With IOV on, all adapters of a switch reach each other and the wire, on any path.",
        needs: &[Capability::Switch, Capability::Queues],
        test: Some(switch_clients),
    },
];

pub(super) const C: Mac = mac(0xc);

/// `a` on a VF, `b` on the switch, `c` on a receive queue.
pub(super) fn three_paths(t: &mut TestContext<'_>) -> Result<()> {
    t.begin(&NicSetup::with_switch(4))?;
    t.guest_on("a", AdapterLocation::Switch, A, json!({"iov_weight": 100}))?;
    t.guest_on("b", AdapterLocation::Switch, B, json!({"path": "synthetic"}))?;
    t.guest_on("c", AdapterLocation::Switch, C, json!({"path": "vmq"}))?;
    t.is_on("a", PathInForce::Vf)?;
    t.is_on("b", PathInForce::Synthetic)?;
    t.is_on("c", PathInForce::Vmq)?;
    // The switch learns W from this frame.
    broadcast_reaches(t, (WIRE, W), &["a", "b", "c"])
}

/// Checks that a broadcast arrives once at each of these stations and at no other.
pub(super) fn broadcast_reaches(
    t: &mut TestContext<'_>,
    from: (&str, Mac),
    others: &[&str],
) -> Result<()> {
    let frame = t.frame(from.1, Mac::BROADCAST);
    let wanted: Vec<(&str, &TestFrame)> = others.iter().map(|other| (*other, &frame)).collect();
    t.expect(from.0, &frame, &wanted)
}

/// Checks that a frame arrives at a station exactly once; other stations are ignored.
fn arrives_once(t: &mut TestContext<'_>, from: &str, frame: &TestFrame, at: &str) -> Result<()> {
    let arrived = t.send(from, std::slice::from_ref(frame))?;
    let count = arrived.get(at).map_or(0, Vec::len);
    ensure!(count == 1, "a frame from {from} arrived {count} times at {at}");
    Ok(())
}

fn vf_and_switch_port(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::with_switch(2))?;
    t.guest_on("a", AdapterLocation::Switch, A, json!({"iov_weight": 100}))?;
    t.guest_on("b", AdapterLocation::Switch, B, json!({"path": "synthetic"}))?;
    t.is_on("a", PathInForce::Vf)?;
    t.is_on("b", PathInForce::Synthetic)?;
    t.talk(("a", A), ("b", B))?;
    broadcast_reaches(t, ("a", A), &["b", WIRE])?;
    broadcast_reaches(t, ("b", B), &["a", WIRE])?;
    for name in ["a", "b"] {
        t.set_adapter(name, json!({"vlan": {"id": 12}}))?;
    }
    t.talk(("a", A), ("b", B))?;
    Ok("both ways, with and without a VLAN, and broadcasts".to_owned())
}

fn two_kinds(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(4))?;
    t.guest_on("a", AdapterLocation::Pool, A, json!({}))?;
    t.guest_on("b", AdapterLocation::Vf(3), B, json!({}))?;
    t.set_vf(3, json!({"trust": true}))?;
    t.talk(("a", A), ("b", B))?;
    broadcast_reaches(t, ("a", A), &["b", WIRE])?;
    broadcast_reaches(t, ("b", B), &["a", WIRE])?;
    Ok("both ways, and broadcasts".to_owned())
}

fn bridge_learned(t: &mut TestContext<'_>) -> Result<String> {
    let behind = mac(0x44);
    t.begin(&NicSetup::with_switch(2))?;
    t.guest_on("a", AdapterLocation::Switch, A, json!({"iov_weight": 100}))?;
    let bridge = json!({"path": "synthetic", "spoof_check": false});
    t.guest_on("b", AdapterLocation::Switch, B, bridge)?;
    t.guest_on("c", AdapterLocation::Switch, C, json!({"path": "synthetic"}))?;
    t.reaches(("b", behind), ("a", A))?; // who is behind b speaks first
    let frame = t.frame(A, behind);
    arrives_once(t, "a", &frame, "b")?;
    let frame = t.frame(W, behind);
    arrives_once(t, WIRE, &frame, "b")?;
    t.reaches(("c", C), ("b", behind))?;
    Ok("a VF, the switch and the wire reached a station behind b".to_owned())
}

fn bridge_added(t: &mut TestContext<'_>) -> Result<String> {
    let behind = mac(0x44);
    t.begin(&NicSetup::with_switch(2))?;
    t.guest_on("a", AdapterLocation::Switch, A, json!({"iov_weight": 100}))?;
    let bridge = json!({"path": "synthetic", "macs": [behind.to_string()]});
    t.guest_on("b", AdapterLocation::Switch, B, bridge)?;
    t.guest_on("c", AdapterLocation::Switch, C, json!({"path": "synthetic"}))?;
    t.talk(("a", A), ("b", behind))?;
    t.talk(("c", C), ("b", behind))?;
    t.reaches((WIRE, W), ("b", behind))?;
    Ok("reached at once and nowhere else, before it had sent a frame".to_owned())
}

fn bridge_on_vf(t: &mut TestContext<'_>) -> Result<String> {
    let behind = mac(0x44);
    t.pair()?;
    t.set_vf(1, json!({"trust": true, "promiscuous": true, "spoof_check": false}))?;
    let frame = t.frame(A, behind);
    arrives_once(t, "a", &frame, "b")?;
    let frame = t.frame(W, behind);
    arrives_once(t, WIRE, &frame, "b")?;
    t.reaches(("b", behind), ("a", A))?;
    t.reaches(("b", behind), (WIRE, W))?;
    Ok("from another VF and from the wire".to_owned())
}

fn switch_clients(t: &mut TestContext<'_>) -> Result<String> {
    three_paths(t)?;
    let all = [("a", A), ("b", B), ("c", C), (WIRE, W)];
    for (i, one) in all.iter().enumerate() {
        for other in &all[i + 1..] {
            t.talk(*one, *other)?;
        }
        let others: Vec<&str> =
            all.iter().map(|(name, _)| *name).filter(|name| *name != one.0).collect();
        broadcast_reaches(t, *one, &others)?;
    }
    Ok("VF, queue, switch port and wire: 12 ways and 4 broadcasts".to_owned())
}
