//! Obstacles are reported, and then nothing is changed.

use api::testing::Site;
use model::state::{Problem, Problems};
use model::testing::{adapter, document, with};
use serde_json::json;

use super::fake_qemu::Fault;
use super::{Lab, MigrateError, MigrationSpec, plan, run};

#[test]
fn what_is_in_the_way_is_told_before_anything_is_touched() {
    for (fault, says) in [
        (Fault::VfsEnabled, &["has VFs enabled (01:00.1)", "sriov_numvfs", "failover"][..]),
        (Fault::Paused, &["guest web-vm is paused; resume it"]),
        (Fault::OtherName, &["--from-qmp: ", "is the socket of guest other, not of web-vm"]),
        (
            Fault::Blocked,
            &["guest web-vm cannot be migrated, says QEMU: no log of what was written"],
        ),
    ] {
        let lab = Lab::new(Some(fault));
        let before = lab.states();
        let refused = run(&lab.spec(), &mut |_| ()).unwrap_err();
        assert!(matches!(refused, MigrateError::Refused(_)));
        says.iter().for_each(|text| assert!(refused.to_string().contains(text), "{refused}"));
        assert_eq!(lab.states(), before, "{fault:?}");
        assert!(lab.source.only_queries(), "{fault:?}");
        assert!(plan(&lab.spec()).unwrap().obstacles.len() == 1);
    }
    // A rejection of the target is an obstacle, too.
    let lab = Lab::new(None);
    lab.there.does("PUT", "/v1/adapters/web", adapter("web", 77, 0));
    let refused = run(&lab.spec(), &mut |_| ()).unwrap_err();
    assert!(refused.to_string().contains("there is an adapter web here already"), "{refused}");
    assert!(lab.source.only_queries());
}

/// Obstacles of a migration of `web` from a source with this document.
fn obstacles_of(document: serde_json::Value, change: impl FnOnce(&Lab)) -> Vec<Problem> {
    let lab = Lab::new(None);
    lab.here.apply(document);
    change(&lab);
    let before = lab.states();
    let refused = run(&lab.spec(), &mut |_| ()).map(|report| format!("{report:#?}"));
    let made = plan(&lab.spec()).unwrap();
    let problems = Problems { problems: made.obstacles.clone(), more: 0 };
    assert_eq!(refused, Err(MigrateError::Refused(problems)));
    assert_eq!(lab.states(), before);
    assert!(lab.source.only_queries());
    made.obstacles
}

fn texts(found: &[Problem]) -> Vec<String> {
    found.iter().map(Problem::to_string).collect()
}

/// A guest cannot take another guest's adapter along: its reported MAC address is not used, and
/// naming another guest's adapter is an obstacle.
#[test]
fn an_adapter_of_another_guest_is_not_moved() {
    let lab = Lab::new(None); // whose guest says that it has the address of db
    let spec = MigrationSpec { adapters: vec!["web".into(), "db".into()], ..lab.spec() };
    let refused = run(&spec, &mut |_| ()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "adapter db, attachment.socket: \"/run/shunt/db.sock\" is no socket of this QEMU, which has \
         /run/shunt/web.sock; name an adapter of this guest"
    );
    let MigrateError::Refused(problems) = refused else { panic!("the user named the adapter") };
    assert_eq!(problems.problems[0].allowed, "/run/shunt/web.sock");
    let spec = MigrationSpec { adapters: vec!["ghost".into()], ..lab.spec() };
    let refused = run(&spec, &mut |_| ()).unwrap_err().to_string();
    let told = "--adapter: \"ghost\" is no adapter of the source daemon; write one of web, db";
    assert_eq!(refused, told);
    assert!(lab.source.only_queries());
    lab.here.does("DELETE", "/v1/adapters/web", json!(null));
    let made = plan(&lab.spec()).unwrap();
    assert!(made.adapters.is_empty(), "{made}");
    assert_eq!(
        made.obstacles[0].to_string(),
        "guest web-vm has no socket of an adapter of the source daemon; compare its chardevs with \
         `shunt adapter list`"
    );
}

#[test]
fn what_would_stay_behind_is_in_the_way() {
    let vpf = json!([{"name": "pf7", "pf": "db", "vf": [{"adapter": "web"}]}]);
    let found = obstacles_of(with(document(), "/vpf", vpf), |_| ());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].to_string().starts_with("adapter web is behind virtual PF pf7"), "{found:?}");

    let copied =
        with(document(), "/adapter/1/mirror", json!({"adapter": "web", "direction": "rx"}));
    let found = obstacles_of(copied, |_| ());
    let told = "adapter web gets the mirrored frames of db; remove the mirror first";
    assert_eq!(texts(&found), [told]);

    let settings = with(document(), "/nic/0/vf", json!([{"index": 0, "trust": true}]));
    let named = with(settings, "/adapter/0/vf", json!(0));
    let found = obstacles_of(named, |_| ());
    let told = "adapter web, vf: 0 has settings of its own in nic0, which would stay behind; move them \
         to the adapter, and remove the VF's";
    assert_eq!(found[0].to_string(), told);
    // The target would refuse them, too.
    assert_eq!(found[1].object, "VF 0 of NIC nic0 of the target daemon");
}

#[test]
fn a_named_vf_is_kept_if_nobody_has_it_at_the_target() {
    let named = || with(document(), "/adapter/0/vf", json!(2));
    let lab = Lab::new(None);
    lab.here.apply(named());
    lab.run();
    assert_eq!(lab.there.get("/v1/adapters/web")["vf"], 2);

    // A VF is taken both by weight and by number.
    let other = |lab: &Lab, vf: Option<u16>| {
        let mut other = adapter("other", 9, 100);
        other["vf"] = json!(vf);
        lab.there.does("PUT", "/v1/adapters/other", other);
    };
    let vf_of =
        |site: &Site, name: &str| site.get(&format!("/v1/adapters/{name}/move"))["vf"].clone();
    let found = obstacles_of(named(), |lab| other(lab, Some(2)));
    assert_eq!(found.len(), 1, "{found:?}");
    let told = "adapter web of the target daemon, vf: 2 is named by adapter";
    assert!(found[0].to_string().starts_with(told), "{found:?}");
    let one = with(document(), "/adapter/0/vf", json!(1)); // the first that is free
    let found = obstacles_of(one, |lab| {
        other(lab, None);
        assert_eq!(vf_of(&lab.there, "other"), 1);
    });
    let told = "adapter web, vf: 1 is the VF of other on nic0 of the target; free that VF, or remove \
         the number";
    assert_eq!(texts(&found), [told]);
}
