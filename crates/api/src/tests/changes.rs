//! Changes: whole and partial, planned, rejected, and always atomic.

use model::state::{Problem, State};
use model::testing::{adapter, document, state, with};
use serde_json::{Value, json};

use super::{Client, ClientError, Site, null};
use crate::plane::PlaneError;

#[test]
fn a_dry_run_tells_the_steps_and_does_none() {
    let site = Site::new();
    let plan = site.does("POST", "/v1/apply?dry_run=true", document()).body;
    assert_eq!(plan["dry_run"], true);
    assert_eq!(plan["plan"]["steps"].as_array().unwrap().len(), 5);
    assert_eq!(
        plan.pointer("/plan/steps/0"),
        Some(&json!({"action": "create", "kind": "nic", "name": "nic0", "changes": []}))
    );
    assert_eq!(site.get("/v1/nics"), json!([]));
    assert_eq!(site.plane.0.lock().unwrap().reached, [State::default()], "the plane was not asked");
    let done = site.does("POST", "/v1/apply?dry_run=false", document()).body;
    assert_eq!((&done["dry_run"], &done["generation"]), (&json!(false), &json!(1)));
    assert_eq!(
        done["plan"]["steps"].as_array().unwrap()[..5],
        plan["plan"]["steps"].as_array().unwrap()[..]
    );
}

#[test]
fn the_same_again_changes_nothing_and_tries_again_what_has_failed() {
    let site = Site::new();
    site.apply(document());
    assert_eq!(site.plane.0.lock().unwrap().retries, 0);
    let again = site.apply(document()).body;
    assert_eq!((&again["generation"], &again["plan"]["steps"]), (&json!(1), &json!([])));
    assert_eq!(site.plane.0.lock().unwrap().retries, 1);
    let put = site.does("PUT", "/v1/state", document());
    assert_eq!(put.body, state(&document()).to_document());
    assert_eq!(put.generation, Some(1));
}

#[test]
fn parts_are_created_changed_and_removed() {
    let site = Site::new();
    let nic = site.does("PUT", "/v1/nics/nic0", json!({"total_vfs": 4, "num_vfs": 2}));
    assert_eq!((nic.status, &nic.body["name"]), (201, &json!("nic0")));
    let again = json!({"name": "nic0", "total_vfs": 4, "num_vfs": 2});
    assert_eq!(site.does("PUT", "/v1/nics/nic0", again).status, 200);
    assert_eq!(
        site.does("PUT", "/v1/switches/sw0", json!({"nic": "nic0", "iov": true})).status,
        201
    );
    assert_eq!(site.does("PUT", "/v1/adapters/web", adapter("web", 1, 10)).status, 201);

    let vf = site.does("PATCH", "/v1/nics/nic0/vfs/1", json!({"vlan": {"id": 5}, "trust": true}));
    assert_eq!((&vf.body["index"], &vf.body["spoof_check"]), (&json!(1), &json!(true)));
    let vf = site.does("PATCH", "/v1/nics/nic0/vfs/1", json!({"vlan": {"qos": 3}, "trust": null}));
    assert_eq!(vf.body["vlan"], json!({"id": 5, "qos": 3, "proto": "802.1q"}));
    assert_eq!(vf.body["trust"], false, "null goes back to the default");
    let port = site.does("PATCH", "/v1/switches/sw0/ports/uplink", json!({"isolated": true}));
    assert_eq!(port.body["isolated"], true);

    assert_eq!(site.does("DELETE", "/v1/nics/nic0/vfs/1", null()).status, 204);
    assert_eq!(site.get("/v1/nics/nic0/vfs"), json!([]));
    for path in ["/v1/adapters/web", "/v1/switches/sw0", "/v1/nics/nic0"] {
        assert_eq!(site.does("DELETE", path, null()).body, null());
        site.refuses(404, "DELETE", path, null());
    }
    assert_eq!(site.get("/v1/nics"), json!([]));
}

#[test]
fn a_dry_run_of_a_part_is_a_plan_too() {
    let site = Site::new();
    site.apply(document());
    for (method, path, body, step) in [
        ("PUT", "/v1/adapters/new", adapter("new", 7, 0), "create"),
        ("PATCH", "/v1/adapters/web", json!({"iov_weight": 0}), "change"),
        ("DELETE", "/v1/adapters/web", null(), "remove"),
    ] {
        let plan = site.does(method, &format!("{path}?dry_run=true"), body).body;
        assert!(
            plan["plan"]["steps"].as_array().unwrap().iter().any(|one| one["action"] == step),
            "{method}: {plan}"
        );
    }
    let moved = site.does("PATCH", "/v1/adapters/web?dry_run=true", json!({"iov_weight": 0})).body;
    let moved = moved.pointer("/plan/steps/1").unwrap();
    assert_eq!(
        (&moved["action"], &moved["changes"][0]["to"]),
        (&json!("move"), &json!("vmq 1 (WeightZero)"))
    );
    assert_eq!(site.get("/v1/state"), state(&document()).to_document());
}

#[test]
fn a_wrong_value_is_told_as_the_client_wrote_it() {
    let site = Site::new();
    let mirror = json!({"direction": "both", "adapter": "db"});
    let document = || with(document(), "/adapter/0/mirror", mirror.clone());
    site.apply(document());
    for (method, path, body, field, allowed) in [
        (
            "PATCH",
            "/v1/adapters/db",
            json!({"iov_weight": 101}),
            "iov_weight",
            "write a whole number, 0 to 100",
        ),
        ("PATCH", "/v1/adapters/db", json!({"mac": "02:00:00:00:01:01"}), "mac", "choose another"),
        (
            "PATCH",
            "/v1/nics/nic0/vfs/1",
            json!({"spoofchk": true}),
            "spoofchk",
            "did you mean spoof_check?",
        ),
        ("PATCH", "/v1/nics/nic0/vfs/9", json!({}), "index", "write a number, 0 to 3"),
        ("PATCH", "/v1/nics/nic0/vfs/x", json!({}), "index", "write a whole number, 0 to 254"),
        (
            "PUT",
            "/v1/adapters/x",
            json!({"switch": "sw0"}),
            "attachment",
            "write a kind and its place",
        ),
        (
            "PUT",
            "/v1/adapters/x",
            adapter("y", 9, 0),
            "name",
            "leave it out, or write \"x\" as in the path",
        ),
        ("PUT", "/v1/adapters/x", json!(5), "", "write an object with its fields"),
        ("PATCH", "/v1/adapters/db", json!([]), "", "write an object with its fields"),
        ("PUT", "/v1/state", json!({"nic": 1}), "nic", "write a list"),
    ] {
        let refusal = site.refuses(422, method, path, body);
        assert_eq!(refusal.first().field, field, "{method} {path}: {refusal:?}");
        assert!(refusal.first().remedy.contains(allowed), "{method} {path}: {refusal:?}");
    }
    assert_eq!(site.get("/v1/state"), state(&document()).to_document(), "nothing was changed");
}

#[test]
fn what_the_card_of_a_profile_refuses_is_refused_before_anything_is_done() {
    let site = Site::new();
    site.apply(with(document(), "/nic/0/profile", json!("x520")));
    let trunks = json!({"trunks": ["5-9"]});
    for path in ["/v1/adapters/web", "/v1/adapters/web?dry_run=true"] {
        let refusal = site.refuses(422, "PATCH", path, trunks.clone());
        assert_eq!(refusal.first().field, "trunks");
        assert!(refusal.first().message.contains("x520 (EOPNOTSUPP)"), "{refusal:?}");
    }
    site.does("PATCH", "/v1/adapters/db", trunks); // which never gets a VF
}

#[test]
fn the_settings_of_a_port_go_with_its_adapter() {
    let site = Site::new();
    site.apply(document());
    site.does("DELETE", "/v1/adapters/db", null());
    assert_eq!(site.get("/v1/switches/sw0/ports"), json!([]));
}

#[test]
fn several_mistakes_come_in_one_answer() {
    let site = Site::new();
    let wrong = with(document(), "/adapter/0/mac", json!("x"));
    let refusal =
        site.refuses(422, "POST", "/v1/apply", with(wrong, "/nic/0/total_vfs", json!(-1)));
    let of =
        |problem: &Problem| [&problem.object, &problem.field, &problem.value].map(Clone::clone);
    let [first, second] = &refusal.body.problems[..] else { panic!("{refusal:?}") };
    assert_eq!(of(first), ["adapter web", "mac", "\"x\""]);
    assert_eq!(of(second), ["NIC nic0", "total_vfs", "-1"]);
    assert_eq!((&*second.allowed, refusal.body.more), ("a whole number, 0 to 255", 0));
}

#[test]
fn what_is_fixed_at_creation_is_a_conflict() {
    let site = Site::new();
    site.apply(document());
    for (path, body, field) in [
        ("/v1/nics/nic0", json!({"total_vfs": 8}), "total_vfs"),
        ("/v1/nics/nic0", json!({"num_vfs": 2}), "num_vfs"),
        ("/v1/switches/sw0", json!({"iov": false}), "iov"),
    ] {
        for path in [path.to_owned(), format!("{path}?dry_run=true")] {
            let refusal = site.refuses(409, "PATCH", &path, body.clone());
            assert_eq!(refusal.first().field, field, "{refusal:?}");
        }
    }
    site.does("PATCH", "/v1/nics/nic0", json!({"num_vfs": 0}));
    site.does("PATCH", "/v1/nics/nic0", json!({"num_vfs": 2}));
}

/// Every kind of reference, from the objects of a state with all of them.
#[test]
fn an_object_in_use_is_not_deleted_and_its_users_are_named() {
    let site = Site::new();
    let mut all =
        with(document(), "/adapter/0/mirror", json!({"adapter": "db", "direction": "rx"}));
    let tunnel = json!({"name": "far", "vni": 7, "peers": ["10.0.0.2"]});
    all = with(all, "/switch/0/vxlan", json!([tunnel]));
    let far = json!({"mac": "02:00:00:00:07:07", "port": "far"});
    all = with(all, "/switch/0/static", json!([far]));
    all = with(all, "/vpf", json!([{"name": "vm", "pf": "web"}]));
    site.apply(all.clone());
    let before = site.get("/v1/state");
    for (path, object, message) in [
        ("/v1/nics/nic0", "NIC nic0", "still has switch sw0"),
        ("/v1/switches/sw0", "switch sw0", "still has adapters db, web"),
        ("/v1/adapters/db", "adapter db", "is still used by the mirror of adapter web"),
        ("/v1/adapters/web", "adapter web", "is still used by virtual PF vm"),
        (
            "/v1/switches/sw0/tunnels/far",
            "tunnel far of switch sw0",
            "is still used by static address 02:00:00:00:07:07 of switch sw0",
        ),
    ] {
        for query in ["", "?dry_run=true"] {
            let told = site.refuses(409, "DELETE", &format!("{path}{query}"), null()).first();
            let remedy = "delete or change them first";
            let expected = Problem::new("", (), message, remedy).of(object);
            assert_eq!(told, expected);
            assert_eq!(told.to_string(), format!("{object} {message}; {remedy}"));
        }
    }
    assert_eq!(site.get("/v1/state"), before);
}

#[test]
fn what_the_data_plane_refuses_has_not_happened() {
    let mut site = Site::new();
    site.apply(document());
    let problem =
        Problem::new("adapter[0].min_tx_mbps", 5, "is rejected by x520 (EINVAL)", "write 0");
    site.plane.0.lock().unwrap().refuses = Some(PlaneError(problem.into()));
    let refusal = site.refuses(409, "PATCH", "/v1/adapters/web", json!({"min_tx_mbps": 5}));
    assert_eq!((&*refusal.first().field, &*refusal.first().remedy), ("min_tx_mbps", "write 0"));
    assert_eq!(site.get("/v1/state"), state(&document()).to_document());
    let events = site.get("/v1/events");
    assert_eq!(events["events"].as_array().unwrap().last().unwrap()["kind"], "refused");
    site.start(None);
    assert_eq!(site.get("/v1/state"), state(&document()).to_document());
    site.does("PATCH", "/v1/adapters/web", json!({"min_tx_mbps": 5}));
}

#[test]
fn who_comes_second_is_told() {
    let site = Site::new();
    let known = site.apply(document()).generation;
    let client = Client::new(&site.socket());
    let patch = |weight: u8, generation| {
        client.send(
            hyper::Method::PATCH,
            "/v1/adapters/db",
            Some(&json!({"iov_weight": weight})),
            generation,
        )
    };
    let second = patch(1, known).unwrap().generation;
    assert_eq!(second, Some(2));
    match patch(2, known) {
        Err(ClientError::Refused(refusal)) => {
            assert_eq!(refusal.status, 412);
            assert!(refusal.first().message.contains("is 2, not 1"), "{refusal:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(site.get("/v1/adapters/db")["iov_weight"], 1);
    patch(2, second).unwrap();
}

#[test]
fn a_late_release_touches_nothing() {
    let site = Site::new();
    site.apply(with(document(), "/switch/0/port", json!([]))); // db may have a VF
    let token = |vf: &str| site.get("/v1/actual")["owners"][vf]["token"].as_u64().unwrap();
    let (old, operators) = (token("nic0/vf1"), token("nic0/vf0"));
    // web goes, and its VF has a new owner by the time that the release of the old one comes.
    site.does("PATCH", "/v1/adapters/web", json!({"iov_weight": 0}));
    site.does("PATCH", "/v1/adapters/db", json!({"iov_weight": 9, "vf": 1}));
    assert_eq!(site.get("/v1/actual")["owners"]["nic0/vf1"]["holder"], "db");
    let release = |path: &str, token: u64| format!("{path}?owner={token}");
    let refusal = site.refuses(409, "DELETE", &release("/v1/adapters/db", old), null());
    assert!(refusal.first().message.contains("nic0/vf1 has the owner db"), "{refusal:?}");
    let refusal = site.refuses(409, "DELETE", &release("/v1/adapters/web", old), null());
    assert!(refusal.first().message.contains("web has no owner"), "{refusal:?}");
    assert_eq!(site.get("/v1/adapters").as_array().unwrap().len(), 2);
    site.refuses(409, "DELETE", &release("/v1/nics/nic0/vfs/0", old), null());
    site.does("DELETE", &release("/v1/nics/nic0/vfs/0", operators), null());
    let now = token("nic0/vf1");
    assert_ne!(now, old);
    site.does("DELETE", &release("/v1/adapters/db", now), null());
}

#[test]
fn changes_from_many_clients_are_one_after_the_other() {
    let site = Site::new();
    site.apply(with(document(), "/adapter", Value::Array(vec![])).as_object().map_or(
        null(),
        |fields| {
            let mut fields = fields.clone();
            fields.remove("switch");
            Value::Object(fields)
        },
    ));
    site.does("PUT", "/v1/switches/sw0", json!({"nic": "nic0"}));
    std::thread::scope(|scope| {
        for i in 0..8u8 {
            let site = &site;
            scope.spawn(move || {
                let name = format!("a{i}");
                site.does("PUT", &format!("/v1/adapters/{name}"), adapter(&name, i, 0));
            });
        }
    });
    assert_eq!(site.get("/v1/adapters").as_array().unwrap().len(), 8);
    assert_eq!(site.does("GET", "/v1/state", null()).generation, Some(10));
}
