//! Requests as guests write them, what the host grants, and what becomes of settings when the host
//! says something else.

use model::state::{LinkState, State};
use model::testing::{state, with};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::error::{Errno, GuestError};
use super::overlay::{Dropped, Overlay};
use super::protocol::{answer, read};
use super::request::Request;
use super::setting::SettingsChange;
use crate::testing::granted;

fn asked(request: Value) -> Result<Request, GuestError> {
    read(request.to_string().as_bytes()).what
}

/// A change in the words of a request.
fn change(settings: Value) -> SettingsChange {
    let mut request = json!({"v": 1, "id": 1, "op": "set", "vf": 0});
    let fields = request.as_object_mut().unwrap();
    fields.extend(settings.as_object().unwrap().clone());
    match asked(request) {
        Ok(Request::Set(0, change)) => change,
        other => panic!("{settings} is {other:?}"),
    }
}

fn whatever(_: &State) -> bool {
    true
}

#[test]
fn requests_are_what_ip_link_takes() {
    assert_eq!(asked(json!({"v": 1, "id": 1, "op": "hello"})), Ok(Request::Hello));
    assert_eq!(asked(json!({"v": 1, "id": 1, "op": "list"})), Ok(Request::List(None)));
    assert_eq!(asked(json!({"v": 1, "id": 1, "op": "list", "vf": 3})), Ok(Request::List(Some(3))));
    assert_eq!(asked(json!({"v": 1, "id": 1, "op": "reset", "vf": 3})), Ok(Request::Reset(3)));
    let all = json!({
        "mac": "52:54:00:00:00:01", "vlan": 100, "qos": 3, "proto": "802.1ad", "max_tx_rate": 7,
        "min_tx_rate": 0, "spoofchk": false, "trust": true, "state": "disable",
    });
    let shown = " mac 52:54:00:00:00:01 vlan 100 qos 3 proto 802.1ad max_tx_rate 7 min_tx_rate 0 \
                 spoofchk off trust on state disable";
    assert_eq!(change(all).to_string(), shown);
    assert_eq!(change(json!({"vlan": 0})).vlan, Some(None));
    assert_eq!(change(json!({"vlan": 0, "proto": "802.1q"})).vlan, Some(None));
    assert_eq!(change(json!({"trust": true, "mac": null})).mac, None);
}

#[test]
fn what_is_no_request_is_told_with_its_number() {
    let cases = [
        (json!([]), 0, Errno::Proto, "not a request"),
        (json!({"v": 1, "op": "list"}), 0, Errno::Proto, "missing field `id`"),
        (json!({"id": 9, "op": "list"}), 9, Errno::Proto, "missing field `v`"),
        (
            json!({"v": 2, "id": 9, "new": 1}),
            9,
            Errno::ProtoNoSupport,
            "version 2 is not supported",
        ),
        (json!({"v": 1, "id": 9, "op": "drop"}), 9, Errno::Proto, "unknown variant"),
        (json!({"v": 1, "id": 9, "op": "list", "x": 1}), 9, Errno::Proto, "unknown field `x`"),
        (json!({"v": 1, "id": 9, "op": "list", "trust": true}), 9, Errno::Inval, "only set"),
        (json!({"v": 1, "id": 9, "op": "hello", "vf": 1}), 9, Errno::Inval, "hello takes no vf"),
        (json!({"v": 1, "id": 9, "op": "set", "trust": true}), 9, Errno::Inval, "vf is missing"),
        (json!({"v": 1, "id": 9, "op": "set", "vf": 1}), 9, Errno::Inval, "without a setting"),
    ];
    for (request, id, errno, words) in cases {
        let asked = read(request.to_string().as_bytes());
        let refusal = asked.what.unwrap_err();
        assert_eq!((asked.id, refusal.errno), (id, errno), "{request}: {refusal}");
        assert!(refusal.text.contains(words), "{request}: {refusal}");
    }
    let refusal = read(b"hello\xff").what.unwrap_err();
    assert_eq!(refusal.errno, Errno::Proto);
    for wrong in [
        json!({"mac": "01:00:00:00:00:01"}),
        json!({"mac": "52:54"}),
        json!({"vlan": 4095}),
        json!({"vlan": 1, "qos": 8}),
        json!({"vlan": 0, "qos": 1}),
        json!({"vlan": 0, "proto": "802.1ad"}),
        json!({"qos": 1}),
        json!({"max_tx_rate": 1_000_001}),
    ] {
        let mut request = json!({"v": 1, "id": 1, "op": "set", "vf": 0});
        request.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        assert_eq!(asked(request).unwrap_err().errno, Errno::Inval, "{wrong}");
    }
}

#[test]
fn answers_are_one_line() {
    let line = |answer: Vec<u8>| String::from_utf8(answer).unwrap();
    let good = line(answer(3, Ok(json!({"text": "a\nb"}))));
    assert_eq!(good, "{\"id\":3,\"result\":{\"text\":\"a\\nb\"},\"v\":1}\n");
    let bad = line(answer(3, Err(GuestError::new(Errno::Perm, "no\n"))));
    let error = "{\"errno\":1,\"name\":\"EPERM\",\"text\":\"no\\n\"}";
    assert_eq!(bad, format!("{{\"error\":{error},\"id\":3,\"v\":1}}\n"));
}

/// Result of a requested change of a document.
fn set(document: Value, settings: Value) -> Result<Overlay, GuestError> {
    Overlay::default().with(&state(&document), "vm", 0, &change(settings))
}

#[test]
fn what_is_granted_is_put_upon_the_operators_document() {
    let settings = json!({
        "mac": "52:54:00:00:00:01", "vlan": 100, "max_tx_rate": 400, "min_tx_rate": 10,
        "spoofchk": false, "trust": true, "state": "disable",
    });
    let before = state(&granted());
    let overlay = set(granted(), settings).unwrap();
    let in_force = overlay.upon(&before);
    let adapter = in_force.adapter("a1").unwrap();
    assert_eq!(adapter.mac.to_string(), "52:54:00:00:00:01");
    assert_eq!(adapter.settings.vlan.map(|vlan| vlan.id), Some(100));
    assert_eq!((adapter.settings.max_tx_mbps, adapter.settings.min_tx_mbps), (400, 10));
    assert_eq!((adapter.settings.spoof_check, adapter.settings.trust), (false, true));
    assert_eq!(adapter.settings.link_state, LinkState::Disable);
    let others = |state: &State| (state.adapter("a0").cloned(), state.adapter("a2").cloned());
    assert_eq!(others(&in_force), others(&before));
    // It comes back as it was written.
    let written = serde_json::to_string(&overlay).unwrap();
    assert_eq!(serde_json::from_str::<Overlay>(&written).unwrap(), overlay);
    // And goes as a whole.
    assert_eq!(overlay.without(&before, "vm", 0), Ok(Overlay::default()));
}

#[test]
fn what_the_host_says_already_is_no_setting_of_the_guest() {
    let own = json!({
        "mac": "02:00:00:00:01:01", "vlan": 0, "max_tx_rate": 0, "min_tx_rate": 0, "spoofchk": true,
        "trust": false, "state": "auto",
    });
    assert_eq!(set(granted(), own), Ok(Overlay::default()));
    let one = set(granted(), json!({"max_tx_rate": 100})).unwrap();
    let back = one.with(&state(&granted()), "vm", 0, &change(json!({"max_tx_rate": 0})));
    assert_eq!(back, Ok(Overlay::default()), "0 is for the host's own");
}

#[test]
fn what_is_not_granted_is_refused_with_what_is() {
    let refused = |document: Value, settings: Value| {
        let refusal = set(document, settings).unwrap_err();
        (refusal.errno, refusal.text)
    };
    let perm = |settings: Value, words: &str| {
        let (errno, text) = refused(granted(), settings);
        assert_eq!(errno, Errno::Perm, "{text}");
        assert!(text.contains(words), "{text}");
    };
    perm(json!({"mac": "52:54:01:00:00:01"}), "it grants addresses that begin with 52:54:00");
    perm(json!({"vlan": 99}), "does not grant VLAN 99; it grants VLANs 100-199");
    perm(json!({"vlan": 100, "proto": "802.1ad"}), "tags of 802.1ad; it grants only its own");
    perm(json!({"max_tx_rate": 401}), "a max_tx_rate of at most 400 Mbit/s, not 401");
    perm(json!({"min_tx_rate": 11}), "a min_tx_rate of at most 10 Mbit/s, not 11");
    let at = |pointer: &str, value: Value| with(granted(), pointer, value);
    let cases = [
        (at("/vpf/0/control/settings", json!([])), json!({"mac": "02:00:00:00:01:01"}), "set mac"),
        (at("/vpf/0/control/vfs", json!([1])), json!({"trust": true}), "set VF 0"),
        (at("/adapter/1/vlan", json!({"id": 7})), json!({"vlan": 0}), "frames without a VLAN"),
        (
            at("/adapter/1/vlan", json!({"id": 7})),
            json!({"vlan": 7, "qos": 7}),
            "another tag for VLAN 7",
        ),
        (at("/adapter/1/link_state", json!("disable")), json!({"state": "enable"}), "link of VF 0"),
        (at("/vpf/0/control", json!(null)), json!({"trust": true}), "grants nothing"),
    ];
    for (document, settings, words) in cases {
        // A limit without its right is no document, so the limits go with the rights.
        let document = match document.pointer("/vpf/0/control/settings") {
            Some(Value::Array(rights)) if rights.is_empty() => {
                let bare = json!({"socket": "/run/shunt/vm.ctl"});
                with(document, "/vpf/0/control", bare)
            }
            _ => document,
        };
        let (errno, text) = refused(document, settings);
        assert_eq!(errno, Errno::Perm, "{text}");
        assert!(text.contains(words), "{text}");
    }
    // VF 0 is adapter a1's by name, and the operator has settings on it.
    let named = with(at("/adapter/1/vf", json!(3)), "/nic/0/vf", json!([{"index": 3}]));
    let (errno, text) = refused(named, json!({"trust": true}));
    assert!(errno == Errno::Perm && text.contains("VF 0 has settings of the host"), "{text}");
    let device = at("/vpf/0/vf", json!([{"vhost_vdpa": "/dev/vhost-vdpa-0"}, {"adapter": "a2"}]));
    assert_eq!(refused(device, json!({"trust": true})).0, Errno::OpNotSupp);
    let none =
        Overlay::default().with(&state(&granted()), "vm", 2, &change(json!({"trust": true})));
    assert_eq!(none.unwrap_err().errno, Errno::Inval);
}

/// Remaining and dropped settings of a guest after the operator's document changes to this.
fn then(overlay: &Overlay, document: Value) -> (Vec<&'static str>, Vec<Dropped>) {
    let (left, dropped) = overlay.fitting(&state(&document), whatever);
    (left.of("vm", 0).map(|vf| vf.names()).unwrap_or_default(), dropped)
}

#[test]
fn the_operators_word_wins() {
    let settings = json!({"mac": "52:54:00:00:00:01", "vlan": 100, "max_tx_rate": 300});
    let overlay = set(granted(), settings).unwrap();
    let at = |pointer: &str, value: Value| then(&overlay, with(granted(), pointer, value));
    let fell =
        |names: &[&'static str]| vec![Dropped { vpf: "vm".into(), vf: 0, names: names.to_vec() }];
    assert_eq!(then(&overlay, granted()), (vec!["mac", "vlan", "max_tx_mbps"], vec![]));
    // Another setting of the operator's takes nothing away.
    assert_eq!(at("/adapter/1/trust", json!(true)).1, vec![]);
    // The same one does.
    let (left, dropped) = at("/adapter/1/vlan", json!({"id": 150}));
    assert_eq!((left, dropped), (vec!["mac", "max_tx_mbps"], fell(&["vlan"])));
    let (left, dropped) = at("/adapter/1/mac", json!("02:00:00:00:01:09"));
    assert_eq!((left, dropped), (vec!["vlan", "max_tx_mbps"], fell(&["mac"])));
    // A VF's settings stay with its adapter, even if another VF takes its place.
    let (left, dropped) = at("/vpf/0/vf", json!([{"adapter": "a2"}, {"adapter": "a1"}]));
    assert_eq!((left, dropped), (vec![], fell(&["mac", "vlan", "max_tx_mbps"])));
    // A right that is taken back takes what was set by it.
    let (left, dropped) = at("/vpf/0/control/max_tx_mbps", json!(200));
    assert_eq!((left, dropped), (vec!["mac", "vlan"], fell(&["max_tx_mbps"])));
    let (left, dropped) = at("/vpf/0/control/vlans", json!(["200"]));
    assert_eq!((left, dropped), (vec!["mac", "max_tx_mbps"], fell(&["vlan"])));
    let all = ["mac", "vlan", "max_tx_mbps"];
    assert_eq!(at("/vpf/0/control", json!(null)), (vec![], fell(&all)));
    assert_eq!(at("/vpf", json!([])), (vec![], fell(&all)));
}

#[test]
fn of_two_that_exclude_each_other_the_later_vf_loses() {
    let state = state(&granted());
    let change = change(json!({"mac": "52:54:00:00:00:01"}));
    let one = Overlay::default().with(&state, "vm", 0, &change).unwrap();
    let both = one.with(&state, "vm", 1, &change).unwrap();
    let (left, dropped) = both.fitting(&state, |state| state.check().is_ok());
    assert_eq!(left, one);
    assert_eq!(dropped, [Dropped { vpf: "vm".into(), vf: 1, names: vec!["mac"] }]);
}

proptest! {
    /// Any input has a response of bounded length, and never causes a panic.
    #[test]
    fn any_line_has_an_answer(line in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let asked = read(&line);
        let answer = answer(asked.id, asked.what.map(|_| json!({})));
        prop_assert!(answer.len() < 16_384 && answer.ends_with(b"\n"));
    }
}

/// Something that a guest asks for, as fields of a request.
fn anything() -> impl Strategy<Value = Value> {
    let macs = ["02:00:00:00:01:01", "52:54:00:00:00:01", "52:54:00:ff:ff:ff", "52:54:01:00:00:01"];
    let mac = prop::sample::select(macs.to_vec());
    let id = prop_oneof![Just(0u16), Just(7), 98..102u16, 198..202u16, 4090..4097u16];
    let proto = prop::sample::select(vec!["802.1q", "802.1ad"]);
    let vlan = (id, prop::option::of(0..9u8), prop::option::of(proto));
    let max = prop_oneof![Just(0u32), 398..403u32, 499..502u32];
    let rates = (prop::option::of(max), prop::option::of(0..20u32));
    let all = (prop::option::of(mac), prop::option::of(vlan), rates, any::<Option<bool>>());
    all.prop_map(|(mac, vlan, (max, min), trust)| {
        let (vlan, qos, proto) =
            vlan.map_or((None, None, None), |(id, qos, proto)| (Some(id), qos, proto));
        json!({
            "mac": mac, "vlan": vlan, "qos": qos, "proto": proto, "max_tx_rate": max,
            "min_tx_rate": min, "trust": trust,
        })
    })
}

/// `true` if the operator's document has or grants the setting; `own` is the host's VLAN, `protos`
/// the granted tag protocols.
fn is_granted(asked: &Value, own: &Value, protos: &[&str]) -> bool {
    let mac = asked["mac"].as_str();
    let number = |name: &str| asked[name].as_u64().unwrap_or(0);
    let proto = |of: &Value| of["proto"].as_str().unwrap_or("802.1q").to_owned();
    let (vlan, tag) = (number("vlan"), proto(asked));
    let is_own = vlan == own["id"].as_u64().unwrap_or(0)
        && number("qos") == own["qos"].as_u64().unwrap_or(0)
        && tag == proto(own);
    let may_have_tag = tag == proto(own) || protos.contains(&tag.as_str());
    let is_free = asked["vlan"].is_null() || is_own;
    (is_free || (100..200).contains(&vlan) && may_have_tag)
        && mac.is_none_or(|mac| mac.starts_with("52:54:00") || mac == "02:00:00:00:01:01")
        && (number("max_tx_rate") <= 400 || number("max_tx_rate") == 500)
        && number("min_tx_rate") <= 10
}

/// A guest gets exactly the granted settings, with the requested values.
#[test]
fn limits_hold() {
    let hosts =
        vec![json!(null), json!({"id": 7, "qos": 2}), json!({"id": 150, "proto": "802.1ad"})];
    let protos = vec![vec![], vec!["802.1ad"]];
    let document_of = (prop::sample::select(hosts), prop::sample::select(protos));
    let (given, refused) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let tested = proptest::test_runner::TestRunner::default().run(
        &(document_of, anything()),
        |((own, protos), settings)| {
            let document = with(granted(), "/adapter/1/vlan", own.clone());
            let document = with(document, "/vpf/0/control/vlan_protos", json!(protos));
            let mut request = json!({"v": 1, "id": 1, "op": "set", "vf": 0});
            request.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
            let Ok(Request::Set(_, change)) = asked(request) else { return Ok(()) };
            let before = state(&document);
            let overlay = Overlay::default().with(&before, "vm", 0, &change);
            prop_assert_eq!(overlay.is_ok(), is_granted(&settings, &own, &protos), "{:?}", overlay);
            let Ok(overlay) = overlay else {
                refused.set(refused.get() + 1);
                return Ok(());
            };
            given.set(given.get() + 1);
            let in_force = overlay.upon(&before);
            let adapter = in_force.adapter("a1").unwrap();
            let shown = format!("{adapter:?}");
            prop_assert!(change.mac.is_none_or(|mac| mac == adapter.mac), "{}", shown);
            prop_assert!(change.vlan.is_none_or(|vlan| vlan == adapter.settings.vlan), "{}", shown);
            prop_assert!(
                adapter.settings.max_tx_mbps <= 400 || adapter.settings.max_tx_mbps == 500,
                "{}",
                shown
            );
            prop_assert!(adapter.settings.min_tx_mbps <= 10, "{}", shown);
            Ok(())
        },
    );
    tested.unwrap();
    let counted = (given.get(), refused.get());
    assert!(counted.0 > 10 && counted.1 > 10, "{counted:?} were given and refused");
}
