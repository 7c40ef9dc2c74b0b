//! Changes of attachments and tunnels.

use model::testing::document;
use serde_json::{Value, json};

use super::{Site, null};

#[test]
fn an_attachment_changes_its_kind_and_loses_the_fields_of_the_old_one() {
    let site = Site::new();
    site.apply(document());
    let of_web = |patch: Value| {
        site.does("PATCH", "/v1/adapters/web", patch);
        site.get("/v1/adapters/web")["attachment"].clone()
    };
    let tap = of_web(json!({"attachment": {"kind": "tap", "interface": "web0", "netns": "blue"}}));
    assert_eq!((&tap["netns"], &tap["socket"]), (&json!("blue"), &Value::Null));
    let same = of_web(json!({"attachment": {"kind": "tap", "mtu": 9000}}));
    assert_eq!((&same["netns"], &same["mtu"]), (&json!("blue"), &json!(9000)), "the rest stays");
    let short = of_web(json!({"attachment": "tap:web1"}));
    assert_eq!((&short["interface"], &short["netns"]), (&json!("web1"), &Value::Null));
    let back = of_web(json!({"attachment": {"kind": "vhost-user", "socket": "/run/web"}}));
    assert_eq!((&back["socket"], &back["interface"]), (&json!("/run/web"), &Value::Null));
    let refusal =
        site.refuses(422, "PATCH", "/v1/adapters/web", json!({"attachment": {"interface": "a"}}));
    assert_eq!(refusal.first().field, "attachment.interface");
}

#[test]
fn tunnels_are_parts_with_a_path_of_their_own() {
    let site = Site::new();
    site.apply(document());
    let path = "/v1/switches/sw0/tunnels/far";
    let refusal = site.refuses(422, "PATCH", path, json!({"vni": 7}));
    assert_eq!(refusal.first().field, "peers");
    site.does("PATCH", path, json!({"vni": 7, "peers": ["10.0.0.2"]}));
    site.does("PATCH", path, json!({"vlan": 5}));
    let far = site.get(path);
    assert_eq!((&far["vni"], &far["vlan"]), (&json!(7), &json!(5)));
    let port = "/v1/switches/sw0/ports/far";
    site.does("PATCH", port, json!({"isolated": true}));
    site.does("DELETE", path, null());
    assert_eq!(site.get("/v1/switches/sw0")["vxlan"], json!([]));
    assert_eq!(site.refuses(404, "GET", port, null()).status, 404, "its port went with it");
}
