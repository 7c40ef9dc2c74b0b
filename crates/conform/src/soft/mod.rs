//! The soft NIC as a subject: a NIC in a daemon, managed over its API, with vhost-user guests.
//!
//! The daemon is one for each test, started and ended by the suite, or a running one of the user's
//! ([`running`]). In the latter the tests see and change objects of their own only.

mod daemon;
mod running;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::stats::PortStats;
use api::{InForce, Method};
use model::state::FunctionName;
use serde_json::{Value, json};
use vhost_user::Listener;

use super::guest::TestGuest;
use super::subject::{
    AdapterLocation, Capability, GuestConfig, GuestStop, ManagerRequest, ManagerStop, NicSetup,
    Rejection, Subject, WIRE,
};
use crate::interrupt::Interrupt;
use crate::request::{self, ManagerReply};
use daemon::SoftDaemon;
use running::{LISTS, RunningDaemon};

/// Name of the NIC and of the switch on it, after the prefix.
const NIC: &str = "nic0";
const SWITCH: &str = "sw0";
/// Time limit for frames in flight.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A guest or the wire, with its socket.
#[derive(Debug)]
struct SoftStation {
    guest: TestGuest,
    socket: PathBuf,
    /// Set if the guest listens and the daemon connects.
    listener: Option<Listener>,
}

/// Daemon of the NIC.
#[derive(Debug)]
enum Manager {
    /// A daemon for each test; `None` before the first.
    Own { program: PathBuf, daemon: Option<SoftDaemon> },
    /// A daemon of the user's.
    Running(RunningDaemon),
}

/// The soft NIC.
#[derive(Debug)]
pub struct SoftNic {
    manager: Manager,
    stations: BTreeMap<String, SoftStation>,
    interrupt: Interrupt,
}

impl SoftNic {
    /// The soft NIC of `program`, the shunt binary, in daemons of its own.
    pub fn new(program: &Path, interrupt: Interrupt) -> SoftNic {
        let manager = Manager::Own { program: program.to_owned(), daemon: None };
        SoftNic { manager, stations: BTreeMap::new(), interrupt }
    }

    /// A soft NIC in the running daemon with this run directory. Call
    /// [`finish`](Subject::finish) at the end.
    ///
    /// # Errors
    /// No daemon answers, or the run directory is not writable.
    pub fn running_in(run_dir: &Path, interrupt: Interrupt) -> Result<SoftNic> {
        let manager = Manager::Running(RunningDaemon::open(run_dir)?);
        Ok(SoftNic { manager, stations: BTreeMap::new(), interrupt })
    }

    fn end(&mut self) -> Result<()> {
        self.stations.clear();
        let ended = match &mut self.manager {
            Manager::Own { daemon, .. } => {
                *daemon = None;
                return Ok(());
            }
            Manager::Running(running) => running.end(),
        };
        // Not again when dropped.
        self.manager = Manager::Own { program: PathBuf::new(), daemon: None };
        ended
    }

    /// Run directory of the daemon.
    ///
    /// # Errors
    /// No test has begun.
    pub fn run_dir(&mut self) -> Result<PathBuf> {
        match &self.manager {
            Manager::Running(running) => Ok(running.run_dir().to_owned()),
            Manager::Own { .. } => Ok(self.daemon()?.run_dir()),
        }
    }

    fn daemon(&mut self) -> Result<&mut SoftDaemon> {
        match &mut self.manager {
            Manager::Own { daemon, .. } => daemon.as_mut().context("no test has begun"),
            Manager::Running(_) => bail!("the daemon is not the suite's"),
        }
    }

    /// Beginning of the names of all objects.
    fn prefix(&self) -> &str {
        match &self.manager {
            Manager::Own { .. } => "",
            Manager::Running(running) => running.prefix(),
        }
    }

    /// Name in the daemon of an object of the test.
    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix())
    }

    fn ask(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<ManagerReply> {
        self.interrupt.check()?;
        request::ask(&self.run_dir()?, method, path, body)
    }

    fn get(&mut self, path: &str) -> Result<Value> {
        self.interrupt.check()?;
        request::get(&self.run_dir()?, path)
    }

    fn path_of_adapter(&self, name: &str) -> String {
        format!("/v1/adapters/{}", self.full(name))
    }

    /// Records an object that is about to be made in the user's daemon; returns its name there.
    fn record(&mut self, resource: &str, name: &str) -> Result<String> {
        let full = self.full(name);
        if let Manager::Running(running) = &mut self.manager {
            running.record(resource, &full)?;
        }
        Ok(full)
    }

    /// Adds a guest, not yet attached.
    fn add_station(&mut self, name: &str, listens: bool) -> Result<Value> {
        // A daemon may belong to another user, so it makes sockets in its own directory. Guests can
        // listen in the directory of the suite's daemon.
        let dir = match &self.manager {
            Manager::Running(running) => running.run_dir().to_owned(),
            Manager::Own { .. } => self.daemon()?.path().to_owned(),
        };
        let socket = dir.join(format!("{}.sock", self.full(name)));
        // An existing guest is another virtual machine with the same name.
        self.stations.remove(name);
        let listener = listens.then(|| Listener::bind(&socket)).transpose()?;
        let mode = if listens { "client" } else { "server" };
        let attachment = json!({"socket": socket.display().to_string(), "mode": mode});
        self.stations
            .insert(name.to_owned(), SoftStation { guest: TestGuest::new()?, socket, listener });
        Ok(attachment)
    }

    fn add(
        &mut self,
        name: &str,
        location: AdapterLocation,
        settings: &Value,
        listens: bool,
    ) -> Result<ManagerReply> {
        let attachment = self.add_station(name, listens)?;
        let mut adapter = match location {
            AdapterLocation::Vf(index) => {
                json!({"nic": self.nic(), "vf": index, "iov_weight": 100})
            }
            AdapterLocation::Pool => json!({"nic": self.nic(), "iov_weight": 50}),
            AdapterLocation::Switch => json!({"switch": self.full(SWITCH)}),
        };
        adapter["attachment"] = attachment;
        for (field, value) in settings.as_object().context("settings are an object")? {
            adapter[field] = value.clone();
        }
        self.record("adapters", name)?;
        let said = self.ask(Method::PUT, &self.path_of_adapter(name), Some(&adapter))?;
        if said.is_err() {
            self.stations.remove(name);
        }
        Ok(said)
    }

    /// Changes the mode; in switchdev mode every possible VF has a station for its representor.
    fn switchdev(&mut self, on: bool) -> Result<ManagerReply> {
        let path = format!("/v1/nics/{}", self.nic());
        let nic = self.get(&path)?;
        let vfs = (0..nic["total_vfs"].as_u64().unwrap_or(0) as u16).map(FunctionName::Vf);
        let uplink = nic["uplink"].is_object().then_some(FunctionName::Uplink);
        let mut representors = Vec::new();
        for of in uplink.into_iter().chain(vfs) {
            let name = of.port_name();
            match on {
                true => representors
                    .push(json!({"of": of, "attachment": self.add_station(&name, false)?})),
                false => drop(self.stations.remove(&name)),
            }
        }
        let mode = if on { "switchdev" } else { "legacy" };
        self.ask(Method::PATCH, &path, Some(&json!({"mode": mode, "representor": representors})))
    }

    fn station(&mut self, name: &str) -> Result<&mut SoftStation> {
        self.stations.get_mut(name).with_context(|| format!("there is no station {name}"))
    }
}

impl Drop for SoftNic {
    fn drop(&mut self) {
        let _ = self.end(); // after a panic; the next run removes what is left
    }
}

impl Subject for SoftNic {
    fn name(&self) -> String {
        match &self.manager {
            Manager::Own { .. } => "soft NIC".to_owned(),
            Manager::Running(_) => "soft NIC in a running daemon".to_owned(),
        }
    }

    fn lacks(&self, what: Capability) -> Option<String> {
        let is_users = matches!(self.manager, Manager::Running(_));
        let why = match what {
            Capability::Restart if is_users => "it would restart the daemon that others use",
            Capability::GuestFirst if is_users => "guests listen in the suite's directory only",
            Capability::Virtual if is_users => "the daemon's devices are those of its own ports",
            Capability::UplinkLink => "its uplink is a socket, which is always up",
            Capability::FollowTraffic => "the limit applies to an hour, longer than the suite runs",
            Capability::IommuGroups => "its VFs are not PCI functions and have no IOMMU group",
            Capability::Migration => {
                "it needs two daemons and a VMM; the end-to-end tests cover it"
            }
            _ => return None,
        };
        Some(why.to_owned())
    }

    fn begin(&mut self, setup: &NicSetup) -> Result<()> {
        self.interrupt.check()?;
        self.stations.clear();
        match &mut self.manager {
            Manager::Own { program, daemon } => {
                *daemon = None; // ended before the next one starts
                *daemon = Some(SoftDaemon::start(program)?);
            }
            Manager::Running(running) => running.remove_objects()?,
        }
        let name = self.record("nics", NIC)?;
        let mut nic = json!({
            "name": name,
            "profile": setup.profile,
            "total_vfs": setup.total_vfs,
            "num_vfs": setup.num_vfs,
            "vmq_queues": setup.queues,
        });
        if setup.uplink {
            nic["uplink"] = self.add_station(WIRE, false)?;
        }
        let mut switches = Vec::new();
        if let Some(iov) = setup.switch {
            let switch = self.record("switches", SWITCH)?;
            switches.push(json!({"name": switch, "nic": name, "iov": iov}));
        }
        let state = json!({"version": 1, "nic": [nic], "switch": switches});
        if let Err(rejection) = self.ask(Method::POST, "/v1/apply", Some(&state))? {
            bail!("the NIC was rejected: {}", rejection.text());
        }
        if setup.uplink { self.attach(WIRE) } else { Ok(()) }
    }

    fn change(&mut self, change: &ManagerRequest) -> Result<std::result::Result<(), Rejection>> {
        let nic = format!("/v1/nics/{}", self.nic());
        let said = match change {
            ManagerRequest::NumVfs(count) => {
                self.ask(Method::PATCH, &nic, Some(&json!({"num_vfs": count})))?
            }
            ManagerRequest::Vf { index, settings } => {
                self.ask(Method::PATCH, &format!("{nic}/vfs/{index}"), Some(settings))?
            }
            ManagerRequest::ReleaseVf { index, owner } => {
                let path = request::released(format!("{nic}/vfs/{index}"), *owner);
                self.ask(Method::DELETE, &path, None)?
            }
            ManagerRequest::Add { name, location, settings, guest_first } => {
                self.add(name, *location, settings, *guest_first)?
            }
            ManagerRequest::Adapter { name, settings } => {
                self.ask(Method::PATCH, &self.path_of_adapter(name), Some(settings))?
            }
            ManagerRequest::Remove { name, owner } => {
                let path = request::released(self.path_of_adapter(name), *owner);
                self.ask(Method::DELETE, &path, None)?
            }
            ManagerRequest::Switchdev(on) => self.switchdev(*on)?,
            ManagerRequest::Reapply => {
                let state = self.document()?;
                self.ask(Method::POST, "/v1/apply", Some(&state))?
            }
        };
        Ok(said.map(drop))
    }

    fn document(&mut self) -> Result<Value> {
        let mut document = self.get("/v1/state")?;
        for (list, _) in LISTS {
            if let Some(objects) = document[list].as_array_mut() {
                let is_own = |object: &Value| {
                    object["name"].as_str().is_some_and(|name| name.starts_with(self.prefix()))
                };
                objects.retain(is_own);
            }
        }
        Ok(document)
    }

    fn in_force(&mut self) -> Result<InForce> {
        let actual = self.get("/v1/actual")?;
        let mut in_force: InForce =
            serde_json::from_value(actual).context("unexpected form of the answer")?;
        let prefix = self.prefix();
        let plain = |name: &mut String| {
            let own = name.strip_prefix(prefix).map(str::to_owned);
            own.map(|own| *name = own).is_some()
        };
        in_force.actual.nics.retain(|nic| nic.name.starts_with(prefix));
        for vf in in_force.actual.nics.iter_mut().flat_map(|nic| &mut nic.vfs) {
            vf.adapter.as_mut().map(plain);
        }
        in_force.actual.adapters.retain_mut(|adapter| plain(&mut adapter.name));
        in_force.owners.retain(|vf, _| vf.starts_with(prefix));
        Ok(in_force)
    }

    fn nic(&self) -> String {
        self.full(NIC)
    }

    fn counters(&mut self) -> Result<Vec<(String, PortStats)>> {
        let stats = api::stats::read(&self.run_dir()?)?;
        let prefix = self.prefix();
        let of_nic = |port: PortStats| {
            let name = port.name.strip_prefix(prefix)?; // the NIC is the test's
            let name = name.split_once('/').map_or(name, |(_, name)| name);
            Some((name.strip_prefix(prefix).unwrap_or(name).to_owned(), port))
        };
        Ok(stats.ports.into_iter().filter_map(of_nic).collect())
    }

    fn stop_manager(&mut self, how: ManagerStop) -> Result<()> {
        self.daemon()?.end(how)
    }

    fn start_manager(&mut self) -> Result<()> {
        self.daemon()?.resume()
    }

    fn attach(&mut self, station: &str) -> Result<()> {
        let SoftStation { guest, socket, listener } = self.station(station)?;
        match listener {
            Some(listener) => guest.accept(listener),
            None => guest.connect(socket),
        }
    }

    fn leave(&mut self, station: &str, how: GuestStop) -> Result<()> {
        let guest = &mut self.station(station)?.guest;
        match how {
            GuestStop::Orderly => guest.leave(),
            GuestStop::Killed => guest.die(),
        }
        Ok(())
    }

    fn is_attached(&mut self, station: &str) -> bool {
        self.stations.get(station).is_some_and(|station| station.guest.is_attached())
    }

    fn view(&mut self, station: &str) -> Result<GuestConfig> {
        self.station(station)?.guest.view()
    }

    fn send(&mut self, station: &str, frames: &[Vec<u8>]) -> Result<()> {
        let guest = &mut self.station(station)?.guest;
        frames.iter().try_for_each(|frame| guest.send(frame))
    }

    fn settle(&mut self) -> Result<()> {
        let patience = Instant::now() + SETTLE_TIMEOUT;
        for (name, station) in &mut self.stations {
            // A detached guest has posted frames for later.
            while station.guest.is_attached() && station.guest.in_flight()? > 0 {
                self.interrupt.check()?;
                if Instant::now() > patience {
                    bail!("frames that {name} sent are still in flight after 10 s");
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<(String, Vec<Vec<u8>>)>> {
        let taken = self.stations.iter_mut().map(|(name, station)| {
            let frames = station.guest.take().with_context(|| format!("at {name}"))?;
            Ok((name.clone(), frames))
        });
        taken.collect()
    }

    fn devices(&mut self) -> Result<Vec<String>> {
        let pid = self.daemon()?.pid().context("the daemon is not running")?;
        let mut devices = Vec::new();
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
            // A descriptor closed meanwhile is no device.
            let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
            let path = target.display().to_string();
            if path.starts_with("/dev/") && path != "/dev/null" && !path.starts_with("/dev/shm/") {
                devices.push(path);
            }
        }
        Ok(devices)
    }

    fn finish(&mut self) -> Result<()> {
        self.end()
    }
}
