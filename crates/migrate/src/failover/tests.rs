//! Failover pairs against a fake QEMU and a daemon without a data plane: order, time-outs, and what
//! is left after a failure.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;

use api::testing::Site;
use model::testing::{adapter, document};

use super::*;
use crate::tests::fake_pair::FakePair;

/// Fault of QEMU or of its guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    OtherGuest,
    NoFailover,
    /// The guest's driver does not run.
    NoDriver,
    /// The guest's driver does not accept the feature: QEMU keeps the device back.
    NotAccepted,
    Paused,
    /// QEMU rejects the device.
    RejectsDevice,
    IgnoresPlug,
    IgnoresUnplug,
    /// The guest answers an unplug with an error.
    RejectsUnplug,
    /// The event of the unplug is missing.
    LosesEvent,
    /// An earlier unplug still waits, and is done.
    UnplugPending,
    DiesAtPlug,
    DiesAtUnplug,
    /// From `device_del` on QEMU does not answer.
    MuteAtUnplug,
    /// QEMU rejects the unplug.
    RefusesUnplug,
}

struct World {
    fault: Fault,
    pair: FakePair,
    /// Frames went to the primary, when each command came.
    told: Vec<(String, bool)>,
}

struct Lab {
    site: Site,
    world: Arc<Mutex<World>>,
    dir: tempfile::TempDir,
}

/// Two adapters of VMs: `vm` on a soft NIC, `hw` with VF 1 of a card.
fn of_vms() -> Value {
    let mut document = document();
    let card = json!({"name": "card0", "kind": "pci", "device": "0000:01:00.0", "num_vfs": 2});
    document["nic"].as_array_mut().unwrap().push(card);
    let switch = json!({"name": "sw1", "nic": "card0", "iov": true});
    document["switch"].as_array_mut().unwrap().push(switch);
    let (mut vm, mut hw) = (adapter("vm", 7, 0), adapter("hw", 7, 100));
    (vm["path"], hw["path"]) = ("synthetic".into(), "synthetic".into());
    (hw["switch"], hw["vf"]) = ("sw1".into(), 1.into());
    document["adapter"].as_array_mut().unwrap().extend([vm, hw]);
    document
}

impl Lab {
    fn new(fault: Fault) -> Lab {
        let site = Site::new();
        site.apply(of_vms());
        for adapter in ["vm", "hw"] {
            site.plane.0.lock().unwrap().set_connected(adapter, fault != Fault::NoDriver);
        }
        let dir = tempfile::tempdir().unwrap();
        let world = World { fault, pair: FakePair::new("02:00:00:00:01:07"), told: Vec::new() };
        let world = Arc::new(Mutex::new(world));
        let listener = UnixListener::bind(dir.path().join("qmp.sock")).unwrap();
        let (plane, served) = (site.plane.clone(), world.clone());
        let at_primary = move || {
            let reached = plane.0.lock().unwrap().reached.last().unwrap().clone();
            let link = reached.adapter("vm").unwrap().settings.link_state;
            let path = reached.adapter("hw").unwrap().path;
            link == LinkState::Disable || path == model::state::WantedPath::Vf
        };
        // The thread ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if !serve(stream, &served, &at_primary) {
                    break;
                }
            }
        });
        Lab { site, world, dir }
    }

    fn plugged(self, used: bool) -> Lab {
        self.world.lock().unwrap().pair.primary = Some(("old".to_owned(), used));
        self
    }

    fn spec(&self, adapter: &str) -> PairSpec {
        PairSpec {
            adapter: adapter.into(),
            daemon: Client::new(&self.site.socket()),
            site: "",
            qmp: self.dir.path().join("qmp.sock"),
            timeout: Duration::from_millis(300),
            dry_run: false,
            interrupted: Arc::default(),
        }
    }

    fn attach(&self, adapter: &str) -> Result<PairReport, MigrateError> {
        let driver = if adapter == "hw" { "vfio-pci" } else { "e1000e" };
        let primary = json!({"driver": driver, "bus": "slot1"});
        attach(&self.spec(adapter), primary.as_object().unwrap(), &mut |_| ())
    }

    fn detach(&self, adapter: &str) -> Result<PairReport, MigrateError> {
        detach(&self.spec(adapter), &mut |_| ())
    }

    fn set(&self, adapter: &str, change: Value) {
        self.site.does("PATCH", &format!("/v1/adapters/{adapter}"), change);
    }

    /// The path and the link of both adapters, as the daemon has them.
    fn frames(&self, adapter: &str) -> [String; 2] {
        let one = self.site.get(&format!("/v1/adapters/{adapter}"));
        [&one["path"], &one["link_state"]].map(|it| it.as_str().unwrap_or("auto").to_owned())
    }

    /// `true` if frames went to the primary when the command came.
    fn was_at_primary(&self, command: &str) -> Option<bool> {
        let world = self.world.lock().unwrap();
        world.told.iter().find(|(name, _)| name == command).map(|(_, at)| *at)
    }
}

/// Serves one client until it leaves; returns `false` if QEMU is gone.
fn serve(stream: UnixStream, world: &Mutex<World>, at_primary: &dyn Fn() -> bool) -> bool {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut to = stream;
    let mut say = move |value: Value| drop(to.write_all(format!("{value}\n").as_bytes()));
    say(json!({"QMP": {"version": {"qemu": {"major": 11}}, "capabilities": []}}));
    for line in lines.map_while(Result::ok) {
        let asked: Value = serde_json::from_str(&line).unwrap();
        let name = asked["execute"].as_str().unwrap();
        let mut world = world.lock().unwrap();
        world.told.push((name.to_owned(), at_primary()));
        match (world.fault, name) {
            (Fault::DiesAtPlug, "device_add") | (Fault::DiesAtUnplug, "device_del") => {
                return false;
            }
            (Fault::MuteAtUnplug, _) if world.is_mute() => continue,
            _ => {}
        }
        say(match world.answer(name, &asked["arguments"]) {
            Ok(value) => json!({"return": value, "id": asked["id"]}),
            Err(why) => json!({"error": {"class": "GenericError", "desc": why}, "id": asked["id"]}),
        });
        if name != "device_del" {
            continue;
        }
        let data = json!({"device": asked["arguments"]["id"]});
        say(json!({"event": "DEVICE_DELETED", "data": {"device": "disk0"}}));
        match world.fault {
            Fault::LosesEvent => world.pair.primary = None,
            Fault::RejectsUnplug => {
                say(json!({"event": "DEVICE_UNPLUG_GUEST_ERROR", "data": data}));
            }
            Fault::IgnoresPlug | Fault::IgnoresUnplug | Fault::RefusesUnplug => {}
            _ => {
                world.pair.primary = None;
                say(json!({"event": "DEVICE_DELETED", "data": data}));
            }
        }
    }
    true
}

impl World {
    fn is_mute(&self) -> bool {
        self.told.iter().any(|(name, _)| name == "device_del")
    }

    fn answer(&mut self, name: &str, arguments: &Value) -> Result<Value, String> {
        let fault = self.fault;
        let is = |one: Fault| fault == one;
        let property = |name: &str| json!({"path": "/machine/peripheral/nic", "property": name});
        Ok(match name {
            "query-status" => {
                json!({"status": if is(Fault::Paused) { "paused" } else { "running" }})
            }
            "qom-get" if is(Fault::OtherGuest) && *arguments == property("mac") => {
                json!("02:00:00:00:01:01")
            }
            "qom-get" if is(Fault::NoFailover) && *arguments == property("failover") => {
                json!(false)
            }
            "device_add" if is(Fault::RejectsDevice) => {
                return Err("Cannot attach more than one primary device".into());
            }
            "device_add" if is(Fault::NotAccepted) => json!({}),
            "device_del" if is(Fault::RefusesUnplug) => return Err("no hot\u{1b} plug".into()),
            "device_del" if is(Fault::UnplugPending) => {
                return Err("Device old is already in the process of unplug".into());
            }
            _ => {
                let answer = self.pair.answer(name, arguments).unwrap_or_else(|| Ok(json!({})))?;
                if let (true, Some((_, used))) = (is(Fault::IgnoresPlug), &mut self.pair.primary) {
                    *used = false;
                }
                answer
            }
        })
    }
}

const TO_PRIMARY: [(&str, [&str; 2]); 2] =
    [("vm", ["synthetic", "disable"]), ("hw", ["vf", "auto"])];

#[test]
fn frames_move_before_the_plug_and_after_the_unplug() {
    for (adapter, to_primary) in TO_PRIMARY {
        let lab = Lab::new(Fault::None);
        let report = lab.attach(adapter).unwrap();
        let steps: Vec<&str> = report.steps.iter().map(|step| step.step.as_str()).collect();
        assert_eq!(steps, ["frames", "plug", "guest"]);
        assert_eq!(
            (lab.frames(adapter), lab.was_at_primary("device_add")),
            (to_primary.map(String::from), Some(true))
        );
        let status = status(&lab.spec(adapter)).unwrap();
        assert_eq!(report.status, status);
        assert_eq!(
            (status.frames_to, status.in_use, status.remedy),
            (PairDevice::Primary, true, None)
        );
        let id = format!("primary-{adapter}");
        assert_eq!((status.standby.as_str(), status.primary), ("nic", Some(id.clone())));
        let added = lab.world.lock().unwrap().pair.added.remove(0);
        assert_eq!((&added["failover_pair_id"], &added["id"]), (&json!("nic"), &json!(id)));
        assert_eq!(added["mac"].is_string(), adapter == "vm", "a VF has its address from its PF");
        let refused = lab.attach(adapter).unwrap_err().to_string();
        assert!(refused.contains(&format!("has the primary {id} already")), "{refused}");
        let report = lab.detach(adapter).unwrap();
        let steps: Vec<&str> = report.steps.iter().map(|step| step.step.as_str()).collect();
        assert_eq!((steps, report.status.primary), (vec!["unplug", "frames"], None));
        assert_eq!(
            (lab.frames(adapter), lab.was_at_primary("device_del")),
            (["synthetic", "auto"].map(String::from), Some(true))
        );
        assert_eq!(lab.detach(adapter).unwrap().steps, [], "there is nothing to do");
    }
}

#[test]
fn a_guest_that_cannot_have_a_pair_is_refused_before_anything_changes() {
    let cases = [
        (Fault::OtherGuest, "has no virtio-net device with an id and 02:00:00:00:01:07: 02:00"),
        (Fault::NoFailover, "its device nic has no failover=on"),
        (Fault::NoDriver, "has not started the adapter's device"),
        (Fault::Paused, "is paused"),
    ];
    for (fault, says) in cases {
        let lab = Lab::new(fault);
        let refused = lab.attach("vm").unwrap_err();
        assert!(matches!(refused, MigrateError::Refused(_)), "{fault:?}");
        assert!(refused.to_string().contains(says), "{refused}");
        assert_eq!(lab.frames("vm"), ["synthetic", "auto"], "{fault:?}");
        assert_eq!(lab.was_at_primary("device_add"), None, "{fault:?}");
    }
    let lab = Lab::new(Fault::None);
    let refused = |adapter: &str| lab.attach(adapter).unwrap_err().to_string();
    assert!(refused("db").contains("is its path, and its device"), "{}", refused("db"));
    assert!(refused("vm2").contains("is no adapter"), "{}", refused("vm2"));
    lab.set("vm", json!({"attachment": "tap:vm0"}));
    assert!(refused("vm").contains("is no device of a VM"), "{}", refused("vm"));
    let spec = PairSpec { qmp: "/none/qmp.sock".into(), ..lab.spec("hw") };
    let absent = status(&spec).unwrap_err().to_string();
    assert!(absent.contains("no QEMU answers at /none/qmp.sock"), "{absent}");
}

#[test]
fn frames_go_back_to_the_standby_if_the_guest_does_not_take_the_primary() {
    let cases = [
        (Fault::IgnoresPlug, "after 300 ms the guest does not take primary-"),
        (Fault::RejectsDevice, "QEMU refuses device_add: Cannot attach more than one primary"),
        (Fault::NotAccepted, "QEMU keeps primary-"),
        (Fault::DiesAtPlug, "QEMU closed the connection during device_add"),
    ];
    for (adapter, _) in TO_PRIMARY {
        for (fault, says) in cases {
            let lab = Lab::new(fault);
            let failed = lab.attach(adapter).unwrap_err().to_string();
            assert!(failed.contains(says), "{failed}");
            assert!(failed.ends_with("; frames go to the standby again"), "{failed}");
            assert_eq!(lab.frames(adapter), ["synthetic", "auto"], "{fault:?}");
            let removed = lab.was_at_primary("device_del");
            assert_eq!(removed, (fault == Fault::IgnoresPlug).then_some(false), "{fault:?}");
        }
    }
}

#[test]
fn frames_stay_at_the_primary_if_the_guest_does_not_release_it() {
    let cases = [
        (Fault::IgnoresUnplug, "after 300 ms the guest does not release old", true),
        (Fault::RejectsUnplug, "the guest rejects the unplug of old", true),
        (Fault::RefusesUnplug, "QEMU does not unplug old: no hot\\u{1b} plug", true),
        (Fault::DiesAtUnplug, "QEMU closed the connection during device_del", false),
        (Fault::MuteAtUnplug, "device_del was not answered within ", true),
    ];
    for (adapter, to_primary) in TO_PRIMARY {
        for (fault, says, stays) in cases {
            let lab = Lab::new(fault).plugged(true);
            lab.attach(adapter).unwrap();
            let failed = lab.detach(adapter).unwrap_err().to_string();
            assert!(failed.contains(says), "{failed}");
            let end = if stays { "; frames go to the primary as before" } else { "standby again" };
            assert!(failed.ends_with(end), "{failed}");
            let to = if stays { to_primary } else { ["synthetic", "auto"] };
            assert_eq!(lab.frames(adapter), to, "{fault:?}");
        }
    }
}

#[test]
fn a_lost_event_and_a_late_unplug_are_no_failures() {
    for fault in [Fault::LosesEvent, Fault::UnplugPending] {
        let lab = Lab::new(fault).plugged(true);
        lab.attach("vm").unwrap();
        let report = lab.detach("vm").unwrap();
        assert_eq!((report.status.primary, report.status.frames_to), (None, PairDevice::Standby));
    }
    // The guest has released it after the frames had gone back.
    let lab = Lab::new(Fault::None);
    lab.set("vm", json!({"link_state": "disable"}));
    let found = status(&lab.spec("vm")).unwrap();
    assert_eq!(found.remedy.as_deref(), Some("shunt vm detach vm"));
    lab.detach("vm").unwrap();
    assert_eq!(lab.frames("vm"), ["synthetic", "auto"]);
    // One that QEMU plugged at the guest's start.
    let lab = lab.plugged(true);
    assert_eq!(status(&lab.spec("vm")).unwrap().remedy.as_deref(), Some("shunt vm attach vm"));
    let steps = lab.attach("vm").unwrap().steps;
    assert_eq!(steps.iter().map(|step| &*step.step).collect::<Vec<_>>(), ["frames", "guest"]);
}

#[test]
fn a_dry_run_checks_and_changes_nothing() {
    for fault in [Fault::None, Fault::NoDriver] {
        let lab = Lab::new(fault);
        let spec = || PairSpec { dry_run: true, ..lab.spec("vm") };
        let (primary, mut on_step) = (Map::new(), |_: &StepReport| ());
        let checked = attach(&spec(), &primary, &mut on_step);
        assert_eq!(checked.is_ok(), fault == Fault::None, "{checked:?}");
        assert_eq!(detach(&spec(), &mut on_step).unwrap().steps, []);
        let world = lab.world.lock().unwrap();
        assert!(!world.told.iter().any(|(name, _)| name.starts_with("device_")), "{fault:?}");
    }
}

#[test]
fn an_interrupted_change_goes_back() {
    let lab = Lab::new(Fault::IgnoresPlug);
    let spec = PairSpec { timeout: Duration::from_secs(60), ..lab.spec("vm") };
    spec.interrupted.store(true, Ordering::Relaxed);
    let primary = json!({"driver": "e1000e"});
    let failed = attach(&spec, primary.as_object().unwrap(), &mut |_| ()).unwrap_err().to_string();
    assert_eq!(failed, "interrupted; frames go to the standby again");
}

#[test]
fn a_vf_that_the_daemon_does_not_give_is_an_error_and_nothing_is_plugged() {
    let lab = Lab::new(Fault::None);
    lab.set("hw", json!({"iov_weight": 0}));
    let failed = lab.attach("hw").unwrap_err().to_string();
    assert_eq!(failed, "hw gets no VF: WeightZero; frames go to the standby again");
    assert_eq!(
        (lab.frames("hw")[0].as_str(), lab.was_at_primary("device_add")),
        ("synthetic", None)
    );
}
