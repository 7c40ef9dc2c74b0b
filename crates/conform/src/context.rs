//! State of a running test: requests that must succeed or fail, and frames that must arrive as
//! expected.
//!
//! A rejected request that must succeed is the error [`Refused`]. A frame that arrives in spite of
//! the setting that [`TestContext::shows`] names, or in another form, is the error [`Unseen`]. On
//! the soft NIC both are failures. On a card the first can mean that the test is not applicable,
//! the second that the card does not enforce the setting.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use model::state::{ActualAdapter, ActualVf, PathInForce};
use serde_json::{Value, json};
use wire::Mac;

use super::frame::{LONG, TestFrame, mac};
use super::subject::{
    AdapterLocation, GuestStop, ManagerRequest, ManagerStop, NicSetup, Rejection, Subject, WIRE,
};

/// A running test and its subject.
pub(super) struct TestContext<'s> {
    /// NIC under test.
    pub(super) subject: &'s mut dyn Subject,
    sequence: u64,
    /// Setting that the next frames show.
    setting: Option<&'static str>,
}

/// A request was rejected that must succeed.
#[derive(Debug)]
pub(super) struct Refused {
    change: String,
    pub(super) rejection: Rejection,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was rejected: {}", self.change, self.rejection.text())
    }
}

impl std::error::Error for Refused {}

/// A setting in force that frames do not show.
#[derive(Debug)]
pub(super) struct Unseen {
    pub(super) setting: &'static str,
    pub(super) difference: String,
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.difference)
    }
}

impl std::error::Error for Unseen {}

/// Addresses of the guests in most tests.
pub(super) const A: Mac = mac(0xa);
pub(super) const B: Mac = mac(0xb);
/// Address of a station on the wire.
pub(super) const W: Mac = mac(0xf);

/// Frames by station.
pub(super) type Arrived = BTreeMap<String, Vec<TestFrame>>;

impl<'s> TestContext<'s> {
    pub(super) fn new(subject: &'s mut dyn Subject) -> TestContext<'s> {
        TestContext { subject, sequence: 0, setting: None }
    }

    pub(super) fn begin(&mut self, setup: &NicSetup) -> Result<()> {
        self.setting = None;
        self.subject.begin(setup)
    }

    /// Names the setting of a VF that the next frames show, if one does.
    pub(super) fn shows(&mut self, setting: impl Into<Option<&'static str>>) {
        self.setting = setting.into();
    }

    /// Four VFs, guest `a` on VF 0 and `b` on VF 1, and the wire.
    pub(super) fn pair(&mut self) -> Result<()> {
        self.begin(&NicSetup::vfs(4))?;
        self.guest_on("a", AdapterLocation::Vf(0), A, json!({}))?;
        self.guest_on("b", AdapterLocation::Vf(1), B, json!({}))
    }

    /// Adds an adapter and attaches its guest.
    pub(super) fn guest_on(
        &mut self,
        name: &str,
        location: AdapterLocation,
        mac: Mac,
        settings: Value,
    ) -> Result<()> {
        self.must(&added(name, location, mac, settings))?;
        self.subject.attach(name)
    }

    /// Requests a change that must succeed.
    pub(super) fn must(&mut self, change: &ManagerRequest) -> Result<()> {
        match self.subject.change(change)? {
            Ok(()) => Ok(()),
            Err(rejection) => Err(Refused { change: in_words(change), rejection }.into()),
        }
    }

    /// Changes a VF, and returns `true`, or `false` if the NIC does not have this setting.
    pub(super) fn set_if_known(&mut self, index: u16, settings: Value) -> Result<bool> {
        match self.set_vf(index, settings) {
            Err(error) => match error.downcast_ref::<Refused>() {
                Some(it) if self.subject.has_no_such_setting(&it.rejection).is_some() => Ok(false),
                _ => Err(error),
            },
            Ok(()) => Ok(true),
        }
    }

    /// Requests a change that must fail with one of these words in the error.
    pub(super) fn rejects(&mut self, change: &ManagerRequest, words: &[&str]) -> Result<Rejection> {
        match self.subject.change(change)? {
            Ok(()) => bail!("{} was accepted", in_words(change)),
            Err(rejection) => {
                let (text, change) = (rejection.text(), in_words(change));
                let fits = words.iter().any(|word| text.contains(word));
                ensure!(fits, "{change} was rejected for another reason: {text}");
                Ok(rejection)
            }
        }
    }

    pub(super) fn set_vf(&mut self, index: u16, settings: Value) -> Result<()> {
        self.must(&ManagerRequest::Vf { index, settings })
    }

    pub(super) fn set_adapter(&mut self, name: &str, settings: Value) -> Result<()> {
        self.must(&ManagerRequest::Adapter { name: name.to_owned(), settings })
    }

    /// Stops the guest and removes its adapter.
    pub(super) fn remove(&mut self, name: &str) -> Result<()> {
        self.subject.leave(name, GuestStop::Orderly)?;
        self.must(&removed(name, None))
    }

    /// Stops and restarts the manager; `guests` attach again.
    pub(super) fn restart(&mut self, how: ManagerStop, guests: &[&str]) -> Result<()> {
        self.subject.stop_manager(how)?;
        self.subject.start_manager()?;
        guests.iter().try_for_each(|guest| self.subject.attach(guest))
    }

    /// A frame with a unique number.
    pub(super) fn frame(&mut self, src: Mac, dst: Mac) -> TestFrame {
        self.sequence += 1;
        TestFrame::new(src, dst, self.sequence)
    }

    /// Sends frames, waits, and returns the arrivals.
    pub(super) fn send(&mut self, from: &str, frames: &[TestFrame]) -> Result<Arrived> {
        let bytes: Vec<Vec<u8>> = frames.iter().map(|frame| frame.bytes.clone()).collect();
        self.subject.send(from, &bytes)?;
        self.arrived()
    }

    /// Arrivals after the NIC has processed all sent frames.
    pub(super) fn arrived(&mut self) -> Result<Arrived> {
        self.subject.settle()?;
        let mut arrived = Arrived::new();
        for (station, frames) in self.subject.take()? {
            let ours: Vec<TestFrame> = frames.into_iter().filter_map(TestFrame::of).collect();
            if !ours.is_empty() {
                arrived.insert(station, ours);
            }
        }
        Ok(arrived)
    }

    /// Sends a frame, which must arrive in exactly this form, once at each of these stations and at
    /// no other.
    pub(super) fn expect(
        &mut self,
        from: &str,
        sent: &TestFrame,
        wanted: &[(&str, &TestFrame)],
    ) -> Result<()> {
        let arrived = self.send(from, std::slice::from_ref(sent))?;
        let mut expected = Arrived::new();
        for (station, frame) in wanted {
            expected.entry(station.to_string()).or_default().push((*frame).clone());
        }
        if arrived == expected {
            return Ok(());
        }
        let (tag, got, meant) = (sent.tag_text(), describe(&arrived), describe(&expected));
        let (src, dst) = addresses(sent);
        let difference =
            format!("a frame from {from} ({tag}, {src} to {dst}) arrived {got}, expected {meant}");
        // No setting explains that a frame is missing, or comes back.
        let is_explained = expected.keys().all(|station| arrived.contains_key(station))
            && arrived.keys().all(|station| station != from || expected.contains_key(station));
        let setting = self.setting.filter(|_| is_explained);
        match setting {
            Some(setting) => Err(Unseen { setting, difference }.into()),
            None => bail!(difference),
        }
    }

    /// Checks that a frame from one station arrives unchanged at the other and at no third.
    pub(super) fn reaches(&mut self, from: (&str, Mac), to: (&str, Mac)) -> Result<()> {
        let frame = self.frame(from.1, to.1);
        self.expect(from.0, &frame, &[(to.0, &frame)])
    }

    /// Checks both directions.
    pub(super) fn talk(&mut self, one: (&str, Mac), other: (&str, Mac)) -> Result<()> {
        self.reaches(one, other)?;
        self.reaches(other, one)
    }

    /// Checks that a frame arrives at no station.
    pub(super) fn is_dropped(&mut self, from: &str, frame: &TestFrame) -> Result<()> {
        self.expect(from, frame, &[])
    }

    /// Time for 250 long frames from `a` to `b`, all of which must arrive.
    pub(super) fn time_of_250_long(&mut self) -> Result<Duration> {
        let frames: Vec<TestFrame> = (0..250)
            .map(|_| {
                self.sequence += 1;
                TestFrame::sized(A, B, self.sequence, LONG)
            })
            .collect();
        let begun = Instant::now();
        let arrived = self.send("a", &frames)?;
        let took = begun.elapsed();
        let count = arrived.get("b").map_or(0, Vec::len);
        ensure!(count == frames.len(), "{count} of 250 frames from a arrived at b");
        Ok(took)
    }

    /// State of a VF in force.
    pub(super) fn vf(&mut self, index: u16) -> Result<ActualVf> {
        let (nic, in_force) = (self.subject.nic(), self.subject.in_force()?);
        let nic = in_force.actual.nics.into_iter().find(|one| one.name == nic);
        let mut vfs = nic.into_iter().flat_map(|nic| nic.vfs);
        vfs.find(|vf| vf.index == index)
            .ok_or_else(|| anyhow::anyhow!("VF {index} is not in force"))
    }

    /// State of an adapter in force.
    pub(super) fn adapter(&mut self, name: &str) -> Result<ActualAdapter> {
        let mut adapters = self.subject.in_force()?.actual.adapters.into_iter();
        let found = adapters.find(|adapter| adapter.name == name);
        found.ok_or_else(|| anyhow::anyhow!("adapter {name} is not in force"))
    }

    /// Checks an adapter's path.
    pub(super) fn is_on(&mut self, name: &str, path: PathInForce) -> Result<()> {
        let adapter = self.adapter(name)?;
        let (is, why) = (adapter.path, adapter.reason);
        ensure!(is == path, "adapter {name} is on path {is}, not on {path} ({why})");
        Ok(())
    }

    /// Token of a VF's owner.
    pub(super) fn token(&mut self, vf: u16) -> Result<u64> {
        let name = format!("{}/vf{vf}", self.subject.nic());
        let owners = self.subject.in_force()?.owners;
        let owner = owners.get(&name);
        owner.map(|owner| owner.token).ok_or_else(|| anyhow::anyhow!("{name} has no owner"))
    }

    /// Operator's settings of a VF; null without any.
    pub(super) fn vf_settings(&mut self, index: u16) -> Result<Value> {
        let nic = self.subject.nic();
        let document = self.subject.document()?;
        let find = |list: &Value, key: &str, value: Value| {
            let mut all = list.as_array().into_iter().flatten();
            all.find(|one| one[key] == value).cloned().unwrap_or_default()
        };
        let nic = find(&document["nic"], "name", nic.into());
        Ok(find(&nic["vf"], "index", index.into()))
    }
}

/// Request for a new adapter.
pub(super) fn added(
    name: &str,
    location: AdapterLocation,
    mac: Mac,
    settings: Value,
) -> ManagerRequest {
    let mut all = json!({"mac": mac.to_string()});
    for (field, value) in settings.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    ManagerRequest::Add { name: name.to_owned(), location, settings: all, guest_first: false }
}

/// Request to remove an adapter.
pub(super) fn removed(name: &str, owner: Option<u64>) -> ManagerRequest {
    ManagerRequest::Remove { name: name.to_owned(), owner }
}

fn in_words(change: &ManagerRequest) -> String {
    match change {
        ManagerRequest::NumVfs(count) => format!("num_vfs = {count}"),
        ManagerRequest::Vf { index, settings } => format!("{settings} for VF {index}"),
        ManagerRequest::ReleaseVf { index, .. } => format!("the release of VF {index}"),
        ManagerRequest::Add { name, settings, .. } => format!("adapter {name} with {settings}"),
        ManagerRequest::Adapter { name, settings } => format!("{settings} for adapter {name}"),
        ManagerRequest::Remove { name, .. } => format!("the removal of adapter {name}"),
        ManagerRequest::Switchdev(on) => {
            format!("mode {}", if *on { "switchdev" } else { "legacy" })
        }
        ManagerRequest::Reapply => "the same state again".to_owned(),
    }
}

fn addresses(frame: &TestFrame) -> (String, String) {
    let mac = |at: usize| {
        let bytes = frame.bytes.get(at..at + 6).and_then(|bytes| bytes.first_chunk());
        bytes.map_or_else(|| "?".to_owned(), |bytes| Mac(*bytes).to_string())
    };
    (mac(6), mac(0))
}

/// Arrivals as text.
fn describe(arrived: &Arrived) -> String {
    let at = |(station, frames): (&String, &Vec<TestFrame>)| {
        let name = if station == WIRE { "the wire" } else { station };
        let tags: Vec<String> = frames.iter().map(TestFrame::tag_text).collect();
        format!("at {name} {}", tags.join(" and "))
    };
    let places: Vec<String> = arrived.iter().map(at).collect();
    if places.is_empty() { "nowhere".to_owned() } else { places.join(", ") }
}
