//! Settings that each card rejects, and the words for it.

use model::state::State;
use serde_json::{Value, json};

use super::super::LiveLinks;
use super::*;

/// The rejections of a NIC with this profile, `patch` in the NIC, and `settings` of VF 1.
fn rejected(name: &str, patch: &Value, settings: &Value, uplink_up: bool) -> Vec<Problem> {
    let mut vf = json!({"index": 1, "mac": "02:00:00:00:00:01"});
    let mut nic = json!({"name": "n", "total_vfs": 7, "num_vfs": 7, "profile": name});
    for (into, from) in [(&mut vf, settings), (&mut nic, patch)] {
        let all = from.as_object().unwrap().clone();
        into.as_object_mut().unwrap().extend(all);
    }
    nic["vf"] = json!([vf]);
    let state: State = serde_json::from_value(json!({"version": 1, "nic": [nic]})).unwrap();
    let mut live = LiveLinks::default();
    if !uplink_up {
        live.uplinks_down.insert("n".into());
    }
    let scope = NicScope::new(&state, &[], &live, 0);
    let mut problems = Problems::default();
    check(&scope, Some(&BTreeMap::new()), &mut problems);
    problems.problems
}

fn cases() -> Vec<(&'static str, Value)> {
    let vlan = |proto: &str| json!({"vlan": {"id": 7, "qos": 3, "proto": proto}});
    vec![
        ("mac", json!({"mac": "02:09:09:09:09:09"})),
        ("vlan", vlan("802.1q")),
        ("802.1ad", vlan("802.1ad")),
        ("spoof_check", json!({"spoof_check": false})),
        ("trust", json!({"trust": true})),
        ("auto", json!({"link_state": "auto"})),
        ("enable", json!({"link_state": "enable"})),
        ("disable", json!({"link_state": "disable"})),
        ("min", json!({"min_tx_mbps": 11})),
        ("max 10", json!({"max_tx_mbps": 10})),
        ("max 11", json!({"max_tx_mbps": 11})),
        ("max 50", json!({"max_tx_mbps": 50})),
        ("no max", json!({"max_tx_mbps": 0})),
        ("trunk", json!({"trunks": ["9"]})),
        ("extra_macs", json!({"macs": ["02:08:08:08:08:08"]})),
        ("mirror", json!({"mirror": {"direction": "rx", "file": "/x"}})),
        ("storm_limit", json!({"storm_limit_pps": 100})),
        ("weight", json!({"tx_weight": 50})),
    ]
}

/// Names of settings that a card rejects, with the errno.
fn rejections(name: &str) -> Vec<(&'static str, Errno)> {
    let errno = |problems: &[Problem]| {
        let [problem] = problems else { return None };
        let all = [Errno::Einval, Errno::Eopnotsupp, Errno::Eprotonosupport];
        all.into_iter().find(|errno| problem.message.contains(&format!("({errno})")))
    };
    let none = json!({});
    let settings = cases().into_iter().filter_map(|(case, settings)| {
        let problems = rejected(name, &none, &settings, true);
        assert!(problems.iter().all(|one| one.path.starts_with("nic[0].vf[0].")), "{problems:?}");
        Some((case, errno(&problems)?))
    });
    let nic = [
        ("veb", json!({"bridging": "veb"})),
        ("vepa", json!({"bridging": "vepa"})),
        ("isolated", json!({"bridging": "isolated"})),
        ("switchdev", json!({"mode": "switchdev"})),
    ];
    let nic = nic.into_iter().filter_map(|(case, patch)| {
        let problems = rejected(name, &patch, &none, true);
        assert!(problems.iter().all(|one| !one.field.contains("vf[")), "{problems:?}");
        Some((case, errno(&problems)?))
    });
    settings.chain(nic).collect()
}

#[test]
fn the_settings_known_to_linux_are_settings() {
    let settings = model::state::schema::schemas()["PortSettings"]["properties"].clone();
    for name in KNOWN_TO_LINUX {
        assert!(settings.get(name).is_some(), "{name}");
    }
}

#[test]
fn ideal_rejects_nothing() {
    assert_eq!(rejections("ideal"), []);
}

#[track_caller]
fn rejects(name: &str, own: &[(&'static str, Errno)]) {
    let mut expected = own.to_vec();
    let extensions = ["trunk", "extra_macs", "mirror", "storm_limit", "weight", "isolated"];
    expected.extend(extensions.map(|name| (name, Errno::Eopnotsupp)));
    expected.sort_unstable();
    let mut found = rejections(name);
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn cards_reject_what_their_drivers_reject() {
    use Errno::{Einval, Eopnotsupp, Eprotonosupport};
    let (service_tag, switchdev) = (("802.1ad", Eprotonosupport), ("switchdev", Eopnotsupp));
    let (min, low) = (("min", Einval), ("max 10", Einval));
    let links = [("enable", Eopnotsupp), ("disable", Eopnotsupp)];
    let vepa = ("vepa", Eopnotsupp);
    rejects("82576", &[service_tag, links[0], links[1], min, vepa, switchdev]);
    rejects("x520", &[service_tag, links[0], min, low, switchdev]);
    rejects("xl710", &[service_tag, min, low, ("max 11", Einval), switchdev]);
    rejects("cx6", &[service_tag]);
}

#[test]
fn vfs_and_rates_have_the_cards_limits() {
    for (name, vfs, speed) in
        [("82576", 7, 1_000), ("x520", 63, 10_000), ("xl710", 64, 40_000), ("cx6", 127, 100_000)]
    {
        let none = json!({});
        let total = |vfs: u32| rejected(name, &json!({"total_vfs": vfs}), &none, true);
        assert_eq!(total(vfs), []);
        assert!(total(vfs + 1)[0].message.contains("(ERANGE)"), "{name}");
        let max = |mbps: u32| rejected(name, &none, &json!({"max_tx_mbps": mbps}), true);
        assert_eq!(max(speed), []);
        assert!(max(speed + 1)[0].message.contains("(EINVAL)"), "{name}");
    }
}

#[test]
fn some_drivers_need_a_link_to_set_a_rate() {
    for name in Profile::names() {
        let rejected = rejected(name, &json!({}), &json!({"max_tx_mbps": 100}), false);
        assert_eq!(!rejected.is_empty(), ["82576", "x520"].contains(name), "{name}");
    }
}

#[test]
fn a_rejection_says_what_is_allowed() {
    let said = |name, settings| rejected(name, &json!({}), &settings, true)[0].to_string();
    assert_eq!(
        said("x520", json!({"link_state": "enable"})),
        "nic[0].vf[0].link_state: \"enable\" is rejected by the profile x520 (EOPNOTSUPP); \
         allowed is auto or disable with the profile x520"
    );
    assert_eq!(
        said("xl710", json!({"max_tx_mbps": 40})),
        "nic[0].vf[0].max_tx_mbps: \"40 Mbit/s\" is rejected by the profile xl710 (EINVAL); \
         allowed is 0 and 50 to 40000 Mbit/s"
    );
    assert_eq!(
        said("cx6", json!({"storm_limit_pps": 5})),
        "nic[0].vf[0].storm_limit_pps: \"5\" is rejected by the profile cx6 (EOPNOTSUPP); \
         allowed is 0 with the profile cx6"
    );
    assert_eq!(
        said("82576", json!({"min_tx_mbps": 10})),
        "nic[0].vf[0].min_tx_mbps: \"10 Mbit/s\" is rejected by the profile 82576 (EINVAL); \
         allowed is 0 with the profile 82576"
    );
}
