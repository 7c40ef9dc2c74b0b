//! Rejected documents, with the field of the error.

use model::profile::Profile;

use super::*;

#[track_caller]
fn refused(document: &Value, field: &str, words: &[&str]) {
    let problems = tried(document, &LiveLinks::default(), None).expect_err(field);
    let told = problems.to_string();
    assert_eq!(problems.problems.len(), 1, "{told}");
    assert_eq!(problems.problems[0].path, field, "{told}");
    words.iter().for_each(|word| assert!(told.contains(word), "{told}\nlacks {word}"));
}

fn profile(document: Value, name: &str) -> Value {
    with(document, "/nic/0/profile", json!(name))
}

#[test]
fn every_profile_can_be_compiled_and_is_in_the_schema() {
    for name in Profile::names() {
        compiled(&profile(document(), name));
    }
    let known = model::state::schema::allowed(&json!({"$ref": "x/Profile"}));
    assert!(Profile::names().iter().all(|name| known.contains(name)), "{known}");
    assert_eq!(known.matches('"').count(), 2 * Profile::names().len(), "{known}");
}

#[test]
fn what_a_card_refuses_of_an_adapter_is_told_with_its_field() {
    let remedy = "or iov_weight = 0";
    let trunk = but(0, "trunks", json!(["5-6"]));
    refused(&profile(trunk.clone(), "x520"), "adapter[0].trunks", &["EOPNOTSUPP", "x520", remedy]);
    let enable = but(1, "link_state", json!("enable"));
    refused(&profile(enable, "82576"), "adapter[1].link_state", &["EOPNOTSUPP", "auto", remedy]);
    let min = profile(but(0, "min_tx_mbps", json!(10)), "xl710");
    refused(
        &min,
        "adapter[0].min_tx_mbps",
        &["\"10 Mbit/s\" is rejected by the profile", "EINVAL"],
    );
    for (field, value) in [
        ("tx_weight", json!(50)),
        ("storm_limit_pps", json!(5)),
        ("mirror", json!({"direction": "rx", "file": "/x"})),
    ] {
        refused(&profile(but(0, field, value), "cx6"), &format!("adapter[0].{field}"), &[remedy]);
    }
    let macs = profile(but(0, "macs", json!([mac(77).to_string()])), "cx6");
    refused(&macs, "adapter[0].macs[0]", &["EOPNOTSUPP"]);
    compiled(&but(0, "max_tx_mbps", json!(1_000_000))); // of the ideal card
    // An adapter that never gets a VF may have all settings.
    compiled(&profile(but(3, "trunks", json!(["5-6"])), "x520"));
    let guarded = json!([{"adapter": "v", "dhcp_guard": true}]);
    compiled(&with(profile(trunk.clone(), "x520"), "/switch/0/port", guarded));
    // An adapter that could get a VF may not, even while none is free.
    let none_left = with(profile(trunk, "x520"), "/nic/0/num_vfs", json!(0));
    refused(&none_left, "adapter[0].trunks", &[remedy]);
}

#[test]
fn what_a_card_refuses_of_nics_and_vfs_is_told_with_its_field() {
    let many = with(profile(document(), "82576"), "/nic/0/total_vfs", json!(8));
    refused(&many, "nic[0].total_vfs", &["8 is rejected by the profile 82576 (ERANGE)", "0 to 7"]);
    let vepa = with(profile(document(), "xl710"), "/nic/0/bridging", json!("isolated"));
    refused(&vepa, "nic[0].bridging", &["EOPNOTSUPP"]);
    let entry = json!([{"index": 3, "vlan": {"id": 5, "proto": "802.1ad"}}]);
    let service = with(profile(document(), "cx6"), "/nic/0/vf", entry);
    refused(&service, "nic[0].vf[0].vlan.proto", &["EPROTONOSUPPORT", "802.1Q"]);
    // A VF's settings are an adapter's who names it.
    let entry = json!([{"index": 2, "link_state": "disable"}]);
    let named = with(profile(but(0, "vf", json!(2)), "82576"), "/nic/0/vf", entry);
    refused(&named, "nic[0].vf[0].link_state", &["EOPNOTSUPP"]);
}

#[test]
fn rates_that_were_accepted_outlast_the_link() {
    let rated = profile(but(0, "max_tx_mbps", json!(100)), "82576");
    let down = LiveLinks { uplinks_down: ["nic0".to_owned()].into(), ..LiveLinks::default() };
    let up = compiled(&rated);
    compiled_after(&rated, &down, None); // what was stored comes back after a restart
    let held = compiled_after(&rated, &down, Some(&up));
    let other = with(rated.clone(), "/adapter/0/max_tx_mbps", json!(200));
    let told = tried(&other, &down, Some(&held)).unwrap_err().to_string();
    assert!(told.contains(", max_tx_mbps:") && told.contains("while the uplink is up"));
    compiled_after(&other, &LiveLinks::default(), Some(&held));
    // A path may change without it.
    let moved = with(rated, "/adapter/0/path", json!("synthetic"));
    compiled_after(&moved, &down, Some(&held));
}

#[test]
fn addresses_that_meet_in_a_trunk_are_told_with_both_fields() {
    let same = |first: usize, second: usize| {
        let own = document().pointer(&format!("/adapter/{first}/mac")).cloned().unwrap();
        let document = but(first, "trunks", json!(["5-6"]));
        let document = with(document, &format!("/adapter/{second}/vlan"), json!({"id": 6}));
        with(document, &format!("/adapter/{second}/mac"), own)
    };
    refused(&same(0, 1), "adapter[1].mac", &["is in VLAN 6 also the address in mac of adapter"]);
    refused(&same(3, 4), "adapter[4].mac", &["in VLAN 6 also the address in mac of adapter"]);
    refused(&same(3, 0), "adapter[0].mac", &["mac of adapter"]);
    let mut bare = same(0, 1);
    for n in [0, 1] {
        bare = with(bare, &format!("/adapter/{n}/switch"), Value::Null);
        bare = with(bare, &format!("/adapter/{n}/nic"), json!("nic0"));
    }
    bare = with(bare, "/switch", json!([]));
    let two = json!([bare["adapter"][0], bare["adapter"][1]]);
    let bare = with(bare, "/adapter", two);
    refused(&bare, "adapter[1].mac", &["is in VLAN 6 also the address in mac of adapter"]);
}

#[test]
fn limits_are_told_with_the_place() {
    let adapters: Vec<Value> = (0..512_u16)
        .map(|n| {
            let [high, low] = n.to_be_bytes();
            let mac = Mac([2, 0, 0, 1, high, low]).to_string();
            with(adapter(&format!("a{n}"), 0, "synthetic"), "/mac", json!(mac))
        })
        .collect();
    let crowded = with(document(), "/adapter", json!(adapters));
    refused(&crowded, "switch[0]", &["has 512 adapters, tunnels and mirrors", "511 is the most"]);
    compiled(&with(document(), "/adapter", json!(adapters[1..])));
    let wide = with(but(3, "trunks", json!(["1-4094"])), "/adapter/4/trunks", json!(["1-4094"]));
    let told = tried(&wide, &LiveLinks::default(), None).unwrap_err().to_string();
    assert!(told.contains("switch sw") && told.contains("8192"), "{told}");
    // A document of a megabyte may name so many that they would fill the memory: the rest is not
    // looked at.
    let many = |n: usize| {
        let macs = (0..256).map(|i| Mac([2, 0, 0, 2, n as u8, i as u8]).to_string());
        let wide = with(adapters[n].clone(), "/trunks", json!(["1-4094"]));
        with(wide, "/macs", json!(macs.collect::<Vec<_>>()))
    };
    let huge = with(document(), "/adapter", (0..100).map(many).collect());
    let huge = with(huge, "/switch/0/port", json!([]));
    refused(&huge, "switch[0]", &["8193 static entries", "8192"]);
    let rules = vec![json!({"action": "count"}); 256];
    let ports: Vec<Value> =
        (0..9).map(|n| json!({"adapter": format!("a{n}"), "acl": rules})).collect();
    let strict = with(crowded, "/adapter", json!(adapters[..10]));
    let told = tried(&with(strict, "/switch/0/port", json!(ports)), &LiveLinks::default(), None);
    let told = told.unwrap_err().to_string();
    assert!(told.contains("switch sw") && told.contains("2304 rules"), "{told}");
}

#[test]
fn a_static_address_is_in_a_vlan_of_its_port() {
    let port = json!([{"adapter": "uplink", "trunks": ["5"]}]);
    let entry = json!([{"mac": mac(50).to_string(), "vlan": 6, "port": "uplink"}]);
    let document = with(with(document(), "/switch/0/port", port), "/switch/0/static", entry);
    refused(&document, "switch[0].static[0].mac", &["a VLAN that uplink is a member of"]);
}
