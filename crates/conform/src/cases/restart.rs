//! State that survives a manager's restart or crash, and the start order of guests and manager.

use anyhow::{Result, bail, ensure};
use api::InForce;
use model::state::{GuestState, PathInForce};
use serde_json::json;

use super::switchdev;
use crate::Test;
use crate::context::{A, B, TestContext, W, added};
use crate::frame::{TestFrame, mac};
use crate::subject::{
    AdapterLocation, Capability, GuestStop, ManagerRequest, ManagerStop, NicSetup, WIRE,
};

pub(super) const TESTS: &[Test] = &[
    Test {
        name: "guests-return-after-the-manager",
        thread: "k8snetworkplumbingwg/sriov-cni#178",
        promise: "Guests that reattach after a restart find their VFs unchanged and lose no posted frame.",
        needs: &[Capability::Restart],
        test: Some(guests_after),
    },
    Test {
        name: "guests-return-before-the-manager",
        thread: "kubernetes/kubernetes#125579",
        promise: "Guests that start before the manager are served once it runs, in any order.",
        needs: &[Capability::Restart, Capability::GuestFirst],
        test: Some(guests_before),
    },
    Test {
        name: "iommu-group-changes-do-not-matter",
        thread: "k8snetworkplumbingwg/sriov-network-device-plugin#451",
        promise: "A VF is found after a reboot even if its IOMMU group has another number.",
        needs: &[Capability::IommuGroups],
        test: None,
    },
    Test {
        name: "capacity-right-after-restart",
        thread: "k8snetworkplumbingwg/sriov-network-device-plugin#565",
        promise: "The first status after a restart shows the VFs, users and owners from before.",
        needs: &[Capability::Restart, Capability::Adapters],
        test: Some(capacity),
    },
    Test {
        name: "no-false-shortage-after-restart",
        thread: "k8snetworkplumbingwg/sriov-network-operator#1028",
        promise: "After a restart, free VFs are allocated and used ones are not.",
        needs: &[Capability::Restart, Capability::Adapters],
        test: Some(no_shortage),
    },
    Test {
        name: "no-stale-ports-after-restart",
        thread: "ovn-kubernetes/ovn-kubernetes#1933",
        promise: "After a restart there are ports for existing adapters only.",
        needs: &[Capability::Restart, Capability::Switch],
        test: Some(no_stale_ports),
    },
    Test {
        name: "switchdev-back-to-legacy",
        thread: "k8snetworkplumbingwg/sriov-network-operator#40",
        promise: "A NIC can return from switchdev mode to legacy mode.",
        needs: &[Capability::Switchdev],
        test: Some(switchdev::back_to_legacy),
    },
    Test {
        name: "switchdev-with-vfs-present",
        thread: "k8snetworkplumbingwg/sriov-network-operator#1015",
        promise: "Switchdev mode works with and without existing VFs, or is rejected.",
        needs: &[Capability::Switchdev],
        test: Some(switchdev::vfs_present),
    },
    Test {
        name: "representor-names-last",
        thread: "k8snetworkplumbingwg/sriov-network-operator PR#29, PR#1048",
        promise: "A representor's name follows from its VF, before and after a reboot.",
        needs: &[Capability::Switchdev, Capability::Restart],
        test: Some(switchdev::names_last),
    },
];

fn guests_after(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.set_vf(0, json!({"vlan": {"id": 9}}))?;
    t.set_adapter("b", json!({"vlan": {"id": 9}}))?;
    let mut count = 0;
    for how in [ManagerStop::Graceful, ManagerStop::Killed] {
        t.talk(("a", A), ("b", B))?;
        t.subject.stop_manager(how)?;
        let frames: Vec<TestFrame> = (0..20).map(|_| t.frame(A, B)).collect();
        let bytes: Vec<Vec<u8>> = frames.iter().map(|frame| frame.bytes.clone()).collect();
        t.subject.send("a", &bytes)?;
        t.subject.start_manager()?;
        // The sender attaches first: its frames must wait for the receiver.
        ["a", "b", WIRE].iter().try_for_each(|station| t.subject.attach(station))?;
        let arrived = t.arrived()?;
        let number =
            |frames: &Vec<TestFrame>| frames.iter().map(TestFrame::sequence).collect::<Vec<_>>();
        let (meant, came) = (number(&frames), arrived.get("b").map(number).unwrap_or_default());
        let places: Vec<&String> = arrived.keys().collect();
        let whole = meant == came && places == ["b"];
        ensure!(whole, "of {meant:?}, posted meanwhile, {came:?} arrived, at {places:?} ({how:?})");
        t.talk(("a", A), ("b", B))?;
        count += frames.len();
    }
    Ok(format!("{count} frames posted while the manager was down arrived"))
}

fn guests_before(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(4))?;
    for (name, index, address) in [("a", 0, A), ("b", 1, B)] {
        let mut change = added(name, AdapterLocation::Vf(index), address, json!({}));
        if let ManagerRequest::Add { guest_first, .. } = &mut change {
            *guest_first = true;
        }
        t.must(&change)?;
        t.subject.attach(name)?;
    }
    t.talk(("a", A), ("b", B))?;
    for (first, second) in [("a", "b"), ("b", "a")] {
        t.restart(ManagerStop::Killed, &[first, second, WIRE])?;
        t.talk(("a", A), ("b", B))?;
        t.talk(("a", A), (WIRE, W))?;
    }
    Ok("the manager connected to waiting guests, twice".to_owned())
}

/// State to compare after a restart: all except attachments, since guests return one by one.
fn without_guests(mut in_force: InForce) -> InForce {
    for adapter in &mut in_force.actual.adapters {
        (adapter.connected, adapter.guest) = (false, GuestState::Absent);
    }
    in_force
}

/// VFs and adapters in force, one per line.
fn lines(in_force: &InForce) -> Vec<String> {
    let vfs = in_force.actual.nics.iter().flat_map(|nic| &nic.vfs).map(|vf| format!("{vf:?}"));
    vfs.chain(in_force.actual.adapters.iter().map(|adapter| format!("{adapter:?}"))).collect()
}

fn capacity(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(4))?;
    t.guest_on("a", AdapterLocation::Pool, A, json!({}))?;
    t.guest_on("b", AdapterLocation::Vf(3), B, json!({"vlan": {"id": 8}}))?;
    t.set_vf(2, json!({"mac": mac(0xc).to_string()}))?;
    let before = without_guests(t.subject.in_force()?);
    for how in [ManagerStop::Graceful, ManagerStop::Killed] {
        t.restart(how, &[])?;
        let after = without_guests(t.subject.in_force()?);
        let (was, is) = (&before.owners, &after.owners);
        ensure!(was == is, "the owners changed from {was:?} to {is:?} ({how:?})");
        let (was, is) = (lines(&before), lines(&after));
        ensure!(was.len() == is.len(), "{} VFs and adapters changed to {}", was.len(), is.len());
        if let Some((was, is)) = was.iter().zip(&is).find(|(was, is)| was != is) {
            bail!("{was} changed to {is} ({how:?})");
        }
        ensure!(before.generation <= after.generation, "the generation decreased");
    }
    Ok("4 VFs, 3 owners and 2 users were unchanged after each restart".to_owned())
}

fn no_shortage(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(2))?;
    t.guest_on("a", AdapterLocation::Pool, A, json!({}))?;
    let held = t.adapter("a")?.vf;
    t.subject.leave("a", GuestStop::Killed)?;
    t.restart(ManagerStop::Killed, &[])?;
    t.guest_on("b", AdapterLocation::Pool, B, json!({}))?;
    t.is_on("b", PathInForce::Vf)?;
    let (a, b) = (t.adapter("a")?.vf, t.adapter("b")?.vf);
    ensure!(a == held, "the absent guest had VF {held:?} and now has {a:?}");
    ensure!(a != b, "both adapters have VF {a:?}");
    t.guest_on("c", AdapterLocation::Pool, mac(0xc), json!({"iov_weight": 10}))?;
    let reason = t.adapter("c")?.reason;
    ensure!(reason == model::state::Reason::NoFreeVf, "without free VFs the reason is {reason}");
    ["a", WIRE].iter().try_for_each(|station| t.subject.attach(station))?;
    t.talk(("a", A), ("b", B))?;
    Ok("the free VF was allocated, the used one was not".to_owned())
}

fn no_stale_ports(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::with_switch(2))?;
    for (number, name) in [(0xa, "a"), (0xb, "b"), (0xc, "gone")] {
        t.guest_on(name, AdapterLocation::Switch, mac(number), json!({}))?;
    }
    t.remove("gone")?;
    t.restart(ManagerStop::Killed, &["a", "b", WIRE])?;
    let mut names: Vec<String> = t.subject.counters()?.into_iter().map(|(name, _)| name).collect();
    names.sort();
    ensure!(names == ["a", "b", WIRE], "the ports after the restart are {names:?}");
    let frame = t.frame(A, mac(0xc));
    let arrived = t.send("a", &[frame])?;
    let places: Vec<&String> = arrived.keys().collect();
    ensure!(
        !arrived.contains_key("gone"),
        "a removed adapter received a frame; receivers: {places:?}"
    );
    t.talk(("a", A), ("b", B))?;
    Ok("ports of a, b and the wire, as before".to_owned())
}
