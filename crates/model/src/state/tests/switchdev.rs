//! Switchdev mode in a document: what it means, and what is refused.

use serde_json::{Value, json};

use super::super::{FunctionName, RuleTarget, State};
use super::{state, with};

/// A NIC in switchdev mode with two of its three VFs enabled.
fn document() -> Value {
    json!({
        "version": 1,
        "nic": [{
            "name": "nic0", "mode": "switchdev", "total_vfs": 3, "num_vfs": 2, "uplink": "packet:eth1",
            "representor": [{"of": "vf1", "attachment": {"socket": "/run/shunt/rep.sock"}}],
        }],
        "adapter": [{
            "name": "web", "nic": "nic0", "mac": "02:00:00:00:00:01", "iov_weight": 9, "attachment": "tap:web0",
        }],
    })
}

fn rule(rule: Value) -> Value {
    with(document(), "/nic/0/rule", json!([rule]))
}

#[test]
fn who_is_there_has_a_representor_a_tap_unless_said_otherwise() {
    let all = |document: &Value| -> Vec<(String, String, String)> {
        let state = state(document);
        let all = state.nics[0].representors().into_iter();
        all.map(|(of, at, _)| (of.to_string(), of.port_name(), at.to_string())).collect()
    };
    let texts = |all: &[[&str; 3]]| -> Vec<(String, String, String)> {
        all.iter().map(|[a, b, c]| (a.to_string(), b.to_string(), c.to_string())).collect()
    };
    let expected = [
        ["uplink", "p0", "tap:nic0p0"],
        ["vf0", "pf0vf0", "tap:nic0pf0vf0"],
        ["vf1", "pf0vf1", "vhost-user:/run/shunt/rep.sock"],
    ];
    assert_eq!(all(&document()), texts(&expected));
    let pf = json!({"attachment": "tap:pf", "mac": "02:00:00:00:00:0f"});
    let with_pf = with(document(), "/nic/0/pf", pf);
    assert_eq!(all(&with_pf)[1], texts(&[["pf", "pf0", "tap:nic0pf0"]])[0]);
    // Rules of a disabled VF wait for it.
    let off = with(document(), "/nic/0/num_vfs", json!(0));
    assert_eq!(all(&off), texts(&expected[..1]));
    assert!(
        state(&with(
            with(document(), "/nic/0/mode", json!("legacy")),
            "/nic/0/representor",
            json!([])
        ))
        .nics[0]
            .representors()
            .is_empty()
    );
}

#[test]
fn functions_and_targets_have_one_text_each() {
    for text in ["uplink", "pf", "vf0", "vf9", "vf254"] {
        assert_eq!(text.parse::<FunctionName>().unwrap().to_string(), text);
        assert_eq!(text.parse::<RuleTarget>().unwrap().to_string(), text);
    }
    for text in ["representor", "drop"] {
        assert_eq!(text.parse::<RuleTarget>().unwrap().to_string(), text);
        assert!(text.parse::<FunctionName>().is_err());
    }
    for text in ["", "vf", "vf255", "vf01", "vf+1", "VF1", "vf-1", "uplink0", "vf1 "] {
        assert!(text.parse::<RuleTarget>().is_err(), "{text}");
    }
}

#[track_caller]
fn refused(cases: &[(Value, &str, &str)]) {
    for (document, field, words) in cases {
        let problems = State::parse(document).expect_err(field);
        let told = problems.to_string();
        assert_eq!(problems.problems.len(), 1, "{told}");
        assert_eq!(problems.problems[0].path, *field, "{told}");
        assert!(told.contains(words), "{told}\nlacks {words}");
    }
}

#[test]
fn the_mode_and_what_is_of_it_go_together() {
    let legacy = with(document(), "/nic/0/mode", json!("legacy"));
    let two = json!([{"of": "vf1", "attachment": "tap:a"}, {"of": "vf1", "attachment": "tap:b"}]);
    let none = json!([{"of": "pf", "attachment": "tap:a"}]);
    let switch = json!([{"name": "sw0", "nic": "nic0"}]);
    let taken = with(document(), "/adapter/0/attachment", json!("tap:nic0p0"));
    let long = with(document(), "/nic/0/name", json!("a-long-nic"));
    let long = with(long, "/adapter/0/nic", json!("a-long-nic"));
    refused(&[
        (legacy, "nic[0].representor", "write mode = \"switchdev\""),
        (
            with(document(), "/adapter/0/name", json!("pf0vf1")),
            "adapter[0].name",
            "is the counter name of a function of its NIC",
        ),
        (with(document(), "/nic/0/bridging", json!("vepa")), "nic[0].bridging", "no"),
        (with(document(), "/switch", switch), "switch[0].nic", "the host is the switch"),
        (
            with(document(), "/nic/0/representor", two),
            "nic[0].representor[1].of",
            "is the function of",
        ),
        (
            with(document(), "/nic/0/representor", none),
            "nic[0].representor[0].of",
            "give the NIC a pf",
        ),
        (taken, "adapter[0].attachment.interface", "is the interface of NIC nic0 already"),
        (long, "nic[0].mode", "of = \"vf0\""),
    ]);
}

#[test]
fn rules_speak_of_what_is_there_and_can_be() {
    let all = json!({
        "from": "vf0", "to": "uplink", "priority": 3, "from_mac": "02:00:00:00:00:01", "to_mac": "ff:ff:ff:ff:ff:ff",
        "ethertype": 2048, "vlan": 0, "from_ip": "10.0.0.0/8", "to_ip": "10.0.0.1", "protocol": "tcp",
        "from_port": "1-9", "to_port": "443", "pop_vlan": true, "push_vlan": {"id": 5, "qos": 2},
    });
    let written = state(&rule(all.clone())).to_document();
    let mut expected = all;
    expected["push_vlan"]["proto"] = json!("802.1q");
    assert_eq!(written["nic"][0]["rule"][0], expected);
    state(&rule(json!({"from": "vf2", "to": "vf0"}))); // waits until VF 2 is enabled
    refused(&[
        (rule(json!({"from": "vf3", "to": "vf0"})), "nic[0].rule[0].from", "below total_vfs, 3"),
        (rule(json!({"from": "vf0", "to": "pf"})), "nic[0].rule[0].to", "give the NIC a pf"),
        (
            rule(json!({"from": "vf0", "to": "vf0"})),
            "nic[0].rule[0].to",
            "the source of the frames",
        ),
        (
            rule(json!({"from": "vf0", "to": "drop", "pop_vlan": true})),
            "nic[0].rule[0].pop_vlan",
            "needs a function",
        ),
        (
            rule(json!({"from": "vf0", "to": "drop", "to_port": "1"})),
            "nic[0].rule[0].protocol",
            "has no ports",
        ),
        (rule(json!({"from": "vf0", "to": "off"})), "nic[0].rule[0].to", "\"representor\""),
    ]);
}
