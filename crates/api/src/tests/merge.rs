//! Whole documents: nothing is removed by accident, and VFs are not taken from adapters.

use model::testing::{adapter, document, state, with};
use serde_json::{Value, json};

use super::{Site, null};

const BOTH: [(&str, &str); 2] = [("PUT", "/v1/state"), ("POST", "/v1/apply")];

fn names(site: &Site) -> Vec<Value> {
    let adapters = site.get("/v1/adapters");
    adapters.as_array().unwrap().iter().map(|one| one["name"].clone()).collect()
}

/// The output of a program that failed is often one of these.
#[test]
fn input_without_a_version_or_an_object_removes_nothing() {
    let site = Site::new();
    site.apply(document());
    let before = site.get("/v1/state");
    let without_version = with(document(), "/version", null());
    let empty = json!({"version": 1, "nic": [], "switch": [], "adapter": [], "vpf": []});
    for (method, path) in BOTH {
        for query in ["", "?prune=true", "?dry_run=true", "?dry_run=true&prune=true"] {
            let path = format!("{path}{query}");
            for body in [json!({}), without_version.clone()] {
                let refusal = site.refuses(422, method, &path, body);
                assert_eq!(refusal.first().field, "version", "{refusal:?}");
                assert_eq!(refusal.first().remedy, "write 1");
            }
            for body in [json!({"version": 1}), empty.clone()] {
                let refusal = site.refuses(422, method, &path, body);
                let told = format!("{:?}", refusal.body);
                assert!(told.contains("names no NIC, switch, adapter or virtual PF"), "{told}");
            }
        }
    }
    assert_eq!(site.get("/v1/state"), before);
    assert_eq!(site.does("GET", "/v1/state", null()).generation, Some(1));
}

#[test]
fn objects_that_are_not_named_go_with_consent_only() {
    let site = Site::new();
    site.apply(document());
    let web = json!([adapter("web", 1, 50)]);
    let fewer = with(with(document(), "/adapter", web), "/switch/0/port", json!([]));
    let refusal = site.refuses(409, "PUT", "/v1/state", fewer.clone());
    assert!(refusal.first().message.contains("does not name adapter db"), "{refusal:?}");
    assert!(refusal.first().remedy.contains("?prune=true"), "{refusal:?}");
    site.refuses(409, "PUT", "/v1/state?dry_run=true", fewer.clone());

    let kept = site.apply(with(fewer.clone(), "/adapter/0/iov_weight", json!(60))).body;
    assert_eq!((&kept["kept"], &kept["in_use"]), (&json!(["adapter db"]), &json!([])));
    assert_eq!(kept["plan"]["steps"].as_array().unwrap().len(), 2, "switch and web: {kept}");
    assert_eq!(names(&site), ["web", "db"]);

    // One object alone, and a new one: the others stay as they are, and in their order.
    let alone = json!({"version": 1, "adapter": [adapter("new", 7, 0), adapter("db", 2, 5)]});
    let told = site.apply(alone.clone()).body;
    assert_eq!(told["kept"], json!(["NIC nic0", "switch sw0", "adapter web"]));
    assert_eq!(names(&site), ["web", "db", "new"]);
    assert_eq!(site.get("/v1/adapters/db")["iov_weight"], 5);
    let again = site.apply(alone).body;
    assert_eq!((&again["plan"]["steps"], &again["generation"]), (&json!([]), &json!(3)));

    let planned = site.does("POST", "/v1/apply?dry_run=true&prune=true", fewer.clone()).body;
    assert_eq!((&planned["kept"], &planned["in_use"]), (&json!([]), &json!([])));
    site.plane.0.lock().unwrap().actual.adapters[1].connected = true;
    let planned = site.does("POST", "/v1/apply?dry_run=true&prune=true", fewer.clone()).body;
    assert_eq!(planned["in_use"], json!(["db"]));
    assert_eq!(names(&site), ["web", "db", "new"]);
    let done = site.does("POST", "/v1/apply?prune=true", fewer.clone()).body;
    assert_eq!(done["in_use"], json!(["db"]));
    assert_eq!(site.get("/v1/state"), state(&fewer).to_document());

    site.does("PUT", "/v1/state?prune=true", with(fewer, "/adapter", json!([])));
    assert!(names(&site).is_empty());
}

/// The daemon's document has other objects and another order than the client's.
#[test]
fn mistakes_name_the_object_whatever_its_position() {
    let site = Site::new();
    site.apply(document());
    let of = |adapters: Value| json!({"version": 1, "adapter": adapters});
    let wrong = with(adapter("new", 9, 0), "/vf", json!(99));
    let refusal = site.refuses(422, "POST", "/v1/apply", of(json!([wrong, adapter("db", 2, 0)])));
    assert_eq!((&*refusal.first().object, &*refusal.first().field), ("adapter new", "vf"));
    // web's address, which the document does not name.
    let refusal = site.refuses(422, "POST", "/v1/apply", of(json!([adapter("new", 1, 0)])));
    assert_eq!((&*refusal.first().object, &*refusal.first().field), ("adapter new", "mac"));
    assert!(refusal.first().message.contains("of adapter web"), "{refusal:?}");
    // The same twice.
    let twice = of(json!([adapter("new", 8, 0), adapter("new", 9, 0)]));
    let refusal = site.refuses(422, "POST", "/v1/apply", twice);
    assert_eq!(refusal.first().field, "name", "{refusal:?}");
    assert!(refusal.first().message.contains("adapter new"), "{refusal:?}");
    // Of form.
    let refusal = site.refuses(422, "POST", "/v1/apply", of(json!([{"name": "new"}])));
    assert!(refusal.first().object == "adapter new", "{refusal:?}");
}

/// Settings of its own make a VF the operator's: the adapter would lose it, and not get the
/// settings.
#[test]
fn settings_are_not_put_on_a_vf_that_an_adapter_holds() {
    let site = Site::new();
    site.apply(document());
    let in_force = || site.get("/v1/actual")["actual"]["adapters"][0]["vf"].clone();
    assert_eq!(in_force(), 1, "web holds VF 1");
    let before = site.get("/v1/state");
    for (method, body) in [
        ("PATCH", json!({"vlan": {"id": 7}, "trust": true})),
        ("PUT", json!({"vlan": {"id": 7}, "trust": true})),
    ] {
        for query in ["", "?dry_run=true"] {
            let path = format!("/v1/nics/nic0/vfs/1{query}");
            let refusal = site.refuses(409, method, &path, body.clone());
            assert!(refusal.first().message.contains("is in use by adapter web"), "{refusal:?}");
            let command = "shunt adapter set web --trust on --vlan 7";
            assert!(refusal.first().remedy.ends_with(command), "{refusal:?}");
        }
    }
    let mut nic = before["nic"][0].clone();
    nic["vf"].as_array_mut().unwrap().push(json!({"index": 1, "vlan": {"id": 7}}));
    site.refuses(409, "PUT", "/v1/nics/nic0", nic);
    assert_eq!((site.get("/v1/state"), in_force()), (before, json!(1)));
    // One that is free, and one that the adapter names.
    site.does("PATCH", "/v1/nics/nic0/vfs/2", json!({"vlan": {"id": 7}}));
    site.does("PATCH", "/v1/adapters/web", json!({"vf": 1}));
    site.does("PATCH", "/v1/nics/nic0/vfs/1", json!({"vlan": {"id": 7}}));
    assert_eq!(in_force(), 1);
}
