//! Both forms of attachments, and what is told about wrong ones.

use serde_json::{Value, json};

use super::super::State;
use super::super::tests::{document, state, with};
use super::*;

/// The attachment of the first adapter, as the document with that in it writes it.
fn written(value: Value) -> Value {
    let document = state(&with(document(), "/adapter/0/attachment", value)).to_document();
    document["adapter"][0]["attachment"].clone()
}

/// Error of an attachment, on one line.
fn told(value: Value) -> String {
    let document = with(document(), "/adapter/0/attachment", value);
    let told = State::parse(&document).unwrap_err().to_string();
    let told = told.strip_prefix("adapter web, attachment").unwrap_or(&told);
    told.to_owned()
}

#[test]
fn both_forms_are_kept_as_the_whole_table() {
    let tap = json!({
        "kind": "tap", "interface": "web0", "queue_pairs": 1, "mtu": 1500, "offload": true,
    });
    assert_eq!(written(json!("tap:web0")), tap);
    assert_eq!(written(json!({"kind": "tap", "interface": "web0"})), tap);
    assert_eq!(written(tap.clone()), tap);
    let xdp = json!({
        "kind": "xdp", "interface": "eth1", "filter": false, "zero_copy": "auto", "busy_poll_us": 0,
    });
    assert_eq!(written(json!("xdp:eth1")), xdp);
    let packet = json!({"kind": "packet", "interface": "eth1", "netns": "blue"});
    assert_eq!(written(packet.clone()), packet);
    assert_eq!(written(json!("stream:/run/vm:7.sock"))["socket"], "/run/vm:7.sock");
    assert_eq!(written(json!("pcap:/tmp/a.pcap"))["repeat"], 1);
    let vduse = json!({
        "kind": "vduse", "name": "web0", "mtu": 1500, "mergeable": true, "packed": true, "offload": true,
    });
    assert_eq!(written(json!("vduse:web0")), vduse);
    let socket = written(json!("vhost-user:/run/web.sock"));
    assert_eq!(socket, written(json!({"socket": "/run/web.sock"})), "the usual kind");
    assert_eq!((&socket["kind"], &socket["offload"]), (&json!("vhost-user"), &json!(true)));
}

#[test]
fn each_kind_has_a_short_form_that_names_its_place() {
    for kind in AttachmentKind::ALL {
        let place = if kind.place_field() == "interface" { "eth1" } else { "/run/x" };
        let short = format!("{kind}:{place}");
        let read: Attachment = serde_json::from_value(json!(short)).unwrap();
        assert_eq!((read.kind(), read.place()), (kind, place));
        assert_eq!(read.to_string(), short);
        assert_eq!(AttachmentKind::of(kind.word()), Some(kind));
        assert_eq!(read.interface().is_some(), kind.place_field() == "interface", "{kind}");
        let again: Attachment = serde_json::from_value(json!(read)).unwrap();
        assert_eq!(again, read);
    }
    assert_eq!(Attachment::table_of("/run/x"), None);
    assert_eq!(Attachment::table_of("bridge:br0"), None);
}

#[test]
fn namespaces_are_paths_or_names() {
    let of = |netns: &str| {
        let packet = json!({"kind": "packet", "interface": "eth1", "netns": netns});
        let read: Attachment = serde_json::from_value(packet).unwrap();
        read.interface().unwrap().1
    };
    assert_eq!(of("blue").as_deref(), Some("/run/netns/blue"));
    assert_eq!(of("/proc/7/ns/net").as_deref(), Some("/proc/7/ns/net"));
}

#[test]
fn each_mistake_names_the_field_and_the_kind() {
    let cases = [
        (
            json!("eth1"),
            r#": "eth1" is not allowed; write a kind and its place, such as "tap:web0""#,
        ),
        (json!("bridge:br0"), r#": "bridge:br0" is not allowed"#),
        (
            json!("tap:sixteen-bytes-it"),
            r#".interface: "sixteen-bytes-it" is not allowed; write the name of"#,
        ),
        (json!("xdp:a/b"), r#".interface: "a/b" is not allowed"#),
        (json!("xdp:"), r#".interface: "" is not allowed"#),
        (json!("xdp:a b"), r#".interface: "a b" is not allowed"#),
        (json!("tap:.."), r#".interface: ".." is not allowed"#),
        (json!("stream:web.sock"), r#".socket: "web.sock" is not allowed; write an absolute path"#),
        (json!(7), ": 7 is a number; write a kind and its place"),
        (json!([]), ": is a list"),
        (
            json!({"kind": "bridge"}),
            r#".kind: "bridge" is not allowed; write "vhost-user" or "tap" or"#,
        ),
        (json!({"kind": 7, "socket": "/x"}), ".kind: 7 is a number"),
        (json!({"kind": "tap"}), ".interface: is missing; write the name of an interface"),
        (json!({}), ".socket: is missing; write an absolute path"),
        (
            json!({"kind": "tap", "interface": "a", "socket": "/x"}),
            ".socket: unknown field of kind tap; expected one of gateway, interface, ip,",
        ),
        (
            json!({"kind": "packet", "interface": "a", "queue_pairs": 2}),
            ".queue_pairs: unknown field of kind packet",
        ),
        (json!({"socket": "/x", "netns": "a"}), ".netns: unknown field of kind vhost-user"),
        (
            json!({"kind": "tap", "interface": "a", "netns": "a/b"}),
            r#".netns: "a/b" is not allowed"#,
        ),
        (
            json!({"kind": "xdp", "interface": "a", "zero_copy": true}),
            ".zero_copy: true is true or false",
        ),
        (json!({"kind": "xdp", "interface": "a", "filter": true}), ".filter: true is for uplinks"),
        (
            json!({"kind": "pcap", "file": "/a", "rate_mbps": 1, "rate_pps": 1}),
            ".rate_pps: 1 is given beside rate_mbps; leave one",
        ),
        (json!({"kind": "pcap", "file": "/a", "sink": "/a"}), r#".sink: "/a" is a capture to"#),
    ];
    all_told(&cases);
}

#[test]
fn addresses_and_gateways_of_a_tap_fit_together() {
    let tap = |ip: &[&str], gateway: &[&str]| json!({"kind": "tap", "interface": "net0", "netns": "web", "ip": ip, "gateway": gateway});
    let both = written(tap(&["10.0.0.2/24", "fd00::2/64"], &["10.0.0.1", "fe80::1"]));
    assert_eq!(both["ip"], json!(["10.0.0.2/24", "fd00::2/64"]), "read back");
    assert_eq!(both["gateway"], json!(["10.0.0.1", "fe80::1"]));
    assert_eq!(
        written(tap(&["10.0.0.2/32", "10.1.0.2/1"], &["10.0.0.9"]))["gateway"][0],
        "10.0.0.9"
    );
    let form = "is not allowed; write a unicast IP address with its prefix length";
    let of_form = |text: &str| (tap(&[text], &[]), format!(r#".ip: "{text}" {form}"#));
    let mut cases: Vec<(Value, String)> = [
        "10.0.0.2",
        "10.0.0.2/33",
        "10.0.0.2/0",
        "10.0.0/24",
        "fd00::2/129",
        "224.0.0.1/24",
        "0.0.0.0/8",
        "255.255.255.255/32",
        "::/64",
        "ff02::1/64",
        "10.0.0.2/+8",
        "web/24",
    ]
    .into_iter()
    .map(of_form)
    .collect();
    let own: &[&str] = &["10.0.0.2/24"];
    let more = [
        (
            own,
            &["10.0.1.1"][..],
            r#".gateway: "10.0.1.1" is not on link; write an address in the network of 10.0.0.2/24"#,
        ),
        (
            own,
            &["fd00::1"],
            r#".gateway: "fd00::1" needs an IPv6 address in ip; add an IPv6 address to ip"#,
        ),
        (
            &["fd00::2/64"],
            &["10.0.0.1"],
            r#".gateway: "10.0.0.1" needs an IPv4 address in ip; add"#,
        ),
        (&[], &["fe80::1"], r#".gateway: "fe80::1" needs an IPv6 address in ip"#),
        (
            own,
            &["10.0.0.2"],
            r#".gateway: "10.0.0.2" is an address of the interface itself; write"#,
        ),
        (
            own,
            &["10.0.0.1", "10.0.0.3"],
            r#".gateway: "10.0.0.3" is the second IPv4 gateway; leave"#,
        ),
        (own, &["router"], r#".gateway: "router" is not allowed; write an IP address such as"#),
        (&["10.0.0.2/24", "10.0.0.2/8"], &[], r#".ip: "10.0.0.2/8" is given twice; leave"#),
        (own, &["10.0.0.1", "fe80::1", "fe80::2"], ".gateway: has 3 entries; write at most 2"),
    ];
    cases.extend(more.map(|(ip, gateway, told)| (tap(ip, gateway), told.to_owned())));
    let packet = json!({"kind": "packet", "interface": "net0", "ip": own});
    cases.push((packet, ".ip: unknown field of kind packet".to_owned()));
    all_told(&cases);
}

/// Asserts that each value's error begins as expected, and is one line.
fn all_told(cases: &[(Value, impl AsRef<str>)]) {
    for (value, expected) in cases {
        let told = told(value.clone());
        assert!(told.starts_with(expected.as_ref()), "{value}\ntold: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn nobody_shares_a_socket_an_interface_or_a_file() {
    let both = |one: Value, other: Value| {
        let document = with(document(), "/adapter/0/attachment", one);
        State::parse(&with(document, "/adapter/1/attachment", other))
    };
    let refused = |one: Value, other: Value, expected: &str| {
        let told = both(one, other).unwrap_err().to_string();
        assert_eq!(told, format!("{expected}; choose another"));
    };
    refused(
        json!("stream:/run/a"),
        json!("vhost-user:/run/a"),
        r#"adapter db, attachment.socket: "/run/a" is the socket of attachment of adapter web already"#,
    );
    refused(
        json!("tap:a"),
        json!("xdp:a"),
        r#"adapter db, attachment.interface: "a" is the interface of attachment of adapter web already"#,
    );
    let blue = |kind: &str, netns: &str| json!({"kind": kind, "interface": "a", "netns": netns});
    refused(
        blue("tap", "blue"),
        blue("packet", "/run/netns/blue"),
        r#"adapter db, attachment.interface: "a" is the interface of attachment of adapter web already"#,
    );
    assert!(both(json!("tap:a"), blue("tap", "blue")).is_ok(), "in another namespace");
    let pcap = |file: &str| json!({"kind": "pcap", "file": file, "sink": "/tmp/sink"});
    refused(
        pcap("/tmp/a"),
        pcap("/tmp/b"),
        r#"adapter db, attachment.sink: "/tmp/sink" is written by attachment of adapter web already"#,
    );
    assert!(both(json!("pcap:/tmp/a"), json!("pcap:/tmp/a")).is_ok(), "both only read it");
}

#[test]
fn a_file_of_a_mirror_is_its_own() {
    let mirrored = |document: Value, adapter: usize, file: &str| {
        with(
            document,
            &format!("/adapter/{adapter}/mirror"),
            json!({"file": file, "direction": "both"}),
        )
    };
    let one = mirrored(document(), 0, "/tmp/a");
    assert!(State::parse(&one).is_ok());
    assert!(State::parse(&mirrored(one.clone(), 1, "/tmp/b")).is_ok());
    let told = State::parse(&mirrored(one.clone(), 1, "/tmp/a")).unwrap_err().to_string();
    let expected =
        r#"adapter db, mirror.file: "/tmp/a" is written by mirror of adapter web already"#;
    assert!(told.starts_with(expected), "{told}");
    let played = with(one, "/nic/0/uplink", json!("pcap:/tmp/a"));
    let told = State::parse(&played).unwrap_err().to_string();
    let expected = r#"adapter web, mirror.file: "/tmp/a" is a capture to play"#;
    assert!(told.starts_with(expected), "{told}");
}
