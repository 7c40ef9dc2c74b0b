//! Allocation of scarce VFs and queues, and its reasons.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Allocation, Facts, PathInForce, Reason, State, allocate};
use super::{adapter, document, state, with};

/// `nic0` with these VFs and queues, an iov switch, and adapters of these weights (`iov`, `vmq`)
/// named a0, a1, ...
fn crowd(vfs: u16, queues: u16, weights: &[(u8, u8)]) -> State {
    let adapters = weights.iter().enumerate().map(|(i, (iov, vmq))| {
        with(adapter(&format!("a{i}"), i as u8, *iov), "/vmq_weight", json!(vmq))
    });
    state(&json!({
        "version": 1,
        "nic": [{"name": "nic0", "total_vfs": vfs, "num_vfs": vfs, "vmq_queues": queues}],
        "switch": [{"name": "sw0", "nic": "nic0", "iov": true}],
        "adapter": adapters.collect::<Vec<Value>>(),
    }))
}

/// The usual document, where no port has rules.
fn open() -> Value {
    with(document(), "/switch/0/port", json!([]))
}

fn places(given: &[Allocation]) -> Vec<String> {
    given.iter().map(|one| format!("{} {}", one.place(), one.reason)).collect()
}

#[test]
fn weight_decides_then_who_holds_then_the_name() {
    let state = crowd(2, 1, &[(10, 0), (50, 0), (10, 100), (0, 50)]);
    let allocation = allocate(&state, &Facts::default());
    assert_eq!(
        places(&allocation),
        ["vf 1 Supported", "vf 0 Supported", "vmq 0 NoFreeVf", "synthetic WeightZero"]
    );
    let held = Facts { vfs: [("a2".into(), 1)].into(), ..Facts::default() };
    assert_eq!(
        places(&allocate(&state, &held)),
        ["synthetic NoFreeVf", "vf 0 Supported", "vf 1 Supported", "vmq 0 WeightZero"],
        "who holds one keeps it against an equal weight"
    );
    let held = Facts { vfs: [("a2".into(), 0), ("a0".into(), 1)].into(), ..Facts::default() };
    assert_eq!(
        places(&allocate(&state, &held)),
        ["vf 1 Supported", "vf 0 Supported", "vmq 0 NoFreeVf", "synthetic WeightZero"],
        "and not against a greater one"
    );
}

#[test]
fn every_reason_has_its_case() {
    let first = |state: &State, facts: &Facts| allocate(state, facts)[0].clone();
    let base = open(); // web has weight 50, VFs 1 and 2 are free
    let none = Facts::default();
    let of = |pointer: &str, value| first(&state(&with(base.clone(), pointer, value)), &none);
    assert_eq!(of("/version", json!(1)).vf_reason, Reason::Supported);
    assert_eq!(of("/adapter/0/iov_weight", json!(0)).reason, Reason::WeightZero);
    assert_eq!(of("/switch/0/iov", json!(false)).reason, Reason::SwitchNotIov);
    assert_eq!(of("/nic/0/num_vfs", json!(0)).reason, Reason::VfDisabled);
    assert_eq!(of("/adapter/0/vf", json!(3)).reason, Reason::VfDisabled);
    assert_eq!(of("/nic/0/num_vfs", json!(1)).reason, Reason::NoFreeVf, "VF 0 is the operator's");
    let vmq = of("/adapter/0/path", json!("vmq"));
    assert_eq!(
        (vmq.path, vmq.reason, vmq.vf_reason),
        (PathInForce::Vmq, Reason::Supported, Reason::NotWanted)
    );
    let synthetic = of("/adapter/0/path", json!("synthetic"));
    assert_eq!((synthetic.path, synthetic.vmq_reason), (PathInForce::Synthetic, Reason::NotWanted));

    let base = state(&base);
    let poor = Facts { support: [("nic0".into(), Reason::MissingAcs)].into(), ..Facts::default() };
    assert_eq!(first(&base, &poor).reason, Reason::MissingAcs);
    let mut gone = base.clone();
    let moving = json!({"id": "m", "phase": "left"});
    gone.adapters[0].moving = serde_json::from_value(moving).unwrap();
    let left = first(&gone, &none);
    assert_eq!(
        (left.path, left.vf, left.vf_reason),
        (PathInForce::None, Some(1), Reason::Supported)
    );
    gone.adapters[0].moving.as_mut().unwrap().given_up = true;
    let left = first(&gone, &none);
    assert_eq!((left.path, left.vf, left.queue), (PathInForce::None, None, None));
    assert_eq!(
        (left.reason, left.vmq_reason),
        (Reason::MigrationInProgress, Reason::MigrationInProgress)
    );
    let no_queue = allocate(&crowd(0, 1, &[(0, 1), (0, 2)]), &none);
    assert_eq!(no_queue[0].vmq_reason, Reason::NoFreeQueue);

    let auto = state(&with(open(), "/adapter/0/path", json!("auto")));
    let suits = |path| Facts { suited: [("web".into(), path)].into(), ..Facts::default() };
    let follows = first(&auto, &suits(PathInForce::Synthetic));
    assert_eq!((follows.path, follows.reason), (PathInForce::Synthetic, Reason::FollowsTraffic));
    assert_eq!(first(&auto, &suits(PathInForce::Vmq)).path, PathInForce::Vmq);
    assert_eq!(first(&auto, &none).path, PathInForce::Vf);
    assert_eq!(
        first(&base, &suits(PathInForce::Synthetic)).path,
        PathInForce::Vf,
        "only auto follows"
    );
}

#[test]
fn an_adapter_without_a_switch_has_a_vf_or_nothing() {
    let mut bare = with(open(), "/adapter/1/switch", Value::Null);
    bare = with(bare, "/adapter/1/nic", json!("nic0"));
    let db = |bare: &Value| allocate(&state(bare), &Facts::default())[1].clone();
    let nothing = db(&bare);
    assert_eq!((nothing.path, nothing.vmq_reason), (PathInForce::None, Reason::NoSwitch));
    let given = db(&with(bare, "/adapter/1/iov_weight", json!(1)));
    assert_eq!(given.place(), "vf 2");
}

#[test]
fn a_named_vf_is_nobody_elses() {
    let named = with(open(), "/adapter/1/vf", json!(1));
    let given = allocate(&state(&named), &Facts::default());
    assert_eq!(places(&given), ["vf 2 Supported", "vmq 0 WeightZero"], "kept free for db");
    let given =
        allocate(&state(&with(named, "/adapter/1/iov_weight", json!(1))), &Facts::default());
    assert_eq!(places(&given), ["vf 2 Supported", "vf 1 Supported"]);
}

#[test]
fn what_only_the_switch_enforces_keeps_an_adapter_there() {
    let web = |adapter: &str, port: Value| {
        let port = with(port, "/adapter", json!(adapter));
        allocate(&state(&with(open(), "/switch/0/port/-", port)), &Facts::default())[0].clone()
    };
    let rule = json!([{"action": "deny", "protocol": 17}]);
    for own in [
        json!({"acl": rule}),
        json!({"isolated": true}),
        json!({"dhcp_guard": true}),
        json!({"router_guard": true}),
    ] {
        let given = web("web", own);
        assert_eq!(given.path, PathInForce::Vmq, "it sends through the switch there, too");
        assert_eq!((given.reason, given.vmq_reason), (Reason::PortPolicy, Reason::Supported));
    }
    for wires in [json!({"acl": rule}), json!({"isolated": true}), json!({"trunks": ["5"]})] {
        let given = web("uplink", wires);
        assert_eq!(given.path, PathInForce::Synthetic, "frames from the wire would come past it");
        assert_eq!((given.reason, given.vmq_reason), (Reason::PortPolicy, Reason::PortPolicy));
    }
    for harmless in [json!({"unknown_unicast": false}), json!({})] {
        assert_eq!(web("web", harmless.clone()).path, PathInForce::Vf);
        assert_eq!(web("uplink", harmless).path, PathInForce::Vf);
    }
    assert_eq!(web("db", json!({"isolated": true})).path, PathInForce::Vf, "another's port");
}

#[test]
fn codes_are_stable_and_explained() {
    let codes: Vec<String> = Reason::ALL.iter().map(Reason::to_string).collect();
    assert_eq!(
        codes[..8].join(" "),
        "Supported MissingAcs NoBusResources NoVfBarSpace MissingPfDriver NoIoMmuSupport NoOscSupport Unknown"
    );
    assert_eq!(
        codes[8..].join(" "),
        "NoFreeVf NoFreeQueue WeightZero SwitchNotIov VfDisabled MigrationInProgress NotWanted FollowsTraffic NoSwitch PortPolicy"
    );
    for (reason, code) in Reason::ALL.iter().zip(codes) {
        assert_eq!(serde_json::to_value(reason).unwrap(), json!(code));
        assert!(reason.text().contains("; "), "{reason} has no remedy");
    }
}

proptest! {
    #[test]
    fn the_policy_holds(
        vfs in 0u16..6,
        queues in 0u16..4,
        weights in prop::collection::vec((0u8..4, 0u8..4), 0..10),
        held in prop::collection::vec((0usize..10, 0u16..8), 0..10),
        seed: u64,
    ) {
        let state = crowd(vfs, queues, &weights);
        let holds = |shift: usize| -> BTreeMap<String, u16> {
            held.iter().map(|(i, index)| (format!("a{}", (i + shift) % 10), *index)).collect()
        };
        let facts = Facts { vfs: holds(0), queues: holds(3), ..Facts::default() };
        let given = allocate(&state, &facts);

        // Nothing is given twice, and nothing that is not there.
        for (pick, total) in [
            (given.iter().filter_map(|one| one.vf).collect::<Vec<_>>(), vfs),
            (given.iter().filter_map(|one| one.queue).collect(), queues),
        ] {
            prop_assert_eq!(pick.iter().collect::<BTreeSet<_>>().len(), pick.len());
            prop_assert!(pick.iter().all(|index| *index < total));
        }
        for (one, (iov, vmq)) in given.iter().zip(&weights) {
            // A code for each who has not what it wants, and none for who has.
            prop_assert_eq!(one.vf.is_some(), one.reason == Reason::Supported);
            prop_assert_eq!(one.reason == Reason::WeightZero, *iov == 0);
            prop_assert!(one.vf.is_none() || one.queue.is_none());
            if one.reason == Reason::NoFreeVf {
                // All are taken, by adapters of higher weight, or of equal weight that had it
                // before.
                let others = given.iter().zip(&weights).filter(|(other, _)| other.vf.is_some());
                prop_assert_eq!(others.clone().count(), usize::from(vfs));
                for (_, (weight, _)) in others {
                    prop_assert!(weight >= iov);
                }
            }
            if one.vf.is_none() && one.vmq_reason == Reason::NoFreeQueue {
                let others = given.iter().zip(&weights).filter(|(other, _)| other.queue.is_some());
                prop_assert_eq!(others.clone().count(), usize::from(queues));
                prop_assert!(others.into_iter().all(|(_, (_, weight))| weight >= vmq));
            }
        }

        // A repeated allocation gives the same result.
        let held = Facts {
            vfs: given.iter().filter_map(|one| Some((one.adapter.clone(), one.vf?))).collect(),
            queues: given.iter().filter_map(|one| Some((one.adapter.clone(), one.queue?))).collect(),
            ..Facts::default()
        };
        prop_assert_eq!(&allocate(&state, &held), &given);

        // The order of the document means nothing.
        let mut shuffled = state.clone();
        let count = shuffled.adapters.len().max(1);
        shuffled.adapters.rotate_left(seed as usize % count);
        let mut again = allocate(&shuffled, &facts);
        again.sort_by(|a, b| a.adapter.cmp(&b.adapter));
        let mut given = given;
        given.sort_by(|a, b| a.adapter.cmp(&b.adapter));
        prop_assert_eq!(again, given);
    }
}
