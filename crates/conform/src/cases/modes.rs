//! Guest control of a VF: addresses, receive modes, link state.

use anyhow::{Result, ensure};
use serde_json::json;
use wire::Mac;

use crate::Test;
use crate::context::{A, B, TestContext, W};
use crate::frame::{GROUP, mac};
use crate::subject::{AdapterLocation, Capability, ManagerRequest, NicSetup, WIRE};

pub(super) const TESTS: &[Test] = &[
    Test {
        name: "wrong-spoof-check-word-refused",
        thread: "k8snetworkplumbingwg/sriov-cni (spoofchk, trust not validated)",
        promise: "A value other than on or off is rejected, not read as off.",
        needs: &[],
        test: Some(wrong_word),
    },
    Test {
        name: "mac-spoof-check-enforced",
        thread: "k8snetworkplumbingwg/sriov-cni (spoofchk)",
        promise: "With the check on, frames from other addresses are dropped; with it off they pass.",
        needs: &[],
        test: Some(mac_spoof),
    },
    Test {
        name: "vlan-spoof-check-enforced",
        thread: "k8snetworkplumbingwg/sriov-cni (spoofchk)",
        promise: "A guest reaches no VLAN by tagging frames itself, and the drops are counted.",
        needs: &[],
        test: Some(vlan_spoof),
    },
    Test {
        name: "promiscuous-needs-trust",
        thread: "k8snetworkplumbingwg/sriov-cni PR#272",
        promise: "Promiscuous mode requires trust: rejected without, in effect with it, and off when trust ends.",
        needs: &[Capability::Wire],
        test: Some(promiscuous),
    },
    Test {
        name: "all-multicast-not-ignored",
        thread: "k8snetworkplumbingwg/sriov-cni PR#272",
        promise: "Multicast reaches an untrusted VF, and an unsupported mode is rejected.",
        needs: &[Capability::Wire],
        test: Some(all_multicast),
    },
    Test {
        name: "further-macs-need-no-trust",
        thread: "nvandamme/systemd-networkd-i40e#1",
        promise: "Addresses that the operator adds to a VF work without trust, until they are removed.",
        needs: &[Capability::FurtherMacs, Capability::Wire],
        test: Some(further_macs),
    },
    Test {
        name: "link-state-disable-enforced",
        thread: "k8snetworkplumbingwg/sriov-cni (link_state)",
        promise: "A VF with a disabled link sends and receives nothing, and its guest sees the link down.",
        needs: &[Capability::Wire],
        test: Some(link_disable),
    },
    Test {
        name: "link-state-enable-enforced",
        thread: "k8snetworkplumbingwg/sriov-cni (link_state)",
        promise: "VFs with an enabled link reach each other, with the uplink up or down.",
        needs: &[Capability::NoUplink],
        test: Some(link_enable),
    },
    Test {
        name: "link-state-auto-follows-the-uplink",
        thread: "k8snetworkplumbingwg/sriov-cni (link_state)",
        promise: "The link of a VF in mode auto follows the uplink's.",
        needs: &[Capability::UplinkLink],
        test: None,
    },
];

fn wrong_word(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    let mut said = String::new();
    for word in [json!("yes"), json!("on"), json!(""), json!(1)] {
        for field in ["spoof_check", "trust"] {
            let settings = json!({field: word});
            said = t.rejects(&ManagerRequest::Vf { index: 0, settings }, &[field])?.text();
        }
    }
    t.shows("spoof_check");
    let spoofed = t.frame(mac(0x66), B);
    t.is_dropped("a", &spoofed)?; // still on
    Ok(said)
}

fn mac_spoof(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    let other = mac(0x66);
    t.shows("spoof_check");
    for (from, to) in [(other, B), (B, W), (other, Mac::BROADCAST)] {
        let frame = t.frame(from, to);
        t.is_dropped("a", &frame)?;
    }
    t.set_vf(0, json!({"spoof_check": false}))?;
    t.reaches(("a", other), ("b", B))?;
    t.set_vf(0, json!({"spoof_check": true}))?;
    let frame = t.frame(other, B);
    t.is_dropped("a", &frame)?;
    t.talk(("a", A), ("b", B))?;
    Ok("frames from other addresses were dropped while the check was on".to_owned())
}

fn vlan_spoof(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.set_vf(1, json!({"vlan": {"id": 30}}))?;
    for spoof_check in [true, false] {
        t.set_vf(0, json!({"spoof_check": spoof_check}))?;
        t.shows(spoof_check.then_some("spoof_check"));
        let frame = t.frame(A, B).tagged(30);
        t.is_dropped("a", &frame)?;
    }
    t.set_vf(0, json!({"vlan": {"id": 20}, "spoof_check": true}))?;
    t.shows("vlan");
    for vid in [20, 30] {
        let frame = t.frame(A, W).tagged(vid);
        t.is_dropped("a", &frame)?;
    }
    let counters = t.subject.counters()?;
    let of_a = counters.iter().find(|(name, _)| name == "a");
    let drops: u64 = of_a.map_or(0, |(_, port)| port.drops.values().sum());
    ensure!(drops == 4, "4 frames of a were dropped; the counter is {drops}");
    Ok("4 frames tagged by the guest were dropped and counted".to_owned())
}

fn promiscuous(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    let unknown = mac(0x55);
    let frame = t.frame(W, unknown);
    t.is_dropped(WIRE, &frame)?;
    let bare = ManagerRequest::Vf { index: 0, settings: json!({"promiscuous": true}) };
    let said = t.rejects(&bare, &["trust"])?;
    t.set_vf(0, json!({"promiscuous": true, "trust": true}))?;
    let frame = t.frame(W, unknown);
    t.expect(WIRE, &frame, &[("a", &frame)])?;
    let distrust = ManagerRequest::Vf { index: 0, settings: json!({"trust": false}) };
    t.rejects(&distrust, &["trust"])?;
    t.set_vf(0, json!({"promiscuous": false, "trust": false}))?;
    let frame = t.frame(W, unknown);
    t.is_dropped(WIRE, &frame)?;
    Ok(said.text())
}

fn all_multicast(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    let frame = t.frame(W, GROUP);
    t.expect(WIRE, &frame, &[("a", &frame), ("b", &frame)])?;
    let settings = json!({"all_multicast": true});
    let said = t.subject.change(&ManagerRequest::Vf { index: 0, settings })?;
    let frame = t.frame(W, GROUP);
    t.expect(WIRE, &frame, &[("a", &frame), ("b", &frame)])?;
    Ok(match said {
        Ok(()) => "multicast frames arrived, and all_multicast was accepted".to_owned(),
        Err(rejection) => format!("multicast frames arrived; {}", rejection.text()),
    })
}

fn further_macs(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    let further: Vec<Mac> = (0..64).map(|i| mac(0x80 + i)).collect();
    let texts: Vec<String> = further.iter().map(ToString::to_string).collect();
    t.set_adapter("a", json!({"macs": texts}))?;
    for own in &further {
        t.talk(("a", *own), ("b", B))?;
        t.reaches((WIRE, W), ("a", *own))?;
    }
    let frame = t.frame(mac(0x7f), B);
    t.is_dropped("a", &frame)?; // it is trusted no more than before
    t.set_adapter("a", json!({"macs": null}))?;
    let frame = t.frame(further[0], B);
    t.is_dropped("a", &frame)?;
    let frame = t.frame(W, further[0]);
    t.is_dropped(WIRE, &frame)?;
    Ok(format!("{} additional addresses worked on an untrusted VF", further.len()))
}

fn link_disable(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    ensure!(t.subject.view("a")?.link_up, "a VF in mode auto has no link although the uplink has");
    t.set_vf(0, json!({"link_state": "disable"}))?;
    ensure!(!t.subject.view("a")?.link_up, "the guest sees a link although it is disabled");
    t.shows("link_state");
    for (station, from, to) in [("a", A, B), ("a", A, W), ("b", B, A), (WIRE, W, A)] {
        let frame = t.frame(from, to);
        t.is_dropped(station, &frame)?;
    }
    t.set_vf(0, json!({"link_state": "auto"}))?;
    ensure!(t.subject.view("a")?.link_up, "the guest sees no link although it is auto again");
    t.talk(("a", A), ("b", B))?;
    Ok("no frame passed, and the guest saw the link go down and up".to_owned())
}

fn link_enable(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup { uplink: false, ..NicSetup::vfs(2) })?;
    for (name, index, address) in [("a", 0, A), ("b", 1, B)] {
        t.guest_on(name, AdapterLocation::Vf(index), address, json!({"link_state": "enable"}))?;
    }
    t.talk(("a", A), ("b", B))?;
    ensure!(t.subject.view("a")?.link_up, "the guest sees no link although it is enabled");
    Ok("two VFs reached each other on a NIC without an uplink".to_owned())
}
