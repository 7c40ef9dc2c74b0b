//! Numbers: VFs, rates, values out of range, and settings that a card's driver rejects.

use std::time::Duration;

use anyhow::{Result, ensure};
use model::state::Reason;
use serde_json::{Value, json};

use crate::Test;
use crate::context::{A, B, TestContext, Unseen, added};
use crate::frame::mac;
use crate::subject::{AdapterLocation, Capability, ManagerRequest, NicSetup};

pub(super) const TESTS: &[Test] = &[
    Test {
        name: "num-vfs-changes-through-zero",
        thread: "openshift/sriov-network-operator#131",
        promise: "Changing num_vfs directly is rejected with the allowed values; through 0 it takes effect at once.",
        needs: &[Capability::Adapters],
        test: Some(through_zero),
    },
    Test {
        name: "total-vfs-needs-no-reboot",
        thread: "openshift/sriov-network-operator#48",
        promise: "Changing the total number of VFs needs a new NIC, but no reboot or restart.",
        needs: &[Capability::Create],
        test: Some(total_vfs),
    },
    Test {
        name: "all-vfs-or-a-reason",
        thread: "k8snetworkplumbingwg/sriov-network-operator#672",
        promise: "Every VF of the NIC can be enabled, or a stable reason code names the missing resource.",
        needs: &[],
        test: Some(all_vfs),
    },
    Test {
        name: "settings-need-no-restart",
        thread: "k8snetworkplumbingwg/sriov-network-operator#322, #225; openshift/sriov-network-operator#29",
        promise: "Settings change while the guest runs, without draining, restarting or reattaching it.",
        needs: &[],
        test: Some(no_restart),
    },
    Test {
        name: "max-tx-rate-enforced",
        thread: "k8snetworkplumbingwg/sriov-cni PR#107",
        promise: "A maximum transmit rate is enforced.",
        needs: &[],
        test: Some(max_enforced),
    },
    Test {
        name: "min-tx-rate-alone-keeps-max",
        thread: "k8snetworkplumbingwg/sriov-cni PR#107",
        promise: "Setting only the minimum keeps the maximum.",
        needs: &[Capability::MinRate],
        test: Some(min_keeps_max),
    },
    Test {
        name: "max-tx-rate-alone-keeps-min",
        thread: "k8snetworkplumbingwg/sriov-cni PR#107",
        promise: "Setting only the maximum keeps the minimum.",
        needs: &[Capability::MinRate],
        test: Some(max_keeps_min),
    },
    Test {
        name: "min-above-max-refused",
        thread: "k8snetworkplumbingwg/sriov-cni (min_tx_rate <= max_tx_rate unchecked)",
        promise: "A minimum above the maximum is rejected, whichever of the two is set.",
        needs: &[Capability::MinRate],
        test: Some(min_above_max),
    },
    Test {
        name: "unsupported-options-refused",
        thread: "k8snetworkplumbingwg/sriov-cni PR#107",
        promise: "Settings that a card's driver does not support are rejected with its errno, not ignored.",
        needs: &[],
        test: Some(unsupported),
    },
    Test {
        name: "out-of-range-refused",
        thread: "k8snetworkplumbingwg/sriov-cni (settings not validated)",
        promise: "A number out of range is rejected with field, value and allowed range, and changes nothing.",
        needs: &[],
        test: Some(out_of_range),
    },
];

/// Minimum time for 250 frames of 1514 bytes at 10 Mbit/s, less a burst of 128 KiB and a margin of
/// 25 %.
const LEAST_AT_10_MBIT: Duration = Duration::from_millis(150);

/// `true` if traffic from `a` to `b` is limited to 10 Mbit/s. Of five tries one must be slow
/// enough: a stall of the machine can only slow a try down.
pub(super) fn is_held_to_10_mbit(t: &mut TestContext<'_>) -> Result<bool> {
    for _ in 0..5 {
        if t.time_of_250_long()? < LEAST_AT_10_MBIT {
            return Ok(false);
        }
    }
    Ok(true)
}

fn through_zero(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(4))?;
    let said = t.rejects(&ManagerRequest::NumVfs(2), &["num_vfs"])?;
    ensure!(!said.allowed.is_empty(), "the allowed values are missing: {}", said.text());
    t.rejects(&ManagerRequest::NumVfs(5), &["num_vfs"])?;
    t.guest_on("a", AdapterLocation::Vf(0), A, json!({}))?;
    t.must(&ManagerRequest::NumVfs(0))?;
    let reason = t.adapter("a")?.reason;
    ensure!(
        reason == Reason::VfDisabled,
        "the reason of an adapter with a disabled VF is {reason}"
    );
    let frame = t.frame(A, B);
    t.is_dropped("a", &frame)?;
    t.must(&ManagerRequest::NumVfs(2))?;
    t.guest_on("b", AdapterLocation::Vf(1), B, json!({}))?;
    t.talk(("a", A), ("b", B))?;
    Ok(format!("4 to 2 was rejected ({}), 4 to 0 to 2 accepted", said.error))
}

fn total_vfs(t: &mut TestContext<'_>) -> Result<String> {
    for count in [2, 64] {
        t.begin(&NicSetup::vfs(count))?;
        t.guest_on("a", AdapterLocation::Vf(0), A, json!({}))?;
        t.guest_on("b", AdapterLocation::Vf(count - 1), B, json!({}))?;
        t.talk(("a", A), ("b", B))?;
    }
    Ok("NICs of 2 and of 64 VFs carried frames immediately".to_owned())
}

fn all_vfs(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(255))?;
    let nic = t.subject.nic();
    let nics = t.subject.in_force()?.actual.nics;
    let nic = nics.into_iter().find(|one| one.name == nic);
    let nic = nic.ok_or_else(|| anyhow::anyhow!("the NIC is not in force"))?;
    if nic.support != Reason::Supported {
        return Ok(format!("no VFs, with a reason code: {}", nic.support));
    }
    let (enabled, total) = (nic.vfs.len(), usize::from(nic.total_vfs));
    ensure!(enabled == total, "{enabled} of {total} VFs are enabled, without a reason code");
    let last = nic.total_vfs - 1;
    t.guest_on("a", AdapterLocation::Vf(0), A, json!({}))?;
    t.guest_on("b", AdapterLocation::Vf(last), B, json!({}))?;
    t.talk(("a", A), ("b", B))?;
    Ok(format!("{enabled} VFs, and frames between the first and the last"))
}

fn no_restart(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    let changes = [
        json!({"vlan": {"id": 5}}),
        json!({"vlan": null}),
        json!({"trust": true}),
        json!({"spoof_check": false}),
        json!({"max_tx_mbps": 100}),
        json!({"link_state": "disable"}),
        json!({"link_state": "enable"}),
    ];
    let mut count = 0;
    for settings in &changes {
        if settings.get("link_state").is_none() {
            t.set_vf(0, settings.clone())?;
        } else if !t.set_if_known(0, settings.clone())? {
            continue;
        }
        count += 1;
        let attached = t.subject.is_attached("a") && t.subject.is_attached("b");
        ensure!(attached, "{settings} detached a guest");
    }
    t.talk(("a", A), ("b", B))?;
    Ok(format!("{count} changes under two guests, who stayed attached"))
}

fn max_enforced(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.set_vf(0, json!({"max_tx_mbps": 10}))?;
    if !is_held_to_10_mbit(t)? {
        let difference = format!("250 frames of 1514 B took less than {LEAST_AT_10_MBIT:?}");
        return Err(Unseen { setting: "max_tx_mbps", difference }.into());
    }
    t.set_vf(0, json!({"max_tx_mbps": null}))?;
    ensure!(!is_held_to_10_mbit(t)?, "the limit was removed but still applies");
    Ok("frames were limited to 10 Mbit/s, until the limit was removed".to_owned())
}

/// Configured rates of VF 0, as (min, max).
fn rates(t: &mut TestContext<'_>) -> Result<(u64, u64)> {
    let vf = t.vf_settings(0)?;
    let number = |field: &str| vf[field].as_u64().unwrap_or(0);
    Ok((number("min_tx_mbps"), number("max_tx_mbps")))
}

fn min_keeps_max(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.set_vf(0, json!({"max_tx_mbps": 10}))?;
    t.set_vf(0, json!({"min_tx_mbps": 5}))?;
    let rates = rates(t)?;
    ensure!(rates == (5, 10), "min and max are {rates:?}, not (5, 10)");
    ensure!(is_held_to_10_mbit(t)?, "the maximum is reported but not enforced");
    Ok("setting min 5 kept max 10 Mbit/s, as traffic showed".to_owned())
}

fn max_keeps_min(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.set_vf(0, json!({"min_tx_mbps": 5}))?;
    t.set_vf(0, json!({"max_tx_mbps": 10}))?;
    let both = rates(t)?;
    ensure!(both == (5, 10), "min and max are {both:?}, not (5, 10)");
    ensure!(is_held_to_10_mbit(t)?, "the maximum is reported but not enforced");
    t.set_vf(0, json!({"max_tx_mbps": null}))?;
    let both = rates(t)?;
    ensure!(both == (5, 0), "min and max are {both:?}, not (5, 0)");
    Ok("setting or removing max 10 kept min 5 Mbit/s".to_owned())
}

fn min_above_max(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.set_vf(0, json!({"max_tx_mbps": 10}))?;
    let over = ManagerRequest::Vf { index: 0, settings: json!({"min_tx_mbps": 11}) };
    let said = t.rejects(&over, &["min_tx_mbps"])?;
    t.set_vf(0, json!({"min_tx_mbps": 10}))?;
    let under = ManagerRequest::Vf { index: 0, settings: json!({"max_tx_mbps": 9}) };
    t.rejects(&under, &["min_tx_mbps", "max_tx_mbps"])?;
    let rates = rates(t)?;
    ensure!(rates == (10, 10), "after two rejected changes min and max are {rates:?}");
    Ok(said.text())
}

/// Card, setting that its driver rejects, and errno.
fn rejections() -> [(&'static str, Value, &'static str); 8] {
    let service = || json!({"vlan": {"id": 7, "proto": "802.1ad"}});
    [
        ("82576", json!({"link_state": "disable"}), "EOPNOTSUPP"),
        ("82576", json!({"min_tx_mbps": 10}), "EINVAL"),
        ("x520", json!({"link_state": "enable"}), "EOPNOTSUPP"),
        ("x520", json!({"max_tx_mbps": 10}), "EINVAL"),
        ("xl710", json!({"min_tx_mbps": 100}), "EINVAL"),
        ("xl710", service(), "EPROTONOSUPPORT"),
        ("cx6", service(), "EPROTONOSUPPORT"),
        ("cx6", json!({"trunks": ["20-29"]}), "EOPNOTSUPP"),
    ]
}

fn unsupported(t: &mut TestContext<'_>) -> Result<String> {
    if t.subject.lacks(Capability::Profiles).is_some() {
        return by_its_driver(t);
    }
    let rejections = rejections();
    for (profile, settings, errno) in rejections.clone() {
        t.begin(&NicSetup { profile, ..NicSetup::vfs(4) })?;
        t.guest_on("a", AdapterLocation::Vf(0), A, json!({}))?;
        let change = ManagerRequest::Vf { index: 0, settings: settings.clone() };
        let said = t.rejects(&change, &[errno])?;
        ensure!(!said.field.is_empty(), "{profile:?} names no field: {}", said.text());
        let left = t.vf_settings(0)?;
        ensure!(left.is_null(), "{profile:?} rejected {settings}, but now has {left}");
        // The settings of an adapter have the same limits.
        let change = added("c", AdapterLocation::Vf(1), mac(0xc), settings);
        t.rejects(&change, &[errno])?;
    }
    Ok(format!("{} settings of 4 cards were rejected with their errno", rejections.len()))
}

/// Each setting is either reported in force, or rejected with the errno of the card's driver.
fn by_its_driver(t: &mut TestContext<'_>) -> Result<String> {
    t.begin(&NicSetup::vfs(4))?;
    let settings = [
        ("link_state", json!({"link_state": "disable"})),
        ("min_tx_mbps", json!({"min_tx_mbps": 10})),
        ("max_tx_mbps", json!({"max_tx_mbps": 10})),
        ("vlan", json!({"vlan": {"id": 7, "qos": 3}})),
        ("vlan", json!({"vlan": {"id": 7, "proto": "802.1ad"}})),
        ("spoof_check", json!({"spoof_check": false})),
        ("trust", json!({"trust": true})),
    ];
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    for (name, settings) in settings {
        let change = ManagerRequest::Vf { index: 0, settings: settings.clone() };
        match t.subject.change(&change)? {
            Ok(()) => {
                let is_reported = t.subject.not_enforced(name)?.is_some();
                ensure!(is_reported, "{settings} is accepted, but not reported in force");
                t.must(&ManagerRequest::ReleaseVf { index: 0, owner: None })?;
                accepted.push(settings.to_string());
            }
            Err(said) => {
                let text = said.text();
                let is_clear = text.contains(name) && text.contains("(os error ");
                ensure!(is_clear, "{settings} is rejected without its name or an errno: {text}");
                let left = t.vf_settings(0)?;
                ensure!(left.is_null(), "{settings} is rejected, but VF 0 now has {left}");
                refused.push(settings.to_string());
            }
        }
    }
    let [accepted, refused] = [accepted, refused].map(|all| all.join(", "));
    Ok(format!("the driver reports {accepted}; it rejects {refused}"))
}

fn out_of_range(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    let before = t.subject.document()?;
    let wrong = [
        ("vlan", json!({"vlan": {"id": 4095}})),
        ("vlan", json!({"vlan": {"id": 0}})),
        ("qos", json!({"vlan": {"id": 1, "qos": 8}})),
        ("proto", json!({"vlan": {"id": 1, "proto": "802.1x"}})),
        ("max_tx_mbps", json!({"max_tx_mbps": -1})),
        ("max_tx_mbps", json!({"max_tx_mbps": 4_294_967_296_u64})),
        ("min_tx_mbps", json!({"min_tx_mbps": 1.5})),
        ("link_state", json!({"link_state": "up"})),
        ("trust", json!({"trust": "on"})),
        ("mac", json!({"mac": "01:00:5e:00:00:01"})),
        ("mac", json!({"mac": "02:00:00"})),
    ];
    for (field, settings) in &wrong {
        let change = ManagerRequest::Vf { index: 0, settings: settings.clone() };
        let said = t.rejects(&change, &[field])?;
        let whole =
            said.field.contains(field) && !said.value.is_empty() && !said.allowed.is_empty();
        ensure!(whole, "{settings}: field, value or allowed values are missing: {}", said.text());
    }
    t.rejects(&ManagerRequest::NumVfs(300), &["num_vfs"])?;
    t.rejects(
        &ManagerRequest::Vf { index: 200, settings: json!({"trust": true}) },
        &["VF", "index"],
    )?;
    let after = t.subject.document()?;
    ensure!(after == before, "a rejected change was applied in part");
    t.talk(("a", A), ("b", B))?;
    Ok(format!("{} values were rejected without effect", wrong.len() + 2))
}
