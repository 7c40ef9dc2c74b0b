//! Requests for traces, and what is wrong with them. The data plane of these tests has no ports.

use serde_json::{Value, json};

use super::{Site, null};
use crate::trace::{BYTES_MAX, FRAMES_MAX};

#[test]
fn a_wrong_request_for_a_trace_names_field_value_and_what_is_allowed() {
    let site = Site::new();
    let frames = |frames: Vec<String>| json!({"port": "web", "frames": frames});
    let frame = "00".repeat(60);
    let too_many = vec![frame.clone(); FRAMES_MAX + 1];
    let too_long = vec!["00".repeat(BYTES_MAX - 60), frame.clone(), "00".into()];
    for (status, body, parts) in [
        (422, frames(vec![]), &["frames", "0", "send 1 to 64"][..]),
        (422, frames(too_many), &["frames", "65", "send 1 to 64"]),
        (422, frames(vec![frame.clone(), "0g".into()]), &["frames[1]", "0g", "two hexadecimal"]),
        (422, frames(vec![String::new()]), &["frames[0]", "is empty"]),
        (422, frames(too_long), &["frames", "65558", "at most 65557 bytes"]),
        (404, frames(vec![frame]), &["port web", "does not exist", "create an adapter"]),
        (400, json!({"port": "web"}), &["missing field `frames`"]),
        (400, json!({"port": "web", "frames": [], "now": true}), &["unknown field `now`"]),
        (400, json!([]), &["no request for a trace"]),
    ] {
        let told = site.refuses(status, "POST", "/v1/trace", body).body.to_string();
        for part in parts {
            assert!(told.contains(part), "no {part} in {told}");
        }
    }
    site.refuses(405, "GET", "/v1/trace", null());
    let generation = site.does("GET", "/v1/state", Value::Null).generation;
    assert_eq!(generation, Some(0), "a trace changes nothing");
}
