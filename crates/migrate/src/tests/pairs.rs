//! Failover pairs of a guest that migrates: where its frames go, what is plugged, and what is left
//! after a failure.

use model::state::PathInForce;
use serde_json::{Value, json};

use super::fake_qemu::Fault;
use super::{Lab, set_connected};
use crate::{MigrateError, MigrationOutcome, MigrationReport, MigrationSpec, plan, run};
use model::testing::document;

const MAC: &str = "02:00:00:00:01:01";

/// Kind of primary.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Primary {
    /// VF of a card, which the adapter names.
    Card,
    /// Another device, on the adapter's wire.
    Other,
}

/// Both daemons with an adapter for the guest's primary.
fn of_pair(kind: Primary) -> Value {
    let mut document = document();
    let web = &mut document["adapter"][0];
    web["path"] = "synthetic".into();
    if kind == Primary::Card {
        (web["switch"], web["vf"]) = ("sw1".into(), 1.into());
        // The driver of the VF is set on each host, and stays there.
        let card = json!({
            "name": "card0", "kind": "pci", "device": "0000:01:00.0", "num_vfs": 2,
            "vf": [{"index": 1, "driver": "vfio-pci"}],
        });
        document["nic"].as_array_mut().unwrap().push(card);
        let switch = json!({"name": "sw1", "nic": "card0", "iov": true});
        document["switch"].as_array_mut().unwrap().push(switch);
    }
    document
}

fn lab(kind: Primary, fault: Option<Fault>, at_primary: bool) -> Lab {
    let lab = Lab::new(fault);
    let mut here = of_pair(kind);
    let mut there = here.clone();
    there["adapter"] = json!([]);
    there["switch"][0]["port"] = json!([]);
    if at_primary {
        match kind {
            Primary::Card => here["adapter"][0]["path"] = "vf".into(),
            Primary::Other => here["adapter"][0]["link_state"] = "disable".into(),
        }
    }
    lab.here.apply(here);
    lab.there.apply(there);
    set_connected(&lab.here, "web", true);
    lab.source.set_pair(MAC, at_primary.then_some("primary-web"));
    lab
}

fn spec(lab: &Lab, plugs: bool) -> MigrationSpec {
    let device = json!({"driver": "e1000e", "netdev": "n1", "bus": "slot1"});
    let primary = ("web".to_owned(), device.as_object().unwrap().clone());
    let target_primaries = plugs.then_some(primary).into_iter().collect();
    MigrationSpec { target_primaries, ..lab.spec() }
}

fn paths(report: &MigrationReport) -> Vec<String> {
    let all = report.time_line.iter();
    all.map(|change| format!("{} {}", change.host, change.path)).collect()
}

/// Path and link of the adapter, where the guest is.
fn frames(lab: &Lab, at_target: bool) -> [String; 2] {
    let one = if at_target { &lab.there } else { &lab.here }.get("/v1/adapters/web");
    [&one["path"], &one["link_state"]].map(|it| it.as_str().unwrap_or("auto").to_owned())
}

fn at_primary(kind: Primary) -> [String; 2] {
    match kind {
        Primary::Card => ["vf", "auto"],
        Primary::Other => ["synthetic", "disable"],
    }
    .map(String::from)
}

#[test]
fn a_guest_migrates_on_the_standby_and_has_a_primary_where_there_is_one() {
    for kind in [Primary::Card, Primary::Other] {
        for (before, after) in [(true, true), (true, false), (false, true), (false, false)] {
            let lab = lab(kind, None, before);
            let report = run(&spec(&lab, after), &mut |_| ()).unwrap();
            let told = format!("{kind:?} {before} {after}: {report:#?}");
            assert_eq!((report.outcome, &report.error), (MigrationOutcome::Moved, &None), "{told}");
            let mut line = vec!["source synthetic", "source none", "target synthetic"];
            line.splice(0..0, before.then_some("source vf"));
            line.extend(after.then_some("target vf"));
            assert_eq!(paths(&report), line, "{told}");
            let times: Vec<u64> = report.time_line.iter().map(|change| change.at_ms).collect();
            assert!(times.is_sorted(), "{told}");
            let planned = &report.plan.adapters[0];
            let path = |vf: bool| if vf { PathInForce::Vf } else { PathInForce::Synthetic };
            assert_eq!((planned.from, planned.to), (path(before), path(after)), "{told}");
            let standby = ["synthetic", "auto"].map(String::from);
            let now = if after { at_primary(kind) } else { standby };
            assert_eq!(frames(&lab, true), now, "{told}");
            assert_eq!(lab.source.pair().0, None, "{told}");
            let (primary, added) = lab.target.pair();
            assert_eq!(primary.as_deref(), after.then_some("primary-web"), "{told}");
            assert_eq!(added.len(), usize::from(after), "{told}");
            let steps: Vec<&str> = report.steps.iter().map(|done| done.step.as_str()).collect();
            let at = |step: &str| steps.iter().position(|one| *one == step);
            assert_eq!(at("unplug").is_some(), before, "{told}");
            assert!(at("unplug") < at("leave") && at("verify") < at("finish"), "{told}");
            assert_eq!(at("plug").is_some_and(|plug| Some(plug) > at("verify")), after, "{told}");
        }
    }
}

#[test]
fn a_plan_names_the_primaries_and_changes_nothing() {
    let lab = lab(Primary::Card, None, true);
    let before = lab.states();
    let text = plan(&spec(&lab, true)).unwrap().to_string();
    for says in [
        "vf -> vf, socket",
        "primary primary-web of web is unplugged at the source",
        "a primary of web is plugged at the target",
    ] {
        assert!(text.contains(says), "{text}");
    }
    assert!(lab.source.only_queries() && lab.states() == before);
    // Other settings of the VF would stay behind.
    let set = |trust: bool| lab.here.does("PATCH", "/v1/nics/card0/vfs/1", json!({"trust": trust}));
    set(true);
    let obstacles = plan(&spec(&lab, true)).unwrap().obstacles;
    let told = "adapter web, vf: 1 has settings of its own in card0";
    assert!(obstacles[0].to_string().starts_with(told), "{obstacles:?}");
    set(false);
    // The target has no VF for it.
    lab.there.does("PATCH", "/v1/nics/card0", json!({"num_vfs": 0}));
    let text = plan(&spec(&lab, true)).unwrap().to_string();
    assert!(text.contains("vf -> synthetic (VfDisabled: "), "{text}");
    assert!(!text.contains("is plugged"), "{text}");
    let report = run(&spec(&lab, true), &mut |_| ()).unwrap();
    assert_eq!((report.outcome, &report.error), (MigrationOutcome::Moved, &None), "{report:#?}");
    assert_eq!(paths(&report).last().unwrap(), "target synthetic");
    assert_eq!(lab.target.pair(), (None, vec![]));
}

#[test]
fn a_primary_is_plugged_again_if_the_guest_does_not_migrate() {
    for kind in [Primary::Card, Primary::Other] {
        for fault in [Fault::Refuses, Fault::FailsEarly, Fault::NeverEnds, Fault::FailsLate] {
            let lab = lab(kind, Some(fault), true);
            let before = lab.states();
            let report = run(&spec(&lab, true), &mut |_| ()).unwrap();
            let told = format!("{kind:?} {fault:?}: {report:#?}");
            assert_eq!(report.outcome, MigrationOutcome::RolledBack, "{told}");
            let undone = &report.steps.last().unwrap().text;
            assert_eq!(undone, "the guest continues at the source", "{told}");
            assert_eq!(lab.states(), before, "{told}");
            let (primary, added) = lab.source.pair();
            assert_eq!(primary.as_deref(), Some("primary-web"), "{told}");
            let device = json!({
                "id": "primary-web", "driver": "e1000e", "netdev": "n1", "mac": "", "romfile": "",
                "bus": "slot1", "failover_pair_id": "nic",
            });
            assert_eq!(added, [device], "{told}");
            assert_eq!(paths(&report).last().unwrap(), "source vf", "{told}");
        }
    }
}

#[test]
fn a_guest_that_keeps_its_primary_does_not_migrate() {
    let lab = lab(Primary::Other, Some(Fault::KeepsPrimary), true);
    let before = lab.states();
    let report = run(&spec(&lab, true), &mut |_| ()).unwrap();
    assert_eq!(report.outcome, MigrationOutcome::RolledBack, "{report:#?}");
    let error = report.error.as_deref().unwrap();
    assert!(error.contains("the guest does not release primary-web"), "{error}");
    assert_eq!((lab.states(), lab.source.was_told("migrate")), (before, false));
}

/// QEMU cannot take the unplug back, so it is awaited.
#[test]
fn an_interruption_during_the_unplug_leaves_the_guest_with_its_primary() {
    for fault in [None, Some(Fault::KeepsPrimary)] {
        let lab = lab(Primary::Other, fault, true);
        let before = lab.states();
        let spec = spec(&lab, true);
        let flag = spec.interrupted.clone();
        let mut on_step = |done: &crate::StepReport| {
            flag.fetch_or(done.step == "connect", std::sync::atomic::Ordering::Relaxed);
        };
        let report = run(&spec, &mut on_step).unwrap();
        assert_eq!(report.outcome, MigrationOutcome::RolledBack, "{report:#?}");
        assert_eq!(report.steps.last().unwrap().text, "the guest continues at the source");
        assert_eq!(lab.source.pair().0.as_deref(), Some("primary-web"));
        assert_eq!((lab.states(), lab.source.was_told("migrate")), (before, false));
    }
}

#[test]
fn a_primary_that_the_target_does_not_take_leaves_the_guest_on_the_standby() {
    for kind in [Primary::Card, Primary::Other] {
        let lab = lab(kind, Some(Fault::RejectsPrimary), true);
        let report = run(&spec(&lab, true), &mut |_| ()).unwrap();
        assert_eq!(report.outcome, MigrationOutcome::Moved, "{report:#?}");
        let error = report.error.as_deref().unwrap();
        assert!(error.contains("the guest has moved, but: web has no primary at the"), "{error}");
        assert!(error.ends_with("(GenericError); frames go to the standby again"), "{error}");
        assert_eq!(frames(&lab, true), ["synthetic", "auto"]);
        assert_eq!(report.plan.adapters[0].to, PathInForce::Synthetic);
    }
}

#[test]
fn a_primary_needs_a_standby_of_the_migration() {
    let lab = lab(Primary::Other, None, false);
    let named = |name: &str| {
        let mut spec = spec(&lab, true);
        let device = spec.target_primaries.remove("web").unwrap();
        spec.target_primaries.insert(name.to_owned(), device);
        let Err(MigrateError::Refused(problems)) = run(&spec, &mut |_| ()) else {
            panic!("{name} is refused")
        };
        problems.to_string()
    };
    let refused = named("db");
    assert!(refused.contains("--to-primary") && refused.contains("\"db\""), "{refused}");
    lab.source.set_pair("02:00:00:00:01:09", None);
    let refused = named("web");
    assert!(
        refused.contains("has no virtio-net device with an id and 02:00:00:00:01:01"),
        "{refused}"
    );
}
