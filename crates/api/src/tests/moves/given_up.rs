//! Movers that are gone, or only slow.

use model::state::Problem;
use serde_json::{Value, json};

use super::*;
use crate::plane::PlaneError;

#[test]
fn who_is_given_up_goes_back_to_where_its_guest_is() {
    let site = Site::new();
    site.apply(document());
    let before = site.get("/v1/state");
    // Not yet, and then the guest has not come and has not gone.
    site.moves("web", step("leave"));
    site.moves("new", arrival("new", 9, 1));
    site.tick_in(50_000);
    assert_eq!(site.get("/v1/adapters/web/move")["phase"], "leaving");
    site.moves("web", json!({"id": "m1", "step": "renew", "hold_s": 3600}));
    site.tick_in(70_000);
    assert_eq!(site.get("/v1/adapters/web/move")["phase"], "leaving");
    site.refuses(404, "GET", "/v1/adapters/new", null());
    site.tick_in(3_700_000);
    assert_eq!(site.get("/v1/state"), before);

    // It has left, and its host is unknown: only its running rings prove that it is here.
    site.moves("web", step("leave"));
    site.moves("web", step("hand-over"));
    site.tick_in(4_000_000);
    assert_eq!(site.adapter_in_force("web")["path"], "none");
    site.set_connected("web", true);
    eventually("its rings say so", || site.adapter_in_force("web")["path"] == "vf");
    assert_eq!(site.get("/v1/state"), before);

    // It has come, and the migrating client is gone.
    site.moves("new", arrival("new", 9, 1));
    site.moves("new", step("take-over"));
    site.set_connected("new", true);
    site.tick_in(70_000);
    assert_eq!(site.adapter_in_force("new")["path"], "vf");
    assert_eq!(site.get("/v1/adapters/new").get("move"), None);
}

fn count(site: &Site, text: &str) -> usize {
    let events = site.get("/v1/events");
    let texts = events["events"].as_array().unwrap().iter();
    texts.filter(|event| event["text"].as_str().unwrap().contains(text)).count()
}

/// A client renews a migration four times a minute: no change of the state, no event, no other
/// generation.
#[test]
fn a_sign_of_life_changes_nothing() {
    let site = Site::new();
    site.apply(document());
    site.moves("web", step("leave"));
    let seen = || {
        (
            site.get("/v1/state"),
            site.get("/v1/events"),
            site.does("GET", "/v1/state", null()).generation,
        )
    };
    let before = seen();
    for hold in [1, 3600] {
        let status = site.moves("web", json!({"id": "m1", "step": "renew", "hold_s": hold}));
        let left = status["expires_in_ms"].as_u64().unwrap();
        assert!(left <= hold * 1000 && left + 60_000 > hold * 1000, "{status}");
    }
    assert_eq!(seen(), before);
    site.tick_in(3_500_000);
    assert_eq!(seen(), before);
}

/// Its guest may still be migrating: it keeps its address, but not its VF, until its host is known.
#[test]
fn who_has_arrived_or_left_stays_so_without_what_was_held_for_it() {
    let site = Site::new();
    site.apply(with(document(), "/nic/0/num_vfs", json!(2)));
    for (name, phase, steps) in
        [("web", "left", &["leave", "hand-over"][..]), ("new", "arrived", &[])]
    {
        if steps.is_empty() {
            site.moves(name, arrival(name, 9, 1));
            site.moves(name, step("take-over"));
        }
        steps.iter().for_each(|one| drop(site.moves(name, step(one))));
        let vf = site.adapter_in_force(name)["vf"].clone();
        assert_eq!(vf, 1, "{name}");
        let rival = format!("rival-{name}");
        site.does(
            "PUT",
            &format!("/v1/adapters/{rival}"),
            adapter(&rival, 20 + name.len() as u8, 100),
        );
        assert_eq!(site.adapter_in_force(&rival)["vf"], Value::Null, "it is held");
        (0..3).for_each(|_| site.tick_in(70_000));
        let status = site.get(&format!("/v1/adapters/{name}/move"));
        assert_eq!((&status["phase"], &status["given_up"]), (&json!(phase), &json!(true)));
        assert_eq!(site.adapter_in_force(&rival)["vf"], vf);
        // The client was only slow.
        site.moves(name, step("renew"));
        let status = site.get(&format!("/v1/adapters/{name}/move"));
        assert_eq!((&status["phase"], &status["given_up"]), (&json!(phase), &json!(false)));
        site.moves(name, step("finish"));
        site.does("DELETE", &format!("/v1/adapters/{rival}"), null());
    }
    assert_eq!(count(&site, "the migration was abandoned, and the guest does not run here"), 2);
}

/// A guest that runs at last is here, even without the client that migrated it.
#[test]
fn who_has_arrived_and_runs_late_is_an_adapter_like_others() {
    let site = Site::new();
    site.apply(document());
    site.moves("new", arrival("new", 9, 1));
    site.moves("new", step("take-over"));
    site.tick_in(70_000);
    assert_eq!(site.get("/v1/adapters/new")["move"]["given_up"], true);
    site.set_connected("new", true);
    site.tick_in(71_000);
    assert_eq!(site.get("/v1/adapters/new").get("move"), None);
}

/// The timer is the process's own: a new process has seen no step yet.
#[test]
fn a_daemon_that_starts_waits_as_long_again() {
    let mut site = Site::new();
    site.apply(document());
    site.moves("web", json!({"id": "m1", "step": "leave", "hold_s": 100}));
    site.start(None);
    site.tick_in(1_000);
    site.tick_in(90_000);
    assert_eq!(site.get("/v1/adapters/web/move")["phase"], "leaving");
    site.tick_in(102_000);
    assert_eq!(site.get("/v1/adapters/web/move")["phase"], Value::Null);
}

#[test]
fn a_move_that_cannot_be_ended_is_told_once_and_tried_ever_less_often() {
    let site = Site::new();
    site.apply(document());
    site.moves("web", step("leave"));
    let mut tries = 0;
    for second in 0..3600 {
        site.plane.0.lock().unwrap().refuses =
            Some(PlaneError(Problem::new("nic", "x", "is full", "free some").into()));
        site.tick_in(70_000 + second * 1000);
        tries += usize::from(site.plane.0.lock().unwrap().refuses.is_none());
    }
    assert!((10..30).contains(&tries), "{tries}");
    assert_eq!(count(&site, "its migration cannot be ended"), 1);
    site.plane.0.lock().unwrap().refuses = None;
    site.tick_in(4_000_000);
    assert_eq!(site.get("/v1/adapters/web/move")["phase"], Value::Null);
}
