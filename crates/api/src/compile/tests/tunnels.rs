//! Tunnels: ports of the switch, each in one VLAN, behind which addresses are learned.

use super::*;

/// The document with tunnels `far`, without tags, and `deep`, in VLAN 5, where adapters `t` and `w`
/// are.
fn tunneled() -> Value {
    let tunnel = |name: &str, vni: u32| json!({"name": name, "vni": vni, "peers": ["10.0.0.2"]});
    let document =
        with(document(), "/switch/0/vxlan", json!([tunnel("far", 7), tunnel("deep", 8)]));
    let document = with(document, "/switch/0/vxlan/1/vlan", json!(5));
    let document = with(document, "/adapter/4/vlan", json!({"id": 5}));
    with(document, "/adapter/1/vlan", json!({"id": 5}))
}

#[test]
fn a_network_is_one_vlan_of_the_switch() {
    let compiled = compiled(&tunneled());
    let mut world = World::new(&compiled.nics[0]);
    let all = got(&["v", "q", "s", "wire"]);
    assert_eq!(world.send("far", Mac::BROADCAST, mac(50)), all, "those without tags");
    assert_eq!(world.send("deep", Mac::BROADCAST, mac(51)), got(&["w", "t", "wire@5"]));
    let to_all = world.send("v", Mac::BROADCAST, mac(1));
    assert_eq!(to_all, got(&["q", "s", "wire", "far"]));
    assert_eq!(world.send("t", Mac::BROADCAST, mac(5)), got(&["w", "wire@5", "deep"]));
    assert_eq!(world.send_tagged("far", Mac::BROADCAST, mac(50), 5), Got::new(), "no tags there");
}

#[test]
fn what_is_behind_a_tunnel_is_learned_and_reached_from_every_path() {
    let compiled = compiled(&tunneled());
    let mut world = World::new(&compiled.nics[0]);
    assert_eq!(world.send("far", mac(4), mac(50)), got(&["s"]));
    assert_eq!(world.send("s", mac(50), mac(4)), got(&["far"]));
    // A NIC learns nothing: what it does not know is on the wire, or behind its switch.
    assert_eq!(world.send("v", mac(50), mac(1)), got(&["wire", "far"]));
    for (dst, who) in [(1, "v"), (3, "q"), (4, "s")] {
        assert_eq!(world.send("far", mac(dst), mac(50)), got(&[who]));
    }
    assert_eq!(world.send("deep", mac(5), mac(51)), got(&["t"]));
    assert_eq!(world.send("deep", mac(4), mac(51)), got(&["t", "wire@5"]), "not in this VLAN");
}

#[test]
fn an_address_that_is_known_there_is_looked_for_nowhere_else() {
    let entry = json!([{"mac": mac(50).to_string(), "port": "far"}]);
    let compiled = compiled(&with(tunneled(), "/switch/0/static", entry));
    let mut world = World::new(&compiled.nics[0]);
    assert_eq!(world.send("s", mac(50), mac(4)), got(&["far"]));
    assert_eq!(world.send("v", mac(50), mac(1)), got(&["far"]));
}

#[test]
fn rules_of_its_port_hold_and_its_number_stays() {
    let port = json!([{"adapter": "far", "dhcp_guard": true, "max_macs": 3}]);
    let guarded = with(tunneled(), "/switch/0/port", port);
    let first = compiled(&guarded);
    let mut world = World::new(&first.nics[0]);
    let answer = frame(Mac::BROADCAST, mac(50), None, &DHCP_ANSWER);
    assert_eq!(world.send_frame("far", &answer), Got::new());
    let number = |compiled: &Compiled, name: &str| {
        let ports = compiled.nics[0].ports.iter();
        let mut ports = ports.filter(|plug| plug.of == PortOwner::Tunnel(name.to_owned()));
        ports.next().map(|plug| plug.location)
    };
    let deep = tunneled()["switch"][0]["vxlan"][1].clone();
    let fewer = with(guarded, "/switch/0/vxlan", json!([deep]));
    let fewer = with(fewer, "/switch/0/port", json!([]));
    let second = compiled_after(&fewer, &LiveLinks::default(), Some(&first));
    assert_eq!(number(&second, "deep"), number(&first, "deep"));
    assert_eq!(number(&second, "far"), None);
    let Some(PortLocation::Switch(left)) = number(&first, "far") else {
        panic!("it was on the switch")
    };
    assert!(second.nics[0].switch.as_ref().unwrap().left.contains(&left), "and is forgotten");
}
