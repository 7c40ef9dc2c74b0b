//! Life cycle of a device, with a fake one.

use std::sync::Mutex;

use api::Events;
use engine::{Fabric, IdlePolicy, LaneSpec};
use port::{Housekeeping, LinkHealth};
use rustix::io::Errno;

use super::managed_device::RETRY;
use super::*;

/// Settings and record of the fake device.
#[derive(Debug, Default)]
struct FakeState {
    /// Error of opening it, if any.
    missing: Option<OpenError>,
    is_connected: bool,
    opened: usize,
    health: Arc<LinkHealth>,
}

/// A fake device.
#[derive(Debug, Clone, Default)]
struct Fake(Arc<Mutex<FakeState>>);

impl Fake {
    fn told<T>(&self, what: impl FnOnce(&mut FakeState) -> T) -> T {
        what(&mut self.0.lock().unwrap())
    }

    fn miss(&self, text: &str) {
        let missing = OpenError { may_appear: true, ..anyhow::anyhow!("{text}").into() };
        self.told(|told| told.missing = Some(missing));
    }
}

impl DeviceOpener for Fake {
    fn open(&mut self) -> Result<OpenedDevice, OpenError> {
        self.told(|told| {
            if let Some(missing) = &told.missing {
                return Err(missing.clone());
            }
            told.opened += 1;
            told.health = Arc::default();
            let notes = vec!["copy mode".to_owned()];
            let health = told.health.clone();
            Ok(OpenedDevice {
                pairs: Vec::new(),
                health,
                housekeeping: Some(Box::new(self.clone())),
                notes,
            })
        })
    }
}

impl Housekeeping for Fake {
    fn tick(&mut self, _: Instant) {}

    fn is_connected(&self) -> bool {
        self.told(|told| told.is_connected)
    }
}

/// A device behind the port of a NIC.
struct Bench {
    devices: Devices,
    token: u64,
    now: Instant,
    events: Events,
    /// Last event read.
    seen: u64,
    _fabric: Fabric,
}

impl Bench {
    fn new(fake: &Fake) -> Bench {
        let idle = IdlePolicy { poll: POLL_INTERVAL, yielding: POLL_INTERVAL, sleep: true };
        let mut fabric = Fabric::start(&[LaneSpec { cpu: None, idle }], None).unwrap();
        let nic = fabric.add_nic("n");
        let port = fabric.add_port(&nic, "n/uplink", 1).unwrap();
        let mut devices = Devices::default();
        let mut open: Box<dyn DeviceOpener> = Box::new(fake.clone());
        let opened = open.open();
        let events = Events::default();
        let noted = PortEvents::new(events.clone(), &port.label, Some("web"));
        let token = devices.add(port, ("fake:a".to_owned(), open), noted, opened);
        Bench { devices, token, now: Instant::now(), events, seen: 0, _fabric: fabric }
    }

    /// Advances time; returns the state of the device.
    fn after(&mut self, time: Duration) -> (DeviceState, Option<String>) {
        self.now += time;
        assert!(self.devices.poll(self.now));
        let status = self.devices.status(self.token).unwrap();
        (status.state, status.reason.clone())
    }

    fn news(&mut self) -> Vec<String> {
        let news = self.events.since(self.seen);
        self.seen = news.last;
        news.events.iter().map(|event| format!("{}: {}", event.subject, event.text)).collect()
    }
}

fn up() -> (DeviceState, Option<String>) {
    (DeviceState::Up, None)
}

#[test]
fn one_that_is_there_is_up_and_its_notes_are_told() {
    let fake = Fake::default();
    fake.told(|told| told.is_connected = true);
    let mut bench = Bench::new(&fake);
    assert_eq!(bench.after(POLL_INTERVAL), up());
    assert_eq!(bench.devices.status(bench.token).unwrap().notes, ["copy mode"]);
    assert_eq!(bench.news(), ["port n/uplink: fake:a is up", "adapter web: attached"]);
    fake.told(|told| told.is_connected = false);
    let down = "no peer is connected".to_owned();
    assert_eq!(bench.after(POLL_INTERVAL), (DeviceState::Down, Some(down)));
    fake.told(|told| told.is_connected = true);
    assert_eq!(bench.after(POLL_INTERVAL), up());
    let expected = [
        "port n/uplink: fake:a is down: no peer is connected",
        "adapter web: left",
        "port n/uplink: fake:a is up",
        "adapter web: attached",
    ];
    assert_eq!(bench.news(), expected);
    assert_eq!(fake.told(|told| told.opened), 1, "it stayed open");
}

#[test]
fn one_that_is_not_there_is_opened_when_it_comes() {
    let fake = Fake::default();
    fake.told(|told| told.is_connected = true);
    fake.miss("no such thing");
    let mut bench = Bench::new(&fake);
    let gone = |why: &str| (DeviceState::Gone, Some(why.to_owned()));
    assert_eq!(bench.after(POLL_INTERVAL), gone("no such thing"));
    assert_eq!(bench.news(), ["port n/uplink: fake:a is not there yet: no such thing"]);
    fake.miss("permission denied");
    assert_eq!(bench.after(RETRY), gone("permission denied"), "the last reason is told");
    assert_eq!(bench.news(), [""; 0], "and is no other state");
    fake.told(|told| told.missing = None);
    assert_eq!(bench.after(RETRY), up());
    assert_eq!(bench.news(), ["port n/uplink: fake:a is up", "adapter web: attached"]);
}

#[test]
fn one_that_is_lost_is_closed_and_opened_again() {
    let fake = Fake::default();
    fake.told(|told| told.is_connected = true);
    let mut bench = Bench::new(&fake);
    assert_eq!(bench.after(POLL_INTERVAL), up());
    fake.told(|told| told.health.lose(Errno::NETDOWN));
    fake.miss("it is down");
    let (state, reason) = bench.after(POLL_INTERVAL);
    assert_eq!(state, DeviceState::Gone);
    assert!(reason.unwrap().contains("Network is down"));
    let since = bench.devices.status(bench.token).unwrap().since_ms;
    assert_eq!(bench.after(RETRY).1.as_deref(), Some("it is down"));
    assert_eq!(bench.devices.status(bench.token).unwrap().since_ms, since, "gone since then");
    fake.told(|told| told.missing = None);
    assert_eq!(bench.after(RETRY), up());
    assert_eq!(fake.told(|told| told.opened), 2);
}

#[test]
fn looks_are_not_made_more_often_than_they_are_due() {
    let mut devices = Devices::default();
    let now = Instant::now();
    assert_eq!(devices.wait(now), None, "there is nothing to look at");
    assert!(devices.poll(now) && !devices.poll(now));
    let bench = Bench::new(&Fake::default());
    assert_eq!(bench.devices.wait(bench.now), Some(Duration::ZERO));
}

#[test]
fn an_error_with_a_source_keeps_its_remedy_apart() {
    let source = anyhow::anyhow!("out of memory");
    let error = OpenError::from(source.context("no buffers; free memory, or lower queue_pairs"));
    assert_eq!(error.cause, "no buffers: out of memory");
    assert_eq!(error.remedy.as_deref(), Some("free memory, or lower queue_pairs"));
    assert_eq!(error.to_string(), "no buffers: out of memory; free memory, or lower queue_pairs");
    let plain = OpenError::from(anyhow::anyhow!("in use"));
    assert_eq!((plain.to_string(), plain.remedy), ("in use".to_owned(), None));
}
