//! Identity of a VF: name, address, and the host's knowledge of it.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use api::stats::PortStats;
use model::state::{PathInForce, Reason};
use serde_json::json;
use wire::Mac;

use super::bridging::C;
use crate::Test;
use crate::context::{A, B, TestContext, W, added};
use crate::frame::{TestFrame, mac};
use crate::subject::{AdapterLocation, Capability, ManagerRequest, ManagerStop, NicSetup, WIRE};

pub(super) const TESTS: &[Test] = &[
    Test {
        name: "vf-numbers-last",
        thread: "systemd/systemd#25545",
        promise: "A VF keeps its number and its user while other VFs come and go.",
        needs: &[Capability::Restart, Capability::Adapters],
        test: Some(numbers_last),
    },
    Test {
        name: "vfs-are-named-after-their-nic",
        thread: "systemd/systemd#32836",
        promise: "Every VF's name is the NIC's name and the VF's number.",
        needs: &[],
        test: Some(named_after_nic),
    },
    Test {
        name: "pf-need-not-be-up-first",
        thread: "systemd/systemd#40739",
        promise: "VFs can be enabled and configured before the uplink or the PF is up.",
        needs: &[Capability::NoUplink],
        test: Some(pf_not_up),
    },
    Test {
        name: "no-two-guests-read-one-mac",
        thread: "systemd/systemd#14744",
        promise: "Every guest reads a unique address, the same after a restart.",
        needs: &[Capability::Restart, Capability::Adapters],
        test: Some(own_mac),
    },
    Test {
        name: "mac-is-there-before-up",
        thread: "canonical/lxd PR#8431",
        promise: "A VF has its address before the guest starts; an adapter without an address is rejected.",
        needs: &[],
        test: Some(mac_before_up),
    },
    Test {
        name: "counters-while-a-guest-has-the-vf",
        thread: "intelsdi-x/snap#1418",
        promise: "The host reads the frames and bytes of each VF while guests have them.",
        needs: &[],
        test: Some(counters),
    },
    Test {
        name: "properties-on-every-adapter",
        thread: "MicrosoftDocs/windowsserverdocs#4302",
        promise: "Every adapter reports its path, the reason, why it has no VF, and counters.",
        needs: &[Capability::Switch, Capability::Queues],
        test: Some(properties),
    },
    Test {
        name: "no-hardware-needed",
        thread: "kubevirt/kubevirt PR#16717, PR#16975, PR#18278",
        promise: "All of this can be tested without hardware or any device of the machine.",
        needs: &[Capability::Virtual],
        test: Some(no_hardware),
    },
];

fn numbers_last(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(4))?;
    t.guest_on("a", AdapterLocation::Pool, A, json!({}))?;
    t.guest_on("b", AdapterLocation::Pool, B, json!({}))?;
    t.guest_on("c", AdapterLocation::Pool, C, json!({}))?;
    let (number, token) = match t.adapter("c")?.vf {
        Some(number) => (number, t.token(number)?),
        None => anyhow::bail!("the third of three adapters has none of 4 VFs"),
    };
    let check = |t: &mut TestContext<'_>, after: &str| -> Result<()> {
        let (vf, adapter) = (t.vf(number)?, t.adapter("c")?.vf);
        let same = adapter == Some(number) && vf.adapter.as_deref() == Some("c");
        ensure!(same, "{after} c has VF {adapter:?} instead of {number}");
        ensure!(vf.mac == Some(C.to_string()), "{after} VF {number} has the address {:?}", vf.mac);
        Ok(())
    };
    t.remove("a")?;
    check(t, "when another guest had left")?;
    t.guest_on("d", AdapterLocation::Pool, mac(0xd), json!({}))?;
    check(t, "when another guest had come")?;
    t.restart(ManagerStop::Killed, &["b", "c", "d", WIRE])?;
    check(t, "after a restart")?;
    ensure!(t.token(number)? == token, "VF {number} had another owner in the meantime");
    t.talk(("b", B), ("c", C))?;
    Ok(format!("VF {number} stayed VF {number}, with its user and address"))
}

fn named_after_nic(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.set_vf(3, json!({"trust": true}))?;
    let nic = t.subject.nic();
    let in_force = t.subject.in_force()?;
    let names: Vec<&String> = in_force.owners.keys().collect();
    let meant: Vec<String> = [0, 1, 3].iter().map(|index| format!("{nic}/vf{index}")).collect();
    ensure!(names.iter().copied().eq(meant.iter()), "VF names are {names:?}, not {meant:?}");
    let indices: Vec<u16> =
        in_force.actual.nics.iter().flat_map(|nic| nic.vfs.iter().map(|vf| vf.index)).collect();
    ensure!(indices == [0, 1, 2, 3], "the VFs' numbers are {indices:?}");
    Ok(meant.join(", "))
}

fn pf_not_up(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup { num_vfs: 0, uplink: false, ..NicSetup::vfs(4) })?;
    t.set_vf(0, json!({"link_state": "enable", "vlan": {"id": 7}}))?;
    t.must(&ManagerRequest::NumVfs(4))?;
    t.set_vf(1, json!({"link_state": "enable", "vlan": {"id": 7}, "max_tx_mbps": 1000}))?;
    t.must(&added("a", AdapterLocation::Vf(0), A, json!({"vlan": {"id": 7}})))?;
    t.must(&added("b", AdapterLocation::Vf(1), B, json!({"vlan": {"id": 7}})))?;
    t.subject.attach("a")?;
    t.subject.attach("b")?;
    t.talk(("a", A), ("b", B))?;
    Ok("VFs were configured before they were enabled, on a NIC without an uplink".to_owned())
}

fn own_mac(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.guest_on("c", AdapterLocation::Pool, C, json!({}))?;
    let read = |t: &mut TestContext<'_>| -> Result<Vec<Mac>> {
        ["a", "b", "c"].iter().map(|name| Ok(t.subject.view(name)?.mac)).collect()
    };
    let before = read(t)?;
    ensure!(before == [A, B, C], "the guests read {before:?}");
    t.restart(ManagerStop::Graceful, &["a", "b", "c", WIRE])?;
    let after = read(t)?;
    ensure!(after == before, "after the restart the guests read {after:?}");
    Ok("3 guests read 3 addresses, and the same ones after a restart".to_owned())
}

fn mac_before_up(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(4))?;
    let macs: Vec<Option<String>> =
        (0..4).map(|index| Ok(t.vf(index)?.mac)).collect::<Result<_>>()?;
    let different: BTreeSet<&String> = macs.iter().flatten().collect();
    ensure!(different.len() == 4, "4 VFs without users have the addresses {macs:?}");
    let mut said = "4 VFs had 4 addresses before their guests".to_owned();
    if t.subject.lacks(Capability::Adapters).is_none() {
        let mut bare = added("a", AdapterLocation::Vf(0), A, json!({}));
        if let ManagerRequest::Add { settings, .. } = &mut bare {
            *settings = json!({});
        }
        let rejection = t.rejects(&bare, &["mac"])?.text();
        said = format!("an adapter without an address is rejected ({rejection})");
    }
    t.must(&added("a", AdapterLocation::Vf(0), A, json!({})))?;
    let vf = t.vf(0)?;
    ensure!(vf.mac == Some(A.to_string()), "before its guest attached VF 0 has {:?}", vf.mac);
    t.subject.attach("a")?;
    let read = t.subject.view("a")?.mac;
    ensure!(read == A, "the guest reads {read} before it starts");
    Ok(said)
}

fn counters_of(t: &mut TestContext<'_>, name: &str) -> Result<PortStats> {
    let found = t.subject.counters()?.into_iter().find(|(port, _)| port == name);
    Ok(found.ok_or_else(|| anyhow::anyhow!("{name} has no counters"))?.1)
}

fn counters(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    let frames: Vec<TestFrame> = (0..100).map(|_| t.frame(A, B)).collect();
    let bytes: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
    t.send("a", &frames)?;
    let (a, b) = (counters_of(t, "a")?, counters_of(t, "b")?);
    let sent = (a.tx_frames, b.rx_frames);
    ensure!(sent == (100, 100), "a sent 100 frames and b received them; the counters are {sent:?}");
    let meant = bytes as u64;
    ensure!(b.rx_bytes == meant, "b received {meant} bytes; the counter is {}", b.rx_bytes);
    t.shows("spoof_check");
    let spoofed = t.frame(mac(0x66), B);
    t.is_dropped("a", &spoofed)?;
    let a = counters_of(t, "a")?;
    let drops: u64 = a.drops.values().sum();
    let counted = (a.tx_frames, drops);
    ensure!(counted == (101, 1), "a sent 101 frames, 1 was dropped; the counters are {counted:?}");
    let attached = t.subject.is_attached("a") && t.subject.is_attached("b");
    ensure!(attached, "a guest was detached");
    Ok("101 frames sent, 100 received, 1 dropped were counted".to_owned())
}

fn properties(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup { queues: 1, ..NicSetup::with_switch(1) })?;
    let wishes = [
        ("a", json!({"iov_weight": 100})),
        ("b", json!({"iov_weight": 10})),
        ("c", json!({"iov_weight": 10, "vmq_weight": 10})),
        ("d", json!({"path": "synthetic"})),
    ];
    for ((name, settings), number) in wishes.into_iter().zip(0xa..) {
        t.guest_on(name, AdapterLocation::Switch, mac(number), settings)?;
    }
    let meant = [
        ("a", PathInForce::Vf, Reason::Supported, Reason::Supported),
        ("b", PathInForce::Vmq, Reason::NoFreeVf, Reason::NoFreeVf),
        ("c", PathInForce::Synthetic, Reason::NoFreeVf, Reason::NoFreeVf),
        ("d", PathInForce::Synthetic, Reason::Supported, Reason::NotWanted),
    ];
    let counters = t.subject.counters()?;
    for (name, path, reason, vf_reason) in meant {
        let is = t.adapter(name)?;
        let same = (is.path, is.reason, is.vf_reason) == (path, reason, vf_reason);
        ensure!(
            same,
            "adapter {name} is on {} ({}, VF: {}), not on {path} ({reason}, VF: {vf_reason})",
            is.path,
            is.reason,
            is.vf_reason
        );
        ensure!(is.connected, "adapter {name} is reported without a guest");
        ensure!(counters.iter().any(|(port, _)| port == name), "adapter {name} has no counters");
    }
    t.talk(("a", A), ("b", B))?;
    t.reaches((WIRE, W), ("a", A))?;
    Ok("4 adapters on 3 paths, each with reasons and counters".to_owned())
}

fn no_hardware(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.talk(("a", A), ("b", B))?;
    let devices = t.subject.devices()?;
    ensure!(devices.is_empty(), "these devices are in use: {}", devices.join(", "));
    Ok("guests exchanged frames without any open device".to_owned())
}
