//! Obstacles are reported, and then nothing is changed.

use api::testing::Site;
use model::testing::{adapter, document, with};
use serde_json::json;

use super::fake_qemu::Fault;
use super::{Lab, MigrationSpec, plan, run};

#[test]
fn what_is_in_the_way_is_told_before_anything_is_touched() {
    for (fault, says) in [
        (Fault::VfsEnabled, &["has VFs enabled (01:00.1)", "sriov_numvfs", "failover"][..]),
        (Fault::Paused, &["the guest is paused"]),
        (Fault::OtherName, &["is other, not web-vm"]),
        (Fault::Blocked, &["QEMU says: no log of what was written"]),
    ] {
        let lab = Lab::new(Some(fault));
        let before = lab.states();
        let refused = run(&lab.spec(), &mut |_| ()).unwrap_err();
        assert!(refused.is_usage_error);
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
fn obstacles_of(document: serde_json::Value, change: impl FnOnce(&Lab)) -> Vec<String> {
    let lab = Lab::new(None);
    lab.here.apply(document);
    change(&lab);
    let before = lab.states();
    let refused = run(&lab.spec(), &mut |_| ()).map(|report| format!("{report:#?}"));
    let made = plan(&lab.spec()).unwrap();
    assert_eq!(refused.map_err(|refused| refused.to_string()), Err(made.obstacles.join("\n")));
    assert_eq!(lab.states(), before);
    assert!(lab.source.only_queries());
    made.obstacles
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
        "adapter db uses /run/shunt/db.sock, which this QEMU does not have (it has /run/shunt/web.sock); \
         name an adapter of this guest"
    );
    assert!(lab.source.only_queries());
    lab.here.does("DELETE", "/v1/adapters/web", json!(null));
    let made = plan(&lab.spec()).unwrap();
    assert!(made.adapters.is_empty(), "{made}");
    assert!(made.obstacles[0].starts_with("no adapter of the source daemon uses a socket"));
}

#[test]
fn what_would_stay_behind_is_in_the_way() {
    let vpf = json!([{"name": "pf7", "pf": "db", "vf": [{"adapter": "web"}]}]);
    let found = obstacles_of(with(document(), "/vpf", vpf), |_| ());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("adapter web is behind virtual PF pf7"), "{found:?}");

    let copied =
        with(document(), "/adapter/1/mirror", json!({"adapter": "web", "direction": "rx"}));
    let found = obstacles_of(copied, |_| ());
    assert_eq!(found, ["frames of db are mirrored to adapter web; remove the mirror first"]);

    let settings = with(document(), "/nic/0/vf", json!([{"index": 0, "trust": true}]));
    let named = with(settings, "/adapter/0/vf", json!(0));
    let found = obstacles_of(named, |_| ());
    assert!(found[0].contains("has the settings of VF 0 of nic0"), "{found:?}");
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
    assert!(found[0].contains("vf: 2 is named by adapter"), "{found:?}");
    let one = with(document(), "/adapter/0/vf", json!(1)); // the first that is free
    let found = obstacles_of(one, |lab| {
        other(lab, None);
        assert_eq!(vf_of(&lab.there, "other"), 1);
    });
    assert_eq!(
        found,
        [
            "adapter web names VF 1, which other has on nic0 of the target; free that VF, or remove the number"
        ]
    );
}
