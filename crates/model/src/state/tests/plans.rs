//! Plans: what they name, in which order, and that they name everything.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{ChangePlan, Facts, ObjectKind, PlanAction, State, allocate};
use super::{adapter, document, state, with};

#[test]
fn from_nothing_and_back() {
    let full = state(&document());
    let plan = ChangePlan::between(&State::default(), &full);
    insta::assert_snapshot!(plan, @r"
    create nic nic0
    create vf nic0/vf0
    create switch sw0
    create adapter db
    create adapter web
    ");
    insta::assert_snapshot!(ChangePlan::between(&full, &State::default()), @r"
    remove adapter db
    remove adapter web
    remove switch sw0
    remove vf nic0/vf0
    remove nic nic0
    ");
    insta::assert_snapshot!(ChangePlan::between(&full, &full), @"nothing to do");
}

#[test]
fn changes_are_told_setting_by_setting_and_moves_with_their_reason() {
    let document = with(document(), "/switch/0/port", json!([]));
    let before = state(&document);
    let mut after = with(document, "/adapter/0/iov_weight", json!(0));
    after = with(after, "/adapter/1/vlan", json!({"id": 7}));
    after = with(after, "/adapter/1/iov_weight", json!(1));
    after = with(after, "/nic/0/vf", json!([]));
    let after = state(&after);
    let given = |state: &State| allocate(state, &Facts::default());
    let plan = ChangePlan::between(&before, &after).with_moves(&given(&before), &given(&after));
    insta::assert_snapshot!(plan, @r"
    remove vf nic0/vf0
    change adapter db
        iov_weight: 0 -> 1
        vlan.id: none -> 7
        vlan.proto: none -> 802.1q
        vlan.qos: none -> 0
    change adapter web
        iov_weight: 50 -> 0
    move adapter web
        path: vf 1 -> vmq 0 (WeightZero)
    move adapter db
        path: vmq 0 -> vf 0 (Supported)
    ");
}

#[test]
fn changes_of_lists_are_told_entry_by_entry_and_rules_in_words() {
    let rules =
        json!([{"action": "deny", "protocol": "udp", "to_port": "53"}, {"action": "allow"}]);
    let port = json!({"adapter": "web", "acl": rules});
    let none = with(document(), "/switch/0/port", json!([]));
    let some = with(none.clone(), "/switch/0/port", json!([port]));
    let port = json!({"adapter": "web", "unknown_unicast": false});
    let known = with(none.clone(), "/switch/0/port", json!([port]));
    let tunnel = json!({"name": "far", "vni": 7, "peers": ["10.0.0.2"]});
    let far = with(none.clone(), "/switch/0/vxlan", json!([tunnel]));
    let [none, some, known, far] = [none, some, known, far].map(|document| state(&document));
    let told = |from: &State, to: &State| ChangePlan::between(from, to).to_string();
    insta::assert_snapshot!(told(&none, &known), @"
    change switch sw0
        port web, unknown_unicast: none -> false
    ");
    insta::assert_snapshot!(told(&none, &far), @"
    change switch sw0
        vxlan far, peers: none -> 10.0.0.2
        vxlan far, vni: none -> 7
    ");
    insta::assert_snapshot!(told(&none, &some), @"
    change switch sw0
        port web, acl 1: none -> deny protocol=udp to_port=53
        port web, acl 2: none -> allow
    ");
    insta::assert_snapshot!(told(&some, &none), @"
    change switch sw0
        port web: removed
    ");
}

/// A document with some of these adapters, VFs and settings.
fn some_document() -> impl Strategy<Value = Value> {
    (prop::collection::vec(0u8..6, 0..5), prop::collection::vec(any::<bool>(), 3), 0u16..3)
        .prop_map(|(adapters, vfs, num_vfs)| {
            let mut names = adapters.clone();
            names.sort_unstable();
            names.dedup();
            let adapters: Vec<Value> =
                names.iter().map(|n| adapter(&format!("a{n}"), *n, adapters[0])).collect();
            let vfs = vfs.iter().enumerate().filter(|(_, there)| **there);
            let vfs: Vec<Value> = vfs.map(|(i, _)| json!({"index": i})).collect();
            json!({
                "version": 1,
                "nic": [{"name": "nic0", "total_vfs": 4, "num_vfs": num_vfs, "vf": vfs}],
                "switch": [{"name": "sw0", "nic": "nic0"}], "adapter": adapters,
            })
        })
}

proptest! {
    #[test]
    fn a_plan_is_empty_exactly_if_nothing_differs(a in some_document(), b in some_document()) {
        let (a, b) = (state(&a), state(&b));
        prop_assert_eq!(ChangePlan::between(&a, &b).is_empty(), a == b);
    }

    /// Every step is about something that differs, once, and the way back undoes it.
    #[test]
    fn the_way_back_is_the_mirror_image(a in some_document(), b in some_document()) {
        let (a, b) = (state(&a), state(&b));
        let (there, back) = (ChangePlan::between(&a, &b), ChangePlan::between(&b, &a));
        prop_assert_eq!(there.steps.len(), back.steps.len());
        for step in &there.steps {
            let mirror = match step.action {
                PlanAction::Create => PlanAction::Remove,
                PlanAction::Remove => PlanAction::Create,
                same => same,
            };
            let same = |other: &&super::super::PlanStep| (other.kind, &other.name) == (step.kind, &step.name);
            let found: Vec<_> = back.steps.iter().filter(same).collect();
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(found[0].action, mirror);
        }
    }

    /// Nothing is created before what it refers to, or removed after it.
    #[test]
    fn the_order_is_one_in_which_each_step_is_possible(a in some_document(), b in some_document()) {
        let plan = ChangePlan::between(&state(&a), &state(&b));
        let of = |action: PlanAction| plan.steps.iter().filter(move |step| step.action == action);
        let kinds: Vec<ObjectKind> = of(PlanAction::Create).map(|step| step.kind).collect();
        prop_assert!(kinds.is_sorted());
        let kinds: Vec<ObjectKind> = of(PlanAction::Remove).map(|step| step.kind).collect();
        prop_assert!(kinds.iter().rev().is_sorted());
    }
}
