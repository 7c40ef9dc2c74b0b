//! Read operations and their responses.

use std::time::Duration;

use model::testing::{document, state};
use serde_json::json;

use super::{Site, null, request};
use crate::clock::unix_ms;

#[test]
fn an_empty_daemon_has_an_empty_state() {
    let site = Site::new();
    let reply = site.does("GET", "/v1/state", null());
    assert_eq!(
        reply.body,
        json!({"version": 1, "nic": [], "switch": [], "adapter": [], "vpf": []})
    );
    assert_eq!((reply.status, reply.generation), (200, Some(0)));
    assert_eq!(site.get("/v1/adapters"), json!([]));
    assert_eq!(
        site.get("/v1/actual"),
        json!({"generation": 0, "actual": {"nics": [], "adapters": [], "tunnels": []}, "owners": {}, "vpfs": []})
    );
    assert_eq!(
        site.get("/v1/stats"),
        json!({
            "ports": [], "lanes": [], "log_lines_dropped": 0, "forbidden_calls": 0, "sandbox": [],
            "limits": [],
        })
    );
    let events = site.get("/v1/events");
    assert_eq!(events["events"][0]["kind"], "start");
    assert_eq!((&events["last"], &events["lost"]), (&json!(1), &json!(0)));
}

#[test]
fn every_part_can_be_read_by_its_path() {
    let site = Site::new();
    site.apply(document());
    let whole = state(&document()).to_document();
    assert_eq!(site.get("/v1/state"), whole);
    for (path, pointer) in [
        ("/v1/nics", "/nic"),
        ("/v1/nics/nic0", "/nic/0"),
        ("/v1/nics/nic0/vfs", "/nic/0/vf"),
        ("/v1/nics/nic0/vfs/0", "/nic/0/vf/0"),
        ("/v1/switches", "/switch"),
        ("/v1/switches/sw0", "/switch/0"),
        ("/v1/switches/sw0/ports", "/switch/0/port"),
        ("/v1/switches/sw0/ports/db", "/switch/0/port/0"),
        ("/v1/adapters", "/adapter"),
        ("/v1/adapters/db", "/adapter/1"),
        ("/v1/adapters/%64b", "/adapter/1"),
    ] {
        assert_eq!(Some(&site.get(path)), whole.pointer(pointer), "{path}");
    }
}

#[test]
fn what_is_not_there_is_404_and_says_what() {
    let site = Site::new();
    site.apply(document());
    for (path, says) in [
        ("/v1/nics/nic9", "NIC nic9 does not exist"),
        ("/v1/nics/nic9/vfs", "NIC nic9 does not exist"),
        ("/v1/nics/nic0/vfs/3", "VF 3 of NIC nic0 has no settings of its own"),
        ("/v1/nics/nic0/vfs/x", "VF x of NIC nic0 does not exist"),
        ("/v1/switches/sw9/ports/web", "switch sw9 does not exist"),
        ("/v1/adapters/ghost", "adapter ghost does not exist"),
        ("/v2/state", "this path does not exist"),
        ("/v1", "this path does not exist"),
    ] {
        let refusal = site.refuses(404, "GET", path, null());
        assert!(refusal.body.to_string().contains(says), "{path}: {refusal:?}");
    }
    // web holds it, without naming it.
    let told = site.refuses(404, "GET", "/v1/nics/nic0/vfs/1", null()).first();
    assert_eq!((&*told.object, &*told.remedy), ("VF 1 of NIC nic0", "see shunt adapter show web"));
    assert_eq!(told.message, "is in use by adapter web, which has its settings");
    let refusal = site.refuses(405, "POST", "/v1/state", null());
    assert!(refusal.first().remedy.contains("openapi.json"), "{refusal:?}");
    let odd = site.raw(&request("GET /v1/adapters/%ff%1b", "", ""));
    assert!(odd.starts_with("HTTP/1.1 4") && !odd.contains('\u{1b}'), "{odd}");
}

#[test]
fn answers_are_json_and_carry_the_generation() {
    let site = Site::new();
    site.apply(document());
    let answer = site.raw(&request("GET /v1/nics", "", ""));
    let lower = answer.to_lowercase();
    assert!(
        lower.contains("content-type: application/json") && lower.contains("etag: \"1\""),
        "{answer}"
    );
    let head = site.raw(&request("HEAD /v1/nics", "", ""));
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn metrics_are_text_with_the_adapters_of_now() {
    let site = Site::new();
    site.apply(document());
    for (accept, media_type) in [
        ("Accept: */*\r\n", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "Accept: application/openmetrics-text;version=1.0.0\r\n",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ] {
        let answer = site.raw(&request("GET /metrics", accept, ""));
        let header = format!("content-type: {media_type}\r\n");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&header), "{answer}");
        assert!(answer.contains("\nshunt_adapter_path{adapter=\"db\",path=\""), "{answer}");
    }
}

#[test]
fn events_go_on_from_a_number() {
    let site = Site::new();
    site.apply(document());
    let all = site.get("/v1/events");
    let texts: Vec<String> = all["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{} {}: {}", one["kind"], one["subject"], one["text"]))
        .collect();
    let texts = texts.join("\n");
    for expected in [
        r#""path" "adapter web": "none -> vf 1""#,
        r#""path" "adapter db": "none -> vmq 0 (WeightZero)""#,
        r#""step" "nic nic0": "create""#,
    ] {
        assert!(texts.contains(expected), "{texts}\nlacks {expected}");
    }
    let last = all["last"].as_u64().unwrap();
    let rest = site.get(&format!("/v1/events?since={}", last - 1));
    assert_eq!(rest["events"].as_array().unwrap().len(), 1);
    assert_eq!(site.get(&format!("/v1/events?since={last}"))["events"], json!([]));
}

#[test]
fn a_path_that_changes_by_itself_has_its_reason_and_its_vf_no_owner() {
    let site = Site::new();
    site.apply(document());
    {
        let mut paper = site.plane.0.lock().unwrap();
        let web = &mut paper.actual.adapters[0];
        (web.path, web.vf, web.reason, web.connected) = (
            model::state::PathInForce::Synthetic,
            None,
            model::state::Reason::MigrationInProgress,
            true,
        );
    }
    let actual = site.get("/v1/actual");
    assert_eq!(actual.pointer("/actual/adapters/0/reason"), Some(&json!("MigrationInProgress")));
    assert_eq!(actual["owners"].get("nic0/vf1"), None, "a free VF has no owner");
}

#[test]
fn an_event_has_the_time_when_it_happened_and_none_is_missing_that_came_and_went() {
    let site = Site::new();
    site.apply(document());
    let before = site.get("/v1/events")["last"].as_u64().unwrap();
    for connected in [true, false, true] {
        site.plane.0.lock().unwrap().set_connected("web", connected);
        std::thread::sleep(Duration::from_millis(20));
    }
    let happened = unix_ms();
    std::thread::sleep(Duration::from_millis(50));
    site.apply(document()); // which is no news of guests
    let events = site.get(&format!("/v1/events?since={before}"));
    let events = events["events"].as_array().unwrap();
    let texts: Vec<&str> = events.iter().map(|event| event["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["attached", "left", "attached"]);
    let times: Vec<u64> = events.iter().map(|event| event["time_ms"].as_u64().unwrap()).collect();
    assert!(times[0] < times[1] && times[1] < times[2] && times[2] <= happened, "{times:?}");
}
