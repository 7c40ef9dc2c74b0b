//! VF ownership, and leftovers of earlier owners: releases that come late, are forgotten, or meet a
//! dead guest.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::Test;
use crate::context::{A, B, TestContext, W, added, removed};
use crate::frame::{TestFrame, mac};
use crate::subject::{
    AdapterLocation, Capability, GuestStop, ManagerRequest, ManagerStop, NicSetup, WIRE,
};

pub(super) const TESTS: &[Test] = &[
    Test {
        name: "late-release-spares-new-owner",
        thread: "k8snetworkplumbingwg/sriov-cni#219",
        promise: "A release by a VF's old owner is rejected once the VF has a new one, whose settings are kept.",
        needs: &[Capability::Wire],
        test: Some(late_release),
    },
    Test {
        name: "late-release-after-restart",
        thread: "k8snetworkplumbingwg/sriov-cni#219",
        promise: "The same after the manager was killed: ownership tokens persist, and none is reused.",
        needs: &[Capability::Restart, Capability::Wire],
        test: Some(late_release_after_restart),
    },
    Test {
        name: "no-two-vfs-with-one-mac",
        thread: "k8snetworkplumbingwg/sriov-network-device-plugin#685",
        promise: "An address of another VF in the same VLAN is rejected, and its frames reach one guest.",
        needs: &[Capability::Wire],
        test: Some(one_mac),
    },
    Test {
        name: "no-vf-leaks",
        thread: "k8snetworkplumbingwg/sriov-network-device-plugin#685",
        promise: "VFs return to the pool when adapters are removed, any number of times; none has two users.",
        needs: &[Capability::Adapters],
        test: Some(no_leak),
    },
    Test {
        name: "mac-unique-after-restart",
        thread: "k8snetworkplumbingwg/sriov-cni#125",
        promise: "A guest that returns on another VF leaves no address on the old one.",
        needs: &[Capability::Restart],
        test: Some(mac_after_restart),
    },
    Test {
        name: "defaults-after-release",
        thread: "k8snetworkplumbingwg/sriov-cni#214",
        promise: "Releasing a VF resets every setting to its default, as traffic shows.",
        needs: &[],
        test: Some(defaults),
    },
    Test {
        name: "old-mac-gone-after-release",
        thread: "k8snetworkplumbingwg/sriov-cni PR#221, PR#417",
        promise: "An address set by a guest does not carry over to the VF's next user.",
        needs: &[Capability::Wire],
        test: Some(old_mac),
    },
    Test {
        name: "vf-returned-after-its-user-died",
        thread: "k8snetworkplumbingwg/sriov-cni#349",
        promise: "The VF of a killed guest can be released and given to the next guest.",
        needs: &[],
        test: Some(user_died),
    },
    Test {
        name: "unclean-teardown-resets-the-vf",
        thread: "k8snetworkplumbingwg/sriov-cni (DEL with an empty Netns)",
        promise: "A release after guest and manager were killed resets the VF completely.",
        needs: &[Capability::Restart],
        test: Some(unclean_teardown),
    },
    Test {
        name: "vlan-gone-after-release",
        thread: "k8snetworkplumbingwg/sriov-network-device-plugin#97",
        promise: "The VLAN of a VF's last user does not carry over to the next.",
        needs: &[Capability::Wire],
        test: Some(vlan_gone),
    },
];

/// Recreates `a` on VF 0 with VLAN 10; returns the first owner's token.
fn recreate_adapter(t: &mut TestContext<'_>) -> Result<u64> {
    t.pair()?;
    let old = t.token(0)?;
    t.remove("a")?;
    t.guest_on("a", AdapterLocation::Vf(0), A, json!({"vlan": {"id": 10}}))?;
    Ok(old)
}

/// Checks that the new owner has VF 0 with its VLAN, and traffic.
fn new_owner_is_unharmed(t: &mut TestContext<'_>) -> Result<()> {
    t.shows("vlan");
    let frame = t.frame(A, W);
    t.expect("a", &frame, &[(WIRE, &frame.tagged(10))])?;
    let vf = t.vf(0)?;
    ensure!(vf.adapter.as_deref() == Some("a"), "VF 0 is {:?}'s", vf.adapter);
    ensure!(vf.vlan == Some(10), "VF 0 has VLAN {:?}, not 10", vf.vlan);
    Ok(())
}

fn late_release(t: &mut TestContext<'_>) -> Result<String> {
    let old = recreate_adapter(t)?;
    t.rejects(&removed("a", Some(old)), &["owner", "token"])?;
    t.rejects(
        &ManagerRequest::ReleaseVf { index: 0, owner: Some(old) },
        &["owner", "there is no"],
    )?;
    new_owner_is_unharmed(t)?;
    let new = t.token(0)?;
    ensure!(new != old, "the new owner has the old one's token {old}");
    t.must(&removed("a", Some(new)))?;
    Ok(format!("token {old} was rejected, {new} accepted"))
}

fn late_release_after_restart(t: &mut TestContext<'_>) -> Result<String> {
    let old = recreate_adapter(t)?;
    let new = t.token(0)?;
    t.restart(ManagerStop::Killed, &["a", "b", WIRE])?;
    let kept = t.token(0)?;
    ensure!(kept == new, "the owner's token changed from {new} to {kept} in the restart");
    t.rejects(&removed("a", Some(old)), &["owner", "token"])?;
    new_owner_is_unharmed(t)?;
    t.remove("a")?;
    t.guest_on("a", AdapterLocation::Vf(0), A, json!({}))?;
    let next = t.token(0)?;
    ensure!(next != old && next != new, "token {next} was reused");
    Ok(format!("token {old} was rejected after kill -9"))
}

fn one_mac(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    let said = t.rejects(&added("c", AdapterLocation::Vf(2), B, json!({})), &["address", "mac"])?;
    ensure!(!said.field.is_empty(), "the error names no field: {}", said.text());
    let settings = json!({"mac": B.to_string()});
    t.rejects(&ManagerRequest::Vf { index: 2, settings: settings.clone() }, &["address", "mac"])?;
    t.rejects(&ManagerRequest::Adapter { name: "a".into(), settings }, &["address", "mac"])?;
    let settings = json!({"macs": [B.to_string()]});
    t.rejects(&ManagerRequest::Adapter { name: "a".into(), settings }, &["address", "mac"])?;
    t.talk(("a", A), ("b", B))?;
    t.reaches((WIRE, W), ("b", B))?;
    // In another VLAN it is another address.
    t.guest_on("c", AdapterLocation::Vf(2), B, json!({"vlan": {"id": 30}}))?;
    t.shows("vlan");
    t.reaches((WIRE, W), ("b", B))?;
    let frame = t.frame(W, B);
    t.expect(WIRE, &frame.tagged(30), &[("c", &frame)])?;
    Ok(format!("rejected, naming {}", said.field))
}

fn no_leak(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(2))?;
    for round in 0..10 {
        for (name, address) in [("a", A), ("b", B)] {
            t.guest_on(name, AdapterLocation::Pool, address, json!({}))?;
            let vf = t.adapter(name)?.vf;
            ensure!(vf.is_some(), "adapter {name} got no VF in round {round} though one is free");
        }
        t.talk(("a", A), ("b", B))?;
        let owners = t.subject.in_force()?.owners.len();
        ensure!(owners == 2, "2 adapters own {owners} VFs in round {round}");
        t.subject.leave("a", GuestStop::Killed)?;
        t.must(&removed("a", None))?;
        t.remove("b")?;
        let owners = t.subject.in_force()?.owners.len();
        ensure!(owners == 0, "{owners} VFs have owners without any adapter, round {round}");
    }
    Ok("20 adapters used 2 VFs in turn".to_owned())
}

fn mac_after_restart(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.subject.leave("a", GuestStop::Killed)?;
    t.must(&removed("a", None))?;
    t.guest_on("again", AdapterLocation::Vf(2), A, json!({}))?;
    for turn in ["before", "after"] {
        let holders: Vec<u16> = (0..4)
            .filter_map(|index| t.vf(index).ok())
            .filter(|vf| vf.mac.as_deref() == Some(&*A.to_string()))
            .map(|vf| vf.index)
            .collect();
        ensure!(holders == [2], "{turn} the restart VFs {holders:?} have the address, not VF 2");
        t.talk(("again", A), ("b", B))?;
        if turn == "before" {
            t.restart(ManagerStop::Killed, &["again", "b", WIRE])?;
        }
    }
    Ok("only one VF had the address, before and after kill -9".to_owned())
}

/// Every setting of a VF, except its link state, with a value other than its default.
fn all_settings() -> Value {
    json!({
        "vlan": {"id": 40},
        "spoof_check": false,
        "trust": true,
        "max_tx_mbps": 10,
    })
}

fn defaults(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.set_vf(0, all_settings())?;
    if t.set_if_known(0, json!({"link_state": "disable"}))? {
        t.shows("link_state");
        let frame = t.frame(A, B);
        t.is_dropped("a", &frame)?;
    }
    let vf = t.vf(0)?;
    ensure!(vf.vlan == Some(40), "VF 0 has VLAN {:?}, not 40", vf.vlan);
    t.must(&ManagerRequest::ReleaseVf { index: 0, owner: None })?;
    let left = t.vf_settings(0)?;
    ensure!(left.is_null(), "settings remain after the release: {left}");
    t.talk(("a", A), ("b", B))?; // link, VLAN
    let vf = t.vf(0)?;
    ensure!(vf.vlan.is_none(), "VF 0 still has VLAN {:?}", vf.vlan);
    ensure!(!super::limits::is_held_to_10_mbit(t)?, "the old limit of 10 Mbit/s still applies");
    t.shows("spoof_check");
    let spoofed = t.frame(mac(0x66), B);
    t.is_dropped("a", &spoofed)?;
    Ok("VLAN, spoof check, link state and rate were at their defaults".to_owned())
}

fn old_mac(t: &mut TestContext<'_>) -> Result<String> {
    let own = mac(0x77);
    t.pair()?;
    t.set_vf(0, json!({"spoof_check": false, "trust": true}))?;
    t.reaches(("a", own), ("b", B))?; // its guest has given itself an address
    t.must(&ManagerRequest::ReleaseVf { index: 0, owner: None })?;
    t.remove("a")?;
    t.guest_on("c", AdapterLocation::Vf(0), mac(0xc), json!({}))?;
    let view = t.subject.view("c")?;
    ensure!(view.mac == mac(0xc), "the new guest reads the address {}", view.mac);
    t.talk(("c", mac(0xc)), ("b", B))?;
    t.shows("mac");
    let frame: TestFrame = t.frame(W, own);
    t.is_dropped(WIRE, &frame)?;
    t.shows("spoof_check");
    let frame = t.frame(own, B);
    t.is_dropped("c", &frame)?;
    Ok("the next guest could neither send nor receive with it".to_owned())
}

fn user_died(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.subject.leave("a", GuestStop::Killed)?;
    t.must(&removed("a", None))?;
    let vf = t.vf(0)?;
    ensure!(vf.adapter.is_none(), "VF 0 is still {:?}'s", vf.adapter);
    t.guest_on("c", AdapterLocation::Vf(0), mac(0xc), json!({}))?;
    t.talk(("c", mac(0xc)), ("b", B))?;
    // A dead guest that was not removed gets its VF back.
    t.subject.leave("c", GuestStop::Killed)?;
    t.subject.attach("c")?;
    t.talk(("c", mac(0xc)), ("b", B))?;
    Ok("VF 0 passed from a killed guest to the next".to_owned())
}

fn unclean_teardown(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.set_vf(0, json!({"vlan": {"id": 50}, "spoof_check": false}))?;
    t.subject.leave("a", GuestStop::Killed)?;
    t.restart(ManagerStop::Killed, &["b", WIRE])?;
    t.must(&removed("a", None))?;
    t.must(&ManagerRequest::ReleaseVf { index: 0, owner: None })?;
    t.guest_on("c", AdapterLocation::Vf(0), mac(0xc), json!({}))?;
    t.talk(("c", mac(0xc)), ("b", B))?;
    let spoofed = t.frame(mac(0x66), B);
    t.is_dropped("c", &spoofed)?;
    Ok("VLAN and spoof check were at their defaults after kill -9 of both".to_owned())
}

fn vlan_gone(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(2))?;
    t.guest_on("a", AdapterLocation::Vf(0), A, json!({"vlan": {"id": 30}}))?;
    t.shows("vlan");
    let frame = t.frame(A, W);
    t.expect("a", &frame, &[(WIRE, &frame.tagged(30))])?;
    t.remove("a")?;
    t.guest_on("b", AdapterLocation::Vf(0), B, json!({}))?;
    t.talk(("b", B), (WIRE, W))?;
    let frame = t.frame(W, B);
    t.is_dropped(WIRE, &frame.tagged(30))?;
    let vf = t.vf(0)?;
    ensure!(vf.vlan.is_none(), "VF 0 still has VLAN {:?}", vf.vlan);
    Ok("frames were tagged 30 with the first guest, untagged with the next".to_owned())
}
