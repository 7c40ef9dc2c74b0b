//! A card of the machine as a subject: a NIC of kind `pci` of a running daemon.
//!
//! # Model
//! The manager is the daemon's API. An adapter on a VF is the VF's entry in the document. Its guest
//! is the VF's interface, in a network namespace of its own. The wire is an interface that is
//! cabled to the card's port. The suite has the NIC for itself; [`claim`] restores it.
//!
//! # Limits
//! A card does not tell that it has dropped a frame. So every station sends markers twice: the
//! first show that the card has handled the frames before them, the second that the stations have
//! received those. A frame that comes later than these is missed. The wait for a station that no
//! marker can reach ends after [`MARKER_TIMEOUT`].

mod claim;
mod device;
mod station;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::stats::PortStats;
use api::{InForce, Method};
use host::interface::Interfaces;
use host::netlink::Netlink;
use model::state::{ActualNic, VlanProto};
use serde_json::{Value, json};
use sriov::{PciAddress, VfCounters};
use wire::Mac;
use wire::ethernet::FRAME_LEN_MIN;
use wire::vlan::{TPID_8021AD, TPID_8021Q, Tag};

use crate::context::W;
use crate::interrupt::Interrupt;
use crate::request::{self, ManagerReply};
use crate::subject::{
    AdapterLocation, Capability, GuestConfig, GuestStop, ManagerRequest, ManagerStop, NicSetup,
    Rejection, Subject, WIRE,
};
use claim::Claim;
use device::{Device, GuestInterface};
use station::{Marker, Station};

/// Number of VFs that the tests use.
const VFS_MIN: u16 = 4;
/// Time limit for markers.
const MARKER_TIMEOUT: Duration = Duration::from_secs(5);
/// Rounds of markers until those of a new guest arrive.
const ROUNDS_MAX: usize = 4;
/// Time limit for a marker to arrive at the wire before the first test.
const WIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for addresses of new VFs.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// A guest on a VF.
#[derive(Debug)]
struct CardGuest {
    vf: u16,
    mac: Mac,
    /// Settings that the VF got with the guest, and the VF's entry in the document with them only.
    settings: Value,
    entry: Value,
    interface: Option<GuestInterface>,
}

/// A card.
#[derive(Debug)]
pub struct CardNic {
    run_dir: PathBuf,
    name: String,
    /// `None` once the NIC is restored.
    claim: Option<Claim>,
    device: Device,
    wire: Option<String>,
    guests: BTreeMap<String, CardGuest>,
    /// The wire and the attached guests.
    stations: BTreeMap<String, Station>,
    /// Number of the last round of markers.
    round: u64,
    interrupt: Interrupt,
}

impl CardNic {
    /// The NIC of this name in the daemon with this run directory; `wire` is the interface that is
    /// cabled to its port. Call [`finish`](Subject::finish) at the end.
    ///
    /// # Errors
    /// No daemon answers, the NIC is no card, is in use or has no link, or the wire is not
    /// connected with it.
    pub fn open(
        run_dir: &Path,
        name: &str,
        wire: Option<String>,
        interrupt: Interrupt,
    ) -> Result<CardNic> {
        let claim = Claim::new(run_dir, name)?;
        let (device, vfs) = match find(run_dir, name) {
            Ok(found) => found,
            Err(error) => return claim.end().and(Err(error)),
        };
        let nic = CardNic {
            run_dir: run_dir.to_owned(),
            name: name.to_owned(),
            claim: Some(claim),
            device,
            wire,
            guests: BTreeMap::new(),
            stations: BTreeMap::new(),
            round: 0,
            interrupt,
        };
        (0..vfs).try_for_each(|vf| nic.device.check_unused(vf))?;
        nic.device.wait_for_link()?;
        nic.check_wire()?;
        Ok(nic)
    }

    /// Checks that frames of the PF arrive at the wire.
    fn check_wire(&self) -> Result<()> {
        let Some(wire) = &self.wire else { return Ok(()) };
        let is_running = Interfaces::of(None)?.state(wire)?.is_running;
        ensure!(is_running, "{wire} is down or has no link; ip link set {wire} up");
        let pf = &self.device.interface;
        let (mut near, mut far) = (Station::on_wire(pf)?, Station::on_wire(wire)?);
        let src = Mac(Interfaces::of(None)?.state(pf)?.mac);
        let arrived = device::wait(WIRE_TIMEOUT, || {
            near.mark((0, 0), src, &[])?;
            far.poll()?;
            Ok((!far.markers.is_empty()).then_some(()))
        })?;
        arrived.with_context(|| {
            format!("frames of {pf} do not arrive at {wire}: name the interface cabled to its port")
        })
    }

    fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<ManagerReply> {
        self.interrupt.check()?;
        request::ask(&self.run_dir, method, path, body)
    }

    fn path(&self) -> String {
        format!("/v1/nics/{}", self.name)
    }

    fn path_of(&self, vf: u16) -> String {
        format!("{}/vfs/{vf}", self.path())
    }

    fn actual(&self) -> Result<ActualNic> {
        self.interrupt.check()?;
        Ok(actual(&self.run_dir, &self.name)?.0)
    }

    fn guest(&mut self, name: &str) -> Result<&mut CardGuest> {
        self.guests.get_mut(name).with_context(|| format!("there is no guest {name}"))
    }

    /// Sets the VF of a new guest.
    fn add(&mut self, name: &str, vf: u16, settings: &Value) -> Result<ManagerReply> {
        let said = self.ask(Method::PATCH, &self.path_of(vf), Some(settings))?;
        if let Ok(entry) = &said {
            let mac = settings["mac"].as_str().and_then(|mac| mac.parse().ok());
            let mac = mac.context("a guest on a VF of a card needs a MAC address")?;
            let (settings, entry) = (settings.clone(), entry.clone());
            let guest = CardGuest { vf, mac, settings, entry, interface: None };
            self.guests.insert(name.to_owned(), guest);
        }
        Ok(said)
    }

    /// Removes the settings of a VF, except those of its guest.
    fn release(&mut self, vf: u16, owner: Option<u64>) -> Result<ManagerReply> {
        let path = self.path_of(vf);
        let said = self.ask(Method::DELETE, &request::released(path.clone(), owner), None)?;
        match self.guests.values().find(|guest| guest.vf == vf) {
            Some(guest) if said.is_ok() => self.ask(Method::PATCH, &path, Some(&guest.settings)),
            _ => Ok(said),
        }
    }

    /// Takes the VF of an attached guest back.
    fn detach(&mut self, name: &str, how: GuestStop) -> Result<()> {
        self.stations.remove(name);
        match (self.guest(name)?.interface.take(), how) {
            (None, _) => Ok(()),
            (Some(interface), GuestStop::Orderly) => self.device.take(interface),
            (Some(interface), GuestStop::Killed) => self.device.take_from_killed(interface),
        }
    }

    /// Takes all VFs back.
    fn detach_all(&mut self) -> Result<()> {
        self.stations.clear();
        let names: Vec<String> = self.guests.keys().cloned().collect();
        names.iter().try_for_each(|name| self.detach(name, GuestStop::Orderly))?;
        self.guests.clear();
        Ok(())
    }

    /// Restores the NIC.
    fn end(&mut self) -> Result<()> {
        let Some(claim) = self.claim.take() else { return Ok(()) };
        let detached = self.detach_all();
        // A guest that did not end in order ends with its namespace.
        self.guests.clear();
        detached.and(claim.end())
    }

    /// Has every station send markers, and waits until those that must have arrived have; returns
    /// `false` if it takes too long.
    fn exchange_markers(
        &mut self,
        has_arrived: fn(&BTreeMap<String, Station>, u64) -> bool,
    ) -> Result<bool> {
        if self.stations.len() < 2 {
            return Ok(true);
        }
        self.round += 1;
        let tags = self.tags()?;
        for (number, (name, station)) in (0..).zip(&mut self.stations) {
            let marker: Marker = (self.round, number);
            match self.guests.get(name) {
                Some(guest) => station.mark(marker, guest.mac, &[])?,
                None => station.mark(marker, W, &tags)?,
            }
        }
        let end = Instant::now() + MARKER_TIMEOUT;
        loop {
            self.stations.values_mut().try_for_each(Station::poll)?;
            let is_done = has_arrived(&self.stations, self.round);
            if is_done || Instant::now() >= end {
                return Ok(is_done);
            }
            self.interrupt.check()?;
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Tags of the VFs' VLANs.
    fn tags(&self) -> Result<Vec<[u8; 4]>> {
        let nic = request::get(&self.run_dir, &self.path())?;
        let tag = |vf: &Value| {
            let vid = vf["vlan"]["id"].as_u64()? as u16;
            let is_service = vf["vlan"]["proto"] == json!(VlanProto::Dot1ad);
            let tpid = if is_service { TPID_8021AD } else { TPID_8021Q };
            Some(Tag { tpid, pcp: 0, dei: false, vid }.to_bytes())
        };
        let mut tags: Vec<[u8; 4]> =
            nic["vf"].as_array().into_iter().flatten().filter_map(tag).collect();
        tags.sort_unstable();
        tags.dedup();
        Ok(tags)
    }
}

impl Drop for CardNic {
    fn drop(&mut self) {
        let _ = self.end(); // after a panic; the next run restores what is left
    }
}

/// `true` once the markers of each station have passed the card: those of a guest to the wire.
fn have_passed(stations: &BTreeMap<String, Station>, round: u64) -> bool {
    let has_wire = stations.contains_key(WIRE);
    (0..).zip(stations.keys()).all(|(number, sender)| {
        let is_other =
            |name: &&String| *name != sender && (!has_wire || sender == WIRE || *name == WIRE);
        let mut others = stations.iter().filter(|(name, _)| is_other(name));
        others.any(|(_, station)| station.markers.contains(&(round, number)))
    })
}

/// State of a NIC in force, and that of the whole daemon.
fn actual(run_dir: &Path, name: &str) -> Result<(ActualNic, InForce)> {
    let all: InForce = serde_json::from_value(request::get(run_dir, "/v1/actual")?)
        .context("unexpected form of the answer")?;
    let nic = all.actual.nics.iter().find(|nic| nic.name == name).cloned();
    Ok((nic.with_context(|| format!("NIC {name} is not in force"))?, all))
}

/// The card of a NIC, and its number of VFs.
fn find(run_dir: &Path, name: &str) -> Result<(Device, u16)> {
    let (nic, _) = actual(run_dir, name)?;
    let total = nic.total_vfs;
    ensure!(total >= VFS_MIN, "NIC {name} can have {total} VFs; the tests need {VFS_MIN}");
    let card = nic.card.with_context(|| format!("NIC {name} is no card"))?;
    let interface = card.interface.with_context(|| format!("the PF of {name} has no interface"))?;
    let address: PciAddress = card.address.parse()?;
    Ok((Device::new(address, interface), nic.vfs.len() as u16))
}

impl Subject for CardNic {
    fn name(&self) -> String {
        format!("card {}", self.device.address)
    }

    fn lacks(&self, what: Capability) -> Option<String> {
        let why = match what {
            Capability::Create => "the total number of VFs is the card's",
            Capability::Adapters | Capability::FollowTraffic => {
                "its guests are VFs with settings, not adapters"
            }
            Capability::Wire if self.wire.is_none() => {
                "it needs the wire; name the interface cabled to the card's port with --wire"
            }
            Capability::NoUplink => "the uplink of a card is its port",
            Capability::Profiles => "the limits of a card are those of its driver",
            Capability::Restart => "it would restart the daemon that others use",
            Capability::GuestFirst => "the interface of a VF is there before its guest",
            Capability::UplinkLink => "the suite does not cut the wire",
            Capability::Switch | Capability::Queues => {
                "adapters of a switch on a card have no VFs and queues of it"
            }
            Capability::Trunk => "Linux has no interface for trunks of a VF",
            Capability::FurtherMacs => "Linux has no interface for further addresses of a VF",
            Capability::Switchdev => "representors of a card are interfaces of its driver",
            Capability::IommuGroups => "groups change their numbers in a reboot only",
            Capability::Migration => "it needs two machines and a VMM",
            Capability::Virtual => "a card is hardware",
            Capability::Wire | Capability::ServiceTag | Capability::MinRate => return None,
        };
        Some(why.to_owned())
    }

    fn has_no_such_setting(&self, rejection: &Rejection) -> Option<String> {
        let by_model = rejection.error.contains("cannot be set on a card");
        let by_driver = rejection.field == "device" && rejection.error.contains(") refuses ");
        (by_model || by_driver).then(|| rejection.text())
    }

    fn not_enforced(&mut self, setting: &str) -> Result<Option<String>> {
        let card = self.actual()?.card.context("the NIC has no card")?;
        let driver = card.driver.unwrap_or_default();
        let is_reported = card.differences.iter().all(|it| it.setting != setting);
        Ok(is_reported.then(|| {
            format!(
                "{driver} reports {setting} in force, the card does not enforce it; VFs of a NIC of \
                 kind soft do"
            )
        }))
    }

    fn begin(&mut self, setup: &NicSetup) -> Result<()> {
        self.interrupt.check()?;
        self.detach_all()?;
        let count = setup.num_vfs.min(self.actual()?.total_vfs);
        self.claim.as_mut().context("the run has ended")?.renew(count)?;
        self.device.wait_for_link()?;
        (0..count).try_for_each(|vf| self.device.wait_for(vf).map(drop))?;
        // A driver tells the PF its VF's address once it has begun.
        let addresses = device::wait(ADDRESS_TIMEOUT, || {
            Ok(self.actual()?.vfs.iter().all(|vf| vf.mac.is_some()).then_some(()))
        })?;
        addresses.context("VFs have no addresses")?;
        self.attach(WIRE)
    }

    fn change(&mut self, change: &ManagerRequest) -> Result<std::result::Result<(), Rejection>> {
        let said = match change {
            ManagerRequest::NumVfs(count) => {
                self.ask(Method::PATCH, &self.path(), Some(&json!({"num_vfs": count})))?
            }
            ManagerRequest::Vf { index, settings } => {
                self.ask(Method::PATCH, &self.path_of(*index), Some(settings))?
            }
            ManagerRequest::ReleaseVf { index, owner } => self.release(*index, *owner)?,
            ManagerRequest::Add { name, location: AdapterLocation::Vf(vf), settings, .. } => {
                self.add(name, *vf, settings)?
            }
            ManagerRequest::Adapter { name, settings } => {
                let vf = self.guest(name)?.vf;
                self.ask(Method::PATCH, &self.path_of(vf), Some(settings))?
            }
            ManagerRequest::Remove { name, owner } => {
                let vf = self.guest(name)?.vf;
                let path = self.path_of(vf);
                let said = self.ask(Method::DELETE, &request::released(path, *owner), None)?;
                if said.is_ok() {
                    self.detach(name, GuestStop::Orderly)?;
                    self.guests.remove(name);
                }
                said
            }
            ManagerRequest::Add { .. } | ManagerRequest::Switchdev(_) | ManagerRequest::Reapply => {
                bail!("a card does not have {change:?}")
            }
        };
        Ok(said.map(drop))
    }

    fn document(&mut self) -> Result<Value> {
        self.interrupt.check()?;
        let mut nic = request::get(&self.run_dir, &self.path())?;
        // Settings that came with a guest are those of an adapter.
        let is_of_guest = |vf: &Value| self.guests.values().any(|guest| guest.entry == *vf);
        nic["vf"].as_array_mut().into_iter().for_each(|vfs| vfs.retain(|vf| !is_of_guest(vf)));
        Ok(json!({"nic": [nic]}))
    }

    fn in_force(&mut self) -> Result<InForce> {
        self.interrupt.check()?;
        let (mut nic, mut all) = actual(&self.run_dir, &self.name)?;
        for (name, guest) in &self.guests {
            let vf = nic.vfs.iter_mut().find(|vf| vf.index == guest.vf);
            vf.into_iter().for_each(|vf| vf.adapter = Some(name.clone()));
        }
        all.actual.nics = vec![nic];
        all.actual.adapters.clear();
        let of_nic = format!("{}/", self.name);
        all.owners.retain(|vf, _| vf.starts_with(&of_nic));
        Ok(all)
    }

    fn nic(&self) -> String {
        self.name.clone()
    }

    fn counters(&mut self) -> Result<Vec<(String, PortStats)>> {
        let pf = Interfaces::of(None)?.state(&self.device.interface)?.index;
        let vfs = sriov::read_vfs(&Netlink::route()?, pf, true)?;
        let of_guest = |(name, guest): (&String, &CardGuest)| {
            let counters = vfs.iter().find(|vf| vf.index == guest.vf)?.counters.unwrap_or_default();
            Some((name.clone(), port_stats(counters, self.stations.get(name))))
        };
        Ok(self.guests.iter().filter_map(of_guest).collect())
    }

    fn stop_manager(&mut self, _: ManagerStop) -> Result<()> {
        bail!("the daemon is not the suite's")
    }

    fn start_manager(&mut self) -> Result<()> {
        bail!("the daemon is not the suite's")
    }

    fn attach(&mut self, station: &str) -> Result<()> {
        let made = match (station, &self.wire) {
            (WIRE, None) => return Ok(()),
            (WIRE, Some(wire)) => Station::on_wire(wire)?,
            _ => {
                let CardGuest { vf, mac, .. } = *self.guest(station)?;
                let interface = self.device.give(vf, mac)?;
                let made = Station::guest(&interface.netns, &interface.name);
                self.guest(station)?.interface = Some(interface);
                made?
            }
        };
        self.stations.insert(station.to_owned(), made);
        // The kernel drops what is sent before it has noticed the link.
        for _ in 0..ROUNDS_MAX {
            if self.exchange_markers(have_passed)? {
                break;
            }
        }
        Ok(())
    }

    fn leave(&mut self, station: &str, how: GuestStop) -> Result<()> {
        self.detach(station, how)
    }

    fn is_attached(&mut self, station: &str) -> bool {
        let guest = self.guests.get(station);
        guest.and_then(|it| it.interface.as_ref()).is_some_and(GuestInterface::is_there)
    }

    fn view(&mut self, station: &str) -> Result<GuestConfig> {
        let interface = self.guest(station)?.interface.as_ref();
        interface.context("the guest is not attached")?.config()
    }

    fn send(&mut self, station: &str, frames: &[Vec<u8>]) -> Result<()> {
        let sender = self.stations.get(station);
        let sender = sender.with_context(|| format!("there is no station {station}"))?;
        frames.iter().try_for_each(|frame| sender.send(frame))
    }

    fn settle(&mut self) -> Result<()> {
        self.exchange_markers(have_passed)?;
        self.exchange_markers(|stations, round| {
            let has_one = |station: &Station| station.markers.range((round, 0)..).next().is_some();
            stations.values().all(has_one)
        })?;
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<(String, Vec<Vec<u8>>)>> {
        self.stations.values_mut().try_for_each(Station::poll)?;
        Ok(self.stations.iter_mut().map(|(name, at)| (name.clone(), at.take())).collect())
    }

    fn devices(&mut self) -> Result<Vec<String>> {
        bail!("the daemon's devices are those of its own NICs")
    }

    fn finish(&mut self) -> Result<()> {
        self.end()
    }
}

/// Counters of a VF without its markers.
fn port_stats(counters: VfCounters, station: Option<&Station>) -> PortStats {
    let (sent, received) = station.map_or((0, 0), |station| (station.sent, station.received));
    let without = |all: u64, markers: u64| all.saturating_sub(markers);
    let bytes = FRAME_LEN_MIN as u64;
    PortStats {
        tx_frames: without(counters.tx_packets, sent),
        tx_bytes: without(counters.tx_bytes, sent * bytes),
        rx_frames: without(counters.rx_packets, received),
        rx_bytes: without(counters.rx_bytes, received * bytes),
        ..PortStats::default()
    }
}
