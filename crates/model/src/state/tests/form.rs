//! The form of documents: kinds, ranges, words, unknown and missing fields, defaults.

use proptest::prelude::*;
use proptest::string::string_regex;
use serde_json::{Value, json};

use super::super::{State, schema, text};
use super::{document, state, with};

/// Error of a document with one value replaced, with the path instead of the object's name.
fn told(pointer: &str, value: Value) -> String {
    match State::parse(&with(document(), pointer, value)) {
        Ok(_) => panic!("{pointer} was taken"),
        Err(mut problems) => {
            for problem in &mut problems.problems {
                (problem.object, problem.field) = (String::new(), problem.path.clone());
            }
            problems.to_string()
        }
    }
}

#[test]
fn a_document_comes_back_with_its_defaults_written_out() {
    let first = state(&document());
    let written = first.to_document();
    assert_eq!(state(&written), first);
    assert_eq!(written.pointer("/adapter/0/vmq_weight"), Some(&json!(100)));
    assert_eq!(written.pointer("/nic/0/vf/0/spoof_check"), Some(&json!(true)));
    assert_eq!(state(&json!({"version": 1})), State::default());
}

/// Asserts that each value, put at its pointer, is told in one line that has these words.
fn each_is_told(cases: Vec<(&str, Value, &str)>) {
    for (pointer, value, expected) in cases {
        let told = told(pointer, value);
        assert!(told.contains(expected), "{pointer}: {told}\nlacks {expected}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn each_mistake_in_a_nic_names_field_value_and_what_is_allowed() {
    each_is_told(vec![
        ("/nic/0/name", json!("NIC 0"), r#"nic[0].name: "NIC 0" is not allowed; write 1 to 15 of"#),
        (
            "/nic/0/total_vfs",
            json!(256),
            "total_vfs: 256 is out of range; write a whole number, 0 to 255",
        ),
        (
            "/nic/0/total_vfs",
            json!(-1),
            "total_vfs: -1 is out of range; write a whole number, 0 to 255",
        ),
        ("/nic/0/total_vfs", json!(4.5), "total_vfs: 4.5 is not a whole number"),
        ("/nic/0/total_vfs", json!("4"), r#"total_vfs: "4" is a text; write a whole number"#),
        ("/nic/0/kind", json!("hard"), r#"nic[0].kind: "hard" is not allowed; write "soft""#),
        ("/nic/0/profile", json!("igb"), r#"write "ideal" or ""#),
        ("/nic/0/vf", json!({}), "nic[0].vf: is an object; write a list of objects"),
        ("/nic/0/vf/0/trust", json!("yes"), r#"vf[0].trust: "yes" is a text; write true or false"#),
        ("/nic/0/vf/0/spoof_check", json!("on"), "write true or false"),
        ("/nic/0/vf/0/mac", json!("01:00:00:00:00:01"), "write a unicast MAC address"),
        ("/nic/0/vf/0/mac", json!("00:00:00:00:00:00"), "write a unicast MAC address"),
        ("/nic/0/vf/0/link_state", json!("up"), r#"write "auto" or "enable" or "disable""#),
        (
            "/nic/0/vf/0/vlan/id",
            json!(0),
            "nic[0].vf[0].vlan.id: 0 is out of range; write a whole number, 1 to 4094",
        ),
        ("/nic/0/vf/0/vlan/qos", json!(8), "write a whole number, 0 to 7"),
        ("/nic/0/vf/0/tx_weight", json!(0), "write a whole number, 1 to 100"),
        ("/nic/0/vf/0/storm_limit_pps", json!(10_000_001), "0 to 10000000"),
        ("/nic/0/budget_permille", json!(1_000_001), "write a whole number, 0 to 1000000"),
        ("/nic/0/pf", json!({"mac": "02:00:00:00:00:01"}), "nic[0].pf.attachment: is missing"),
        (
            "/nic/0/vf/0/vlan/proto",
            json!("802.1Q"),
            r#"did you mean "802.1q"? Write "802.1q" or "802.1ad""#,
        ),
        ("/nic/0/vf/0/trunks", json!(["5-4"]), "nic[0].vf[0].trunks[0]: \"5-4\" is not allowed"),
        (
            "/nic/0/vf/0/spoofchk",
            json!("yes"),
            "nic[0].vf[0].spoofchk: unknown field; did you mean spoof_check?",
        ),
    ]);
}

#[test]
fn each_mistake_elsewhere_does_so_too() {
    each_is_told(vec![
        ("/switch/0/port/0/acl/0/action", json!("drop"), r#"acl[0].action: "drop""#),
        (
            "/switch/0/port/0/acl/0/direction",
            json!("rx"),
            "acl[0].direction: unknown field; expected one of action, ethertype",
        ),
        (
            "/switch/0/port/0/storm_limit_pps",
            json!(1),
            "port[0].storm_limit_pps: unknown field; expected one of acl, adapter",
        ),
        ("/adapter/0/tx_weight", json!(101), "adapter[0].tx_weight: 101 is out of range"),
        ("/adapter/0/link_state", json!("down"), r#"write "auto" or "enable" or "disable""#),
        ("/switch/0/port/0/acl/0/to_port", json!("65536"), "write a port number"),
        ("/switch/0/port/0/acl/0/from_ip", json!("10.0.0.1/8"), "without host bits"),
        ("/switch/0/static/0/mac", json!("ff:ff:ff:ff:ff:ff"), "static[0].mac"),
        (
            "/adapter/0/iov_weight",
            json!(101),
            "adapter[0].iov_weight: 101 is out of range; write a whole number, 0 to 100",
        ),
        ("/adapter/0/mac", Value::Null, "adapter[0].mac: is missing; write a unicast MAC address"),
        (
            "/adapter/0/attachment",
            json!(null),
            "adapter[0].attachment: is missing; write a kind and its place",
        ),
        ("/adapter/0/attachment/socket", json!("web.sock"), "write an absolute path"),
        ("/adapter/0/attachment/socket", json!(format!("/{}", "x".repeat(107))), "107 bytes"),
        ("/adapter/0/attachment/queue_pairs", json!(17), "write a whole number, 1 to 16"),
        ("/adapter/0/path", json!("fast"), r#""auto" or "vf" or "vmq" or "synthetic""#),
        ("/adapter/0/name", json!("-x"), "the first a letter or digit"),
        ("/adapter/0/nic", json!("a/b"), "adapter[0].nic"),
        ("/version", json!(2), "version: 2 is newer than this program"),
        ("/version", json!(0), "version: 0 is out of range; write 1"),
        ("/version", Value::Null, "version: is missing; write 1"),
        ("/moon", json!(1), "moon: unknown field; expected one of adapter, nic, switch, version"),
        ("/adapter", json!("all"), r#"adapter: "all" is a text; write a list"#),
    ]);
}

#[test]
fn a_document_that_is_no_object_is_told_so() {
    for value in [json!([]), json!("x"), json!(7), Value::Null] {
        let told = State::parse(&value).unwrap_err().to_string();
        assert!(told.contains("write an object"), "{told}");
    }
}

#[test]
fn independent_mistakes_are_told_together_and_only_twenty() {
    let mut wrong = with(document(), "/nic/0/total_vfs", json!(999));
    wrong = with(wrong, "/adapter/1/mac", json!("x"));
    let problems = State::parse(&wrong).unwrap_err();
    let fields: Vec<_> = problems.problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(fields, ["adapter[1].mac", "nic[0].total_vfs"]);
    let many = with(document(), "/nic/0/vf", vec![json!(1); 30].into());
    let problems = State::parse(&many).unwrap_err();
    assert_eq!((problems.problems.len(), problems.more), (20, 10));
    assert!(problems.to_string().ends_with("and 10 more mistakes; correct these first"));
}

#[test]
fn lists_have_limits() {
    let many = vec![json!({"name": "n", "total_vfs": 0}); 17];
    assert!(told("/nic", many.into()).contains("nic: has 17 entries; write at most 16"));
}

#[test]
fn what_is_quoted_is_short_and_harmless() {
    let told = told("/nic/0/name", json!("\u{1b}[31m\n".repeat(10_000)));
    assert!(told.len() < 300 && !told.contains('\u{1b}') && told.lines().count() == 1, "{told}");
    let name = "x\u{1b}\n".repeat(1000);
    let told = State::parse(&json!({name: 1})).unwrap_err().to_string();
    assert!(told.len() < 300 && !told.contains('\u{1b}'), "{told}");
}

/// The least object that has everything a schema requires.
fn least(schema: &Value) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        return least(&schema::schemas()[name.rsplit('/').next().unwrap()]);
    }
    if let Some(kinds) = schema["oneOf"].as_array() {
        return least(&kinds[1]);
    }
    if schema["type"] == "object" {
        let names = schema["required"].as_array().into_iter().flatten();
        let field = |name: &Value| {
            let name = name.as_str().unwrap().to_owned();
            let value = least(&schema["properties"][&name]);
            (name, value)
        };
        return names.map(field).collect();
    }
    let words = schema["enum"].as_array();
    match schema["format"].as_str() {
        _ if words.is_some() => words.unwrap()[0].clone(),
        Some("mac") => json!("02:00:00:00:00:01"),
        Some("path" | "directory" | "file" | "capture") => json!("/run/x"),
        Some("name" | "label" | "interface") => json!("x"),
        Some("function" | "rule-target") => json!("uplink"),
        _ if schema["type"] == "array" => json!([]),
        _ => schema["minimum"].as_f64().map_or(Value::Null, |number| json!(number as u64)),
    }
}

/// serde's defaults are code and the schema's are attributes: this holds them together, for every
/// object.
#[test]
fn the_defaults_of_the_schema_are_those_of_the_code() {
    fn read<T: serde::Serialize + serde::de::DeserializeOwned>(value: Value) -> Value {
        serde_json::to_value(serde_json::from_value::<T>(value).unwrap()).unwrap()
    }
    let mut seen = 0;
    let kinds = schema::schemas()["Attachment"]["oneOf"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.skip(1).map(|schema| ("Attachment".to_owned(), schema)).collect();
    let objects = schema::schemas().iter().map(|(name, schema)| (name.clone(), schema));
    for (name, schema) in objects.chain(kinds) {
        if schema["type"] != "object" {
            continue;
        }
        let mut given = least(schema);
        // Values that are filled in before serde reads the document.
        match name.as_str() {
            "Nic" => (given["total_vfs"], given["num_vfs"]) = (json!(0), json!(0)),
            "Vf" => given["index"] = json!(0),
            _ => {}
        }
        let written = match name.as_str() {
            "State" => read::<State>(given.clone()),
            "Nic" => read::<super::super::Nic>(given.clone()),
            "Vf" => read::<super::super::Vf>(given.clone()),
            "Pf" => read::<super::super::Pf>(given.clone()),
            "Vlan" => read::<super::super::Vlan>(given.clone()),
            "Mirror" => read::<super::super::Mirror>(given.clone()),
            "Adapter" => read::<super::super::Adapter>(given.clone()),
            "Attachment" => read::<super::super::Attachment>(given.clone()),
            "Switch" => read::<super::super::Switch>(given.clone()),
            "SwitchPort" => read::<super::super::SwitchPort>(given.clone()),
            "NicRule" => read::<super::super::NicRule>(given.clone()),
            "Representor" => read::<super::super::Representor>(given.clone()),
            "AclRule" => read::<super::super::AclRule>(given.clone()),
            "Vxlan" => read::<super::super::Vxlan>(given.clone()),
            "Moving" => read::<super::super::Moving>(given.clone()),
            "MoveRequest" => read::<super::super::MoveRequest>(given.clone()),
            "StaticEntry" => read::<super::super::StaticEntry>(given.clone()),
            "Vpf" => read::<super::super::Vpf>(given.clone()),
            "VpfVf" => read::<super::super::VpfVf>(given.clone()),
            "VpfControl" => read::<super::super::VpfControl>(given.clone()),
            "PortSettings" => read::<super::super::PortSettings>(given.clone()),
            "RuleMatch" => read::<super::super::RuleMatch>(given.clone()),
            "DaemonSettings" => read::<super::super::DaemonSettings>(given.clone()),
            "ApiSettings" => read::<super::super::ApiSettings>(given.clone()),
            "Lanes" => read::<super::super::Lanes>(given.clone()),
            "Limits" => read::<super::super::Limits>(given.clone()),
            "Configuration" => continue, // its parts are
            other => panic!("{other} is not held against its schema"),
        };
        let is_part = ["PortSettings", "RuleMatch"].contains(&name.as_str());
        assert!(is_part || schema["additionalProperties"] == false, "{name} is open");
        for (field, of_field) in schema["properties"].as_object().unwrap() {
            let is_given = given.get(field).is_some();
            let is_optional = written.get(field).is_none();
            let empty = written[field] == json!([]);
            if !is_given && !is_optional && !empty {
                assert_eq!(of_field["default"], written[field], "{name}.{field}");
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "only {seen} defaults were found");
}

proptest! {
    /// Programs write what the pattern allows; what is then refused is what a pattern cannot say.
    #[test]
    fn patterns_and_code_agree_on_names_and_addresses(
        name in string_regex("[a-z0-9-]{1,15}").unwrap(),
        label in string_regex("[A-Za-z0-9][A-Za-z0-9._-]{0,62}").unwrap(),
        mac in string_regex("[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}").unwrap(),
    ) {
        let takes = |format: &str, text: &str| (text::format(format).unwrap().takes)(text);
        prop_assert!(takes("name", &name));
        prop_assert!(takes("label", &label));
        prop_assert!(takes("mac", &mac) || mac == "00:00:00:00:00:00");
    }

    #[test]
    fn texts_come_back(first in 1u16..=4094, more in 0u16..100, bits: u128, length in 0u8..=128) {
        let last = (first + more).min(4094);
        let range = text::VlanRange { first, last };
        prop_assert_eq!(range.to_string().parse(), Ok(range));
        let ports = text::PortRange { first, last };
        prop_assert_eq!(ports.to_string().parse(), Ok(ports));
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        let address = std::net::Ipv6Addr::from_bits(bits & mask).into();
        let prefix = text::IpPrefix { address, length };
        prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
        let v4 = length / 4;
        let mask = u32::MAX.checked_shl(32 - u32::from(v4)).unwrap_or(0);
        let address = std::net::Ipv4Addr::from_bits(bits as u32 & mask).into();
        let prefix = text::IpPrefix { address, length: v4 };
        prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
    }

    /// Every document is read or rejected; serde accepts every valid form.
    #[test]
    fn no_document_passes_the_form_and_fails_to_be_read(
        at in 0usize..200, kind in 0u8..7, number: i64, text in ".{0,12}",
    ) {
        let mut places = Vec::new();
        let whole = state(&document()).to_document();
        pointers(&whole, String::new(), &mut places);
        let pointer = &places[at % places.len()];
        let value = match kind {
            0 => json!(number),
            1 => json!(text),
            2 => json!([]),
            3 => json!({}),
            4 => json!(true),
            5 => json!(number as f64 / 3.0),
            _ => Value::Null,
        };
        let mut document = whole;
        *document.pointer_mut(pointer).unwrap() = value;
        if let Err(problems) = State::parse(&document) {
            prop_assert!(problems.problems.iter().all(|one| !one.message.contains("no document")));
            prop_assert!(problems.problems.iter().all(|one| !one.message.contains("not a document")));
        }
    }
}

fn pointers(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| pointers(value, format!("{at}/{name}"), out));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(i, value)| pointers(value, format!("{at}/{i}"), out));
        }
        _ => {}
    }
    out.push(at);
}
