use std::fs;

use model::state::{ActualDevice, DeviceState, Drift};
use serde_json::json;
use sriov::{Sysfs, VfNetdev, WantedNic};

use super::card::Card;
use super::*;

fn state(names: &[&str]) -> State {
    let nic = |name: &&str| {
        let device = format!("{name}-none");
        json!({"name": name, "kind": "pci", "device": device, "num_vfs": 2})
    };
    let nics: Vec<_> = names.iter().map(nic).collect();
    State::parse(&json!({"version": 1, "nic": nics})).unwrap()
}

#[test]
fn a_missing_card_keeps_no_daemon_from_its_start_but_refuses_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let mut cards = Cards::new(dir.path());
    cards.change(&state(&["a"]), &[], true).unwrap();
    let nic = &state(&["a"]).nics[0];
    let card = || cards.actual(nic).unwrap().card.unwrap();
    assert_eq!((card().address.as_str(), card().present), ("a-none", false));
    let refused = cards.change(&state(&["a", "b"]), &[], false).unwrap_err().to_string();
    assert!(refused.contains("b-none is no PCI NIC of this machine"), "{refused}");
    assert!(cards.actual(&state(&["b"]).nics[0]).is_none());
    let events = Events::default();
    cards.poll(&events, Instant::now() + POLL_INTERVAL);
    assert_eq!(events.since(0).events.len(), 0, "nothing is new");
    cards.change(&State::default(), &[], false).unwrap();
    assert!(cards.actual(nic).is_none() && cards.wait(Instant::now()).is_none());
    cards.release_leftovers();
}

/// A PF with this number of VFs in a tree of sysfs, whose interface stands for `lo`.
fn make_pf(address: &str, total_vfs: u16, num_vfs: u16) -> PathBuf {
    let function = Sysfs::default().pci(address.parse().unwrap());
    let net = function.join("net/eth9");
    fs::create_dir_all(&net).unwrap();
    fs::write(net.join("ifindex"), "1").unwrap();
    fs::write(function.join("class"), "0x020000").unwrap();
    fs::write(function.join("sriov_totalvfs"), total_vfs.to_string()).unwrap();
    fs::write(function.join("sriov_numvfs"), num_vfs.to_string()).unwrap();
    function
}

fn netdev(netns: &str) -> VfNetdev {
    let (netns, name) = (Some(netns.to_owned()), "net1".to_owned());
    let (addresses, gateways) = (Vec::new(), Vec::new());
    VfNetdev { netns, name, mac: None, mtu: 1500, up: true, addresses, gateways }
}

#[test]
fn a_card_that_refuses_keeps_no_daemon_from_its_start_and_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    Sysfs::replace(dir.path().join("sys"));
    let address = "0000:01:00.0";
    let function = make_pf(address, 2, 0);
    let nic = json!({"name": "a", "kind": "pci", "device": address, "num_vfs": 3});
    let state = State::parse(&json!({"version": 1, "nic": [nic]})).unwrap();
    let refused = Cards::new(dir.path()).change(&state, &[], false).unwrap_err().to_string();
    assert!(refused.contains("num_vfs = 3 is more than its 2"), "{refused}");
    let mut cards = Cards::new(dir.path());
    cards.change(&state, &[], true).unwrap();
    let events = Events::default();
    let mut now = Instant::now();
    let mut poll = |cards: &mut Cards| {
        now += POLL_INTERVAL;
        cards.poll(&events, now);
        cards.cards["a"].failed.clone()
    };
    assert!(poll(&mut cards).unwrap().contains("num_vfs = 3 is more than its 2"));
    // The card has three VFs now, but the next try is not due.
    make_pf(address, 3, 3);
    assert!(poll(&mut cards).is_some() && poll(&mut cards).is_some());
    cards.retry();
    assert_eq!(poll(&mut cards), None);
    let told = events.since(0).events.into_iter().map(|event| event.text).collect::<Vec<_>>();
    assert_eq!(told.last().unwrap(), "is set up, after a failure");
    // Another apply of the state tries at once too.
    let card = cards.cards.get_mut("a").unwrap();
    card.note_failure(&SriovError::Vanished(address.parse().unwrap()));
    cards.change(&state, &[], false).unwrap();
    assert_eq!(poll(&mut cards), None);
    // The interfaces of a card vanish with it.
    let card = cards.cards.get_mut("a").unwrap();
    let (state, since_ms) = (DeviceState::Up, 0);
    card.netdevs.insert(0, ActualDevice { state, since_ms, reason: None, notes: Vec::new() });
    card.wanted.netdevs.insert(0, netdev("web"));
    fs::remove_dir_all(function).unwrap();
    poll(&mut cards);
    let lost = cards.netdev("a", 0).unwrap();
    assert_eq!(lost.state, DeviceState::Gone);
    assert_eq!(lost.reason.unwrap(), format!("{address} is not on the PCI bus"));
}

#[test]
fn the_time_between_tries_doubles_up_to_a_minute() {
    let mut card = Card::new("eth9", WantedNic::default(), Drift::Report);
    let mut waits = Vec::new();
    for _ in 0..6 {
        card.note_failure(&SriovError::NotFound { device: "eth9".to_owned() });
        waits.push(card.retry.unwrap().1.as_secs());
    }
    assert_eq!(waits, [5, 10, 20, 40, 60, 60]);
    card.retry_now();
    card.note_failure(&SriovError::NotFound { device: "eth9".to_owned() });
    assert_eq!(card.retry.unwrap().1.as_secs(), 5);
}

#[test]
fn a_change_tells_which_vfs_it_takes_from_adapters() {
    let mut card = Card::new("eth9", WantedNic::default(), Drift::Report);
    let holders = |all: &[(u16, &str)]| -> BTreeMap<u16, String> {
        all.iter().map(|(vf, name)| (*vf, (*name).to_owned())).collect()
    };
    card.holders = holders(&[(0, "web"), (1, "db"), (2, "log"), (3, "old")]);
    let adapter = |(name, path): (&str, &str)| {
        let socket = format!("/run/{name}.sock");
        json!({"name": name, "switch": "sw0", "mac": "02:00:00:00:00:01", "path": path,
            "attachment": {"kind": "vhost-user", "socket": socket}})
    };
    let adapters = [("web", "vf"), ("db", "synthetic"), ("log", "vf")].map(adapter);
    let adapters: Vec<_> = adapters
        .into_iter()
        .zip(1..)
        .map(|(mut adapter, number)| {
            adapter["mac"] = json!(format!("02:00:00:00:00:0{number}"));
            adapter
        })
        .collect();
    let document = json!({"version": 1, "nic": [{"name": "nic0"}], "adapter": adapters,
        "switch": [{"name": "sw0", "nic": "nic0"}]});
    let to = State::parse(&document).unwrap();
    // The first keeps its VF, and the second leaves it by its path.
    let taken: Vec<_> = card.taken(&holders(&[(0, "web"), (1, "log")]), &to).collect();
    assert_eq!(taken, [(2, "log".to_owned()), (3, "old".to_owned())]);
    let problem = in_use(taken[0].clone()).to_string();
    assert!(problem.contains("adapter log would lose VF 2, which a VM has open"), "{problem}");
    assert!(problem.contains("shunt vm detach log"), "{problem}");
    assert_eq!(card.taken_from_vm(&BTreeMap::new(), &to), Ok(None), "there is no card");
}

#[test]
fn an_interface_does_not_follow_a_process_number_to_another_process() {
    let mut card = Card::new("eth9", WantedNic::default(), Drift::Report);
    let own = netdev("/proc/self/ns/net");
    let (name, identity) = card.namespace(0, &own).unwrap();
    card.namespaces.insert(0, (name.clone(), identity));
    assert!(card.namespace(0, &own).is_ok());
    card.namespaces.insert(0, (name, host::netns::Identity::Existing(0, 0)));
    let reason = card.namespace(0, &own).unwrap_err();
    assert_eq!(
        reason,
        "/proc/self/ns/net is the namespace of another process now: set netns again"
    );
    assert!(card.namespace(0, &netdev("/proc/thread-self/ns/net")).is_ok(), "another path");
    assert!(card.namespace(0, &netdev("nowhere")).unwrap_err().ends_with("does not exist"));
}
