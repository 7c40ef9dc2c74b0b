//! Requests to the HTTP API, and lines of a guest's channel, on a served data plane of no frames.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use api::testing::{Site, granted};
use serde_json::{Value, json};

use crate::Reached;
use crate::documents::changed;
use crate::input::Input;

/// Longest response to a guest, bytes.
const RESPONSE_MAX: usize = 16 << 10;

const METHODS: [&str; 5] = ["GET", "PUT", "POST", "PATCH", "DELETE"];
const PATHS: [&str; 18] = [
    "/v1/state",
    "/v1/state",
    "/v1/apply",
    "/v1/apply?dry_run=true",
    "/v1/apply?prune=true",
    "/v1/nics",
    "/v1/nics/nic0",
    "/v1/nics/nic0/vfs/0",
    "/v1/nics/nic0/pf",
    "/v1/switches",
    "/v1/switches/sw0",
    "/v1/adapters",
    "/v1/adapters/web",
    "/v1/adapters/web?owner=1",
    "/v1/vpfs/vm",
    "/v1/events?since=0",
    "/v1/moves",
    "/openapi.json",
];

/// One served API for all inputs of a target.
type Shared = OnceLock<Mutex<Site>>;

/// Begins with a document.
fn begin(shared: &'static Shared, document: &Value) -> MutexGuard<'static, Site> {
    let site = shared.get_or_init(|| Mutex::new(Site::new()));
    let site = site.lock().unwrap_or_else(PoisonError::into_inner);
    site.does("PUT", "/v1/state?prune=true", document.clone());
    site
}

/// Status and body of a response.
fn parsed(response: &str) -> (u16, Value) {
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((response, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no response: {response:?}"));
    (status, if body.is_empty() { Value::Null } else { json!(body) })
}

/// `data` is requests: method, path and body, which is anything, or a document nearly right.
pub(crate) fn http(data: &[u8]) -> Reached {
    static SITE: Shared = Shared::new();
    let mut input = Input::new(data);
    let mut reached = Reached::default();
    let site = begin(&SITE, &model::testing::document());
    while !input.is_empty() {
        let method = input.pick(&METHODS);
        let path = match input.byte() {
            0..=240 => input.pick(&PATHS).to_owned(),
            _ => {
                let path = input.bytes(16).iter().map(|byte| format!("%{byte:02x}"));
                format!("/v1/{}", path.collect::<String>())
            }
        };
        let body = match input.below(3) {
            0 => Vec::new(),
            1 => changed(&mut input).to_string().into_bytes(),
            _ => {
                let len = usize::from(input.u16());
                input.bytes(len).to_vec()
            }
        };
        let before = site.get("/v1/state");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: shunt\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let (status, _) = parsed(&site.raw(&[head.as_bytes(), &body].concat()));
        match status {
            200..300 => reached.add("accepted", 1),
            400..500 => {
                assert_eq!(site.get("/v1/state"), before, "{method} {path} changed something");
                reached.add("rejected", 1);
            }
            _ => panic!("{status}: {method} {path}"),
        }
    }
    reached
}

/// A request with fields of a channel's protocol, mostly of the right types.
fn request(input: &mut Input<'_>) -> Vec<u8> {
    let op = input.pick(&["hello", "list", "set", "set", "set", "reset", "drop"]);
    let mut request = json!({"v": 1, "id": input.byte(), "op": op});
    for _ in 0..input.below(4) {
        let (name, value) = match input.below(12) {
            0..=3 => ("vf", json!(input.below(3))),
            4 => {
                let macs = ["52:54:00:00:00:01", "02:00:00:00:01:01", "01:00:00:00:00:00", ""];
                ("mac", json!(input.pick(&macs)))
            }
            5 => ("vlan", json!(input.pick(&[0, 100, 150, 199, 200, 4095]))),
            6 => ("qos", json!(input.below(9))),
            7 => ("proto", json!(input.pick(&["802.1q", "802.1ad", "802.1x"]))),
            8 => ("max_tx_rate", json!(input.pick(&[0, 10, 400, 401, 1_000_001]))),
            9 => ("min_tx_rate", json!(input.pick(&[0, 10, 11, 500]))),
            10 => (input.pick(&["spoofchk", "trust"]), json!(input.flag())),
            _ => ("state", json!(input.pick(&["auto", "enable", "disable", "up"]))),
        };
        request[name] = value;
    }
    format!("{request}\n").into_bytes()
}

/// `data` is a guest's requests, nearly right, and bytes of any kind between them.
pub(crate) fn channel(data: &[u8]) -> Reached {
    static SITE: Shared = Shared::new();
    let mut input = Input::new(data);
    let mut reached = Reached::default();
    let site = begin(&SITE, &granted());
    let before = site.get("/v1/state");
    for vf in 0..2 {
        site.guest(
            "vm",
            format!("{{\"v\":1,\"id\":1,\"op\":\"reset\",\"vf\":{vf}}}\n").as_bytes(),
            64,
        );
    }
    let piece = 1 + usize::from(input.u16()) % 5000;
    let mut bytes = Vec::new();
    while !input.is_empty() {
        match input.below(8) {
            0 => {
                let len = usize::from(input.byte());
                bytes.extend_from_slice(input.bytes(len));
            }
            1 if input.flag() => bytes.extend(vec![b' '; usize::from(input.u16() % 8192)]),
            _ => bytes.extend(request(&mut input)),
        }
    }
    for response in site.guest("vm", &bytes, piece) {
        assert!(response.len() <= RESPONSE_MAX && response.ends_with(b"\n"));
        let response: Value = serde_json::from_slice(&response).expect("a response is JSON");
        assert_eq!(response["v"], 1);
        assert!(response["result"].is_null() != response["error"].is_null());
        reached.add(if response["error"].is_null() { "results" } else { "errors" }, 1);
    }
    assert_eq!(site.get("/v1/state"), before, "a guest changed the operator's document");
    reached
}
