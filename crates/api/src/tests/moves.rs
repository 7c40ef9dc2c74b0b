//! Moves of guests: steps in order, refusals, and crashes.

mod frames;
mod given_up;

use std::time::{Duration, Instant};

use model::testing::{adapter, document, with};
use serde_json::{Value, json};

use super::{Site, eventually, null};
use crate::EventKind;
use crate::store::{Directory, Store};

fn step(step: &str) -> Value {
    json!({"id": "m1", "step": step})
}

fn arrival(name: &str, byte: u8, weight: u8) -> Value {
    json!({"id": "m1", "step": "arrive", "adapter": adapter(name, byte, weight)})
}

impl Site {
    fn moves(&self, name: &str, body: Value) -> Value {
        self.does("POST", &format!("/v1/adapters/{name}/move"), body).body
    }

    fn adapter_in_force(&self, name: &str) -> Value {
        let actual = self.get("/v1/actual");
        let adapters = actual["actual"]["adapters"].as_array().unwrap();
        adapters.iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
    }

    /// Ends moves as if it were so late, in milliseconds from now.
    fn tick_in(&self, ms: u64) {
        let server = self.server.as_ref().unwrap();
        let then = Instant::now() + Duration::from_millis(ms);
        server.manager().lock().unwrap().tick(then);
    }

    fn set_connected(&self, name: &str, connected: bool) {
        self.plane.0.lock().unwrap().set_connected(name, connected);
    }
}

#[test]
fn an_adapter_arrives_with_its_port_and_holds_its_vf() {
    let site = Site::new();
    site.apply(document());
    let mut request = arrival("new", 9, 1);
    request["port"] = json!({"adapter": "new", "unknown_unicast": false});
    request["static"] = json!([{"mac": "02:00:00:00:00:0b", "port": "new"}]);
    let before = site.get("/v1/state");
    let preview = site.does("POST", "/v1/adapters/new/move?dry_run=true", request.clone()).body;
    assert_eq!((&preview["path"], &preview["vf"]), (&json!("vf"), &json!(2)));
    assert_eq!(site.get("/v1/state"), before);
    site.refuses(400, "POST", "/v1/adapters/web/move?dry_run=true", step("leave"));
    let status = site.moves("new", request.clone());
    assert_eq!((&status["phase"], &status["path"]), (&json!("arriving"), &json!("vf")));
    assert_eq!((&status["vf"], &status["reason"]), (&json!(2), &json!("Supported")));
    let shown = site.adapter_in_force("new");
    assert_eq!((&shown["path"], &shown["vf"]), (&json!("none"), &json!(2)));
    assert_eq!(shown["reason"], "MigrationInProgress");
    assert_eq!(site.get("/v1/actual")["owners"]["nic0/vf2"]["holder"], "new");
    assert_eq!(site.get("/v1/switches/sw0/ports/new")["unknown_unicast"], false);
    // A new adapter of higher weight does not get a reserved VF.
    site.does("PUT", "/v1/adapters/rival", adapter("rival", 10, 100));
    assert_eq!(site.adapter_in_force("rival")["vf"], 1, "web's, which weighs less");
    assert_eq!(site.adapter_in_force("new")["vf"], 2);
    site.moves("new", request.clone()); // again: it is there already
    let other = |path: &str, value| with(request.clone(), path, value);
    for (other, field) in [
        (other("/adapter/tx_weight", json!(7)), "adapter"),
        (other("/port/isolated", json!(true)), "port"),
        (other("/static", json!([])), "static"),
    ] {
        let refusal = site.refuses(409, "POST", "/v1/adapters/new/move", other);
        assert_eq!(refusal.first().field, field, "{refusal:?}");
    }

    let status = site.moves("new", step("take-over"));
    assert_eq!((&status["phase"], &status["path"]), (&json!("arrived"), &json!("vf")));
    let shown = site.adapter_in_force("new");
    assert_eq!((&shown["path"], &shown["reason"]), (&json!("vf"), &json!("Supported")));
    site.moves("new", step("take-over"));
    let status = site.moves("new", step("finish"));
    assert_eq!((&status["phase"], &status["id"]), (&Value::Null, &Value::Null));
    assert_eq!(site.get("/v1/adapters/new").get("move"), None);
    let kinds = site.get("/v1/events");
    let moves = kinds["events"].as_array().unwrap().iter();
    let move_kind = serde_json::to_value(EventKind::Move).unwrap();
    assert_eq!(moves.filter(|event| event["kind"] == move_kind).count(), 5);
}

#[test]
fn without_a_free_vf_it_arrives_on_the_switch_and_gets_one_later() {
    let site = Site::new();
    site.apply(with(document(), "/nic/0/num_vfs", json!(2)));
    let mut request = arrival("new", 9, 1);
    request["adapter"]["vmq_weight"] = json!(0);
    let status = site.moves("new", request);
    assert_eq!((&status["path"], &status["reason"]), (&json!("synthetic"), &json!("NoFreeVf")));
    site.moves("new", step("take-over"));
    site.moves("new", step("finish"));
    let shown = site.adapter_in_force("new");
    assert_eq!((&shown["path"], &shown["reason"]), (&json!("synthetic"), &json!("NoFreeVf")));
    site.does("DELETE", "/v1/adapters/web", null());
    let shown = site.adapter_in_force("new");
    assert_eq!((&shown["path"], &shown["vf"]), (&json!("vf"), &json!(1)));
}

#[test]
fn an_adapter_without_any_path_does_not_arrive() {
    let site = Site::new();
    site.apply(with(document(), "/nic/0/num_vfs", json!(2)));
    let refusal = site.refuses(409, "POST", "/v1/adapters/new/move", bare());
    assert!(refusal.first().message.contains("disconnected (NoFreeVf)"), "{refusal:?}");
    site.refuses(404, "GET", "/v1/adapters/new/move", null());
}

#[test]
fn an_adapter_leaves_and_is_removed_with_all_that_is_its_own() {
    let site = Site::new();
    let own = json!({"mac": "02:00:00:00:00:0c", "port": "db"});
    site.apply(with(document(), "/switch/0/static/-", own));
    let status = site.moves("db", step("leave"));
    assert_eq!((&status["phase"], &status["path"]), (&json!("leaving"), &json!("vmq")));
    assert_eq!(site.adapter_in_force("db")["path"], "vmq", "it goes on as it is");
    site.set_connected("db", true);
    let refusal = site.refuses(409, "POST", "/v1/adapters/db/move", step("hand-over"));
    assert!(refusal.first().message.contains("runs here"), "{refusal:?}");
    site.set_connected("db", false);
    let status = site.moves("db", step("hand-over"));
    assert_eq!((&status["phase"], &status["frames"]), (&json!("left"), &json!([])));
    let shown = site.adapter_in_force("db");
    assert_eq!((&shown["path"], &shown["reason"]), (&json!("none"), &json!("MigrationInProgress")));
    site.moves("db", step("finish"));
    site.refuses(404, "GET", "/v1/adapters/db", null());
    assert_eq!(site.get("/v1/switches/sw0/ports"), json!([]));
    assert_eq!(site.get("/v1/switches/sw0")["static"].as_array().unwrap().len(), 1);
}

#[test]
fn an_abort_brings_both_sides_back() {
    let site = Site::new();
    site.apply(document());
    let before = (site.get("/v1/state"), site.get("/v1/actual")["actual"].clone());
    let now = || (site.get("/v1/state"), site.get("/v1/actual")["actual"].clone());
    for steps in [&["leave"][..], &["leave", "hand-over"]] {
        steps.iter().for_each(|one| drop(site.moves("web", step(one))));
        assert_ne!(now(), before);
        site.moves("web", step("abort"));
        site.moves("web", step("abort"));
        assert_eq!(now(), before);
    }
    for steps in [&[][..], &["take-over"]] {
        site.moves("new", arrival("new", 9, 1));
        steps.iter().for_each(|one| drop(site.moves("new", step(one))));
        assert_eq!(site.moves("new", step("abort"))["phase"], Value::Null);
        assert_eq!(now(), before);
    }
}

/// Two static addresses, of these ports.
fn entry(one: &str, other: &str) -> Value {
    json!([{"mac": "02:00:00:00:00:0b", "port": one}, {"mac": "02:00:00:00:00:0c", "port": other}])
}

/// An adapter on no switch that arrives.
fn bare() -> Value {
    let mut request = arrival("new", 9, 1);
    let adapter = request["adapter"].as_object_mut().unwrap();
    adapter.remove("switch");
    adapter.insert("nic".into(), json!("nic0"));
    request
}

#[test]
fn steps_that_make_no_sense_are_refused_and_change_nothing() {
    let site = Site::new();
    site.apply(document());
    let path = |name: &str| format!("/v1/adapters/{name}/move");
    for name in ["take-over", "hand-over", "finish", "frames", "renew"] {
        let refusal = site.refuses(409, "POST", &path("web"), step(name));
        assert!(refusal.first().message.contains("web is not migrating"), "{refusal:?}");
        site.refuses(404, "POST", &path("nobody"), step(name));
    }
    site.moves("web", step("leave"));
    for name in ["take-over", "finish", "arrive"] {
        let refusal = site.refuses(409, "POST", &path("web"), step(name));
        assert!(refusal.first().message.contains("web is leaving"), "{refusal:?}");
    }
    let other = json!({"id": "m2", "step": "abort"});
    let refusal = site.refuses(409, "POST", &path("web"), other);
    assert!(refusal.first().message.contains("web is migrating (m1)"), "{refusal:?}");
    for (body, field) in [
        (json!({"step": "leave"}), "id"),
        (json!({"id": "m1", "step": "go"}), "step"),
        (json!({"id": "m1", "step": "leave", "hold_s": 0}), "hold_s"),
        (json!({"id": "m1", "step": "leave", "fast": true}), "fast"),
        (json!({"id": "m1", "step": "arrive"}), "adapter"),
        (json!({"id": "m1", "step": "arrive", "adapter": adapter("x", 9, 0)}), "adapter.name"),
        (with(arrival("new", 9, 0), "/port", json!({"adapter": "db"})), "port.adapter"),
        (with(arrival("new", 9, 0), "/static", entry("new", "db")), "static[1].port"),
        (with(bare(), "/port", json!({"adapter": "new"})), "port"),
        (with(bare(), "/static", entry("new", "new")), "static"),
        (json!({"id": "m1", "step": "leave", "adapter": adapter("new", 9, 0)}), "adapter"),
        (json!({"id": "m1", "step": "abort", "frames": ["00"]}), "frames"),
        (json!({"id": "m1", "step": "renew", "from": 1}), "from"),
    ] {
        let refusal = site.refuses(422, "POST", &path("new"), body.clone());
        assert_eq!(refusal.first().field, field, "{body}: {refusal:?}");
    }
    let mut tap = arrival("new", 9, 0);
    tap["adapter"]["attachment"] = json!({"kind": "tap", "interface": "tap9"});
    let refusal = site.refuses(422, "POST", &path("new"), tap);
    assert_eq!(refusal.first().field, "adapter.attachment");
    let mut taken = arrival("new", 9, 0);
    taken["adapter"]["mac"] = json!("02:00:00:00:01:01");
    let refusal = site.refuses(422, "POST", &path("new"), taken);
    assert!(refusal.first().field == "mac", "{refusal:?}");
    site.moves("new", arrival("new", 9, 0));
    for frame in ["", "0", "00", "zz00000000000000000000000000", "+0000000000000000000000000000"] {
        let body = json!({"id": "m1", "step": "frames", "frames": [frame]});
        let refusal = site.refuses(422, "POST", &path("new"), body);
        assert_eq!(refusal.first().field, "frames[0]", "{frame}: {refusal:?}");
    }
}

#[test]
fn a_step_is_stored_or_has_not_happened() {
    let mut site = Site::new();
    site.apply(document());
    site.moves("new", arrival("new", 9, 1));
    site.moves("web", step("leave"));
    let before = (site.get("/v1/state"), site.get("/v1/actual"));
    site.start(None);
    assert_eq!((site.get("/v1/state"), site.get("/v1/actual")), before);
    // A daemon that died in the middle of the next step.
    let mut then = site.get("/v1/state");
    then["adapter"][0]["move"]["phase"] = json!("left");
    site.server = None;
    {
        let directory = Directory::open(&site.dir.path().join("state")).unwrap();
        let (mut store, _) = Store::open(directory).unwrap();
        store.begin(&model::testing::state(&then)).unwrap();
    }
    site.start(None);
    assert_eq!((site.get("/v1/state"), site.get("/v1/actual")), before);
    site.moves("web", step("hand-over"));
    site.start(None);
    assert_eq!(site.get("/v1/adapters/web/move")["phase"], "left");
}

#[test]
fn a_step_by_a_stale_etag_is_refused() {
    let site = Site::new();
    let known = site.apply(document()).generation;
    let client = super::Client::new(&site.socket());
    let post = |expected| {
        let path = "/v1/adapters/web/move";
        client.send(hyper::Method::POST, path, Some(&step("leave")), expected)
    };
    let done = post(known).unwrap();
    assert_eq!(done.generation, known.map(|known| known + 1));
    assert!(post(known).unwrap_err().to_string().contains("generation"));
}

/// A document from before the move neither ends it nor removes who moves.
#[test]
fn a_document_does_not_end_a_move() {
    let site = Site::new();
    site.apply(document());
    site.moves("web", step("leave"));
    site.moves("web", step("hand-over"));
    for body in [document(), with(document(), "/adapter/0/tx_weight", json!(20))] {
        let plan = site.does("POST", "/v1/apply?dry_run=true", body.clone()).body;
        assert!(!plan.to_string().contains("move.phase"), "{plan}");
        site.apply(body.clone());
        site.does("PUT", "/v1/state", body);
        assert_eq!(site.adapter_in_force("web")["reason"], "MigrationInProgress");
    }
    site.does("PUT", "/v1/adapters/web", document()["adapter"][0].clone());
    assert_eq!(site.get("/v1/adapters/web/move")["phase"], "left");

    let before = site.get("/v1/state");
    site.moves("new", arrival("new", 9, 1));
    for (method, path) in
        [("POST", "/v1/apply"), ("POST", "/v1/apply?dry_run=true"), ("PUT", "/v1/state")]
    {
        let mark = if path.contains('?') { '&' } else { '?' };
        let path = &format!("{path}{mark}prune=true");
        let refusal = site.refuses(409, method, path, document());
        assert!(refusal.first().message.contains("new is migrating (m1)"), "{refusal:?}");
    }
    site.refuses(409, "DELETE", "/v1/adapters/new", null());
    let moving = json!({"id": "m1", "phase": "left"});
    for (name, field) in [("new", "move"), ("db", "move")] {
        let path = format!("/v1/adapters/{name}");
        let refusal = site.refuses(422, "PATCH", &path, json!({"move": moving}));
        assert_eq!(refusal.first().field, field, "{refusal:?}");
    }
    site.moves("new", step("abort"));
    assert_eq!(site.get("/v1/state"), before);
    site.moves("web", step("abort"));
    site.apply(document());
}
