//! One test under way: requests that must be granted or refused, and frames that must arrive as
//! they should.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use model::state::{ActualAdapter, ActualVf, PathInForce};
use serde_json::{Value, json};
use wire::Mac;

use super::frame::{Frame, LONG, mac};
use super::subject::{Change, End, Home, Leave, Refusal, Setup, Subject, WIRE};

/// A test under way on a subject.
pub(super) struct Trial<'s> {
    /// What is tested.
    pub(super) subject: &'s mut dyn Subject,
    sequence: u64,
}

/// Addresses of the guests that most tests have.
pub(super) const A: Mac = mac(0xa);
pub(super) const B: Mac = mac(0xb);
/// Of a station on the wire.
pub(super) const W: Mac = mac(0xf);

/// Frames by where they arrived.
pub(super) type Arrived = BTreeMap<String, Vec<Frame>>;

impl<'s> Trial<'s> {
    pub(super) fn new(subject: &'s mut dyn Subject) -> Trial<'s> {
        Trial { subject, sequence: 0 }
    }

    pub(super) fn begin(&mut self, setup: &Setup) -> Result<()> {
        self.subject.begin(setup)
    }

    /// Four VFs, guest `a` on VF 0 and `b` on VF 1, and the wire.
    pub(super) fn pair(&mut self) -> Result<()> {
        self.begin(&Setup::vfs(4))?;
        self.guest_on("a", Home::Vf(0), A, json!({}))?;
        self.guest_on("b", Home::Vf(1), B, json!({}))
    }

    /// Adds an adapter and attaches its guest.
    pub(super) fn guest_on(
        &mut self,
        name: &str,
        home: Home,
        mac: Mac,
        settings: Value,
    ) -> Result<()> {
        self.must(&added(name, home, mac, settings))?;
        self.subject.attach(name)
    }

    /// What the manager must do.
    pub(super) fn must(&mut self, change: &Change) -> Result<()> {
        match self.subject.change(change)? {
            Ok(()) => Ok(()),
            Err(refusal) => bail!("{} was refused: {}", in_words(change), refusal.text()),
        }
    }

    /// What it must refuse, for a reason with one of these words in it.
    pub(super) fn refuses(&mut self, change: &Change, words: &[&str]) -> Result<Refusal> {
        match self.subject.change(change)? {
            Ok(()) => bail!("{} was accepted", in_words(change)),
            Err(refusal) => {
                let (text, change) = (refusal.text(), in_words(change));
                let fits = words.iter().any(|word| text.contains(word));
                ensure!(fits, "{change} was refused, but for another reason: {text}");
                Ok(refusal)
            }
        }
    }

    pub(super) fn set_vf(&mut self, index: u16, settings: Value) -> Result<()> {
        self.must(&Change::Vf { index, settings })
    }

    pub(super) fn set_adapter(&mut self, name: &str, settings: Value) -> Result<()> {
        self.must(&Change::Adapter { name: name.to_owned(), settings })
    }

    /// The guest goes, then its adapter.
    pub(super) fn remove(&mut self, name: &str) -> Result<()> {
        self.subject.leave(name, Leave::Orderly)?;
        self.must(&removed(name, None))
    }

    /// Ends the manager and starts it again; the guests come back if asked to.
    pub(super) fn restart(&mut self, how: End, guests: &[&str]) -> Result<()> {
        self.subject.end_manager(how)?;
        self.subject.start_manager()?;
        guests.iter().try_for_each(|guest| self.subject.attach(guest))
    }

    /// A frame with a number of its own.
    pub(super) fn frame(&mut self, src: Mac, dst: Mac) -> Frame {
        self.sequence += 1;
        Frame::new(src, dst, self.sequence)
    }

    /// Sends frames, waits, and says what arrived where.
    pub(super) fn send(&mut self, from: &str, frames: &[Frame]) -> Result<Arrived> {
        let bytes: Vec<Vec<u8>> = frames.iter().map(|frame| frame.bytes.clone()).collect();
        self.subject.send(from, &bytes)?;
        self.arrived()
    }

    /// What has arrived where, once the NIC has done with all that was sent.
    pub(super) fn arrived(&mut self) -> Result<Arrived> {
        self.subject.settle()?;
        let mut arrived = Arrived::new();
        for (station, frames) in self.subject.take()? {
            let ours: Vec<Frame> = frames.into_iter().filter_map(Frame::of).collect();
            if !ours.is_empty() {
                arrived.insert(station, ours);
            }
        }
        Ok(arrived)
    }

    /// Sends a frame, which must arrive exactly so: at each of these stations once, and nowhere
    /// else.
    pub(super) fn expect(
        &mut self,
        from: &str,
        sent: &Frame,
        wanted: &[(&str, &Frame)],
    ) -> Result<()> {
        let arrived = self.send(from, std::slice::from_ref(sent))?;
        let mut expected = Arrived::new();
        for (station, frame) in wanted {
            expected.entry(station.to_string()).or_default().push((*frame).clone());
        }
        if arrived == expected {
            return Ok(());
        }
        let (tag, got, meant) = (sent.tag_text(), whereabouts(&arrived), whereabouts(&expected));
        let (src, dst) = addresses(sent);
        bail!(
            "a frame from {from} ({tag}, {src} to {dst}) arrived {got}, and was to arrive {meant}"
        )
    }

    /// A frame from one to the other must arrive as it is, there and nowhere else.
    pub(super) fn reaches(&mut self, from: (&str, Mac), to: (&str, Mac)) -> Result<()> {
        let frame = self.frame(from.1, to.1);
        self.expect(from.0, &frame, &[(to.0, &frame)])
    }

    /// Both ways.
    pub(super) fn talk(&mut self, one: (&str, Mac), other: (&str, Mac)) -> Result<()> {
        self.reaches(one, other)?;
        self.reaches(other, one)
    }

    /// A frame from one to the other must arrive nowhere.
    pub(super) fn is_dropped(&mut self, from: &str, frame: &Frame) -> Result<()> {
        self.expect(from, frame, &[])
    }

    /// How long 250 long frames from `a` to `b` take, all of which must arrive.
    pub(super) fn time_of_250_long(&mut self) -> Result<Duration> {
        let frames: Vec<Frame> = (0..250)
            .map(|_| {
                self.sequence += 1;
                Frame::sized(A, B, self.sequence, LONG)
            })
            .collect();
        let begun = Instant::now();
        let arrived = self.send("a", &frames)?;
        let took = begun.elapsed();
        let count = arrived.get("b").map_or(0, Vec::len);
        ensure!(count == frames.len(), "{count} of 250 frames from a arrived at b");
        Ok(took)
    }

    /// A VF as it is in force.
    pub(super) fn vf(&mut self, index: u16) -> Result<ActualVf> {
        let (nic, in_force) = (self.subject.nic(), self.subject.in_force()?);
        let nic = in_force.actual.nics.into_iter().find(|one| one.name == nic);
        let mut vfs = nic.into_iter().flat_map(|nic| nic.vfs);
        vfs.find(|vf| vf.index == index)
            .ok_or_else(|| anyhow::anyhow!("VF {index} is not in force"))
    }

    /// An adapter as it is in force.
    pub(super) fn adapter(&mut self, name: &str) -> Result<ActualAdapter> {
        let mut adapters = self.subject.in_force()?.actual.adapters.into_iter();
        let found = adapters.find(|adapter| adapter.name == name);
        found.ok_or_else(|| anyhow::anyhow!("adapter {name} is not in force"))
    }

    /// An adapter must be on that path.
    pub(super) fn is_on(&mut self, name: &str, path: PathInForce) -> Result<()> {
        let adapter = self.adapter(name)?;
        let (is, why) = (adapter.path, adapter.reason);
        ensure!(is == path, "adapter {name} is on path {is} and not on {path} ({why})");
        Ok(())
    }

    /// The token of a VF's owner.
    pub(super) fn token(&mut self, vf: u16) -> Result<u64> {
        let name = format!("{}/vf{vf}", self.subject.nic());
        let owners = self.subject.in_force()?.owners;
        let owner = owners.get(&name);
        owner.map(|owner| owner.token).ok_or_else(|| anyhow::anyhow!("{name} has no owner"))
    }

    /// What the operator has set of a VF; null if nothing.
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

/// The request for a new adapter.
pub(super) fn added(name: &str, home: Home, mac: Mac, settings: Value) -> Change {
    let mut all = json!({"mac": mac.to_string()});
    for (field, value) in settings.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    Change::Add { name: name.to_owned(), home, settings: all, guest_first: false }
}

/// The request to remove one.
pub(super) fn removed(name: &str, owner: Option<u64>) -> Change {
    Change::Remove { name: name.to_owned(), owner }
}

fn in_words(change: &Change) -> String {
    match change {
        Change::NumVfs(count) => format!("num_vfs = {count}"),
        Change::Vf { index, settings } => format!("{settings} for VF {index}"),
        Change::ReleaseVf { index, .. } => format!("the release of VF {index}"),
        Change::Add { name, settings, .. } => format!("adapter {name} with {settings}"),
        Change::Adapter { name, settings } => format!("{settings} for adapter {name}"),
        Change::Remove { name, .. } => format!("the removal of adapter {name}"),
        Change::Switchdev(on) => format!("mode {}", if *on { "switchdev" } else { "legacy" }),
        Change::Again => "the same state once more".to_owned(),
    }
}

fn addresses(frame: &Frame) -> (String, String) {
    let mac = |at: usize| {
        let bytes = frame.bytes.get(at..at + 6).and_then(|bytes| bytes.first_chunk());
        bytes.map_or_else(|| "?".to_owned(), |bytes| Mac(*bytes).to_string())
    };
    (mac(6), mac(0))
}

/// Where frames arrived, in words.
fn whereabouts(arrived: &Arrived) -> String {
    let at = |(station, frames): (&String, &Vec<Frame>)| {
        let name = if station == WIRE { "the wire" } else { station };
        let tags: Vec<String> = frames.iter().map(Frame::tag_text).collect();
        format!("at {name} {}", tags.join(" and "))
    };
    let places: Vec<String> = arrived.iter().map(at).collect();
    if places.is_empty() { "nowhere".to_owned() } else { places.join(", ") }
}
